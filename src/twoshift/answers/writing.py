"""A table's files, written from a job's rows.

`rows.bin` has the rows one after the other. `slots.bin` has sixteen bytes for each key, sorted: the hash of the key,
and where its row lies. `starts.bin` says where the hashes with the same first bits begin in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twoshift.answers.keys import LONGEST_KEY_BYTES, digest_of
from twoshift.answers.records import pack_record, unpack_record

__all__ = ["LENGTH_BITS", "ROWS", "SLOTS", "STARTS", "SUPERSEDED", "CountedRows", "TableWriter"]

ROWS, SLOTS, STARTS = "rows.bin", "slots.bin", "starts.bin"
SUPERSEDED = "superseded by a later row with the same key"
LENGTH_BITS = 24  # of a row's place: the rest is where it begins
_KEYS_PER_START, _MOST_START_BITS = 8, 20
_BUFFER_BYTES = 1 << 20


class CountedRows:
    """What a generation says of the rows that a writer was given."""

    def __init__(self) -> None:
        self.left_out = Counter[str]()
        self.rows, self.oldest_unix_s, self.newest_unix_s = 0, float("inf"), 0.0

    def facts(self) -> dict[str, Any]:
        """As fields of the generation."""
        return {
            "rows": self.rows,
            "left_out": {why: count for why, count in self.left_out.items() if count},
            "oldest_unix_s": min(self.oldest_unix_s, self.newest_unix_s),
            "newest_unix_s": self.newest_unix_s,
        }

    def _date(self, made_unix_s: float) -> None:
        self.oldest_unix_s = min(self.oldest_unix_s, made_unix_s)
        self.newest_unix_s = max(self.newest_unix_s, made_unix_s)


class TableWriter(CountedRows):
    """Rows in, three files out; memory holds 16 bytes for each row, and twice as much at the end."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder, self._file = folder, (folder / ROWS).open("wb", _BUFFER_BYTES)
        self._at, self._hashes, self._places = 0, list[NDArray[np.uint64]](), list[NDArray[np.uint64]]()

    def add(self, rows: Iterable[tuple[bytes, bytes]], made_unix_s: float) -> None:
        """Keys and values, made at that time: of two rows with one key the one that is added later wins."""
        digests, places, at = bytearray(), list[int](), self._at
        for key, values in rows:
            record = pack_record(key, made_unix_s, values)
            if len(record) >> LENGTH_BITS or len(key) > LONGEST_KEY_BYTES:
                self.left_out["too large"] += 1
                continue
            self._file.write(record)
            digests += digest_of(key)
            places.append(at << LENGTH_BITS | len(record))
            at += len(record)
        if places:
            self._at = at
            self._hashes.append(np.frombuffer(digests, ">u8").astype(np.uint64))
            self._places.append(np.array(places, np.uint64))
            self._date(made_unix_s)

    def finish(self) -> None:
        """Write what finds the rows; `rows` is how many keys there are."""
        self._file.close()
        hashes = np.concatenate(self._hashes) if self._hashes else np.zeros(0, np.uint64)
        places = np.concatenate(self._places) if self._places else np.zeros(0, np.uint64)
        self._hashes, self._places = [], []
        order = np.argsort(hashes, kind="stable")
        hashes, places = hashes[order], places[order]
        kept = self._last_of_each(hashes, places)
        self.rows = int(kept.sum())
        if (superseded := len(kept) - self.rows) > 0:
            self.left_out[SUPERSEDED] += superseded
            hashes, places = hashes[kept], places[kept]
        slots = np.empty((len(hashes), 2), ">u8")
        slots[:, 0], slots[:, 1] = hashes, places
        slots.tofile(self._folder / SLOTS)
        _starts(hashes).tofile(self._folder / STARTS)

    def discard(self) -> None:
        """As it is."""
        self._file.close()

    def _last_of_each(self, hashes: NDArray[np.uint64], places: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Which rows stay: equal hashes are looked at one by one, since two keys may have the same."""
        kept = np.ones(len(hashes), bool)
        same = np.flatnonzero(hashes[1:] == hashes[:-1])
        if not len(same):
            return kept
        with (self._folder / ROWS).open("rb") as rows:
            for run in np.split(same, np.flatnonzero(np.diff(same) > 1) + 1):
                last: dict[bytes, int] = {}
                for at in range(int(run[0]), int(run[-1]) + 2):
                    rows.seek(int(places[at]) >> LENGTH_BITS)
                    key = unpack_record(rows.read(int(places[at]) & ((1 << LENGTH_BITS) - 1))).key
                    if (before := last.get(key)) is not None:
                        kept[before] = False
                    last[key] = at
        return kept


def _starts(hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Where the hashes begin whose first bits are 0, 1, 2 and so on, and where the last ones end."""
    bits = min(_MOST_START_BITS, max(0, (len(hashes) // _KEYS_PER_START).bit_length()))
    first = (hashes >> np.uint64(64 - bits)) if bits else np.zeros(len(hashes), np.uint64)
    found = np.searchsorted(first, np.arange((1 << bits) + 1, dtype=np.uint64))
    return found.astype("<u8")
