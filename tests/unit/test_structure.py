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
    lines = {path: len(text.splitlines()) for path, text in _texts().items()}
    assert {path: count for path, count in lines.items() if count > MOST_LINES} == {}


def test_no_class_has_more_methods_than_can_be_remembered() -> None:
    counts = {f"{path}: {name}": len(_METHOD.findall(body)) for path, name, body in _classes()}
    assert len(counts) > 1000
    assert {name: count for name, count in counts.items() if count > MOST_METHODS} == {}


def test_what_is_decoded_anywhere_is_ready_for_several_threads() -> None:
    ready = {name for text in _texts().values() for name in _DECODABLE.findall(text)}
    decoding = [ast.parse(text) for text in _texts().values() if _DECODING.search(text)]
    nodes = (node for tree in decoding for node in ast.walk(tree))
    found = {each.id for node in nodes for each in _decoded(node) if isinstance(each, ast.Name)}
    assert "JobSettings" in found
    assert found - {"inner", "kind"} <= ready  # those are variables, of functions that are asked for one of these


# By their layout, which ruff keeps: to parse all of it would take two seconds
_CLASS = re.compile(r"^class (\w+).*\n((?:(?:[ )].*)?\n)*)", re.MULTILINE)
_METHOD = re.compile(r"^    (?:async )?def ", re.MULTILINE)
_DECODABLE = re.compile(r"^@decodable\n(?:@.*\n)*class (\w+)", re.MULTILINE)
_DECODING = re.compile(r"\b(?:decode|convert|settings_of)\(.*\b[A-Z]", re.DOTALL)


@functools.cache
def _texts() -> dict[Path, str]:
    return {path.relative_to(FOLDER): path.read_text() for path in FOLDER.rglob("*.py")}


def _classes() -> Iterator[tuple[Path, str, str]]:
    for path, text in _texts().items():
        yield from ((path, name, body) for name, body in _CLASS.findall(text))


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
