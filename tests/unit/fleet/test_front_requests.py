"""Several fronts ask one replica: each has its own answers, errors and end."""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prepared_model import BAD, LARGE, Letters, OneReplica, one_replica, total

from sampling import examples
from twoshift.errors import Late, TooLarge, TryLater
from twoshift.fleet import outgoing
from twoshift.fleet.front_connection import connect_front
from twoshift.fleet.link import ReplicaLost
from twoshift.fleet.load_board import LoadReading
from twoshift.fleet.wire import PreparedAsk, asking_prepared
from twoshift.serve.completions import Pending
from twoshift.serve.model import Answer
from twoshift.types import Lane
from waiting import WAIT_S, until_async


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(test())  # type: ignore[arg-type]


def sums(answer: Answer) -> list[int]:
    return [int(row["sum"]) for row in answer.rows]


async def on_device(replica: OneReplica, rows: int = 1) -> None:
    await until_async(lambda: sum(replica.runtime.calls) >= rows)


def waiting(replica: OneReplica) -> int:
    return replica.engine.waiting()[Lane.ONLINE].rows


def test_requests_of_two_fronts_with_the_same_numbers_have_their_own_answers() -> None:
    async def test() -> None:
        async with one_replica(2) as (replica, (first, second)):
            replica.runtime.gate.clear()
            asked = [
                asyncio.ensure_future(front.ask(f"{name}{k}"))
                for k in range(20)
                for front, name in ((first, "a"), (second, "b"))
            ]
            await on_device(replica)
            replica.runtime.gate.set()
            answers = await asyncio.gather(*asked)
            expected = [[total(f"{name}{k}")] for k in range(20) for name in "ab"]
            assert [sums(answer) for answer in answers] == expected
            assert replica.answering.offered_rows == 40
            await until_async(lambda: replica.inside == 0)

    run(test)


def test_rows_that_a_front_has_prepared_are_answered_as_those_that_the_replica_prepares() -> None:
    async def test() -> None:
        async with one_replica(1, max_rows=2) as (_, (front,)):
            for texts in (["one"], ["x" * 100], ["some", "rows", "in", "several", "calls", "y" * 90]):
                mine, theirs = await front.ask(*texts), await front.ask(*texts, prepared=False)
                assert sums(mine) == sums(theirs) == [total(text) for text in texts]
                found, expected = ([row["letters"] for row in each.rows] for each in (mine, theirs))
                np.testing.assert_array_equal(found, expected)
                assert (mine.tokens, mine.truncated) == (theirs.tokens, theirs.truncated)

    run(test)


def test_a_front_is_told_of_launches_of_its_own_requests_alone() -> None:
    async def test() -> None:
        async with one_replica(2) as (replica, (first, second)):
            for _ in range(3):
                await first.ask("a")
            assert (first.started, second.started) == ([0, 1, 2], [])
            await second.ask("a", "b", prepared=False)
            assert (first.started, set(second.started)) == ([0, 1, 2], {0})
            assert replica.inside == 0

    run(test)


def test_a_front_finds_in_shared_memory_what_was_launched_before_its_replica_was_lost(tmp_path: Path) -> None:
    async def test() -> None:
        async with one_replica(0) as (replica, _):
            front, _ = await replica.front(tmp_path / "launches")
            await front.ask("a")
            front.link.look()
            assert front.started == [0]
            replica.runtime.gate.clear()
            begun = asyncio.ensure_future(front.ask("b"))
            await on_device(replica, 2)
            behind = asyncio.ensure_future(front.ask("c"))
            await until_async(lambda: waiting(replica) == 1)
            front.link.close()
            for asked, started in ((begun, True), (behind, False)):
                with pytest.raises(ReplicaLost) as lost:
                    await asked
                assert lost.value.started is started
            front.close()

    run(test)


