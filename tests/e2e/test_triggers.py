"""Schedules and webhooks on a running server: by the clock, by a marker, over kills, and to a real receiver."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from programs import PROGRAM, command, environment, python_path
from receivers import SECRET, Receiver
from servers import Got, Server, until
from test_jobs_on import Fleet, QuickFleet

from twoshift.serve.keys import digest_of
from twoshift.server_services import marker_in
from twoshift.wiring.blob_stores import blobs_for

for needs in ("httptools", "sqlalchemy"):
    pytest.importorskip(needs)
pytestmark = pytest.mark.slow
JOB = """
inputs = ["in.parquet"]
output = "out/{run}"
model = "Square"
columns = ["x"]
keep = ["id"]
shard_rows = 100
"""
KILLER = """
import os, signal, threading
where, mark = os.environ.get("KILL_CALL", ""), os.environ.get("KILL_MARK")
file, _, name = where.partition(":")

def watch(frame, event, _arg):
    if event == "call" and frame.f_code.co_name == name and frame.f_code.co_filename.endswith(file):
        try:
            os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)

if where:
    threading.setprofile(watch)
"""


class Place(QuickFleet):
    """A fleet whose server is started from a file, with a webhook; and what its user types."""

    def __init__(self, path: Path, *more: str, top: str = "", tables: str = "", **environment: str) -> None:
        self.receiver, self.top, self.tables = Receiver(), top, tables
        (path / "job.toml").write_text(JOB)
        (path / "killer").mkdir()
        (path / "killer" / "sitecustomize.py").write_text(KILLER)
        super().__init__(path, *more, **environment)

    def started(self) -> Server:
        file = self.path / "server.toml"
        file.write_text(f"""
            grace = "5s"
            allow_private_webhooks = true
            {self.top}
            [models.Square]
            model = "{self.path}/m.py:Square"
            slo_ms = 60000
            max_batch = 8
            [webhooks.ops]
            url = "{self.receiver.url}"
            secret = "{SECRET}"
            {self.tables}
        """)
        self.server = Server(self.path / "home", "--config", str(file), *self.more, more=self.environment)
        return self.server

    def add(self, name: str, *words: str) -> Any:
        return self.run("schedule", "add", name, *words, "job.toml")

    def runs(self, name: str = "nightly") -> list[Any]:
        return self.asked("schedules", name, "history")["data"]

    def states(self, name: str = "nightly") -> list[str | None]:
        """Of its runs' jobs, newest first."""
        return [each["job_state"] for each in self.runs(name)]

    def check(self, output: str = "out") -> None:
        super().check(str(Path(self.path, output).relative_to(self.path)))

    def kill(self) -> None:
        self.server.stop(signal.SIGKILL)
        self.server.end()

    def killed_at(self, call: str) -> dict[str, str]:
        """The environment of a server that ends as it comes to that call, once."""
        killer, mark = str(self.path / "killer"), str(self.path / "mark")
        return {"PYTHONPATH": python_path(killer), "KILL_CALL": call, "KILL_MARK": mark}

    def die_at(self, call: str) -> None:
        """A server that ends as it comes to that call, ready by then or not."""
        env = environment(self.path / "home", **self.killed_at(call))
        line = [PROGRAM, "serve", "--config", str(self.path / "server.toml"), "--port", "0", *self.more]
        dying = subprocess.Popen(line, env=env, stderr=subprocess.DEVNULL)
        try:
            assert dying.wait(120) == -signal.SIGKILL
        finally:
            dying.kill()
            dying.wait()
        assert (self.path / "mark").exists()


class SlowPlace(Place):
    """One in whose jobs something may happen."""

    model = Fleet.model


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., Place]]:
    made: list[Place] = []

    def begun(*more: str, kind: type[Place] = Place, **given: str) -> Place:
        made.append(kind(tmp_path, *more, **given))
        return made[-1]

    yield begun
    for each in made:
        each.server.end()
        each.receiver.end()


@pytest.fixture
def place(begin: Callable[..., Place]) -> Place:
    return begin()


def test_a_schedule_from_its_first_to_its_last_command(place: Place) -> None:
    added = place.add("nightly", "--cron", "0 2 * * *", "--tz", "Europe/Berlin")
    assert added["next_at"] > added["created_at"]
    assert [each["name"] for each in place.run("schedule", "list")["data"]] == ["nightly"]
    assert place.run("schedule", "pause", "nightly")["paused"]
    assert not place.run("schedule", "resume", "nightly")["paused"]
    run = place.run("schedule", "run", "nightly")
    assert (run["state"], run["job"]) == ("submitted", run["id"])
    until(lambda: place.states() == ["done"])
    place.check(run["output"])

    until(lambda: len(place.receiver.posted) == 1)
    (got,) = place.receiver.posted
    assert got.is_signed()
    assert got.event["type"] == "job.completed"
    assert (got.event["data"]["id"], got.event["data"]["progress"]["rows"]) == (run["job"], 600)
    until(lambda: "webhook ops, event job.completed: status 204" in str(place.run("jobs", "logs", run["job"])))
    (told,) = place.run("jobs", "deliveries")["data"]
    assert (told["id"], told["state"], told["attempts"]) == (got.headers["webhook-id"], "delivered", 1)

    for words, shown in (
        (["list"], "nightly"),
        (["show", "nightly"], "0 2 * * *"),
        (["history", "nightly"], run["job"]),
    ):
        assert shown in command("schedule", *words, "--on", place.server.address).stdout
    assert place.run("schedule", "remove", "nightly")["name"] == "nightly"
    assert place.run("schedule", "list")["data"] == []
    assert "the name of an existing schedule" in place.run("schedule", "show", "nightly", code=2)


