"""Docstrings explain names in columns, `name   meaning`: here they become lists, which Markdown can show."""

from __future__ import annotations

import re
from typing import Any

import griffe

ENTRY = re.compile(r"^(\w+(?:, \w+)*) {2,}(\S.*)$")


class Columns(griffe.Extension):
    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = listed(obj.docstring.value)


def listed(text: str) -> str:
    """The text with columns as Markdown lists."""
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        entry = ENTRY.match(line)
        if entry:
            lines += [] if inside else [""]
            lines.append(f"- `{entry[1]}`: {entry[2]}")
            inside = True
        elif inside and line.startswith("  "):
            lines.append(f"    {line.strip()}")
        else:
            inside = False
            lines.append(line)
    return "\n".join(lines)