def test_frames_that_are_read_at_once_are_submitted_together() -> None:
    async def test() -> None:
        async with one_replica(0) as (replica, _):
            front, connection = await replica.front()
            completions, submitted = replica.answering.completions, list[int]()
            submit = completions.submit_together

            def looked(intake: Any, requests: Any) -> Any:
                submitted.append(len(requests))
                return submit(intake, requests)

            setattr(completions, "submit_together", looked)  # noqa: B010
            now_s, letters = time.monotonic(), Letters()
            frames = [
                asking_prepared(
                    [PreparedAsk(90 + k, 1, now_s + WAIT_S, now_s, "", 0.0)], [letters.prepare(["z"])], letters
                )
                for k in range(3)
            ]
            connection.data_received(b"".join(frames))
            assert submitted == [3]
            assert sums(await front.ask("ab")) == [total("ab")]
            front.close()

    run(test)


def test_what_a_front_has_asked_ends_with_it_and_others_are_answered() -> None:
    async def test() -> None:
        async with one_replica(2) as (replica, (first, second)):
            replica.runtime.gate.clear()
            holds = asyncio.ensure_future(second.ask("hold"))
            await on_device(replica)
            lost = [asyncio.ensure_future(first.ask("a", prepared=k % 2 == 0)) for k in range(6)]
            kept = [asyncio.ensure_future(second.ask("b", prepared=k % 2 == 0)) for k in range(6)]
            await until_async(lambda: waiting(replica) == 12)
            first.link.close()
            await until_async(lambda: waiting(replica) == 6)
            replica.runtime.gate.set()
            assert [sums(answer) for answer in await asyncio.gather(*kept)] == [[total("b")]] * 6
            assert sums(await holds) == [total("hold")]
            assert all(
                type(each).__name__ == "ReplicaLost" for each in await asyncio.gather(*lost, return_exceptions=True)
            )
            await until_async(lambda: replica.inside == 0)

    run(test)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_front_that_does_not_read_holds_up_nobody_else(loop: str) -> None:
    async def test() -> None:
        async with one_replica(1, max_waiting=4096) as (replica, (front,)):
            deaf, theirs = socket.socketpair()
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            connection = await connect_front(replica.answering, theirs)
            rows = Letters().prepare(["a"])
            for number in range(2000):
                asked = PreparedAsk(number, 1, time.monotonic() + 600.0, time.monotonic(), "", 0.0)
                deaf.sendall(asking_prepared([asked], [rows], Letters()))
                await asyncio.sleep(0)
            await until_async(lambda: replica.engine.stats().lanes[Lane.ONLINE].rows >= 2000)
            assert sums(await front.ask("b")) == [total("b")]
            deaf.close()
            await until_async(lambda: connection.is_lost)
            assert sums(await front.ask("c")) == [total("c")]

    with asyncio.Runner(loop_factory=pytest.importorskip(loop).new_event_loop) as runner:
        runner.run(test())


def test_a_front_that_leaves_too_much_unread_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outgoing, "_MOST_BYTES", 10_000)

    async def test() -> None:
        async with one_replica(1) as (replica, (front,)):
            deaf, theirs = socket.socketpair()
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            connection = await connect_front(replica.answering, theirs)
            rows, number = Letters().prepare(["a"]), 0
            while not connection.is_lost:
                number += 1
                asked = PreparedAsk(number, 1, time.monotonic() + 600.0, time.monotonic(), "", 0.0)
                with contextlib.suppress(OSError):
                    deaf.sendall(asking_prepared([asked], [rows], Letters()))
                await asyncio.sleep(0)
            deaf.close()
            assert sums(await front.ask("b")) == [total("b")]
            await until_async(lambda: replica.inside == 0)

    run(test)


def test_a_deadline_that_passes_is_told_and_whether_the_request_had_begun() -> None:
    async def test() -> None:
        async with one_replica(1) as (replica, (front,)):
            replica.runtime.gate.clear()
            begun = asyncio.ensure_future(front.ask("a", timeout_s=0.5))
            await on_device(replica)
            behind = asyncio.ensure_future(front.ask("b", timeout_s=0.5))
            outcomes = await asyncio.gather(begun, behind, return_exceptions=True)
            assert [(type(each), getattr(each, "begun", None)) for each in outcomes] == [(Late, True), (Late, False)]
            assert waiting(replica) == 0
            replica.runtime.gate.set()
            assert sums(await front.ask("c")) == [total("c")]
            assert replica.inside == 0

    run(test)


