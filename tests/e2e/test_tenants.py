"""Two tenants and an admin on one server, with the real program and real keys: each tries what is not its own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from programs import command
from servers import Got, Server, until
from user_models import written

pytest.importorskip("sqlalchemy")
pytestmark = pytest.mark.slow
SECRET = "the secret of blue"  # noqa: S105
KEYS = {
    "alice": ("red", ()),
    "anna": ("red", ("serve",)),
    "arno": ("red", ("batch",)),
    "bob": ("blue", ()),
    "root": ("house", ("admin",)),
    "poor": ("poor", ()),
    "busy": ("busy", ()),
    "dora": ("dora", ()),
}
OPEN = {"/", "/-/healthz", "/health", "/healthz", "/readyz", "/openapi.json", "/v2/health/live", "/v2/health/ready"}


def program(home: Path, *words: str, key: str = "") -> subprocess.CompletedProcess[str]:
    return command(*words, env={"TWOSHIFT_HOME": str(home), "TWOSHIFT_KEY": key, "COLUMNS": "200"})


@dataclass
class House:
    """A server, and what its tenants know."""

    path: Path
    server: Server
    keys: dict[str, str]

    def ask(self, who: str, method: str, path: str, body: Any = None, **headers: str) -> Got:
        return self.server.ask(method, path, body, {"authorization": f"Bearer {self.keys[who]}", **headers})

    def embed(self, who: str, model: str = "embed") -> Got:
        return self.ask(who, "POST", "/v1/embeddings", {"model": model, "input": "a red fox"})

    def job(self, who: str, inputs: Any, output: str, model: str = "embed", **more: Any) -> Got:
        given = inputs if isinstance(inputs, list) else [inputs]
        settings = {"inputs": given, "output": output, "model": model, "text": "t", **more}
        return self.ask(who, "POST", "/v1/jobs", settings)

    def state(self, who: str, job: str) -> dict[str, Any]:
        return self.ask(who, "GET", f"/v1/jobs/{job}").json()

    def usage(self, who: str, query: str = "") -> list[dict[str, Any]]:
        got = self.ask(who, "GET", f"/v1/usage?{query}")
        assert got.status == 200, got.body
        return got.json()["data"]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("httptools")
    made = tmp_path_factory.mktemp("house")
    written(made)
    for name in ("red", "blue", "shared", "elsewhere"):
        (made / "data" / name).mkdir(parents=True)
    for name in ("red", "blue", "shared"):
        text = SECRET if name == "blue" else name
        pq.write_table(pa.table({"t": [f"{text} {k}" for k in range(200)]}), made / "data" / name / "in.parquet")
    blue, red = made / "data" / "blue", made / "data" / "red"
    (blue / "list.txt").write_text(f"{SECRET}\n")
    (red / "link").symlink_to(blue)
    (red / "link.parquet").symlink_to(blue / "in.parquet")
    (red / "passwd.jsonl").symlink_to("/etc/passwd")
    (red / "list.txt").write_text(f"{blue}/in.parquet\n")
    return made


def started(path: Path, keys: dict[str, str]) -> House:
    server = Server(path / "home", "--config", str(path / "server.toml"))
    server.host = "127.0.0.1"
    return House(path, server, keys)


@pytest.fixture(scope="module")
def house(path: Path) -> Iterator[House]:
    found, data = {}, path / "data"
    tables = [
        'host = "0.0.0.0"\nprice_usd_per_hour = 3.6\n',
        f'job_roots = ["{data}"]\n',
        f'[models.embed]\nmodel = "{path}/models.py:Embed"\nslo_ms = 60000\n',
        f'[models.pair]\nmodel = "{path}/models.py:Embed"\nslo_ms = 60000\nreplicas = 2\n',
        f'[tenants.red]\njob_roots = ["{data}/red"]\n',
        f'[tenants.blue]\njob_roots = ["{data}/blue", "s3://blue/"]\n',
        "[tenants.poor]\ndevice_seconds_per_day = 1e-9\n",
        "[tenants.busy]\nrequests_per_second = 0.5\nconcurrent_jobs = 1\nopen_jobs = 2\n",
    ]
    for name, (tenant, scopes) in KEYS.items():
        words = [word for scope in scopes for word in ("--scope", scope)]
        made = program(path / "home", "key", name, "--tenant", tenant, *words)
        lines = made.stdout.splitlines()
        found[name] = lines[0].rpartition(" ")[2]
        tables.append("\n".join(lines[2:]) + "\n")
    (path / "server.toml").write_text("\n".join(tables))
    made = started(path, found)
    yield made
    made.server.end()


def test_a_key_does_what_its_scopes_say_and_is_told_what_is_missing(house: House) -> None:
    live, batch = ("POST", "/v1/embeddings"), ("GET", "/v1/jobs")
    assert house.embed("anna").status == house.embed("alice").status == house.embed("root").status == 200
    assert house.ask("anna", *batch).status == 403
    assert house.ask("arno", *live, {"model": "embed", "input": "a"}).status == 403
    assert {house.ask(who, *batch).status for who in ("alice", "arno", "root")} == {200}
    told = house.ask("anna", *batch).message
    assert "scope batch" in told
    assert "anna has only serve" in told
    for who in ("alice", "anna", "arno"):
        assert house.ask(who, "GET", "/metrics").status == 403
        assert house.ask(who, "GET", "/v1/models").status == house.ask(who, "GET", "/v1/usage").status == 200
    assert house.ask("root", "GET", "/metrics").status == 200
    assert house.server.ask("GET", "/healthz").status == 200
    assert house.server.ask("GET", "/v1/usage").status == 401


def test_the_document_says_what_each_route_needs(house: House) -> None:
    for path, operations in house.server.ask("GET", "/openapi.json").json()["paths"].items():
        for name, operation in operations.items():
            open_ = path in OPEN
            assert ("security" in operation) is not open_, (name, path)
            if path.startswith("/v1/jobs"):
                assert operation["security"] == [{"key": ["batch"]}]


def test_no_tenant_sees_or_touches_the_jobs_of_another(house: House) -> None:
    blue = house.path / "data" / "blue"
    made = house.job("bob", f"{blue}/in.parquet", f"{blue}/out", hours=_not_now())
    assert made.status == 200, made.body
    job = made.json()["id"]
    nothing = house.ask("alice", "GET", "/v1/jobs/job-000000000000")
    for method, name in (("GET", ""), ("GET", "/log"), ("POST", "/pause"), ("POST", "/resume"), ("POST", "/cancel")):
        got = house.ask("alice", method, f"/v1/jobs/{job}{name}")
        assert got.status == 404
        assert got.message == nothing.message.replace("job-000000000000", job)
    assert house.ask("alice", "GET", "/v1/jobs").json()["data"] == []
    mine = house.job("alice", f"{house.path}/data/red/in.parquet", f"{house.path}/data/red/mine", hours=_not_now())
    own = mine.json()["id"]
    assert [each["id"] for each in house.ask("alice", "GET", "/v1/jobs").json()["data"]] == [own]
    # What comes after a job of another is what comes after one that is not there
    for after in (own, job, "job-000000000000"):
        assert house.ask("alice", "GET", f"/v1/jobs?after={after}").json()["data"] == []
    for output in (f"{blue}/out", f"{blue}//out/", f"{house.path}/data/red/link/out", f"{blue}/other"):
        got = house.job("alice", f"{house.path}/data/red/in.parquet", output)
        assert got.status == 400
        assert job not in got.message
        assert "below" in got.message
    assert {own, job} <= {each["id"] for each in house.ask("root", "GET", "/v1/jobs").json()["data"]}
    assert house.ask("root", "POST", f"/v1/jobs/{own}/cancel").json()["state"] == "cancelled"
    assert house.state("bob", job)["state"] in ("queued", "running")
    house.ask("bob", "POST", f"/v1/jobs/{job}/cancel")


def test_where_tenants_share_a_folder_neither_is_told_of_the_others_job(house: House) -> None:
    shared = house.path / "data" / "shared"
    made = house.job("dora", f"{shared}/in.parquet", f"{shared}/out", hours=_not_now())
    assert made.status == 200, made.body
    job = made.json()["id"]
    got = house.job("busy", f"{shared}/in.parquet", f"{shared}/out")
    assert got.status == 400
    assert job not in got.message
    assert "another job uses this folder" in got.message
    house.ask("dora", "POST", f"/v1/jobs/{job}/cancel")


def _attacks(data: Path, home: Path) -> dict[str, str]:
    blue, red = data / "blue", data / "red"
    return {
        "a file of the system": "/etc/passwd",
        "a list that is a file of the system": "@/etc/passwd",
        "a file URL": "file:///etc/passwd",
        "a file URL of another": f"file://{blue}/in.parquet",
        "metadata": "http://169.254.169.254/latest/meta-data/",
        "metadata as a bucket": "s3://169.254.169.254/latest/meta-data",
        "another's bucket": "s3://blue/in.parquet",
        "up in a bucket": "s3://red/../blue/in.parquet",
        "another's folder": f"{blue}",
        "another's file": f"{blue}/in.parquet",
        "another's list": f"@{blue}/list.txt",
        "a list of another's files": f"@{red}/list.txt",
        "up": f"{red}/../blue/in.parquet",
        "up, encoded": f"{red}/%2e%2e/blue/in.parquet",
        "up, twice encoded": f"{red}/%252e%252e/blue/in.parquet",
        "a link to a folder": f"{red}/link/in.parquet",
        "a link to a file": f"{red}/link.parquet",
        "a link to the system": f"{red}/passwd.jsonl",
        "a pattern through a link": f"{red}/li*/in.parquet",
        "a pattern up": f"{red}/*/../../blue/*.parquet",
        "a pattern beside": f"{data}/*/in.parquet",
        "all": f"{data}",
        "a name that begins like one's own": f"{data}/redder/in.parquet",
        "a relative name": "data/red/in.parquet",
        "a control character": f"{red}/in\n.parquet",
        "a zero": f"{red}/in.parquet\0.jsonl",
        "the server's database": f"{home}/fleet.db",
        "the server's home": f"{home}",
        "a process": "/proc/self/environ",
        "an open file": "/proc/self/fd/3",
    }


@pytest.mark.parametrize("attack", sorted(_attacks(Path("/d"), Path("/h"))))
def test_a_job_reads_and_writes_only_what_is_its_tenants(house: House, attack: str) -> None:
    data = house.path / "data"
    place = _attacks(data, house.path / "home")[attack]
    own = f"{data}/red/in.parquet"
    for format_ in (None, "jsonl"):
        got = house.job("alice", place, f"{data}/red/attacked", input_format=format_)
        assert got.status == 400, (attack, got.body)
        assert SECRET not in got.message
        assert "root:" not in got.message
    assert house.job("alice", [own, place], f"{data}/red/attacked").status == 400
    if not place.startswith("@") and "*" not in place:  # which an output may be called
        assert house.job("alice", own, f"{place}/attacked").status == 400, attack
        assert not list(data.glob("**/attacked"))
    assert not (data / "red" / "attacked").exists()


def test_an_output_whose_inner_folder_is_a_link_is_refused(house: House) -> None:
    red, blue = house.path / "data" / "red", house.path / "data" / "blue"
    (red / "linked").mkdir()
    (red / "linked" / "_twoshift").symlink_to(blue)
    got = house.job("alice", f"{red}/in.parquet", f"{red}/linked")
    assert got.status == 400
    assert "below" in got.message
    assert not (blue / "lock").exists()


def test_a_plan_that_was_changed_opens_no_other_files(house: House) -> None:
    red, blue = house.path / "data" / "red", house.path / "data" / "blue"
    made = house.job("alice", f"{red}/in.parquet", f"{red}/planned", model="pair").json()["id"]
    until(lambda: house.state("alice", made)["state"] == "done")
    plan = red / "planned" / "_twoshift" / "plan.json"
    plan.write_text(plan.read_text().replace(f"{red}/in.parquet", f"{blue}/in.parquet"))
    for part in [*(red / "planned").glob("part-*"), red / "planned" / "_SUCCESS"]:
        part.unlink()
    again = house.job("alice", f"{red}/in.parquet", f"{red}/planned", model="pair", keep=["t"])
    if again.status == 200:
        until(lambda: house.state("alice", again.json()["id"])["state"] in ("failed", "done"))
    for part in (red / "planned").glob("part-*"):
        assert SECRET not in str(pq.read_table(part).to_pydict())


def test_a_ledger_says_what_each_has_had_by_lane_and_model_and_what_it_costs(house: House) -> None:
    red = house.path / "data" / "red"
    for model in ("embed", "pair"):
        for _ in range(3):
            assert house.embed("alice", model).status == 200
        job = house.job("alice", f"{red}/in.parquet", f"{red}/counted-{model}", model=model).json()["id"]
        until(lambda job=job: house.state("alice", job)["state"] == "done")

    def counted() -> dict[tuple[str, str], dict[str, Any]]:
        return {(each["lane"], each["model"]): each for each in house.usage("alice", "group_by=lane,model")}

    lanes = [(lane, model) for lane in ("live", "batch") for model in ("embed", "pair")]
    until(lambda: all(counted().get(each, {}).get("rows", 0) >= 3 for each in lanes))
    until(lambda: counted()["batch", "pair"]["rows"] >= 200)
    for (lane, _), each in counted().items():
        assert each["device_s"] > 0
        assert each["harvested_s"] == (each["device_s"] if lane == "batch" else 0)
        assert each["usd"] == pytest.approx(each["device_s"] * 3.6 / 3600 * (0.5 if lane == "batch" else 1))
        assert each["unpriced_s"] == 0
    assert counted()["live", "pair"]["rows"] == 3
    assert counted()["batch", "embed"]["rows"] >= 200
    assert {each["tenant"] for each in house.usage("alice")} == {"red"}
    assert house.ask("alice", "GET", "/v1/usage?tenant=blue").status == 403
    assert {"red"} == {each["tenant"] for each in house.usage("root", "tenant=red")}
    assert house.embed("root").status == 200
    until(lambda: {"red", "house"} <= {each["tenant"] for each in house.usage("root", "group_by=tenant")})
    assert house.usage("alice", "from=2000-01-01&to=2000-01-02") == []
    assert house.ask("alice", "GET", "/v1/usage?from=yesterday").status == 400
    assert house.ask("alice", "GET", "/v1/usage?form=2026-01-01").status == 400
    assert house.ask("root", "GET", "/v1/usage?tenant=%00").status == 400
    assert house.ask("root", "GET", "/v1/usage?tenant=nobody").json()["data"] == []


def test_usage_is_csv_where_that_is_asked_for(house: House) -> None:
    assert house.embed("alice").status == house.embed("root").status == 200
    until(lambda: bool(house.usage("alice") and house.usage("root", "tenant=house")))
    for got in (
        house.ask("alice", "GET", "/v1/usage?group_by=tenant&format=csv"),
        house.ask("alice", "GET", "/v1/usage?group_by=tenant", accept="text/csv"),
    ):
        assert got.headers["content-type"].startswith("text/csv")
        head, red = got.body.decode().splitlines()
        prices = "usd_per_million_input_tokens,usd_per_million_output_tokens"
        assert head == f"tenant,rows,tokens,device_s,harvested_s,usd,unpriced_s,output_tokens,{prices}"
        assert red.startswith("red,")
    words = ("usage", "--on", f"http://127.0.0.1:{house.server.port}", "--group-by", "tenant")
    ended = program(house.path / "home", *words, "--csv", key=house.keys["alice"])
    assert ended.stdout.startswith("tenant,rows,tokens,"), ended.stderr
    ended = program(house.path / "home", *words, key=house.keys["alice"])
    assert "red" in ended.stdout
    assert "blue" not in ended.stdout
    ended = program(house.path / "home", *words, "--json", key=house.keys["root"])
    assert {each["tenant"] for each in json.loads(ended.stdout)["data"]} >= {"red", "house"}
    ended = program(house.path / "home", *words, "--tenant", "blue", key=house.keys["alice"])
    assert ended.returncode == 2
    assert "admin" in ended.stderr


def test_who_has_spent_its_device_seconds_is_refused_and_its_jobs_wait_also_after_a_restart(house: House) -> None:
    answered = 0
    while house.embed("poor").status == 200:
        answered += 1
    assert answered
    got = house.embed("poor")
    assert "device seconds for today" in got.message
    assert 0 < int(got.headers["retry-after"]) <= 86_400
    assert house.embed("alice").status == 200
    shared = house.path / "data" / "shared"
    made = house.job("poor", f"{shared}/in.parquet", f"{shared}/waits")
    assert made.status == 200, made.body
    job = made.json()["id"]
    until(lambda: "device seconds for today" in house.state("poor", job)["reason"])
    assert house.state("poor", job)["state"] == "running"
    house.server.stop()
    house.server.end()
    house.server = started(house.path, house.keys).server
    assert house.embed("poor").status == 429
    until(lambda: "device seconds for today" in house.state("poor", job)["reason"])
    assert not list((shared / "waits").glob("part-*"))
    assert {each["lane"]: each["rows"] for each in house.usage("poor", "group_by=lane")}["live"] == answered
    assert house.ask("poor", "POST", f"/v1/jobs/{job}/cancel").status == 200


def test_a_server_that_is_killed_counts_nothing_twice(house: House) -> None:
    def rows() -> int:
        return sum(each["rows"] for each in house.usage("dora", "group_by=lane") if each["lane"] == "live")

    for answered in (5, 10):
        for _ in range(5):
            assert house.embed("dora").status == 200
        until(lambda answered=answered: rows() >= answered)
        assert rows() == answered
        house.server.end()
        house.server = started(house.path, house.keys).server
        assert rows() == answered


def test_a_tenant_has_a_rate_over_all_its_keys_and_so_many_jobs(house: House) -> None:
    statuses = [house.embed("busy").status for _ in range(12)]
    assert statuses[0] == 200
    assert 429 in statuses
    shared = house.path / "data" / "shared"

    def submitted(output: str) -> Got:
        got = None
        while got is None or "requests per second" in got.body.decode():
            got = house.job("busy", f"{shared}/in.parquet", f"{shared}/{output}", hours=_not_now())
        return got

    first, second, third = submitted("busy-1"), submitted("busy-2"), submitted("busy-3")
    assert first.status == second.status == 200, first.body
    assert third.status == 429
    assert int(third.headers["retry-after"]) >= 1
    waits = second.json()["id"]
    until(lambda: "limit of 1 running job" in house.state("busy", waits)["reason"])
    assert house.state("busy", waits)["state"] == "queued"
    house.ask("busy", "POST", f"/v1/jobs/{first.json()['id']}/cancel")
    until(lambda: house.state("busy", waits)["state"] == "running")
    house.ask("busy", "POST", f"/v1/jobs/{waits}/cancel")


def test_metrics_name_the_tenants_of_the_file_and_no_others(house: House) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    assert house.embed("alice").status == 200
    assert house.ask("anna", "GET", "/v1/jobs").status == 403
    page = house.ask("root", "GET", "/metrics").body.decode()
    found = {
        (sample.name, sample.labels["tenant"], sample.labels.get("reason") or sample.labels.get("lane")): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name.startswith("twoshift_tenant_")
    }
    assert found["twoshift_tenant_requests_total", "red", None] >= 2
    assert found["twoshift_tenant_refusals_total", "red", "permission_denied"] >= 1
    assert found["twoshift_tenant_device_seconds_total", "red", "live"] > 0
    assert {key[1] for key in found} <= {"red", "blue", "house", "poor", "busy", "dora", "other"}


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("[tenants.nobody]\n", "the tenant of a key"),
        ('[tenants.red]\njob_roots = ["data"]\n', "an absolute path such as"),
        ("[tenants.red]\nrequests_per_minute = 5\n", "such as requests_per_second"),
        ("[tenants.red]\nconcurrent_jobs = 0\n", "at least 1"),
    ],
)
def test_a_wrong_tenant_is_told_at_the_start(path: Path, lines: str, told: str) -> None:
    model = f'[models.embed]\nmodel = "{path}/models.py:Embed"\n'
    key = f'[keys.a]\nsha256 = "{"0" * 64}"\ntenant = "red"\n'
    (path / "wrong.toml").write_text(lines + model + key)
    ended = program(path / "home", "serve", "--config", str(path / "wrong.toml"), "--port", "0")
    assert ended.returncode == 2
    assert told in " ".join(ended.stderr.split())


def _not_now() -> str:
    """Hours in which no job runs for a while."""
    import time

    minute = 60 * time.localtime().tm_hour + time.localtime().tm_min
    return "-".join(f"{(minute + add) % 1440 // 60:02d}:{(minute + add) % 60:02d}" for add in (120, 180))
