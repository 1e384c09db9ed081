"""Background sequences of a language model, in the order in which they are let in."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from twoshift.engine.llm.pending_sequences import PendingSequences
from twoshift.engine.waiting import BlockOwner
from twoshift.types import Lane


def test_sequences_of_streams_are_let_in_before_those_of_jobs_whatever_those_are_owed() -> None:
    owners = {
        "job": BlockOwner(1),
        "urgent job": BlockOwner(2, deadline_s=1.0, owed=True),
        "stream": BlockOwner(3, lane=Lane.MICRO),
    }
    pending = PendingSequences()
    sequences: list[Any] = [
        SimpleNamespace(name=name, job=SimpleNamespace(owner=owner)) for name, owner in owners.items()
    ]
    pending.add(sequences)
    named: list[Any] = pending.first(9)
    assert [each.name for each in named] == ["stream", "urgent job", "job"]
    pending.hold(owners["stream"])
    held: list[Any] = pending.first(9)
    assert [each.name for each in held] == ["urgent job", "job"]
