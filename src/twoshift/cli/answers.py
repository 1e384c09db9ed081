"""`embed` and `score`: lines in, a model's answers out, through the live lane of an engine."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

import numpy as np

from twoshift.cli.output import note, plain
from twoshift.cli.rows import Line, Parse, line_chunks
from twoshift.engine import Engine, RowFuture
from twoshift.engine.prepare import prepared_parts
from twoshift.errors import Broken, InvalidInput, Malformed, UnusableModel
from twoshift.policy.cost import CallCost
from twoshift.policy.lane_values import LaneLimits
from twoshift.wiring.stored_profiles import stored_profile

if TYPE_CHECKING:
    from twoshift.ports import Runtime, RuntimeInfo

__all__ = ["Answers", "answer_lines"]

_DEADLINE_S = 3600.0  # somebody waits, but nobody measures
_UNKNOWN = CallCost.line(0.01, 1e-4)  # before anything was measured; the engine learns the rest
_LEAVE_S = 2.0  # how long a running call may keep us after an error
_NAMED_LINES = 10
_OWN_FIELDS = frozenset({"line", "error", "truncated"})


@dataclass(frozen=True, slots=True)
class _Answer:
    """What became of one line."""

    line: int
    values: dict[str, Any] = field(default_factory=dict[str, Any])
    truncated: bool = False
    error: str | None = None

    def fields(self) -> dict[str, Any]:
        extra = {"truncated": True} if self.truncated else {}
        return {"line": self.line} | (self.values if self.error is None else {"error": self.error}) | extra


def answer_lines(runtime: Runtime, stream: BinaryIO, parse: Parse, out: Answers, skip_blank: bool = False) -> int:
    """Answer every line in order; the exit code. Closes the runtime.

    A bad row is named by its line on stderr and in its place in the output; the others are answered.
    """
    found = stored_profile(runtime.info)
    engine = Engine(runtime, found.cost if found else _UNKNOWN, LaneLimits(max_rows=256))
    with _closing(engine):
        _check_names(runtime.info.outputs, runtime.info)
        for lines in line_chunks(stream):
            kept = [line for line in lines if line.text.strip() or not skip_blank]
            for answer in _answers(engine, kept, parse):
                out.write(answer)
            out.flush()
        if not out.rows:
            raise Malformed("input", "at least one line with a row; the file or the standard input has none")
        return out.finish()


@contextlib.contextmanager
def _closing(engine: Engine) -> Iterator[None]:
    """Close the engine in the end; after an error or an interrupt not at any price, for a call may be stuck."""
    try:
        yield
    except BaseException:
        closing = threading.Thread(target=_close, args=(engine,), daemon=True)
        closing.start()
        closing.join(_LEAVE_S)
        raise
    engine.close()


def _close(engine: Engine) -> None:
    with contextlib.suppress(Exception):  # what went wrong before is what is told
        engine.close()


def _answers(engine: Engine, lines: list[Line], parse: Parse) -> Iterator[_Answer]:
    rows: list[tuple[Line, Any]] = []
    answers: dict[int, _Answer] = {}
    for line in lines:
        try:
            rows.append((line, parse(line)))
        except InvalidInput as error:
            answers[line.number] = _Answer(line.number, error=str(error))
    waiting: list[tuple[int, bool, RowFuture]] = []
    for start, part in prepared_parts(engine.runtime.prepare, [row for _, row in rows]):
        if isinstance(part, Exception):
            number = rows[start][0].number
            answers[number] = _Answer(number, error=_told(part, number))
            continue
        futures = engine.submit(part, engine.now_s() + _DEADLINE_S)
        numbers = (line.number for line, _ in rows[start : start + len(futures)])
        waiting += zip(numbers, part.truncated.tolist(), futures, strict=True)
    answers |= {number: _result(engine.runtime.info, number, cut, future) for number, cut, future in waiting}
    return (answers[line.number] for line in lines)


def _check_names(names: Collection[str], info: RuntimeInfo) -> None:
    """Refuse columns that would take the place of our own fields."""
    if taken := sorted(_OWN_FIELDS.intersection(names)):
        why = f"returns a column with the reserved name {taken[0]}; give this column another name"
        raise UnusableModel("model", info.model, why)


def _result(info: RuntimeInfo, number: int, truncated: bool, future: RowFuture) -> _Answer:
    try:
        result = future.result()
    except Broken:
        raise
    except Exception as error:
        return _Answer(number, error=_told(error, number))
    _check_names(result.columns, info)
    return _Answer(number, {name: _json_value(result[name]) for name in result.columns}, truncated)


def _told(error: Exception, number: int) -> str:
    """The message with the row's line in place of where it stood in a call."""
    message = str(error) if isinstance(error, InvalidInput) else f"{type(error).__name__}: {error}"
    told, found = re.subn(r"^row \d+\b", f"line {number}", message)
    return told if found else f"line {number}: {message}"


def _json_value(value: Any) -> Any:
    array = np.asarray(value)
    if array.dtype.kind == "f" and array.dtype.itemsize < 8:
        array = array.astype("U").astype(np.float64)  # the shortest digits that give the same float back
    return plain(array.tolist())


class Answers:
    """Lines of JSON on a stream, or one object around them."""

    def __init__(self, stream: TextIO, as_json: bool, info: RuntimeInfo) -> None:
        self._stream = stream
        self._info = info
        self._as_json = as_json
        self._truncated: list[int] = []
        self._failed = 0
        self.rows = 0

    def flush(self) -> None:
        """Let whoever reads have what is there."""
        self._stream.flush()

    def write(self, answer: _Answer) -> None:
        """One answer, at once."""
        text = json.dumps(answer.fields(), ensure_ascii=False, allow_nan=False)
        if self._as_json:
            opening = f'{{"model": {json.dumps(self._info.model)}, "results": [\n'
            text = f"{',' if self.rows else opening}{text}"
        self._stream.write(f"{text}\n")
        self.rows += 1
        if answer.truncated:
            self._truncated.append(answer.line)
        if answer.error is not None:
            self._failed += 1
            note(f"twoshift: {answer.error}")

    def finish(self) -> int:
        """Close the object, report what was cut; 2 where a row has failed."""
        if self._as_json:
            counts = {"rows": self.rows, "failed": self._failed, "truncated": len(self._truncated)}
            self._stream.write(f"], {json.dumps(counts)[1:]}\n")
        if self._truncated:
            some = ", ".join(map(str, self._truncated[:_NAMED_LINES]))
            more = ", ..." if len(self._truncated) > _NAMED_LINES else ""
            count, limit = len(self._truncated), self._info.max_row_tokens
            rows, lines = ("1 row was", "line") if count == 1 else (f"{count:,} rows were", "lines")
            note(f"{rows} truncated to the model's limit of {limit:,} tokens: {lines} {some}{more}")
        return 2 if self._failed else 0