def test_who_does_not_wait_any_more_is_forgotten() -> None:
    async def test() -> None:
        async with one_replica(1) as (replica, (front,)):
            replica.runtime.gate.clear()
            holds = asyncio.ensure_future(front.ask("hold"))
            await on_device(replica)
            gone = [asyncio.ensure_future(front.ask(*"abc"[: 1 + k % 3])) for k in range(6)]
            await until_async(lambda: waiting(replica) == 12)
            for each in gone:
                each.cancel()
            await until_async(lambda: waiting(replica) == 0)
            replica.runtime.gate.set()
            assert sums(await holds) == [total("hold")]
            await until_async(lambda: replica.inside == 0)
            assert replica.runtime.calls == [1]

    run(test)


def test_what_cannot_be_answered_is_refused_by_the_engine_and_counted() -> None:
    async def test() -> None:
        async with one_replica(1, max_waiting=4) as (replica, (front,)):
            replica.runtime.gate.clear()
            holds = asyncio.ensure_future(front.ask("hold"))
            await on_device(replica)
            asked = [asyncio.ensure_future(front.ask("a")) for _ in range(10)]
            await until_async(lambda: sum(each.done() for each in asked) == 6)
            replica.runtime.gate.set()
            outcomes = await asyncio.gather(*asked, return_exceptions=True)
            refused = [each for each in outcomes if isinstance(each, TryLater)]
            assert (len(refused), replica.answering.refused_rows) == (6, 6)
            assert all(each.retry_after_s > 0 for each in refused)
            assert sums(await holds) == [total("hold")]
            with pytest.raises(TooLarge, match="5 rows"):
                await front.ask(*"abcde")
            with pytest.raises(TooLarge, match=r"input\[1\]"):
                await front.ask("a", "a " * 10_000)
            with pytest.raises((TryLater, TooLarge, Late)):
                await front.ask("a", timeout_s=1e-6)
            assert replica.inside == 0

    run(test)


def test_a_bad_row_fails_alone_and_memory_that_runs_out_fails_nobody() -> None:
    async def test() -> None:
        async with one_replica(2) as (replica, (first, second)):
            replica.runtime.gate.clear()
            holds = asyncio.ensure_future(first.ask("hold"))
            await on_device(replica)
            texts = ["a", LARGE, BAD, "b"]
            asked = [asyncio.ensure_future(front.ask(text)) for text in texts for front in (first, second)]
            several = asyncio.ensure_future(first.ask("c", BAD))
            await until_async(lambda: waiting(replica) == 10)
            replica.runtime.gate.set()
            found: list[Any] = await asyncio.gather(*asked, several, return_exceptions=True)
            assert [sums(found[at]) for at in (0, 1, 2, 3, 6, 7)] == [
                [total(text)] for text in ("a", "a", LARGE, LARGE, "b", "b")
            ]
            assert all("this text is bad" in str(found[at]) for at in (4, 5, 8))
            assert any("row 1 of 2" in note for note in found[8].__notes__)
            assert sums(await holds) == [total("hold")]
            assert replica.inside == 0

    run(test)


def test_stages_and_tenants_are_those_of_the_request() -> None:
    async def test() -> None:
        async with one_replica(2) as (replica, (first, second)):
            began_s = time.monotonic()
            answers = [await first.ask("aaa", tenant="x"), await second.ask("bb", "c", tenant="y")]
            taken_s = time.monotonic() - began_s
            for answer in answers:
                stages = answer.stages
                assert stages.forward > 0
                assert stages.call_rows in (1, 2)
                assert min(stages.admit, stages.prepare, stages.queue) >= 0
                assert stages.admit + stages.prepare + stages.queue + stages.forward <= taken_s
                assert began_s <= -stages.finish <= began_s + taken_s
            tenants = replica.engine.stats().tenants
            assert {name: (use.rows, use.tokens) for name, use in tenants.items()} == {"x": (1, 3), "y": (2, 3)}

    run(test)


