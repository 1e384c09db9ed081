"""What a job has beside live streams of a language model, simulated: the real engine, no device and no waiting.

    python bench/llm_governor.py
    python bench/llm_governor.py --rates 8 24 --live-slowdown 1.05

The loads of `bench/llm_colocate.py --cuda` with an H200's costs (`_llm_simulated.py`). The engine, its governor,
admission and learned curves are the real ones; the interpreter's time is what the costs say it is.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, fields, replace

import numpy as np
from _llm_simulated import Costs, SimulatedLlm
from _llm_traffic import Ask, Phase

from twoshift.engine.llm import LlmEngine, LlmObjective, LlmStats
from twoshift.engine.llm.measure import measure_steps
from twoshift.engine.llm.stats import FinishedSequence
from twoshift.generation import GenerationParams
from twoshift.llm_ports import Prompt, Prompts
from twoshift.policy.step_fit import fit_step_cost
from twoshift.types import Lane

SIZE = (249, 128)
GOAL = 0.9
_PARAMS = GenerationParams(temperature=0.0, ignore_eos=True)
_WARM_S, _PAUSE_S = 5.0, 1e-3


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
            ttft, tpot = (f"{_p(each, 50):6.2f} / {_p(each, 99):6.2f}" for each in (self.ttft, self.tpot))
            live = f"TTFT {ttft}  TPOT {tpot}"
        return f"{live:46} live {self.live_per_s:7,.0f}  job {self.job_per_s:7,.0f}  {self.note}"


def _p(values: list[float], quantile: float) -> float:
    return float(np.percentile(values, quantile))


def simulated(costs: Costs, objective: LlmObjective, rate: float, job: bool, seconds: float) -> Found:
    """So many live requests a second for so long, beside a job or not; the first seconds are not counted."""
    cost = fit_step_cost([each.sample for each in measure_steps(SimulatedLlm(costs), 1e-6)]).cost
    llm, ended = SimulatedLlm(costs), list[FinishedSequence]()
    engine = LlmEngine(llm, cost, objective, clock=llm.clock, start=False)
    engine.on_finished = ended.append
    phase = Phase(1, 0, seconds + _WARM_S, rate, job, live_size=SIZE, job_size=SIZE)
    arrivals = phase.live()[::-1]
    if job:
        engine.submit_block(Prompts(tuple(map(_prompt, phase.job(int(200 * (seconds + _WARM_S)))))))
    _run(llm, engine, arrivals, _WARM_S)
    before, began_s = engine.sequences(), llm.now_s
    _run(llm, engine, arrivals, _WARM_S + seconds)
    live = [each for each in ended if each.lane is Lane.ONLINE and each.ended_s - each.seconds > _WARM_S]
    return _found(live, before, engine.sequences(), llm.now_s - began_s)


def _run(llm: SimulatedLlm, engine: LlmEngine, arrivals: list[Ask], until_s: float) -> None:
    while llm.now_s < until_s:
        while arrivals and arrivals[-1].due_s <= llm.now_s:
            engine.stream(_prompt(arrivals.pop()))
        was_s = llm.now_s
        engine.step(0.0)
        if llm.now_s <= was_s:  # nothing to run, or nothing may be
            due_s = arrivals[-1].due_s if arrivals else until_s
            llm.now_s = max(was_s + 1e-6, min(was_s + _PAUSE_S, due_s))


def _found(live: list[FinishedSequence], before: LlmStats, now: LlmStats, took_s: float) -> Found:
    tokens = [now.lanes[lane].output_tokens - before.lanes[lane].output_tokens for lane in (Lane.ONLINE, Lane.BATCH)]
    steps = now.steps - before.steps
    note = f"{steps / took_s:4.0f} steps/s, {sum(tokens) / max(1, steps):5.1f} tokens a step, "
    return Found(
        [1e3 * each.ttft_s for each in live],
        [1e3 * (each.tpot_s or 0.0) for each in live],
        tokens[0] / took_s,
        tokens[1] / took_s,
        note + f"requeued {now.requeued - before.requeued}",
    )


def _prompt(ask: Ask) -> Prompt:
    return Prompt(ask.token_ids, _PARAMS, ask.new_tokens)


def main() -> int:
    """A table; 1 where a goal is missed."""
    given = _arguments()
    named = {each.name: getattr(given, each.name) for each in fields(Costs)}
    costs = replace(Costs(), **{name: value for name, value in named.items() if value is not None})
    objective = LlmObjective(given.ttft_ms / 1e3, given.tpot_ms / 1e3)
    alone = simulated(costs, objective, 0.0, True, given.seconds)
    print(f"{'the job alone':22}{alone}", flush=True)
    is_met = True
    for rate in given.rates:
        print(f"{f'{rate:g}/s alone':22}{simulated(costs, objective, rate, False, given.seconds)}", flush=True)
        if given.live_slowdown:
            bounded = replace(objective, live_slowdown=given.live_slowdown)
            name = f"{rate:g}/s, at most {given.live_slowdown:g}"
            print(f"{name:22}{simulated(costs, bounded, rate, True, given.seconds)}", flush=True)
        both = simulated(costs, objective, rate, True, given.seconds)
        share = both.job_per_s / (alone.job_per_s - both.live_per_s)
        is_met = is_met and share >= GOAL and _p(both.tpot, 99) <= given.tpot_ms and _p(both.ttft, 99) <= given.ttft_ms
        print(f"{f'{rate:g}/s and the job':22}{both}", flush=True)
        print(f"{'':22}the job has {share:.2f} of what the streams leave (goal {GOAL})", flush=True)
    return int(not is_met)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", type=float, nargs="*", default=[8.0, 24.0])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--ttft-ms", type=float, default=500.0)
    parser.add_argument("--tpot-ms", type=float, default=40.0)
    parser.add_argument("--live-slowdown", type=float)
    for each in fields(Costs):
        parser.add_argument(f"--{each.name.replace('_', '-')}", type=float)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
