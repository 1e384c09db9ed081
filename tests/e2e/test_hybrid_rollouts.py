"""Precomputed answers while versions change: none ever answers for another one."""

from __future__ import annotations

from pathlib import Path

import pytest
from servers import Got, Server, until
from versioned import Versions, rollout, until_stage

pytest.importorskip("httptools")
pytest.importorskip("sqlalchemy")
pytestmark = pytest.mark.slow
FACTORS = {"1": 2.0, "2": 3.0}


def job(versions: Versions, model: str, *rows: str) -> None:
    """Its answers replace those that are served."""
    source, output = versions.path / "rows.csv", versions.path / f"out-{model.replace(':', '-')}"
    source.write_text("\n".join(["id,x", *rows, ""]))
    words = ["--keep", "id", "-o", str(output), "--answer-key", "id", "--answer-table", str(versions.path / "answers")]
    versions.run("run", str(source), "--model", model, *words)


def score(server: Server, key: str, x: float = 10.0, **headers: str) -> Got:
    shown = {name.replace("_", "-"): value for name, value in headers.items()}
    got = server.ask("POST", "/v1/score/times", {"rows": [{"id": key, "x": x}]}, shown)
    assert got.status == 200, got.body
    return got


def seen(server: Server, key: str) -> set[tuple[str, float, str]]:
    """Version, product and source, for clients that go to either version."""
    replies = [score(server, key, x_route_key=f"user-{number}") for number in range(40)]
    return {
        (each.headers["x-twoshift-version"], each.json()["rows"][0]["product"], each.headers["x-twoshift-source"])
        for each in replies
    }


def test_each_version_has_its_own_answers_through_a_rollout(tmp_path: Path) -> None:
    versions = Versions(tmp_path)
    for factor in FACTORS.values():
        versions.push(factor)
    job(versions, "times:1", "a,10", "b,10")
    words = ["--precomputed", str(tmp_path / "answers"), "--key", "id", "--write-back"]
    with versions.serve(*words) as server:
        until(lambda: seen(server, "a") == {("1", 20.0, "precomputed")})
        versions.run("deploy", "times:2", "--canary", "40%", "--on", server.address)
        until(lambda: rollout(server)["share"] == 0.4)
        found = set[tuple[str, float, str]]()
        # The job's rows are the stable version's; what is computed is kept for the version that has computed it
        for key in ("a", "new"):
            until(lambda key=key: {("1", 20.0, "precomputed"), ("2", 30.0, "precomputed")} <= (now := seen(server, key))
                  and not found.update(now))  # fmt: skip
        assert {(version, product) for version, product, _ in found} == {("1", 20.0), ("2", 30.0)}
        versions.run("rollouts", "promote", "times", "--on", server.address)
        until_stage(server, "promoted")
        until(lambda: {version for version, _, _ in seen(server, "a")} == {"2"})
        assert {product for key in ("a", "b", "new") for _, product, _ in seen(server, key)} == {30.0}
        hits = server.counted("precomputed_rows_total", model="times", found="hit")
        job(versions, "times:2", "a,10", "b,10")
        until(lambda: server.counted("precomputed_swaps_total", model="times") == 2)
        until(lambda: seen(server, "b") == {("2", 30.0, "precomputed")}
              and server.counted("precomputed_rows_total", model="times", found="hit") > hits)  # fmt: skip
