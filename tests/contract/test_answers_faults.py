"""A disk that is full, under tables of answers and under what is written back: what was there answers."""

from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pytest

from twoshift.answers.following import FollowedAnswers
from twoshift.answers.generations import FolderTables, Generation
from twoshift.answers.kept_rows import KeptKey, pack_kept
from twoshift.answers.keys import KeyKind
from twoshift.answers.layout import ColumnLayout
from twoshift.answers.written_log import WrittenLog, frame_of
from twoshift.blobs.local import LocalBlobs
from twoshift.errors import TryLater

DISK_BYTES = 1 << 20
BLOBS = LocalBlobs()


def test_a_table_that_the_disk_cannot_hold_leaves_the_one_before_and_nothing_of_itself(small_disk: Path) -> None:
    place = str(small_disk / "answers")
    followed = FollowedAnswers(place, "id", lambda _: BLOBS, None)

    def put(name: str, rows: int) -> None:
        asked = Generation(
            name=name, key="id", kind=KeyKind.TEXT, columns=(ColumnLayout("score", "<f8"),), model="m", checksum="c",
            precision="fp32", too_long="cut", prompt_name=None, text=None, output="out",
        )  # fmt: skip
        pairs = [(b"%d" % number, name.encode()) for number in range(rows)]
        FolderTables(BLOBS, place).commit(asked, lambda writer: writer.add(pairs, 7.0))
        followed.look()

    def value() -> bytes:
        now = followed.now()
        record = None if now is None else now.table.find(b"1")
        assert record is not None
        return record.data[record.at :]

    put("first", 100)
    used = sum(each.stat().st_size for each in small_disk.rglob("*.bin"))
    with pytest.raises(TryLater, match="is full: free some disk space"):
        put("large", 100_000)
    followed.look()
    assert value() == b"first"
    assert sum(each.stat().st_size for each in small_disk.rglob("*.bin")) == used
    put("second", 100)
    assert value() == b"second"


def test_a_log_on_a_full_disk_keeps_what_it_has_and_goes_on_once_there_is_room(small_disk: Path) -> None:
    (small_disk / "other").write_bytes(b"x" * (DISK_BYTES // 2))
    log, count = WrittenLog(small_disk / "written" / "v.log", 1 << 30), 0

    def frame(number: int) -> bytes:
        row = pack_kept(KeptKey(b"%d" % number, b"d" * 16), 5.0, {"v": np.full((1, 700), number, np.float64)})
        made = None if row is None else frame_of(row)
        assert made is not None
        return made

    with pytest.raises(OSError) as raised:  # noqa: PT011, PT012 - by its number, whichever of them it is
        while True:
            log.append([frame(count)])
            count += 1
    assert raised.value.errno == errno.ENOSPC
    log.follow()
    with pytest.raises(OSError):  # noqa: PT011 - there is no room to compact it, either
        log.compact(lambda _: True)
    (small_disk / "other").unlink()
    log.append([frame(count + 1)])  # behind a row that was cut short
    log.follow()
    found = [log.find(KeptKey(b"%d" % number, b"d" * 16)) for number in range(count + 2)]
    assert [place for place, row in enumerate(found) if row is None] == [count]
    assert found[-1] is not None
    assert found[-1].columns["v"][0, 0] == count + 1
    log.close()
