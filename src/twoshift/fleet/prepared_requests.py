"""A replica's side of requests whose rows their front has prepared: no task for any of them, and many in one frame."""

from __future__ import annotations

import logging
import time
from collections.abc import Hashable, Iterator, Sequence
from operator import attrgetter

from twoshift.engine import RowResult
from twoshift.engine.live_intake import LiveIntake
from twoshift.engine.waiting import LiveRows
from twoshift.error_codec import encode_error
from twoshift.errors import Late, TryLater, TwoshiftError
from twoshift.fleet.answering import Answering, AskingFront
from twoshift.fleet.frames import framed
from twoshift.fleet.wire import Answered, AskPrepared, Done, PreparedAsk, Refused, Results
from twoshift.policy.host import HostWork
from twoshift.ports import Prepared, PreparedElsewhere
from twoshift.serve.completions import Completions, Pending
from twoshift.serve.model import ServedModel, results_of

__all__ = ["PreparedRequests", "result_parts"]

_logger = logging.getLogger("twoshift.fleet")
_AT_FRONT = (0.0, 0.0, 0.0, 0.0)  # stages that its front knows itself
_forward_s = attrgetter("forward_s")


class _PreparedRequest(Pending):
    """From its admission to its reply."""

    __slots__ = ("_of", "connection", "had_s", "number", "work")

    def __init__(
        self, home: Completions, intake: LiveIntake, of: PreparedRequests, asked: PreparedAsk, work: HostWork
    ) -> None:
        super().__init__(home, intake, asked.rows)
        self._of, self.connection, self.number, self.work = of, of.front, asked.id, work
        self.had_s = asked.deadline_s - asked.arrived_s

    @property
    def asked(self) -> _PreparedRequest:
        return self

    def end(self, late: Late | None) -> None:
        self._of.over(self, late)


_Answer = tuple[_PreparedRequest, list[RowResult]]
_Submitted = tuple[_PreparedRequest, LiveRows]


