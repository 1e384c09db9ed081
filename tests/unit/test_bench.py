"""The benchmarks' own frame: one that fails, or a peer that cannot be installed, does not end the others."""

from __future__ import annotations

import importlib
import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from twoshift.sim.traffic import Arrivals
from waiting import until

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


@pytest.mark.parametrize("given", ["closed:200", "closed:200:later", "open", "burst:3", "half", ""])
def test_a_load_that_there_is_not_is_refused_with_those_that_there_are(bench: Any, given: str) -> None:
    with pytest.raises(ValueError, match=r"a load is one of closed:32:now, .*, burst; not"):
        bench("_overload_cells").load_of(given)


def test_every_cell_of_the_grid_has_a_key_of_its_own_and_those_of_a_server_stand_together(bench: Any) -> None:
    cells = bench("_overload_cells")
    wanted = cells.grid(cells.MODELS, cells.ROWS, cells.SLOS_MS, cells.REPLICAS, cells.LOADS, (False, True))
    assert len({cell.key for cell in wanted}) == len(wanted) == 3 * 2 * 2 * 2 * 12 * 2
    servers = [cell.served for cell in wanted]
    assert sum(one != other for one, other in itertools.pairwise(servers)) == len(set(servers)) - 1


def test_an_ideal_queue_answers_all_at_low_load_and_capacity_above_it(bench: Any) -> None:
    load, ideal = bench("_load"), bench("_overload_ideal")

    def inside(times: float, slo_s: float) -> float:
        plan = load.Plan(port=0, requests=[], rate_per_s=times * 1000.0, seconds=5.0, slo_s=slo_s)
        return sum(each for _, each in ideal.ideal_windows(plan, 1000.0, 0.001)) / (5.0 * 1000.0)

    assert inside(0.5, 0.1) == pytest.approx(0.5, rel=0.05)
    assert inside(3.0, 0.1) == pytest.approx(1.0, rel=0.05)
    assert inside(1.0, 0.0015) < 0.8  # one at a time: what comes meanwhile has no time left


def test_a_server_is_back_from_a_burst_when_all_that_follow_are_inside(bench: Any) -> None:
    back_after_s = bench("_overload_ideal").back_after_s
    before, late, fine = [(10, 10)] * 30, [(10, 0)] * 4, [(10, 10)] * 20
    assert back_after_s([*before, *fine], 3.0, 0.99) == 0
    assert back_after_s([*before, *late, *fine], 3.0, 0.99) == pytest.approx(0.4)
    assert back_after_s([*before, *fine, *late], 3.0, 0.99) is None


@pytest.mark.slow
def test_a_refused_client_asks_again_at_once_or_when_it_is_told_to(bench: Any) -> None:
    pytest.importorskip("uvloop")
    load, measure = bench("_load"), bench("_overload_measure")
    with measure.sink("") as port:
        plan = load.Plan(port=port, requests=[load.post("/", b"1")], clients=4, seconds=1.0, warm_s=0.1)
        eager, told = load.run_load(plan), load.run_load(msgspec.structs.replace(plan, honours_retry_after=True))
    assert eager.statuses.keys() == told.statuses.keys() == {503}
    assert told.statuses[503] <= 4 * (1.0 / 0.05 + 1) < eager.statuses[503]
    assert (told.lost, told.retry_after.p50_ms) == (0, 50)


@pytest.mark.parametrize("loop", [{"clients": 7}, {"rate_per_s": 30.0}, {"phases": [(1.0, 30.0), (2.0, 60.0)]}])
def test_the_shares_of_several_senders_are_the_whole_load(bench: Any, loop: dict[str, Any]) -> None:
    load = bench("_load")
    plan = load.Plan(port=1, requests=[b"a", b"b", b"c", b"d"], senders=3, cores="2,4-5", **loop)
    shares = load.shares(plan)
    assert [share.cores for share in shares] == ["2", "4", "5"]
    assert len({share.seed for share in shares}) == 3
    assert all(sorted(share.requests) == plan.requests for share in shares)
    if not plan.steps:
        assert sum(share.clients for share in shares) == 7
    for at, (seconds, rate) in enumerate(plan.steps):
        assert {share.steps[at][0] for share in shares} == {seconds}
        assert sum(share.steps[at][1] for share in shares) == pytest.approx(rate)


