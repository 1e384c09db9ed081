"""One suite for a registry in a folder and in buckets of servers that stand in for S3, Google's and Azure."""

from __future__ import annotations

import os
import random
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from cloud_servers import azure_server, azure_variables, gcs_server, make_container
from registry_files import artifact, contents
from s3_server import CREDENTIALS, FaultProxy, make_bucket, moto_server

from twoshift.errors import InvalidInput, NotFound, TryLater, TwoshiftError
from twoshift.registry import damage
from twoshift.registry.artifact import Artifact, ArtifactFile
from twoshift.registry.names import ModelRef
from twoshift.registry.store import Registry
from twoshift.wiring import registered_models
from twoshift.wiring.registered_models import local_model, model_cache, registry_at


@pytest.fixture(scope="module")
def s3_endpoint() -> Iterator[str]:
    pytest.importorskip("obstore")
    with moto_server() as endpoint:
        yield endpoint


@pytest.fixture(scope="module")
def gcs_endpoint() -> Iterator[str]:
    pytest.importorskip("obstore")
    with gcs_server() as endpoint:
        yield endpoint


@pytest.fixture(scope="module")
def azure_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    pytest.importorskip("obstore")
    with azure_server(tmp_path_factory.mktemp("azurite")) as endpoint:
        yield endpoint


