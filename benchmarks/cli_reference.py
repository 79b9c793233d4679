"""Writes docs/cli.md from the parsers: `python -m benchmarks.cli_reference`. A test compares the two."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from warpcert.app.cli import build_parser

PAGE = Path(__file__).parents[1] / "docs" / "cli.md"
INTRODUCTION = """# Command line

Written by `python -m benchmarks.cli_reference` from the parsers; `warpcert COMMAND --help` says the same.
Results go to stdout, progress and errors to stderr.
Exit codes: 0 done, 1 a check failed, 2 bad input (one sentence says what to change), 130 interrupted.
"""


def parsers(parser: argparse.ArgumentParser, help_: str = "") -> Iterator[tuple[argparse.ArgumentParser, str]]:
    """Every command that does something, with its line of help, in the order of the parent's help."""
    nested = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    if not nested:
        yield parser, help_
    for action in nested:
        lines = {choice.dest: choice.help or "" for choice in action._choices_actions}
        for name, inner in action.choices.items():
            yield from parsers(inner, lines.get(name, ""))


def help_of(action: argparse.Action, parser: argparse.ArgumentParser) -> str:
    """The help of an option as --help prints it."""
    return parser._get_formatter()._expand_help(action) if action.help else ""


def _written(action: argparse.Action, parser: argparse.ArgumentParser) -> str:
    """How the option is written: `--blur SIGMA SIZE`."""
    formatter = parser._get_formatter()
    if not action.option_strings:
        return f"`{formatter._format_args(action, action.metavar or action.dest.upper())}`"  # type: ignore[arg-type]
    names = ", ".join(action.option_strings)
    if action.nargs == 0:
        return f"`{names}`"
    default = formatter._get_default_metavar_for_optional(action)
    return f"`{names} {formatter._format_args(action, default)}`"


def _section(parser: argparse.ArgumentParser, help_: str) -> str:
    positional = " ".join(_written(a, parser).strip("`") for a in parser._get_positional_actions())
    out = [f"## {parser.prog}\n", f"{help_[:1].upper()}{help_[1:]}.\n"] if help_ else [f"## {parser.prog}\n"]
    out.append(f"```\n{' '.join(filter(None, (parser.prog, positional, '[options]')))}\n```\n")
    plain, *named = parser._action_groups[1:]
    first = [*parser._positionals._group_actions, *plain._group_actions]
    for title, actions in (("", first), *((g.title, g._group_actions) for g in named)):
        shown = [a for a in actions if not isinstance(a, argparse._HelpAction)]
        if not shown:
            continue
        if title:
            out.append(f"**{title}**\n")
        out.append("| option | meaning |\n| --- | --- |")
        for action in shown:
            meaning = help_of(action, parser).replace("|", "\\|")
            out.append(f"| {_written(action, parser).replace('|', chr(92) + '|')} | {meaning} |")
        out.append("")
    return "\n".join(out)


def render() -> str:
    """docs/cli.md as it must be."""
    return "\n".join([INTRODUCTION, *(_section(parser, help_) for parser, help_ in parsers(build_parser()))])


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
    print(f"wrote {PAGE}")
