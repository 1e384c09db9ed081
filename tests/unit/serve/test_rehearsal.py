"""What live requests cost beside their steps is known before the first of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from fake_llm import FakeLlm

from twoshift.engine.llm import LlmObjective
from twoshift.generation import GenerationRequest
from twoshift.llm_ports import LlmShape, Prompt, Prompts, Step
from twoshift.policy.cost import CallCost
from twoshift.policy.plan.row import RowSize
from twoshift.serve.llm_derived import derive_llm
from twoshift.types import CallSize
from twoshift.wiring.measuring import with_live_cost
from twoshift.wiring.stored_profiles import profile_of, stored_profile

SHAPE = LlmShape(context_tokens=1024, kv_tokens=65_536, block_tokens=16, step_tokens=512, max_sequences=64)
COST = CallCost(0.01, 2e-5, per_row_s=1e-4, reading_s=0.004)
OBJECTIVE = LlmObjective(ttft_s=1.0, tpot_s=0.2)
ADDED_S, STREAM_S = 0.02, 0.001
KEEPS_UP_S = 0.002  # a step's real time, in which clients read their replies and ask again
READ = CallSize.of([1] * 61 + [256])


class Hosted(FakeLlm):
    """What requests cost the interpreter makes the steps longer that read them."""

    def __init__(self) -> None:
        super().__init__(SHAPE, COST)
        self.asked = list[Prompt]()

    def prepare(self, rows: Sequence[GenerationRequest]) -> Prompts:
        made = zip(super().prepare(rows).prompts, rows, strict=True)
        return Prompts(tuple(replace(prompt, whole=row.whole) for prompt, row in made))

    def add(self, key: int, prompt: Prompt, live: bool) -> None:
        self.asked.append(prompt)
        super().add(key, prompt, live)

    def step(self, prefill_tokens: int | None = None) -> Step:
        time.sleep(KEEPS_UP_S)
        streamed = {key for key, each in self.inside.items() if each.live and not each.prompt.whole}
        step = super().step(prefill_tokens)
        if step.seconds is None:
            return step
        host_s = STREAM_S * sum(each.key in streamed for each in step.emitted) + ADDED_S * (step.size.longest > 1)
        return Step(step.emitted, step.tokens, step.seconds + host_s, step.kv_use)


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWOSHIFT_HOME", str(tmp_path))


def test_what_is_told_at_the_start_knows_what_requests_cost_the_interpreter() -> None:
    llm, said = Hosted(), list[str]()
    measured = profile_of(llm.info, COST, RowSize.uniform(1), 40)
    found = with_live_cost(llm, measured, OBJECTIVE, said.append)
    assert found.live_cost is not None
    added_s = found.live_cost.seconds(READ) - COST.seconds(READ)
    assert 0.4 * ADDED_S <= added_s <= 1.15 * ADDED_S, "a step reads two prompts at the most"
    many = CallSize.uniform(60)
    assert found.live_cost.seconds(many) == pytest.approx(COST.seconds(many), rel=0.1)
    assert found.cost == COST, "jobs pay nothing of it"
    assert stored_profile(llm.info) == found
    told, alone = (derive_llm(each, OBJECTIVE, SHAPE).output_tokens_per_s for each in (found.live_cost, COST))
    assert told < 0.9 * alone
    assert found.stream_token_s == pytest.approx(STREAM_S, rel=0.5)
    assert said == ["Measuring live requests of fake"]
    typical = [each for each in llm.asked if len(each.token_ids) == 256]
    assert len(typical) >= 60, "as many as the objective allows, and none of them shares a beginning"
    assert len({each.token_ids[:2] for each in llm.asked}) == len(llm.asked)
    assert {each.max_tokens for each in typical} >= set(range(2, 120, 2)), "answers end one after the other"


def test_nothing_of_the_rehearsal_is_left_in_the_runtime_even_where_a_loop_runs_already() -> None:
    llm = Hosted()

    async def as_on_ray() -> None:
        with_live_cost(llm, profile_of(llm.info, COST, RowSize.uniform(1), 40), OBJECTIVE, lambda _: None)

    asyncio.run(as_on_ray())
    assert not llm.inside
    assert not llm.closed
