"""The parity receipt: committed rows scored again, the way live requests would be."""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from twoshift.batch.inputs import read
from twoshift.batch.plan import Plan, part_location
from twoshift.batch.result_columns import ERROR
from twoshift.batch.sinks.known import SINKS
from twoshift.batch.table_rows import model_rows
from twoshift.engine.blocks import BlockEngine
from twoshift.engine.long_texts import PiecedRows, pieced
from twoshift.engine.results import RowResult
from twoshift.policy.answer_quality import agreeing_share
from twoshift.ports import PARITY_BAR, Blobs
from twoshift.runtime.tokenization import TextTokens, Tokenized

__all__ = ["RECEIPT_PROMPTS", "ParityReport", "take_receipt"]

RECEIPT_PROMPTS = 4  # of a language model: each is generated all over again
_DEADLINE_S = 3600.0
_TEXT = "text"  # of a language model's answer
_LOOK_ROWS = 4096  # of a shard's beginning, from which rows are drawn
_WORST_COSINE, _WORST_DIFFERENCE = -1.0, sys.float_info.max  # finite: a report in JSON has null for anything else


class ParityReport(msgspec.Struct, frozen=True):
    """How far the two shifts agree on a sample."""

    rows: int
    worst_cosine: float | None  # of vectors
    worst_difference: float | None  # of numbers, alone or in vectors
    unequal: int  # rows in which anything else differs
    problem: str | None = None  # why it could not be taken
    tokens: int = 0  # of texts that a language model generated: of the longer one of two answers
    agreeing_tokens: int = 0  # of these, before the first difference

    @property
    def passed(self) -> bool | None:
        """Whether the two shifts answer alike; None where nobody can tell: no rows, or numbers without a bar."""
        if self.problem is not None or not self.rows:
            return None
        if self.unequal or (self.worst_cosine is not None and not self.worst_cosine >= PARITY_BAR):
            return False
        return True if self.worst_cosine is not None or not self.worst_difference else None

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, with what follows."""
        return {**msgspec.structs.asdict(self), "passed": self.passed}


_NOTHING = ParityReport(0, None, None, 0)
_Asked = tuple[Callable[[], RowResult], dict[str, Any]]  # a row's live answer, to be waited for, and its stored one


def take_receipt(engine: BlockEngine, plan: Plan, shards: list[int], rows: int, blobs_for: Any) -> ParityReport:
    """Compare up to so many rows of these shards' parts with the online path, one at a time; prompts all at once."""
    each = max(1, rows // max(1, len(shards)))
    asked = chain.from_iterable(_shard_asked(engine, plan, shard, each, blobs_for) for shard in shards)
    if plan.settings.prompt is not None:  # answers take long
        asked = list(asked)
    seen = _NOTHING
    for answer, stored in asked:
        seen = _merged(seen, _compared_row(engine, answer(), stored))
    if shards and not seen.rows:
        return msgspec.structs.replace(seen, problem="none of the sampled rows has a result")
    return seen


def _shard_asked(engine: BlockEngine, plan: Plan, shard: int, rows: int, blobs_for: Any) -> Iterator[_Asked]:
    """Each row is asked when its turn comes."""
    given = _first_rows(plan, shard, blobs_for)
    part = _first_part_rows(plan, shard, blobs_for(plan.settings.output), len(given))
    good = [k for k, error in enumerate(part[ERROR]) if error is None and given[k] is not None]
    chosen = sorted(random.Random(shard).sample(good, min(rows, len(good))))  # noqa: S311 - a sample, no secret
    prepare = pieced(engine, plan.settings.too_long)
    for k in chosen:
        yield _answer(engine, prepare([given[k]])), {name: values[k] for name, values in part.items()}


def _answer(engine: BlockEngine, prepared: PiecedRows) -> Callable[[], RowResult]:
    """Asks for a row as a live request does; what is returned waits for it."""
    futures = engine.submit(prepared.rows, engine.now_s() + _DEADLINE_S)

    def result() -> RowResult:
        results = [future.result() for future in futures]
        return results[0] if prepared.pieces is None else prepared.pieces.merged_rows(results, engine.runtime.info)[0]

    return result


def _compared_row(engine: BlockEngine, result: RowResult, stored: dict[str, Any]) -> ParityReport:
    live = {name: np.asarray(result[name]) for name in result.columns}
    row = _row(live, {name: stored[name] for name in live if name in stored})
    if isinstance(engine.runtime, Tokenized) and _TEXT in live and _TEXT in stored:
        return _with_tokens(row, engine.runtime.tokens, str(live[_TEXT]), str(stored[_TEXT]))
    return row


def _with_tokens(row: ParityReport, tokens: TextTokens, live: str, stored: str) -> ParityReport:
    """How far two answers go together: what comes after their first difference follows from it."""
    one, other = (tokens.ids(each, special=False) for each in (live, stored))
    longer = max(len(one), len(other))
    agreeing = round(agreeing_share(one, other) * longer)
    return msgspec.structs.replace(row, tokens=longer, agreeing_tokens=agreeing)


def _first_rows(plan: Plan, shard: int, blobs_for: Any) -> list[Any]:
    rows: list[Any] = []
    for piece in plan.shards[shard]:
        file = plan.files[piece.file]
        for batch in read(piece, file, blobs_for(file.location), plan.settings.model_columns, 1024, 4 << 20):
            rows += model_rows(batch, plan.settings, plan.types, plan.model.is_ordered)
            if len(rows) >= _LOOK_ROWS:
                return rows[:_LOOK_ROWS]
    return rows


def _first_part_rows(plan: Plan, shard: int, output: Blobs, rows: int) -> dict[str, list[Any]]:
    location = part_location(plan, shard)
    with output.open(location) as file:
        return SINKS[plan.settings.output_format].first_rows(file, plan.schema, rows)


def _row(live: dict[str, NDArray[Any]], stored: dict[str, Any]) -> ParityReport:
    """One row; a column that the part lacks differs."""
    row = ParityReport(1, None, None, int(not live.keys() <= stored.keys()))
    for name in live.keys() & stored.keys():
        row = _merged(row, _compared(live[name], stored[name]))
    return msgspec.structs.replace(row, unequal=min(1, row.unequal))


def _compared(live: NDArray[Any], stored: Any) -> ParityReport:
    """A column of a row: cosine and difference of vectors, difference of numbers, or whether anything else differs."""
    if live.dtype.kind not in "fiu":
        return ParityReport(0, None, None, int(live.tolist() != stored))
    try:
        one, other = live.astype(np.float64), np.asarray(stored, np.float64)
    except (TypeError, ValueError):  # no numbers at all
        return ParityReport(0, None, None, 1)
    return ParityReport(0, _cosine(one, other) if live.ndim == 1 else None, _difference(one, other), 0)


def _difference(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """The largest; NaN and infinity are as far as can be from all but themselves."""
    if not _can_compare(one, other):
        return _WORST_DIFFERENCE
    finite = np.isfinite(one)
    with np.errstate(over="ignore"):
        largest = np.max(np.abs(one[finite] - other[finite]), initial=0.0)
    return min(float(largest), _WORST_DIFFERENCE)


def _cosine(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Of the vectors; a vector of zeros is like another such and unlike all others, as one with NaN is."""
    if not _can_compare(one, other):
        return _WORST_COSINE
    finite = np.isfinite(one)
    one, other = _unit(one[finite]), _unit(other[finite])
    if one.any() != other.any():
        return 0.0
    return min(1.0, float(one @ other)) if one.any() else 1.0


def _can_compare(one: NDArray[np.float64], other: NDArray[np.float64]) -> bool:
    """Whether there is a number in one wherever there is one in the other, and else the same."""
    if one.shape != other.shape:
        return False
    odd = ~(np.isfinite(one) & np.isfinite(other))
    return np.array_equal(one[odd], other[odd], equal_nan=True)


def _unit(vector: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of length 1, or all zeros; scaled first, so that the squares of very small or large numbers are numbers too."""
    largest = np.max(np.abs(vector), initial=0.0)
    if not largest:
        return vector
    scaled = vector / largest
    return scaled / np.linalg.norm(scaled)


def _merged(one: ParityReport, other: ParityReport) -> ParityReport:
    return ParityReport(
        one.rows + other.rows,
        min(_told((one.worst_cosine, other.worst_cosine), _WORST_COSINE), default=None),
        max(_told((one.worst_difference, other.worst_difference), _WORST_DIFFERENCE), default=None),
        one.unequal + other.unequal,
        one.problem or other.problem,
        one.tokens + other.tokens,
        one.agreeing_tokens + other.agreeing_tokens,
    )


def _told(values: Iterable[float | None], worst: float) -> list[float]:
    """Those that there are; the worst in place of NaN, which `min` and `max` lose."""
    return [worst if math.isnan(value) else value for value in values if value is not None]
