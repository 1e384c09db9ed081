"""New versions in a running server: tried beside the stable one, judged, promoted or rolled back."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from pathlib import Path

import pytest
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


def deploy(versions: Versions, server: Server, *words: str, model: str = "times:2") -> dict[str, object]:
    return json.loads(versions.run("deploy", model, *words, "--on", server.address, "--json"))


def product(got: object) -> float:
    return got.json()["outputs"][0]["data"][0]  # type: ignore[attr-defined]


def test_a_candidate_gets_its_share_by_key_and_is_promoted_without_an_error(versions: Versions) -> None:
    with versions.serve() as server, Clients(server) as clients:
        assert asked(server).headers["x-twoshift-version"] == "1"
        assert asked(server, path="/v2/models/times/versions/2").status == 404
        assert deploy(versions, server, "--canary", "40%")["stage"] == "loading"
        until(lambda: rollout(server)["share"] == 0.4)

        keys = [f"user-{number}" for number in range(60)]

        def chosen() -> dict[str, str]:
            return {key: asked(server, x_route_key=key).headers["x-twoshift-version"] for key in keys}

        until(lambda: chosen() == chosen())  # every front-end process has heard of it
        first = chosen()
        assert {*first.values()} == {"1", "2"}
        assert chosen() == first
        for version, expected in (("1", 20.0), ("2", 30.0)):
            got = asked(server, path=f"/v2/models/times/versions/{version}")
            assert (product(got), got.json()["model_version"], got.headers["x-twoshift-version"]) == (
                expected, version, version
            )  # fmt: skip
            assert f'version;desc="{version}"' in got.headers["server-timing"]
        assert server.ask("GET", "/v2/models/times").json()["versions"] == ["1", "2"]
        until(lambda: server.counted("version_requests_total", version="2", status="200") > 20)

        versions.run("rollouts", "promote", "times", "--on", server.address)
        ended = until_stage(server, "promoted")
        assert ended["share"] == 1.0
        until(lambda: all(asked(server).headers["x-twoshift-version"] == "2" for _ in range(20)))
        assert product(asked(server)) == 30.0
        assert server.ask("GET", "/v2/models/times").json()["versions"] == ["2"]
        assert server.counted("version_requests_total", version="1", status="200") > 20
    assert clients.failed == {}, clients.wrong
    assert clients.versions() == {"1", "2"}


def test_a_rollout_that_is_paused_and_rolled_back_leaves_the_stable_version(versions: Versions) -> None:
    with versions.serve() as server, Clients(server) as clients:
        deploy(versions, server, "--canary", "30%")
        until(lambda: rollout(server)["share"] == 0.3)
        refused = versions.run("deploy", "times:2", "--on", server.address, code=2)
        assert "first promote that rollout or roll it back" in refused
        versions.run("rollouts", "pause", "times", "--on", server.address)
        until(lambda: rollout(server)["paused"])
        versions.run("rollouts", "resume", "times", "--on", server.address)
        until(lambda: not rollout(server)["paused"])
        versions.run("rollouts", "rollback", "times", "--why", "the label is wrong", "--on", server.address)
        ended = until_stage(server, "rolled_back")
        assert "the label is wrong" in ended["reason"]
        until(lambda: asked(server, path="/v2/models/times/versions/2").status == 404)
        shown = versions.run("rollouts", "show", "times", "--on", server.address)
        assert "the label is wrong" in shown
        assert "rolled_back" in versions.run("rollouts", "list", "--on", server.address)
        assert product(asked(server)) == 20.0
    assert clients.failed == {}, clients.wrong


def test_one_that_fails_is_rolled_back_by_itself_and_no_caller_sees_it(versions: Versions) -> None:
    versions.push(4, fails=5)
    with versions.serve() as server, Clients(server) as clients:
        deploy(versions, server, "--canary", "25%", model="times:3")
        ended = until_stage(server, "rolled_back", "promoted")
        assert ended["stage"] == "rolled_back"
        assert "failed" in ended["reason"]
    assert clients.failed == {}, clients.wrong


def test_one_that_cannot_be_loaded_takes_nothing_from_the_stable_version(versions: Versions) -> None:
    versions.push(4, load="fail", check=False)
    with versions.serve() as server, Clients(server) as clients:
        deploy(versions, server, "--now", model="times:3")
        ended = until_stage(server, "rolled_back")
        assert "these weights are damaged" in ended["reason"]
        assert server.ask("GET", "/readyz").status == 200
    assert clients.failed == {}, clients.wrong


def test_a_replica_of_the_candidate_that_is_killed_rolls_it_back_without_an_error(versions: Versions) -> None:
    with versions.serve("--replicas", "2") as server, Clients(server) as clients:
        before = children(server)
        deploy(versions, server, "--canary", "40%")
        until(lambda: rollout(server)["share"] == 0.4)
        until(lambda: "2" in clients.versions())
        [killed, *_] = [each for each in children(server) if each not in before]
        os.kill(killed, signal.SIGKILL)
        ended = until_stage(server, "rolled_back")
        assert "crashed" in ended["reason"]
        assert product(asked(server)) == 20.0
    assert clients.failed == {}, clients.wrong


def children(server: Server) -> list[int]:
    """Its replicas."""
    found = list[int]()
    for each in Path("/proc").glob("[0-9]*"):
        try:
            stat, name = (each / "stat").read_text(), (each / "comm").read_text()
        except OSError:
            continue
        if int(stat.rpartition(")")[2].split()[1]) == server.process.pid and name.startswith("ts-"):
            found.append(int(each.name))
    return sorted(found)


def test_a_key_for_other_models_neither_sees_nor_changes_a_rollout(versions: Versions) -> None:
    more = '[models.another]\nmodel = "times:1"\nslo_ms = 60000\n'
    for name, model in (("mine", "times"), ("other", "another")):
        digest = hashlib.sha256(name.encode()).hexdigest()
        more += f'[keys.{name}]\nsha256 = "{digest}"\nscopes = ["deploy"]\nmodels = ["{model}"]\n'
    with versions.serve("--config", versions.config(rollout=more), model=None) as server:

        def ask(who: str, method: str, path: str, body: object = None) -> tuple[int, object]:
            got = server.ask(method, path, body, {"authorization": f"Bearer {who}"})
            return got.status, got.json()

        asked = {"model": "times:2", "deployment": "times", "mode": "shadow"}
        assert ask("other", "POST", "/v1/deployments", asked)[0] == 403
        assert ask("other", "POST", "/v1/deployments", {"model": "times:2"})[0] == 400
        assert ask("mine", "POST", "/v1/deployments", asked)[0] == 200
        for path in ("/v1/deployments/times", "/v1/rollouts/times"):
            assert (ask("other", "GET", path)[0], ask("mine", "GET", path)[0]) == (403, 200)
        assert ask("other", "GET", "/v1/rollouts")[1]["data"] == []  # type: ignore[index]
        for who, name in (("mine", "times"), ("other", "another")):
            shown = ask(who, "GET", "/v1/deployments")[1]["data"]  # type: ignore[index]
            assert [each["name"] for each in shown] == [name]
        for what in ("pause", "resume", "promote", "rollback"):
            assert ask("other", "POST", f"/v1/rollouts/times/{what}", {})[0] == 403
        assert ask("mine", "POST", "/v1/rollouts/times/rollback", {})[0] == 200
