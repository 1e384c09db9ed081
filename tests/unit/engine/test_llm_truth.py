"""What is told of a language model while it serves is what clients then get: simulated, no time passes."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from fake_llm import FakeLlm, prompt_of

from twoshift.engine.llm import LlmEngine, LlmObjective
from twoshift.engine.llm.stats import FinishedSequence
from twoshift.llm_ports import LlmShape, Prompt, Step
from twoshift.policy.cost import CallCost
from twoshift.serve.llm_derived import derive_llm
from twoshift.types import Lane

SHAPE = LlmShape(context_tokens=1024, kv_tokens=65_536, block_tokens=16, step_tokens=2048, max_sequences=64)
COST = CallCost(0.004, 23e-6, per_row_s=100e-6, reading_s=0.012)  # a step that reads is launched layer by layer
GOAL = 0.15
AWAY_S = 0.005  # until a client that has its answer asks again


class Hosted(FakeLlm):
    """Under a clock of its own; each request that comes keeps the interpreter from its steps for a while."""

    def __init__(self, request_s: float) -> None:
        super().__init__(SHAPE, COST)
        self.request_s, self.came, self.now_s = request_s, 0, 0.0

    def add(self, key: int, prompt: Prompt, live: bool) -> None:
        self.came += 1
        super().add(key, prompt, live)

    def step(self, prefill_tokens: int | None = None) -> Step:
        host_s, self.came = self.request_s * self.came, 0
        step = super().step(prefill_tokens)
        seconds = (step.seconds or 1e-4) + host_s
        self.now_s += seconds
        return replace(step, seconds=seconds if step.tokens else None)


@pytest.mark.slow
@pytest.mark.parametrize("request_s", [0.0, 0.002, 0.005])
@pytest.mark.parametrize("answer", [32, 64])
def test_clients_in_a_closed_loop_get_what_is_told_while_they_are_served(request_s: float, answer: int) -> None:
    rng = random.Random(1)  # noqa: S311 - the same requests in every run
    llm, due = Hosted(request_s), [0.0] * SHAPE.max_sequences
    engine = LlmEngine(llm, COST, LlmObjective(1.0, 0.2), clock=lambda: llm.now_s, start=False)

    def ended(finished: FinishedSequence) -> None:
        due.append(finished.ended_s + AWAY_S)

    def run(steps: int) -> tuple[int, float]:
        for _ in range(steps):
            for at_s in [each for each in due if each <= llm.now_s]:
                due.remove(at_s)
                ids = rng.choices(range(1000), k=rng.randint(64, 192))
                engine.stream(prompt_of(*ids, max_tokens=rng.randint(answer // 2, answer * 3 // 2), ignore_eos=True))
            engine.step(0.0)
        return engine.sequences().lanes[Lane.ONLINE].output_tokens, llm.now_s

    engine.on_finished = ended
    (before, began_s), (after, ended_s) = run(150), run(300)
    told = derive_llm(engine.live_cost(), engine.objective, SHAPE, [each.usage for each in engine.recent()])
    assert told.output_tokens_per_s == pytest.approx((after - before) / (ended_s - began_s), rel=GOAL)
