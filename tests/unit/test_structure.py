"""The tree stays one that a reader can hold in mind: small files, small classes."""

from __future__ import annotations

import ast
import functools
import re
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
    for path, each in _classes():
        methods = sum(isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef) for inner in each.body)
        if methods > MOST_METHODS:
            found[f"{path.relative_to(FOLDER)}: {each.name}"] = methods
    assert found == {}


def test_what_is_decoded_anywhere_is_ready_for_several_threads() -> None:
    ready = {each.name for _, each in _classes() if "decodable" in map(ast.unparse, each.decorator_list)}
    decoding = [
        tree for path, tree in _trees().items() if re.search(r"\b(decode|convert|settings_of)\(", path.read_text())
    ]
    nodes = (node for tree in decoding for node in ast.walk(tree))
    found = {each.id for node in nodes for each in _decoded(node) if isinstance(each, ast.Name)}
    assert "JobSettings" in found
    assert found - {"inner", "kind"} <= ready  # those are variables, of functions that are asked for one of these


@functools.cache
def _trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text()) for path in FOLDER.rglob("*.py")}


def _classes() -> Iterator[tuple[Path, ast.ClassDef]]:
    for path, tree in _trees().items():
        yield from ((path, each) for each in _inside(tree) if isinstance(each, ast.ClassDef))


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    """The statements in it: no class is in an expression."""
    for each in ast.iter_child_nodes(node):
        if not isinstance(each, ast.expr):
            yield each
            yield from _inside(each)


def _decoded(node: ast.AST) -> Iterator[ast.expr]:
    """What a call that decodes names as the type."""
    match node:
        case ast.Call(func=ast.Attribute(attr="decode") | ast.Name("decode")):
            yield from (each.value for each in node.keywords if each.arg == "type")
        case ast.Call(func=ast.Attribute(attr="convert") | ast.Name("convert")):
            yield from node.args[1:2]
        case ast.Call(func=ast.Attribute(attr="settings_of") | ast.Name("settings_of")):
            yield from node.args[:1]
        case _:
            pass
