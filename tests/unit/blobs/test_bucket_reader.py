from __future__ import annotations

import io
import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twoshift.blobs import bucket_reader
from twoshift.errors import TryLater

MB = 1 << 20


class Asked:
    """Stands for an object, and remembers the ranges."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.ranges: list[tuple[int, int]] = []

    def __call__(self, start: int, stop: int) -> memoryview:
        self.ranges.append((start, stop))
        return memoryview(self.data)[start:stop]


@pytest.fixture(scope="module")
def threads():
    with ThreadPoolExecutor(2) as threads:
        yield threads


def test_nothing_is_asked_for_before_it_is_read(threads: ThreadPoolExecutor) -> None:
    asked = Asked(b"x" * 100)
    with bucket_reader.opened(asked, 100, threads) as file:
        file.seek(0, os.SEEK_END)
        assert file.read() == b""
    assert asked.ranges == []


def test_a_parquet_reader_s_jumps_ask_for_no_more_than_a_buffer(threads: ThreadPoolExecutor) -> None:
    asked = Asked(os.urandom(20 * MB))
    with bucket_reader.opened(asked, 20 * MB, threads) as file:
        for at in (19 * MB, 4 * MB, 12 * MB):
            file.seek(at)
            assert file.read(100) == asked.data[at : at + 100]
    assert asked.ranges == [(at, at + MB) for at in (19 * MB, 4 * MB, 12 * MB)]


def test_who_reads_through_is_read_ahead_of_in_growing_steps(threads: ThreadPoolExecutor) -> None:
    asked = Asked(os.urandom(40 * MB))
    with bucket_reader.opened(asked, 40 * MB, threads) as file:
        assert b"".join(iter(lambda: file.read(MB), b"")) == asked.data
    sizes = [(stop - start) // MB for start, stop in sorted(asked.ranges)]
    assert sizes == [1, 1, 2, 4, 8, 8, 8, 8]
    assert sum(sizes) == 40  # each byte once


def test_a_failure_ahead_is_raised_where_it_is_read(threads: ThreadPoolExecutor) -> None:
    def fetch(start: int, stop: int) -> memoryview:
        if stop > 2 * MB:
            raise TryLater("the endpoint is away", 1.0)
        return memoryview(bytes(stop - start))

    with bucket_reader.opened(fetch, 10 * MB, threads) as file:
        assert len(file.read(2 * MB)) == 2 * MB
        for _ in range(2):  # and again where it is tried again
            with pytest.raises(TryLater, match="away"):
                file.read(MB)


def test_there_is_nothing_before_the_beginning(threads: ThreadPoolExecutor) -> None:
    raw = bucket_reader._RangeReader(Asked(b"123"), 3, threads)
    with pytest.raises(ValueError, match="before the start"):
        raw.seek(-4, os.SEEK_END)


@given(
    st.binary(max_size=300),
    st.lists(st.tuples(st.sampled_from([0, 1, 2]), st.integers(0, 320), st.integers(-1, 320)), max_size=30),
)
def test_it_reads_as_a_file_in_memory_does(data: bytes, steps: list[tuple[int, int, int]]) -> None:
    plain = io.BytesIO(data)
    with ThreadPoolExecutor(1) as pool, pytest.MonkeyPatch.context() as patch:
        patch.setattr(bucket_reader, "_BUFFER_BYTES", 16)
        patch.setattr(bucket_reader, "_MOST_AHEAD_BYTES", 64)
        with bucket_reader.opened(Asked(data), len(data), pool) as file:
            for kind, at, size in steps:
                if kind == 0:
                    assert file.seek(at) == plain.seek(at)
                assert file.read(size) == plain.read(size)
                assert file.tell() == plain.tell()
