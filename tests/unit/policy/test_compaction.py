"""Small parts are merged so that there are few, and no row is written often."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from twoshift.policy.compaction import SmallPart, parts_to_merge


def _day(windows: int, many: int, most_bytes: int, window_bytes: int) -> tuple[list[SmallPart], int]:
    """The parts that are left after so many windows, and how often the most often written row was written."""
    parts, times = list[SmallPart](), list[int]()
    for _ in range(windows):
        parts.append(SmallPart(1, window_bytes))
        times.append(1)
        while (chosen := parts_to_merge(parts, many, most_bytes)) is not None:
            span = slice(chosen.start, chosen.stop)
            merged = SmallPart(sum(each.windows for each in parts[span]), sum(each.size_bytes for each in parts[span]))
            parts[span], times[span] = [merged], [1 + max(times[span])]
    return parts, max(times, default=0)


def test_a_day_of_windows_of_30_seconds_leaves_few_parts() -> None:
    parts, written = _day(2880, 60, 256 << 20, 10_000)
    assert len(parts) < 110
    assert written <= 2
    assert sum(each.windows for each in parts) == 2880


@given(st.integers(0, 400), st.integers(2, 20))
def test_there_are_never_more_parts_than_each_level_may_have(windows: int, many: int) -> None:
    parts, written = _day(windows, many, 1 << 40, 1)
    levels = 1
    while many**levels <= windows:
        levels += 1
    assert len(parts) <= levels * (many - 1)
    assert written <= levels
    assert sum(each.windows for each in parts) == windows


@given(st.lists(st.builds(SmallPart, st.integers(1, 500), st.integers(1, 100)), max_size=60), st.integers(2, 10))
def test_what_is_merged_are_neighbours_and_no_larger_than_a_part_should_be(parts: list[SmallPart], many: int) -> None:
    chosen = parts_to_merge(parts, many, 150)
    if chosen is not None:
        assert 2 <= len(chosen) <= many
        assert sum(parts[at].size_bytes for at in chosen) <= 150


def test_parts_that_are_large_enough_stay_as_they_are() -> None:
    assert parts_to_merge([SmallPart(1, 100)] * 50, 10, 150) is None
