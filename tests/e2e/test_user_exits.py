"""A user's code that would end the program ends one request: as any exception, it is a 500, and the model lives on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from servers import Server, until

pytest.importorskip("httptools")
pytestmark = pytest.mark.slow
PATIENT = {"x_request_timeout_ms": "20000"}
SOURCE = """
import sys

import numpy as np


def trouble(text, where):
    if text == f"exit {where}":
        sys.exit(3)
    if text == f"interrupt {where}":
        raise KeyboardInterrupt


class Exits:
    outputs = ("embedding",)
    example = "a"

    def load(self):
        pass

    def prepare(self, rows):
        for row in rows:
            trouble(row, "prepare")
        texts = np.empty(len(rows), object)
        texts[:] = rows
        return {"text": texts}

    def predict(self, batch):
        for text in batch["text"]:
            trouble(text, "predict")
        return {"embedding": np.array([[len(text), 1.0] for text in batch["text"]])}


class Looked(Exits):
    async def prepare(self, row):
        trouble(row, "prepare")
        return {"text": row}
"""
MODELS = {"plain": "Exits", "looked": "Looked", "fleet": "Exits", "looked-fleet": "Looked"}
WORDS = [f"{what} {where}" for what in ("exit", "interrupt") for where in ("predict", "prepare")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder: Path = tmp_path_factory.mktemp("exits")
    (folder / "m.py").write_text(SOURCE)
    tables = [
        f'[models.{name}]\nmodel = "{folder}/m.py:{kind}"\nslo_ms = 2000\n{"replicas = 1" if "fleet" in name else ""}'
        for name, kind in MODELS.items()
    ]
    (folder / "serve.toml").write_text("\n".join(tables))
    made = Server(folder / "home", "--config", str(folder / "serve.toml"))
    yield made
    made.end()


@pytest.mark.parametrize("words", WORDS)
@pytest.mark.parametrize("model", MODELS)
def test_a_live_request_fails_and_the_next_one_is_answered(server: Server, model: str, words: str) -> None:
    got = server.embed(model, words, **PATIENT)
    assert (got.status, got.json()["error"]["type"]) == (500, "internal_error"), got.body
    assert ("SystemExit" if words.startswith("exit") else "KeyboardInterrupt") in got.message
    assert server.embed(model, "a", **PATIENT).status == 200
    assert server.ask("GET", "/readyz").status == 200


@pytest.mark.parametrize("model", ["plain", "looked-fleet"])
def test_rows_of_a_batch_fail_alone(server: Server, model: str) -> None:
    pytest.importorskip("sqlalchemy")
    given = ["a", *WORDS, "bb"]
    lines = [
        {"custom_id": f"{k}", "method": "POST", "url": "/v1/embeddings", "body": {"model": model, "input": text}}
        for k, text in enumerate(given)
    ]
    head, text = "--x\r\ncontent-disposition: form-data; name=", "\n".join(map(json.dumps, lines))
    body = f'{head}"purpose"\r\n\r\nbatch\r\n{head}"file"; filename="a.jsonl"\r\n\r\n{text}\r\n--x--\r\n'.encode()
    file = server.ask("POST", "/v1/files", body, {"content-type": "multipart/form-data; boundary=x"}).json()["id"]
    asked = {"input_file_id": file, "endpoint": "/v1/embeddings", "completion_window": "24h"}
    path = f"/v1/batches/{server.ask('POST', '/v1/batches', asked).json()['id']}"
    until(lambda: server.ask("GET", path).json()["status"] in ("completed", "failed"))
    found = server.ask("GET", path).json()
    assert found["request_counts"] == {"total": 6, "completed": 2, "failed": 4}
    errors = server.ask("GET", f"/v1/files/{found['error_file_id']}/content").body.splitlines()
    assert {json.loads(line)["response"]["status_code"] for line in errors} == {500}
