"""What a model's calls cost now: from its profile, if that still holds, or measured while it loads."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from twoshift.engine.example_rows import examples_of
from twoshift.engine.llm import LlmEngine, LlmObjective
from twoshift.engine.llm.measure import measure_steps
from twoshift.engine.measure import MeasureLimits, fastest_calls, measure_profile
from twoshift.errors import Broken, InvalidInput, TwoshiftError
from twoshift.extras import missing_from
from twoshift.llm_ports import LlmRuntime, LlmShape
from twoshift.policy.cost import CallCost
from twoshift.policy.fit import fit_call_cost
from twoshift.policy.plan.row import RowSize
from twoshift.policy.profile import Profile, slowdown_now
from twoshift.policy.step_fit import fit_step_cost
from twoshift.ports import Runtime
from twoshift.serve.llm.model import ServedLlm
from twoshift.serve.model import output_tensors
from twoshift.types import CallSize, Tensor
from twoshift.wiring.model_loading import threads_of, use_threads
from twoshift.wiring.stored_profiles import keep_profile, profile_of, stored_profile

if TYPE_CHECKING:
    from twoshift.serve.rehearsal import Rehearsed

__all__ = [
    "GUESSED_STEP",
    "believed_profile",
    "believed_steps",
    "compared_steps",
    "guessed_steps",
    "know_steps",
    "measured_profile",
    "measured_steps",
    "warmed",
    "with_live_cost",
]

GUESSED_STEP = CallCost(0.02, 1e-3)  # of a language model, before anything was measured
_GUESSED_CALL = CallCost.line(0.002, 1e-4)
_TYPICAL_TOKENS = 64
_WARM_ROWS = 2
_MEASURE_S, _LIVE_S = 4.0, 6.0
_LOOKED_AT_ROWS, _LOOK_S = (1, 8), 0.1  # calls that a stored profile is held against, and the longest of them


def warmed(runtime: Runtime) -> tuple[Tensor, ...]:
    """Runs a call, so that the first client does not wait for what only the first needs; what answers are made of."""
    examples = examples_of(runtime, _TYPICAL_TOKENS)
    if examples is None:
        return ()
    try:
        rows = runtime.prepare(examples.make(_WARM_ROWS, examples.lengths[0]))
        return output_tensors(runtime.launch([rows], live=True).wait())
    except TwoshiftError:
        raise
    except Exception as error:  # a user's own class may raise anything
        accepted = (
            f"an `example` row that the model accepts: a call with this row failed with {type(error).__name__}: {error}"
        )
        raise InvalidInput("model", runtime.info.model, accepted) from error


def believed_profile(runtime: Runtime, note: Callable[[str], None]) -> tuple[Profile, float] | None:
    """The stored one, and how many times as slow the device is now; None where there is none to be believed."""
    found = stored_profile(runtime.info)
    use_threads(runtime, found)  # another replica may have stored it since this one was loaded
    made = None if found is None else examples_of(runtime, _TYPICAL_TOKENS)
    if found is None or made is None:
        return None if found is None else (found, 1.0)
    length = max(1, round(made.row.tokens))
    calls = [rows for rows in _LOOKED_AT_ROWS if found.cost.seconds(made.row.call(rows)) < _LOOK_S]
    seen = fastest_calls(runtime, [made.make(rows, length) for rows in calls or _LOOKED_AT_ROWS[:1]])
    slowdown = slowdown_now(found, seen)
    if slowdown != 1.0:
        size, seconds = seen[0]
        then = "measuring again" if slowdown is None else "the machine is busy, or is slower than before"
        says = f"{1e3 * found.cost.seconds(size):.3g} ms for a call that takes {1e3 * seconds:.3g} ms now"
        note(f"The stored profile predicts {says}; {then}")
    return None if slowdown is None else (found, slowdown)


def measured_profile(runtime: Runtime, note: Callable[[str], None]) -> Profile:
    """What calls take, measured in seconds and kept; a guess to learn from, where no rows can be made up."""
    info = runtime.info
    made = examples_of(runtime, _TYPICAL_TOKENS)
    if made is None:
        learnt = "the server learns the call times from the first requests"
        note(f"{info.model} has no `example` row, so no calls can be measured: {learnt}.")
        return profile_of(info, _GUESSED_CALL, RowSize.uniform(1), 0)
    note(f"Measuring {info.model} (only at the first start)")
    samples = measure_profile(runtime, made.make, made.lengths, MeasureLimits(_MEASURE_S))
    found = profile_of(info, fit_call_cost(samples).cost, made.row, len(samples), threads_of(runtime))
    stored, one = stored_profile(info), made.row.call(1)
    if stored is None or found.cost.seconds(one) < stored.cost.seconds(one):  # else this is the busy moment
        keep_profile(found, note, info.registry)
    return found


def measured_steps(runtime: LlmRuntime, note: Callable[[str], None]) -> Profile:
    """What steps take, measured in seconds; kept with what live requests add to them."""
    note(f"Measuring {runtime.info.model} (only at the first start)")
    samples = [each.sample for each in measure_steps(runtime, _MEASURE_S)]
    return profile_of(runtime.info, fit_step_cost(samples).cost, RowSize.uniform(1), len(samples))


def know_steps(runtime: LlmRuntime, alone: Callable[[], None]) -> None:
    """Measures the steps of a job's model where no profile is stored: from a few small steps no full one follows.

    `alone` waits until no other worker loads or measures on these cores; one of them may have stored it by then.
    """
    if stored_profile(runtime.info) is not None:
        return
    alone()
    if stored_profile(runtime.info) is None:
        keep_profile(measured_steps(runtime, _unheard), _unheard, runtime.info.registry)


def _unheard(_note: str) -> None:
    pass


def with_live_cost(
    runtime: LlmRuntime, profile: Profile, objective: LlmObjective, note: Callable[[str], None]
) -> Profile:
    """The profile with what steps take while live requests are served: tried on an engine of its own, and kept."""
    if missing_from("serve"):  # nothing is served here, and the first server measures it
        return profile
    note(f"Measuring live requests of {runtime.info.model}")
    engine = LlmEngine(runtime, profile.cost, objective)
    served = ServedLlm(runtime.info.model, engine)
    with ThreadPoolExecutor(1) as pool:  # a replica on Ray is loaded where a loop runs already
        seen = pool.submit(_rehearsed, served).result()
    if engine.why_dead:
        raise Broken(engine.why_dead)
    found = replace(profile, live_cost=seen.live_cost, stream_token_s=seen.stream_token_s)
    keep_profile(found, note, runtime.info.registry)
    return found


def _rehearsed(served: ServedLlm) -> Rehearsed:
    from twoshift.serve.rehearsal import rehearse  # needs what only servers have

    with asyncio.Runner(loop_factory=importlib.import_module("uvloop").new_event_loop) as runner:
        return runner.run(rehearse(served, _LIVE_S))


def guessed_steps(runtime: LlmRuntime, note: Callable[[str], None]) -> Profile:
    """A curve to learn from: another server's steps are not seen."""
    note(f"{runtime.info.model} runs on another server: the call times are learned from the first requests.")
    return profile_of(runtime.info, GUESSED_STEP, RowSize.uniform(1), 0)


def believed_steps(
    runtime: LlmRuntime, is_enough: Callable[[CallCost], bool], note: Callable[[str], None]
) -> Profile | None:
    """The stored one; None where there is none, or where it is too slow for what is asked: it may be no longer so."""
    found = stored_profile(runtime.info)
    if found is None or is_enough(found.cost):
        return found
    note(f"The stored profile of {runtime.info.model} is not used: it says that the model cannot meet the objective")
    return None


def compared_steps(shape: LlmShape) -> tuple[CallSize, ...]:
    """Steps by which curves of a model are compared: one that decodes, one that decodes many, one that reads."""
    return CallSize.uniform(1), CallSize.uniform(shape.max_sequences), CallSize.of([shape.step_tokens])
