"""Blobs where processes are killed, disks are full and endpoints fail: nothing half there, nothing misreported."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cloud_servers import AZURE_ACCOUNT, azure_server, azure_variables, gcs_server, make_container
from s3_server import CREDENTIALS, FaultProxy, make_bucket, moto_server

from twoshift.blobs.azure import AzureSettings
from twoshift.blobs.bucket import BucketBlobs
from twoshift.blobs.gcs import GcsSettings
from twoshift.blobs.local import LocalBlobs
from twoshift.errors import Broken, InvalidInput, TryLater
from twoshift.ports import Blobs

FAULTS = ["500", "503", "429", "drop", "slow", "lost", "late"]


@pytest.fixture(scope="module")
def proxy() -> Iterator[FaultProxy]:
    pytest.importorskip("obstore")
    with moto_server() as endpoint:
        proxy = FaultProxy(endpoint)
        make_bucket(endpoint, "bucket")
        yield proxy
        proxy.close()


@pytest.fixture
def s3(proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch) -> Blobs:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    proxy.faults.clear()
    proxy.seen.clear()
    return blobs_at(proxy.endpoint)


def blobs_at(endpoint: str, **changed: Any) -> Blobs:
    from twoshift.blobs.s3 import S3Blobs, S3Settings

    settings = S3Settings.from_environment({**CREDENTIALS, "AWS_ENDPOINT_URL": endpoint})
    return S3Blobs(replace(settings, **{"request_timeout_s": 1.0, "retry_for_s": 120.0, **changed}))


def fresh() -> str:
    return f"s3://bucket/{uuid.uuid4().hex}/part"


def staged(blobs: Blobs, location: str, data: bytes) -> Path:
    path = blobs.staging(location) / uuid.uuid4().hex
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("fault", [*FAULTS, "409"])
def test_a_put_that_failed_once_is_ours_all_the_same(s3: Blobs, proxy: FaultProxy, fault: str) -> None:
    location = fresh()
    proxy.faults.append(("PUT", fault))
    assert s3.publish(staged(s3, location, b"ours"), location)
    assert not proxy.faults
    assert s3.read(location) == b"ours"
    assert not s3.publish(staged(s3, location, b"ours"), location)


@pytest.mark.parametrize("fault", [*FAULTS, "409"])
def test_a_put_that_failed_once_is_not_ours_where_another_was_first(s3: Blobs, proxy: FaultProxy, fault: str) -> None:
    location = fresh()
    assert s3.create(location, b"the same")
    proxy.faults.append(("PUT", fault))
    assert not s3.create(location, b"the same")
    assert s3.read(location) == b"the same"


@pytest.mark.parametrize("fault", ["500", "drop", "slow"])
def test_the_answer_is_lost_and_so_is_the_question_whose_it_is(s3: Blobs, proxy: FaultProxy, fault: str) -> None:
    location = fresh()
    proxy.faults.extend([("PUT", "lost"), ("HEAD", fault), ("HEAD", fault)])
    assert s3.create(location, b"ours")
    assert s3.read(location) == b"ours"


def test_many_failures_in_a_row_are_outlived(s3: Blobs, proxy: FaultProxy) -> None:
    location = fresh()
    proxy.faults.extend([("PUT", fault) for fault in ("500", "drop", "lost", "503", "late", "lost", "500")])
    assert s3.create(location, b"ours")
    assert s3.read(location) == b"ours"


@pytest.fixture(scope="module")
def gcs_proxy() -> Iterator[FaultProxy]:
    pytest.importorskip("obstore")
    with gcs_server() as endpoint:
        make_bucket(endpoint, "bucket")
        proxy = FaultProxy(endpoint)
        yield proxy
        proxy.close()


@pytest.fixture(scope="module")
def azure_proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultProxy]:
    pytest.importorskip("obstore")
    with azure_server(tmp_path_factory.mktemp("azurite")) as endpoint:
        make_container(endpoint, "bucket")
        proxy = FaultProxy(endpoint)
        yield proxy
        proxy.close()


@pytest.fixture(params=["gs", "az"])
def cloud(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[str, BucketBlobs, FaultProxy]:
    """Where files lie, what puts them there, and what is between."""
    patience = {"request_timeout_s": 1.0, "retry_for_s": 120.0}
    proxy: FaultProxy = request.getfixturevalue("gcs_proxy" if request.param == "gs" else "azure_proxy")
    proxy.faults.clear()
    if request.param == "gs":
        settings = GcsSettings.from_environment({"STORAGE_EMULATOR_HOST": proxy.endpoint})
        return f"gs://bucket/{uuid.uuid4().hex}", BucketBlobs(replace(settings, **patience)), proxy
    for name, value in azure_variables(f"{proxy.endpoint}/{AZURE_ACCOUNT}").items():
        monkeypatch.setenv(name, value)
    blobs = BucketBlobs(replace(AzureSettings.from_environment(), **patience))
    return f"az://bucket/{uuid.uuid4().hex}", blobs, proxy


@pytest.mark.parametrize("fault", ["503", "drop", "lost", "late"])
def test_in_other_clouds_too_a_put_is_ours_or_another_s(cloud: tuple[str, BucketBlobs, FaultProxy], fault: str) -> None:
    folder, blobs, proxy = cloud
    proxy.faults.append(("PUT", fault))
    assert blobs.publish(staged(blobs, f"{folder}/part", b"ours"), f"{folder}/part")
    proxy.faults.append(("PUT", fault))
    assert not blobs.create(f"{folder}/part", b"ours")
    proxy.faults.extend([("GET", fault), ("GET", fault)])
    assert blobs.read(f"{folder}/part") == b"ours"
    assert blobs.names(folder) == {"part"}
    assert not proxy.faults


def test_in_other_clouds_too_a_missing_bucket_and_a_refusal_are_named(
    cloud: tuple[str, BucketBlobs, FaultProxy],
) -> None:
    folder, blobs, proxy = cloud
    scheme = folder.partition("://")[0]
    for ask in (blobs.list, blobs.names, blobs.read, lambda there: blobs.create(there, b"")):
        with pytest.raises(InvalidInput, match="a bucket that exists"):
            ask(f"{scheme}://no-such-bucket/x")
    proxy.faults.extend([("PUT", "403")] * 3)
    named = "GOOGLE_APPLICATION_CREDENTIALS" if scheme == "gs" else "AZURE_STORAGE_ACCOUNT_KEY"
    with pytest.raises(InvalidInput, match=named):
        blobs.create(f"{folder}/x", b"1")


@pytest.mark.parametrize("fault", [*FAULTS, "cut"])
def test_reading_goes_on_after_a_failure(s3: Blobs, proxy: FaultProxy, fault: str) -> None:
    location, data = fresh(), os.urandom(5_000_000)
    s3.write(location, data)
    proxy.faults.append(("GET", fault))
    assert s3.read(location) == data
    with s3.open(location) as file:
        start = file.read(1_500_000)
        proxy.faults.extend([("GET", fault), ("GET", fault)])
        assert start + file.read() == data
    assert not proxy.faults


@pytest.mark.parametrize("fault", FAULTS)
def test_the_small_questions_are_asked_again(s3: Blobs, proxy: FaultProxy, fault: str) -> None:
    location = fresh()
    proxy.faults.append(("PUT", fault))
    s3.write(location, b"1")
    proxy.faults.append(("HEAD", fault))
    assert s3.stat(location) is not None
    folder = location.rpartition("/")[0]
    proxy.faults.extend([("GET", fault), ("GET", fault)])
    assert [blob.location for blob in s3.list(folder)] == [location]
    assert s3.names(folder) == {"part"}
    proxy.faults.append(("DELETE", fault))
    s3.delete(location)
    assert s3.stat(location) is None
    assert not proxy.faults


def test_an_endpoint_that_only_fails_is_given_up_and_named(s3: Blobs, proxy: FaultProxy) -> None:
    location = fresh()
    blobs = blobs_at(proxy.endpoint, retry_for_s=1.0)
    path = staged(blobs, location, b"ours")
    proxy.faults.extend([("PUT", "500")] * 100)
    with pytest.raises(TryLater, match=rf"{proxy.endpoint} .*500") as caught:
        blobs.publish(path, location)
    assert caught.value.retry_after_s > 0
    assert path.read_bytes() == b"ours"  # it can be published later
    proxy.faults.clear()
    assert s3.publish(path, location)


@pytest.mark.usefixtures("s3")
def test_an_endpoint_that_is_not_there_is_named() -> None:
    blobs = blobs_at("http://127.0.0.1:9", retry_for_s=1.0)
    for ask in (blobs.stat, blobs.list, blobs.names, blobs.read, blobs.open, blobs.delete):
        with pytest.raises(TryLater, match=r"http://127\.0\.0\.1:9 "):
            ask("s3://bucket/x")


def test_a_bucket_that_is_missing_is_named(s3: Blobs) -> None:
    location = "s3://no-such-bucket/x/y"
    for ask in (s3.list, s3.names, s3.read, lambda there: s3.create(there, b""), lambda there: s3.write(there, b"")):
        with pytest.raises(InvalidInput, match=r"no-such-bucket.*a bucket that exists"):
            ask(location)
    with pytest.raises(InvalidInput, match="a bucket that exists"):
        s3.publish(staged(s3, location, b""), location)


@pytest.mark.parametrize(
    ("status", "said"),
    [("403", "AWS_SECRET_ACCESS_KEY"), ("401", "AWS_ACCESS_KEY_ID"), ("301", "AWS_REGION"), ("501", "conditional")],
)
def test_a_refusal_says_what_to_change(s3: Blobs, proxy: FaultProxy, status: str, said: str) -> None:
    proxy.faults.extend([("PUT", status)] * 3)
    with pytest.raises(InvalidInput, match=said):
        s3.create(fresh(), b"1")


def test_without_credentials_it_says_which_to_set(proxy: FaultProxy) -> None:
    blobs = blobs_at(proxy.endpoint, has_credentials=False)
    with pytest.raises(InvalidInput, match=r"bucket.*AWS_ACCESS_KEY_ID"):
        blobs.stat("s3://bucket/x")


@pytest.mark.parametrize("key", ["a//b", "a/../b", "a/\n"])
def test_a_key_that_cannot_be_a_path_is_refused(s3: Blobs, key: str) -> None:
    with pytest.raises(InvalidInput, match="an object key that is a valid path"):
        s3.write(f"s3://bucket/{key}", b"1")


@pytest.mark.parametrize("change", ["replaced", "deleted"])
def test_a_file_that_changes_while_it_is_read_is_not_mixed_up(s3: Blobs, change: str) -> None:
    location = fresh()
    s3.write(location, b"1" * 5_000_000)
    with s3.open(location) as file:
        assert file.read(10) == b"1" * 10
        if change == "replaced":
            s3.write(location, b"2" * 5_000_000)
        else:
            s3.delete(location)
        with pytest.raises(Broken, match=rf"part was {change} while it was being read"):
            file.read()


KILLED = """
import os, sys, time
from pathlib import Path
from twoshift.blobs.local import LocalBlobs

