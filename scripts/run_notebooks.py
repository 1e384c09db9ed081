"""Run the notebooks in docs/notebooks and store what they print; with --check, only say whether it is the same."""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).resolve().parent.parent / "docs" / "notebooks"


def printed(notebook: Any) -> list[str]:
    """What each cell has printed on stdout."""
    outputs = (cell.get("outputs", ()) for cell in notebook.cells if cell.cell_type == "code")
    texts = ("".join(each.text for each in cell if each.get("name") == "stdout") for cell in outputs)
    return [re.sub(r"\x1b\[[\d;]*m| +$", "", text, flags=re.MULTILINE) for text in texts]  # without colours


def run(path: Path) -> Any:
    """The notebook as it is after a run in an empty folder, with the text of its cells alone."""
    notebook: Any = nbformat.read(path, 4)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TWOSHIFT_HOME"] = f"{folder}/home"
        where = {"metadata": {"path": folder}}
        NotebookClient(notebook, timeout=120, kernel_name="python3", resources=where).execute()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for cell, text in zip(code, printed(notebook), strict=True):
        cell.metadata, cell.execution_count = {}, None
        cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text=text)] if text else []
    return notebook


def main() -> int:
    """0, or 1 where a notebook prints something else than it shows."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--check", action="store_true", help="Write nothing.")
    is_check = options.parse_args().check
    os.environ |= {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "100"}
    changed = list[str]()
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        before, after = printed(nbformat.read(path, 4)), run(path)
        changed += [path.name] if printed(after) != before else []
        if not is_check:
            nbformat.write(after, path)
    print(f"Prints something else: {', '.join(changed)}" if changed else "All notebooks print what they show")
    return int(bool(changed) and is_check)


if __name__ == "__main__":
    sys.exit(main())