class PreparedRequests:
    """Of one front; it has exactly one reply for each that was admitted, unless it forgets it."""

    def __init__(self, answering: Answering, model: ServedModel, front: AskingFront) -> None:
        runtime = model.engine.runtime
        self._preparer = runtime.row_preparer if isinstance(runtime, PreparedElsewhere) else None
        self._answering, self._model, self.front = answering, model, front
        self._intake = model.engine.live
        self._policy = answering.host.policy
        self._open: dict[int, _PreparedRequest] = {}  # by their front's numbers
        self._answered: list[_Answer] = []  # in this turn of the loop
        self._frames: list[bytes] = []  # the other replies of this turn
        self._is_scheduled = False

    def ask(self, frames: Sequence[tuple[AskPrepared, int]]) -> None:
        """Messages that were read at once, with their bytes: those of one signature are admitted together."""
        assert self._preparer is not None  # noqa: S101 - a front has it from here
        if len(frames) == 1:  # most often
            (message, size), *_ = frames
            self._ask(message.requests, self._preparer.rows_of(message.arrays), size)
            return
        alike = dict[Hashable, list[tuple[AskPrepared, int, Prepared]]]()
        for message, size in frames:
            rows = self._preparer.rows_of(message.arrays)
            alike.setdefault(rows.signature, []).append((message, size, rows))
        for each in alike.values():
            parts = [rows for _, _, rows in each]
            requests = [request for message, _, _ in each for request in message.requests]
            rows = parts[0] if len(parts) == 1 else self._preparer.joined(parts)
            self._ask(requests, rows, sum([size for _, size, _ in each]))

    def _ask(self, requests: Sequence[PreparedAsk], rows: Prepared, frame_bytes: int) -> None:
        """Admit and submit them together; what would be too late is refused."""
        began_s = time.monotonic()
        base_s = 0.0 if self._answering.same_clock else began_s
        asked, start = list[_Submitted](), 0
        admitted = self._admitted(requests, frame_bytes, base_s, began_s)
        looked_s = (time.monotonic() - began_s) / len(admitted)  # a refusal is not what an answer costs
        for each, work in zip(requests, admitted, strict=True):
            if work is not None:
                asked.append(self._submitted(each, work, rows, start, base_s, began_s))
            start += each.rows
        self._answering.offered_rows += start
        if asked:
            submits_s = time.monotonic()
            self._submit(asked)
            now_s, count, cost = time.monotonic(), len(asked), self._answering.asking
            took_s = count * looked_s + now_s - submits_s
            cost.observed(count, took_s)
            each_s = min(cost.request_s, took_s / count)
            self._policy.submitted(asked[0][0].work, each_s, count)
            self._policy.worked(took_s - count * each_s, now_s)
            self._answering.changed()

    def _admitted(
        self, requests: Sequence[PreparedAsk], frame_bytes: int, base_s: float, now_s: float
    ) -> list[HostWork | None]:
        """What the host has to do for each; None: it has no time for it, and it is refused."""
        policy, count = self._policy, len(requests)
        size, began_s = frame_bytes // count, now_s - base_s
        least_s = min([each.deadline_s - each.reserve_s for each in requests]) - began_s
        if policy.takes_all(size, count, least_s, now_s):
            return [policy.admitted(size, count)] * count
        found, refused, longest_s = list[HostWork | None](), list[PreparedAsk](), 0.0
        for each in requests:
            left_s = each.deadline_s - each.reserve_s - began_s
            wait_s = policy.wait_s(size, left_s, now_s)
            found.append(policy.admitted(size) if wait_s is None else None)
            if wait_s is not None:
                refused.append(each)
                longest_s = max(longest_s, min(wait_s, left_s))
        if refused:
            error = TryLater("the queue is too long to answer by the deadline", longest_s)
            self._refuse([each.id for each in refused], sum([each.rows for each in refused]), 0.0, error)
        return found

    def _submitted(
        self, asked: PreparedAsk, work: HostWork, rows: Prepared, start: int, base_s: float, now_s: float
    ) -> _Submitted:
        """As the engine takes it."""
        pending = _PreparedRequest(self._answering.completions, self._intake, self, asked, work)
        deadline_s = asked.deadline_s + base_s
        reserve_s = asked.reserve_s + self._policy.reserve_s(pending.had_s, now_s, asked.reserve_s)
        since_s = asked.arrived_s + base_s
        return pending, LiveRows(rows, start, pending.sinks(), deadline_s, asked.tenant, since_s, reserve_s)

    def _submit(self, admitted: Sequence[_Submitted]) -> None:
        refused = self._answering.completions.submit_together(self._intake, admitted)
        failed = dict[int, tuple[Exception, list[_PreparedRequest]]]()  # many are refused for the very same reason
        for (pending, _), error in zip(admitted, refused, strict=True):
            if error is None:
                self._open[pending.number] = pending
            else:
                failed.setdefault(id(error), (error, []))[1].append(pending)
        for error, alike in failed.values():
            self._fail(alike, error)

    def over(self, pending: _PreparedRequest, late: Late | None) -> None:
        """It is answered, or its deadline has passed."""
        del self._open[pending.number]
        if late is not None:
            self._fail([pending], late)
            return
        try:
            self._answered.append((pending, results_of(pending)))
            self._schedule()
        except Exception as error:
            self._fail([pending], error)

    def forget(self, number: int) -> bool:
        """Nobody waits for it any more; whether it was here."""
        pending = self._open.pop(number, None)
        if pending is None:
            return False
        pending.cancel()
        self._answering.completions.forget(pending)
        self._policy.ended(pending.work)
        self._answering.changed()
        return True

    def forget_all(self) -> None:
        """Its front is gone."""
        for number in [*self._open]:
            self.forget(number)

    def _fail(self, alike: Sequence[_PreparedRequest], error: Exception) -> None:
        for pending in alike:
            self._policy.ended(pending.work)
        rows = sum([len(pending.results) for pending in alike])
        self._refuse([pending.number for pending in alike], rows, alike[0].had_s, error)

    def _refuse(self, numbers: list[int], rows: int, had_s: float, error: Exception) -> None:
        if not isinstance(error, TwoshiftError):
            _logger.error("a request has failed on a replica", exc_info=error)
        self._answering.refused(rows, had_s, error)
        self._frames.append(framed(Refused(numbers, encode_error(error))))
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._answering.has_replies(self._flush)

    def _flush(self) -> None:
        """All replies of this turn of the loop, in one write."""
        self._is_scheduled, began_s = False, time.monotonic()
        answered, self._answered = self._answered, []
        for call in _calls(answered):
            self._encode(call, began_s)
        frames, self._frames = self._frames, []
        self.front.send(frames[0] if len(frames) == 1 else b"".join(frames))
        if answered:
            self._account(answered, began_s)
        self._answering.changed()

    def _encode(self, call: Sequence[_Answer], ended_s: float) -> None:
        try:
            self._frames.append(framed(_message(call, ended_s)))
        except Exception as error:  # an answer that no frame takes
            rows = sum([len(results) for _, results in call])
            self._refuse([pending.number for pending, _ in call], rows, call[0][0].had_s, error)

    def _account(self, answered: Sequence[_Answer], began_s: float) -> None:
        policy, now_s, rows, settled_s = self._policy, time.monotonic(), 0, began_s
        for pending, results in answered:
            rows += len(results)
            settled_s = min(settled_s, pending.settled_s)
            policy.ended(pending.work)
        count, took_s, cost = len(answered), now_s - began_s, self._answering.replying
        cost.observed(count, took_s)
        each_s = min(cost.request_s, took_s / count)
        elsewhere_s = rows * self._model.engine.host_time.row_s / count
        policy.replied(answered[0][0].work.size, each_s, now_s - settled_s, now_s, count, elsewhere_s)
        policy.worked(took_s - count * each_s, now_s)
        self._model.answered_prepared(count, rows)


