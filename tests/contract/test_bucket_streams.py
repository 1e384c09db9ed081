"""Streams from a bucket into a bucket: each row once through restarts, merges, and an endpoint that fails."""

from __future__ import annotations

import io
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from s3_server import CREDENTIALS, FaultProxy, make_bucket, moto_server, put_raw
from streaming import Streaming, running

from twoshift.wiring.blob_stores import blobs_for
from waiting import until

pytestmark = pytest.mark.usefixtures("often")


@pytest.fixture(scope="module")
def proxy() -> Iterator[FaultProxy]:
    pytest.importorskip("obstore")
    with moto_server() as endpoint, pytest.MonkeyPatch.context() as patch:
        proxy = FaultProxy(endpoint)
        make_bucket(endpoint, "bucket")
        for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": proxy.endpoint}.items():
            patch.setenv(name, value)
        patch.setenv("UPSTREAM", endpoint)
        yield proxy
        proxy.close()


class Bucketed(Streaming):
    """An inbox and an output below one prefix of a bucket."""

    name = ""

    def put_object(self, name: str, ids: range, *lines: str) -> None:
        rows = [f'{{"id": {row}, "x": {row}}}' for row in ids]
        data = "".join(f"{line}\n" for line in (*rows, *lines)).encode()
        put_raw(os.environ["UPSTREAM"], "bucket", f"{self.name}/inbox/{name}", data)

    def settings(self, **more: Any) -> Any:
        places = {"source": f"s3://bucket/{self.name}/inbox/", "output": f"s3://bucket/{self.name}/out"}
        return super().settings(**{**places, **more})

    def parts(self) -> list[str]:
        folder = f"s3://bucket/{self.name}/out/"
        return sorted(each for each in blobs_for(folder).names(folder) if each.startswith("part-"))

    def rows(self) -> list[dict[str, Any]]:
        folder = f"s3://bucket/{self.name}/out"
        data = [blobs_for(folder).read(f"{folder}/{name}") or b"" for name in self.parts()]
        return [row for each in data for row in pq.read_table(io.BytesIO(each)).to_pylist()]


@pytest.fixture
def bucketed(proxy: FaultProxy, tmp_path: Path) -> Bucketed:
    proxy.faults.clear()
    made = Bucketed(tmp_path)
    made.name = uuid.uuid4().hex
    return made


def test_objects_are_committed_once_over_several_runs_and_bad_lines_are_dead_letters(bucketed: Bucketed) -> None:
    bucketed.put_object("a.jsonl", range(20), "no json")
    last = bucketed.run()
    assert (last.rows, last.dead_letters) == (21, 1)
    bucketed.put_object("b.jsonl", range(20, 30))
    bucketed.run()
    bucketed.run()
    assert [row["id"] for row in bucketed.rows() if row["error"] is None] == list(range(30))
    assert len(bucketed.parts()) == 2
    dead = f"s3://bucket/{bucketed.name}/out/_dead/"
    assert len(blobs_for(dead).names(dead)) == 1


def test_small_parts_in_a_bucket_are_merged_and_a_restart_knows_what_they_hold(bucketed: Bucketed) -> None:
    for number in range(5):
        bucketed.put_object(f"{number}.jsonl", range(4 * number, 4 * number + 4))
        bucketed.run(compact=2)
    bucketed.check_squares(20)
    assert len(bucketed.parts()) < 5


@pytest.mark.parametrize("fault", ["503", "drop", "lost"])
def test_an_endpoint_that_fails_now_and_then_loses_no_row_and_doubles_none(
    bucketed: Bucketed, proxy: FaultProxy, fault: str
) -> None:
    """`lost`: the request was done, and its answer never came."""
    bucketed.put_object("a.jsonl", range(10))
    stream = bucketed.stream(once=False, fresh=0.5)
    with running(stream):
        until(lambda: stream.counts.snapshot.rows == 10)
        proxy.faults.extend([("PUT", fault), ("PUT", fault), ("GET", fault)])
        bucketed.put_object("b.jsonl", range(10, 30))
        until(lambda: stream.counts.snapshot.rows == 30)
    bucketed.check_squares(30)
    bucketed.put_object("c.jsonl", range(30, 35))
    bucketed.run()
    bucketed.check_squares(35)
