"""A job's answers by key in a running server: replaced, deleted, in Redis; and live ones where they are missing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from programs import command
from real_redis import RealRedis
from servers import Got, Server, until
from user_models import WORDS

pytestmark = pytest.mark.slow
DOCS = {"fox": "a red fox", "road": "an old road", "bad": "bad", "house": "a stone house"}


def table(rows: dict[str, str] | list[tuple[str, str]]) -> pa.Table:
    pairs = rows.items() if isinstance(rows, dict) else rows
    return pa.table({"id": [key for key, _ in pairs], "body": [text for _, text in pairs]})


def program(place: Path, *words: str, expect: int = 0) -> Any:
    ended = command(*words, cwd=place, env={"TWOSHIFT_HOME": str(place / "home")})
    assert ended.returncode == expect, ended.stderr
    return ended


def nightly(place: Path, source: str, out: str, *more: str) -> None:
    program(place, "run", source, "--model", "words.py:Words", "--text", "body", "--keep", "id,body", "-o", out, *more)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("httptools")
    made = tmp_path_factory.mktemp("hybrid")
    (made / "words.py").write_text(WORDS)
    (made / "docs").mkdir()
    pq.write_table(table([*DOCS.items(), ("fox", "a blue fox")]), made / "docs" / "monday.parquet")
    nightly(made, "docs", "monday", "--answer-key", "id", "--answer-table", f"{made}/answers")
    return made


@pytest.fixture(scope="module")
def server(place: Path) -> Iterator[Server]:
    words = [f"{place}/words.py:Words", "--name", "words", "--slo-ms", "60000", "--max-age", "1h", "--key", "id"]
    made = Server(place / "home", *words, "--precomputed", f"{place}/answers")
    until(lambda: made.counted("precomputed_keys", model="words") == 3)
    yield made
    made.end()


def embed(server: Server, texts: list[str], keys: list[str] | None = None) -> Got:
    asked: dict[str, Any] = {"model": "words", "input": texts} | ({} if keys is None else {"keys": keys})
    return server.ask("POST", "/v1/embeddings", asked)


def vectors(got: Got) -> list[list[float]]:
    assert got.status == 200, got.body
    return [each["embedding"] for each in got.json()["data"]]


def source(got: Got) -> str:
    return got.headers["x-twoshift-source"]


def test_a_key_that_is_there_is_answered_from_the_job_as_live_and_says_its_age(server: Server) -> None:
    by_key, live = embed(server, ["anything"] * 2, ["road", "house"]), embed(server, [DOCS["road"], DOCS["house"]])
    assert (source(by_key), source(live)) == ("precomputed", "live")
    assert vectors(by_key) == vectors(live)
    assert 0 <= int(by_key.headers["age"]) < 3600
    assert by_key.headers["x-twoshift-version"] == live.headers["x-twoshift-version"]


def test_the_last_row_of_a_key_wins_and_rows_with_errors_are_computed_live(server: Server) -> None:
    assert vectors(embed(server, ["x"], ["fox"])) == vectors(embed(server, ["a blue fox"]))
    assert server.counted("precomputed_superseded_rows", model="words") == 1
    assert source(embed(server, ["mended"], ["bad"])) == "live"


def test_one_request_may_have_both(server: Server) -> None:
    got = embed(server, ["x", "a new text", "x"], ["road", "new", "house"])
    assert source(got) == "mixed"
    assert vectors(got) == vectors(embed(server, [DOCS["road"], "a new text", DOCS["house"]]))


def test_rows_of_named_values_tensors_and_keys_alone_find_the_same(server: Server) -> None:
    wanted = vectors(embed(server, [DOCS["road"]]))[0]
    scored = server.ask("POST", "/v1/score/words", {"rows": [{"id": "road", "text": "x"}]})
    assert (source(scored), scored.json()["rows"][0]["embedding"]) == ("precomputed", wanted)
    tensors = [{"name": name, "datatype": "BYTES", "shape": [1], "data": [value]} for name, value in
               (("text", "x"), ("id", "road"))]  # fmt: skip
    inferred = server.ask("POST", "/v2/models/words/infer", {"inputs": tensors})
    assert (source(inferred), inferred.json()["outputs"][0]["data"]) == ("precomputed", wanted)
    replied = server.ask("POST", "/v1/lookup", {"keys": ["road", "nobody"]})
    assert (source(replied), 0 <= int(replied.headers["age"]) < 3600) == ("precomputed", True)
    looked = replied.json()["rows"]
    assert [each["found"] for each in looked] == ["hit", "miss"]
    assert (looked[0]["outputs"]["embedding"], looked[1]["outputs"]) == (wanted, None)


def test_keys_of_another_type_or_number_are_refused(server: Server) -> None:
    assert embed(server, ["x"], [5]).status == 400  # type: ignore[list-item]
    assert "one for each text" in embed(server, ["x"], ["a", "b"]).message


def test_the_next_night_replaces_all_of_it_while_it_serves(place: Path, server: Server) -> None:
    pq.write_table(table({"road": "a new road", "hill": "a green hill"}), place / "tuesday.parquet")
    nightly(place, "tuesday.parquet", "tuesday", "--answer-key", "id", "--answer-table", f"{place}/answers")
    until(lambda: server.counted("precomputed_swaps_total", model="words") == 2)
    assert vectors(embed(server, ["x"] * 2, ["road", "hill"])) == vectors(embed(server, ["a new road", "a green hill"]))
    assert source(embed(server, ["x"], ["house"])) == "live"  # which tuesday's corpus does not have


def test_answers_that_are_deleted_are_computed_live(place: Path, server: Server) -> None:
    shutil.move(place / "answers", place / "moved")
    until(lambda: server.counted("precomputed_keys", model="words") == 0)
    assert source(embed(server, ["x"], ["road"])) == "live"
    assert server.counted("precomputed_problems_total", model="words") > 0
    shutil.move(place / "moved", place / "answers")
    until(lambda: source(embed(server, ["x"], ["road"])) == "precomputed")


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RealRedis]:
    with RealRedis(tmp_path) as made:
        yield made


def test_servers_share_answers_in_redis_and_go_on_without_it(place: Path, redis: RealRedis) -> None:
    assert "--into-key" in program(place, "load", "monday", "--into", redis.place("docs"), expect=2).stderr
    loaded = program(place, "load", "monday", "--into", redis.place("docs"), "--into-key", "id")
    assert "3 keys from the column id" in loaded.stdout
    words = [f"{place}/words.py:Words", "--name", "words", "--slo-ms", "60000", "--key", "id", "--fronts", "2"]
    made = Server(place / "home", *words, "--precomputed", redis.place("docs"), "--write-back")
    try:
        until(lambda: source(embed(made, ["x"], ["house"])) == "precomputed")
        assert vectors(embed(made, ["x"], ["house"])) == vectors(embed(made, [DOCS["house"]]))
        until(lambda: source(embed(made, ["a new text"], ["new"])) == "precomputed")
        nightly(place, "docs", "again", "--answer-key", "id", "--answer-table", redis.place("docs"))
        until(lambda: made.counted("precomputed_swaps_total", model="words") == 2)
        redis.kill()
        assert source(embed(made, [DOCS["house"]], ["house"])) == "live"
        until(lambda: made.counted("precomputed_rows_total", model="words", found="unavailable") >= 1)
        redis.start()
        until(lambda: source(embed(made, ["x"], ["house"])) == "precomputed")
    finally:
        made.end()
