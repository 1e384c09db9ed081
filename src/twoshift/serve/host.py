"""A process's loop, measured: what requests cost it, and who is admitted to it."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import msgspec

from twoshift.policy.host import HostPolicy, HostWork

__all__ = ["UNREAD", "Host", "HostFacts", "Visit", "paused"]

_T = TypeVar("_T")
_TOGETHER, _TOGETHER_S = 16, 0.001  # requests that one look admits, and those that come within that time of another
UNREAD = "the server is too busy to answer by the deadline"


class DevicePath(Protocol):
    """What comes after the host: a model and its devices."""

    def finish_in_s(self, size: int, requests: int, left_s: float, /) -> float:
        """Until so many requests of so many bytes would be answered by a device; 0: in a small part of `left_s`."""
        ...


class Visit:
    """A request on its way through the loop: what it takes of it, from its admission to its reply."""

    __slots__ = (
        "_due_s",
        "_elsewhere_s",
        "_had_s",
        "_host",
        "_is_submitted",
        "_since_s",
        "_work",
        "before_s",
        "reserve_s",
        "result_s",
        "size",
    )

    def __init__(self, host: Host, size: int) -> None:
        self._host, self.size = host, size
        self._work: HostWork | None = host.policy.admitted(size)
        self._since_s = self.before_s = self._elsewhere_s = 0.0
        self._is_submitted = False
        self.result_s = 0.0  # when its result was there; 0: there is none
        self.reserve_s = 0.0  # of its time, that the device does not get
        self._had_s, self._due_s = 0.0, math.inf

    def begin(self) -> None:
        """It is parsed and prepared from now on."""
        self._since_s = time.monotonic()

    def reserve(self, had_s: float, kept_s: float = 0.0) -> None:
        """Of the time that it has, keep some for its reply, beside what its front has kept."""
        self.reserve_s = kept_s + self._host.policy.reserve_s(had_s, time.monotonic(), kept_s)

    def promise(self, had_s: float, due_s: float) -> None:
        """A reply that is written after that is late, whatever it says."""
        self._had_s, self._due_s = had_s, due_s

    def pause(self) -> None:
        """It waits for a thread, or for its turn; the loop does other things."""
        now_s = time.monotonic()
        self.before_s += now_s - self._since_s
        self._since_s = math.inf
        self._host.policy.worked(0.0, now_s)

    def resume(self) -> None:
        """The loop works on it again."""
        self._since_s = time.monotonic()

    def submitted(self) -> None:
        """It is with the device."""
        if self._work is None or self._is_submitted:  # a second replica is asked
            return
        self._is_submitted, now_s = True, time.monotonic()
        self._host.policy.submitted(self._work, self.before_s + max(0.0, now_s - self._since_s))
        self._host.policy.worked(0.0, now_s)

    def prepared_late(self) -> None:
        """Its rows were prepared after its deadline, when it has its reply."""
        self._host.policy.prepared_late(self.size, self.before_s)

    def answered(self, result_s: float, elsewhere_s: float = 0.0) -> None:
        """Its result was there at that time; its reply is made from now on.

        `elsewhere_s` is what it took of the interpreter in other threads.
        """
        self._since_s, self.result_s, self._elsewhere_s = time.monotonic(), result_s, elsewhere_s

    def end(self) -> None:
        """Its reply is written, or nobody waits for one."""
        work, self._work = self._work, None
        if work is None:
            return
        policy = self._host.policy
        policy.ended(work, self._is_submitted)
        if self.result_s:
            now_s = time.monotonic()
            policy.worked(0.0, now_s)
            took_s, lag_s = now_s - self._since_s, now_s - self.result_s
            policy.replied(self.size, took_s, lag_s, now_s, elsewhere_s=self._elsewhere_s)
            if now_s > self._due_s:
                policy.was_late(self._had_s, now_s)


async def paused(visit: Visit | None, waits: Awaitable[_T]) -> _T:
    """What it gives; the loop does other things meanwhile."""
    if visit is None:
        return await waits
    visit.pause()
    try:
        return await waits
    finally:
        visit.resume()


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What requests cost an interpreter, and how much it has in work."""

    request_s: float = 0.0  # 0: not measured yet
    refusal_s: float = 0.0
    ahead_s: float = 0.0
    inside: int = 0
    connections: int = 0
    costs: dict[str, float] = field(default_factory=dict[str, float])


