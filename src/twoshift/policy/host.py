"""The interpreter as a device: what requests cost it, what waits for it, and whom it turns away.

    predicted finish = what the host has to do first + preparing + device + replying

A request is admitted where that is inside its deadline. What a request costs is learned from those that were served,
by the bytes of its body: that is all that is known before it is parsed.
"""

from __future__ import annotations

import math
from typing import NamedTuple

__all__ = ["SMALL_BYTES", "TURN_S", "Backlog", "FrameCost", "HostPolicy", "HostWork", "LinearCost", "RetryCalendar"]

_FORGET = 1 - 1 / 256  # what an observation weighs after the next one
_STALL = 8.0  # times what was predicted: what took longer was not this request's work
_FORGET_S = 1.0  # after which observations weigh a third: what requests cost may change with who asks
_MANY, _SOME = 128, 12  # observations that are not forgotten, from which on every so many is looked at
_SURE = 16  # observations, after which a stall is told from a cost
_HOST_SHARE = 0.5  # of the time that a request has: what the host may still have to do for others
_MOST_LAG, _MOST_MARGIN = 0.25, 0.25  # of the time that a request has: what may be kept of it for after the device
_NAP_S, _IDLE_S = 5e-5, 2e-4  # between two turns of the loop: it has slept; and who woke it has not waited
TURN_S = 1.5e-5  # that a turn of a loop takes which has a core: what is between two is sleep
_LATE_STEP, _LATE_FADES, _LATE_FADES_S = 0.05, 1 - 1 / 1024, 2.0  # with each answer; and with time
_REFUSAL_SHARE = 0.05  # of the host
_HOLD_S, _QUICK_S = 2.0, 5.0  # for which a refusal waits for its turn at the most; and none, where that does not help
_NEW_S, _NEWCOMERS, _NEW_SHARE = 0.25, 32, 0.25  # connections made so long after refusals began to wait; of refusals
_LONGEST_S = 5.0  # that anybody is told to wait because of others
_TURN = 0.6180339887498949  # the golden ratio: the fractions of its multiples are spread evenly
_BUSY, _MOST_PACE = 0.7, 4.0  # of the time, from when on the host's pace is learned; and the slowest
# Of what the host has to do, and at the most: so long a device waits for more rows, since its calls cost the host, too
_GATHER, _MOST_GATHER_S = 0.1, 0.002
_LIKELY = 0.5  # of the capacity that is predicted: what is there at the least
_RATE_S = 0.25  # over which answers are counted
SMALL_BYTES = 64 << 10  # of a body: what is done with larger ones is done in threads, and small ones pass them


class LinearCost:
    """Seconds of `count` requests with `size` bytes in total: a line through recent measurements that never falls."""

    __slots__ = ("_n", "_x", "_xx", "_xy", "_y", "base_s", "per_byte_s", "seen")

    def __init__(self, base_s: float = 0.0) -> None:
        self.base_s, self.per_byte_s, self.seen = base_s, 0.0, 0
        self._n = self._x = self._y = self._xx = self._xy = 0.0

    def seconds(self, size: float, count: int = 1) -> float:
        return count * self.base_s + size * self.per_byte_s

    @property
    def mean_s(self) -> float:
        """Mean seconds of recent requests."""
        return self._y / self._n if self._n else self.base_s

    @property
    def mean_size(self) -> float:
        """Mean size of recent requests."""
        return self._x / self._n if self._n else 0.0

    @property
    def weight(self) -> float:
        """Total weight of the remembered observations."""
        return self._n

    def fade(self, seconds: float) -> None:
        """So much time has passed: what comes weighs more than what was, of which a few are kept."""
        if self._n > _SURE:
            keep = max(_SURE / self._n, math.exp(-seconds / _FORGET_S))
            self._n, self._x, self._y = keep * self._n, keep * self._x, keep * self._y
            self._xx, self._xy = keep * self._xx, keep * self._xy

    def observed(self, size: int, seconds: float, count: int = 1) -> None:
        """Learn from one request, or from several equal ones; a stalled request counts at most with a maximum time."""
        if self.seen >= _SURE:
            seconds = min(seconds, _STALL * self.seconds(size))
        self.seen += 1
        keep = _FORGET if count == 1 else _FORGET**count
        n = self._n = keep * self._n + count
        x = self._x = keep * self._x + count * size
        y = self._y = keep * self._y + count * seconds
        xx = self._xx = keep * self._xx + count * size * size
        xy = self._xy = keep * self._xy + count * size * seconds
        spread = n * xx - x * x
        slope = (n * xy - x * y) / spread if spread > 1e-3 * x * x else 0.0
        if slope <= 0.0:
            self.base_s, self.per_byte_s = y / n, 0.0
        elif slope * x > y:  # all of it by the byte
            self.base_s, self.per_byte_s = 0.0, y / x
        else:
            self.base_s, self.per_byte_s = (y - slope * x) / n, slope


