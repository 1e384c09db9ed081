from __future__ import annotations

import pytest

from twoshift.batch.preparing import spare_lines
from twoshift.batch.preparing.spare_lines import SpareLines
from waiting import until


class Line:
    """A process that waits, without one."""

    def __init__(self) -> None:
        self.lives, self.is_closed = True, False
        made.append(self)

    def is_alive(self) -> bool:
        return self.lives

    def kill(self) -> None:
        self.lives = False

    def close(self) -> None:
        self.is_closed = True


made = list[Line]()


@pytest.fixture(autouse=True)
def lines(monkeypatch: pytest.MonkeyPatch) -> None:
    made.clear()
    monkeypatch.setattr(spare_lines, "LocalLine", Line)


def test_a_job_gets_those_that_wait_and_others_start_once_it_has_its_own() -> None:
    spares = SpareLines(2, quiet_s=0.01)
    until(lambda: len(made) == 2)
    assert spares.take() in made[:2]
    until(lambda: len(made) == 3)
    spares.close()


def test_no_others_start_while_a_job_starts() -> None:
    spares = SpareLines(1, quiet_s=1e6)
    until(lambda: len(made) == 1)
    assert spares.take() is made[0]
    assert spares.take() is made[1]  # a new one: none waits
    assert len(made) == 2
    spares.close()


def test_one_that_has_ended_is_not_handed_out() -> None:
    spares = SpareLines(1, quiet_s=1e6)
    until(lambda: len(made) == 1)
    made[0].lives = False
    assert spares.take() is made[1]
    assert made[0].is_closed
    spares.close()


def test_all_of_them_end_with_their_server() -> None:
    spares = SpareLines(3)
    until(lambda: len(made) == 3)
    spares.close()
    assert all(line.is_closed and not line.lives for line in made)


def test_where_no_process_can_be_started_it_is_tried_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = list[int]()

    def none_left() -> Line:
        tried.append(1)
        raise OSError("no more processes")

    monkeypatch.setattr(spare_lines, "LocalLine", none_left)
    spares = SpareLines(1, quiet_s=1e6)
    until(lambda: tried)
    with pytest.raises(OSError, match="no more processes"):
        spares.take()
    assert len(tried) == 2  # and not again and again
    spares.close()
