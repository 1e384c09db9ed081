"""What crosses between processes comes out as it went in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twoshift import errors
from twoshift.fleet import frames
from twoshift.fleet.frames import Frames, framed, is_plain
from twoshift.fleet.wire import Ask, Done, Results, from_replica, to_replica


def crossed(message: Any, decode: Any = from_replica) -> Any:
    (frame,) = Frames().feed(framed(message))
    return decode(frame)


@given(st.lists(st.binary(max_size=40), max_size=20), st.data())
def test_frames_are_whole_however_they_are_cut(texts: list[bytes], data: st.DataObject) -> None:
    sent = [framed(Ask(k, [text.hex()], False, 1.0, 0.5)) for k, text in enumerate(texts)]
    whole, frames, found = b"".join(sent), Frames(), []
    while whole:
        size = data.draw(st.integers(1, len(whole)))
        found += [to_replica(frame) for frame in frames.feed(whole[:size])]
        whole = whole[size:]
    assert [ask.rows for ask in found] == [[text.hex()] for text in texts]


@pytest.mark.parametrize(
    "row",
    [
        "a text",
        [1, 2, 3],
        {"x": 1.5, "words": ["a", "b"]},
        {"x": np.arange(6, dtype="int16").reshape(2, 3)},
        {"x": np.float32(1.5), "none": None},
    ],
)
def test_rows_cross(row: Any) -> None:
    found = crossed(Ask(7, [row], False, 1.0, 0.5), to_replica)
    np.testing.assert_equal(found.rows, [row])


@pytest.mark.parametrize(
    "column",
    [
        np.arange(6.0).reshape(2, 3),
        np.array([True, False]),
        np.zeros((2, 0), "float16"),
        np.array(["a", "ü"], object),
        np.array(["a", "bc"]),
        np.array([b"a", b"\xff"], object),
        np.array([[["a"], None], [1, 2.5]], object),
        np.array(["2026-01-01"], "datetime64[D]"),
        np.arange(8)[::2],
    ],
)
def test_columns_cross(column: np.ndarray[Any, Any]) -> None:
    done = Done(1, [Results({"c": column}, len(column), 0.1, 3)], 5, 0, (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 3))
    found = crossed(done).results[0].columns["c"]
    assert found.dtype == column.dtype
    np.testing.assert_array_equal(found, column)


def test_lists_in_a_column_stay_lists() -> None:
    column = np.empty(2, object)
    column[0], column[1] = [1, 2], [3, 4]
    done = Done(1, [Results({"c": column}, 2, 0.1, 3)], 5, 0, (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 3))
    assert crossed(done).results[0].columns["c"].tolist() == [[1, 2], [3, 4]]


def test_what_is_no_plain_value_is_known_as_such() -> None:
    assert is_plain({"x": [1, "a", np.zeros(2)]})
    assert not is_plain(object())
    assert not is_plain("\ud800")


def test_a_message_that_no_line_takes_is_refused_before_it_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "_MOST_BYTES", 1000)
    with pytest.raises(errors.TooLarge, match="at most 1,000"):
        framed(Ask(1, ["a" * 2000], False, 1.0, 0.0))