class FrameCost:
    """Seconds of a frame of requests: a fixed part per frame, and a part per request.

    In small frames, a request seems to cost several times what it costs in large ones. A policy that predicts from
    small frames refuses requests, frames stay small, and the host is half idle.
    """

    __slots__ = ("_line",)

    def __init__(self) -> None:
        self._line = LinearCost()

    @property
    def request_s(self) -> float:
        """Time that one more request adds; the mean time per request if all frames had about the same size."""
        return self._line.per_byte_s or self._line.mean_s / max(1.0, self._line.mean_size)

    def observed(self, count: int, seconds: float) -> None:
        self._line.observed(count, seconds)


class RetryCalendar:
    """Retry times for refused clients, spread one after the other, so that they do not all return at once."""

    __slots__ = ("_next_s", "_turn")

    def __init__(self) -> None:
        self._next_s, self._turn = -math.inf, 0.0

    def wait_s(self, least_s: float, spacing_s: float, now_s: float, again: bool = False) -> float:
        """Seconds until the client should retry: at least `least_s`, and `spacing_s` after the previous client.

        `again`: the client retries too early and gets no slot of its own.
        """
        slot_s = max(self._next_s + spacing_s, now_s + least_s)
        if again or slot_s > now_s + max(least_s, _LONGEST_S):  # or the calendar is full
            self._turn = (self._turn + _TURN) % 1.0
            return max(least_s, min(_LONGEST_S, slot_s - now_s) * (0.5 + 0.5 * self._turn))
        self._next_s = slot_s
        return slot_s - now_s


class HostWork(NamedTuple):
    """Predicted host time of an admitted request."""

    size: int
    before_s: float  # to read, parse and prepare it
    after_s: float  # to write its reply


class Backlog:
    """What a host has to do for admitted requests; where none is left, rounding is forgotten."""

    __slots__ = ("before_s", "inside", "inside_s", "waiting", "waiting_bytes")

    def __init__(self) -> None:
        self.waiting = self.inside = 0  # requests that are not with the device yet; and that are not replied to
        self.waiting_bytes = 0
        self.before_s = self.inside_s = 0.0  # to bring the waiting ones to the device; for all of them

    def add(self, work: HostWork, count: int) -> None:
        """So many requests are admitted."""
        self.waiting += count
        self.inside += count
        self.waiting_bytes += count * work.size
        self.before_s += count * work.before_s
        self.inside_s += count * (work.before_s + work.after_s)

    def prepared(self, work: HostWork, count: int) -> None:
        """They are with the device, or never will be."""
        self.waiting -= count
        self.waiting_bytes -= count * work.size
        self.before_s = self.before_s - count * work.before_s if self.waiting else 0.0

    def ended(self, work: HostWork) -> None:
        """One of them has its reply."""
        self.inside -= 1
        self.inside_s = self.inside_s - work.before_s - work.after_s if self.inside else 0.0

    def without(self, others: Backlog) -> Backlog:
        """The rest."""
        made = Backlog()
        made.waiting, made.inside = self.waiting - others.waiting, self.inside - others.inside
        made.waiting_bytes = self.waiting_bytes - others.waiting_bytes
        made.before_s = self.before_s - others.before_s if made.waiting else 0.0
        made.inside_s = self.inside_s - others.inside_s if made.inside else 0.0
        return made


