"""One suite for every place where inputs lie and results go: local folders, and buckets by servers that stand in."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from cloud_servers import azure_server, azure_variables, gcs_server, make_container
from s3_server import CREDENTIALS, make_bucket, moto_server, put_raw

from twoshift.blobs.local import LocalBlobs
from twoshift.errors import InvalidInput
from twoshift.ports import Blobs
from twoshift.wiring.blob_stores import blobs_for

HARD_NAMES = [
    "a b.txt",
    "ü.txt",
    "日本語.txt",
    "x#y.txt",
    "p%20q.txt",
    "100%.txt",
    "a+b.txt",
    "q?r=1&s.txt",
    "~.txt",
    "'.txt",
]


@dataclass(frozen=True)
class Place:
    blobs: Blobs
    root: str

    def at(self, name: str) -> str:
        return f"{self.root}/{name}"

    def staged(self, location: str, data: bytes) -> Path:
        path = self.blobs.staging(location) / uuid.uuid4().hex
        path.write_bytes(data)
        return path

    def publish(self, name: str, data: bytes) -> bool:
        return self.blobs.publish(self.staged(self.at(name), data), self.at(name))


@pytest.fixture(scope="module")
def s3_endpoint() -> Iterator[str]:
    pytest.importorskip("obstore")
    with moto_server() as endpoint:
        yield endpoint


@pytest.fixture
def s3(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Place:
    bucket = f"bucket-{uuid.uuid4().hex}"
    make_bucket(s3_endpoint, bucket)
    for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": s3_endpoint}.items():
        monkeypatch.setenv(name, value)
    root = f"s3://{bucket}/out"
    return Place(blobs_for(root), root)


@pytest.fixture(scope="module")
def gcs_endpoint() -> Iterator[str]:
    pytest.importorskip("obstore")
    with gcs_server() as endpoint:
        yield endpoint


@pytest.fixture
def gs(gcs_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Place:
    bucket = f"bucket-{uuid.uuid4().hex}"
    make_bucket(gcs_endpoint, bucket)
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs_endpoint)
    return Place(blobs_for("gs://"), f"gs://{bucket}/out")


@pytest.fixture(scope="module")
def azure_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    pytest.importorskip("obstore")
    with azure_server(tmp_path_factory.mktemp("azurite")) as endpoint:
        yield endpoint


@pytest.fixture
def az(azure_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Place:
    container = f"box-{uuid.uuid4().hex}"
    make_container(azure_endpoint, container)
    for name, value in azure_variables(azure_endpoint).items():
        monkeypatch.setenv(name, value)
    return Place(blobs_for("az://"), f"az://{container}/out")


@pytest.fixture(params=["local", "s3", "gs", "az"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param != "local":
        return request.getfixturevalue(request.param)
    return Place(LocalBlobs(), str(tmp_path / "out"))


def test_what_was_written_is_read_whole_and_in_ranges(place: Place) -> None:
    data = os.urandom(20_000_000)
    assert place.publish("large", data)
    blob = place.blobs.stat(place.at("large"))
    assert blob is not None
    assert (blob.location, blob.size_bytes) == (place.at("large"), len(data))
    with place.blobs.open(place.at("large")) as file:
        assert (file.seekable(), file.readable()) == (True, True)
        assert file.seek(-8, os.SEEK_END) == len(data) - 8
        assert file.read() == data[-8:]
        assert file.read(1) == b""
        assert file.seek(5_000_000) == 5_000_000
        assert file.read(3_000_001) == data[5_000_000:8_000_001]
        assert file.tell() == 8_000_001
        assert file.seek(0) == 0
        chunks = [file.read(700_001) for _ in range(40)]
    assert b"".join(chunks) == data


def test_a_text_is_read_by_lines(place: Place) -> None:
    lines = [b"%d %s\n" % (number, b"x" * (number % 97)) for number in range(100_000)]
    place.blobs.write(place.at("text"), b"".join(lines))
    with place.blobs.open(place.at("text")) as file:
        assert list(file) == lines


def test_an_empty_file_is_a_file(place: Place) -> None:
    assert place.publish("empty", b"")
    assert place.blobs.read(place.at("empty")) == b""
    blob = place.blobs.stat(place.at("empty"))
    assert blob is not None
    assert blob.size_bytes == 0
    with place.blobs.open(place.at("empty")) as file:
        assert file.read() == b""
    assert place.blobs.list(place.root) == [blob]
    assert not place.publish("empty", b"more")


def test_what_is_not_there_is_not_there(place: Place) -> None:
    place.blobs.write(place.at("file"), b"1")
    for name in ("none", "none/below", "file/below", "fil"):
        assert place.blobs.stat(place.at(name)) is None
        assert place.blobs.read(place.at(name)) is None
        place.blobs.delete(place.at(name))
        with pytest.raises(InvalidInput) as caught:
            place.blobs.open(place.at(name))
        assert caught.value.value == place.at(name)
    for folder in ("none", "fil", "file"):
        with pytest.raises(InvalidInput):
            place.blobs.list(place.at(folder))
    assert place.blobs.names(place.at("none")) == set()
    assert place.blobs.stat(place.root) is None  # a folder is no file


@pytest.mark.parametrize("name", HARD_NAMES)
def test_names_are_taken_as_they_are(place: Place, name: str) -> None:
    assert place.publish(f"a folder/{name}", b"1")
    assert not place.blobs.create(place.at(f"a folder/{name}"), b"2")
    assert place.blobs.names(place.at("a folder")) == {name}
    assert [blob.location for blob in place.blobs.list(place.root)] == [place.at(f"a folder/{name}")]
    assert place.blobs.read(place.at(f"a folder/{name}")) == b"1"
    with place.blobs.open(place.at(f"a folder/{name}")) as file:
        assert file.read() == b"1"
    place.blobs.delete(place.at(f"a folder/{name}"))
    assert place.blobs.names(place.at("a folder")) == set()


def test_a_folder_is_no_prefix_of_a_name(place: Place) -> None:
    for name in ("a/b/1", "a/b/c/2", "a/bc/3", "a/b.4"):
        place.blobs.write(place.at(name), name.encode())
    for prefix in ("a/b", "a/b/"):
        found = [blob.location for blob in place.blobs.list(place.at(prefix))]
        assert found == [place.at("a/b/1"), place.at("a/b/c/2")]
        assert place.blobs.names(place.at(prefix)) == {"1"}
    assert [blob.location for blob in place.blobs.list(place.at("a"))] == sorted(
        place.at(name) for name in ("a/b/1", "a/b/c/2", "a/bc/3", "a/b.4")
    )
    assert place.blobs.names(place.at("a")) == {"b.4"}


def test_thousands_of_parts_are_listed(place: Place) -> None:
    names = {f"part-{number:06d}.parquet" for number in range(1_100)}  # a page of a listing has 1,000
    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(lambda name: place.blobs.create(place.at(name), name.encode()), names))
    assert place.blobs.names(place.root) == names
    listed = place.blobs.list(place.root)
    assert [blob.location for blob in listed] == [place.at(name) for name in sorted(names)]
    assert listed[7] == place.blobs.stat(listed[7].location)


def test_the_identity_changes_with_the_content(place: Place) -> None:
    seen = set()
    for data in (b"1", b"2", b"33", b""):
        place.blobs.write(place.at("x"), data)
        blob = place.blobs.stat(place.at("x"))
        assert blob is not None
        assert blob == place.blobs.stat(place.at("x"))
        seen.add(blob.identity)
        assert place.blobs.read(place.at("x")) == data
    assert len(seen) == 4


def test_what_exists_is_neither_created_nor_published_again(place: Place) -> None:
    assert place.publish("part", b"first")
    staged = place.staged(place.at("part"), b"second")
    assert not place.blobs.publish(staged, place.at("part"))
    assert not staged.exists()
    assert not place.blobs.create(place.at("part"), b"third")
    assert not place.publish("part", b"first")  # nor where the bytes are the same
    assert place.blobs.read(place.at("part")) == b"first"


@pytest.mark.parametrize("size", [0, 1000, 40_000_000])
def test_a_large_file_is_written_whole_in_chunks_or_not_at_all(place: Place, size: int) -> None:
    data = os.urandom(size)

    def chunks() -> Iterator[bytes]:
        yield from (data[start : start + 3_000_000] for start in range(0, size, 3_000_000))

    def broken() -> Iterator[bytes]:
        yield from chunks()
        raise RuntimeError("the source has changed")

    with pytest.raises(RuntimeError, match="the source has changed"):
        place.blobs.write_large(place.at("x"), broken, size)
    assert place.blobs.stat(place.at("x")) is None
    for _ in range(2):
        place.blobs.write_large(place.at("x"), chunks, size)
        assert place.blobs.read(place.at("x")) == data
    assert place.blobs.names(place.root) == {"x"}


def test_a_file_gets_its_name_after_its_bytes_or_none_or_nothing_was_read(place: Place) -> None:
    def chunks(read: list[bytes]) -> Iterator[bytes]:
        for each in (b"one", b"two"):
            read.append(each)
            yield each

    read, unread = list[bytes](), list[bytes]()
    can = place.blobs.write_unnamed(place.root, chunks(read), lambda: place.at(f"below/{len(read)}"))
    assert place.blobs.write_unnamed(place.root, chunks(unread), lambda: None) is can
    assert len(read) == len(unread) == (2 if can else 0)
    assert place.blobs.read(place.at("below/2")) == (b"onetwo" if can else None)
    assert place.blobs.names(place.root) == set()


def test_a_deleted_file_may_be_created_again(place: Place) -> None:
    assert place.blobs.create(place.at("x"), b"1")
    place.blobs.delete(place.at("x"))
    place.blobs.delete(place.at("x"))
    assert place.blobs.create(place.at("x"), b"2")
    assert place.blobs.read(place.at("x")) == b"2"


@pytest.mark.parametrize("same", [False, True], ids=["other bytes", "same bytes"])
def test_of_twenty_publishers_exactly_one_wins(place: Place, same: bool) -> None:
    together = threading.Barrier(20)

    def publish(number: int) -> bool:
        data = b"the same" if same else b"%d" % number * 10_000
        staged = place.staged(place.at("part"), data)
        together.wait()
        return place.blobs.publish(staged, place.at("part"))

    for _ in range(5):
        with ThreadPoolExecutor(20) as threads:
            won = list(threads.map(publish, range(20)))
        assert won.count(True) == 1
        expected = b"the same" if same else b"%d" % won.index(True) * 10_000
        assert place.blobs.read(place.at("part")) == expected
        assert list(place.blobs.staging(place.at("part")).iterdir()) == []
        place.blobs.delete(place.at("part"))


def test_what_is_staged_is_not_seen(place: Place) -> None:
    assert place.publish("part-0", b"0")
    staged = place.staged(place.at("part-1"), b"1")
    assert place.blobs.names(place.root) == {"part-0"}
    shown = [blob.location.removeprefix(f"{place.root}/") for blob in place.blobs.list(place.root)]
    assert [name for name in shown if not name.startswith("_twoshift/")] == ["part-0"]
    assert place.blobs.publish(staged, place.at("part-1"))
    assert place.blobs.names(place.root) == {"part-0", "part-1"}


def test_pyarrow_reads_parquet_from_it(place: Place) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pa.table({"id": list(range(200_000)), "text": [f"row {number}" for number in range(200_000)]})
    staged = place.blobs.staging(place.at("part.parquet")) / "staged"
    parquet.write_table(table, staged, row_group_size=20_000)
    assert place.blobs.publish(staged, place.at("part.parquet"))
    with place.blobs.open(place.at("part.parquet")) as file:
        opened = parquet.ParquetFile(file)
        assert opened.num_row_groups == 10
        assert opened.read_row_group(7, columns=["id"]) == table.select(["id"]).slice(140_000, 20_000).combine_chunks()
        assert opened.read() == table


def test_a_console_s_folder_marks_are_no_files(s3: Place, s3_endpoint: str) -> None:
    bucket = s3.root.split("/")[2]
    for key in ("out/", "out/sub/", "out/sub/empty/"):
        put_raw(s3_endpoint, bucket, key, b"")
    with pytest.raises(InvalidInput):
        s3.blobs.list(s3.root)
    s3.blobs.write(s3.at("sub/file"), b"1")
    assert [blob.location for blob in s3.blobs.list(s3.root)] == [s3.at("sub/file")]
    assert s3.blobs.names(s3.root) == set()
    assert s3.blobs.names(s3.at("sub")) == {"file"}


def test_a_whole_bucket_is_a_folder(s3: Place) -> None:
    s3.blobs.write(s3.at("file"), b"1")
    bucket = s3.root.removesuffix("/out")
    for prefix in (bucket, f"{bucket}/"):
        assert [blob.location for blob in s3.blobs.list(prefix)] == [s3.at("file")]
        assert s3.blobs.names(prefix) == set()
