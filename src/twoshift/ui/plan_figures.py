"""A plan as markup: big numbers, charts, levers. Everything is escaped by `report`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from twoshift import report
from twoshift.policy.plan.table import BATCH_LIMIT
from twoshift.serve.planning import Plan
from twoshift.units import format_bytes

__all__ = ["plan_blocks"]

_DOLLARS = report.Axis("dollars per million rows", kind="usd", scale="log")
_BATCH = report.Axis("rows per call", scale="log", lo=1.0)
_ROOF_FROM, _ROOF_TO = 1 / 64, 64.0  # of the ridge, that the roofline is drawn over
_POINTS = 49


def plan_blocks(plan: Plan) -> Sequence[report.Block | tuple[report.Figure, ...]]:
    """What a page shows of it, from the top."""
    charts = [_dollars(plan), _calls(plan), *_memory(plan), *_roofline(plan)]
    return [
        report.figures_row([*_cards(plan)]),
        report.text([*_words(plan)]),
        tuple(charts[:2]),
        *([tuple(charts[2:])] if charts[2:] else []),
        _levers(plan),
    ]


def _cards(plan: Plan) -> Iterator[report.Card]:
    made, asked = plan.overview, plan.settings
    chosen = made.chosen
    slo = f"objective {asked.slo_ms:g} ms"
    rows_per_s, tokens_per_s = report.format_number(made.items_per_s), report.format_number(made.tokens_per_s)
    yield report.Card("per million rows", _usd(chosen.usd_per_million), f"{rows_per_s} rows/s while busy")
    yield report.Card("per million tokens", _usd(made.usd_per_million_tokens), f"{tokens_per_s} tokens/s while busy")
    of_rows = f"{chosen.batch:,} row{'' if chosen.batch == 1 else 's'}"
    yield report.Card(f"call of {of_rows}", _ms(chosen.call_s), slo, "good" if chosen.within_slo else "bad")
    knee = made.sweep.knee
    yield report.Card("knee", "—" if knee is None else f"{knee:,} rows", _knee_note(plan))
    yield _cap_card(plan)
    if made.memory is not None and made.memory.usable_bytes is not None:
        free = made.memory.free_bytes or 0.0
        note = f"of {format_bytes(made.memory.usable_bytes)} usable" if free >= 0 else "the weights do not fit"
        yield report.Card("free memory", format_bytes(max(0.0, free)), note, "good" if free >= 0 else "bad")
    if made.roofline is not None:
        peak = f"at most {made.roofline.peak_share:.0%} of the peak"
        yield report.Card("this call is", f"{made.roofline.bound}-bound", peak)


def _knee_note(plan: Plan) -> str:
    swept = plan.overview.sweep
    if swept.knee is None:
        return "each doubling of the rows still lowers the cost"
    call_s = next(row.call_s for row in swept.rows if row.batch == swept.knee)
    return f"{_ms(call_s)}, {'within' if swept.knee_within_slo else 'longer than'} the objective"


def _cap_card(plan: Plan) -> report.Card:
    cap = plan.overview.cap
    rows = "any" if cap.batch >= BATCH_LIMIT else f"{cap.batch:,} rows"
    note = f"call budget {_ms(cap.budget_s)}, {cap.efficiency:.0%} of the best throughput"
    if not cap.batch:
        note = f"one row takes {_ms(cap.call_s)}, but the call budget is {_ms(cap.budget_s)}"
    return report.Card("largest background call", rows, note, "good" if cap.batch else "bad")


def _words(plan: Plan) -> Iterator[str]:
    yield f"Call times: {plan.about}."
    if plan.overview.roofline is None:
        yield "Device, model size, precision and KV cache are not used: the measured curve already includes them."
    cap, knee = plan.overview.cap, plan.overview.sweep.knee
    if knee is not None and cap.batch and cap.batch < knee:
        yield (
            f"Beside live requests, calls with batch rows have at most {cap.batch:,} rows. This is below the knee, and "
            f"reaches {cap.efficiency:.0%} of the throughput of calls without a limit."
        )
    memory = plan.overview.memory
    if memory is not None and memory.largest_batch is not None:
        yield f"In the memory that the weights leave free, the KV cache holds {memory.largest_batch:,} sequences."


def _dollars(plan: Plan) -> report.Figure:
    rows = plan.overview.sweep.rows
    marks = [report.Mark(float(plan.settings.batch), f"batch {plan.settings.batch:,}", "x")]
    if (knee := plan.overview.sweep.knee) is not None and knee != plan.settings.batch:
        marks.append(report.Mark(float(knee), f"knee {knee:,}", "x"))
    series = [report.Series("dollars", [row.batch for row in rows], [row.usd_per_million for row in rows])]
    return report.line_chart(
        "Dollars per million rows",
        series,
        _BATCH,
        _DOLLARS,
        marks=marks,
        note="The cost includes the time in which the device is idle.",
    )


def _calls(plan: Plan) -> report.Figure:
    rows, cap = plan.overview.sweep.rows, plan.overview.cap
    xs = [row.batch for row in rows]
    series = [
        report.Series("call", xs, [1e3 * row.call_s for row in rows]),
        report.Series("row", xs, [1e3 * row.item_s for row in rows]),
    ]
    marks = [report.Mark(plan.settings.slo_ms, f"objective {plan.settings.slo_ms:g} ms")]
    if 0 < cap.batch <= xs[-1]:
        marks.append(report.Mark(float(cap.batch), f"cap {cap.batch:,}", "x"))
    y = report.Axis("milliseconds", kind="ms", scale="log")
    return report.line_chart(
        "Time of a call and of a row", series, _BATCH, y, marks=marks,
        note="A live request may have to wait for a background call of the largest size.",
    )  # fmt: skip


def _memory(plan: Plan) -> Iterator[report.Figure]:
    made, asked = plan.overview.memory, plan.settings
    if made is None:
        return
    bars = [report.Bar("weights", made.weights_bytes / 1e9, asked.precision, "blue")]
    if made.kv_bytes_per_sequence is not None:
        kv = made.kv_bytes_per_sequence * asked.batch
        bars.append(report.Bar(f"KV cache of {asked.batch:,}", kv / 1e9, f"{asked.tokens:,.0f} tokens each", "orange"))
    if made.usable_bytes is not None:
        bars.append(report.Bar("usable", made.usable_bytes / 1e9, f"90 % of {asked.device}", "muted"))
    yield report.bar_chart("Memory of the device", bars, report.Axis("", "GB"))


def _roofline(plan: Plan) -> Iterator[report.Figure]:
    made = plan.overview.roofline
    if made is None:
        return
    peak = made.attainable_tflops / made.peak_share
    lo, hi = min(_ROOF_FROM * made.ridge, made.intensity / 2), max(_ROOF_TO * made.ridge, 2 * made.intensity)
    xs = sorted({made.ridge, *(lo * (hi / lo) ** (place / (_POINTS - 1)) for place in range(_POINTS))})
    series = [report.Series("roof", xs, [peak * min(1.0, x / made.ridge) for x in xs])]
    marks = [
        report.Mark(made.intensity, f"this call: {report.format_number(made.intensity)}", "x"),
        report.Mark(made.ridge, f"ridge {made.ridge:,.3g}", "x"),
    ]
    yield report.line_chart(
        f"Roofline of {plan.settings.device} in {plan.settings.precision}",
        series,
        report.Axis("FLOP per byte", scale="log"),
        report.Axis("TFLOP/s", scale="log"),
        marks=marks,
        note="Left of the ridge, more rows are almost free; right of the ridge, more rows only make a call longer.",
    )


def _levers(plan: Plan) -> report.Block:
    made = plan.overview.tokens
    rows = [["now", _usd(made.usd_per_million_tokens), None, None]]
    effects = [*made.levers, made.together] if made.levers else []
    rows += [[each.lever, _usd(each.usd_per_million_tokens), f"{each.saving:.1%}", each.why] for each in effects]
    return report.table(["lever", "$ per million tokens", "saves", "why"], rows)


def _usd(value: float) -> str:
    return report.format_value(value, report.Axis(kind="usd"))


def _ms(seconds: float) -> str:
    return report.format_value(1e3 * seconds, report.Axis(kind="ms"))
