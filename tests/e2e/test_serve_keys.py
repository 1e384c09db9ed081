"""Keys and several models, from the command that makes a key to the client that shows it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from programs import command
from servers import Server, until
from user_models import written

pytestmark = pytest.mark.slow
LIMITS = {
    "alice": "requests_per_minute = 6",
    "bob": "concurrency = 1",
    "carol": 'models = ["rank"]',
    "dave": "",
}


def program(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return command(*words, env={"TWOSHIFT_HOME": str(home)})


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("httptools")
    made = tmp_path_factory.mktemp("home")
    written(made)
    return made


@pytest.fixture(scope="module")
def keys(home: Path) -> dict[str, str]:
    """As `twoshift key` makes them, with the server's file written from what it prints."""
    found, models = {}, home / "models.py"
    tables = [f'[models.{name.lower()}]\nmodel = "{models}:{name}"\nslo_ms = 60000' for name in ("Troubled", "Rank")]
    for name, limit in LIMITS.items():
        ended = program(home, "key", name, "--json")
        made = json.loads(ended.stdout)
        found[name] = made["key"]
        tables.append(f'[keys.{made["name"]}]\nsha256 = "{made["sha256"]}"\n{limit}')
    (home / "server.toml").write_text('host = "0.0.0.0"\n' + "\n".join(tables))
    return found


@pytest.fixture(scope="module")
def server(home: Path, keys: dict[str, str]) -> Iterator[Server]:
    made = Server(home, "--config", str(home / "server.toml"))
    made.host = "127.0.0.1"
    yield made
    made.end()


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def test_without_a_known_key_nobody_is_answered(server: Server, keys: dict[str, str]) -> None:
    for headers in ({}, bearer("ts-guess"), bearer(keys["dave"] + "x"), {"authorization": keys["dave"]}):
        for method, path in (("POST", "/v1/embeddings"), ("GET", "/v1/models"), ("GET", "/metrics"), ("GET", "/v2")):
            got = server.ask(method, path, {} if method == "POST" else None, headers)
            assert got.status == 401
            assert got.headers["www-authenticate"] == "Bearer"
    for path in ("/healthz", "/readyz", "/openapi.json"):
        assert server.ask("GET", path).status == 200


def test_keys_are_nowhere_but_with_their_owners(server: Server, home: Path, keys: dict[str, str]) -> None:
    shown = (home / "server.toml").read_text() + server.said + str(server.ask("GET", "/openapi.json").json())
    assert not any(key in shown for key in keys.values())


def test_openais_client_shows_its_key_and_is_told_what_it_may_not(server: Server, keys: dict[str, str]) -> None:
    openai = pytest.importorskip("openai")
    address = f"http://127.0.0.1:{server.port}/v1"
    with openai.OpenAI(base_url=address, api_key=keys["dave"]) as client:
        assert {model.id for model in client.models.list()} == {"troubled", "rank"}
        assert client.models.retrieve("rank").owned_by == "twoshift"
        found = client.embeddings.create(model="troubled", input=["a", "bb"])
        assert [each.embedding for each in found.data] == [[1.0, 1.0], [2.0, 1.0]]
    with openai.OpenAI(base_url=address, api_key="ts-guess") as client, pytest.raises(openai.AuthenticationError):
        client.models.list()
    forbidden = pytest.raises(openai.PermissionDeniedError, match="may use rank, not troubled")
    with openai.OpenAI(base_url=address, api_key=keys["carol"]) as client, forbidden:
        client.embeddings.create(model="troubled", input="a")
    once = openai.OpenAI(base_url=address, api_key=keys["alice"], max_retries=0)
    with once as client:
        client.embeddings.create(model="troubled", input="a")
        with pytest.raises(openai.RateLimitError, match="6 requests per minute") as told:
            client.embeddings.create(model="troubled", input="a")
    assert 1 <= int(told.value.response.headers["retry-after"]) <= 10
    assert float(told.value.response.headers["retry-after-ms"]) > 0


def test_a_key_may_have_only_so_many_requests_at_once(server: Server, keys: dict[str, str], tmp_path: Path) -> None:
    told, headers = tmp_path / "told", bearer(keys["bob"])
    with ThreadPoolExecutor(1) as pool:
        asked = {"model": "troubled", "input": f"sleep 1 {told}"}
        running = pool.submit(server.ask, "POST", "/v1/embeddings", asked, headers)
        until(told.exists)
        got = server.ask("POST", "/v1/embeddings", {"model": "troubled", "input": "a"}, headers)
        assert got.status == 429
        assert got.headers["retry-after"] == "1"
        assert (
            server.ask("POST", "/v1/embeddings", {"model": "troubled", "input": "a"}, bearer(keys["dave"])).status
            == 200
        )
        assert running.result().status == 200
    assert server.ask("POST", "/v1/embeddings", {"model": "troubled", "input": "a"}, headers).status == 200


def test_each_model_of_the_file_answers_as_what_it_is(server: Server, keys: dict[str, str]) -> None:
    headers = bearer(keys["carol"])
    asked = {"model": "rank", "query": "ab", "documents": ["ccc", {"text": "d"}, "ee"], "return_documents": True}
    got = server.ask("POST", "/v1/rerank", asked, headers)
    assert [(each["index"], each["document"]["text"]) for each in got.json()["results"]] == [
        (1, "d"), (2, "ee"), (0, "ccc"),
    ]  # fmt: skip
    top = server.ask("POST", "/v1/rerank", asked | {"top_n": 1, "return_documents": False}, headers).json()["results"]
    assert top == [{"index": 1, "relevance_score": 0.25}]
    assert server.ask("POST", "/v1/embeddings", {"model": "rank", "input": "a"}, headers).status == 400
    assert server.ask("GET", "/v1/derived/troubled", None, headers).json()["slo_s"] == 60.0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["minilm", "--host", "0.0.0.0"], "--host"),  # noqa: S104
        (["minilm", "--host", "::"], "--open"),
        (["--config", "nowhere.toml"], "nowhere.toml"),
        ([], "--config"),
        (["minilm", "--config", "a.toml"], "a.toml"),
        (["minilm", "--slo-ms", "0"], "--slo-ms"),
    ],
)
def test_a_server_that_should_not_start_says_why(home: Path, words: list[str], told: str) -> None:
    ended = program(home, "serve", *words)
    assert ended.returncode == 2
    assert told in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_misspelt_key_of_the_file_is_told_with_the_nearest(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "server.toml"
    path.write_text("max_connection = 5\n[models.minilm]\n")
    ended = program(home, "serve", "--config", str(path))
    assert ended.returncode == 2
    assert "such as max_connections" in " ".join(ended.stderr.split())
