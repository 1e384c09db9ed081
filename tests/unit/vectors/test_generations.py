"""Generations and pointers: switched to once, in order, and never back."""

from __future__ import annotations

from pathlib import Path

import pytest

from twoshift.blobs.local import LocalBlobs
from twoshift.errors import Broken
from twoshift.vectors.generations import (
    Generation,
    current,
    files_location,
    is_switched,
    manifest_location,
    prune,
    read_generation,
    switch,
)


def made(name: str, **recall: float) -> Generation:
    return Generation(
        name=name, library="usearch", metric="cos", dims=2, rows=3, left_out={}, key=None, model="m", checksum="c",
        precision="fp32", output="out", files={}, recall={int(effort[1:]): found for effort, found in recall.items()},
        sampled=3, build_s=2.0, memory_bytes=1,
    )  # fmt: skip


def test_the_last_switch_counts_and_uses_the_least_effort_that_is_enough(tmp_path: Path) -> None:
    blobs, index = LocalBlobs(), str(tmp_path)
    assert current(blobs, index) is None
    assert switch(blobs, index, made("a", e8=0.9, e16=0.96, e32=0.99), 0.95)
    found = current(blobs, index)
    assert found is not None
    assert (found.generation, found.effort, found.recall) == ("a", 16, 0.96)
    assert switch(blobs, index, made("b", e8=0.97), 0.95)
    assert (now := current(blobs, index)) is not None
    assert now.generation == "b"


def test_a_job_that_is_resumed_late_does_not_switch_back(tmp_path: Path) -> None:
    blobs, index, old = LocalBlobs(), str(tmp_path), made("a", e8=1.0)
    switch(blobs, index, old, 0.95)
    switch(blobs, index, made("b", e8=1.0), 0.95)
    assert switch(blobs, index, old, 0.95)
    assert (now := current(blobs, index)) is not None
    assert now.generation == "b"
    assert len([*tmp_path.glob("current-*")]) == 2


def test_a_generation_with_too_little_recall_is_not_switched_to(tmp_path: Path) -> None:
    blobs, index, poor = LocalBlobs(), str(tmp_path), made("b", e8=0.5, e16=0.9)
    switch(blobs, index, made("a", e8=1.0), 0.95)
    assert not switch(blobs, index, poor, 0.95)
    assert (now := current(blobs, index)) is not None
    assert now.generation == "a"
    assert not is_switched(blobs, index, "b", 0.95)
    assert switch(blobs, index, poor, 0.9)  # as its user wants it then
    assert is_switched(blobs, index, "b", 0.9)
    assert not is_switched(blobs, index, "b", 0.95)


def test_the_files_of_old_generations_go_and_their_pointers_stay(tmp_path: Path) -> None:
    blobs, index = LocalBlobs(), str(tmp_path)
    for name in "abc":
        path = Path(files_location(index, name, "1/vectors.usearch"))
        path.parent.mkdir(parents=True)
        path.write_bytes(b"x")
        switch(blobs, index, made(name, e8=1.0), 0.95)
        prune(blobs, index)
    assert sorted(path.parts[-3] for path in tmp_path.rglob("vectors.usearch")) == ["b", "c"]
    assert is_switched(blobs, index, "a", 0.95)


def test_a_damaged_manifest_or_pointer_is_named(tmp_path: Path) -> None:
    blobs, index = LocalBlobs(), str(tmp_path)
    blobs.create(manifest_location(index, "a"), b"{")
    with pytest.raises(Broken, match=r"a/index\.json is damaged"):
        read_generation(blobs, index, "a")
    blobs.create(f"{index}/current-000001.json", b"")
    with pytest.raises(Broken, match=r"current-000001\.json is damaged"):
        current(blobs, index)
