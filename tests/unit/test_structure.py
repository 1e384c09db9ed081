"""The tree stays one that a reader can hold in mind: small files, small classes."""

from __future__ import annotations

import ast
from pathlib import Path

import twoshift

FOLDER = Path(twoshift.__file__).parent
MOST_LINES, MOST_METHODS = 450, 25


def test_no_file_is_longer_than_can_be_read_at_once() -> None:
    lines = {path.relative_to(FOLDER): len(path.read_text().splitlines()) for path in FOLDER.rglob("*.py")}
    assert {path: count for path, count in lines.items() if count > MOST_LINES} == {}


def test_no_class_has_more_methods_than_can_be_remembered() -> None:
    found = dict[str, int]()
    for path in FOLDER.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                methods = sum(isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) for each in node.body)
                if methods > MOST_METHODS:
                    found[f"{path.relative_to(FOLDER)}: {node.name}"] = methods
    assert found == {}
