"""A job in numbers: totals over every part and every run, as JSON and as a page; of one that stopped, so far."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from twoshift import report
from twoshift._version import __version__
from twoshift.batch import summary_sums
from twoshift.batch.against import AgainstReport
from twoshift.batch.impact import LiveImpact, Percentiles
from twoshift.batch.index_report import IndexReport, index_words
from twoshift.batch.loading import LoadReport
from twoshift.batch.parity_report import ParityReport
from twoshift.batch.part_stats import FailedRow, PartStats
from twoshift.batch.plan import Plan
from twoshift.batch.progress import JobSnapshot
from twoshift.batch.run_record import RunRecord, covered_s
from twoshift.batch.time_figures import FEWEST_POINTS, time_figures
from twoshift.decodable import decodable
from twoshift.llm_ports import QualityReport
from twoshift.units import counted

__all__ = ["Summary", "against_words", "dollars", "load_words", "parity_words", "summary_page", "token_price_words"]

_QUANTILES = {"p10": 0.1, "p50": 0.5, "p90": 0.9, "longest": 1.0}
_NAMED_INPUTS = 3


@decodable
class Summary(msgspec.Struct, frozen=True):
    """Everything that the report says."""

    model: str
    precision: str
    shards: int
    rows: int
    errors: int
    error_kinds: dict[str, int]
    truncated: int
    tokens: int
    padding: float  # share of what the devices ran
    elapsed_s: float  # over all runs
    device_s: float  # of committed shards
    wasted_s: float  # of the devices, on shards that were lost or done twice
    busy: float  # share of the workers' time
    rows_per_s: float
    shard_seconds: dict[str, float]  # p10, p50, p90, longest
    retries: int
    speculated: int
    deaths: tuple[str, ...]
    failures: dict[str, int]
    failed_calls: int
    out_of_memory: int  # of them
    max_tokens: int | None  # of a call, at its lowest, where the memory ran out
    usd: float | None
    usd_per_million: float | None
    parity: ParityReport | None
    precision_parity: float | None  # of a lossy precision: with full precision, on the job's first rows
    runs: tuple[RunRecord, ...]
    harvested_s: float = 0.0  # device time that serving left idle
    riding_s: float = 0.0  # of that: in calls that live rows were in
    dedicated_s: float = 0.0  # device time of workers of its own
    live: LiveImpact | None = None  # what live requests noticed, over all runs beside them
    inputs: tuple[str, ...] = ()  # as they were given
    output: str = ""
    state: str = "done"  # or how its last run ended before that
    reason: str = ""  # why
    shards_done: int | None = None  # where it is not done
    output_tokens: int = 0  # that a language model generated
    cached_tokens: int = 0  # of `tokens`: read before, for another row
    adapters: dict[str, str] = {}  # that its rows used, with their checksums
    quality: QualityReport | None = None  # of a language model: what let the job start
    usd_per_million_input: float | None = None  # tokens of prompts, whether read or found in the cache
    usd_per_million_output: float | None = None  # tokens generated
    lost_s: float = 0.0  # of workers, in shards that were started but not committed
    predicted_s: float | None = None  # for these rows on as many workers, predicted from the first rows
    failed_rows: tuple[FailedRow, ...] = ()  # the first of them
    split: int = 0  # texts that were divided because they are longer than the model takes
    skipped: int = 0  # rows with neither a result nor an error: their texts are empty
    against: AgainstReport | None = None  # how far its answers are from another model's
    index: IndexReport | None = None  # of its vectors
    load: LoadReport | None = None  # its rows in a store

    @classmethod
    def so_far(
        cls,
        plan: Plan,
        stats: Sequence[PartStats],
        runs: Sequence[RunRecord],
        last: JobSnapshot,
        state: str,
        reason: str,
    ) -> Summary:
        """Of a job that stopped: `stats` are those of its last run alone, and what was lost is not known yet."""
        sums = cls.of(plan, stats, runs, None)
        rows, busy_s = last.rows_before + last.committed_rows, sum(run.busy_s for run in runs)
        return msgspec.structs.replace(
            sums,
            rows=rows,
            errors=last.errors_before + last.errors,
            rows_per_s=sum(run.rows for run in runs) / max(1e-9, sums.elapsed_s),
            device_s=busy_s,
            wasted_s=0.0,
            state=state,
            reason=reason,
            shards_done=last.shards_done,
        )

    @classmethod
    def of(
        cls, plan: Plan, stats: Sequence[PartStats], runs: Sequence[RunRecord], parity: ParityReport | None
    ) -> Summary:
        """The sums."""
        rows, elapsed_s = sum(each.rows for each in stats), covered_s(runs)
        tokens, padding = sum(run.tokens for run in runs), sum(run.padding_tokens for run in runs)
        usd = sum(prices) if (prices := [run.usd for run in runs if run.usd is not None]) else None
        busy_s, device_s = sum(run.busy_s for run in runs), sum(each.device_s for each in stats)
        worker_s = sum(run.worker_s for run in runs)
        # Of a job that took parts over from another the runs did only the rest
        done = rows if plan.retry_of is None else sum(run.rows for run in runs)
        caps = [run.max_tokens for run in runs if run.out_of_memory and run.max_tokens]
        return cls(
            model=plan.model.name,
            precision=plan.model.precision,
            shards=len(plan.shards),
            rows=rows,
            errors=sum(each.errors for each in stats),
            error_kinds=dict(sum((Counter(each.kinds) for each in stats), Counter[str]())),
            truncated=sum(each.truncated for each in stats),
            tokens=sum(each.tokens for each in stats),
            padding=padding / max(1, tokens + padding),
            elapsed_s=elapsed_s,
            device_s=device_s,
            wasted_s=max(0.0, busy_s - device_s),
            busy=min(1.0, busy_s / max(1e-9, worker_s)),
            rows_per_s=done / max(1e-9, elapsed_s),
            shard_seconds=_quantiles([each.seconds for each in stats]),
            max_tokens=min(caps, default=None),
            usd=usd,
            usd_per_million=None if usd is None or not done else 1e6 * usd / done,
            parity=parity,
            precision_parity=plan.model.parity,
            runs=tuple(runs),
            predicted_s=done * plan.seconds_per_row * elapsed_s / worker_s if worker_s else None,
            **summary_sums.of_runs(runs),
            **summary_sums.of_parts(stats),
            **summary_sums.of_plan(plan),
            **summary_sums.of_tokens(stats, runs, usd),
        )

    def with_index(self, index: IndexReport | None) -> Summary:
        """The same with what became of its index: without a good one it is not done."""
        if index is None or index.switched:
            return msgspec.structs.replace(self, index=index)
        low = f"recall@10 of the index is {index.recall:.4f}, below the minimum of {index.required:g}"
        reason = f"{low}, so searches do not use the index"
        return msgspec.structs.replace(self, index=index, state="low recall", reason=reason, shards_done=self.shards)

    @property
    def output_tokens_per_s(self) -> float:
        """Over all runs."""
        return self.output_tokens / max(1e-9, self.elapsed_s)

    @property
    def span_s(self) -> float:
        """From the beginning of the first run to the end of the last: what a window is held against."""
        began_s = min((run.began_unix_s for run in self.runs), default=0.0)
        return max((run.began_unix_s + run.elapsed_s for run in self.runs), default=0.0) - began_s


def _quantiles(seconds: list[float]) -> dict[str, float]:
    ranked = sorted(seconds) or [0.0]
    return {name: ranked[min(len(ranked) - 1, int(share * len(ranked)))] for name, share in _QUANTILES.items()}


def dollars(usd: float) -> str:
    """Dollars with two digits that are not 0: a short job costs less than a cent, and not nothing."""
    places = 2 if not 0 < usd < 0.1 else min(9, 1 - math.floor(math.log10(usd)))
    return f"${usd:,.{places}f}"


def summary_page(summary: Summary, stats: Sequence[PartStats]) -> str:
    """The report as one HTML file."""
    words = [*_state_words(summary), *_words(summary)]
    sections = [report.Section("Summary", [report.figures_row(_cards(summary)), report.text(words)])]
    if over_time := tuple(time_figures(summary.runs)):
        sections.append(report.Section("Over time", [over_time]))
    if len(stats) >= FEWEST_POINTS:
        sections.append(report.Section("Shards", [_shard_figure(stats)]))
    if summary.error_kinds or summary.failures:
        rows: list[Sequence[Any]] = [("rows", kind, count) for kind, count in sorted(summary.error_kinds.items())]
        rows += [("shards", message, count) for message, count in sorted(summary.failures.items())]
        blocks = [report.table(("affected", "error", "count"), rows)]
        if failed := [(each.row, each.error) for each in summary.failed_rows]:
            blocks.append(report.table(("row", f"why (the first {len(failed)} of {summary.errors:,})"), failed))
        sections.append(report.Section("Errors", blocks))
    model = " and ".join([summary.model, *(f"the adapter {name}" for name in summary.adapters)])
    title = f"{model} in {summary.precision} over {counted(summary.rows, 'row')}"
    return report.page(title, _what_ran(summary), sections, f"Made by twoshift {__version__}")


def _state_words(summary: Summary) -> Iterator[str]:
    """Of a job that is not done."""
    if summary.shards_done is None:
        return
    why = f": {summary.reason}" if summary.reason else ""
    yield f"The job is not done: {summary.state}{why}."
    yield (
        f"{summary.shards_done:,} of {counted(summary.shards, 'shard')} are committed; run the same command "
        "again to resume the job."
    )


def _what_ran(summary: Summary) -> str:
    """Inputs, output, when and by how many: what tells one report from another."""
    more = len(summary.inputs) - _NAMED_INPUTS
    named = ", ".join(summary.inputs[:_NAMED_INPUTS]) + (f" and {more:,} more" if more > 0 else "")
    told = [f"{named} to {summary.output}"]
    if summary.runs:
        began = time.gmtime(min(run.began_unix_s for run in summary.runs))
        workers = max(1, *(run.workers for run in summary.runs))
        told.append(time.strftime("started %Y-%m-%d %H:%M UTC", began))
        preparers = max(run.preparers for run in summary.runs)
        beside = f" and {counted(preparers, 'preparing process', 'preparing processes')}" if preparers else ""
        told.append(f"{counted(len(summary.runs), 'run')} with {counted(workers, 'worker')}{beside}")
    return "; ".join(told)


def _cards(summary: Summary) -> list[report.Card]:
    share = summary.errors / max(1, summary.rows)
    cards = [
        report.Card("rows", f"{summary.rows:,}", counted(summary.shards_done or summary.shards, "shard")),
        report.Card("rows per second", f"{summary.rows_per_s:,.1f}", f"{summary.elapsed_s:,.0f} s in all"),
        report.Card("errors", f"{summary.errors:,}", f"{share:.2%}", "bad" if summary.errors else "good"),
        report.Card("device busy", f"{summary.busy:.0%}", f"{summary.padding:.1%} padding" if summary.padding else ""),
    ]
    if summary.output_tokens:
        cards.append(report.Card("tokens per second", f"{summary.output_tokens_per_s:,.1f}", "generated"))
    if summary.usd is not None and summary.usd_per_million is not None:
        cards.append(
            report.Card("dollars", dollars(summary.usd), f"{dollars(summary.usd_per_million)} per million rows")
        )
    if summary.live is not None and (beside := summary.live.beside) is not None:
        cards += _live_cards(beside, summary.live.alone, summary.live.slo_s)
    return cards


def _live_cards(beside: Percentiles, alone: Percentiles | None, slo_s: float | None) -> Iterator[report.Card]:
    """What live requests took beside the job, against their objective."""
    for name, now_s, then_s in (
        ("p50", beside.p50_s, alone and alone.p50_s),
        ("p99", beside.p99_s, alone and alone.p99_s),
    ):
        then = "while the job was running" if then_s is None else f"{1e3 * then_s:.3g} ms without the job"
        goal = "" if slo_s is None else f"objective {1e3 * slo_s:.3g} ms; "
        state = "plain" if slo_s is None else "good" if now_s <= slo_s else "bad"
        yield report.Card(f"live {name}", f"{1e3 * now_s:.3g} ms", f"{goal}{then}", state)


def _words(summary: Summary) -> list[str]:
    words = [] if summary.parity is None else list(parity_words(summary.parity))
    if summary.precision_parity is not None:
        near = f"{summary.precision_parity:.4f}"
        words.append(
            f"On the job's first rows, answers in {summary.precision} have a parity of {near} with answers in fp32."
        )
    if (quality := summary.quality) is not None:
        over = f"{quality.measure}, {counted(quality.rows, 'row')}; at least {quality.at_least:g} was required"
        words.append(f"Quality in {summary.precision}, measured before the start: {quality.figure:.4f} ({over}).")
    words += [] if summary.against is None else against_words(summary.against)
    words += [] if summary.index is None else index_words(summary.index, summary.rows_per_s)
    words += [] if summary.load is None else load_words(summary.load)
    if summary.out_of_memory:
        cap = f", of at most {summary.max_tokens:,} tokens" if summary.max_tokens else ""
        calls = counted(summary.out_of_memory, "call")
        words.append(f"{calls} ran out of memory; the rows were retried in smaller calls{cap}.")
    if summary.split:
        words.append(f"Texts split because they exceed the model's maximum length: {summary.split:,}.")
    if summary.skipped:
        words.append(f"Rows skipped because their text is empty: {summary.skipped:,}.")
    words += [f"The adapter {name} has the checksum {each}." for name, each in summary.adapters.items()]
    words += _token_words(summary)
    words += _lane_words(summary)
    words.append(
        f"Shards retried: {summary.retries:,}. Speculative copies of shards: {summary.speculated:,}. Workers that "
        f"died: {len(summary.deaths):,}. Calls split and retried: {summary.failed_calls:,}. Rows truncated to the "
        f"model's maximum length: {summary.truncated:,}."
    )
    words.append(
        f"{summary.wasted_s:,.1f} of {summary.device_s + summary.wasted_s:,.1f} device seconds produced no output: "
        "they were used for measuring, for checks, and for work that was lost or done twice."
    )
    words += _run_words(summary)
    return words


def _run_words(summary: Summary) -> Iterator[str]:
    """What was lost on the way, and what was expected."""
    if summary.lost_s:
        notices = sum(len(run.notices) for run in summary.runs)
        told = f", after {counted(notices, 'preemption notice')}" if notices else ""
        yield f"Workers lost {summary.lost_s:,.1f} s in shards that were started but not committed{told}."
    if changes := sum(len(run.scaling) for run in summary.runs):
        most = max(workers for run in summary.runs for _, workers, _ in run.scaling)
        yield (
            f"The number of workers was changed {counted(changes, 'time')} to finish within the window; the "
            f"maximum was {counted(most, 'worker')}."
        )
    if summary.predicted_s and summary.state == "done":
        cost = ""
        if summary.usd is not None:
            expected = summary.usd * summary.predicted_s / max(1e-9, summary.elapsed_s)
            cost = f" and a cost of {dollars(expected)} (actual: {dollars(summary.usd)})"
        took = f"a duration of {summary.predicted_s:,.1f} s (actual: {summary.elapsed_s:,.1f} s)"
        yield f"The first rows predicted {took}{cost}."


def _token_words(summary: Summary) -> Iterator[str]:
    """Of a language model."""
    if summary.output_tokens:
        read, made = f"{summary.tokens:,} prompt tokens", f"{summary.output_tokens:,} generated tokens"
        saved = summary.cached_tokens / max(1, summary.tokens)
        yield f"{read}, {summary.cached_tokens:,} of them ({saved:.0%}) read from the prefix cache; {made}."
        yield from token_price_words(summary)


def token_price_words(summary: Summary) -> Iterator[str]:
    """Of a language model with a price."""
    read, made = summary.usd_per_million_input, summary.usd_per_million_output
    if read is not None and made is not None:
        yield f"Cost: {dollars(read)} per million input tokens, {dollars(made)} per million output tokens."


def _lane_words(summary: Summary) -> Iterator[str]:
    """What it took from replicas that serve, and whether anybody noticed."""
    if not summary.harvested_s:
        return
    riding = f"including {summary.riding_s:,.1f} s in calls that also contained live rows"
    yield (
        f"The job used {summary.harvested_s:,.1f} s of idle device time of serving replicas, {riding}. Dedicated "
        f"workers added {summary.dedicated_s:,.1f} s of device time."
    )
    if summary.live is not None and summary.live.beside is not None:
        told = _latency(summary.live.beside)
        alone = f"; while the job was paused: {_latency(summary.live.alone)}" if summary.live.alone else ""
        slowdown = summary.live.slowdown
        cost = (
            "" if slowdown is None else f" The median with the job is {slowdown:.2f} times the median without the job."
        )
        yield f"Latency of live requests while the job was running: {told}{alone}.{cost}"


def _latency(seen: Percentiles) -> str:
    return f"p50 {1e3 * seen.p50_s:.3g} ms, p99 {1e3 * seen.p99_s:.3g} ms ({counted(seen.requests, 'request')})"


def against_words(made: AgainstReport) -> Iterator[str]:
    """How far the answers are from another model's."""
    told = f"mean {made.mean:.4g}, p50 {made.p50:.4g}, p99 {made.p99:.4g}, largest {made.worst:.4g}"
    yield (
        f"Difference between the answers of {made.candidate} and {made.stable} ({made.kind}; 0 means equal, 1 is the "
        f"maximum) over {counted(made.rows, 'row')}: {told}. {made.share_above:.2%} of the rows differ by more than "
        f"{made.bound:g}."
    )
    if made.failed_candidate or made.failed_stable:
        only = f"{counted(made.failed_candidate, 'row')} failed only with {made.candidate}"
        yield f"{only}, and {made.failed_stable:,} failed only with {made.stable}."


