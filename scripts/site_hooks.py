"""What `make site` does beside mkdocs: pages from outside docs/, their links, and the list of decisions.

The pages link to each other as files of the repository, so that they work where the repository is read, too.
"""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
# Pages outside docs/, and their names on the site
OUTSIDE = {
    "README.md": "overview.md",
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "examples/README.md": "examples.md",
}
DECISIONS = "adr/index.md"
_SOURCES = {site: source for source, site in OUTSIDE.items()}
_LINK = re.compile(r"(!?)\[([^\]\[]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
_FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The decisions in the navigation, as many as there are."""
    pages = [DECISIONS, *(f"adr/{path.name}" for path in _decisions())]
    config.nav = [{"Decisions": pages} if "Decisions" in each else each for each in config.nav or []]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """With the pages from outside, and a list of the decisions."""
    for source, site in OUTSIDE.items():
        files.append(File.generated(config, site, content=(ROOT / source).read_text(encoding="utf-8")))
    for path in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=_notebook(path)))
    shown = "\n".join(f"- [{_title(path)}]({path.name})" for path in _decisions())
    text = f"# Decisions\n\nWhy it is built this way: one page for each decision that is not obvious.\n\n{shown}\n"
    files.append(File.generated(config, DECISIONS, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links as the site has them; code is left alone."""
    site = page.file.src_uri
    source = _SOURCES.get(site, f"docs/{site}")
    kept = _FENCE.findall(markdown)
    parts = _FENCE.split(markdown)
    done = [_LINK.sub(lambda found: _link(found, source, site), part) for part in parts]
    return "".join(text + code for text, code in zip(done, [*kept, ""], strict=True))


def _link(found: re.Match[str], source: str, site: str) -> str:
    mark, text, target, anchor = found[1], found[2], found[3], found[4] or ""
    if "://" in target or target.startswith("mailto:"):
        return found[0]
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    if path == "docs/adr":
        path = f"docs/{DECISIONS}"
    if path.endswith(".ipynb") and not site.startswith("notebooks/"):  # the page that it is made into
        path = path.replace(".ipynb", ".md")
    there = OUTSIDE.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)
    if there is None:  # a file of the repository that is no page
        return text if (ROOT / path).exists() else found[0]
    shown = _title(ROOT / path) if re.fullmatch(r"(docs/)?[\w/-]+\.md", text) and (ROOT / path).is_file() else text
    return f"{mark}[{shown}]({posixpath.relpath(there, posixpath.dirname(site) or '.')}{anchor})"


def _notebook(path: Path) -> str:
    """A notebook as a page: its texts, its code, and what that has printed."""
    parts = list[str]()
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
        parts += [f"```text\n{''.join(each['text']).rstrip()}\n```" for each in cell.get("outputs", ())]
    parts.insert(1, f"[Download this notebook]({path.name})")
    return "\n\n".join(parts)


def _decisions() -> list[Path]:
    return sorted((ROOT / "docs" / "adr").glob("[0-9]*.md"))


def _title(path: Path) -> str:
    found = re.search(r"^# (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found else path.stem
