"""Anthropic's message batches over HTTP, on the machinery of all batches."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from llm_service import LlmServer, llm_server, until

from twoshift.serve.keys import KeySettings, digest_of

pytest.importorskip("httptools")
pytest.importorskip("sqlalchemy")
PATH = "/v1/messages/batches"


def request(custom_id: str, content: Any, **more: Any) -> dict[str, Any]:
    params = {"model": "m", "max_tokens": 6, "messages": [{"role": "user", "content": content}], **more}
    return {"custom_id": custom_id, "params": params}


def made(server: LlmServer, *requests: dict[str, Any], **headers: str) -> Any:
    reply = server.ask("POST", PATH, {"requests": requests}, **headers)
    assert reply.status == 200, reply.body
    return reply.json()


def ended(server: LlmServer, batch_id: str) -> Any:
    until(lambda: server.ask("GET", f"{PATH}/{batch_id}").json()["processing_status"] == "ended")
    return server.ask("GET", f"{PATH}/{batch_id}").json()


def results(server: LlmServer, batch: Any) -> dict[str, Any]:
    assert batch["results_url"] == f"{server.address}{PATH}/{batch['id']}/results"
    reply = server.ask("GET", f"{PATH}/{batch['id']}/results")
    assert reply.status == 200
    return {line["custom_id"]: line["result"] for line in map(json.loads, reply.body.splitlines())}


def test_the_whole_flow(server: LlmServer) -> None:
    parts = [{"type": "text", "text": "two"}]
    batch = made(
        server,
        request("one", "one", system="Be short.", temperature=0.5, top_k=3, metadata={"user_id": "x"}),
        request("two", parts, stop_sequences=["zzzz"], stream=False, service_tier="auto", tools=None),
        request("bad", "x", container="c"),
        request("long", "x" * 300),
    )
    assert batch["type"] == "message_batch"
    assert batch["processing_status"] == "in_progress"
    assert batch["request_counts"] == {"processing": 4, "succeeded": 0, "errored": 0, "canceled": 0, "expired": 0}
    assert batch["results_url"] is batch["ended_at"] is None
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", batch["created_at"])
    done = ended(server, batch["id"])
    assert done["request_counts"] == {"processing": 0, "succeeded": 2, "errored": 2, "canceled": 0, "expired": 0}
    assert done["ended_at"] is not None
    found = results(server, done)
    message = found["one"]["message"]
    assert found["one"]["type"] == "succeeded"
    assert (message["type"], message["role"], message["stop_reason"]) == ("message", "assistant", "max_tokens")
    expected = server.generated("Be short.one", 6)
    assert message["content"] == [{"type": "text", "text": expected}]
    usage = message["usage"]
    assert usage["input_tokens"] + usage["cache_read_input_tokens"] == 12
    assert usage["output_tokens"] == 6
    assert found["bad"]["type"] == "errored"
    assert found["bad"]["error"]["type"] == "error"
    assert found["bad"]["error"]["error"]["type"] == "invalid_request_error"
    assert "tools" in found["bad"]["error"]["error"]["message"]
    assert found["long"]["error"]["error"]["type"] == "invalid_request_error"


def test_paths_that_are_not_there_are_told_as_anthropic_does(server: LlmServer) -> None:
    missing, wrong = "not_found_error", "invalid_request_error"
    asked = [("POST", "/v1/messages/x", missing), ("GET", "/v1/messages/x", missing), ("PUT", PATH, wrong)]
    for method, path, kind in asked:
        told = server.ask(method, path, {} if method == "POST" else None).json()
        assert (told["type"], told["error"]["type"]) == ("error", kind)
    assert "code" in server.ask("GET", "/v1/nothing").json()["error"]


def test_the_same_request_sent_again_is_one_batch(server: LlmServer) -> None:
    first, again = (made(server, request("same", "the very same")) for _ in range(2))
    assert first["id"] == again["id"]
    assert made(server, request("same", "another"))["id"] != first["id"]


def test_it_can_be_listed_in_pages_both_ways(server: LlmServer) -> None:
    ids = [made(server, request("a", f"page {k}"))["id"] for k in range(3)][::-1]
    page = server.ask("GET", f"{PATH}?limit=2").json()
    assert [each["id"] for each in page["data"]] == ids[:2]
    assert (page["first_id"], page["last_id"], page["has_more"]) == (ids[0], ids[1], True)
    older = server.ask("GET", f"{PATH}?limit=1&after_id={ids[1]}").json()
    assert [each["id"] for each in older["data"]] == ids[2:]
    newer = server.ask("GET", f"{PATH}?limit=1&before_id={ids[2]}").json()
    assert [each["id"] for each in newer["data"]] == [ids[1]]
    assert newer["has_more"]
    assert server.ask("GET", f"{PATH}?after_id=nothing").status == 404


def test_a_batch_that_is_cancelled_tells_so_of_each_request_that_was_not_run(server: LlmServer) -> None:
    server.llm.gate.clear()
    try:
        batch = made(server, *(request(f"r{k}", f"{k} to cancel") for k in range(5)))
        reply = server.ask("POST", f"{PATH}/{batch['id']}/cancel")
        assert reply.json()["processing_status"] == "canceling"
        assert reply.json()["cancel_initiated_at"] is not None
        assert server.ask("GET", f"{PATH}/{batch['id']}/results").status in (200, 400)
    finally:
        server.llm.gate.set()
    done = ended(server, batch["id"])
    counts = done["request_counts"]
    assert counts["succeeded"] + counts["canceled"] == 5
    kinds = [each["type"] for each in results(server, done).values()]
    assert kinds.count("canceled") == counts["canceled"]
    assert server.ask("POST", f"{PATH}/{batch['id']}/cancel").json()["processing_status"] == "ended"


def test_one_that_has_ended_can_be_deleted(server: LlmServer) -> None:
    batch = made(server, request("gone", "soon"))
    done = ended(server, batch["id"])
    deleted = server.ask("DELETE", f"{PATH}/{done['id']}")
    assert deleted.json() == {"id": done["id"], "type": "message_batch_deleted"}
    for path in (done["id"], f"{done['id']}/results"):
        assert server.ask("GET", f"{PATH}/{path}").status == 404


def test_what_cannot_be_a_batch_is_refused_in_anthropics_words(server: LlmServer) -> None:
    wrong: list[tuple[Any, int, str]] = [
        ([], 400, "requests"),
        ([request("a", "x"), request("a", "y")], 400, "custom_id"),
        ([request("not allowed!", "x")], 400, "custom_id"),
        ([request("a", "x", model="other")], 404, "other"),
        ([{"custom_id": "a", "params": {}}], 400, "model"),
    ]
    for requests, status, named in wrong:
        reply = server.ask("POST", PATH, {"requests": requests})
        assert reply.status == status, requests
        error = reply.json()
        assert error["type"] == "error"
        assert named in error["error"]["message"]


def test_another_kind_of_batch_is_none(server: LlmServer) -> None:
    assert server.ask("GET", f"{PATH}/batch_unknown").status == 404


def test_a_key_is_taken_as_anthropics_client_sends_it(tmp_path: Path, monkeypatch: Any) -> None:
    keys = {name: KeySettings(sha256=digest_of(f"ts-{name}")) for name in ("one", "two")}
    with llm_server(tmp_path, monkeypatch, keys=keys) as server:
        refused = server.ask("POST", PATH, {"requests": [request("a", "x")]})
        assert (refused.status, refused.json()["error"]["type"]) == (401, "authentication_error")
        batch = made(server, request("a", "x"), x_api_key="ts-one")
        assert server.ask("GET", f"{PATH}/{batch['id']}", x_api_key="ts-two").status == 404
        assert server.ask("GET", f"{PATH}/{batch['id']}", x_api_key="ts-one").status == 200


@pytest.mark.slow
def test_anthropics_own_client_runs_it(claude: Any) -> None:
    batch = claude.messages.batches.create(requests=[request("by-client", "hello")])
    until(lambda: claude.messages.batches.retrieve(batch.id).processing_status == "ended")
    [result] = claude.messages.batches.results(batch.id)
    assert result.custom_id == "by-client"
    assert result.result.message.content[0].text
    assert batch.id in [each.id for each in claude.messages.batches.list()]
    assert claude.messages.batches.delete(batch.id).id == batch.id
