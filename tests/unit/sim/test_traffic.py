from __future__ import annotations

import numpy as np
import pytest

from twoshift.errors import InvalidInput
from twoshift.sim.traffic import parse_trace, poisson

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"


def test_a_trace_in_the_azure_format_is_read_to_the_microsecond() -> None:
    trace = parse_trace([HEADER, "2023-11-16 18:17:03.9799600,4808,10", "2023-11-16 18:17:04.0319600,3180,8"])
    assert trace.times_s.tolist() == pytest.approx([0.0, 0.052], abs=1e-6)
    assert trace.tokens.tolist() == [4808, 3180]


def test_rows_out_of_order_are_put_in_order() -> None:
    trace = parse_trace([HEADER, "2023-11-16 18:17:05,2,1", "2023-11-16 18:17:03,1,1"])
    assert trace.tokens.tolist() == [1, 2]
    assert trace.times_s.tolist() == [0.0, 2.0]


@pytest.mark.parametrize(
    ("lines", "named"),
    [
        ([], "file is empty"),
        (["a,b"], "a, b"),
        ([HEADER], "in this file: 0"),
        ([HEADER, "2023-11-16 18:17:05,1,1"], "in this file: 1"),
        ([HEADER, "2023-11-16 18:17:05,1,1", "yesterday,1,1"], "line 3, TIMESTAMP: 'yesterday'"),
        ([HEADER, "2023-11-16 18:17:05,many,1"], "line 2, ContextTokens: 'many'"),
        ([HEADER, "2023-11-16 18:17:05"], "line 2, ContextTokens"),
        ([HEADER, "2023-11-16 18:17:05,-1,1"], "line 2, ContextTokens: '-1'"),
        ([HEADER, "2023-11-16 18:17:05,1,1", "2023-11-16 18:17:05,1,1"], "different times"),
    ],
)
def test_a_bad_trace_is_refused_by_line(lines: list[str], named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        parse_trace(lines)


def test_poisson_arrivals_have_the_rate_asked_for_and_come_in_order() -> None:
    arrivals = poisson(1000.0, 50.0, np.random.default_rng(1))
    assert len(arrivals.times_s) == pytest.approx(50_000, rel=0.02)
    assert (np.diff(arrivals.times_s) >= 0).all()


def test_rescaling_changes_the_pace_and_not_the_pattern() -> None:
    arrivals = poisson(10.0, 100.0, np.random.default_rng(1))
    fast = arrivals.rescaled(20.0)
    assert len(fast.times_s) / fast.horizon_s == pytest.approx(20.0)
    gaps, quick = np.diff(arrivals.times_s), np.diff(fast.times_s)
    assert quick == pytest.approx(gaps * quick.sum() / gaps.sum())
