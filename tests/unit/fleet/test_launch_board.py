from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twoshift.fleet.launch_board import LaunchBoard, LaunchReading


def test_a_front_finds_what_was_launched_since_its_last_look(tmp_path: Path) -> None:
    reading = LaunchReading(str(tmp_path / "launches"))
    board = LaunchBoard(str(tmp_path / "launches"))
    assert reading.launched() == ([], 0.0)
    board.write([4, 7], 1.5)
    board.write([9], 2.5)
    assert reading.launched() == ([4, 7, 9], 2.5)
    assert reading.launched() == ([], 0.0)
    assert not [*tmp_path.iterdir()]  # it lies in the memory of both


@given(calls=st.lists(st.integers(1, 3000), min_size=1, max_size=6))
def test_the_newest_are_there_however_late_the_look(calls: list[int], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = str(tmp_path_factory.mktemp("board") / "launches")
    reading, number = LaunchReading(path), 0
    board = LaunchBoard(path)
    for size in calls:
        board.write(range(number, number + size), float(number))
        number += size
    found, began_s = reading.launched()
    assert found == [*range(max(0, number - 4096), number)]
    assert began_s == number - calls[-1]


def _target(descriptor: Path) -> str:
    try:
        return str(descriptor.readlink())
    except OSError:
        return ""


def test_a_board_of_a_front_that_is_gone_cannot_be_opened(tmp_path: Path) -> None:
    reading = LaunchReading(str(tmp_path / "launches"))
    reading.close()  # it may be referred to for longer
    assert not any(str(tmp_path) in _target(each) for each in Path("/proc/self/fd").iterdir())
    with pytest.raises(FileNotFoundError):
        LaunchBoard(str(tmp_path / "launches"))
