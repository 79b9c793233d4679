"""What the website has beside the pages of this folder: notebooks with their outputs, and the pages of the root."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
PROJECT = ("DESIGN.md", "CONTRIBUTING.md", "CHANGELOG.md")
LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for file in list(files):
        if file.src_uri.endswith(".ipynb"):
            page = rendered(json.loads(Path(str(file.abs_src_path)).read_text(encoding="utf-8")))
            files.remove(file)
            files.append(Notebook(config, file.src_uri, page))
    for name in PROJECT:
        page = rebased((ROOT / name).read_text(encoding="utf-8"))
        files.append(File.generated(config, f"project/{name}", content=page))
    return files


class Notebook(File):
    """A page of Markdown under the name of its notebook, so that links to the notebook find it."""

    def __init__(self, config: MkDocsConfig, uri: str, page: str) -> None:
        made = File.generated(config, uri, content=page)
        super().__init__(uri, None, config.site_dir, config.use_directory_urls)
        self.generated_by, self._content = made.generated_by, page

    def is_documentation_page(self) -> bool:
        return True

    @property
    def name(self) -> str:
        return Path(self.src_uri).stem

    def _get_dest_path(self, use_directory_urls: bool | None = None) -> str:
        return f"{Path(self.src_uri).with_suffix('')}/index.html"


def rendered(notebook: dict[str, Any]) -> str:
    """A notebook as Markdown: its text, its code, and what the code printed and drew."""
    return "\n\n".join(part for cell in notebook["cells"] for part in _cell(cell))


def _cell(cell: dict[str, Any]) -> list[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return [source]
    parts = [f"```python\n{source}\n```"]
    for output in cell["outputs"]:
        data = output.get("data", {})
        if "image/png" in data:
            parts.append(f"![output](data:image/png;base64,{''.join(data['image/png'].split())})")
        elif text := "".join(output.get("text", data.get("text/plain", ""))):
            parts.append(f"```text\n{text.rstrip()}\n```")
    return parts


def rebased(page: str) -> str:
    """A page of the root, with its links as they are from project/: what is not on the site is named, not linked."""
    return LINK.sub(
        lambda m: f"[{m[1]}](../{m[2].removeprefix('docs/')})" if m[2].startswith("docs/") else _kept(m), page
    )


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Links to the root, which pages of this folder write as ../NAME, lead to project/NAME."""
    if page.file.src_uri.startswith("project/"):
        return markdown
    depth = page.file.src_uri.count("/")
    above = re.compile(rf"\[([^\]]+)\]\({'../' * (depth + 1)}({'|'.join(PROJECT)})(#[^)\s]*)?\)")
    return above.sub(lambda m: f"[{m[1]}]({'../' * depth}project/{m[2]}{m[3] or ''})", markdown)


def _kept(link: re.Match[str]) -> str:
    local = link[2].split("#")[0] in (*PROJECT, "") or "://" in link[2]
    return link.group() if local else link[1]
