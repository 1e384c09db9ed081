"""Where a job may read and write, whatever it calls the place."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import BinaryIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twoshift.blobs.confined import ConfinedBlobs
from twoshift.blobs.local import LocalBlobs
from twoshift.blobs.roots import Roots, check_root
from twoshift.errors import InvalidInput

RED = Roots(("/data/red", "s3://both/red"), ("/data/blue", "s3://both/blue", "/data/red/home"))


@pytest.mark.parametrize(
    "place",
    ["/data/red", "/data/red/", "/data/red/a b/c%41.jsonl", "/data/red//x", "s3://both/red/x", "s3://both/red/a=%3A/x"],
)
def test_what_lies_below_is_its_own(place: str) -> None:
    assert RED.holds(place)
    RED.check(place)


@pytest.mark.parametrize(
    "place",
    [
        "", "/", "/data", "/data/redder/x", "/data/blue/x", "data/red/x", "./data/red", "/data/red/../blue/x",
        "/data/red/./x", "/data/red/%2e%2e/blue", "/data/red/%252E%252e/blue", "/data/red/..%2fblue",
        "/data/red/..\\blue", "/data/red/x\n", "/data/red/x\0", "/data/red/\x7f", "/data/red/\ud800",
        "/data/red/home", "/data/red/home/fleet.db", "file:///data/red/x", "s3://both/redder/x", "s3://both",
        "s3://both/blue/x", "s3://both/red/../blue/x", "s3://both/red/%2e%2e/blue/x", "S3://both/red/x",
        "http://169.254.169.254/latest", "s3://169.254.169.254/x", "@/data/red/list", "~/x",
        "/data/red/%" + "25" * 20 + "2e",
    ],
)  # fmt: skip
def test_everything_else_is_refused_with_where_it_may_go(place: str) -> None:
    assert not RED.holds(place)
    with pytest.raises(InvalidInput, match="/data/red, s3://both/red") as told:
        RED.check(place, "output")
    assert told.value.field == "output"
    assert "blue" not in told.value.accepted


def test_the_deepest_root_says_whose_a_place_is() -> None:
    house = Roots(("/data",), ("/data/red",))
    assert house.holds("/data/shared/x")
    assert not house.holds("/data/red/x")
    inner = Roots(("/home/files/red",), ("/home",))
    assert inner.holds("/home/files/red/file-1")
    assert not inner.holds("/home/files/blue/file-1")
    assert not Roots(()).holds("/data/x")


_PARTS = st.lists(st.sampled_from(["..", ".", "red", "blue", "%2e%2e", "%2E.", "a", "", "..%2f.."]), max_size=6)


@given(_PARTS)
def test_no_spelling_leads_out_of_a_root(parts: list[str]) -> None:
    place = "/".join(["/data/red", *parts])
    if RED.holds(place):
        real = os.path.realpath(place)
        assert real == "/data/red" or real.startswith("/data/red/")


@pytest.mark.parametrize(
    "root",
    ["", "data", "s3://", "s3:///x", "http://x/y", "/data/../etc", "/data\n", "nats://", "nats://me@host:4222/docs"],
)
def test_a_root_that_is_none_is_refused(root: str) -> None:
    with pytest.raises(InvalidInput, match="job_roots"):
        check_root(root, "job_roots")


def test_a_root_of_a_broker_holds_its_subjects_or_the_one_that_it_names() -> None:
    roots = Roots(("nats://broker:4222/red", "kafka://a:9092,b:9092"))
    for root in roots.own:
        check_root(root, "job_roots")
    assert roots.holds("nats://broker:4222/red")
    assert roots.holds("kafka://a:9092,b:9092/docs")
    for other in ("nats://broker:4222/reds", "nats://broker:4222/>", "nats://broker:42221/red", "kafka://a:9092/docs"):
        assert not roots.holds(other)


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    for name in ("red", "blue"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "in.txt").write_text(name)
    return tmp_path / "red", tmp_path / "blue"


def confined(root: Path, inner: LocalBlobs | None = None) -> ConfinedBlobs:
    return ConfinedBlobs(inner or LocalBlobs(), Roots((str(root),)))


def test_files_below_are_as_they_are_anywhere(folders: tuple[Path, Path]) -> None:
    red, _ = folders
    blobs = pickle.loads(pickle.dumps(confined(red)))  # noqa: S301 - as it goes to a replica
    assert blobs.read(f"{red}/in.txt") == b"red"
    assert blobs.read(f"{red}/none.txt") is None
    assert [blob.location for blob in blobs.list(str(red))] == [f"{red}/in.txt"]
    blobs.write(f"{red}/a.txt", b"a")
    assert blobs.create(f"{red}/b.txt", b"b")
    staged = blobs.staging(f"{red}/c.txt") / "c"
    staged.write_bytes(b"c")
    assert blobs.publish(staged, f"{red}/c.txt")
    assert blobs.names(str(red)) == {"in.txt", "a.txt", "b.txt", "c.txt"}
    blobs.delete(f"{red}/a.txt")
    with blobs.open(f"{red}/c.txt") as file:
        assert file.read() == b"c"


def test_links_lead_nowhere(folders: tuple[Path, Path]) -> None:
    red, blue = folders
    (red / "link").symlink_to(blue)
    (red / "file").symlink_to(blue / "in.txt")
    blobs = confined(red)
    for tried in (
        lambda: blobs.stat(f"{red}/file"),
        lambda: blobs.open(f"{red}/link/in.txt"),
        lambda: blobs.read(f"{red}/file"),
        lambda: blobs.names(f"{red}/link"),
        lambda: blobs.write(f"{red}/link/x", b""),
        lambda: blobs.create(f"{red}/link/x", b""),
        lambda: blobs.staging(f"{red}/link/x"),
        lambda: blobs.publish(red / "in.txt", f"{red}/link/x"),
        lambda: blobs.delete(f"{red}/link/in.txt"),
    ):
        with pytest.raises(InvalidInput, match="below"):
            tried()
    assert [blob.location for blob in blobs.list(str(red))] == [f"{red}/in.txt"]
    assert (blue / "in.txt").read_text() == "blue"
    assert list(blue.iterdir()) == [blue / "in.txt"]


class Swapped(LocalBlobs):
    """Somebody puts a link in a file's place after its name was looked at."""

    def __init__(self, to: Path) -> None:
        self.to = to

    def open(self, location: str) -> BinaryIO:
        Path(location).unlink()
        Path(location).symlink_to(self.to)
        return super().open(location)


def test_a_link_that_comes_after_the_look_is_found_in_the_open_file(folders: tuple[Path, Path]) -> None:
    red, blue = folders
    for tried in (ConfinedBlobs.open, ConfinedBlobs.read):
        (red / "x.txt").write_text("mine")
        with pytest.raises(InvalidInput, match="replaced by a symbolic link"):
            tried(confined(red, Swapped(blue / "in.txt")), f"{red}/x.txt")
        (red / "x.txt").unlink()
