"""The tree stays one that a reader can hold in mind: small files, classes and functions."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import twoshift

FOLDER = Path(twoshift.__file__).parent
MOST_LINES, MOST_METHODS = 450, 25
MOST_FUNCTION_LINES, MOST_PARAMETERS = 40, 8
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def test_no_file_is_longer_than_can_be_read_at_once() -> None:
    lines = {path: len(text.splitlines()) for path, text in _texts().items()}
    assert {path: count for path, count in lines.items() if count > MOST_LINES} == {}


def test_no_class_has_more_methods_than_can_be_remembered() -> None:
    counts = {f"{path}: {name}": len(_METHOD.findall(body)) for path, name, body in _classes()}
    assert len(counts) > 1000
    assert {name: count for name, count in counts.items() if count > MOST_METHODS} == {}


def test_no_function_is_longer_than_can_be_followed() -> None:
    lines = {f"{path}: {each.name}": _lines(each) for path, each in _large_functions()}
    assert "cli/run.py: run_command" in lines  # one that is looked at
    assert {name: count for name, count in lines.items() if count > MOST_FUNCTION_LINES} == {}


def test_no_function_has_more_parameters_than_can_be_kept_apart() -> None:
    counts = {f"{path}: {each.name}": _parameters(each) for path, each in _large_functions()}
    assert "batch/plan.py: make" in counts
    assert {name: count for name, count in counts.items() if count > MOST_PARAMETERS} == {}


def test_lines_and_parameters_are_counted_without_the_options_of_a_command() -> None:
    text = '@command(app, "x")\ndef f(\n    a: A,\n    b: B,\n) -> None:\n    g()\n    h()\n'
    command, plain = _function(text), _function(text.partition("\n")[2])
    assert (_lines(command), _parameters(command)) == (2, 0)
    assert (_lines(plain), _parameters(plain)) == (6, 2)
    assert _parameters(_function("class C:\n    def f(self, a, *, b, **_): ...")) == 2
    assert _parameters(_function("def k(a, b, BLOCK: tl.constexpr): ...")) == 0


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
_DEF = re.compile(r"^( *)(?:async )?def \w+(\((?:.*\n)*?.*:(?:  # .*)?$)", re.MULTILINE)
_DECODABLE = re.compile(r"^@decodable\n(?:@.*\n)*class (\w+)", re.MULTILINE)
_DECODING = re.compile(r"\b(?:decode|convert|settings_of)\(.*\b[A-Z]", re.DOTALL)


@functools.cache
def _texts() -> dict[Path, str]:
    return {path.relative_to(FOLDER): path.read_text() for path in FOLDER.rglob("*.py")}


def _classes() -> Iterator[tuple[Path, str, str]]:
    for path, text in _texts().items():
        yield from ((path, name, body) for name, body in _CLASS.findall(text))


@functools.cache
def _large_functions() -> tuple[tuple[Path, _Function], ...]:
    """Those of files in which the layout shows that some may be large: the others need not be parsed."""
    # A migration that was released stays as it is, with the columns of its tables in one list
    changing = {path: text for path, text in _texts().items() if not path.is_relative_to("store/migrations/versions")}
    parsed = {path: ast.walk(ast.parse(text)) for path, text in changing.items() if any(_may_be_large(text))}
    return tuple((path, node) for path, tree in parsed.items() for node in tree if isinstance(node, _Function))


def _may_be_large(text: str) -> Iterator[bool]:
    for found in _DEF.finditer(text):
        after = re.compile(rf"\n {{0,{len(found[1])}}}(?=[^\s)])").search(text, found.end())
        lines = text.count("\n", found.start(), len(text) if after is None else after.start())
        yield lines > MOST_FUNCTION_LINES or found[2].count(",") >= MOST_PARAMETERS


def _lines(function: _Function) -> int:
    """Without the options of a command: they are its help and its page in the docs, one after the other, as data is."""
    first = function.body[0] if _is_command(function) else function
    return (function.end_lineno or 0) - first.lineno + 1


def _parameters(function: _Function) -> int:
    """That a caller names. Typer calls a command, one option for each word of the user; a GPU's kernel takes pointers
    and numbers, and nothing that could hold several of them.
    """
    given = function.args
    names = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    is_kernel = any(each.annotation is not None and "constexpr" in ast.unparse(each.annotation) for each in names)
    if is_kernel or _is_command(function):
        return 0
    return len(names) - (bool(names) and names[0].arg in ("self", "cls"))


def _is_command(function: _Function) -> bool:
    calls = [each for each in function.decorator_list if isinstance(each, ast.Call)]
    return any(isinstance(each.func, ast.Name) and each.func.id == "command" for each in calls)


def _function(text: str) -> _Function:
    found = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    return found[0]


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