class _Alike(msgspec.Struct):
    """So many requests are surely admitted which are no larger, have as much time and go to that model, until then."""

    left: int = 0
    size: int = 0
    left_s: float = 0.0
    until_s: float = -math.inf
    model: DevicePath | None = None

    def takes(self, size: int, left_s: float, now_s: float, model: DevicePath | None) -> bool:
        """Whether this is one of them."""
        if now_s >= self.until_s or size > self.size or left_s < self.left_s or model is not self.model:
            return False
        self.left -= 1
        return self.left >= 0


class Host:
    """One loop."""

    def __init__(self, turn_s: float = 0.0) -> None:
        """`turn_s` as `HostPolicy` has it."""
        self.policy = HostPolicy(turn_s)
        self._reading, self._since_s = False, 0.0  # in this turn of the loop; what that may have waited since
        self._looked_s = self._alone_until_s = -math.inf  # when one was last looked at; until when each one is
        self._alike = _Alike()  # requests that are admitted without a look

    @property
    def request_s(self) -> float:
        """What a request costs on the average, of late."""
        return self.policy.request_s

    def costs(self) -> dict[str, float]:
        """What requests cost it, as learned; as the simulator takes it."""
        before, after = self.policy.before, self.policy.after
        return {
            "before_s": before.base_s,
            "before_byte_s": before.per_byte_s,
            "after_s": after.base_s,
            "after_byte_s": after.per_byte_s,
            "refusal_s": self.policy.refusal.base_s,
        }

    def facts(self, connections: int) -> HostFacts:
        """How it is."""
        policy = self.policy
        return HostFacts(
            policy.request_s, policy.refusal.mean_s, policy.ahead_s, policy.backlog.inside, connections, self.costs()
        )

    def wait_s(self, size: int, left_s: float, now_s: float, model: DevicePath | None) -> float | None:
        """None: a request that has so much time left is admitted; otherwise how long until it might be.

        Without a model only the host is asked.
        """
        if self._alike.takes(size, left_s, now_s, model):
            return None
        wait_s = self.policy.wait_s(size, left_s, now_s)
        if wait_s is None and model is not None and (device_s := self._device_s(size, 1, left_s, model)):
            wait_s = self.policy.wait_s(size, left_s, now_s, device_s)
        if wait_s is None:
            if now_s - self._looked_s < _TOGETHER_S and now_s >= self._alone_until_s:  # they come close together
                self._look_ahead(size, left_s - _TOGETHER_S, now_s, model)
            self._looked_s = now_s
        return wait_s

    def _look_ahead(self, size: int, left_s: float, now_s: float, model: DevicePath | None) -> None:
        """Whether the next requests are surely admitted, too, if they ask no more than that: one look for them all."""
        if self.policy.takes_all(size, _TOGETHER, left_s, now_s) and (
            model is None or not self._device_s(size, _TOGETHER, left_s, model)
        ):
            self._alike = _Alike(_TOGETHER, size, left_s, now_s + _TOGETHER_S, model)
        else:
            self._alone_until_s = now_s + _TOGETHER_S

    def _device_s(self, size: int, count: int, left_s: float, model: DevicePath) -> float:
        # Those that are not with the device yet come before them there, too
        ahead = self.policy.ahead_of(size)
        return model.finish_in_s(count * size + ahead.waiting_bytes, ahead.waiting + count, left_s)

    def read_since_s(self, now_s: float) -> float:
        """Since when a request may have waited that is read now."""
        if not self._reading:
            self._reading = True
            self._since_s = self.policy.read(now_s)
            asyncio.get_running_loop().call_soon(self.turn)
        return self._since_s

    def woke(self) -> None:
        """Results have come: if the loop slept, it does no more."""
        self.policy.woke(time.monotonic())

    def turn(self) -> None:
        """The loop goes on to its work."""
        self._reading = False
        self.policy.turned(time.monotonic())

    def retry_after_s(self, least_s: float) -> float:
        """When somebody who is refused now shall come back."""
        return self.policy.retry_after_s(least_s, time.monotonic())
