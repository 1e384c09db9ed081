"""Every error Twoshift raises on purpose, ordered by what the caller should do.

TwoshiftError
├── InvalidInput          change the request: it names the field, the value and what is accepted
│   ├── Malformed         it could not be read: there is no value to show
│   ├── UnusableRows      no row of an input can be scored: it names the first and says why
│   ├── UnusableModel     the model cannot be served: it says what the model is and what to do
│   ├── TooLarge          it can never fit, however long you wait
│   │   └── TooLong       a prompt and its answer are more than the model's context
│   ├── NotFound          nothing of that name is here
│   ├── Inapplicable      leave the field out, or set what it needs: the message says why
│   ├── WrongState        it cannot be done in this state: the message names the states in which it can
│   ├── NotInstalled      install the packages that it names
│   └── Disabled          this server does not do it; the message says what its operator can change
├── Denied                show a key that is known here
│   └── Forbidden         show one that may do it
├── TryLater              come back: `retry_after_s` says when
│   ├── OverLimit         the caller is over a limit of its own; others are served
│   ├── Asleep            the model has no replica now: this request starts one
│   └── Elsewhere         another server does this now: ask that one
├── NoRoom                give the device a larger call budget: nothing is wrong with the row
├── Late                  give it more time: it was not done by its deadline, or could not be any more
└── Broken                stop: something is damaged and trying again will not help
    └── BrokenModel       the model's own code does not keep its contract: change that
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Self, TypeVar

from twoshift.durations import format_duration

__all__ = [
    "Asleep",
    "Broken",
    "BrokenModel",
    "Denied",
    "DeviceLost",
    "Disabled",
    "Elsewhere",
    "Forbidden",
    "Inapplicable",
    "InvalidInput",
    "Late",
    "Malformed",
    "NoRoom",
    "NotFound",
    "NotInstalled",
    "OutOfMemory",
    "OverLimit",
    "Shown",
    "TooLarge",
    "TooLong",
    "TryLater",
    "TwoshiftError",
    "UnusableModel",
    "UnusableRows",
    "WrongState",
    "first_line",
    "message_of",
    "restored",
    "too_many_tokens",
]

_LEAST_S = 0.001  # that a client is told to wait
_WHEN = re.compile(r"(; try again in [^;]+)+$")  # as an error that is told again says already


class TwoshiftError(Exception):
    """Anything that Twoshift raises on purpose.

    Its one argument is the message; all else that it knows is an attribute, so that copies in other processes lose
    nothing.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return restored, (type(self), str(self), self.fields())

    def fields(self) -> dict[str, Any]:
        """Its attributes, as other processes get them."""
        return vars(self).copy()

    @property
    def client_message(self) -> str:
        """What clients of a server read."""
        return str(self)


E = TypeVar("E", bound=TwoshiftError)


def restored(kind: type[E], message: str, fields: Mapping[str, Any]) -> E:
    """An error as it was, without what its class does to make one."""
    error = kind.__new__(kind, message)
    error.args = (message,)
    vars(error).update(fields)
    return error


class InvalidInput(TwoshiftError, ValueError):
    """The caller's input cannot be used; the message says what to change: one field, one value, one expectation."""

    def __init__(self, field: str, value: object, accepted: str) -> None:
        self.field = field
        self.value = value
        self.accepted = accepted
        super().__init__(self._message())

    def fields(self) -> dict[str, Any]:
        """Its attributes, as other processes get them."""
        found = super().fields()
        if not isinstance(self.value, str | int | float | None):  # it may be anything, and of any size
            found["value"] = Shown(_shown(self.value))
        return found

    def renamed(self, field: str) -> Self:
        """The same error under the name that the caller knows the field by; never a message inside a message."""
        made = restored(type(self), "", {**vars(self), "field": field})
        made.args = (made._message(),)
        return made

    def _message(self) -> str:
        if self.value is None:
            return f"{self.field} is missing; expected {self.accepted}"
        return f"{self.field}: {_shown(self.value)} cannot be used; expected {self.accepted}"


class Malformed(InvalidInput):
    """It could not be read, so there is no value to show."""

    def __init__(self, field: str, accepted: str) -> None:
        super().__init__(field, None, accepted)

    def _message(self) -> str:
        return f"{self.field}: expected {self.accepted}"


class UnusableRows(InvalidInput):
    """No row of an input can be used; `value` is how many were tried, `accepted` names the first and says why."""

    def _message(self) -> str:
        return f"{self.field}: none of the first {self.value:,} rows can be scored; {self.accepted}"


class UnusableModel(InvalidInput):
    """A model that cannot be served; the message says what it is and what to do."""

    def _message(self) -> str:
        return f"{self.field}: {self.value} {self.accepted}"  # "is an adapter; merge it into its base model"


class TooLarge(InvalidInput):
    """The input can never fit, however long the caller waits; `value` says how large it is."""

    def _message(self) -> str:
        size = self.value if isinstance(self.value, str) else _shown(self.value)
        return f"{self.field}: too large ({size}); expected {self.accepted}"


