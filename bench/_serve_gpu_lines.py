"""The lines of the table: a job and live requests on one server, each with its goal."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
from _load import Plan, Report, run_load
from _overload_server import NAME, PATIENT_MS, Server, requests
from _serve_gpu_goals import Goal, Outcome, replies_goals
from _serve_gpu_jobs import Documents, dedicated_per_s, on_server_per_s
from _servers import tree_cpu_s

WARM_S, SETTLE_S = 2.0, 1.0


@dataclass(frozen=True, slots=True)
class Setting:
    """A device, and how much is asked of it."""

    model: str  # as `_overload_server` has it
    slo_ms: float
    long_slo_ms: float  # of the load by the clock
    few_per_s: float
    few_times: float  # as long as the other loads: few requests have no p99
    many_per_s: float
    clock_per_s: float
    clients: int
    crowd: int
    text_clients: int
    texts: int
    job_rows: int
    job_tokens: float
    job_times: int  # over these rows, of the job beside live requests
    small_job_times: int  # of the smaller model's


GPU = Setting("bert", 20, 100, 50, 3, 2_000, 9_000, 64, 256, 32, 32, 200_000, 90, 8, 3)
CPU = Setting("minilm", 200, 500, 5, 1, 20, 100, 8, 32, 4, 4, 200, 20, 60, 1)


@dataclass(slots=True)
class Bench:
    """Where everything runs, for how long, and what was measured so far."""

    setting: Setting
    seconds: float
    server_cores: str
    sender_cores: str
    senders: int
    work: Path
    documents: Documents
    dedicated: float = 0.0  # rows a second of the job with the device to itself
    outputs: int = field(default=0, init=False)

    def output(self) -> Path:
        """A folder that no job has had."""
        self.outputs += 1
        return self.work / f"out-{self.outputs}"

    def load(
        self, port: int, rows: int = 1, patient: bool = False, slo_ms: float | None = None, times: float = 1, **how: Any
    ) -> Report:
        """What comes back of it, without the series that only some benchmarks look at."""
        slo_s = (PATIENT_MS if patient else slo_ms or self.setting.slo_ms) / 1e3
        plan = Plan(
            port=port, requests=requests(rows, patient), warm_s=WARM_S, seconds=times * self.seconds, slo_s=slo_s,
            cores=self.sender_cores, senders=self.senders, spins=bool(self.sender_cores), **how,
        )  # fmt: skip
        return msgspec.structs.replace(run_load(plan), windows=[])


def closed(bench: Bench, server: Server, clients: int, line: str, inside: bool) -> Outcome:
    """Clients that ask again when they have their reply; all answers count, or those inside the SLO."""
    report, used = _with_cpu(server, partial(bench.load, server.port, clients=clients))
    what, value = ("requests/s inside the SLO", report.in_time_per_s) if inside else ("requests/s", report.ok_per_s)
    goals = [Goal(what, value, least=20_000), Goal("p99, ms", report.ok.p99_ms)]
    goals += [Goal("inside of all", report.in_time_share), *replies_goals(report)]
    about = f"live, {clients} clients, SLO {bench.setting.slo_ms:g} ms"
    return Outcome(line=line, about=about, goals=[*goals, *used], figures={"report": report})


def crowd_of_texts(bench: Bench, server: Server) -> Outcome:
    """Clients with many texts a request, as a share of what the same ones get who have time."""
    setting = bench.setting
    ask = partial(bench.load, server.port, setting.texts, clients=setting.text_clients)
    patient = ask(patient=True)
    report, used = _with_cpu(server, ask)
    share = report.in_time_per_s / max(1e-9, patient.ok_per_s)
    goals = [Goal("of capacity inside the SLO", share, least=0.9), Goal("requests/s inside", report.in_time_per_s)]
    goals += [Goal("capacity, requests/s", patient.ok_per_s), Goal("p99, ms", report.ok.p99_ms), *replies_goals(report)]
    about = f"live, {setting.text_clients} clients with {setting.texts} texts each, SLO {setting.slo_ms:g} ms"
    figures = {"report": report, "capacity": patient}
    return Outcome(line="texts32", about=about, goals=[*goals, *used], figures=figures)


def by_the_clock(bench: Bench, server: Server) -> Outcome:
    """As a share of what there is to have: the load, or capacity where that is less."""
    setting = bench.setting
    patient = bench.load(server.port, patient=True, clients=setting.crowd)
    ask = partial(bench.load, server.port, slo_ms=setting.long_slo_ms, rate_per_s=setting.clock_per_s)
    report, used = _with_cpu(server, ask)
    possible_per_s = min(setting.clock_per_s, patient.ok_per_s)
    goals = [Goal("of what is possible, inside the SLO", report.in_time_per_s / max(1e-9, possible_per_s), least=0.9)]
    goals += [Goal("requests/s inside", report.in_time_per_s), Goal("capacity, requests/s", patient.ok_per_s)]
    goals += [Goal("p99, ms", report.ok.p99_ms), Goal("sent late, p99, ms", report.sent_late_ms)]
    about = f"live, {setting.clock_per_s:,.0f} requests/s by the clock, SLO {setting.long_slo_ms:g} ms"
    figures = {"report": report, "capacity": patient}
    return Outcome(line="clock9000", about=about, goals=[*goals, *replies_goals(report), *used], figures=figures)


def told_capacity(bench: Bench, server: Server) -> Outcome:
    """What the server says of itself against what it does."""
    before = server.get(f"/v1/derived/{NAME}")
    report, used = _with_cpu(server, partial(bench.load, server.port, patient=True, clients=bench.setting.crowd))
    derived = server.get(f"/v1/derived/{NAME}")
    told_per_s = derived["capacity_rows_per_s"]
    share = told_per_s / max(1e-9, report.ok_per_s)
    goals = [Goal("told of measured", share, least=0.85, most=1.15), Goal("told, rows/s", told_per_s)]
    goals += [Goal("told before the load", before["capacity_rows_per_s"]), Goal("measured, rows/s", report.ok_per_s)]
    about = f"capacity as /v1/derived tells it; measured with {bench.setting.crowd} patient clients"
    figures = {"report": report, "derived": derived, "derived_before": before}
    return Outcome(line="derived", about=about, goals=[*goals, *used], figures=figures)


def job_alone(bench: Bench, server: Server) -> Outcome:
    """A whole job on the server, and the same one that had the device to itself."""
    run = partial(on_server_per_s, server.port, bench.documents.files, bench.output())
    per_s, used = _with_cpu(server, run)
    goals = [Goal("of the dedicated job", per_s / bench.dedicated, least=0.95), Goal("rows/s", per_s)]
    about = "a job on the server (run --on), nothing else"
    return Outcome(line="job", about=about, goals=[*goals, Goal("dedicated, rows/s", bench.dedicated), *used])


class BesideGoal(NamedTuple):
    """Of a job and of live requests beside it."""

    most_p99_ms: float
    least_share: float | None = None  # of the dedicated job
    least_inside: float | None = None  # of live requests, inside the SLO


def beside(bench: Bench, server: Server, line: str, load: dict[str, float], goal: BesideGoal) -> Outcome:
    """A job that does not end, with live requests by the clock."""
    with server.job(bench.documents.endless):
        time.sleep(SETTLE_S)
        rows, began_s = server.batch_rows(), time.perf_counter()
        report, used = _with_cpu(server, partial(bench.load, server.port, **load))
        job_per_s = (server.batch_rows() - rows) / (time.perf_counter() - began_s)
    goals = [Goal("job of the dedicated one", job_per_s / bench.dedicated, least=goal.least_share)]
    goals += [Goal("live p99, ms", report.ok.p99_ms, most=goal.most_p99_ms)]
    goals += [Goal("live inside of all", report.in_time_share, least=goal.least_inside), Goal("job, rows/s", job_per_s)]
    goals += [Goal("live p50, ms", report.ok.p50_ms), Goal("sent late, p99, ms", report.sent_late_ms)]
    about = f"a job beside {load['rate_per_s']:,.0f} live requests/s, SLO {bench.setting.slo_ms:g} ms"
    return Outcome(line=line, about=about, goals=[*goals, *replies_goals(report), *used], figures={"report": report})


def small_job(bench: Bench, model: list[str], folder: Path, with_device: bool) -> Outcome:
    """A job of a smaller model, where the host is what fills up, against the tokenizer and the device alone."""
    from encoder_gpu import bare_forward, start, tokenizer_alone

    from twoshift.runtime.encoder.folder import read_folder
    from twoshift.runtime.encoder.tokens import TextTokenizer

    documents = bench.documents
    files = documents.many(bench.setting.small_job_times)
    per_s = dedicated_per_s(model, files, bench.output(), cores="")
    tokenizer_per_s = tokenizer_alone(TextTokenizer(read_folder(folder), False), documents.texts)
    goals = [Goal("rows/s", per_s), Goal("of tokenizers alone in one process", per_s / tokenizer_per_s)]
    goals += [Goal("tokenizers alone, rows/s", tokenizer_per_s)]
    if with_device:
        alone = start(folder, documents.texts)
        bare_per_s = bare_forward(alone)
        alone.engine.close()
        goals += [Goal("of the bare packed forward pass", per_s / bare_per_s), Goal("that, rows/s", bare_per_s)]
    return Outcome(line="minilm", about="a dedicated job, MiniLM size, all cores", goals=goals)


class Line(NamedTuple):
    """One of the table: the server that it needs, and how it is measured there."""

    on: Literal["slo", "long slo"]
    measure: Callable[[Bench, Server], Outcome]
    compared: bool = False  # with the dedicated job


def lines(setting: Setting) -> dict[str, Line]:
    """Those that need a server, in the order in which they are measured."""
    few = {"rate_per_s": setting.few_per_s, "times": setting.few_times}
    many = {"rate_per_s": setting.many_per_s}
    return {
        "live64": Line("slo", partial(closed, clients=setting.clients, line="live64", inside=False)),
        "live256": Line("slo", partial(closed, clients=setting.crowd, line="live256", inside=True)),
        "derived": Line("slo", told_capacity),
        "texts32": Line("slo", crowd_of_texts),
        "job": Line("slo", job_alone, compared=True),
        "beside50": Line("slo", partial(beside, line="beside50", load=few, goal=BesideGoal(6, 0.9)), compared=True),
        "beside2000": Line(
            "slo", partial(beside, line="beside2000", load=many, goal=BesideGoal(15, None, 0.99)), compared=True
        ),
        "clock9000": Line("long slo", by_the_clock),
    }


def _with_cpu(server: Server, work: Callable[[], Any]) -> tuple[Any, list[Goal]]:
    """And what the server's processes took of the cores meanwhile: which of them was full."""
    before, began_s = tree_cpu_s(server.pid), time.perf_counter()
    result = work()
    took_s = time.perf_counter() - began_s
    shares = sorted(
        ((now - before.get(pid, 0.0)) / took_s for pid, now in tree_cpu_s(server.pid).items()), reverse=True
    )
    goals = [Goal("cores of the server's busiest process", max(shares, default=0.0)), Goal("of all", sum(shares))]
    return result, goals
