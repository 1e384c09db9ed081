"""Rollouts outlive their server; aliases and configuration files begin them; two servers agree on one."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest
from receivers import SECRET, Receiver
from servers import Server, until
from versioned import Clients, Versions, asked, rollout, until_stage

pytest.importorskip("httptools")
pytest.importorskip("sqlalchemy")
pytestmark = pytest.mark.slow


@pytest.fixture
def versions(tmp_path: Path) -> Versions:
    made = Versions(tmp_path / "one")
    made.push(2)
    made.push(3)
    return made


def state(versions: Versions) -> dict[str, Any]:
    """What the newest rollout remembers."""
    with sqlite3.connect(f"file:{versions.home}/fleet.db?mode=ro", uri=True) as made:
        [[found]] = made.execute("SELECT state FROM rollouts ORDER BY number DESC LIMIT 1")
    return json.loads(found)


def candidate(server: Server) -> dict[str, Any] | None:
    return server.ask("GET", "/v1/deployments/times").json()["candidate"]


def deploy(versions: Versions, server: Server, *words: str, model: str = "times:2") -> None:
    versions.run("deploy", model, *words, "--on", server.address)


def test_a_server_that_is_killed_comes_back_to_the_same_share_with_the_same_evidence(versions: Versions) -> None:
    config = versions.config(rollout="ladder = [0.3, 1.0]\nshadow = false")
    with versions.serve("--config", config, model=None) as server:
        deploy(versions, server)
        until(lambda: rollout(server)["share"] == 0.3)
        versions.run("rollouts", "pause", "times", "--on", server.address)
        with Clients(server):
            until(lambda: state(versions)["candidate"][0] > 50)
        server.stop(signal.SIGKILL)
    known = state(versions)
    with versions.serve("--config", config, model=None) as server:
        until(lambda: (candidate(server) or {"share": 0})["share"] == 0.3)
        now = rollout(server)
        assert (now["stage"], now["paused"], now["candidate"]) == ("ladder", True, "times:2")
        assert state(versions) == known
        assert {asked(server, x_route_key=f"{k}").headers["x-twoshift-version"] for k in range(40)} == {"1", "2"}
        versions.run("rollouts", "promote", "times", "--on", server.address)
        until_stage(server, "promoted")
        server.stop(signal.SIGKILL)
    with versions.serve("--config", config, model=None) as server:
        assert asked(server).headers["x-twoshift-version"] == "2"
        assert "loading times:2, the stable version of the last rollout" in server.said
        assert candidate(server) is None


def test_a_shadow_goes_on_after_a_kill_and_a_rollback_stays(versions: Versions) -> None:
    with versions.serve() as server:
        deploy(versions, server, "--shadow")
        until_stage(server, "shadow")
        server.stop(signal.SIGKILL)
    with versions.serve() as server:
        until(lambda: candidate(server) is not None)
        assert (rollout(server)["stage"], candidate(server)["share"]) == ("shadow", 0.0)  # type: ignore[index]
        with Clients(server):
            until(lambda: rollout(server).get("differences", {"rows": 0})["rows"] > 10)
        versions.run("rollouts", "rollback", "times", "--on", server.address)
        until_stage(server, "rolled_back")
        server.stop(signal.SIGKILL)
    with versions.serve() as server:
        assert asked(server).headers["x-twoshift-version"] == "1"
        assert candidate(server) is None
        assert len(server.ask("GET", "/v1/rollouts").json()["data"]) == 1


def test_answers_that_disagree_are_caught_in_the_shadow_and_a_webhook_is_told_of_every_end(versions: Versions) -> None:
    receiver = Receiver()
    hook = f'allow_private_webhooks = true\n[webhooks.ops]\nurl = "{receiver.url}"\nsecret = "{SECRET}"\n'
    config = versions.config(more=hook, rollout="max_difference = 0.1")
    with versions.serve("--config", config, model=None) as server, Clients(server) as clients:
        deploy(versions, server)
        ended = until_stage(server, "rolled_back", "promoted")
        assert "disagree" in ended["reason"]
        assert clients.versions() == {"1"}
        deploy(versions, server, "--now")
        promoted = until_stage(server, "promoted")
        until(lambda: len(receiver.posted) == 2)
        until(lambda: {"1", "2"} <= clients.versions())
        until(lambda: {each["version"] for each in used(server) if each["rows"]} == {"1", "2"})
        assert clients.failed == {}, clients.wrong
    assert all(each.is_signed() for each in receiver.posted)
    told = [(each.event["type"], each.event["data"]) for each in receiver.posted]
    assert [(kind, data["id"], data["candidate"]) for kind, data in told] == [
        ("rollout.rolled_back", ended["id"], "times:2"),
        ("rollout.promoted", promoted["id"], "times:2"),
    ]
    assert "disagree" in told[0][1]["reason"]


def used(server: Server) -> list[dict[str, Any]]:
    return server.ask("GET", "/v1/usage?group_by=version").json()["data"]


@pytest.mark.parametrize(("when", "code"), [("exit", 3), ("exit at the first call", 4)])
def test_a_candidate_that_ends_the_server_is_rolled_back_at_the_next_start(
    versions: Versions, when: str, code: int
) -> None:
    versions.push(4, load=when, check=False)
    with versions.serve() as server:
        deploy(versions, server, "--canary", "50%", model="times:3")  # all of it at once would be a promotion
        if "call" in when:
            until(lambda: rollout(server)["share"] == 0.5)
            with contextlib.suppress(OSError, HTTPException):
                asked(server, 7.0, "/v2/models/times/versions/3")
        assert server.process.wait() == code
    with versions.serve() as server:
        ended = until_stage(server, "rolled_back")
        assert f"os._exit({code})" in ended["reason"]
        assert asked(server, 7.0).headers["x-twoshift-version"] == "1"


def test_an_alias_that_moves_begins_a_rollout_and_one_that_was_refused_is_not_tried_again(versions: Versions) -> None:
    versions.run("models", "alias", "times@prod", "1")
    config = versions.config("times@prod", rollout='ladder = [0.5, 1.0]\nshadow = false\nfollow_every = "1s"')
    with versions.serve("--config", config, model=None) as server:
        assert asked(server).headers["x-twoshift-version"] == "1"
        versions.run("models", "alias", "times@prod", "2")
        until(lambda: server.ask("GET", "/v1/rollouts").json()["data"])
        began = rollout(server)
        assert (began["stable"], began["candidate"], began["who"]) == ("times:1", "times:2", "the alias times@prod")
        until(lambda: candidate(server) is not None)
        versions.run("rollouts", "rollback", "times", "--on", server.address)
        until_stage(server, "rolled_back")
        assert server.stop() == 0
    with versions.serve("--config", config, model=None) as server:
        assert asked(server).headers["x-twoshift-version"] == "1"
        versions.push(4)
        versions.run("models", "alias", "times@prod", "3")
        until(lambda: rollout(server)["candidate"] == "times:3")
        assert len(server.ask("GET", "/v1/rollouts").json()["data"]) == 2


def test_a_registry_that_is_gone_leaves_a_server_serving(versions: Versions) -> None:
    versions.run("models", "alias", "times@prod", "1")
    config = versions.config("times@prod", rollout='follow_every = "1s"')
    with versions.serve("--config", config, model=None) as server:
        (versions.path / "registry").rename(versions.path / "away")
        with Clients(server) as clients:
            until(lambda: clients.seen[200, "1"] > 500)
        assert clients.failed == {}
        assert server.ask("POST", "/v1/deployments", {"model": "times:9"}).status in (404, 503)
        assert server.ask("GET", "/readyz").status == 200


def test_a_file_that_is_edited_begins_a_rollout_at_the_signal(versions: Versions) -> None:
    config = versions.config(rollout="ladder = [0.5, 1.0]\nshadow = false")
    with versions.serve("--config", config, model=None) as server:
        versions.config("times:2", rollout="ladder = [0.5, 1.0]\nshadow = false")
        os.kill(server.process.pid, signal.SIGHUP)
        until(lambda: server.ask("GET", "/v1/rollouts").json()["data"])
        assert rollout(server)["candidate"] == "times:2"
        until(lambda: rollout(server)["share"] == 0.5)
        Path(config).write_text("models = 3")
        os.kill(server.process.pid, signal.SIGHUP)
        until(lambda: "was not applied" in server.said)
        versions.run("rollouts", "promote", "times", "--on", server.address)
        until_stage(server, "promoted")
        assert asked(server).status == 200


def test_one_that_replaces_the_stable_version_is_not_ready_meanwhile_and_a_bad_one_brings_it_back(
    versions: Versions,
) -> None:
    versions.push(4, load="fail", check=False)
    with versions.serve() as server:
        deploy(versions, server, "--replace")
        until_stage(server, "promoted")
        assert asked(server).headers["x-twoshift-version"] == "2"
        deploy(versions, server, "--replace", model="times:3")
        until_stage(server, "rolled_back")
        until(lambda: server.ask("GET", "/readyz").status == 200)
        assert asked(server).headers["x-twoshift-version"] == "2"


def test_two_servers_on_one_database_agree_on_one_rollout(versions: Versions) -> None:
    database = f"sqlite:///{versions.path}/shared.db"
    config = versions.config(more=f'database = "{database}"', rollout="ladder = [0.5, 1.0]\nshadow = false")
    one, other = (versions.serve("--config", config, model=None, home=name) for name in ("home", "another"))
    with one as first, other as second:
        deploy(versions, first, "--canary", "50%")
        refused = versions.run("deploy", "times:2", "--on", second.address, code=2)
        assert "first promote that rollout or roll it back" in refused
        for server in (first, second):
            until(lambda server=server: (candidate(server) or {"share": 0})["share"] == 0.5)
        assert rollout(first)["id"] == rollout(second)["id"]
        keys = [f"{number}" for number in range(20)]
        assert [asked(first, x_route_key=key).headers["x-twoshift-version"] for key in keys] == [
            asked(second, x_route_key=key).headers["x-twoshift-version"] for key in keys
        ]
        versions.run("rollouts", "promote", "times", "--on", second.address)
        for server in (first, second):
            until(lambda server=server: asked(server).headers["x-twoshift-version"] == "2")
