from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twoshift.errors import TooLarge
from twoshift.policy.packing import PackLimits, pack

lengths_lists = st.lists(st.integers(1, 100), max_size=80)
limits_any = st.builds(
    PackLimits,
    max_tokens=st.integers(100, 600),
    max_rows=st.integers(1, 40),
    padded=st.booleans(),
    max_waste=st.floats(0.0, 0.5),
)


@given(lengths_lists, limits_any)
def test_no_call_exceeds_a_cap(lengths: list[int], limits: PackLimits) -> None:
    for call in pack(lengths, limits):
        sizes = [lengths[i] for i in call.tolist()]
        tokens = len(sizes) * max(sizes) if limits.padded else sum(sizes)
        assert 1 <= len(sizes) <= limits.max_rows
        assert tokens <= limits.max_tokens


@given(lengths_lists, limits_any)
def test_every_item_is_in_exactly_one_call(lengths: list[int], limits: PackLimits) -> None:
    packed = pack(lengths, limits)
    assert sorted(i for call in packed for i in call.tolist()) == list(range(len(lengths)))


@given(lengths_lists, limits_any)
def test_padding_is_counted_and_stays_within_its_bound(lengths: list[int], limits: PackLimits) -> None:
    packed = pack(lengths, limits)
    if not limits.padded:
        assert packed.padding_waste == 0
    else:
        assert 0 <= packed.padding_waste <= limits.max_waste + 1e-12


def test_a_long_tailed_corpus_packs_with_little_padding_and_full_calls() -> None:
    rng = np.random.default_rng(1)
    lengths = np.clip(rng.lognormal(4.0, 0.8, 20_000).astype(int), 4, 510)
    padded = pack(lengths, PackLimits(max_tokens=16_384, padded=True))
    packed = pack(lengths, PackLimits(max_tokens=16_384))
    assert padded.padding_waste < 0.03
    assert len(packed) <= np.ceil(lengths.sum() / (16_384 - 510))


def test_the_longest_items_go_first_so_that_memory_fails_early() -> None:
    first = next(iter(pack([5, 90, 7], PackLimits(max_tokens=90))))
    assert first.tolist() == [1]


def test_an_item_that_fits_no_call_is_named() -> None:
    with pytest.raises(TooLarge, match="101"):
        pack([1, 101], PackLimits(max_tokens=100))
