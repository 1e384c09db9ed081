"""What a job has beside live streams of a language model, simulated: the engine itself, a device and a clock that are not.

    python bench/llm_governor.py
    python bench/llm_governor.py --rates 8 24 --live-slowdown 1.05

The loads of `bench/llm_colocate.py --cuda`, an H200's costs (`_llm_simulated.py`), no GPU and no waiting. The engine, its
governor, admission and learned curves are the real ones; the interpreter's time is what the costs say it is.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, fields, replace

import numpy as np
from _llm_simulated import Costs, SimulatedLlm
from _llm_traffic import Ask, Phase

from twoshift.engine.llm import LlmEngine, LlmObjective
from twoshift.engine.llm.measure import measure_steps
from twoshift.engine.llm.stats import FinishedSequence
from twoshift.generation import GenerationParams
from twoshift.llm_ports import Prompt, Prompts
from twoshift.policy.step_fit import fit_step_cost
from twoshift.types import Lane

SIZE = (249, 128)
GOAL = 0.9
_PARAMS = GenerationParams(temperature=0.0, ignore_eos=True)


@dataclass(frozen=True, slots=True)
class Found:
    """Of one phase; times in ms."""

    ttft: list[float]
    tpot: list[float]
    live_per_s: float
    job_per_s: float
    note: str

    def __str__(self) -> str:
        live = ""
        if self.ttft:
            live = f"TTFT {_p(self.ttft, 50):5.0f} / {_p(self.ttft, 99):5.0f}  TPOT {_p(self.tpot, 50):5.1f} / {_p(self.tpot, 99):5.1f}"
        return f"{live:46} live {self.live_per_s:7,.0f}  job {self.job_per_s:7,.0f}  {self.note}"


def _p(values: list[float], quantile: float) -> float:
    return float(np.percentile(values, quantile))


def simulated(costs: Costs, objective: LlmObjective, rate: float, job: bool, seconds: float, warm_s: float = 5.0) -> Found:
    """So many live requests a second for so long, beside a job or not; the first seconds are not counted."""
    llm = SimulatedLlm(costs)
    cost = fit_step_cost([each.sample for each in measure_steps(llm, 1e-6)]).cost
    llm = SimulatedLlm(costs)
    engine = LlmEngine(llm, cost, objective, clock=llm.clock, start=False)
    ended = list[FinishedSequence]()
    engine.on_finished = ended.append
    phase = Phase(1, 0, seconds + warm_s, rate, job, live_size=SIZE, job_size=SIZE)
    arrivals = phase.live()[::-1]
    if job:
        engine.submit_block(Prompts(tuple(map(_prompt, phase.job(int(200 * (seconds + warm_s)))))))
    before, steps_before = _tokens(engine), 0
    is_warm = False
    while llm.now_s < seconds + warm_s:
        if not is_warm and llm.now_s >= warm_s:
            is_warm, before, steps_before = True, _tokens(engine), engine.sequences().steps
            began_s, requeued = llm.now_s, engine.sequences().requeued
        while arrivals and arrivals[-1].due_s <= llm.now_s:
            engine.stream(_prompt(arrivals.pop()))
        was_s = llm.now_s
        engine.step(0.0)
        if llm.now_s <= was_s:  # nothing to run, or nothing may be
            llm.now_s = max(was_s + 1e-6, min(was_s + 1e-3, arrivals[-1].due_s)) if arrivals else was_s + 1e-3
    took_s, now = llm.now_s - began_s, engine.sequences()
    live, batch = (now_t - then for now_t, then in zip(_tokens(engine), before, strict=True))
    counted = [each for each in ended if each.lane is Lane.ONLINE and each.ended_s - each.seconds > warm_s]
    steps = now.steps - steps_before
    note = f"{steps / took_s:4.0f} steps/s, {(live + batch) / max(1, steps):5.1f} tokens a step, requeued {now.requeued - requeued}"
    return Found(
        [1e3 * each.ttft_s for each in counted], [1e3 * (each.tpot_s or 0.0) for each in counted],
        live / took_s, batch / took_s, note,
    )  # fmt: skip


def _prompt(ask: Ask) -> Prompt:
    return Prompt(ask.token_ids, _PARAMS, ask.new_tokens)


def _tokens(engine: LlmEngine) -> tuple[int, int]:
    lanes = engine.sequences().lanes
    return lanes[Lane.ONLINE].output_tokens, lanes[Lane.BATCH].output_tokens


def main() -> int:
    """A table; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", type=float, nargs="*", default=[8.0, 24.0])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--ttft-ms", type=float, default=500.0)
    parser.add_argument("--tpot-ms", type=float, default=40.0)
    parser.add_argument("--live-slowdown", type=float)
    for each in fields(Costs):
        parser.add_argument(f"--{each.name.replace('_', '-')}", type=float)
    given = parser.parse_args()
    named = {each.name: getattr(given, each.name) for each in fields(Costs)}
    costs = replace(Costs(), **{name: value for name, value in named.items() if value is not None})
    objective = LlmObjective(given.ttft_ms / 1e3, given.tpot_ms / 1e3)
    alone = simulated(costs, objective, 0.0, True, given.seconds)
    print(f"the job alone         {alone}", flush=True)
    is_met = True
    for rate in given.rates:
        print(f"{rate:3g}/s alone           {simulated(costs, objective, rate, False, given.seconds)}", flush=True)
        if given.live_slowdown:
            bounded = replace(objective, live_slowdown=given.live_slowdown)
            print(f"{rate:3g}/s, {given.live_slowdown:g}            {simulated(costs, bounded, rate, True, given.seconds)}", flush=True)
        both = simulated(costs, objective, rate, True, given.seconds)
        share = both.job_per_s / (alone.job_per_s - both.live_per_s)
        is_met = is_met and share >= GOAL and _p(both.tpot, 99) <= given.tpot_ms and _p(both.ttft, 99) <= given.ttft_ms
        print(f"{rate:3g}/s beside the job  {both}\n{'':22}the job has {share:.2f} of what the streams leave (goal {GOAL})", flush=True)
    return int(not is_met)


if __name__ == "__main__":
    sys.exit(main())
