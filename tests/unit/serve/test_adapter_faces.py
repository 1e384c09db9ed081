"""Adapters of one base over HTTP: by the name of the model, live, in batches and in jobs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from llm_service import LlmServer, llm_server, until

from twoshift.serve.keys import KeySettings, digest_of

pytest.importorskip("httptools")
pytest.importorskip("sqlalchemy")
ADAPTERS = ("sql", "support")
NAMES = {"m": "", "sql": "sql", "support": "support"}
OVER = ("completed", "failed", "expired", "cancelled")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlmServer]:
    with (
        pytest.MonkeyPatch.context() as patch,
        llm_server(tmp_path_factory.mktemp("home"), patch, adapters=ADAPTERS) as made,
    ):
        yield made


def test_models_are_listed_with_their_adapters(client: Any, server: LlmServer) -> None:
    listed = {each.id: getattr(each, "parent", None) for each in client.models.list()}
    assert listed == {"m": None, "sql": "m", "support": "m"}
    assert client.models.retrieve("sql").parent == "m"
    assert server.ask("GET", "/v1/models/sql").json()["ready"] is True
    assert server.ask("GET", "/v1/models/chess").status == 404


def test_every_face_asks_the_adapter_that_is_named(client: Any, server: LlmServer) -> None:
    for name, adapter in NAMES.items():
        expected = server.generated("hello", 5, adapter)
        chat = server.chat(model=name).json()
        assert (chat["model"], chat["choices"][0]["message"]["content"]) == (name, expected)
        chunks = [each for each in server.chat(model=name, stream=True).events() if isinstance(each, dict)]
        assert "".join(each["choices"][0]["delta"].get("content", "") for each in chunks) == expected
        assert {each["model"] for each in chunks} == {name}
        whole = client.completions.create(model=name, prompt="hello", max_tokens=5)
        assert (whole.model, whole.choices[0].text) == (name, expected)
        response = client.responses.create(model=name, input="hello", max_output_tokens=5, store=False)
        assert (response.model, response.output_text) == (name, expected)
        message = server.message(model=name).json()
        assert (message["model"], message["content"][0]["text"]) == (name, expected)


def test_an_unknown_adapter_is_not_found_and_the_known_ones_are_told(server: LlmServer) -> None:
    reply = server.chat(model="chess")
    assert (reply.status, reply.json()["error"]["code"]) == (404, "not_found")
    assert "m, sql, support" in reply.json()["error"]["message"]


def lines(bodies: dict[str, str], url: str = "/v1/chat/completions") -> bytes:
    asked = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 5}
    made = [
        {"custom_id": name, "method": "POST", "url": url, "body": {"model": model, **asked}}
        for name, model in bodies.items()
    ]
    return "\n".join(map(json.dumps, made)).encode()


def ended(client: Any, data: bytes) -> Any:
    file = client.files.create(file=("mine.jsonl", data), purpose="batch")
    batch = client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")
    until(lambda: client.batches.retrieve(batch.id).status in OVER)
    return client.batches.retrieve(batch.id)


def test_each_line_of_a_batch_is_for_its_own_model(client: Any, server: LlmServer) -> None:
    asked = {f"{name}-{k}": name for k in range(3) for name in NAMES}
    done = ended(client, lines(asked))
    assert (done.status, done.request_counts.completed, done.model) == ("completed", 9, "m")
    read = map(json.loads, client.files.content(done.output_file_id).text.splitlines())
    found = {line["custom_id"]: line["response"]["body"] for line in read}
    assert found.keys() == asked.keys()
    for custom_id, body in found.items():
        name = asked[custom_id]
        assert body["model"] == name
        assert body["choices"][0]["message"]["content"] == server.generated("hello", 5, NAMES[name])
    failed = ended(client, lines({"a": "sql", "b": "chess"}))
    assert (failed.status, [each.code for each in failed.errors.data]) == ("failed", ["mismatched_model"])


def test_message_batches_take_several_adapters(server: LlmServer) -> None:
    params = {"max_tokens": 5, "messages": [{"role": "user", "content": "hello"}]}
    requests = [{"custom_id": name, "params": {"model": name, **params}} for name in NAMES]
    path = "/v1/messages/batches"
    batch = server.ask("POST", path, {"requests": requests}).json()
    until(lambda: server.ask("GET", f"{path}/{batch['id']}").json()["processing_status"] == "ended")
    read = map(json.loads, server.ask("GET", f"{path}/{batch['id']}/results").body.splitlines())
    texts = {line["custom_id"]: line["result"]["message"]["content"][0]["text"] for line in read}
    assert texts == {name: server.generated("hello", 5, adapter) for name, adapter in NAMES.items()}


def test_a_job_on_the_server_has_the_adapter_as_its_model(server: LlmServer, tmp_path: Path) -> None:
    (tmp_path / "asked.jsonl").write_text('{"x": "hello"}\n{"x": "sea"}\n')
    settings = {
        "inputs": [f"{tmp_path}/asked.jsonl"], "output": f"{tmp_path}/out", "model": "sql", "prompt": "x",
        "max_tokens": 5, "output_format": "jsonl",
    }  # fmt: skip
    job = server.ask("POST", "/v1/jobs", settings).json()
    assert server.ask("POST", "/v1/jobs", settings).json()["id"] == job["id"]
    until(lambda: server.ask("GET", f"/v1/jobs/{job['id']}").json()["state"] in ("done", "failed"))
    done = server.ask("GET", f"/v1/jobs/{job['id']}").json()
    assert (done["state"], done["reason"]) == ("done", "")
    assert (done["settings"]["model"], done["settings"]["adapter"]) == ("m", "sql")
    assert done["progress"]["loaded"]["adapter"] == str(Path("adapters/sql").absolute())
    rows = [json.loads(line) for line in (tmp_path / "out/part-000000.jsonl").read_text().splitlines()]
    assert [row["text"] for row in rows] == [server.generated(text, 5, "sql") for text in ("hello", "sea")]
    plan = json.loads((tmp_path / "out/_twoshift/plan.json").read_text())
    assert plan["model"]["adapters"] == [{"name": "sql", "path": "adapters/sql", "checksum": "sha256:sql"}]
    assert "the adapter sql" in (tmp_path / "out/_twoshift/report.html").read_text()
    refused = server.ask("POST", "/v1/jobs", {**settings, "output": f"{tmp_path}/b", "adapter": "adapters/sql"})
    assert (refused.status, refused.json()["error"]["param"]) == (400, "adapter")
    assert server.ask("POST", "/v1/jobs", {**settings, "output": f"{tmp_path}/b", "model": "chess"}).status == 404


def test_a_key_is_for_the_names_that_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {"bot": KeySettings(digest_of("secret"), models=("sql",))}
    headers = {"authorization": "Bearer secret"}
    with llm_server(tmp_path, monkeypatch, keys=keys, adapters=ADAPTERS) as server:
        assert server.chat(model="sql", headers=headers).status == 200
        for name in ("m", "support"):
            assert server.chat(model=name, headers=headers).status == 403
        name = "mine.jsonl"
        body = (
            b'--x\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--x\r\n'
            b'content-disposition: form-data; name="file"; filename="%b"\r\n\r\n%b\r\n--x--\r\n'
        ) % (name.encode(), lines({"a": "sql", "b": "m"}))
        form = {"content_type": "multipart/form-data; boundary=x", **headers}
        file = server.ask("POST", "/v1/files", body, **form).json()
        wanted = {"input_file_id": file["id"], "endpoint": "/v1/chat/completions", "completion_window": "24h"}
        batch = server.ask("POST", "/v1/batches", wanted, **headers).json()
        until(lambda: server.ask("GET", f"/v1/batches/{batch['id']}", **headers).json()["status"] in OVER)
        done = server.ask("GET", f"/v1/batches/{batch['id']}", **headers).json()
        assert (done["status"], [each["code"] for each in done["errors"]["data"]]) == ("failed", ["model_not_found"])
