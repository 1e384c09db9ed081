from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twoshift.errors import InvalidInput
from twoshift.policy.plan import Regime, RegimeAsk, plan_regime
from twoshift.types import Lane


@pytest.mark.parametrize(
    ("ask", "regime", "lane"),
    [
        (RegimeAsk(True, False, p99_s=0.080), Regime.ONLINE, Lane.ONLINE),
        (RegimeAsk(True, False, p99_s=0.100), Regime.INTERACTIVE, Lane.ONLINE),
        (RegimeAsk(True, False, p99_s=20.0, ttft_s=0.4), Regime.INTERACTIVE, Lane.ONLINE),
        (RegimeAsk(True, False, p99_s=30.0), Regime.MICRO_BATCH, Lane.MICRO),
        (RegimeAsk(False, False, freshness_s=60.0), Regime.MICRO_BATCH, Lane.MICRO),
        (RegimeAsk(False, False, freshness_s=86_400.0), Regime.BATCH, Lane.BATCH),
        (RegimeAsk(False, True), Regime.BATCH, Lane.BATCH),
        (RegimeAsk(True, False, p99_s=0.080, precomputable=0.9), Regime.HYBRID, Lane.ONLINE),
        (RegimeAsk(True, True, p99_s=0.080), Regime.HYBRID, Lane.ONLINE),
    ],
)
def test_the_two_questions_and_the_objective_decide(ask: RegimeAsk, regime: Regime, lane: Lane) -> None:
    made = plan_regime(ask)
    assert (made.regime, made.lane) == (regime, lane)


def test_a_latency_objective_where_nobody_waits_is_a_contradiction() -> None:
    with pytest.raises(InvalidInput, match="--nobody-waiting"):
        RegimeAsk(waiting=False, known=True, p99_s=0.08)


@given(
    st.builds(
        RegimeAsk,
        waiting=st.just(True),
        known=st.booleans(),
        p99_s=st.none() | st.floats(1e-3, 1e5),
        ttft_s=st.none() | st.floats(1e-3, 1e5),
        freshness_s=st.none() | st.floats(1e-3, 1e7),
        precomputable=st.floats(0, 1),
    )
)
def test_every_answer_names_its_property_and_its_hardware(ask: RegimeAsk) -> None:
    made = plan_regime(ask)
    assert made.deciding_property
    assert made.hardware
    if ask.known and not ask.waiting:
        assert made.regime is Regime.BATCH
    if ask.waiting:
        assert made.regime is not Regime.BATCH


@pytest.mark.parametrize(
    ("ask", "command"),
    [
        (RegimeAsk(False, False, freshness_s=30.0), "twoshift stream SOURCE --model MODEL --fresh 30s -o OUT"),
        (RegimeAsk(True, False, p99_s=5.0), "twoshift stream SOURCE --model MODEL --fresh 5s -o OUT"),
        (RegimeAsk(True, False, p99_s=0.08), "twoshift serve MODEL --slo-ms 80"),
        (RegimeAsk(False, True), "twoshift run INPUT --model MODEL -o OUT"),
        (RegimeAsk(True, True), "twoshift serve MODEL --precomputed OUT --key KEY"),
    ],
)
def test_the_command_that_runs_it_is_named(ask: RegimeAsk, command: str) -> None:
    assert plan_regime(ask).command == command
