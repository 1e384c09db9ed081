"""Claims and signs of life in a folder, as processes of one job find them."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from twoshift.batch.inputs import InputFile, Piece
from twoshift.batch.piece_settings import piece_of
from twoshift.batch.piece_share import PieceShare
from twoshift.batch.plan import Plan, PlannedModel, RowFigures, part_location
from twoshift.batch.presence import PieceProcess, Presence
from twoshift.batch.settings import JobSettings
from twoshift.blobs.local import LocalBlobs
from twoshift.errors import InvalidInput
from twoshift.policy.leases import Lease, ShardLimits
from twoshift.ports import RuntimeInfo

INFO = RuntimeInfo("m", "sum", "fake", "cpu", "fp32", 1, ("y",))
SHARDS = 8


class Process:
    """One of several that work on a folder, by hand."""

    now_s = 0.0

    def __init__(self, folder: Path, piece: str) -> None:
        settings = JobSettings(inputs=("in",), output=str(folder), model="m", piece=piece)
        pieces = tuple((Piece(0, 10 * k, 10 * (k + 1), 10, 100),) for k in range(SHARDS))
        file, schema = InputFile("in", 100, "1", "parquet"), pa.schema([pa.field("error", pa.string())])
        self.plan = Plan.make(settings, PlannedModel.of(INFO), (file,), pieces, schema, RowFigures(0.1))
        self.blobs, self.file = LocalBlobs(), folder / "_twoshift" / "pieces"
        self.presence = Presence(self.blobs, str(folder), piece, every_s=3600.0)
        self.presence.start()
        self.share = PieceShare(self.plan, self.blobs, self.presence, lambda: self.now_s)
        self.shards = self.share.policy(SHARDS, ShardLimits(), set())

    def take(self) -> int | None:
        self.share.make_ready(self.now_s)
        lease = self.shards.lease("worker", self.now_s)
        return lease.shard if isinstance(lease, Lease) else None

    def commit(self, shard: int) -> None:
        self.blobs.create(part_location(self.plan, shard), b"")

    def look_at(self, now_s: float) -> list[int]:
        self.now_s = now_s
        return list(self.share.follow(dict, now_s))

    def fail(self, why: str) -> int:
        """The next shard that it takes; with that it cannot be done."""
        self.share.make_ready(self.now_s)
        lease = self.shards.lease("worker", self.now_s)
        assert isinstance(lease, Lease)
        self.shards.failed(lease, self.now_s, permanent=True)
        list(self.share.follow(lambda: dict.fromkeys(self.shards.dead_shards(), why), self.now_s))
        return lease.shard

    def seem(self, **changed: Any) -> None:
        """What others read of it."""
        path = self.file / f"{self.presence.name}.json"
        told = msgspec.json.decode(path.read_bytes(), type=PieceProcess)
        path.write_bytes(msgspec.json.encode(msgspec.structs.replace(told, beat=told.beat + 1, **changed)))


@pytest.fixture
def pair(tmp_path: Path) -> Any:
    made = [Process(tmp_path, "0/2"), Process(tmp_path, "1/2")]
    for each in made:
        each.seem(host="elsewhere")  # as pods are
    yield made
    for each in made:
        each.presence.close()


def test_two_processes_take_each_shard_once(pair: list[Process]) -> None:
    one, two = pair
    assert [one.take() for _ in range(6)] == [0, 1, 2, 3, 7, 6]  # and then from the end of the other's share
    assert [two.take() for _ in range(3)] == [4, 5, None]
    one.look_at(0.0)
    assert one.share.processes == 2


def test_what_a_silent_process_has_begun_is_taken_over_and_what_a_living_one_has_is_not(pair: list[Process]) -> None:
    one, two = pair
    assert [two.take() for _ in range(SHARDS)] == [4, 5, 6, 7, 3, 2, 1, 0]
    one.look_at(0.0)
    assert one.take() is None
    one.look_at(59.0)
    two.seem()
    one.look_at(80.0)
    assert one.take() is None
    one.look_at(141.0)
    assert one.take() == 0
    assert one.share.processes == 1


def test_what_a_process_that_ended_has_begun_is_taken_over_at_once(pair: list[Process]) -> None:
    one, two = pair
    assert [two.take() for _ in range(SHARDS)][-1] == 0
    two.presence.close()
    one.look_at(0.0)
    assert one.take() == 0


def test_a_process_of_this_machine_that_is_no_more_is_not_waited_for(pair: list[Process]) -> None:
    one, two = pair
    assert [two.take() for _ in range(SHARDS)][-1] == 0
    two.seem(host=socket.gethostname(), pid=2**22 + 1)  # beyond what Linux gives
    one.look_at(0.0)
    assert one.take() == 0


def test_a_restarted_pod_has_the_host_and_the_piece_of_the_one_before_it(pair: list[Process]) -> None:
    one, two = pair
    assert [two.take() for _ in range(SHARDS)][-1] == 0
    two.seem(host=socket.gethostname(), namespace="pid:[1]")
    one.look_at(0.0)
    assert one.take() is None  # pods of one machine, whose name they have
    two.seem(piece="0/2")
    one.look_at(20.0)
    assert one.take() == 0


def test_parts_of_others_are_news_once(pair: list[Process]) -> None:
    one, two = pair
    two.commit(5)
    assert one.look_at(0.0) == [5]
    assert one.look_at(100.0) == []
    assert [one.take() for _ in range(7)] == [0, 1, 2, 3, 7, 6, 4]


def test_a_shard_that_another_could_not_do_is_not_tried_by_all(pair: list[Process]) -> None:
    one, two = pair
    one.look_at(0.0)
    assert two.fail("the file is damaged") == 4
    two.seem(host="elsewhere")
    one.look_at(20.0)
    assert [one.take() for _ in range(8)] == [0, 1, 2, 3, 7, 6, 5, None]
    assert one.share.dead_elsewhere == {4: "the file is damaged"}
    assert one.shards.dead_shards() == [4]


def test_the_same_command_again_tries_what_a_process_before_it_could_not_do(tmp_path: Path) -> None:
    before = Process(tmp_path, "0/1")
    assert before.fail("the file is damaged") == 0
    before.presence.close()
    again = Process(tmp_path, "0/1")
    again.look_at(0.0)
    assert again.take() == 0
    again.presence.close()


def test_the_end_is_written_by_one_of_them(pair: list[Process]) -> None:
    one, two = pair
    assert [one.share.can_end(), two.share.can_end()] == [True, False]
    one.presence.close()
    two.now_s = 20.0
    assert two.share.can_end()  # the first has ended without an end


@pytest.mark.parametrize("piece", ["16/16", "3", "-1/16", "3/0", "/16", "a/b", "1/10001", ""])
def test_a_piece_that_there_is_not_is_refused(piece: str) -> None:
    with pytest.raises(InvalidInput, match="piece"):
        piece_of(piece)


@pytest.mark.parametrize(
    ("setting", "value", "told"),
    [
        ("query", "select 1", "--query"),
        ("into", "out.duckdb", "twoshift load"),
        ("against", "m:2", "--against"),
        ("engine", "ray", "with --engine ray"),
        ("piece_seconds", 1.0, "at least 2 seconds"),
    ],
)
def test_what_a_job_in_pieces_cannot_have_is_refused(setting: str, value: Any, told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        JobSettings(**{"inputs": ("in",), "output": "out", "model": "m", "piece": "0/2", setting: value})
