"""What live requests cost beside their steps is known before the first of them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from fake_llm import FakeLlm

from twoshift.engine.llm import LlmObjective
from twoshift.llm_ports import LlmShape, Prompt, Step
from twoshift.policy.cost import CallCost
from twoshift.policy.plan.row import RowSize
from twoshift.serve.llm_derived import derive_llm
from twoshift.types import CallSize
from twoshift.wiring.measuring import with_live_cost
from twoshift.wiring.stored_profiles import profile_of, stored_profile

SHAPE = LlmShape(context_tokens=1024, kv_tokens=65_536, block_tokens=16, step_tokens=512, max_sequences=64)
COST = CallCost(0.01, 2e-5, per_row_s=1e-4, reading_s=0.004)
OBJECTIVE = LlmObjective(ttft_s=1.0, tpot_s=0.2)
ADDED_S = 0.02
READ = CallSize.of([1] * 61 + [256])


class Hosted(FakeLlm):
    """Each request that comes keeps the interpreter from the next step."""

    def __init__(self) -> None:
        super().__init__(SHAPE, COST)
        self.came = 0

    def add(self, key: int, prompt: Prompt, live: bool) -> None:
        self.came += 1
        super().add(key, prompt, live)

    def step(self, prefill_tokens: int | None = None) -> Step:
        came, self.came = self.came, 0
        step = super().step(prefill_tokens)
        if step.seconds is None:
            return step
        return Step(step.emitted, step.tokens, step.seconds + ADDED_S * (came > 0), step.kv_use)


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWOSHIFT_HOME", str(tmp_path))


def test_what_is_told_at_the_start_knows_what_requests_cost_the_interpreter() -> None:
    llm, said = Hosted(), list[str]()
    measured = profile_of(llm.info, COST, RowSize.uniform(1), 40)
    found = with_live_cost(llm, measured, OBJECTIVE, said.append)
    assert found.live_cost is not None
    assert found.live_cost.seconds(READ) == pytest.approx(COST.seconds(READ) + ADDED_S, rel=0.15)
    many = CallSize.uniform(60)
    assert found.live_cost.seconds(many) == pytest.approx(COST.seconds(many), rel=0.1)
    assert found.cost == COST, "jobs pay nothing of it"
    assert stored_profile(llm.info) == found
    told, alone = (derive_llm(each, OBJECTIVE, SHAPE).output_tokens_per_s for each in (found.live_cost, COST))
    assert told < 0.8 * alone
    assert said == ["Measuring live requests of fake"]


def test_nothing_of_the_rehearsal_is_left_in_the_runtime_even_where_a_loop_runs_already() -> None:
    llm = Hosted()

    async def as_on_ray() -> None:
        with_live_cost(llm, profile_of(llm.info, COST, RowSize.uniform(1), 40), OBJECTIVE, lambda _: None)

    asyncio.run(as_on_ray())
    assert not llm.inside
    assert not llm.closed
