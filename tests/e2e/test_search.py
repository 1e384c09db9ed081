"""An index from the job that builds it to the client that searches it: the command, and a server that follows it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from programs import command
from servers import Got, Server, until
from user_models import WORDS

pytestmark = pytest.mark.slow
MODEL = (
    WORDS
    + """

class Waves:
    outputs = ("embedding",)

    def load(self):
        pass

    def predict(self, batch):
        x = np.asarray(batch["x"])
        return {"embedding": np.stack([np.sin(x * k) for k in range(1, 9)], 1).astype(np.float32)}


class Label:
    outputs = ("score",)

    def load(self):
        pass

    def predict(self, batch):
        return {"score": np.ones(len(batch["x"]))}
"""
)
TEXTS = ["a red fox", "an old road", "a stone house", "bad", "a red fox", "rivers run by"]
KEY = "tk-test"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for module in ("usearch", "httptools"):
        pytest.importorskip(module)
    made = tmp_path_factory.mktemp("search")
    (made / "words.py").write_text(MODEL)
    ids = ["fox", "road", "house", "bad", "fox again", "river"]
    pq.write_table(pa.table({"id": ids, "body": TEXTS}), made / "docs.parquet")
    pq.write_table(pa.table({"id": ["new"], "body": ["a red fox"]}), made / "more.parquet")
    return made


def program(place: Path, *words: str, expect: int = 0) -> Any:
    ended = command(*words, cwd=place, env={"TWOSHIFT_HOME": str(place / "home")})
    assert ended.returncode == expect, ended.stderr
    return ended


def run(place: Path, source: str, out: str, *more: str, expect: int = 0, model: str = "words.py:Words") -> Any:
    words = ["run", source, "--model", model, "--text", "body", "--keep", "id", "-o", out, "--index-key", "id", *more]
    return program(place, *words, expect=expect)


@pytest.fixture(scope="module")
def indexed(place: Path) -> Path:
    run(place, "docs.parquet", "out", "--index", "vectors.usearch")
    return place


def test_the_command_finds_the_rows_nearest_to_a_text(indexed: Path) -> None:
    found = json.loads(program(indexed, "search", "out/", "a red fox", "old road", "-k", "2", "--json").stdout)
    assert {hit["key"] for hit in found["data"][0]["hits"]} == {"fox", "fox again"}
    assert found["data"][0]["hits"][0]["score"] == pytest.approx(1, abs=2e-3)
    assert found["data"][1]["hits"][0]["key"] == "road"
    assert "road" in program(indexed, "search", "out", "old road", "-k", "1").stdout


def test_the_report_and_the_manifest_have_the_recall_and_what_was_left_out(indexed: Path) -> None:
    for name in ("report.json", "manifest.json"):
        made = json.loads((indexed / "out" / "_twoshift" / name).read_text())["index"]
        assert (made["rows"], made["recall"], made["switched"]) == (5, 1.0, True)
        assert made["left_out"] == {"without a result": 1}
    assert "recall@10" in (indexed / "out" / "_twoshift" / "report.html").read_text()


def test_another_model_than_that_of_the_index_is_refused(indexed: Path) -> None:
    (indexed / "other.py").write_text(MODEL.replace("+= 1", "+= 2"))
    told = program(indexed, "search", "out", "a red fox", "--model", "other.py:Words", expect=2).stderr
    assert "checksum" in told


def test_what_is_no_index_is_refused(indexed: Path) -> None:
    assert "run with --index" in program(indexed, "search", "home", "a red fox", expect=2).stderr


def test_a_model_without_vectors_is_refused_and_no_job_is_begun(place: Path) -> None:
    pq.write_table(pa.table({"id": ["a"], "x": [1.0]}), place / "x.parquet")
    words = ["run", "x.parquet", "--model", "words.py:Label", "--columns", "x", "-o", "none", "--index", "v.usearch"]
    assert "one vector output" in program(place, *words, expect=2).stderr
    assert not (place / "none" / "_twoshift" / "plan.json").exists()


def test_an_index_below_its_recall_is_not_switched_to_and_the_rows_stay(place: Path) -> None:
    """Half precision changes the order of near neighbours, so that no effort finds all of them."""
    numbers = {"id": [str(k) for k in range(3000)], "x": [k / 7 for k in range(3000)]}
    pq.write_table(pa.table(numbers), place / "many.parquet")
    words = ["run", "many.parquet", "--model", "words.py:Waves", "--columns", "x", "-o", "poor", "--index", "v.usearch"]
    ended = program(place, *words, "--index-recall", "1", expect=6)
    assert "Searches do not use this index" in " ".join(ended.stdout.split())
    assert not (place / "poor" / "_SUCCESS").exists()
    assert len(pq.read_table([*(place / "poor").glob("part-*")])) == 3000
    assert not [*(place / "poor").rglob("current-*")]
    program(place, *words, "--index-recall", "0.5")  # the same generation
    assert len([*(place / "poor").rglob("current-*")]) == 1
    assert (place / "poor" / "_SUCCESS").exists()


@pytest.fixture(scope="module")
def server(place: Path) -> Iterator[Server]:
    """It is there before the first index is."""
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    model = f'model = "{place / "words.py"}:Words"\nslo_ms = 60000\nreplicas = 2'
    tables = [f'[models.words]\n{model}\nindex = "{place / "shared.usearch"}"', f'[keys.alice]\nsha256 = "{digest}"']
    (place / "server.toml").write_text("\n".join(tables))
    made = Server(place / "served", "--config", str(place / "server.toml"))
    yield made
    made.end()


def ask(server: Server, body: Any, key: str = KEY) -> Got:
    return server.ask("POST", "/v1/search", body, {"authorization": f"Bearer {key}"})


def test_a_server_searches_each_new_generation_from_when_it_is_there(place: Path, server: Server) -> None:
    asked = {"model": "words", "query": "a red fox", "k": 1}
    assert ask(server, asked, key="nobody").status == 401
    early = ask(server, asked)
    assert (early.status, "retry-after" in early.headers) == (503, True), early.body
    index = str(place / "shared.usearch")
    run(place, "docs.parquet", "first", "--index", index)
    until(lambda: ask(server, asked).status == 200)
    first = ask(server, asked).json()
    assert first["data"][0]["hits"][0]["key"] in ("fox", "fox again")
    several = ask(server, {"query": ["old road", "stone house"], "k": 2}).json()  # of the only model
    assert [each["hits"][0]["key"] for each in several["data"]] == ["road", "house"]
    run(place, "more.parquet", "second", "--index", index)
    until(lambda: ask(server, asked).json()["generation"] != first["generation"])
    assert [hit["key"] for hit in ask(server, asked).json()["data"][0]["hits"]] == ["new"]
    for wrong in ({"query": []}, {"query": "x", "k": 0}, {"query": "x", "top": 1}, {"query": "bad"}):
        assert ask(server, wrong).status == 400, wrong
    assert ask(server, asked | {"model": "nobody"}).status == 404
    found = server.ask("GET", "/openapi.json", None, {"authorization": f"Bearer {KEY}"}).json()
    assert "SearchReply" in json.dumps(found["paths"]["/v1/search"])
    told = command(
        "search", "words", "a red fox", "--on", server.address, cwd=place, env={"TWOSHIFT_KEY": KEY}
    )  # fmt: skip
    assert "new" in told.stdout, told.stderr
