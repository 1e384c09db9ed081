"""What `profile` found: as JSON, in the terminal, and as an HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from twoshift import report
from twoshift._version import __version__
from twoshift.cli.measurement import QUANTILE, HeldOut, Measurement, Point
from twoshift.cli.output import console, pretty, table, unicode_ok
from twoshift.policy.plan.table import SWEEP_BATCHES

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from twoshift.cli.tables import FittingTable

__all__ = ["profile_data", "profile_parts", "profile_report"]

_NOISY = 0.08  # a quiet machine's calls of one size lie closer together than this


def profile_data(made: Measurement) -> dict[str, Any]:
    """The JSON form."""
    cost = made.cost
    return {
        "shape": cost.shape,
        "overhead_ms": cost.overhead_s * 1e3,
        "item_ms": _item_s(made) * 1e3,
        "floor_ms": cost.floor_s * 1e3,
        "row_ms": cost.per_row_s * 1e3,
        "token_ms": cost.per_token_s * 1e3,
        "square_ms": cost.per_square_s * 1e3,
        "row_tokens": made.row.tokens,
        "ceilings": len(cost.ceilings),
        "error": made.fit.error,
        "outliers": made.fit.outliers,
        "noise": made.noise,
        "held_out": made.held_out and _held_out_fields(made.held_out),
        "largest_measured": made.largest_rows,
        "knee": made.knee,
        "knee_within_slo": None if made.knee is None else made.call_s(made.knee) <= made.slo_s,
        "budget_ms": made.cap.budget_s * 1e3,
        "largest_background_batch": made.cap.batch,
        "background_call_ms": made.cap.call_s * 1e3,
        "efficiency": made.cap.efficiency,
        "usd_per_million": made.usd_per_million(made.background_rows),
        "profile": made.profile,
        "replaced": made.replaced is not None,
        "samples": made.fit.samples,
        "measured": [_point_fields(p) for p in made.points],
        "model": made.info.model,
        "checksum": made.info.checksum,
        "runtime": made.info.runtime,
        "device": made.info.device,
        "precision": made.info.precision,
        "parity": made.info.parity,
        "threads": None if made.threads is None else [step._asdict() for step in made.threads.steps],
    }


def profile_parts(made: Measurement) -> list[RenderableType]:
    """Tables, the curve and a few sentences, for people."""
    return [_title(made), _points_table(made), _chart(made), "", *_words(made)]


def profile_report(made: Measurement) -> str:
    """The page: figures, the curve over its measurements, every size."""
    sections = [
        report.Section("Derived values", [report.figures_row(_cards(made)), report.text(_words(made))]),
        report.Section("Cost of a call", [(_call_figure(made), _item_figure(made))]),
        report.Section("All measurements", [_every_point(made)]),
    ]
    return report.page(f"Profile of {made.info.model}", _title(made), sections, f"Made by twoshift {__version__}")


def _title(made: Measurement) -> str:
    info = made.info
    return f"{info.model} (runtime {info.runtime}, precision {info.precision}) on {info.device}{_of(made)}"


def _of(made: Measurement) -> str:
    return "" if made.row.tokens == 1 else f"; rows of {pretty(round(made.row.tokens, 1), 3)} tokens"


def _item_s(made: Measurement) -> float:
    return made.cost.row_s(made.row.tokens, made.row.longest)


def _held_out_fields(held: HeldOut) -> dict[str, Any]:
    predicted_ms, measured_ms = held.predicted_s * 1e3, held.measured_s * 1e3
    return {"rows": held.rows, "predicted_ms": predicted_ms, "measured_ms": measured_ms, "error": held.error}


def _point_fields(point: Point) -> dict[str, Any]:
    return {
        "rows": point.rows,
        "tokens": point.tokens,
        "longest": point.longest,
        "calls": point.calls,
        "ms": point.measured_s * 1e3,
        "fitted_ms": point.predicted_s * 1e3,
    }


def _points_table(made: Measurement) -> FittingTable:
    held = made.held_out
    cells: list[list[str]] = []
    for p in made.typical_points():
        kept = held is not None and p.rows == held.rows
        cells.append(
            [
                pretty(p.rows),
                pretty(p.measured_s * 1e3),
                # of the size that was kept from a fit, what that fit says: the prediction
                pretty((held.predicted_s if held is not None and kept else p.predicted_s) * 1e3),
                pretty(p.measured_s / p.rows * 1e3),
                pretty(1e6 * p.measured_s / p.rows * made.price_usd / 3600, 3),
                ("yes" if p.measured_s <= made.slo_s else "no") + ("  <- predicted" if kept else ""),
            ]
        )
    return table(["batch", "ms per call", "fitted ms", "ms per row", "$/million rows", "<in SLO"], cells)


def _words(made: Measurement) -> list[str]:
    cost, fit = made.cost, made.fit
    floor = f", never under {pretty(cost.floor_s * 1e3, 3)} ms" if cost.floor_s else ""
    lines = [
        f"Curve: {pretty(cost.overhead_s * 1e3, 3)} ms per call + {pretty(_item_s(made) * 1e3, 3)} ms "
        f"per row{floor}; fitted to {fit.samples:,} calls, {fit.outliers:,} of which stalled."
    ]
    if cost.ceilings:
        sizes = "Calls of 1 size were" if len(cost.ceilings) == 1 else f"Calls of {len(cost.ceilings)} sizes were"
        lines.append(f"{sizes} faster than the curve predicts: predictions up to these sizes use the measured times.")
    if made.threads is not None:
        lines.append(f"A call uses {made.threads}{_choice_words(made)}.")
    if (held := made.held_out) is not None:
        lines.append(
            f"Prediction: a call of {held.rows:,} rows, excluded from the fit, was predicted to take "
            f"{pretty(held.predicted_s * 1e3, 3)} ms and took {pretty(held.measured_s * 1e3, 3)} ms: "
            f"the prediction is {held.error:.1%} off."
        )
    if made.noise > _NOISY:
        lines.append(
            f"Calls of the same size differ by {made.noise:.0%}: another program may be using this device, or the "
            "calls are too short to time. Measure again when the device is idle, or for longer with --seconds."
        )
    if (parity := made.info.parity) is not None:
        lines.append(
            f"Parity with fp32: {parity:.4f} for the worst answer of the built-in sample; 1 means equal answers."
        )
    if made.largest_rows >= made.max_rows:
        lines.append(
            f"The largest measured call has {made.largest_rows:,} rows; use --max-rows to measure larger calls."
        )
    return [*lines, _knee_words(made), _cap_words(made), _stored_words(made)]


def _choice_words(made: Measurement) -> str:
    return ", the fastest choice that was measured; --threads overrides it" if ", up to " in made.info.device else ""


def _stored_words(made: Measurement) -> str:
    before = made.replaced
    if before is None:
        return f"Stored as profile {made.profile}."
    rows = "" if before.row.tokens == 1 else f"rows of {pretty(round(before.row.tokens, 1), 3)} tokens, "
    when = before.created_at[:16].replace("T", " ")
    return f"Stored as profile {made.profile}, in place of the profile of {when} ({rows}{before.samples:,} calls)."


def _knee_words(made: Measurement) -> str:
    if made.knee is None:
        return (
            f"No knee up to {made.largest_rows:,} rows, the largest call measured: doubling the rows of a call still "
            "saves at least 5 % of the time per row."
        )
    call_s = made.call_s(made.knee)
    fits = "inside" if call_s <= made.slo_s else "more than"
    rows = "1 row" if made.knee == 1 else f"{made.knee:,} rows"
    return (
        f"Knee: {rows} per call; doubling this number saves less than 5 % of the time per row. A call of {rows} takes "
        f"{pretty(call_s * 1e3, 3)} ms, {fits} the SLO of {pretty(made.slo_s * 1e3)} ms."
    )


def _cap_words(made: Measurement) -> str:
    cap = made.cap
    budget = f"Call budget: {pretty(cap.budget_s * 1e3)} ms, half of the SLO"
    each = pretty(made.usd_per_million(made.background_rows), 3)
    usd = f"${each} per million rows according to the curve, at ${made.price_usd:.2f} per hour"
    if cap.batch == 0:
        return (
            f"{budget}. A call with one row takes longer ({pretty(cap.call_s * 1e3, 3)} ms at the {QUANTILE:.0%} "
            f"quantile), so no background call may run beside live requests. One row per call costs {usd}."
        )
    return (
        f"{budget}. Largest background call: {cap.batch:,} {'row' if cap.batch == 1 else 'rows'}, "
        f"{pretty(cap.call_s * 1e3, 3)} ms at the {QUANTILE:.0%} quantile. Such calls have "
        f"{_efficiency(cap.efficiency)} the throughput of calls of any size, and cost {usd}."
    )


def _efficiency(share: float) -> str:
    return "more than" if share > 1 else f"{share:.0%} of"  # more: where small calls were measured to be cheaper


def _sizes(made: Measurement) -> list[int]:
    largest = max((p.rows for p in made.typical_points()), default=1)
    wanted = max(8, largest, min(made.cap.batch, 4 * largest), made.knee or 1)
    sizes = [batch for batch in SWEEP_BATCHES if batch <= wanted]
    return sizes if sizes[-1] >= largest else [*sizes, largest]


def _chart(made: Measurement) -> Text:
    from twoshift.cli.chart import LogChart, Series

    slo_ms = made.slo_s * 1e3
    return LogChart(
        xs=_sizes(made),
        series=[
            Series("ms per call", "○", "cyan", lambda rows: made.call_s(rows) * 1e3),
            Series("ms per row", "●", "green", lambda rows: made.call_s(rows) / rows * 1e3),
        ],
        level=(f"SLO {pretty(slo_ms)} ms", slo_ms),
        at=None if made.knee is None else (f"knee {made.knee:,}", made.knee),
        width=min(100, console().width),
        unicode=unicode_ok(),
    ).render()


def _cards(made: Measurement) -> list[report.Card]:
    held, cap = made.held_out, made.cap
    error = made.fit.error if held is None else held.error
    what = "mean over held-out sizes" if held is None else f"for a call of {held.rows:,} rows"
    return [
        report.Card("Prediction off by", f"{error:.1%}", what, "good" if error < 0.1 else "plain"),
        report.Card("Knee", "-" if made.knee is None else f"{made.knee:,}", "rows per call"),
        report.Card("Call budget", f"{cap.budget_s * 1e3:.3g} ms", f"of an SLO of {made.slo_s * 1e3:g} ms"),
        report.Card("Largest background call", f"{cap.batch:,}", "rows", "good" if cap.batch else "bad"),
        report.Card(
            "Cost of a million rows",
            f"${made.usd_per_million(made.background_rows):.3g}",
            f"at ${made.price_usd:.2f} per hour",
        ),
    ]


def _call_figure(made: Measurement) -> report.Figure:
    points, sizes = made.typical_points(), _sizes(made)
    slo_ms, budget_ms = made.slo_s * 1e3, made.cap.budget_s * 1e3
    marks = [report.Mark(slo_ms, f"SLO {slo_ms:g} ms"), report.Mark(budget_ms, f"budget {budget_ms:g} ms")]
    if made.knee is not None and made.knee > 1:
        marks.append(report.Mark(made.knee, f"knee {made.knee:,}", axis="x"))
    series = [
        report.Series("fitted", sizes, [made.call_s(b) * 1e3 for b in sizes], tone="blue"),
        report.Series("measured", [p.rows for p in points], [p.measured_s * 1e3 for p in points], tone="orange"),
    ]
    return _figure(f"Time per call{_of(made)}", series, marks)


def _item_figure(made: Measurement) -> report.Figure:
    points, sizes = made.typical_points(), _sizes(made)
    each = [p.measured_s / p.rows * 1e3 for p in points]
    series = [
        report.Series("fitted", sizes, [made.call_s(b) / b * 1e3 for b in sizes], tone="blue"),
        report.Series("measured", [p.rows for p in points], each, tone="orange"),
    ]
    return _figure(f"Time per row{_of(made)}", series, [])


def _figure(title: str, series: Sequence[report.Series], marks: Sequence[report.Mark]) -> report.Figure:
    x = report.Axis("rows per call", scale="log")
    return report.line_chart(title, series, x, report.Axis("time", kind="ms", scale="log"), marks=marks)


def _every_point(made: Measurement) -> report.Block:
    headers = ["rows", "tokens", "calls", "measured ms", "fitted ms", "error of the fit"]
    rows = [
        [
            p.rows,
            p.tokens,
            p.calls,
            round(p.measured_s * 1e3, 4),
            round(p.predicted_s * 1e3, 4),
            f"{p.predicted_s / p.measured_s - 1:+.1%}",
        ]
        for p in made.points
    ]
    return report.table(headers, rows)