def test_a_sender_without_a_client_is_not_started(bench: Any) -> None:
    load = bench("_load")
    assert [share.clients for share in load.shares(load.Plan(port=1, requests=[b"a"], clients=2, senders=5))] == [1, 1]


@pytest.mark.slow
def test_replies_to_several_senders_count_as_those_to_one(bench: Any) -> None:
    pytest.importorskip("uvloop")
    load, measure = bench("_load"), bench("_overload_measure")
    with measure.sink("") as port:
        plan = load.Plan(port=port, requests=[load.post("/", b"1")], rate_per_s=300.0, seconds=1.0, warm_s=0.1)
        report = load.run_load(msgspec.structs.replace(plan, senders=3))
    due = sum(len([at for at in load.due_times(share) if at >= 0]) for share in load.shares(
        msgspec.structs.replace(plan, senders=3)))  # fmt: skip
    assert (report.statuses, report.lost, report.unsent) == ({503: due}, 0, 0)
    assert sum(each for each, _ in report.windows) == report.refused.count == due


@pytest.mark.slow
def test_a_sender_that_cannot_connect_ends_the_load(bench: Any, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("uvloop")
    load = bench("_load")
    plan = load.Plan(port=bench("_servers").free_port(), requests=[b"a"], senders=2, clients=2)
    with pytest.raises(subprocess.CalledProcessError):
        load.run_load(plan)
    assert "ConnectionRefusedError" in capfd.readouterr().err


def test_pieces_of_a_trace_are_played_once_each_at_the_rate_that_is_wanted(bench: Any) -> None:
    pytest.importorskip("uvloop")
    sim_serve = bench("sim_serve")
    arrivals = Arrivals(np.array([0.0, 1.0, 1.1, 5.0, 9.0, 9.5]), np.arange(1, 7), 10.0)
    trace = sim_serve.Trace(arrivals)
    first, second = trace.next(30.0, 0.1), trace.next(30.0, 0.1)
    assert [*first.tokens, *second.tokens] == [1, 2, 3, 4, 5, 6]
    assert first.times_s[0] == second.times_s[0] == 0.0
    assert len(first.times_s) / first.horizon_s == pytest.approx(30.0)
    assert np.diff(first.times_s)[0] == pytest.approx(10 * np.diff(first.times_s)[1])


def test_a_ratio_over_the_goal_is_marked(bench: Any, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("uvloop")
    sim_serve = bench("sim_serve")
    real = sim_serve.Seen(10.0, 20.0, 1.0, 0.0)
    assert sim_serve.shown("0.3", real, sim_serve.Seen(11.0, 18.0, 1.0, 0.0))
    assert not sim_serve.shown("0.3", real, sim_serve.Seen(10.0, 24.0, 1.0, 0.0))
    assert ["over" in line for line in capsys.readouterr().out.splitlines()] == [False] * 3 + [False, True, False]


@pytest.mark.slow
def test_requests_of_a_trace_do_not_wait_for_each_other(bench: Any) -> None:
    pytest.importorskip("uvloop")
    load, measure, trace = bench("_load"), bench("_overload_measure"), bench("_trace")
    with measure.sink("") as port:
        plan = trace.TimedPlan(port, [load.post("/", b"1")] * 50, [at / 500 for at in range(50)], connections=2)
        replies = trace.play(plan)
    assert replies.statuses == [503] * 50
    assert all(0 <= each < 5 for each in replies.latencies_s)


def test_a_goal_is_judged_by_the_figure_and_not_by_how_it_is_shown(bench: Any) -> None:
    goals = bench("_serve_gpu_goals")
    assert goals.Goal("share", 0.9, least=0.9).shown(True) == "share: 0.9 (goal >= 0.9: met)"
    assert goals.Goal("share", 0.8999, least=0.9).shown(True) == "share: 0.9 (goal >= 0.9: MISSED)"
    assert goals.Goal("told", 1.2, least=0.85, most=1.15).shown(True) == "told: 1.2 (goal >= 0.85 and <= 1.15: MISSED)"
    assert goals.Goal("rows/s", 24_100.4).shown(True) == "rows/s: 24,100"
    assert goals.Goal("p99, ms", 80.0, most=6).shown(False) == "p99, ms: 80 (goal on a GPU <= 6)"


def test_a_line_is_met_with_all_of_its_goals_and_a_failed_one_never(bench: Any) -> None:
    goals = bench("_serve_gpu_goals")
    fine, missed = goals.Goal("a", 2.0, least=1.0), goals.Goal("b", 2.0, most=1.0)
    assert goals.Outcome(line="x", about="", goals=[fine]).is_met
    assert goals.Outcome(line="x", about="", goals=[fine]).in_short(True).endswith("met     a: 2 (goal >= 1: met)")
    assert not goals.Outcome(line="x", about="", goals=[fine, missed]).is_met
    failed = goals.Outcome(line="x", about="", failed="it does not answer")
    assert not failed.is_met
    assert failed.in_short(True).split(maxsplit=2) == ["x", "failed", "it does not answer"]


def test_a_reply_that_is_lost_or_of_another_status_misses_whatever_the_rate_is(bench: Any) -> None:
    load, goals = bench("_load"), bench("_serve_gpu_goals")
    plan = load.Plan(port=1, requests=[b"a"], seconds=1.0)

    def met(statuses: dict[int, int], lost: int = 0) -> list[bool]:
        replies = load.Replies()
        replies.lost = lost
        for status, count in statuses.items():
            for _ in range(count):
                replies.add(status, 0.01)
        return [goal.is_met for goal in goals.replies_goals(replies.report(plan, 0.0))]

    assert met({200: 50, 503: 50}) == [True, True]
    assert met({200: 98, 504: 2}) == [False, True]
    assert met({200: 99, 500: 1}) == met({200: 99, 0: 1}) == met({200: 99}, lost=1) == [True, False]


def test_without_a_gpu_the_table_is_skipped_and_that_is_no_failure(
    bench: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyarrow")
    serve_gpu = bench("serve_gpu")
    monkeypatch.setattr(sys, "argv", ["serve_gpu.py"])
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(SystemExit) as ended:
        serve_gpu.main()
    assert (ended.value.code, capsys.readouterr().out) == (
        0,
        "skipped: this benchmark needs PyTorch and an NVIDIA GPU\n",
    )


def test_a_line_of_the_table_that_there_is_not_is_refused_with_those_that_there_are(
    bench: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    serve_gpu = bench("serve_gpu")
    monkeypatch.setattr(sys, "argv", ["serve_gpu.py", "--cpu", "--lines", "live64,live65"])
    with pytest.raises(SystemExit) as ended:
        serve_gpu.main()
    assert ended.value.code == 2
    assert "no such line: live65; there are live64, live256," in capsys.readouterr().err


def test_the_processor_time_of_a_process_counts_with_that_of_those_it_has_started(bench: Any) -> None:
    servers = bench("_servers")
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'], stdin=0)"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as process:
        until(lambda: len(servers.tree_cpu_s(process.pid)) == 2)
        used_s = servers.tree_cpu_s(process.pid)
        assert process.pid in used_s
        assert all(each >= 0 for each in used_s.values())
        assert process.stdin is not None
        process.stdin.write(b"\n")
    assert servers.tree_cpu_s(process.pid) == {}


def test_a_version_that_is_rolled_back_against_itself_too_often_fails_the_benchmark(
    bench: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    rollout = bench("rollout")
    spec = rollout.replace(rollout.LIVE, most_requests=1500)
    good = rollout.simulate_rollouts(spec, 2)
    bad = rollout.simulate_rollouts(rollout.replace(spec, candidate_failures=0.5), 2)
    assert rollout.alike("same", good)
    assert not rollout.alike("broken", bad)
    assert rollout.worse("broken", bad)
    assert "rolled back 2 of 2: 100.00 of alpha" in capsys.readouterr().out
