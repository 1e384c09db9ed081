"""The tree stays one that a reader can hold in mind: small files, small classes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
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


def test_what_is_decoded_anywhere_is_ready_for_several_threads() -> None:
    trees = [ast.parse(path.read_text()) for path in FOLDER.rglob("*.py")]
    classes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    ready = {each.name for each in classes if any(ast.unparse(mark) == "decodable" for mark in each.decorator_list)}
    found = {each.id for tree in trees for each in _decoded(tree) if isinstance(each, ast.Name)}
    assert "JobSettings" in found
    assert found - {"inner", "kind"} <= ready  # those are variables, of functions that are asked for one of these


def _decoded(tree: ast.AST) -> Iterator[ast.expr]:
    """What the calls that decode name as the type."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        match ast.unparse(node.func).rpartition(".")[2]:
            case "decode":
                yield from (each.value for each in node.keywords if each.arg == "type")
            case "convert":
                yield from node.args[1:2]
            case "settings_of":
                yield from node.args[:1]
            case _:
                pass
