from __future__ import annotations

import sys

import pytest

from twoshift.blobs.azure import AzureSettings
from twoshift.blobs.environments import bucket_variables
from twoshift.blobs.gcs import GcsSettings
from twoshift.blobs.local import LocalBlobs
from twoshift.blobs.s3 import S3Settings
from twoshift.errors import InvalidInput
from twoshift.wiring.blob_stores import blobs_for


@pytest.mark.parametrize("location", ["out", "/data/x", "./a b", "a/b://c", "C:/x", ""])
def test_a_path_is_a_path(location: str) -> None:
    assert isinstance(blobs_for(location), LocalBlobs)


@pytest.mark.parametrize("location", ["gcs://bucket/x", "https://host/x", "file:///x", "S3://bucket/x"])
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


def test_google_s_endpoint_and_emulator_come_from_the_usual_variables() -> None:
    assert GcsSettings.from_environment({}).endpoint is None
    emulated = GcsSettings.from_environment({"STORAGE_EMULATOR_HOST": "localhost:4443"})
    assert (emulated.endpoint, emulated.is_emulated) == ("http://localhost:4443", True)
    assert GcsSettings.from_environment({"GOOGLE_BASE_URL": "https://here/"}).endpoint == "https://here"
    users = [GcsSettings.from_environment({"GOOGLE_APPLICATION_CREDENTIALS": name}) for name in ("a.json", "b.json")]
    assert users[0] != users[1]


def test_azure_s_account_comes_from_the_usual_variables_and_no_secret_is_kept() -> None:
    string = "AccountName=me;AccountKey=c2VjcmV0==;BlobEndpoint=http://here/me/"
    settings = AzureSettings.from_environment({"AZURE_STORAGE_CONNECTION_STRING": string})
    assert (settings.account, settings.endpoint) == ("me", "http://here/me")
    assert "c2VjcmV0" not in repr(settings)
    assert AzureSettings.from_environment({"AZURE_STORAGE_ACCOUNT": "you"}).account == "you"
    with pytest.raises(InvalidInput, match="AZURE_STORAGE_ACCOUNT_NAME"):
        AzureSettings.from_environment({}).check("az://box/x")


def test_another_machine_gets_the_variables_of_the_buckets_that_it_needs_and_no_others() -> None:
    given = {"AWS_REGION": "x", "GOOGLE_BASE_URL": "y", "AZURE_STORAGE_ACCOUNT": "z", "HOME": "/"}
    assert bucket_variables(["/data", "out"], given) == {}
    assert bucket_variables(["s3://a/b", "az://c/d"], given) == {"AWS_REGION": "x", "AZURE_STORAGE_ACCOUNT": "z"}
    assert bucket_variables(["gs://a"], given) == {"GOOGLE_BASE_URL": "y"}
