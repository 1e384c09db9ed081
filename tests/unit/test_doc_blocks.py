"""Every code block of the documentation, as far as it can be checked; tests/e2e/test_docs_run.py runs them."""

from __future__ import annotations

import ast
import inspect
import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from doc_blocks import LANGUAGES, NOT_RUN, ROOT, Block, blocks, command_lines, in_sentences, reason_not_to_run
from twoshift.batch.settings import read_settings as read_job
from twoshift.cli import main, parser
from twoshift.serve.settings import read_settings as read_server
from twoshift.streams.settings import read_stream

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
TARGETS = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
LINES = [(block, line) for block in blocks("sh") for line in command_lines(block)]
SECRET = "whsec_" + 43 * "A" + "="
OTHERS = re.compile(r"(pip|make|cd|docker|helm|kubectl|\.venv/bin/\w+|TWOSHIFT_CRDS=\S+|printf|echo|curl|done)\b")


def test_every_block_says_what_it_is() -> None:
    assert [str(block) for block in blocks() if block.language not in LANGUAGES] == []


def test_what_is_not_run_is_there() -> None:
    """A reason that fits nothing any more is no reason."""
    shown = [(block, line) for block, line in LINES] + [
        (each, each.text.partition("\n")[0]) for each in blocks("python")
    ]
    reasons = {reason_not_to_run(block, line) for block, line in shown}
    assert {*NOT_RUN.values()} <= reasons


@pytest.mark.parametrize("block", blocks("toml"), ids=str)
def test_a_configuration_is_read_as_it_stands_there(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPS_WEBHOOK_SECRET", SECRET)
    path = tmp_path / "shown.toml"
    path.write_text(block.text, encoding="utf-8")
    keys = tomllib.loads(block.text).keys()
    if "inputs" in keys:
        read_job(path, {})
    elif "source" in keys:
        read_stream(path, {})
    else:
        read_server(path, {} if "models" in keys else {"models": {"minilm": {"model": "minilm"}}})


@pytest.mark.parametrize("block", blocks("json"), ids=str)
def test_json_is_json(block: Block) -> None:
    try:
        json.loads(block.text)
    except ValueError:
        assert [json.loads(line) for line in block.text.splitlines()]  # one object a line


@pytest.mark.parametrize(("block", "line"), LINES, ids=[f"{block} {line[:40]}" for block, line in LINES])
def test_a_command_is_one_that_there_is(
    block: Block, line: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    *_, command = line.split(" | ")
    words = shlex.split(command)
    if words[0] == "twoshift":
        check_twoshift(block, words[1:], monkeypatch, tmp_path)
        return
    assert OTHERS.match(line), line
    if words[:2] == ["pip", "install"]:
        named = re.findall(r"\.\[([\w,]+)\]", line)
        assert {name for each in named for name in each.split(",")} <= EXTRAS.keys()
    elif words[0] == "make":
        assert {word for word in words[1:] if "=" not in word} <= TARGETS
    for path in re.findall(r"(?<![\w/])((?:deploy|scripts|tests|examples)/[\w./-]+)", line):
        assert (ROOT / path).exists(), path


def test_commands_in_sentences_have_options_that_there_are() -> None:
    odd = list[str]()
    for page, line in in_sentences():
        node, _, given = found_command(shlex.split(line)[1:])
        flags = {flag for each in node.params for flag in (*each.opts, *each.secondary_opts)} | {"--help"}
        is_group = hasattr(node, "commands") and given and given[0].isalpha()  # a name that it does not have
        if is_group or any(word.startswith("--") and word.partition("=")[0] not in flags for word in given):
            odd.append(f"{page}: {line}")
    assert odd == []


def found_command(words: list[str]) -> tuple[Any, str, list[str]]:
    """The command that the words name, its name, and what they give it."""
    node, name = parser(words[0]), "twoshift"
    while hasattr(node, "commands") and words and words[0] in node.commands:
        node, name, words = node.commands[words[0]], f"{name} {words[0]}", words[1:]
    return node, name, words


def check_twoshift(block: Block, words: list[str], monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Its options are known; where it is a job, a stream or a server that is not run, its settings are read."""
    monkeypatch.chdir(folder)
    write_files(block.page, words, folder)
    node, name, given = found_command(words)
    with node.make_context(name, [*given], resilient_parsing=False):
        pass
    if words[0] in ("run", "serve", "stream") and "--on" not in words:
        monkeypatch.setattr("twoshift.cli.run._run", lambda *_: None)
        monkeypatch.setattr("twoshift.cli.run._tell", lambda *_: 0)
        monkeypatch.setattr("twoshift.cli.serve._serve", lambda *_: 0)
        monkeypatch.setattr("twoshift.cli.stream.show", lambda *_: None)
        monkeypatch.setattr("twoshift.cli.stream._run", lambda *_: {})
        monkeypatch.setattr("twoshift.cli.stream_progress.stream_lines", lambda *_: ())
        monkeypatch.setenv("OPS_WEBHOOK_SECRET", SECRET)
        assert main(words) == 0


def write_files(page: str, words: list[str], folder: Path) -> None:
    """Those that the command reads settings from: as the page shows them, or as `twoshift key` does."""
    (folder / "person.json").write_text('{"type": "object", "properties": {"name": {"type": "string"}}}')
    for word in words:
        if word.endswith(".toml"):
            shown = [each.text for each in blocks("toml") if each.page == page]
            fitting = [text for text in shown if ("inputs" in tomllib.loads(text)) == (words[0] == "run")]
            key = '[models.minilm]\n[keys.alice]\nsha256 = "' + 64 * "0" + '"\n'
            (folder / word).write_text(fitting[0] if fitting else key, encoding="utf-8")


@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_python_compiles_and_names_what_there_is(block: Block) -> None:
    tree = ast.parse(block.text)
    names: dict[str, Any] = {"twoshift": import_module("twoshift")}  # as the blocks before it have it
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == "twoshift":
            module = import_module(node.module)
            names |= {each.asname or each.name: getattr(module, each.name) for each in node.names}
    for call, function in called(tree, names):
        positional = [object()] * len(call.args)
        keywords = {each.arg: object() for each in call.keywords if each.arg}
        inspect.signature(function).bind_partial(*positional, **keywords)


def called(tree: ast.AST, names: dict[str, Any]) -> Iterator[tuple[ast.Call, Any]]:
    """Calls of what the names lead to."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            path = ast.unparse(node.func).split(".")
            if path[0] in names and all(each.isidentifier() for each in path):
                found = names[path[0]]
                for each in path[1:]:
                    found = getattr(found, each)
                yield node, found