def load_words(load: LoadReport) -> Iterator[str]:
    """How far the rows are in the store."""
    replaced = load.rows - load.keyless - load.new_rows
    parts = [f"{load.new_rows:,} new"] + ([f"{replaced:,} replaced a row with the same key"] if replaced else [])
    pace = "" if load.rows_per_s is None else f", {load.rows_per_s:,.0f} rows per second while loading"
    rows = counted(load.rows, "row")
    yield f"{rows} loaded into {load.into}, table {load.table} ({', '.join(parts)}){pace}."
    if load.keyless:
        yield f"Rows without a key, which were not loaded: {load.keyless:,}. The output folder contains these rows."
    if load.problem:
        yield f"Not all rows are loaded: {load.problem}"


def parity_words(parity: ParityReport) -> Iterator[str]:
    """How far the two shifts agree, and whether that is enough."""
    if parity.problem is not None:
        yield f"Parity could not be measured: {parity.problem}"
    if not parity.rows:
        return
    again = f"{counted(parity.rows, 'row')} scored again one at a time, as for live requests"
    figures = ", ".join(_compared(parity))
    reached = " NOT reached" if parity.passed is False else ""
    yield f"Parity{reached}: {again}, and compared with the job's answers: {figures}."
    if parity.tokens and parity.unequal:
        yield (
            "Answers can differ because rounding in a forward call depends on the other sequences in the call, and "
            "because of sampling. One different token changes all later tokens of the answer. On a GPU, "
            "--batch-invariant makes more greedy answers equal, but not all."
        )


def _compared(parity: ParityReport) -> Iterator[str]:
    if parity.tokens:
        share = parity.agreeing_tokens / parity.tokens
        yield f"{counted(parity.unequal, 'row')} with a different answer"
        yield f"{share:.0%} of {parity.tokens:,} tokens are equal, counted up to the first difference in each answer"
        return
    if parity.worst_cosine is not None:
        yield f"lowest cosine similarity {parity.worst_cosine:.7f}"
    if parity.worst_difference is not None:
        yield f"largest difference {parity.worst_difference:.3g}"
    if parity.unequal or (parity.worst_cosine is None and parity.worst_difference is None):
        yield f"{counted(parity.unequal, 'row')} with a different label"  # of a model that has labels


def _shard_figure(stats: Sequence[PartStats]) -> report.Figure:
    seconds = [each.seconds for each in stats]
    return report.histogram(
        "Processing time per shard", [report.Sample("shards", seconds)], report.Axis("time", kind="seconds")
    )
