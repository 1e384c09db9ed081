"""`profile` of a language model: what it takes to read prompts, and to decode so many sequences at once."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from twoshift.cli.output import own_stdout, pretty, show, table
from twoshift.cli.progress import Ongoing, progress_bar
from twoshift.errors import InvalidInput

if TYPE_CHECKING:
    from twoshift.engine.llm.measure import StepSample
    from twoshift.policy.profile import Profile
    from twoshift.runtime.llm import LlmOptions

__all__ = ["profile_llm"]

_PATIENCE = 4  # times the seconds of other models: a step is a long call


def profile_llm(
    model: str,
    options: LlmOptions,
    seconds: float,
    tpot_s: float,
    price: float,
    as_json: bool,
    registry: str | None = None,
) -> None:
    """Measure, keep the curve and tell what was found."""
    from twoshift.engine.llm.measure import measure_steps
    from twoshift.policy.plan.row import RowSize
    from twoshift.policy.step_fit import fit_step_cost
    from twoshift.serve.llm_derived import objective_for
    from twoshift.wiring.measuring import with_live_cost
    from twoshift.wiring.model_loading import load_llm
    from twoshift.wiring.stored_profiles import profile_of, profiles

    with own_stdout():
        with Ongoing() as ongoing:
            ongoing(f"Loading {model}")
            runtime = load_llm(model, options, registry)
        try:
            with progress_bar(f"Measuring {model}") as progress:
                samples = measure_steps(runtime, _PATIENCE * seconds, progress)
            fit = fit_step_cost([each.sample for each in samples])
            found = profile_of(runtime.info, fit.cost, RowSize(), len(samples))
            profiles().put(found)  # whoever cannot write it learns of it before the rest is measured
            with Ongoing() as ongoing:
                found = with_live_cost(runtime, found, objective_for(found.cost, None, None, None), ongoing)
        finally:
            runtime.close()
    data = _data(found, samples, fit.error, tpot_s, price)
    show(as_json, data, *([] if as_json else _parts(found, data)))


def _data(found: Profile, samples: Sequence[StepSample], error: float, tpot_s: float, price: float) -> dict[str, Any]:
    from twoshift.policy.plan.decode import decode_rate

    decode = [_point(each, found) for each in _grouped(samples) if not each[0].read]
    read = [_point(each, found) for each in _grouped(samples) if each[0].read and not each[0].decoded]
    within = _within(found, tpot_s, max(point["sequences"] for point in decode))
    usd = None if within is None else 1e6 * price / 3600 / within["tokens_per_s"]
    return {
        "model": found.model,
        "runtime": found.runtime,
        "device": found.device,
        "precision": found.precision,
        "checksum": found.checksum,
        "profile": found.name,
        "shape": found.cost.shape,
        "error": error,
        "samples": len(samples),
        "decode": decode,
        "prefill": read,
        "tpot_ms": tpot_s * 1e3,
        "within_tpot": within,
        "least_tpot_ms": math.ceil(1e3 * decode_rate(found.cost, 1, 0.9).step_s),
        "usd_per_million_tokens": usd,
    }


def _within(found: Profile, tpot_s: float, most: int) -> dict[str, Any] | None:
    from twoshift.policy.plan.decode import decode_within

    try:
        rate = decode_within(found.cost, tpot_s, most=most)
    except InvalidInput:
        return None
    return {"sequences": rate.sequences, "step_ms": 1e3 * rate.step_s, "tokens_per_s": rate.tokens_per_s}


def _grouped(samples: Sequence[StepSample]) -> list[list[StepSample]]:
    groups: dict[tuple[int, int], list[StepSample]] = {}
    for each in samples:
        groups.setdefault((each.decoded, each.read), []).append(each)
    return [groups[key] for key in sorted(groups)]


def _point(group: list[StepSample], found: Profile) -> dict[str, Any]:
    first, took_s = group[0], statistics.median(each.sample.seconds for each in group)
    tokens = first.read or first.decoded
    return {
        "sequences": first.decoded or 1,
        "tokens": tokens,
        "steps": len(group),
        "ms": 1e3 * took_s,
        "fitted_ms": 1e3 * found.cost.seconds(first.sample.size),
        "tokens_per_s": tokens / took_s,
    }


def _parts(found: Profile, data: dict[str, Any]) -> list[Any]:
    decode = [_cells(point, "sequences") for point in data["decode"]]
    read = [_cells(point, "tokens") for point in data["prefill"]]
    return [
        f"{found.model} (runtime {found.runtime}, precision {found.precision}) on {found.device}",
        table(["sequences decoded", "step ms", "fitted ms", "tokens/s"], decode),
        table(["prompt tokens read", "step ms", "fitted ms", "tokens/s"], read),
        _words(data),
        f"Stored as profile {found.name}. The engine uses this profile when it runs the model; `twoshift plan tokens` "
        f"and `twoshift plan replicas` use it with --profile {found.model}.",
    ]


def _cells(point: dict[str, Any], name: str) -> list[str]:
    return [
        pretty(point[name]),
        pretty(point["ms"], 3),
        pretty(point["fitted_ms"], 3),
        pretty(point["tokens_per_s"], 3),
    ]


def _words(data: dict[str, Any]) -> str:
    tpot, within = f"{data['tpot_ms']:.3g} ms per token", data["within_tpot"]
    if within is None:
        least = f"--slo-ms {data['least_tpot_ms']} is the shortest objective that one sequence meets"
        return f"Not even one sequence meets {tpot} in nine of ten steps: {least}."
    sequences = f"{within['sequences']:,} sequence{'' if within['sequences'] == 1 else 's'}"
    cost = f"${data['usd_per_million_tokens']:.3g} per million output tokens"
    return f"Up to {sequences} at once meet {tpot}: {within['tokens_per_s']:,.0f} tokens per second, {cost}."
