"""The code blocks of the documentation, and why some of them are not run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "LANGUAGES", "NOT_RUN", "ROOT", "Block", "blocks", "command_lines", "in_sentences", "reason_not_to_run",
]  # fmt: skip

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    *(
        ROOT / name
        for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "examples/README.md")
    ),
    *sorted((ROOT / "docs").rglob("*.md")),
]
LANGUAGES = {"json", "python", "sh", "sql", "text", "toml"}  # text: what a program prints, formulas, pictures
_README = (ROOT / "README.md").read_text(encoding="utf-8")
_FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)

# What is not run, by how a command line begins or what it has, or by a block's page and first line; the first that
# fits. All of it is checked: options and values of `twoshift`, names of files, extras and targets.
NOT_RUN = {
    r"docs/cli\.md: ": "tests/unit/cli/test_cli_help.py runs the example of each command",
    r"examples/README\.md: twoshift|README\.md: (twoshift|printf|echo)(?!.* --on )(?! serve)": (
        "tests/unit/test_docs.py runs the commands of both READMEs"
    ),
    r": pip install": "changes the environment; the extras are compared with pyproject.toml",
    r": (make|\.venv/bin/)": "takes minutes; the targets are compared with the Makefile, the files exist",
    r": (docker|helm|kubectl|while|done|TWOSHIFT_CRDS)": (
        "needs a container runtime or a cluster; tests/unit/deploy renders and validates the files that it names"
    ),
    r": twoshift serve\b": "runs until it is stopped; its settings are read, and tests/e2e starts servers of each kind",
    r": twoshift plan ui\b": "runs until it is stopped; tests/e2e/test_plan_page.py opens it",
    r": twoshift stream\b": "runs until it is stopped; its settings are read, and tests/e2e/test_streams.py runs it",
    r": twoshift .*(smollm|/llama|models/llm)\b": (
        "needs vLLM and minutes; its settings are read, and tests/e2e/test_llm_*.py run such commands"
    ),
    r"--engine ray": "needs a cluster of Ray; tests/e2e/test_ray.py has one",
    r"(postgresql|redis|s3)://": "needs a database or a bucket; tests/contract has them",
    r"schedule add .* --workers": "needs a server with replicas for jobs; tests/e2e/test_scale_to_zero.py has one",
    r"batch (cancel|retry) ": "needs a batch that still runs, or one with failures; tests/e2e/test_batches.py has both",
    r"~/": "needs the reader's own files",
    r"README\.md: twoshift (deploy|schedule)": "docs/rollouts.md and docs/triggers.md have the same command",
    # Blocks of Python
    r"docs/llms\.md: from twoshift": "needs vLLM and minutes; tests/e2e/test_llm_job.py runs such a model",
    r"docs/serving\.md: import redis\.asyncio": "needs Redis; tests/e2e/test_lookups.py has such a class",
}


@dataclass(frozen=True, slots=True)
class Block:
    """One, and where it is."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(language: str = "") -> list[Block]:
    """Those of all pages in a language; all of them without one."""
    return [each for page in PAGES for each in _of(page) if not language or each.language == language]


def _of(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for found in _FENCE.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        yield Block(str(page.relative_to(ROOT)), line, found[2], found[3])


def command_lines(block: Block) -> list[str]:
    """The commands of a shell's block: comments left out, lines that belong together in one."""
    made, text = list[str](), ""
    for line in block.text.replace("\\\n", " ").splitlines():
        text = f"{text}\n{line}" if text else line
        bare = re.sub(r"(^|\s)#\s.*$", "", text).strip()
        try:
            shlex.split(bare)
        except ValueError:  # a quote that ends on a later line
            continue
        made += [each.strip() for each in bare.split(" && ") if each.strip()]
        text = ""
    return made


def in_sentences() -> list[tuple[str, str]]:
    """Commands that stand in sentences, and the pages of these."""
    texts = {page: _FENCE.sub("", page.read_text(encoding="utf-8")) for page in PAGES}
    found = ((page, line) for page, text in texts.items() for line in re.findall(r"`(twoshift [^`]+)`", text))
    return [(str(page.relative_to(ROOT)), " ".join(line.split())) for page, line in found]


def reason_not_to_run(block: Block, line: str) -> str | None:
    """Why this command of the block, or the block that begins with this line, is checked and not run."""
    named = f"{block.page}: {line}"
    same = "README.md has the same command" if block.page != "README.md" and f"`{line}`" in _README else None
    return next((reason for pattern, reason in NOT_RUN.items() if re.search(pattern, named)), same)
