"""Answers that were computed live are kept, and answer the same request the next time.

A row is found by its key, its input and the version of the model. A client may name any key beside any input: what it
got is nobody else's answer unless they ask the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from twoshift.answers.kept_rows import KeptKey, KeptRow, input_digest, version_id
from twoshift.engine import RowResult
from twoshift.ports import RuntimeInfo
from twoshift.serve.keyed import Found, LookedUp, Rules

__all__ = ["Counted", "KeptRows", "OneRow", "WriteBack", "count_outcome", "kept_version"]

Counted = dict[str, int]  # rows by outcome
OneRow = Mapping[str, NDArray[np.generic]]  # each array has one row


class KeptRows(Protocol):
    """Where they are kept. Of the server's loop."""

    async def find(self, info: RuntimeInfo, keys: Sequence[KeptKey]) -> Sequence[KeptRow | None]:
        """Of this version."""
        ...

    def keep(self, info: RuntimeInfo, rows: Sequence[tuple[KeptKey, float, OneRow]], counted: Counted) -> None:
        """From now on or a moment later, with when they were made; what became of them is counted."""
        ...

    def close(self) -> None:
        """No more; what was to be kept is."""
        ...


class WriteBack:
    """Of one deployment, in one process."""

    def __init__(self, rules: Rules, rows: KeptRows) -> None:
        self._rules, self._rows = rules, rows

    async def filled(
        self,
        looked: Sequence[LookedUp],
        keys: Sequence[bytes | None],
        rows: Sequence[Any],
        info: RuntimeInfo,
        now_unix_s: float,
    ) -> list[LookedUp]:
        """What was not found elsewhere, where it is kept; the rest with what it is to be kept as."""
        found, version = list(looked), kept_version(info)
        asked = dict[int, KeptKey]()
        for place, (each, key) in enumerate(zip(looked, keys, strict=True)):
            if each.row is None and key is not None and (digest := input_digest(version, rows[place])) is not None:
                asked[place] = KeptKey(key, digest)
        if not asked:
            return found
        for place, row in zip(asked, await self._rows.find(info, [*asked.values()]), strict=True):
            found[place] = self._judged(looked[place], row, now_unix_s)._replace(kept_as=asked[place])
        return found

    def keep(
        self, looked: Sequence[LookedUp], computed: Sequence[RowResult], info: RuntimeInfo, at: float, counted: Counted
    ) -> None:
        """The rows that had to be computed, in the same order."""
        rows = [
            (each.kept_as, at, {name: row.columns[name][row.index : row.index + 1] for name in row.columns})
            for each, row in zip(looked, computed, strict=True)
            if each.kept_as is not None
        ]
        if rows:
            self._rows.keep(info, rows, counted)

    def close(self) -> None:
        """No more."""
        self._rows.close()

    def _judged(self, before: LookedUp, row: KeptRow | None, now_unix_s: float) -> LookedUp:
        if row is None:
            return before
        age_s = max(0.0, now_unix_s - row.made_unix_s)
        if self._rules.max_age_s is not None and age_s > self._rules.max_age_s:
            return before
        return LookedUp(Found.WRITTEN_BACK, RowResult(row.columns, 0, 0.0, 0), age_s)


def kept_version(info: RuntimeInfo) -> str:
    """The same for models whose answers to the same row are the same."""
    prompt = info.prompts.get(info.default_prompt_name or "", "")
    return version_id(info.checksum, info.precision, info.texts.too_long, info.outputs, prompt)


def count_outcome(counted: Counted, outcome: str) -> None:
    """Of a row; each outcome is counted by one thread."""
    counted[outcome] = counted.get(outcome, 0) + 1
