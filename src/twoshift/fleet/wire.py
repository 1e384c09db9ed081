"""What passes between a server and a replica for live requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from twoshift.engine.llm.stats import FinishedSequence, LlmStats
from twoshift.engine.stats import EngineStats, Queue
from twoshift.error_codec import EncodedError
from twoshift.errors import Malformed
from twoshift.fleet.frames import decoder, framed
from twoshift.generation import Delta, GenerationParams, GenerationRequest, Message, ToolUse
from twoshift.ports import Prepared, RowPreparer
from twoshift.serve.live_request import LiveRequest
from twoshift.types import Lane

__all__ = [
    "Answered",
    "Ask",
    "AskPrepared",
    "Begun",
    "Done",
    "Forget",
    "FromReplica",
    "Generate",
    "Heartbeat",
    "Hello",
    "LlmBeat",
    "PreparedAsk",
    "Refused",
    "Results",
    "Started",
    "ToReplica",
    "Tokens",
    "asking",
    "asking_prepared",
    "from_replica",
    "generating",
    "prompts_of",
    "to_replica",
]  # fmt: skip


class _Message(msgspec.Struct, frozen=True, array_like=True, tag=True):
    pass


class Hello(_Message, frozen=True):
    """The front listens from now on."""

    launches_path: str = ""  # where it reads what is launched; empty: it is told by `Started`


class Ask(_Message, frozen=True):
    """Answer these rows; a pair of texts is a tuple where rows are made, which msgpack does not know."""

    id: int
    rows: list[Any]
    pairs: bool
    deadline_s: float  # on the machine's monotonic clock, as is the next; from another machine: from now on
    arrived_s: float
    tenant: str = ""  # who pays
    reserve_s: float = 0.0  # of its time, that the front needs for its reply


class PreparedAsk(msgspec.Struct, frozen=True, array_like=True):
    """A request whose rows lie among those of others; as `Ask`."""

    id: int
    rows: int
    deadline_s: float
    arrived_s: float
    tenant: str
    reserve_s: float


class AskPrepared(_Message, frozen=True):
    """Answer these requests: their rows, one after the other, as the model's `RowPreparer` sends them."""

    requests: list[PreparedAsk]
    arrays: dict[str, Any]


class _Prompt(msgspec.Struct, frozen=True, array_like=True):
    """A GenerationRequest; one of the first three is there."""

    text: str | None
    token_ids: list[int] | None
    messages: list[Message] | None
    params: GenerationParams
    tools: ToolUse | None = None
    adapter: str = ""
    whole: bool = False


class Generate(_Message, frozen=True):
    """Begin these sequences. `Begun` follows, and `Tokens` until each has its finish; or `Refused`, at any time."""

    id: int
    prompts: list[_Prompt]
    timeout_s: float | None  # from its arrival on
    waited_s: float  # since then
    tenant: str = ""  # who pays


class Forget(_Message, frozen=True):
    """Nobody waits for it any more."""

    id: int


ToReplica = Hello | Ask | AskPrepared | Generate | Forget


class Started(_Message, frozen=True):
    """Rows of these requests are about to be launched: after that they may have had an effect."""

    ids: list[int]


class Results(msgspec.Struct, frozen=True, array_like=True):
    """Rows of a request that were answered by one call."""

    columns: dict[str, Any]
    rows: int
    forward_s: float
    call_rows: int


class Done(_Message, frozen=True):
    """A request's answer."""

    id: int
    results: list[Results]
    tokens: int
    truncated: int
    stages: tuple[float, float, float, float, float, float, int]


class Answered(_Message, frozen=True):
    """The answers of requests of one prepared row each, which rode in one call; a row of the columns each."""

    ids: list[int]
    columns: dict[str, Any]
    forward_s: float
    call_rows: int
    ended_s: float  # when their results were there


class Begun(_Message, frozen=True):
    """Sequences that were admitted."""

    id: int
    tokens: int  # of all prompts
    prepare_s: float


class Tokens(_Message, frozen=True):
    """More of one of a request's sequences."""

    id: int
    place: int
    delta: Delta


class Refused(_Message, frozen=True):
    """Requests that have no answer, all for one reason, or the error that ends a request's sequences."""

    ids: list[int]
    error: EncodedError


class LlmBeat(msgspec.Struct, frozen=True, array_like=True):
    """How a language model is."""

    stats: LlmStats
    finished: list[FinishedSequence]  # since the last one


class Heartbeat(_Message, frozen=True):
    """The replica's loop turns; how it is."""

    stats: EngineStats
    waiting: dict[Lane, Queue]
    running_s: float  # of the call on the device; 0 where there is none
    reason: str  # why it is not well; empty where it is
    cost: dict[str, Any] | None  # the curve, where it has changed
    derived: dict[str, Any] | None  # what follows from it
    host_s: float = 0.0  # that a request costs its interpreter
    reserve_s: float = 0.0  # of a request's time, that it keeps for the reply
    llm: LlmBeat | None = None


FromReplica = Started | Done | Answered | Begun | Tokens | Refused | Heartbeat


to_replica: Callable[[bytes], ToReplica] = decoder(ToReplica)
from_replica: Callable[[bytes], FromReplica] = decoder(FromReplica)


def asking(number: int, request: LiveRequest, base_s: float = 0.0) -> bytes:
    """A request as it goes to a replica, with times since `base_s`; raises Malformed for rows that cannot, TooLarge."""
    rows, deadline_s, arrived_s = request.rows, request.deadline_s - base_s, request.arrived_s - base_s
    pairs = isinstance(rows[0], tuple) if rows else False
    try:
        return framed(Ask(number, list(rows), pairs, deadline_s, arrived_s, request.tenant, request.reserve_s))
    except (TypeError, OverflowError, UnicodeEncodeError) as error:
        raise Malformed("input", f"rows of numbers, texts and lists ({error})") from error


def asking_prepared(requests: Sequence[PreparedAsk], rows: Sequence[Prepared], preparer: RowPreparer) -> bytes:
    """Requests whose rows were prepared here, each its own, as they go to a replica; raises TooLarge."""
    together = rows[0] if len(rows) == 1 else preparer.joined(rows)
    return framed(AskPrepared(list(requests), dict(preparer.arrays_of(together))))


def generating(
    number: int, rows: Sequence[GenerationRequest], timeout_s: float | None, waited_s: float, tenant: str
) -> bytes:
    """Sequences as they go to a replica; raises Malformed for texts that cannot, TooLarge."""
    try:
        return framed(Generate(number, [_prompt(row) for row in rows], timeout_s, waited_s, tenant))
    except UnicodeEncodeError as error:
        raise Malformed("prompt", f"a text in valid Unicode ({error})") from error


def _prompt(row: GenerationRequest) -> _Prompt:
    given = row.prompt
    if isinstance(given, str):
        return _Prompt(given, None, None, row.params, None, row.adapter, row.whole)
    messages = [each for each in given if isinstance(each, Message)]
    token_ids = [each for each in given if isinstance(each, int)]
    if messages:
        return _Prompt(None, None, messages, row.params, row.tools, row.adapter, row.whole)
    return _Prompt(None, token_ids, None, row.params, None, row.adapter, row.whole)


def prompts_of(message: Generate) -> list[GenerationRequest]:
    """What was asked."""

    def given(each: _Prompt) -> tuple[Message, ...] | str | tuple[int, ...]:
        if each.text is not None:
            return each.text
        return tuple(each.messages) if each.messages is not None else tuple(each.token_ids or ())

    return [
        GenerationRequest(given(each), each.params, each.tools, each.adapter, each.whole) for each in message.prompts
    ]
