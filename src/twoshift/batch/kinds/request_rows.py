"""A request a line, run like any other rows of a job: each becomes one line of the part."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

import msgspec
import pyarrow as pa
from numpy.typing import NDArray

from twoshift.batch.inputs import piece_lines
from twoshift.batch.kinds.request_lines import read_line, response_line
from twoshift.batch.plan import Plan
from twoshift.batch.settings import JobSettings
from twoshift.batch.sinks.response_lines import LINES
from twoshift.batch.windows import WINDOW_BYTES, WINDOW_ROWS, Stopped, Tally, waited_for
from twoshift.endpoints.facts import EndpointCall, ModelFacts, characters_of, check_lengths, check_texts
from twoshift.endpoints.faults import fault_of
from twoshift.endpoints.known import ENDPOINTS, with_request_field
from twoshift.engine.blocks import BlockTaker
from twoshift.engine.waiting import BlockOwner
from twoshift.engine.window import Window
from twoshift.errors import InvalidInput, TooLarge
from twoshift.generation import RowDetails
from twoshift.ports import Blobs, RuntimeInfo

__all__ = ["MOST_ROWS", "AskedLine", "RequestRows", "asked_of"]

MOST_ROWS = 2048  # of a request, at least: as OpenAI has it
_DETAILS = ("cached_tokens", "logprobs", "stopped_by", "tool_calls")


@dataclass(slots=True)
class AskedLine:
    """A line of the input: a call, or why there is none."""

    custom_id: str
    call: EndpointCall | None = None
    error: Exception | None = None

    @property
    def rows(self) -> list[Any]:
        """That the model is asked."""
        return [] if self.call is None else self.call.rows


@dataclass(slots=True)
class RequestWindow:
    """Requests, and all of their rows with the engine."""

    asked: list[AskedLine] = field(default_factory=list[AskedLine])
    window: Window = field(default_factory=lambda: Window(0))

    def cancel(self) -> None:
        """Nobody wants the results any more."""
        self.window.cancel()


@dataclass(frozen=True, slots=True)
class _Result:
    """A row of a window's columns."""

    columns: dict[str, NDArray[Any]]
    place: int
    details: RowDetails | None

    def __getitem__(self, name: str) -> Any:
        if self.details is not None and name in _DETAILS:
            return getattr(self.details, name)
        return self.columns[name][self.place]


class RequestRows:
    """The requests of one plan's files."""

    def __init__(
        self, engine: BlockTaker, plan: Plan, blobs_for: Callable[[str], Blobs], owner: BlockOwner | None = None
    ) -> None:
        self._engine, self._plan, self._blobs_for, self._owner = engine, plan, blobs_for, owner
        self._batch = PurePosixPath(plan.settings.output).name
        self._most_rows = max(MOST_ROWS, engine.most_rows)

    def windows(self, shard: int, stop: threading.Event) -> Iterator[list[AskedLine]]:
        """The shard's requests; a window has few rows, however many each request has."""
        held: list[AskedLine] = []
        rows = size = 0
        for piece in self._plan.shards[shard]:
            file = self._plan.files[piece.file]
            for line in piece_lines(piece, file, self._blobs_for(file.location)):
                if stop.is_set():
                    raise Stopped
                asked = asked_of(line, self._plan.settings, self._engine.runtime.info, self._most_rows)
                held.append(asked)
                rows, size = rows + max(1, len(asked.rows)), size + len(line)
                if rows >= WINDOW_ROWS or size >= WINDOW_BYTES:
                    yield held
                    held, rows, size = [], 0, 0
        if held:
            yield held

    def begin(self, batch: list[AskedLine]) -> RequestWindow:
        """Hand them to the engine, all rows together."""
        rows = [row for asked in batch for row in asked.rows]
        window = Window(len(rows))
        texts = self._engine.runtime.info.texts  # as live requests have it
        window.submit(self._engine, rows, self._owner, too_long=texts.too_long)
        return RequestWindow(batch, window)

    def finish(self, begun: RequestWindow, tally: Tally, stop: threading.Event) -> pa.RecordBatch:
        """Read the results, one line per request."""
        columns = waited_for(begun.window, stop)
        lines, errors, at, tokens = list[bytes](), list[str | None](), 0, 0
        for asked in begun.asked:
            places = range(at, at + len(asked.rows))
            line, kind = self._line(asked, begun.window, columns, places)
            lines.append(line)
            errors.append(kind)
            tokens += _tokens(begun.window, places) if kind is None else 0  # who got no answer has used none
            at = places.stop
        tally.add(begun.window, len(lines), [kind for kind in errors if kind is not None], tokens)
        return pa.RecordBatch.from_arrays([pa.array(lines, pa.binary()), pa.array(errors, pa.string())], schema=LINES)

    def _line(
        self, asked: AskedLine, window: Window, columns: dict[str, NDArray[Any]], places: range
    ) -> tuple[bytes, str | None]:
        """The line, and the kind of its error."""
        failed = next((place for place in places if place in window.causes), None)
        error = asked.error if failed is None else window.causes[failed]
        at = None if failed is None or len(places) == 1 else f"row {failed - places.start} of {len(places)}"
        if error is None and asked.call is not None:
            try:
                rows = [_Result(columns, place, window.details.get(place)) for place in places]
                reply = asked.call.reply(rows, _tokens(window, places))
                return response_line(self._batch, asked.custom_id, reply), None
            except Exception as raised:  # an answer that cannot be told is this request's alone
                error = raised
        assert error is not None  # noqa: S101 - without a call there is one
        fault = fault_of(with_request_field(self._plan.settings.endpoint or "", error), at)
        return response_line(self._batch, asked.custom_id, fault), type(error).__name__


def _tokens(window: Window, places: range) -> int:
    return sum(window.row_tokens[place] for place in places)


def asked_of(line: bytes, settings: JobSettings, model: RuntimeInfo, most_rows: int) -> AskedLine:
    """What a line of the input asks; what is wrong with it is its own."""
    asked = AskedLine("")
    try:
        read = read_line(line)
        asked.custom_id = read.custom_id
        asked.call = _call(read.body, settings, model, most_rows)
    except Exception as error:
        asked.error = error
    return asked


def _call(body: msgspec.Raw, settings: JobSettings, model: RuntimeInfo, most_rows: int) -> EndpointCall:
    about = (settings.model, model.outputs, {}, most_rows, model.max_row_tokens, model.prompts)
    facts = ModelFacts(*about, inputs=model.inputs, classes=model.classes, adapters=settings.adapters)
    call = ENDPOINTS[settings.endpoint or ""](bytes(body), facts)
    _check(call.rows, model, most_rows)
    check_texts(call.rows, model.texts)
    return call


def _check(rows: Sequence[Any], model: RuntimeInfo, most_rows: int) -> None:
    if not rows:
        raise InvalidInput("input", rows, "at least one row")
    if len(rows) > most_rows:
        raise TooLarge("input", f"{len(rows):,} rows", f"at most {most_rows:,} rows in a request")
    if model.max_row_tokens > 1:
        check_lengths(characters_of(rows), model.texts.most_tokens(model.max_row_tokens, most_rows))
