"""Write docs/cli.md from the program."""

from __future__ import annotations

from pathlib import Path

from twoshift.cli.docs import render

page = Path(__file__).resolve().parent.parent / "docs" / "cli.md"
page.parent.mkdir(exist_ok=True)
page.write_text(render(), encoding="utf-8")
print(f"wrote {page}")