def test_the_host_learns_what_prepared_requests_cost_it() -> None:
    async def test() -> None:
        async with one_replica(1) as (replica, (front,)):
            for _ in range(40):
                await asyncio.gather(*(front.ask("a") for _ in range(4)))
            policy = replica.answering.host.policy
            assert policy.before.seen >= 16
            assert replica.answering.host.request_s > 0
            assert (policy.backlog.inside, policy.backlog.waiting, policy.backlog.waiting_bytes) == (0, 0, 0)

    run(test)


def test_the_board_says_what_all_fronts_have_sent(tmp_path: Path) -> None:
    async def test() -> None:
        async with one_replica(2, board=tmp_path / "board", max_rows=4) as (replica, (first, second)):
            reading = LoadReading(tmp_path / "board")
            assert reading.read() == -math.inf
            replica.runtime.gate.clear()
            began_s = time.monotonic()
            asked = [asyncio.ensure_future(front.ask("a")) for _ in range(8) for front in (first, second)]
            await on_device(replica)
            assert reading.read() > began_s
            replica.runtime.gate.set()
            await asyncio.gather(*asked)
            await until_async(lambda: reading.read() == -math.inf)

    run(test)


@settings(max_examples=examples(15))
@given(
    st.lists(
        st.tuples(
            st.integers(0, 1),
            st.sampled_from(["a", "bc", BAD, LARGE]),
            st.integers(1, 4),
            st.sampled_from([0.0, 0.01, 20.0]),
            st.booleans(),
            st.booleans(),
        ),
        max_size=30,
    )
)
def test_every_request_has_one_end(asked: list[tuple[int, str, int, float, bool, bool]]) -> None:
    async def test() -> None:
        async with one_replica(2, max_waiting=20, max_rows=3) as (replica, fronts):
            tasks = list[asyncio.Task[Answer]]()
            for front, text, rows, timeout_s, prepared, is_cancelled in asked:
                task = asyncio.ensure_future(fronts[front].ask(*[text] * rows, timeout_s=timeout_s, prepared=prepared))
                tasks.append(task)
                await asyncio.sleep(0)
                if is_cancelled:
                    task.cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            for outcome, (_, text, rows, *_) in zip(outcomes, asked, strict=True):
                if isinstance(outcome, Answer):
                    assert sums(outcome) == [total(text)] * rows
            assert all(front.link.outstanding == 0 for front in fronts)
            await until_async(lambda: replica.inside == 0 and waiting(replica) == 0)

    run(test)


def test_answers_that_are_there_go_out_before_a_new_request_is_looked_at() -> None:
    async def test() -> None:
        async with one_replica(0) as (replica, _):
            front, connection = await replica.front()
            completions, inside = replica.answering.completions, list[int]()
            submit, settled, has_settled = completions.submit_together, completions.settled, threading.Event()

            def looked(*given: Any) -> Any:
                inside.append(replica.inside)
                return submit(*given)

            def told(pending: Pending) -> None:
                settled(pending)
                has_settled.set()

            setattr(completions, "submit_together", looked)  # noqa: B010
            completions.settled = told
            replica.runtime.gate.clear()
            first = asyncio.ensure_future(front.ask("ab"))
            await on_device(replica)
            replica.runtime.gate.set()
            assert has_settled.wait(WAIT_S)  # the loop does not turn meanwhile
            now_s = time.monotonic()
            ask = PreparedAsk(99, 1, now_s + 5.0, now_s, "", 0.0)
            connection.data_received(asking_prepared([ask], [Letters().prepare(["cd"])], Letters()))
            assert sums(await first) == [total("ab")]
            assert inside == [1, 1]  # each of them alone
            front.close()

    run(test)
