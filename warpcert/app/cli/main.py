"""The command line. A command's words are known without loading torch; what it does is loaded when it runs."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module

from warpcert.app.cli.early import refuse
from warpcert.version import __version__

__all__ = ["COMMANDS", "build_parser", "main"]

COMMANDS = {  # name: what it does, and the module that holds `add` (its words) and `run` (its work)
    "certify": ("certify pictures and append the certificates to a run folder", "certify"),
    "predict": ("answer as the deployed classifier does", "predict"),
    "check": ("redo the arithmetic of every certificate in a run folder, or of one answer", "check"),
    "report": ("render runs and paper results as one HTML page that needs nothing else", "report"),
    "models": ("list the models by name: task, certified figures, size, licence, SHA-256", "models"),
    "data": ("list the datasets and where they are looked for", "datasets"),
    "attack": ("look for transformations that change the network's answer", "attack"),
    "bound": ("calibrate dist-d: choose E on one part of the data, test it on fresh pictures", "bound"),
    "invert": ("draw which originals can have led to an attacked picture", "invert"),
    "train": ("train a recipe (resumes by itself)", "train"),
    "serve": ("answer over HTTP, with a page to try it (extra: serve)", "serve"),
    "paper": ("list the paper's experiments, or run one (or all) and show its table", "paper"),
}


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """The parser of all commands, or one that knows the words of a single command."""
    parser = argparse.ArgumentParser(
        prog="warpcert", description="Proves how far a classifier's answer survives image transformations."
    )
    parser.add_argument("--version", action="version", version=f"warpcert {__version__}")
    verbs = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (what, module) in COMMANDS.items():
        p = verbs.add_parser(name, help=what, description=f"{what[0].upper()}{what[1:]}.")
        if only is None or name == only:
            import_module(f"warpcert.app.cli.commands.{module}").add(p)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Exit codes: 0 done, 1 a check failed, 2 bad input (one sentence on stderr), 130 interrupted."""
    from rich.console import Console

    words = list(sys.argv[1:] if argv is None else argv)
    parser = build_parser(next((w for w in words if not w.startswith("-")), ""))
    args, unknown = parser.parse_known_args(words)
    if unknown:
        parser.error(_unknown(args.command, unknown[0]))
    console = Console(stderr=True, highlight=False)
    try:
        refuse(args)
        module = import_module(f"warpcert.app.cli.commands.{COMMANDS[args.command][1]}")
        return int(module.run(args, console))
    except KeyboardInterrupt:
        console.print("\nInterrupted. Finished work is kept; run the same command to continue.")
        return 130
    except BrokenPipeError:  # whoever read the output has seen enough, as `head` has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (ValueError, OSError) as error:
        console.print(f"warpcert {args.command}: {error}", style="red", markup=False, soft_wrap=True)
        return 2


def _unknown(command: str, word: str) -> str:
    """Says which option may have been meant."""
    own = argparse.ArgumentParser(add_help=False)
    import_module(f"warpcert.app.cli.commands.{COMMANDS[command][1]}").add(own)
    options = [option for action in own._actions for option in action.option_strings]
    close = get_close_matches(word.partition("=")[0], options, n=1)
    return f"{command} has no option {word}" + (f": did you mean {close[0]}?" if close else "")


if __name__ == "__main__":
    sys.exit(main())
