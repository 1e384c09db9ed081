"""Models that answer in this process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from twoshift.engine import Engine
from twoshift.engine.llm import LlmEngine, LlmObjective
from twoshift.engine.long_texts import check_split
from twoshift.llm_ports import LlmRuntime
from twoshift.policy.admission import MAX_WAITING
from twoshift.policy.lane_values import LaneLimits
from twoshift.policy.profile import Profile
from twoshift.ports import Runtime
from twoshift.runtime.llm import LlmOptions
from twoshift.runtime.llm.remote import is_address
from twoshift.runtime.load_limit import loading_step
from twoshift.serve.derived import derive
from twoshift.serve.llm.model import ServedLlm
from twoshift.serve.llm_derived import can_keep, objective_for
from twoshift.serve.model import ServedModel
from twoshift.serve.model_settings import ModelSettings
from twoshift.serve.profile_keeper import ProfileKeeper, StepProfileKeeper
from twoshift.types import Tensor, TextPolicy
from twoshift.wiring.llm_loading import built_in_requests, gate_of, load_gated
from twoshift.wiring.loading_turn import LoadingTurn
from twoshift.wiring.measuring import (
    GUESSED_STEP,
    believed_profile,
    believed_steps,
    compared_steps,
    guessed_steps,
    measured_profile,
    measured_steps,
    warmed,
    with_live_cost,
)
from twoshift.wiring.model_loading import load_llm, load_model, threads_of
from twoshift.wiring.stored_profiles import profiles, stored_profile

__all__ = ["engine_of", "llm_engine", "served_llm", "served_model"]

_OUTSIDE_S, _OUTSIDE_SHARE = 0.003, 0.1  # of an objective: what HTTP and preparing take of it


def served_model(name: str, settings: ModelSettings, note: Callable[[str], None]) -> ServedModel:
    """A model behind an engine, warm, with its curve: the one that is stored, or measured now."""
    limits, max_waiting = _live_limits(settings), settings.max_waiting or MAX_WAITING
    runtime, outputs, profile, slowdown = _warm_runtime(settings, note)
    engine = Engine(runtime, profile.cost, limits, max_waiting=max_waiting)
    row = profile.row
    keeper = ProfileKeeper(profile, lambda: engine.usual_pace(row.call(1)), profiles()) if profile.samples else None
    served = ServedModel(
        name,
        engine,
        lambda cost: derive(
            cost, engine.limits, engine.live_row(row), max_waiting, engine.whole_cost(), threads_of(runtime)
        ),
        outputs,
        keeper,
    )
    if slowdown > 1.0:  # after that: what a busy moment says holds for no longer than it lasts
        engine.slow_down(slowdown)
    return served


def _warm_runtime(
    settings: ModelSettings, note: Callable[[str], None]
) -> tuple[Runtime, tuple[Tensor, ...], Profile, float]:
    """The model, its outputs, its curve, and how much slower the machine is now than when that was measured."""
    note(f"Loading {settings.model}")
    with LoadingTurn() as turn:
        runtime = load_model(
            settings.model,
            device=settings.device,
            precision=settings.precision,
            trust_pickle=settings.trust_pickle,
            threads=settings.threads,
            registry=settings.registry,
        )
        try:
            of: Any = runtime
            check_split(settings.too_long, runtime.info)
            of.info = replace(runtime.info, texts=TextPolicy(settings.too_long, settings.empty))
            loading_step("the first call of the model")
            outputs = warmed(runtime)  # first: what is cold contradicts every profile
            loading_step("waiting until other models are loaded")
            turn.alone()
            loading_step("measuring the calls of the model")
            profile, slowdown = believed_profile(runtime, note) or (measured_profile(runtime, note), 1.0)
        except BaseException:
            runtime.close()
            raise
    return runtime, outputs, profile, slowdown


def _live_limits(settings: ModelSettings) -> LaneLimits:
    slo_s = settings.slo_s
    budget_s = None if settings.call_budget_ms is None else settings.call_budget_ms / 1e3
    limits = LaneLimits(
        slo_s=slo_s,
        outside_s=min(_OUTSIDE_S, _OUTSIDE_SHARE * slo_s),
        call_budget_s=budget_s,
        min_share=settings.min_share,
        live_slowdown=settings.live_slowdown,
    )
    return limits if settings.max_batch is None else replace(limits, max_rows=settings.max_batch)


def served_llm(name: str, settings: ModelSettings, note: Callable[[str], None]) -> ServedLlm:
    """A language model behind an engine, warm, with its curve: the one that is stored, or measured now."""
    settings.check_sequences()
    note(f"Loading {settings.model}")
    with LoadingTurn() as turn:
        runtime = _gated(settings, note)
        try:
            turn.alone()  # the first of several replicas measures, the others read what it has stored
            asked = (settings.ttft_s, settings.tpot_s)
            found = believed_steps(runtime, lambda cost: can_keep(cost, *asked), note)
            measured = measured_steps if not is_address(settings.model) else guessed_steps
            profile = found or measured(runtime, note)
            objective = objective_for(profile.cost, *asked, settings.max_waiting)
            objective = replace(objective, live_slowdown=settings.live_slowdown)
            if profile.samples and profile.live_cost is None:
                profile = with_live_cost(runtime, profile, objective, note)
        except BaseException:
            runtime.close()
            raise
    engine = LlmEngine(runtime, profile.cost, objective, live_cost=profile.live_cost)
    keeper = StepProfileKeeper(profile, engine.learned_costs, compared_steps(runtime.shape), profiles())
    return ServedLlm(name, engine, keeper, profile.stream_token_s)


def _gated(settings: ModelSettings, note: Callable[[str], None]) -> LlmRuntime:
    options = LlmOptions(
        settings.device,
        settings.precision,
        settings.threads,
        tool_parser=settings.tool_parser,
        tensor_parallel=settings.tensor_parallel,
        batch_invariant=settings.batch_invariant,
        adapters=settings.adapters,
    )
    runtime, quality = load_gated(settings.model, options, gate_of(settings, built_in_requests), settings.registry)
    if quality is not None:
        note(f"{settings.model} in {runtime.info.precision}: {quality.figure:.4f} ({quality.measure})")
    return runtime


def llm_engine(
    model: str,
    options: LlmOptions | None = None,
    objective: LlmObjective | None = None,
    *,
    serves: bool = True,
    registry: str | None = None,
) -> LlmEngine:
    """A language model behind an engine, with the curve that is stored, or one to learn from.

    Raises InvalidInput where it cannot be used, Broken if damaged.
    """
    return engine_of(load_llm(model, options, registry), objective, serves=serves)


def engine_of(runtime: LlmRuntime, objective: LlmObjective | None = None, *, serves: bool = True) -> LlmEngine:
    """An engine with the curve that is stored, or one to learn from."""
    found = stored_profile(runtime.info)
    return LlmEngine(runtime, found.cost if found else GUESSED_STEP, objective, serves=serves)
