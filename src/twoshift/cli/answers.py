"""`embed` and `score`: lines in, a model's answers out, through the live lane of an engine."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from twoshift.cli.output import note, plain
from twoshift.cli.rows import Line, Parse, line_chunks
from twoshift.engine import Engine, RowFuture
from twoshift.errors import Broken, InvalidInput
from twoshift.policy.cost import CallCost
from twoshift.policy.lanes import LaneLimits
from twoshift.wiring import stored_profile

if TYPE_CHECKING:
    from twoshift.ports import Prepared, Runtime, RuntimeInfo

__all__ = ["answer_lines", "prepared_parts"]

_DEADLINE_S = 3600.0  # somebody waits, but nobody measures
_UNKNOWN = CallCost.line(0.01, 1e-4)  # before anything was measured; the engine learns the rest
_NAMED_LINES = 10


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


def answer_lines(runtime: Runtime, stream: BinaryIO, parse: Parse, as_json: bool, skip_blank: bool = False) -> int:
    """Answer every line in order, on stdout; the exit code. Closes the runtime.

    A bad row is named by its line on stderr and in its place in the output; the others are answered.
    """
    found = stored_profile(runtime.info)
    engine = Engine(runtime, found.cost if found else _UNKNOWN, LaneLimits(max_rows=256))
    out = _Output(as_json, runtime.info)
    try:
        for lines in line_chunks(stream):
            kept = [line for line in lines if line.text.strip() or not skip_blank]
            for answer in _answers(engine, kept, parse):
                out.write(answer)
            sys.stdout.flush()
    finally:
        engine.close()
    if not out.rows:
        raise InvalidInput("input", "nothing", "at least one line, in the file or on standard input")
    return out.finish()


def prepared_parts(runtime: Runtime, rows: Sequence[Any]) -> Iterator[tuple[int, Prepared | Exception]]:
    """Where each stretch of rows begins and the rows, prepared; a row that cannot be is alone with its error."""
    left = [(0, len(rows))] if rows else []
    while left:
        start, stop = left.pop()
        try:
            yield start, runtime.prepare(rows[start:stop])
        except Broken:
            raise
        except Exception as error:  # a user's own class may raise anything
            if stop - start == 1:
                yield start, error
            else:
                middle = (start + stop) // 2
                left += [(middle, stop), (start, middle)]


def _answers(engine: Engine, lines: list[Line], parse: Parse) -> Iterator[_Answer]:
    rows: list[tuple[Line, Any]] = []
    answers: dict[int, _Answer] = {}
    for line in lines:
        try:
            rows.append((line, parse(line)))
        except InvalidInput as error:
            answers[line.number] = _Answer(line.number, error=str(error))
    waiting: list[tuple[int, bool, RowFuture]] = []
    for start, part in prepared_parts(engine.runtime, [row for _, row in rows]):
        if isinstance(part, Exception):
            number = rows[start][0].number
            answers[number] = _Answer(number, error=_told(part, number))
            continue
        futures = engine.submit(part, engine.now_s() + _DEADLINE_S)
        numbers = (line.number for line, _ in rows[start : start + len(futures)])
        waiting += zip(numbers, part.truncated.tolist(), futures, strict=True)
    answers |= {number: _result(number, cut, future) for number, cut, future in waiting}
    return (answers[line.number] for line in lines)


def _result(number: int, truncated: bool, future: RowFuture) -> _Answer:
    try:
        result = future.result()
    except Broken:
        raise
    except Exception as error:
        return _Answer(number, error=_told(error, number))
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


class _Output:
    """Lines of JSON, or one object around them."""

    def __init__(self, as_json: bool, info: RuntimeInfo) -> None:
        self._as_json = as_json
        self._info = info
        self._truncated: list[int] = []
        self._failed = 0
        self.rows = 0

    def write(self, answer: _Answer) -> None:
        """One answer, at once."""
        text = json.dumps(answer.fields(), ensure_ascii=False, allow_nan=False)
        if self._as_json:
            opening = f'{{"model": {json.dumps(self._info.model)}, "results": [\n'
            text = f"{',' if self.rows else opening}{text}"
        sys.stdout.write(f"{text}\n")
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
            sys.stdout.write(f"], {json.dumps(counts)[1:]}\n")
        if self._truncated:
            some = ", ".join(map(str, self._truncated[:_NAMED_LINES]))
            more = ", ..." if len(self._truncated) > _NAMED_LINES else ""
            rows = "1 row was" if len(self._truncated) == 1 else f"{len(self._truncated):,} rows were"
            limit = self._info.max_row_tokens
            note(f"{rows} longer than the model's {limit:,} tokens and cut there: line {some}{more}")
        return 2 if self._failed else 0
