"""Batches with replica processes, files in S3 and the database in PostgreSQL: the same flow."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from batch_clients import client_of, ended, outcome, request_line, started
from s3_server import CREDENTIALS, make_bucket, moto_server
from servers import Server, until
from user_models import written

pytest.importorskip("openai")
pytest.importorskip("sqlalchemy")
pytestmark = pytest.mark.slow


@pytest.fixture
def servers() -> Iterator[list[Server]]:
    made: list[Server] = []
    yield made
    for each in made:
        each.end()


def test_a_batch_rides_in_the_lanes_of_replica_processes(tmp_path: Path, servers: list[Server]) -> None:
    servers.append(Server(tmp_path, f"{written(tmp_path)}:Embed", "--replicas", "2"))
    client, ids = client_of(servers[-1]), [str(k) for k in range(3000)]
    done = ended(client, started(client, [request_line(each, "Embed", ["a", "bb"]) for each in ids]).id)
    output, _ = outcome(client, done, ids)
    assert [line["custom_id"] for line in output] == ids


def test_files_lie_in_s3_and_the_rest_in_postgresql(
    tmp_path: Path, servers: list[Server], request: pytest.FixtureRequest
) -> None:
    for name in ("moto", "obstore", "psycopg"):
        pytest.importorskip(name)
    database = request.getfixturevalue("postgres").url()
    with moto_server() as endpoint:
        make_bucket(endpoint, "results")
        environment = {**CREDENTIALS, "AWS_ENDPOINT_URL": endpoint}
        config = tmp_path / "server.toml"
        config.write_text(f"""
            database = "{database}"
            [models.troubled]
            model = "{written(tmp_path)}:Troubled"
            slo_ms = 60000
            [files]
            location = "s3://results/files"
        """)
        servers.append(Server(tmp_path, "--config", str(config), more=environment))
        client, ids = client_of(servers[-1]), [str(k) for k in range(100)]
        batch = started(client, [request_line(each, "troubled", "sleep 0.02") for each in ids], "100s")
        until(lambda: client.batches.retrieve(batch.id).status == "in_progress")
        servers[-1].stop(signal.SIGKILL)
        servers.append(Server(tmp_path, "--config", str(config), more=environment))
        client = client_of(servers[-1])
        outcome(client, ended(client, batch.id), ids)
        assert client.files.delete(batch.input_file_id).deleted
