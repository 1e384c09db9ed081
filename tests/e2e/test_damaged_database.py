"""A damaged database stops what it is for, and nothing else."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from programs import PROGRAM, environment
from servers import Server
from user_models import written

from twoshift.serve.keys import digest_of

for needs in ("httptools", "sqlalchemy"):
    pytest.importorskip(needs)
pytestmark = pytest.mark.slow


def damaged(file: Path, home: Path, kind: str) -> bytes:
    """A file that is no database, or one that was made by Twoshift and has lost pages in the middle."""
    if kind == "no database":
        data = b"not a database at all\n" * 500
    else:
        from twoshift.store.database import Database

        made = Database(f"sqlite:///{home}/other.db")
        made.run(lambda connection: connection.exec_driver_sql("PRAGMA user_version"))
        made.close()
        whole = (home / "other.db").read_bytes()
        data = whole[:4096] + b"\xff" * 8192 + whole[12288:]
    file.write_bytes(data)
    return data


@pytest.mark.parametrize("kind", ["no database", "lost pages"])
def test_the_default_database_does_not_stop_live_serving(tmp_path: Path, kind: str) -> None:
    models, home = written(tmp_path), tmp_path / "home"
    home.mkdir()
    data = damaged(home / "fleet.db", home, kind)
    server = Server(home, f"{models}:Embed", "--slo-ms", "60000")
    try:
        assert server.embed("Embed", "a").status == 200
        assert server.ask("GET", "/readyz").status == 200
        assert f"{home}/fleet.db is damaged" in server.said
        assert "move it away" in server.said
        for method, path in (
            ("GET", "/v1/jobs"),
            ("GET", "/v1/batches"),
            ("GET", "/v1/schedules"),
            ("GET", "/v1/usage"),
        ):
            got = server.ask(method, path)
            assert (got.status, got.headers["retry-after"]) == (503, "60"), got.body
            assert "the server cannot use its database" in got.message
        assert server.stop() == 0
    finally:
        server.end()
    assert (home / "fleet.db").read_bytes() == data  # it is the user's


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk without a free byte."""
    home = tmp_path / "home"
    home.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(home)], capture_output=True)
    if made.returncode:
        pytest.skip("a small filesystem needs root")
    try:
        with contextlib.suppress(OSError), (home / "filler").open("wb", buffering=0) as filler:
            while filler.write(b"x" * 4096):
                pass
        yield home
    finally:
        subprocess.run(["umount", "-l", str(home)], check=True)


def unopenable(home: Path) -> Path:
    (home / "fleet.db").mkdir(parents=True)
    return home


@pytest.mark.parametrize("kind", ["full", "a folder in its place"])
def test_a_home_without_room_for_a_database_does_not_stop_live_serving(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    home = request.getfixturevalue("full") if kind == "full" else unopenable(tmp_path / "home")
    server = Server(home, f"{written(tmp_path)}:Embed", "--slo-ms", "60000")
    try:
        assert server.embed("Embed", "a").status == 200
        assert f"Jobs, batches, schedules and usage are disabled: the database file {home}/fleet.db" in server.said
        for path in ("/v1/jobs", "/v1/usage"):
            got = server.ask("GET", path)
            assert (got.status, got.headers["retry-after"]) == (503, "60"), got.body
        assert server.stop() == 0
    finally:
        server.end()


def test_a_database_that_was_asked_for_and_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    home = unopenable(tmp_path / "home")
    words = ["serve", f"{written(tmp_path)}:Embed", "--slo-ms", "60000", "--port", "0"]
    words += ["--database", f"sqlite:///{home}/fleet.db"]
    ran = subprocess.run([PROGRAM, *words], env=environment(home), capture_output=True, text=True, timeout=120)
    assert ran.returncode == 1
    assert f"the database file {home}/fleet.db cannot be used (unable to open database file)" in ran.stderr
    assert "--database" in ran.stderr


def test_the_start_says_which_quotas_a_damaged_database_leaves_unenforced(tmp_path: Path) -> None:
    models, home = written(tmp_path), tmp_path / "home"
    home.mkdir()
    damaged(home / "fleet.db", home, "no database")
    config = tmp_path / "serve.toml"
    key = f'[keys.k]\nsha256 = "{digest_of("k")}"\ntenant = "red"\n'
    tenant = "[tenants.red]\ndevice_seconds_per_day = 1e-9\n"
    config.write_text(f'[models.Embed]\nmodel = "{models}:Embed"\nslo_ms = 60000\n{key}{tenant}')
    server = Server(home, "--config", str(config))
    try:
        assert server.embed("Embed", "a", authorization="Bearer k").status == 200
        assert "Live requests are served, and device_seconds_per_day is not enforced (tenants red)." in server.said
        assert server.stop() == 0
    finally:
        server.end()


def test_a_database_that_was_asked_for_is_refused_with_what_to_do(tmp_path: Path) -> None:
    models, home = written(tmp_path), tmp_path / "home"
    home.mkdir()
    data = damaged(tmp_path / "mine.db", home, "no database")
    words = [
        "serve",
        f"{models}:Embed",
        "--slo-ms",
        "2000",
        "--port",
        "0",
        "--database",
        f"sqlite:///{tmp_path}/mine.db",
    ]
    env = environment(home)
    ran = subprocess.run([PROGRAM, *words], env=env, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 1
    assert f"{tmp_path}/mine.db is damaged (file is not a database)" in ran.stderr
    assert "try again" not in ran.stderr
    assert (tmp_path / "mine.db").read_bytes() == data