def test_what_cannot_be_is_refused_with_what_to_write(place: Place) -> None:
    add = ("schedule", "add", "nightly", "job.toml")
    assert "five fields" in place.run(*add, "--cron", "0 2 * *", code=2)
    assert "either a cron expression" in place.run(*add, code=2)
    assert "a time zone such as" in place.run(*add, "--cron", "@daily", "--tz", "Mars/Phobos", code=2)
    assert "one of ops" in place.run(*add, "--cron", "@daily", "--notify", "other", code=2)
    (place.path / "job.toml").write_text(JOB.replace("out/{run}", "out"))
    assert "out/{run}" in place.run(*add, "--cron", "@daily", code=2)
    (place.path / "job.toml").write_text(JOB.replace("Square", "Other"))
    assert "the models of this server" in place.run(*add, "--cron", "@daily", code=2)
    assert place.server.ask("POST", "/v1/schedules", {"name": "x", "job": {"output": 3}}).status == 400
    assert place.server.ask("GET", "/v1/schedules/x").status == 404


def test_a_marker_that_appears_and_is_replaced_runs_the_job_each_time(place: Place) -> None:
    place.add("loaded", "--after", "ready/_SUCCESS", "--every", "1s", "--overlap", "queue")
    (place.path / "ready").mkdir()
    (place.path / "ready" / "_SUCCESS").touch()
    until(lambda: place.states("loaded") == ["done"])
    os.utime(place.path / "ready" / "_SUCCESS", (1, 1))
    until(lambda: place.states("loaded") == ["done", "done"])
    outputs = {each["output"] for each in place.runs("loaded")}
    assert len(outputs) == 2
    for output in outputs:
        place.check(output)
    page = place.server.ask("GET", "/metrics").body.decode()
    assert 'twoshift_schedule_runs_total{state="submitted"} 2.0' in page
    assert 'twoshift_batches{status="completed"} 0.0' in page


def test_what_was_missed_while_the_server_was_down_runs_once(place: Place) -> None:
    place.add("nightly", "--cron", "0 * * * *", "--missed", "once")
    place.kill()
    with sqlite3.connect(place.path / "home" / "fleet.db") as made:  # nobody has looked for two days
        made.execute("UPDATE schedules SET since_unix_s = since_unix_s - 172800")
    place.started()
    until(lambda: place.states()[-1:] == ["done"])
    assert (
        "missed runs: 48" in (told := place.runs()[-1]["reason"]) or "missed runs: 47" in told
    )  # the last one may be on time
    place.check(place.runs()[-1]["output"])


@pytest.mark.parametrize("call", ["batch/job_host.py:submit", "store/schedules.py:settle"])
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_killed_between_deciding_and_submitting_it_has_submitted_once_in_the_end(
    begin: Callable[..., Place], request: pytest.FixtureRequest, call: str, kind: str
) -> None:
    postgres = None if kind == "sqlite" else request.getfixturevalue("postgres")
    url = None if postgres is None else postgres.url()

    def forget_the_owner() -> None:
        """As after the time for which a killed server's claim lasts; SQLite's ends with its process."""
        if postgres is not None:
            postgres.execute("UPDATE claims SET seen_unix_s = seen_unix_s - 60", url)

    place = begin(*([] if url is None else ["--database", url]))
    place.add("loaded", "--after", "ready", "--every", "1s")
    place.kill()
    forget_the_owner()
    (place.path / "ready").touch()
    place.die_at(call)
    forget_the_owner()
    place.started()
    until(lambda: place.states("loaded") == ["done"])
    assert len(place.run("jobs", "list")["data"]) == 1
    place.check(place.runs("loaded")[0]["output"])


def test_a_webhook_is_told_after_a_kill_under_the_same_id(place: Place) -> None:
    place.receiver.reply = lambda _: Receiver.status(500)
    place.add("nightly", "--cron", "@yearly")
    place.run("schedule", "run", "nightly")
    until(lambda: len(place.receiver.posted) >= 1)
    place.kill()
    place.receiver.reply = lambda _: Receiver.status(200)
    place.started()
    until(lambda: [each["state"] for each in place.asked("deliveries")["data"]] == ["delivered"])
    assert len(place.receiver.posted) > 1
    assert len({each.headers["webhook-id"] for each in place.receiver.posted}) == 1
    assert all(each.is_signed() for each in place.receiver.posted)


