"""What tenants have had of a language model: by lane, in tokens, device seconds and dollars."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from llm_service import LlmServer, llm_server, until

from twoshift.serve.keys import KeySettings, digest_of
from twoshift.serve.tenants import TenantSettings

pytest.importorskip("httptools")
pytest.importorskip("sqlalchemy")
SPENT = "device seconds for today"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlmServer]:
    names = {"red": "red", "reds": "red", "blue": "blue", "poor": "poor"}
    keys = {name: KeySettings(sha256=digest_of(f"ts-{name}"), tenant=tenant) for name, tenant in names.items()}
    keys["root"] = KeySettings(sha256=digest_of("ts-root"), scopes=("admin",))
    tenants = {"poor": TenantSettings(device_seconds_per_day=1e-9)}
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch, llm_server(home, patch, keys=keys, tenants=tenants) as made:
        yield made


def asked(server: LlmServer, who: str, **more: Any) -> Any:
    return server.chat("hello", {"authorization": f"Bearer ts-{who}"}, **more)


def usage(server: LlmServer, who: str, group_by: str = "tenant,lane,model") -> dict[str, dict[str, Any]]:
    """By lane."""
    got = server.ask("GET", f"/v1/usage?group_by={group_by}", authorization=f"Bearer ts-{who}")
    assert got.status == 200, got.body
    return {each["lane"]: each for each in got.json()["data"]}


def batch(openai: Any, server: LlmServer, who: str, count: int) -> Any:
    """A batch of so many requests."""
    body = {"model": "m", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 5}
    lines = [
        json.dumps({"custom_id": f"r{k}", "method": "POST", "url": "/v1/chat/completions", "body": body})
        for k in range(count)
    ]
    with openai.OpenAI(base_url=f"{server.address}/v1", api_key=f"ts-{who}", max_retries=0) as client:
        file = client.files.create(file=("mine.jsonl", "\n".join(lines).encode()), purpose="batch")
        return client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")


def test_live_requests_and_a_batch_are_their_tenants(server: LlmServer, openai: Any) -> None:
    assert asked(server, "red").status == asked(server, "reds", n=2).status == 200
    assert asked(server, "red", stream=True).status == 200
    assert asked(server, "blue").status == 200
    batch(openai, server, "red", 3)
    until(lambda: usage(server, "red").get("batch", {}).get("rows") == 3)
    until(lambda: usage(server, "red").get("live", {}).get("rows") == 4)
    red = usage(server, "red")
    assert {(each["tenant"], each["model"]) for each in red.values()} == {("red", "m")}
    for lane, each in red.items():
        assert each["tokens"] >= each["rows"] * 5
        assert each["device_s"] > 0
        assert each["harvested_s"] == (each["device_s"] if lane == "batch" else 0)
        assert each["usd"] == pytest.approx(each["device_s"] * 3.6 / 3600 * (0.5 if lane == "batch" else 1))
    until(lambda: usage(server, "blue").get("live", {}).get("rows") == 1)
    busy = server.engine.stats().busy_s
    until(lambda: sum(each["device_s"] for each in usage(server, "root", "lane").values()) == pytest.approx(busy))
    shown = server.ask("GET", "/metrics", authorization="Bearer ts-root").body.decode()
    assert 'twoshift_tenant_device_seconds_total{lane="live",tenant="red"}' in shown


def test_one_whose_client_hangs_up_pays_for_what_it_had(server: LlmServer, openai: Any) -> None:
    before = usage(server, "blue").get("live", {}).get("rows", 0)
    with openai.OpenAI(base_url=f"{server.address}/v1", api_key="ts-blue", max_retries=0) as client:
        stream = client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "x"}], max_tokens=200, stream=True
        )
        next(stream)
        stream.close()
    until(lambda: usage(server, "blue").get("live", {}).get("rows") == before + 1)


@pytest.mark.slow
def test_who_has_spent_its_day_is_refused_and_its_batches_wait(server: LlmServer, openai: Any) -> None:
    answered = 0
    while (got := asked(server, "poor")).status == 200:
        answered += 1
    assert answered
    assert got.status == 429
    assert SPENT in got.json()["error"]["message"]
    assert 0 < int(got.headers["retry-after"]) <= 86_400
    assert asked(server, "red").status == 200
    made = batch(openai, server, "poor", 2)

    def waits() -> bool:
        listed = server.ask("GET", "/v1/jobs", authorization="Bearer ts-root").json()["data"]
        return any(SPENT in each["reason"] for each in listed)

    until(waits)
    until(lambda: usage(server, "poor")["live"]["rows"] == answered)  # the last one is booked behind its reply
    headers = {"authorization": "Bearer ts-poor"}
    assert server.ask("POST", f"/v1/batches/{made.id}/cancel", {}, **headers).status == 200
