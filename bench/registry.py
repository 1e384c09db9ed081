"""Pushes to and pulls from a registry, against `cp` and against plain uploads and downloads of the same file."""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "contract"))

CHUNK = 4 << 20


def main() -> None:
    """Measure both and print a table."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--megabytes", type=int, default=1000)
    arguments.add_argument("--bucket-megabytes", type=int, default=200)
    arguments.add_argument("--turns", type=int, default=3)
    arguments.add_argument("--folder", help="Where the files lie: on the disk to measure.")
    given = arguments.parse_args()
    print(f"{'what':<36}{'MB/s, median of turns':>24}{'lowest':>10}{'highest':>10}{'CPU s/GB':>12}")
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder = Path(name)
        os.environ["TWOSHIFT_HOME"] = str(folder / "home")
        _measure("folder", _local(folder, given.megabytes), given.megabytes, given.turns)
        _in_bucket(folder, given.bucket_megabytes, given.turns)


def _measure(where: str, ways: dict[str, Callable[[], None]], megabytes: int, turns: int) -> None:
    """Each way once a turn, so that what else the machine does meets all of them."""
    rates, spent_s = {name: list[float]() for name in ways}, {name: list[float]() for name in ways}
    for _ in range(turns):
        for name, way in ways.items():
            os.sync()
            began_s, cpu_s = time.perf_counter(), _cpu_s()
            way()
            rates[name].append(megabytes * 1.048576 / (time.perf_counter() - began_s))
            spent_s[name].append((_cpu_s() - cpu_s) / (megabytes * 1.048576e-3))
    for name, found in rates.items():
        middle = statistics.median(found)
        cpu = statistics.median(spent_s[name])
        print(f"{f'{where}: {name}':<36}{middle:>24,.0f}{min(found):>10,.0f}{max(found):>10,.0f}{cpu:>12.2f}")


def _cpu_s() -> float:
    """Of this process and those that it has waited for: what is the same beside other work."""
    return sum(os.times()[:4])


def _program(name: str) -> str:
    return shutil.which(name) or sys.exit(f"needs {name}")


def _file(folder: Path, megabytes: int) -> Path:
    path = folder / f"weights-{megabytes}.bin"
    with path.open("wb") as written:
        for _ in range(megabytes):
            written.write(os.urandom(1 << 20))
    return path


def _ways(folder: Path, source: Path, location: str) -> dict[str, Callable[[], None]]:
    """A push of a new content, and a pull of it by a machine that has nothing."""
    from twoshift.registry.artifact import Artifact, ArtifactFile
    from twoshift.wiring import registered_models
    from twoshift.wiring.registered_models import local_model, registry_at

    def push() -> None:
        shutil.rmtree(location, ignore_errors=True)
        if "://" in location:
            for each in registry_at(location).refs():
                registry_at(location).remove(each.name, each.version or 0)
        registry_at(location).push("m", Artifact(".", (ArtifactFile("weights.bin", source),), "here"))

    def pull() -> None:
        for used in folder.glob("home-*"):
            shutil.rmtree(used)
        os.environ["TWOSHIFT_HOME"] = str(folder / f"home-{uuid.uuid4().hex}")
        registered_models._versions.clear()  # a new process has none
        local_model("m", location)

    return {"models push": push, "models pull": pull}


def _local(folder: Path, megabytes: int) -> dict[str, Callable[[], None]]:
    source = _file(folder, megabytes)

    def copied() -> None:
        (folder / "copy").unlink(missing_ok=True)  # a new file each time, as pushes and pulls write
        subprocess.run([_program("cp"), "--reflink=never", source, folder / "copy"], check=True)
        subprocess.run([_program("sync"), folder / "copy"], check=True)

    def hashed() -> None:
        subprocess.run([_program("sha256sum"), source], check=True, capture_output=True)

    return {"cp and sync": copied, "sha256sum": hashed, **_ways(folder, source, str(folder / "registry"))}


def _in_bucket(folder: Path, megabytes: int, turns: int) -> None:
    """Against a server of this machine, which takes a core of its own: a floor, not what a cloud gives."""
    import obstore
    from obstore.store import S3Store
    from s3_server import CREDENTIALS, make_bucket, moto_server

    source = _file(folder, megabytes)
    with moto_server() as endpoint:
        make_bucket(endpoint, "bucket")
        os.environ.update({**CREDENTIALS, "AWS_ENDPOINT_URL": endpoint})
        store = S3Store("bucket", endpoint=endpoint, client_options={"allow_http": True, "timeout": "120s"})

        def upload() -> None:
            obstore.put(store, "plain", source, use_multipart=True, chunk_size=16 << 20, max_concurrency=8)

        def download() -> None:
            with (folder / "plain").open("wb") as written:
                for chunk in obstore.get(store, "plain").stream(min_chunk_size=CHUNK):
                    written.write(chunk)

        ways = {"plain multipart upload": upload, "plain download": download}
        _measure("bucket", {**ways, **_ways(folder, source, "s3://bucket/registry")}, megabytes, turns)


if __name__ == "__main__":
    main()