def test_killed_as_a_job_ends_its_end_is_told(begin: Callable[..., Place]) -> None:
    place = begin()
    place.kill()
    place.environment = place.killed_at("triggers/notifier.py:_deliveries")
    place.started()
    place.job("--detach")
    assert place.server.process.wait(150) == -signal.SIGKILL
    place.server.end()
    assert place.receiver.posted == []
    place.environment = {}
    place.started()
    until(lambda: [each.event["type"] for each in place.receiver.posted] == ["job.completed"])


def test_a_cancelled_job_is_told_to_those_whom_it_names(begin: Callable[..., Place]) -> None:
    other = Receiver()
    tables = f"""
        [webhooks.mine]
        url = "{other.url}/"
        secret_env = "HOOK_SECRET"
        only_named = true
        below = true
        events = ["cancelled"]
    """
    try:
        place = begin(kind=SlowPlace, tables=tables, HOOK_SECRET=SECRET)
        job = place.job("--detach", "--notify", f"{other.url}/search")
        place.run("jobs", "cancel", job["id"])
        until(lambda: len(other.posted) == 1)
        assert (other.posted[0].path, other.posted[0].event["type"]) == ("/hook/search", "job.cancelled")
        assert other.posted[0].is_signed()
        until(lambda: [each.event["type"] for each in place.receiver.posted] == ["job.cancelled"])
    finally:
        other.end()


def test_a_server_without_leave_does_not_call_private_addresses(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    for url, told in (("http://127.0.0.1:1/", "https"), ("https://169.254.169.254/x", "a public IP address")):
        file.write_text(f'[models.m]\n[webhooks.ops]\nurl = "{url}"\nsecret = "{SECRET}"')
        env = environment(tmp_path / "home")
        line = [PROGRAM, "serve", "--config", str(file), "--port", "0"]
        ended = subprocess.run(line, env=env, capture_output=True, text=True, timeout=100)
        assert ended.returncode == 2
        assert "webhooks.ops.url" in ended.stderr
        assert told in ended.stderr


def test_a_tenant_sees_its_own_schedules_only(begin: Callable[..., Place], tmp_path: Path) -> None:
    keys = "".join(f'[keys.{name}]\nsha256 = "{digest_of(f"ts-{name}")}"\n' for name in ("alice", "bob"))
    place = begin(top=f'job_roots = ["{tmp_path}"]', tables=keys)

    def ask(who: str, method: str, path: str, body: Any = None) -> Got:
        return place.server.ask(method, path, body, {"authorization": f"Bearer ts-{who}"})

    def spec(output: str, **more: str) -> dict[str, Any]:
        job = {"inputs": str(place.path / "in.parquet"), "output": output, "model": "Square"}
        return {"name": "nightly", "job": job, **(more or {"cron": "@daily"})}

    mine = spec(f"{tmp_path}/out/{{run}}")
    made = ask("alice", "POST", "/v1/schedules", mine).json()
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/run"), ("POST", "/pause"), ("GET", "/history")):
        for name in ("nightly", made["id"]):
            assert ask("bob", method, f"/v1/schedules/{name}{path}").status == 404
    assert ask("bob", "GET", "/v1/schedules").json()["data"] == []
    assert ask("bob", "POST", "/v1/schedules", spec(f"{tmp_path}/bob/{{run}}")).status == 200
    assert len(ask("alice", "GET", "/v1/schedules").json()["data"]) == 1
    for beyond in (spec(f"{tmp_path}/x/{{run}}", after="/etc/passwd"), spec("/elsewhere/{run}")):
        assert "a location below" in ask("alice", "POST", "/v1/schedules", beyond).message
    page = {"authorization": "Bearer ts-alice", "origin": "https://example.org"}
    assert place.server.ask("POST", "/v1/schedules", mine, page).status == 403


def test_a_marker_on_s3_that_is_replaced_by_the_same_bytes_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("moto", "obstore"):
        pytest.importorskip(name)
    from s3_server import CREDENTIALS, make_bucket, moto_server

    def seen() -> str | None:
        return marker_in(blobs_for("s3://markers"), "s3://markers/in/_SUCCESS")

    def is_another() -> bool:
        blobs_for("s3://markers").write("s3://markers/in/_SUCCESS", b"")
        return seen() != first

    with moto_server() as endpoint:
        for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true"}.items():
            monkeypatch.setenv(name, value)
        make_bucket(endpoint, "markers")
        assert seen() is None
        blobs_for("s3://markers").write("s3://markers/in/_SUCCESS", b"")
        first = seen()
        assert first is not None
        assert seen() == first
        until(is_another)
