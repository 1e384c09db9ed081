"""`plan fit`: measured calls turned into a curve, and the curve held against a size it has not seen."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from twoshift.cli.commands import command
from twoshift.cli.output import note, pretty, show, table
from twoshift.cli.params import JsonFlag, text, whole
from twoshift.cli.plan.app import app
from twoshift.errors import InvalidInput, Malformed
from twoshift.policy.cost import CallCost, Sample
from twoshift.policy.plan.row import RowSize
from twoshift.policy.plan.table import SWEEP_BATCHES, knee
from twoshift.policy.profile import Profile, checked_name

if TYPE_CHECKING:
    from twoshift.cli.tables import FittingTable
    from twoshift.policy.fit import Fit

__all__ = ["fit_command"]


@dataclass(frozen=True, slots=True)
class _Prediction:
    rows: int
    predicted_s: float
    measured_s: float | None  # None: the file has no sample of that size

    @property
    def error(self) -> float | None:
        return None if self.measured_s is None else abs(self.predicted_s / self.measured_s - 1)


@command(app, "fit", "twoshift plan fit samples.csv --predict 1024")
def fit_command(
    samples: Annotated[
        str,
        typer.Argument(
            help="CSV file of measured calls, with the columns `batch, ms` or `rows, tokens, longest, ms`; - reads "
            "stdin. `batch` and `rows`: rows of the call. `longest`: tokens of the longest row. `tokens` includes "
            "padding: on a device that pads, tokens = rows x longest."
        ),
    ],
    predict: Annotated[
        int | None,
        whole("Predict the time of a call of N rows; measured calls of that size are excluded from the fit."),
    ] = None,
    save: Annotated[
        str | None, text("Store the fitted cost curve as a profile with this name.", metavar="NAME")
    ] = None,
    model: Annotated[str, text("Model name to record in the profile.")] = "",
    runtime: Annotated[str, text("Runtime name to record in the profile.")] = "",
    device: Annotated[str, text("Device name to record in the profile.")] = "",
    precision: Annotated[str, text("Precision to record in the profile.")] = "",
    as_json: JsonFlag = False,
) -> None:
    """Fit a cost curve to measured calls, and predict the time of a call of another size."""
    from twoshift.cli.samples import read_samples

    if save is not None:
        checked_name(save, "save")
    measured = read_samples(samples)
    used = [s for s in measured if s.rows != predict]
    fit = _fit(used, samples, predict)
    row = _typical_row(used)
    prediction = None if predict is None else _predict(fit.cost, predict, measured, row)
    if save is not None:
        # Nothing is held out of a stored curve: it uses all there is.
        whole_fit = fit if len(used) == len(measured) else _fit(measured, samples, None)
        _save(save, whole_fit.cost, measured, (model, runtime, device, precision))
        both = "" if whole_fit is fit else f", fitted to all {len(measured)} samples: {_curve(whole_fit.cost, row)}"
        note(f"Saved as profile {save}{both}")
    at = knee(fit.cost, SWEEP_BATCHES, row)
    data = _fields(fit, row, prediction) | {"knee": at, "profile": save}
    show(as_json, data, _fit_table(fit, row), _words(fit, prediction, at))


def _fit(used: Sequence[Sample], path: str, predict: int | None) -> Fit:
    from twoshift.policy.fit import fit_call_cost  # numpy: only where it is needed

    try:
        return fit_call_cost(used)
    except InvalidInput as error:
        held = (
            ""
            if predict is None
            else f"; samples of {predict} rows do not count, because --predict {predict} excludes them from the fit"
        )
        raise Malformed(path, f"{error.accepted}{held}") from error


def _typical_row(samples: Sequence[Sample]) -> RowSize:
    tokens = sum(s.tokens for s in samples) / sum(s.rows for s in samples)
    return RowSize(tokens, max(tokens, statistics.fmean(s.longest for s in samples)))


def _predict(cost: CallCost, rows: int, samples: Sequence[Sample], row: RowSize) -> _Prediction:
    held = [s for s in samples if s.rows == rows]
    if not held:
        return _Prediction(rows, cost.seconds(row.call(rows)), None)
    # Against what was measured at that size, row for row; the median, because a stall is no measurement.
    predicted_s = statistics.median(cost.seconds(s.size) for s in held)
    return _Prediction(rows, predicted_s, statistics.median(s.seconds for s in held))


def _save(name: str, cost: CallCost, measured: Sequence[Sample], about: Sequence[str]) -> None:
    from twoshift.wiring.stored_profiles import profiles

    words = tuple(_printable(word) for word in about)
    profiles().put(Profile(name, cost, _now(), len(measured), _typical_row(measured), *words))


def _printable(word: str) -> str:
    return "".join(c if c.isprintable() and not "\ud800" <= c <= "\udfff" else "?" for c in word)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _fields(fit: Fit, row: RowSize, prediction: _Prediction | None) -> dict[str, object]:
    cost = fit.cost
    return {
        "shape": cost.shape,
        "overhead_ms": cost.overhead_s * 1e3,
        "item_ms": _item_s(cost, row) * 1e3,
        "floor_ms": cost.floor_s * 1e3,
        "row_ms": cost.per_row_s * 1e3,
        "token_ms": cost.per_token_s * 1e3,
        "square_ms": cost.per_square_s * 1e3,
        "row_tokens": row.tokens,
        "error": fit.error,
        "outliers": fit.outliers,
        "samples": fit.samples,
        "predicted_rows": prediction and prediction.rows,
        "predicted_ms": prediction and prediction.predicted_s * 1e3,
        "measured_ms": None if prediction is None or prediction.measured_s is None else prediction.measured_s * 1e3,
        "predicted_error": prediction and prediction.error,
    }


def _item_s(cost: CallCost, row: RowSize) -> float:
    return cost.row_s(row.tokens, row.longest)


def _curve(cost: CallCost, row: RowSize) -> str:
    return f"{pretty(cost.overhead_s * 1e3)} ms per call + {pretty(_item_s(cost, row) * 1e3)} ms per row"


def _fit_table(fit: Fit, row: RowSize) -> FittingTable:
    cost = fit.cost
    of = "" if row.tokens == 1 else f" of {row.tokens:.4g} tokens"
    shown = [
        ["shape", cost.shape],
        ["overhead, ms per call", pretty(cost.overhead_s * 1e3)],
        [f"item, ms per row{of}", pretty(_item_s(cost, row) * 1e3)],
        *([["floor, ms per call", pretty(cost.floor_s * 1e3)]] if cost.floor_s else []),
        ["prediction error for held-out sizes", "-" if math.isnan(fit.error) else f"{fit.error:.1%}"],
        ["stalled samples (ignored)", f"{fit.outliers} of {fit.samples}"],
    ]
    return table(["<what", "value"], shown)


def _words(fit: Fit, prediction: _Prediction | None, at: int | None) -> str:
    lines: list[str] = []
    if fit.outliers > 0.05 * fit.samples:
        lines.append(
            f"{fit.outliers / fit.samples:.0%} of the calls stalled and are not part of the curve. Live requests on "
            "this machine will stall as often."
        )
    if prediction is not None:
        rows = "1 row" if prediction.rows == 1 else f"{prediction.rows:,} rows"
        line = f"A call of {rows} should take {pretty(prediction.predicted_s * 1e3)} ms."
        if prediction.measured_s is not None and prediction.error is not None:
            line += (
                f" The measured time is {pretty(prediction.measured_s * 1e3)} ms, so the prediction is "
                f"{prediction.error:.1%} off. The fit did not use calls of this size."
            )
        lines.append(line)
    if at is None:
        lines.append(
            f"No knee up to {SWEEP_BATCHES[-1]} rows per call: doubling still saves at least 5 % of the cost per row."
        )
    else:
        lines.append(f"Knee: {at:,} rows per call; doubling this number saves less than 5 % of the cost per row.")
    return "\n".join(lines)