class HostPolicy:
    """Admission to the event loop of one interpreter.

    Times are on the caller's clock. The work ahead is the sum over all admitted requests without a reply.
    """

    def __init__(self, turn_s: float = 0.0) -> None:
        """`turn_s`: of a loop whose turns are short, and are told from sleep by that. Where others have its core, too,
        a long one may be work.
        """
        self._nap_s = turn_s or _NAP_S
        self._turn_takes_s = turn_s
        self.before, self.after, self.refusal = LinearCost(), LinearCost(), LinearCost(4e-5)
        self.calendar = RetryCalendar()
        self.lag_s = 0.0  # from a result to its reply: about the longest of late
        self.backlog, self._large = Backlog(), Backlog()  # of all; and of large bodies among them
        self._turn_s = self.worked_s = -math.inf  # when the loop last turned to its work, and did some
        self.pace = 1.0  # how long the host takes for work, as a multiple of what is accounted for
        self._slept_s = self._accounted_s = self._elsewhere_s = 0.0  # since answers were counted; the last in threads
        self._late_share, self._late_s = 0.0, -math.inf  # of requests' time, kept free since some were late; as of when
        self._refuse_s = self._quick_until_s = -math.inf  # when the last refusal is due; until when none waits
        self._held_from_s, self._held, self._newcomers = -math.inf, 0, 0  # refusals that wait, since then
        self.capacity_per_s = 0.0  # requests, as predicted by somebody who knows the devices
        self.answers_per_s = 0.0  # of late
        self._answers, self._counted_s = 0, -math.inf  # since then

    # The loop's turns: what is read has waited for as long as the loop did not read

    def turned(self, now_s: float) -> None:
        """The loop has read its input and goes on to its work."""
        self._turn_s = now_s

    def read(self, now_s: float) -> float:
        """The loop reads for the first time in this turn; returns since when this input may have waited."""
        return now_s if self.woke(now_s) else self._turn_s

    def woke(self, now_s: float) -> bool:
        """The loop starts to work; returns whether it slept before for so long that no request can have waited."""
        slept_s = now_s - self.worked_s
        if slept_s <= self._nap_s:
            return False
        self._slept_s += min(slept_s - self._turn_takes_s, now_s - self._counted_s)
        self.worked_s = now_s
        return slept_s > _IDLE_S

    def worked(self, seconds: float, now_s: float) -> None:
        """The loop has worked this long on a request or a refusal."""
        self._accounted_s += seconds
        self.worked_s = now_s

    # Who is admitted

    @property
    def ahead_s(self) -> float:
        """Total host time of all admitted requests, including work already done: new arrivals will replace it."""
        return self.pace * self.backlog.inside_s

    @property
    def request_s(self) -> float:
        """Mean host time of recent requests; 0 before there were enough."""
        return self.pace * (self.before.mean_s + self.after.mean_s) if self.after.seen >= _SURE else 0.0

    @property
    def gather_s(self) -> float:
        """How long a device may wait for the rows of those that come next, where the host is what fills up.

        A call costs the host much of what a request does: with a few rows each, half of its work would be calls.
        """
        return min(_MOST_GATHER_S, _GATHER * self.ahead_s)

    def wait_s(self, size: int, left_s: float, now_s: float, device_s: float = 0.0) -> float | None:
        """None if a request with this much time left is admitted; else how long until it might be.

        `device_s` is the time until the device has answered it; 0 if nothing waits for the device.
        """
        if left_s <= 0.0:
            return self.ahead_s
        ahead = self.ahead_of(size)
        if ahead.inside_s <= 0.0 and device_s <= 0.0:
            return None  # whoever is alone is tried
        before_s, after_s = self.before.seconds(size), self.after.seconds(size)
        host_s = self.pace * (ahead.inside_s + before_s + after_s)
        whole_s = self.pace * (ahead.before_s + before_s) + device_s + self.reserve_s(left_s, now_s)
        over_s = max(host_s - _HOST_SHARE * left_s, whole_s - left_s)
        return over_s if over_s > 0.0 else None

    def takes_all(self, size: int, count: int, left_s: float, now_s: float) -> bool:
        """Whether so many requests of that size, which have at least so much time left, are surely admitted: each of
        them by `wait_s`, one after the other, and without a look at each.
        """
        if left_s <= 0.0:
            return False
        ahead = self.ahead_of(size)
        before_s, after_s = self.before.seconds(size), self.after.seconds(size)
        host_s = self.pace * (ahead.inside_s + count * (before_s + after_s))
        whole_s = self.pace * (ahead.before_s + count * before_s) + self.reserve_s(left_s, now_s)
        return host_s <= _HOST_SHARE * left_s and whole_s <= left_s

    def ahead_of(self, size: int) -> Backlog:
        """What comes before a request of that size: a small one passes the large bodies, which threads work on."""
        return self.backlog if size > SMALL_BYTES or not self._large.inside else self.backlog.without(self._large)

    def reserve_s(self, had_s: float, now_s: float, kept_s: float = 0.0) -> float:
        """Part of a request's time that is reserved for the work after the device, beside what a front has reserved.

        Both together have a limit: a request that is dropped with most of its time left helps no one.
        """
        own_s = min(self.lag_s, _MOST_LAG * had_s) + self._late_share_at(now_s) * had_s
        return max(0.0, min(own_s, (_MOST_LAG + _MOST_MARGIN) * had_s - kept_s))

    def refuse_in_s(self, now_s: float, connected_s: float = -math.inf) -> float:
        """How long to delay a refusal, so that clients that retry at once get only a share of the host.

        If delays do not slow these clients down, all refusals are immediate for some time. This is assumed if new
        connections arrive while earlier refusals are delayed.
        """
        if now_s < self._quick_until_s:
            return 0.0
        due_s = max(now_s, min(now_s + _HOLD_S, self._refuse_s + self.refusal.base_s / _REFUSAL_SHARE))
        if due_s <= now_s:
            self._held_from_s, self._held, self._newcomers = now_s, 0, 0
        self._held += 1
        self._newcomers += connected_s > self._held_from_s + _NEW_S
        if self._newcomers >= max(_NEWCOMERS, _NEW_SHARE * self._held):
            self._quick_until_s, due_s = now_s + _QUICK_S, now_s
            self._held_from_s, self._held, self._newcomers = due_s, 0, 0
        self._refuse_s = due_s
        return due_s - now_s

    def retry_after_s(self, least_s: float, now_s: float, again: bool = False) -> float:
        """When a client that is refused now should retry; `again`: it has retried too early."""
        return self.calendar.wait_s(least_s, self._answer_spacing_s, now_s, again)

    @property
    def _answer_spacing_s(self) -> float:
        """Time between two answers of a busy server."""
        per_s = max(self.answers_per_s, _LIKELY * self.capacity_per_s)
        return 1.0 / per_s if per_s else 0.0

    # What becomes of those admitted

    def admitted(self, size: int, count: int = 1) -> HostWork:
        """The request, or several equal ones, is queued; pass the returned work to `submitted` and `ended`."""
        work = HostWork(size, self.before.seconds(size), self.after.seconds(size))
        self.backlog.add(work, count)
        if size > SMALL_BYTES:
            self._large.add(work, count)
        return work

    def submitted(self, work: HostWork, seconds: float, count: int = 1) -> None:
        """The request was sent to the device after this much host work; or several equal ones."""
        self._prepared(work, count)
        self._learn(self.before, work.size, seconds, count)
        self._accounted_s += count * seconds

    def prepared_late(self, size: int, seconds: float) -> None:
        """It was too late for the device after so much work: those in time alone would not tell what others cost."""
        if seconds > self.before.seconds(size):
            self.before.observed(size, seconds)
        self._accounted_s += seconds

    def ended(self, work: HostWork, was_submitted: bool = True) -> None:
        """The request has its reply, whatever the reply is."""
        if not was_submitted:
            self._prepared(work, 1)
        self.backlog.ended(work)
        if work.size > SMALL_BYTES:
            self._large.ended(work)

    def _prepared(self, work: HostWork, count: int) -> None:
        self.backlog.prepared(work, count)
        if work.size > SMALL_BYTES:
            self._large.prepared(work, count)

    def replied(
        self, size: int, seconds: float, lag_s: float, now_s: float, count: int = 1, elsewhere_s: float = 0.0
    ) -> None:
        """The loop has worked so long on a reply, which was written `lag_s` after its result was there.

        Or on each of as many that were written together, the longest such time after their results. `elsewhere_s` is
        what each took of the interpreter in other threads.
        """
        self._learn(self.after, size, seconds + elsewhere_s, count)
        self._accounted_s += count * (seconds + elsewhere_s)
        self._elsewhere_s += count * elsewhere_s
        self.lag_s += (0.5 if lag_s > self.lag_s else 0.03) * (lag_s - self.lag_s)
        self._late_share *= _LATE_FADES if count == 1 else _LATE_FADES**count
        self._answers += count
        if now_s - self._counted_s >= _RATE_S:
            self._count(now_s)

    def was_late(self, had_s: float, now_s: float) -> None:
        """An admitted request missed its deadline: leave more time. One stall counts once, however many are late."""
        if now_s - self._late_s < 0.1 * had_s:
            return
        self._late_share = min(_MOST_MARGIN, self._late_share_at(now_s) + _LATE_STEP)
        self._late_s = now_s

    def _learn(self, cost: LinearCost, size: int, seconds: float, count: int) -> None:
        """From every one at first, then from some: a look at each single one would cost more than it tells.

        Each weighs as many requests as it stands for: many in one frame cost less than as many single ones, and under
        load most requests come with many others.
        """
        if count > 1 or cost.weight < _MANY:
            cost.observed(size, seconds, count)
        elif self._answers % _SOME == 0:
            cost.observed(size, seconds, _SOME)

    def _late_share_at(self, now_s: float) -> float:
        # By time, too: what refuses everybody has no answers to learn from
        return self._late_share * math.exp((self._late_s - now_s) / _LATE_FADES_S) if self._late_share else 0.0

    def _count(self, now_s: float) -> None:
        wall_s = now_s - self._counted_s
        if math.isfinite(wall_s):
            per_s = self._answers / wall_s
            self.answers_per_s = 0.5 * (per_s + (self.answers_per_s or per_s))
            # Where it hardly sleeps, all that nobody accounts for comes with the requests, too. While the loop sleeps,
            # other threads may work for its requests
            busy_s = wall_s - max(0.0, self._slept_s - self._elsewhere_s)
            over = busy_s / self._accounted_s if self._accounted_s > 0 and busy_s > _BUSY * wall_s else 1.0
            self.pace += 0.3 * (min(_MOST_PACE, max(1.0, over)) - self.pace)
            self.before.fade(wall_s)
            self.after.fade(wall_s)
        self._answers, self._counted_s = 0, now_s
        self._slept_s = self._accounted_s = self._elsewhere_s = 0.0
