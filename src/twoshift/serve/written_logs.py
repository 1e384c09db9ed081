"""What was computed live, on this machine's disk: a log for each version, which all processes of a server share."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from twoshift.answers.kept_rows import KeptKey, KeptRow, pack_kept
from twoshift.answers.reading import NotCached
from twoshift.answers.written_log import WrittenLog, frame_of
from twoshift.errors import Broken
from twoshift.ports import RuntimeInfo
from twoshift.serve.write_back import Counted, OneRow, count_outcome, kept_version

__all__ = ["WrittenLogs"]

_logger = logging.getLogger("twoshift.answers")
_FOLLOW_S = 0.1  # until what another process has kept is found
_MOST_WAITING_BYTES = 8 << 20  # that are not written yet
_CLOSE_S = 5.0


class _Waiting(NamedTuple):
    version: str
    frame: bytes
    counted: Counted


class WrittenLogs:
    """KeptRows; a thread of its own writes, follows and compacts."""

    def __init__(
        self,
        folder: Path,
        limit_bytes: int,
        keeps: Callable[[RuntimeInfo, KeptRow], bool],
        swaps: Callable[[], int] = lambda: 0,
    ) -> None:
        """`keeps` says which rows outlive a compaction, which comes with a full log and when `swaps` has changed."""
        self._folder, self._limit_bytes, self._keeps, self._swaps = folder, limit_bytes, keeps, swaps
        self._infos: dict[str, RuntimeInfo] = {}  # of versions that were asked for
        self._logs: dict[str, WrittenLog] = {}
        self._waiting: list[_Waiting] = []
        self._waiting_bytes = 0
        self._lock = threading.Lock()  # guards the last two
        self._swapped, self._problem = swaps(), ""
        self._wake, self._closed = threading.Event(), False
        self._thread: threading.Thread | None = None

    async def find(self, info: RuntimeInfo, keys: Sequence[KeptKey]) -> Sequence[KeptRow | None]:
        """At once where the disk has not to be asked; nothing before the log is open."""
        log = self._log_of(kept_version(info), info)
        if log is None:
            return [None] * len(keys)
        try:
            return [_found(log, key, may_wait=False) for key in keys]
        except NotCached:
            return await asyncio.to_thread(lambda: [_found(log, key, may_wait=True) for key in keys])

    def keep(self, info: RuntimeInfo, rows: Sequence[tuple[KeptKey, float, OneRow]], counted: Counted) -> None:
        """The thread writes them, a moment later."""
        version = kept_version(info)
        self._log_of(version, info)
        for key, made_unix_s, row in rows:
            packed = pack_kept(key, made_unix_s, row)
            frame = None if packed is None else frame_of(packed)
            if frame is None:
                count_outcome(counted, "unsupported")
                continue
            with self._lock:
                is_full = self._waiting_bytes + len(frame) > _MOST_WAITING_BYTES
                if not is_full:
                    self._waiting.append(_Waiting(version, frame, counted))
                    self._waiting_bytes += len(frame)
            if is_full:
                count_outcome(counted, "dropped")
        self._wake.set()

    def close(self) -> None:
        """What waits is written."""
        self._closed = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(_CLOSE_S)

    def _log_of(self, version: str, info: RuntimeInfo) -> WrittenLog | None:
        self._infos.setdefault(version, info)
        if self._thread is None and not self._closed:
            self._thread = threading.Thread(target=self._run, name="twoshift-write-back", daemon=True)
            self._thread.start()
        return self._logs.get(version)

    def _run(self) -> None:
        while not self._closed:
            self._turn()
            self._wake.wait(_FOLLOW_S)
            self._wake.clear()
        self._turn()
        for log in self._logs.values():
            log.close()

    def _turn(self) -> None:
        with self._lock:
            waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        is_swapped = (swaps := self._swaps()) != self._swapped
        self._swapped = swaps
        for version, info in [*self._infos.items()]:
            rows = [each for each in waiting if each.version == version]
            try:
                self._serve(version, info, rows, is_swapped)
                self._problem = ""
            except (OSError, Broken) as error:
                for each in rows:
                    count_outcome(each.counted, "failed")
                told = f"answers computed live cannot be written back to {self._folder}: {error}"
                self._tell(f"{told}; check this folder and its disk")

    def _serve(self, version: str, info: RuntimeInfo, rows: Sequence[_Waiting], is_swapped: bool) -> None:
        log = self._logs.get(version)
        if log is None:
            log = self._logs[version] = WrittenLog(self._folder / f"{version}.log", self._limit_bytes)
        log.follow()
        if log.is_full or (is_swapped and not log.is_empty):
            log.compact(lambda row: self._keeps(info, row))
        if rows:
            log.append([each.frame for each in rows])
            for each in rows:
                count_outcome(each.counted, "kept")
            log.follow()

    def _tell(self, why: str) -> None:
        """Once, and not ten times a second."""
        if why != self._problem:
            _logger.warning("%s", why)
        self._problem = why


def _found(log: WrittenLog, key: KeptKey, may_wait: bool) -> KeptRow | None:
    try:
        return log.find(key, may_wait)
    except Broken:  # it is computed again
        return None
