from __future__ import annotations

import sys

import pytest

from twoshift.blobs.local import LocalBlobs
from twoshift.blobs.s3_connection import S3Settings
from twoshift.errors import InvalidInput
from twoshift.wiring.blob_stores import blobs_for


@pytest.mark.parametrize("location", ["out", "/data/x", "./a b", "a/b://c", "C:/x", ""])
def test_a_path_is_a_path(location: str) -> None:
    assert isinstance(blobs_for(location), LocalBlobs)


@pytest.mark.parametrize("location", ["gs://bucket/x", "https://host/x", "file:///x", "S3://bucket/x"])
def test_another_scheme_is_refused(location: str) -> None:
    with pytest.raises(InvalidInput, match=r"s3://bucket/key"):
        blobs_for(location)


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a user who asks here only")
    with pytest.raises(InvalidInput, match=r"location s3:// needs a package .*: pip install obstore$"):
        blobs_for("s3://bucket/x")


def test_one_connection_serves_every_file(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("obstore")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    assert blobs_for("s3://bucket/x") is blobs_for("s3://other/y")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:10")
    first = blobs_for("s3://bucket/x")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "another user")
    assert blobs_for("s3://bucket/x") is not first


def test_the_endpoint_and_region_come_from_the_usual_variables() -> None:
    given = {"AWS_ENDPOINT_URL": "http://all/", "AWS_ENDPOINT_URL_S3": "http://s3/", "AWS_DEFAULT_REGION": "eu-west-1"}
    settings = S3Settings.from_environment(given)
    assert (settings.endpoint, settings.region, settings.has_credentials) == ("http://s3", "eu-west-1", False)
    assert S3Settings.from_environment({**given, "AWS_REGION": "eu-west-3"}).region == "eu-west-3"
    assert S3Settings.from_environment({"AWS_SKIP_SIGNATURE": "true"}).has_credentials