@pytest.fixture(params=["local", "s3", "gs", "az"])
def registry(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    monkeypatch.setenv("TWOSHIFT_HOME", str(tmp_path / "home"))
    match request.param:
        case "s3":
            location = bucket(request.getfixturevalue("s3_endpoint"), monkeypatch)
        case "gs":
            location = google_bucket(request.getfixturevalue("gcs_endpoint"), monkeypatch)
        case "az":
            location = container(request.getfixturevalue("azure_endpoint"), monkeypatch)
        case _:
            location = str(tmp_path / "registry")
    monkeypatch.setenv("TWOSHIFT_REGISTRY", location)
    return registry_at(location)


def bucket(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"bucket-{uuid.uuid4().hex}"
    make_bucket(endpoint, name)
    for key, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": endpoint}.items():
        monkeypatch.setenv(key, value)
    return f"s3://{name}/models"


def google_bucket(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"bucket-{uuid.uuid4().hex}"
    make_bucket(endpoint, name)
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", endpoint)
    return f"gs://{name}/models"


def container(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"box-{uuid.uuid4().hex}"
    make_container(endpoint, name)
    for key, value in azure_variables(endpoint).items():
        monkeypatch.setenv(key, value)
    return f"az://{name}/models"


def test_a_large_version_goes_in_and_comes_out_as_it_was(registry: Registry, tmp_path: Path) -> None:
    data = os.urandom(40_000_000)  # several parts of an upload
    (tmp_path / "weights.bin").write_bytes(data)
    (tmp_path / "empty").touch()
    files = (ArtifactFile("a/weights.bin", tmp_path / "weights.bin"), ArtifactFile("empty", tmp_path / "empty"))
    shares = list[float]()
    version = registry.push("m", Artifact(".", files, "here"), progress=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert registry.damaged(version) == {}
    folder = local_model("m").folder
    assert folder is not None
    assert (folder / "a" / "weights.bin").read_bytes() == data
    assert (folder / "empty").read_bytes() == b""


def test_pushes_at_the_same_time_make_a_version_each(registry: Registry, tmp_path: Path) -> None:
    made = [artifact(tmp_path / f"{number}", a_txt=f"{number % 3}", same_txt="same") for number in range(8)]
    with ThreadPoolExecutor(8) as threads:
        versions = list(threads.map(lambda each: registry.push("m", each), made))
    assert sorted(each.version for each in versions) == list(range(1, 9))
    for number, version in enumerate(versions):
        assert contents(registry, "m", version.version) == {"a.txt": f"{number % 3}", "same.txt": "same"}
    assert len(registry.blobs.list(registry.layout.blobs)) == 4


def test_removals_beside_pushes_take_no_file_that_a_version_has(registry: Registry, tmp_path: Path) -> None:
    """Contents come again and again, so that what one removes another is about to rely on."""
    for number in range(3):
        artifact(tmp_path / f"{number}", a_txt=f"{number}", same_txt="same")

    def work(seed: int) -> None:
        chance = random.Random(seed)  # noqa: S311 - the same every time
        for _ in range(6):
            if chance.random() < 0.5:
                registry.push("m", artifact(tmp_path / f"{chance.randrange(3)}"))
            elif known := registry.versions("m"):
                with suppress(NotFound):  # another was quicker
                    registry.remove("m", chance.choice(known))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    registry.push("m", artifact(tmp_path / "0"))
    for number in registry.versions("m"):
        assert contents(registry, "m", number)["same.txt"] == "same"


def test_an_alias_that_several_move_has_every_move_in_its_history(registry: Registry, tmp_path: Path) -> None:
    for number in (1, 2, 3, 4):
        registry.push("m", artifact(tmp_path / f"{number}", a_txt=f"{number}"))
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda number: registry.alias("m", "prod", number), (1, 2, 3, 4)))
    moves = registry.aliases.history("m", "prod")
    assert [each.number for each in moves] == [1, 2, 3, 4]
    assert sorted(each.version for each in moves) == [1, 2, 3, 4]
    assert registry.find(ModelRef("m", alias="prod")).version == moves[-1].version
    with ThreadPoolExecutor(4) as threads:
        ended = list(threads.map(lambda _: _rolled_back(registry), range(4)))
    assert ended.count(True) == sum(each.is_rollback for each in registry.aliases.history("m", "prod")) >= 1


def _rolled_back(registry: Registry) -> bool:
    try:
        registry.rollback("m", "prod")
    except (TryLater, InvalidInput):
        return False
    return True


def test_aliases_names_and_removal(registry: Registry, tmp_path: Path) -> None:
    for name in ("m", "n"):
        registry.push(name, artifact(tmp_path / name, a_txt=name))
    registry.alias("m", "prod", 1)
    assert (registry.names(), registry.aliases.of("m"), registry.aliases.of("n")) == (["m", "n"], ["prod"], [])
    assert registry.remove("n", 1) == 1
    assert registry.names() == ["m"]
    with pytest.raises(NotFound, match="a version of m: 1"):
        registry.find(ModelRef("m", 2))


def test_a_second_start_downloads_nothing(registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry.push("m", artifact(tmp_path / "m", a_txt="one"))
    first, said = local_model("m"), list[str]()
    monkeypatch.setattr(damage, "received", lambda *_: pytest.fail("it was downloaded again"))
    assert local_model("m:1", note=said.append) == first
    assert said == []


def test_a_bucket_that_does_not_answer_is_stood_in_for_by_the_cache(
    s3_endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWOSHIFT_HOME", str(tmp_path / "home"))
    location = bucket(s3_endpoint, monkeypatch)
    registry = registry_at(location)
    for number in (1, 2):
        registry.push("m", artifact(tmp_path / f"{number}", a_txt=f"{number}"))
    registry.alias("m", "prod", 1)
    used = local_model("m@prod", location)

    class Silent(Registry):
        def find(self, ref: ModelRef) -> object:  # type: ignore[override]
            raise TryLater("the bucket does not answer", 30)

    monkeypatch.setattr(registered_models, "Registry", Silent)
    monkeypatch.setattr(registered_models, "_versions", {})
    said = list[str]()
    assert local_model("m@prod", location, note=said.append).folder == used.folder
    assert "Using m:1 from the verified cache" in said[0]
    assert local_model("m@prod", location, note=said.append).registry == ""  # it is not asked again and again
    assert len(said) == 1
    with pytest.raises(TryLater):
        local_model("m:2", location)


@pytest.mark.parametrize("fault", ["drop", "cut", "503"])
def test_a_download_over_a_bad_line_is_whole_in_the_end(
    s3_endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setenv("TWOSHIFT_HOME", str(tmp_path / "home"))
    proxy = FaultProxy(s3_endpoint)
    try:
        location = bucket(s3_endpoint, monkeypatch)
        data = os.urandom(3_000_000)
        (tmp_path / "w.bin").write_bytes(data)
        registry_at(location).push("m", Artifact(".", (ArtifactFile("w.bin", tmp_path / "w.bin"),), "here"))
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        version = registry_at(location).version("m", 1)
        proxy.faults.extend([("GET", fault)] * 2)
        folder = local_model("m:1", location).folder
        assert folder is not None
        assert (folder / "w.bin").read_bytes() == data
        assert model_cache().damaged(version) == {}
    finally:
        proxy.close()


def test_a_location_that_cannot_be_a_registry_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TwoshiftError, match="registry"):
        registry_at("ftp://somewhere")