out, moment = sys.argv[1:]

def stop(*args, **more):
    print("here", flush=True)
    time.sleep(60)

blobs = LocalBlobs()
staged = blobs.staging(f"{out}/part") / "staged"
staged.write_bytes(b"half of it")
if moment == "staged":
    stop()
if moment == "fsync":
    os.fsync = stop
if moment == "link":
    os.link = stop
if moment == "replace":
    Path.replace = stop
    blobs.write(f"{out}/part", b"half of it")
if moment == "create":
    os.link = stop
    blobs.create(f"{out}/part", b"half of it")
blobs.publish(staged, f"{out}/part")
"""


@pytest.mark.parametrize("moment", ["staged", "fsync", "link", "replace", "create"])
def test_a_process_that_is_killed_before_it_publishes_leaves_nothing_to_see(tmp_path: Path, moment: str) -> None:
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path), moment], stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout as said:
        assert said.readline() == b"here\n"
        process.send_signal(signal.SIGKILL)
        process.wait()
    blobs = LocalBlobs()
    assert blobs.names(str(tmp_path)) == set()
    shown = [blob.location.removeprefix(f"{tmp_path}/") for blob in blobs.list(str(tmp_path))]
    assert shown == ["_twoshift/staging/staged"]
    assert blobs.create(f"{tmp_path}/part", b"whole")


def test_a_full_disk_harms_nothing_that_is_there(small_disk: Path) -> None:
    blobs, kept = LocalBlobs(), f"{small_disk}/kept"
    assert blobs.create(kept, b"as it was")
    for attempt in (blobs.write, blobs.create):
        with pytest.raises(TryLater, match="the disk is full"):
            attempt(f"{small_disk}/new", b"x" * 2_000_000)
    with pytest.raises(TryLater, match="the disk is full"):
        blobs.write(kept, b"x" * 2_000_000)
    assert blobs.names(str(small_disk)) == {"kept"}
    assert [path.name for path in small_disk.iterdir()] == ["kept"]  # what was begun is gone, so that there is room
    assert blobs.read(kept) == b"as it was"
    assert blobs.create(f"{small_disk}/new", b"x" * 500_000)
