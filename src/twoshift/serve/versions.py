"""Two versions of a deployment side by side: which of them answers a request, and what is seen of both."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Generic, Protocol, TypeVar

from twoshift.generation import GenerationRequest
from twoshift.policy.rollout_values import Compared
from twoshift.serve.metrics import ModelMetrics
from twoshift.serve.model import Answer
from twoshift.serve.stages import Stages

__all__ = ["TakesCopies", "VersionSplit", "Watch"]

_MOST_SEEN = 500  # replies of a version that are kept until they are looked at: of more, the newest
_KEYS = 1 << 64
_FAILED = 500
_BROKEN = frozenset((500, 502))
_JUDGED = frozenset((200, 500, 502, 503, 504))  # what a client has done wrong says nothing about a version
_random = random.Random()  # noqa: S311 - which version an unnamed request gets is no secret


class Watch:
    """Replies of one version. Added to on the server's loop, taken by the thread that judges."""

    def __init__(self, to_first_token: bool = False) -> None:
        """`to_first_token`: how long an answer takes after that depends on its length."""
        self._to_first_token = to_first_token
        self.on_failure: Callable[[], None] | None = None  # who judges need not wait for its next look
        self._seen: deque[tuple[float, bool]] = deque(maxlen=_MOST_SEEN)

    def replied(self, status: int, seconds: float, stages: Stages | None) -> None:
        """A request has its reply."""
        if status not in _JUDGED:
            return
        if self._to_first_token and stages is not None:
            seconds = stages.admit + stages.prepare + stages.queue
        if status >= _FAILED:
            self.failed(seconds)
        else:
            self._seen.append((seconds, False))

    def failed(self, seconds: float) -> None:
        """It had no answer; another version may have answered in its place."""
        self._seen.append((seconds, True))
        if self.on_failure is not None:
            self.on_failure()

    def heard(self, seen: Sequence[tuple[float, bool]]) -> None:
        """What another process of this server has taken."""
        self._seen.extend(seen)
        if self.on_failure is not None and any(failed for _, failed in seen):
            self.on_failure()

    def taken(self) -> list[tuple[float, bool]]:
        """Seconds of each since the last time, and whether it failed. From any thread."""
        return [self._seen.popleft() for _ in range(len(self._seen))]


class TakesCopies(Protocol):
    """Who has a candidate answer what the stable version has answered."""

    def offer(self, rows: Sequence[Any], answer: Answer) -> None:
        """A request and its answer; nobody waits, and it may be let go."""
        ...

    def offer_texts(self, rows: Sequence[GenerationRequest], texts: Sequence[str]) -> None:
        """The same of a language model: prompts and the texts that came back."""
        ...

    def taken(self) -> list[Compared]:
        """What was compared since the last time."""
        ...

    def taken_differences(self) -> dict[str, Any] | None:
        """The differences since the last time, as `heard` takes them."""
        ...

    def heard(self, compared: Sequence[Compared], differences: Mapping[str, Any] | None) -> None:
        """What another process of this server has compared."""
        ...

    def close(self) -> None:
        """No further copies."""
        ...


class _Versioned(Protocol):
    watch: Watch | None


_V = TypeVar("_V", bound=_Versioned)


class VersionSplit(Generic[_V]):
    """A stable version and a candidate; requests go to one of them by their key. Of the server's loop."""

    def __init__(self, stable: _V, candidate: _V, salt: str) -> None:
        """`salt`: another rollout tries its candidate on other keys."""
        self.stable, self.candidate, self.salt = stable, candidate, salt
        self._hash = blake2b(digest_size=8, key=salt.encode()[:64])
        self.share = 0.0  # of the keys that the candidate answers
        self.shadow: TakesCopies | None = None  # who gets copies of what the stable version answers
        self.counted = ModelMetrics()  # of the candidate alone; the deployment's own count both
        self.why_failed = ""  # the candidate's last error

    def chosen(self, key: bytes | None) -> _V:
        """Who answers: a key stays with its version while the share grows."""
        if self.share <= 0.0:
            return self.stable
        number = _random.getrandbits(64) if key is None else self._number(key)
        return self.candidate if number < self.share * _KEYS else self.stable

    def answered(self, model: _V, rows: Sequence[Any], answer: Answer) -> None:
        """One of the two has these answers."""
        if self.shadow is not None and model is self.stable:
            self.shadow.offer(rows, answer)

    def replied(self, model: _V, is_pinned: bool, status: int, seconds: float, stages: Stages | None) -> None:
        """One of the two has replied; what was asked for by its version says nothing of the others."""
        if model is self.candidate:
            self.counted.replied(status, seconds, None)
        if model.watch is not None and not is_pinned:
            model.watch.replied(status, seconds, stages)

    def fell_back(self, status: int, seconds: float) -> None:
        """The candidate has failed, and the stable version has replied with this in its place."""
        if status not in _JUDGED:  # it was the client's fault
            return
        self.counted.replied(_FAILED, seconds, None)
        both = status in _BROKEN  # a refusal, or no time left, is the price of having asked the candidate first
        for version in (self.candidate, *((self.stable,) if both else ())):
            if version.watch is not None:
                version.watch.failed(seconds)

    def _number(self, key: bytes) -> int:
        made = self._hash.copy()
        made.update(key)
        return int.from_bytes(made.digest(), "little")
