"""/docs: the OpenAPI document as one page that needs nothing else, not even a script."""

from __future__ import annotations

import re
from html import escape
from typing import Any

__all__ = ["page"]

STYLE = """
:root { color-scheme: light dark; --ink: #1c2024; --soft: #5c646d; --line: #dfddd6; --paper: #f6f5f1; --sure: #0b7a6b; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e9e7e2; --soft: #9ba4ad; --line: #2d3339; --paper: #121518; --sure: #52d3bd; }
}
body { margin: 0 auto; max-width: 880px; padding: 22px 20px 60px; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.05rem; margin: 34px 0 4px; border-top: 1px solid var(--line);
  padding-top: 18px; } h3 { font-size: .86rem; color: var(--soft); margin: 14px 0 2px; }
p { margin: 4px 0; } b { color: var(--sure); } code { font-size: .94em; } .soft { color: var(--soft); }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: .92rem; min-width: 100%; }
td { border-top: 1px solid var(--line); padding: 4px 14px 4px 0; vertical-align: top; overflow-wrap: normal; }
a { color: inherit; }
"""

Schema = dict[str, Any]


def page(document: Schema) -> str:
    """The whole page."""
    info, parts = document["info"], document.get("components", {}).get("schemas", {})
    asked = [
        _operation(path, verb, operation, parts)
        for path, verbs in document["paths"].items()
        for verb, operation in verbs.items()
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<title>{escape(info['title'])} · API</title><style>{STYLE}</style></head><body>"
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1><p>{escape(info['description'])}</p>"
        '<p class="soft">For programs: <a href="/openapi.json">/openapi.json</a>. To try it: <a href="/">the page</a>.'
        f"</p>{''.join(asked)}</body></html>"
    )


def _operation(path: str, verb: str, operation: Schema, parts: Schema) -> str:
    shown = [f"<h2><b>{verb.upper()}</b> <code>{escape(path)}</code></h2><p>{escape(operation['summary'])}.</p>"]
    by_fields: dict[str, list[str]] = {}
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        by_fields.setdefault(_fields(content["schema"], parts), []).append(kind)
    for fields, kinds in by_fields.items():
        shown.append(f"<h3>Send {escape(' or '.join(kinds))}</h3>{fields}")
    if answer := operation.get("responses", {}).get("200", {}).get("content", {}):
        schema = answer.get("application/json", {}).get("schema", {})
        shown.append(f"<h3>Answer: {escape(', '.join(answer))}</h3>{_fields(schema, parts)}")
    refusals = {s: r["description"] for s, r in operation.get("responses", {}).items() if s != "200"}
    if refusals:
        rows = "".join(f"<tr><td><code>{s}</code></td><td>{escape(text)}</td></tr>" for s, text in refusals.items())
        shown.append(f'<h3>Refusals</h3><div class="scroll"><table>{rows}</table></div>')
    return f"<section>{''.join(shown)}</section>"


def _fields(schema: Schema, parts: Schema) -> str:
    """A table of an object's fields; "" for anything else."""
    schema = parts.get(schema["$ref"].rpartition("/")[2], {}) if "$ref" in schema else schema
    rows = [
        f"<tr><td><code>{escape(name)}</code></td><td>{escape(_kind(field))}</td>"
        f"<td>{_text(field.get('description', ''))}</td></tr>"
        for name, field in schema.get("properties", {}).items()
    ]
    about = f"<p>{_text(schema.get('description', ''))}</p>" if rows else ""
    return f'{about}<div class="scroll"><table>{"".join(rows)}</table></div>' if rows else ""


def _text(words: str) -> str:
    """A sentence, its `code` set as such."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(words))


def _kind(field: Schema) -> str:
    """Type, choices and default in a few words."""
    options = [o for o in field.get("anyOf", [field]) if o.get("type") != "null"]
    words = " or ".join(_type(o) for o in options)
    default = field.get("default")
    return f"{words}, default {default}" if default is not None else words


def _type(option: Schema) -> str:
    if "enum" in option:
        return " | ".join(map(str, option["enum"]))
    if option.get("type") == "array":
        return f"list of {_type(option['items'])}"
    return "file" if option.get("format") == "binary" else str(option.get("type", "object"))
