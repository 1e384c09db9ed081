"""The pages that become a site, and the references among them that are written from the code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("prometheus_client", reason="the serve extra is not installed")

from twoshift.cli.metrics_docs import render_metrics

ROOT = Path(__file__).resolve().parents[2]
TROUBLES = re.findall(r"^### `(.+)`$", (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    pytest.importorskip("material", reason="the docs extra is not installed")
    words = ["build", "--quiet", "--config-file", str(ROOT / "mkdocs.yml"), "--site-dir", str(tmp_path)]
    made = subprocess.run([sys.executable, "-W", "ignore", "-m", "mkdocs", *words], capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
    pages = {path.relative_to(tmp_path): path.read_text(encoding="utf-8") for path in tmp_path.rglob("*.html")}
    assert {Path("index.html"), Path("quickstart.html"), Path("architecture.html")} <= pages.keys()
    loads = re.compile(r"<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=[\"']?(?:https?:)?//[^\"' >]+")
    assert {str(path): found for path, text in pages.items() if (found := loads.findall(text))} == {}
    assert "tickets.jsonl" in (tmp_path / "search" / "search_index.js").read_text(encoding="utf-8")


def test_the_metrics_are_those_of_the_code() -> None:
    shown = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert shown == render_metrics(), "docs/metrics.md has drifted: run `make docs`"


def test_the_messages_that_the_page_explains_are_ones_that_the_program_says() -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    said = re.sub(r'"\s*\n\s*f?"', "", sources)  # a text over several lines is one
    assert [message for message in TROUBLES if not all(each.strip() in said for each in message.split("…"))] == []


def test_the_page_explains_messages() -> None:
    assert len(TROUBLES) >= 30
    assert len(set(TROUBLES)) == len(TROUBLES)