def too_many_tokens(field: str, most: int) -> TooLarge:
    """The error for a text that is not to be cut."""
    return TooLarge(field, f"more than {most:,} tokens", f"at most {most:,} tokens")


class TooLong(TooLarge):
    """A prompt and its answer are more than the model's context holds; in OpenAI's words, which clients look for."""

    def _message(self) -> str:
        told = f"This model's maximum context length is {self.accepted}. However, you requested {self.value}."
        # LangChain looks for the code, and OpenAI's newer clients show it the message alone
        return f"{told} Please reduce the length of the messages or completion (context_length_exceeded)."

    @classmethod
    def of(cls, context_tokens: int, prompt_tokens: int, answer_tokens: int, or_more: bool = False) -> TooLong:
        """With `or_more` the prompt was not counted to its end."""
        least = "at least " if or_more else ""
        parts = f"({prompt_tokens} in the messages, {answer_tokens} in the completion)"
        requested = f"{least}{prompt_tokens + answer_tokens} tokens {parts}"
        return cls("prompt", requested, f"{context_tokens} tokens")


class NotFound(InvalidInput):
    """Nothing of that name is here."""

    def _message(self) -> str:
        if self.value is None:
            return super()._message()
        return f"{self.field}: {_shown(self.value)} was not found; expected {self.accepted}"


class Inapplicable(InvalidInput):
    """The field has no use here; `accepted` ends the sentence: "without --index", "because m returns no vectors"."""

    def _message(self) -> str:
        what = self.field if self.value is True else f"{self.field}: {_shown(self.value)}"  # a flag is its own value
        return f"{what} cannot be used {self.accepted}"


class WrongState(InvalidInput):
    """It cannot be done now; `value` is the state, `accepted` says when it can."""

    def _message(self) -> str:
        return f"the {self.field} is {self.value}: {self.accepted}"


class NotInstalled(InvalidInput):
    """Packages are missing; `accepted` says how to install them."""

    def _message(self) -> str:
        return f"{self.field} {self.value} needs {self.accepted}"


class Disabled(InvalidInput):
    """This server does not do it; `accepted` says what its operator can change."""

    def __init__(self, field: str, accepted: str) -> None:
        super().__init__(field, None, accepted)

    def _message(self) -> str:
        return f"{self.field}: disabled on this server; {self.accepted}"


class Denied(TwoshiftError):
    """No key, or one that is not known."""


class Forbidden(Denied):
    """The key is known, and may not do this."""


class TryLater(TwoshiftError):
    """Full, draining or not ready: the same request may succeed after `retry_after_s`."""

    def __init__(self, why: str, retry_after_s: float, for_clients: str = "") -> None:
        """`for_clients` stands in for `why` where that names what is not theirs to know."""
        self.retry_after_s = retry_after_s
        self.for_clients = for_clients
        super().__init__(f"{_WHEN.sub('', why)}{self._again}")

    @property
    def client_message(self) -> str:
        """What clients of a server read."""
        return f"{self.for_clients}{self._again}" if self.for_clients else str(self)

    @property
    def _again(self) -> str:
        return f"; try again in {format_duration(max(_LEAST_S, self.retry_after_s))}"


class OverLimit(TryLater):
    """The caller is over a limit of its own; others are served."""


class Asleep(TryLater):
    """The model has no replica now; one starts, and is ready too late for this request."""


class Elsewhere(TryLater):
    """Another server does this now; clients are not told which."""

    def __init__(self, why: str, retry_after_s: float) -> None:
        super().__init__(why, retry_after_s, "another server runs the jobs of this database")


class NoRoom(TwoshiftError):
    """A background row that no call within the device's budget can hold; nothing is wrong with it."""


class Late(TwoshiftError):
    """It was not done by its deadline, or could not be any more."""

    def __init__(self, why: str, begun: bool = True, for_clients: str = "") -> None:
        """`begun` is whether anything was done for it: if not, everybody was too busy."""
        self.begun, self.for_clients = begun, for_clients
        super().__init__(why)

    @property
    def client_message(self) -> str:
        """What clients of a server read."""
        return self.for_clients or str(self)


class OutOfMemory(TwoshiftError):
    """A call did not fit the device's memory; nothing else was harmed."""


class Broken(TwoshiftError):
    """Stored state or a device is damaged; the message says which."""


class BrokenModel(Broken):
    """A user's class breaks its contract: no row is to blame, and every call would be wrong."""


class DeviceLost(Broken):
    """The device does not answer any more; everything on it is gone."""


class Shown(str):
    """A value of another process, as it is shown."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _shown(value: object) -> str:
    text = repr(value)
    # Both ends: of a path the last part says most
    return text if len(text) <= 80 else f"{text[:38]}...{text[-39:]}"


def first_line(error: BaseException) -> str:
    """What a library's error says first, or else its name."""
    return str(error).strip().partition("\n")[0][:300] or type(error).__name__


def message_of(error: BaseException) -> str:
    """What it says; a user's own error may fail even at that."""
    try:
        return str(error)
    except Exception:
        return "the error has no readable message"
