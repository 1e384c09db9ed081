"""`profile`: what calls of a model cost on this device, measured, and what follows for an SLO."""

from __future__ import annotations

import itertools
import statistics
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from twoshift.cli.app import app
from twoshift.cli.commands import command
from twoshift.cli.files import check_writable, write_text
from twoshift.cli.measurement import QUANTILE, HeldOut, Measurement, Point
from twoshift.cli.model_options import ERROR_FIELDS, Model, ProfileLoading, loaded
from twoshift.cli.output import note, own_stdout, show
from twoshift.cli.params import JsonFlag, duration, given_of, millis, text, usd, whole, with_settings
from twoshift.cli.progress import progress_bar
from twoshift.errors import Inapplicable, InvalidInput, Malformed, TwoshiftError
from twoshift.policy.plan.table import Cap, cap, doublings, knee

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from twoshift.cli.rows import Line, Parse
    from twoshift.engine.example_rows import ExampleRows
    from twoshift.engine.measure import MeasureLimits
    from twoshift.policy.cost import CallCost, Sample
    from twoshift.policy.plan.row import RowSize
    from twoshift.ports import Runtime, RuntimeInfo
    from twoshift.types import CallSize

__all__ = ["profile_command"]

_SHARE = 0.5  # of the SLO: a live row may meet a running call and then needs its own
_MOST_EXAMPLES = 10_000
_ROW_TOKENS = 64  # of a row that is made here


@command(app, "profile", "twoshift profile minilm --slo-ms 50 --price 2.50", ERROR_FIELDS)
@with_settings(ProfileLoading)
def profile_command(
    model: Model,
    slo_ms: Annotated[
        float,
        millis(
            "Latency objective of a live request, in milliseconds. For a language model: objective for the time per "
            "output token."
        ),
    ] = 50.0,
    price: Annotated[float, usd("Price of this device in dollars per hour.")] = 2.5,
    rows: Annotated[
        str | None,
        text(
            "File with example rows, in the format that `twoshift score` reads. Encoders do not need this file.",
            metavar="FILE",
        ),
    ] = None,
    row_tokens: Annotated[
        int | None, whole("For an encoder without --rows: tokens per generated example row.", most=10**6, shown="64")
    ] = None,
    *,
    seconds: Annotated[
        float,
        duration("Approximate measuring time; for a language model, measuring takes four times as long.", shown="5s"),
    ] = 5.0,
    max_rows: Annotated[int, whole("Number of rows in the largest call to measure.", most=10**6)] = 1024,
    report: Annotated[str | None, text("Write a report with the cost curve to this HTML file.", metavar="FILE")] = None,
    as_json: JsonFlag = False,
    **given: Any,
) -> None:
    """Measure the forward calls of a model on this device; print the cost curve and the batch sizes for an SLO."""
    from twoshift.cli.profile_report import profile_data, profile_parts, profile_report
    from twoshift.engine.measure import MeasureLimits
    from twoshift.wiring.model_loading import is_llm, threads_of

    asked = ProfileLoading(**given_of(ProfileLoading, given))
    if is_llm(model, asked.registry):
        _profile_llm(model, asked, {"--rows": rows, "--report": report}, seconds, slo_ms / 1e3, price, as_json)
        return
    for flag, is_said in (
        ("--tensor-parallel", asked.tensor_parallel != 1),
        ("--batch-invariant", asked.batch_invariant),
    ):
        if is_said:
            raise Inapplicable(flag, True, f"because {model} is not a language model")
    check_writable(report, "--report", others=[rows])
    limits = MeasureLimits(seconds, max_rows=max_rows, max_tokens=max(max_rows, MeasureLimits().max_tokens))
    with own_stdout():
        runtime = loaded(model, asked)
        try:
            examples = _examples(runtime, rows, row_tokens)
            samples = _measured(runtime, examples, limits, rows)
        finally:
            runtime.close()
    made = _concluded(runtime.info, samples, examples.row, limits, slo_ms / 1e3, price)
    made = _stored(replace(made, threads=threads_of(runtime)), len(samples))
    if report:
        write_text(report, profile_report(made), "--report")
        note(f"Report: {report}")
    show(as_json, profile_data(made), *([] if as_json else profile_parts(made)))


def _profile_llm(
    model: str, asked: ProfileLoading, of_rows: Mapping[str, str | None],
    seconds: float, slo_s: float, price: float, as_json: bool,
) -> None:  # fmt: skip
    from twoshift.cli.profile_llm import profile_llm
    from twoshift.runtime.llm import LlmOptions

    for flag, value in of_rows.items():
        if value is not None:
            raise Inapplicable(
                flag, value, f"because {model} is a language model, which is measured with generated prompts"
            )
    parallel, invariant = asked.tensor_parallel, asked.batch_invariant
    options = LlmOptions(
        asked.device, asked.precision, asked.threads, tensor_parallel=parallel, batch_invariant=invariant
    )
    profile_llm(model, options, seconds, slo_s, price, as_json, asked.registry)


def _examples(runtime: Runtime, path: str | None, row_tokens: int | None) -> ExampleRows:
    from twoshift.engine.example_rows import examples_of, given_rows

    if path is not None:
        return given_rows(runtime, _read_examples(runtime, path))
    made = examples_of(runtime, row_tokens or _ROW_TOKENS)
    if made is None:
        accepted = (
            f"a file of example rows, one JSON object per line; {runtime.info.model} has no built-in example rows"
        )
        raise InvalidInput("rows", None, accepted)
    if row_tokens is not None and runtime.info.max_row_tokens == 1:
        note(f"--row-tokens {row_tokens:,} has no effect: the rows of {runtime.info.model} have no tokens.")
    elif row_tokens is not None and made.row.tokens < row_tokens:
        note(
            f"--row-tokens {row_tokens:,}: {runtime.info.model} takes at most {made.row.tokens:,.0f} tokens per row, "
            f"so rows of {made.row.tokens:,.0f} tokens are measured."
        )
    return made


