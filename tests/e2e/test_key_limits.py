"""What a tenant may do with several requests at once, and a key of one model with its tenant's work on another."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from servers import Got, Server, until
from test_tenants import _not_now
from user_models import written

for needs in ("httptools", "sqlalchemy"):
    pytest.importorskip(needs)
pytestmark = pytest.mark.slow
OPEN_JOBS, AT_ONCE = 3, 10


class Tenant:
    """A server with one tenant and two keys of it: `all`, and `one`, which may use only the model `first`."""

    def __init__(self, folder: Path) -> None:
        written(folder)
        self.folder = folder
        (folder / "data").mkdir()
        pq.write_table(pa.table({"t": ["a", "b"]}), folder / "data" / "in.parquet")
        lines = [f'job_roots = ["{folder}/data"]', f"[tenants.red]\nopen_jobs = {OPEN_JOBS}"]
        for name in ("first", "second"):
            lines.append(f'[models.{name}]\nmodel = "{folder}/models.py:Embed"\nslo_ms = 60000')
        for name, more in (("all", ""), ("one", 'models = ["first"]')):
            digest = hashlib.sha256(f"ts-{name}".encode()).hexdigest()
            lines.append(f'[keys.{name}]\nsha256 = "{digest}"\ntenant = "red"\n{more}')
        (folder / "server.toml").write_text("\n".join(lines))
        self.server = Server(folder / "home", "--config", str(folder / "server.toml"))

    def ask(self, who: str, method: str, path: str, body: Any = None, **headers: str) -> Got:
        return self.server.ask(method, path, body, {"authorization": f"Bearer ts-{who}", **headers})

    def job(self, who: str, output: str, model: str) -> dict[str, Any]:
        """What a job that waits for its hours is asked for with."""
        inputs = [f"{self.folder}/data/in.parquet"]
        given = {"inputs": inputs, "output": f"{self.folder}/data/{output}", "model": model, "text": "t"}
        return {**given, "hours": _not_now()}

    def upload(self, *models: str) -> str:
        """A file with a request for each model."""
        rows = [
            {"custom_id": f"{k}", "method": "POST", "url": "/v1/embeddings", "body": {"model": model, "input": "a"}}
            for k, model in enumerate(models)
        ]
        text = "\n".join(json.dumps(row) for row in rows)
        head = "--x\r\ncontent-disposition: form-data; name="
        body = f'{head}"purpose"\r\n\r\nbatch\r\n{head}"file"; filename="a.jsonl"\r\n\r\n{text}\r\n--x--\r\n'
        got = self.ask("all", "POST", "/v1/files", body.encode(), **{"content-type": "multipart/form-data; boundary=x"})
        assert got.status == 200, got.body
        return got.json()["id"]

    def clear(self) -> None:
        """No job and no batch is open."""
        for each in self.ask("all", "GET", "/v1/jobs").json()["data"]:
            if each["state"] in ("queued", "running", "paused", "failed"):
                self.ask("all", "POST", f"/v1/jobs/{each['id']}/cancel")


@pytest.fixture(scope="module")
def tenant(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tenant]:
    made = Tenant(tmp_path_factory.mktemp("tenant"))
    yield made
    made.server.end()


@pytest.fixture(autouse=True)
def nothing_open(tenant: Tenant) -> Iterator[None]:
    yield
    tenant.clear()


def test_jobs_that_are_submitted_at_once_are_no_more_than_are_allowed(tenant: Tenant) -> None:
    def submit(number: int) -> int:
        return tenant.ask("all", "POST", "/v1/jobs", tenant.job("all", f"out-{number}", "first")).status

    with ThreadPoolExecutor(AT_ONCE) as pool:
        statuses = Counter(pool.map(submit, range(AT_ONCE)))
    assert statuses == {200: OPEN_JOBS, 429: AT_ONCE - OPEN_JOBS}


def test_the_same_job_that_is_submitted_at_once_is_one_job(tenant: Tenant) -> None:
    def submit(_number: int) -> str:
        return tenant.ask("all", "POST", "/v1/jobs", tenant.job("all", "same", "first")).json()["id"]

    with ThreadPoolExecutor(AT_ONCE) as pool:
        assert len({*pool.map(submit, range(AT_ONCE))}) == 1


def test_batches_that_are_created_at_once_are_no_more_than_are_allowed(tenant: Tenant) -> None:
    files = [tenant.upload(*["first"] * 2_000) for _ in range(AT_ONCE)]

    def create(file: str) -> int:
        asked = {"input_file_id": file, "endpoint": "/v1/embeddings", "completion_window": "24h"}
        return tenant.ask("all", "POST", "/v1/batches", asked).status

    with ThreadPoolExecutor(AT_ONCE) as pool:
        statuses = [*pool.map(create, files)]
    listed = tenant.ask("all", "GET", "/v1/batches").json()["data"]
    over = sum(each["status"] in ("completed", "failed") for each in listed)
    assert statuses.count(200) <= OPEN_JOBS + over  # one that has ended makes room
    assert 429 in statuses
    for each in listed:
        tenant.ask("all", "POST", f"/v1/batches/{each['id']}/cancel")
    until(lambda: not _open_batches(tenant))


def _open_batches(tenant: Tenant) -> list[str]:
    listed = tenant.ask("all", "GET", "/v1/batches").json()["data"]
    return [each["id"] for each in listed if each["status"] not in ("completed", "failed", "cancelled", "expired")]


def test_a_key_of_one_model_resumes_no_job_of_another(tenant: Tenant) -> None:
    for model, expected in (("second", 403), ("first", 200)):
        made = tenant.ask("all", "POST", "/v1/jobs", tenant.job("all", f"of-{model}", model)).json()["id"]
        assert tenant.ask("all", "POST", f"/v1/jobs/{made}/pause").status == 200
        until(lambda made=made: tenant.ask("all", "GET", f"/v1/jobs/{made}").json()["state"] == "paused")
        got = tenant.ask("one", "POST", f"/v1/jobs/{made}/resume")
        assert got.status == expected
        assert expected == 200 or "may use first, not second" in got.message
        assert tenant.ask("all", "POST", f"/v1/jobs/{made}/cancel").status == 200


def test_a_key_of_one_model_resumes_no_schedule_of_another(tenant: Tenant) -> None:
    for model, expected in (("second", 403), ("first", 200)):
        job = tenant.job("all", f"scheduled-{model}" + "/{date}", model)
        asked = {"name": f"of-{model}", "cron": "0 3 * * *", "job": job}
        assert tenant.ask("all", "POST", "/v1/schedules", asked).status == 200
        assert tenant.ask("all", "POST", f"/v1/schedules/of-{model}/pause").status == 200
        for path in ("resume", "run"):
            assert tenant.ask("one", "POST", f"/v1/schedules/of-{model}/{path}").status == expected
        assert tenant.ask("all", "DELETE", f"/v1/schedules/of-{model}").status == 200


def test_a_key_of_one_model_retries_no_batch_of_another(tenant: Tenant) -> None:
    for model, expected in (("second", 403), ("first", 200)):
        file = tenant.upload(*[model] * 20_000)
        asked = {"input_file_id": file, "endpoint": "/v1/embeddings", "completion_window": "24h"}
        path = f"/v1/batches/{tenant.ask('all', 'POST', '/v1/batches', asked).json()['id']}"
        assert tenant.ask("all", "POST", f"{path}/cancel").status == 200
        until(lambda path=path: tenant.ask("all", "GET", path).json()["status"] == "cancelled")
        got = tenant.ask("one", "POST", f"{path}/retry")
        assert got.status == expected, got.body
        assert tenant.ask("all", "POST", f"{path}/retry").status == 200
    for each in _open_batches(tenant):
        tenant.ask("all", "POST", f"/v1/batches/{each}/cancel")
