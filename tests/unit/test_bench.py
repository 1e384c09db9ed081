"""The benchmarks' own frame: one that fails, or a peer that cannot be installed, does not end the others."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Imports a file of bench/, and forgets what that brought."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(_BENCH)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(_BENCH)):
            del sys.modules[name]


def test_a_benchmark_that_fails_is_named_at_the_end_and_the_others_run(
    bench: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a_bad.py").write_text("raise SystemExit('it does not start')")
    (tmp_path / "b_good.py").write_text("print('ran')")
    (tmp_path / "_helper.py").write_text("raise SystemExit('no benchmark')")
    every = bench("_all")
    assert every.run_all(every.programs([], tmp_path)) == 1
    said = capfd.readouterr()
    assert "it does not start" in said.err
    assert [line.partition(" (")[0] for line in said.out.splitlines()] == [
        "== a_bad", "FAILED: a_bad", "== b_good", "ran", "== 1 of 2 benchmarks ended well", "FAILED: a_bad",
    ]  # fmt: skip
    assert every.run_all(every.programs(["b_good"], tmp_path)) == 0


def test_a_benchmark_that_there_is_not_is_refused_by_name(bench: Any) -> None:
    with pytest.raises(SystemExit, match=r"no such benchmark: jobs; there are .*\bjob\b"):
        bench("_all").programs(["jobs"])


@pytest.mark.slow
def test_a_peer_that_cannot_be_installed_says_why(bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environments = bench("_environments")
    monkeypatch.setattr(environments, "ROOT", tmp_path)
    monkeypatch.setattr(environments, "PEERS_FOLDER", tmp_path / "peers")
    (tmp_path / "constraints.txt").write_text("numpy==2.0.0\n")
    peer = environments.Environment("Nobody", (str(tmp_path / "no-such-package"),))
    with pytest.raises(bench("_servers").Skipped, match=r"Nobody cannot be installed: .*no-such-package"):
        peer.python()
    assert not (tmp_path / "peers" / "nobody" / "ready").exists()


def test_a_peer_that_cannot_run_is_left_out_with_a_word(bench: Any, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyarrow")
    job, skipped = bench("job"), bench("_servers").Skipped

    def fails() -> None:
        raise skipped("Daft cannot be installed: no such version")

    shares = job.measure({"ours": lambda: job.Took(1.0, 2.0), "Daft": fails}, lambda: None, 1.0, 10, 2)
    assert {name: len(each) for name, each in shares.items()} == {"ours": 2}
    assert "left out: Daft cannot be installed: no such version" in capsys.readouterr().out