def _read_examples(runtime: Runtime, path: str) -> list[Any]:
    """The file's rows, each of which the model takes; raises InvalidInput that names the line of one it does not."""
    from twoshift.cli.rows import line_chunks, opened
    from twoshift.cli.score import row_parser
    from twoshift.engine.prepare import prepared_parts

    parse = row_parser(runtime.info)
    with opened(path, "rows") as stream:
        lines = itertools.chain.from_iterable(line_chunks(stream))
        some = list(itertools.islice((line for line in lines if line.text.strip()), _MOST_EXAMPLES))
    if not some:
        raise InvalidInput("rows", path, "a file with at least one row; this file has none")
    rows = [_parsed(parse, line, path) for line in some]
    for start, part in prepared_parts(runtime.prepare, rows):
        if isinstance(part, Exception):
            line = some[start]
            accepted = part.accepted if isinstance(part, InvalidInput) else f"a row that the model accepts ({part})"
            raise InvalidInput(f"{path} line {line.number}", line.text, accepted)
    return rows


def _parsed(parse: Parse, line: Line, path: str) -> Any:
    try:
        return parse(line)
    except InvalidInput as error:
        raise error.renamed(f"{path} {error.field}") from None


def _measured(runtime: Runtime, examples: ExampleRows, limits: MeasureLimits, path: str | None) -> list[Sample]:
    from twoshift.engine.measure import measure_profile

    try:
        with progress_bar(f"Measuring {runtime.info.model}") as progress:
            return measure_profile(runtime, examples.make, examples.lengths, limits, progress=progress)
    except TwoshiftError:
        raise
    except Exception as error:  # a user's own class may raise anything
        why = f"failed with {type(error).__name__}: {error}"
        if path is None:
            accepted = f"a file with rows that the model accepts, because a call with generated rows {why}"
            raise Malformed("rows", accepted) from error
        raise InvalidInput("rows", path, f"rows that the model accepts; a call with these rows {why}") from error


def _concluded(
    info: RuntimeInfo, samples: list[Sample], row: RowSize, limits: MeasureLimits, slo_s: float, price: float
) -> Measurement:
    """Fit, hold the fit against the size that was held out, and read the curve."""
    from twoshift.engine.measure import hold_out
    from twoshift.policy.fit import fit_call_cost
    from twoshift.wiring.stored_profiles import profile_name_of

    kept, held = hold_out(samples, row.tokens)
    # What is stored uses all there is; the prediction is that of a fit which has not seen the size.
    fit, blind = fit_call_cost(samples), fit_call_cost(kept)
    made = Measurement(
        info=info,
        fit=fit,
        row=row,
        points=_points(samples, fit.cost),
        held_out=_held_out(blind.cost, held) if held else None,
        slo_s=slo_s,
        price_usd=price,
        max_rows=limits.max_rows,
        knee=None,
        cap=_cap(fit.cost, slo_s, row),
        profile=profile_name_of(info),
    )
    return replace(made, knee=knee(fit.cost, doublings(made.largest_rows), row))


def _cap(cost: CallCost, slo_s: float, row: RowSize) -> Cap:
    """The largest background call that the budget, and the engine's own limit of rows, allow."""
    from twoshift.policy.lane_values import LaneLimits

    free, most = cap(cost, slo_s, _SHARE, row, QUANTILE), LaneLimits().max_rows
    if free.batch <= most:
        return free
    call_s = cost.seconds(row.call(most), QUANTILE)
    return Cap(most, call_s, free.budget_s, free.efficiency * most / free.batch * free.call_s / call_s)


def _held_out(cost: CallCost, held: Sequence[Sample]) -> HeldOut:
    # The median, because a stall is no measurement.
    return HeldOut(held[0].rows, cost.seconds(held[0].size), statistics.median(s.seconds for s in held))


def _points(samples: Sequence[Sample], cost: CallCost) -> tuple[Point, ...]:
    by_size: dict[CallSize, list[float]] = {}
    for sample in samples:
        by_size.setdefault(sample.size, []).append(sample.seconds)
    points = [_point(size, took, cost.seconds(size)) for size, took in by_size.items()]
    return tuple(sorted(points, key=lambda p: (p.tokens / p.rows, p.rows)))


def _point(size: CallSize, took: list[float], predicted_s: float) -> Point:
    middle_s = statistics.median(took)
    spread_s = statistics.median(abs(each - middle_s) for each in took)
    return Point(size.rows, size.tokens, size.longest, len(took), middle_s, spread_s, predicted_s)


def _stored(made: Measurement, samples: int) -> Measurement:
    """Keep the curve for the commands to come; the measurement with what was there before."""
    from twoshift.wiring.stored_profiles import profile_of, profiles, share_profile, stored_profile

    before = stored_profile(made.info)
    found = profile_of(made.info, made.cost, made.row, samples, made.threads)
    if before and found.parity is None:
        found = replace(found, parity=before.parity)  # of the same weights: measuring anew does not change it
    profiles().put(found)
    share_profile(found, made.info.registry)
    return replace(made, replaced=before)
