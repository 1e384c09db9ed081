"""The states of jobs, and the status that a batch has by its job's."""

from __future__ import annotations

import itertools

import pytest

from twoshift.policy.job_states import JobMove, batch_end, batch_status
from twoshift.types import BatchStatus, JobState

JOBS = (None, *JobState)


def test_what_is_over_moves_only_where_somebody_wants_a_failed_job_back_or_gone() -> None:
    moves = {(before, move) for move in JobMove for before in move.before if before.is_over}
    assert moves == {(JobState.FAILED, JobMove.RESUME), (JobState.FAILED, JobMove.CANCEL)}


def test_every_state_is_reached_from_the_queue_and_every_open_one_is_left() -> None:
    reached, last = {JobState.QUEUED}, set[JobState]()
    while reached != last:
        last = set(reached)
        reached |= {move.after for move in JobMove if reached & set(move.before)}
    assert reached == set(JobState)
    for state in JobState:
        assert state.is_over or any(state in move.before and move.after.is_over for move in JobMove)


def test_a_run_ends_only_what_runs() -> None:
    for move in (JobMove.STOP, JobMove.FINISH, JobMove.FAIL):
        assert move.before == (JobState.RUNNING,)


@pytest.mark.parametrize("end", [status for status in BatchStatus if status.is_over])
def test_a_batch_that_has_ended_stays_so_whatever_its_job_is(end: BatchStatus) -> None:
    assert {batch_status(end, cancelled, job) for cancelled in (False, True) for job in JOBS} == {end}


def test_a_batch_without_an_end_is_not_over() -> None:
    found = {(cancelled, job): batch_status(None, cancelled, job) for cancelled in (False, True) for job in JOBS}
    assert not any(status.is_over for status in found.values())
    assert {found[True, job] for job in JOBS} == {BatchStatus.CANCELLING}
    assert found[False, None] is BatchStatus.VALIDATING
    assert [job for job in JobState if found[False, job] is BatchStatus.FINALIZING] == [JobState.DONE, JobState.FAILED]


def test_every_end_is_an_end_and_each_has_its_reason() -> None:
    cases = list(itertools.product((False, True), (False, True), JOBS, (0, 1)))
    ends = {case: batch_end(*case) for case in cases}
    assert all(end.is_over for end in ends.values())
    assert {case[1] for case in cases if ends[case] is BatchStatus.CANCELLED} == {True}
    assert {case[:2] for case in cases if ends[case] is BatchStatus.FAILED} == {(True, False)}
    expired = {case for case in cases if ends[case] is BatchStatus.EXPIRED}
    assert expired == {(False, False, JobState.CANCELLED, 1)}