def _calls(answered: Sequence[_Answer]) -> Iterator[Sequence[_Answer]]:
    """Requests of one row that rode in one call together, each other one by itself."""
    start = 0
    for at in range(1, len(answered) + 1):
        first = answered[start][1]
        if at < len(answered) and len(first) == 1:
            next_ = answered[at][1]
            if len(next_) == 1 and next_[0].columns is first[0].columns:
                continue
        yield answered[start:at]
        start = at


def _message(call: Sequence[_Answer], ended_s: float) -> Answered | Done:
    pending, results = call[0]
    if len(results) > 1:
        slowest = max(results, key=_forward_s)
        stages = (*_AT_FRONT, slowest.forward_s, -ended_s, slowest.call_rows)
        return Done(pending.number, result_parts(results), 0, 0, stages)
    first = results[0]
    places = [each.index for _, (each,) in call]
    start, stop = places[0], places[0] + len(places)
    taken = slice(start, stop) if places == [*range(start, stop)] else places
    columns = {name: values[taken] for name, values in first.columns.items()}
    return Answered([each.number for each, _ in call], columns, first.forward_s, first.call_rows, ended_s)


def result_parts(rows: Sequence[RowResult]) -> list[Results]:
    """Rows that lie side by side in one call go together, without a copy."""
    found, start = list[Results](), 0
    for at in range(1, len(rows) + 1):
        first = rows[start]
        if at < len(rows) and rows[at].columns is first.columns and rows[at].index == first.index + at - start:
            continue
        stop = first.index + at - start
        columns = {name: values[first.index : stop] for name, values in first.columns.items()}
        found.append(Results(columns, at - start, first.forward_s, first.call_rows))
        start = at
    return found
