"""From batch to online and back, as docs/migration.md has it: one model definition, the same answers at each step."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from programs import command
from servers import Server, until
from user_models import WORDS

pytestmark = pytest.mark.slow
TEXTS = ["a red fox", "an old road", "a stone house"]
NEW = "a tall tower"


class Team:
    """A folder with documents and a model; its clients send texts, and change nothing on the way."""

    def __init__(self, place: Path) -> None:
        self.place = place
        (place / "words.py").write_text(WORDS)
        (place / "docs").mkdir()
        self.arrive("monday", TEXTS)

    def arrive(self, name: str, texts: list[str]) -> None:
        pq.write_table(
            pa.table({"id": [text[-3:] for text in texts], "body": texts}), self.place / f"docs/{name}.parquet"
        )

    def run(self, *words: str) -> None:
        model = ("--model", "words.py:Words", "--text", "body", "--keep", "id,body")
        ended = command(*words, *model, cwd=self.place, env={"TWOSHIFT_HOME": str(self.place / "home")})
        assert ended.returncode == 0, ended.stderr

    def in_parts(self, output: str) -> dict[str, list[float]]:
        rows = pq.read_table(self.place / output, columns=["body", "embedding"]).to_pylist()
        return {row["body"]: row["embedding"] for row in rows}

    @contextlib.contextmanager
    def serve(self, output: str, *words: str) -> Iterator[Server]:
        named = (f"{self.place}/words.py:Words", "--name", "words", "--slo-ms", "60000")
        made = Server(self.place / "home", *named, "--precomputed", f"{self.place}/{output}", "--key", "body", *words)
        try:
            until(lambda: made.counted("precomputed_keys", model="words") >= len(TEXTS))
            until(lambda: everywhere(made, TEXTS))
            yield made
        finally:
            made.end()


def asked(server: Server, texts: list[str], **more: Any) -> tuple[list[list[float]], str]:
    got = server.ask("POST", "/v1/embeddings", {"model": "words", "input": texts, **more})
    assert got.status in (200, 404, 503), got.body
    if got.status != 200:
        return [], got.message
    return [each["embedding"] for each in got.json()["data"]], got.headers["x-twoshift-source"]


def everywhere(server: Server, texts: list[str]) -> bool:
    """Whether every front has them: one that lags behind would be met by some of these requests."""
    return all(asked(server, texts)[1] == "precomputed" for _ in range(8))


def test_the_way_from_a_nightly_job_to_a_stream_and_back_changes_no_answer(tmp_path: Path) -> None:
    pytest.importorskip("httptools")
    team = Team(tmp_path)

    def same(answer: tuple[list[list[float]], str], source: str, texts: list[str] = TEXTS) -> None:
        assert answer[1] == source
        np.testing.assert_allclose(answer[0], [truth[text] for text in texts], rtol=1e-6)

    team.run("run", "docs", "-o", "out")  # 1: a nightly job
    truth = team.in_parts("out")
    with team.serve("out", "--on-miss", "error") as server:  # 2: its output, served
        same(asked(server, TEXTS), "precomputed")
        assert "computes no answers live" in asked(server, [NEW])[1]
    with team.serve("out", "--write-back", "--fronts", "2") as server:  # 3: live misses
        same(asked(server, TEXTS, keys=[None] * len(TEXTS)), "live")  # parity: the same texts, not by key
        truth[NEW] = asked(server, [NEW])[0][0]
        until(lambda: everywhere(server, [NEW]))  # it was kept
        same(asked(server, [NEW]), "precomputed", [NEW])
        assert server.counted("precomputed_rows_total", model="words", found="written_back") > 0
    stream = ("stream", "docs", "-o", "live", "--once", "--settle", "0s")
    team.run(*stream)
    with team.serve("live") as server:  # 4: a stream that keeps it fresh
        same(asked(server, TEXTS), "precomputed")
        same(asked(server, [NEW]), "live", [NEW])
        team.arrive("tuesday", [NEW])
        shutil.rmtree(tmp_path / "out")  # 5: without the job
        team.run(*stream)
        until(lambda: asked(server, [NEW])[1] == "precomputed")
        same(asked(server, [*TEXTS, NEW]), "precomputed", [*TEXTS, NEW])
    team.run("run", "docs", "-o", "back")  # and back
    found = team.in_parts("back")
    assert found.keys() == truth.keys()
    np.testing.assert_allclose([found[text] for text in truth], [*truth.values()], rtol=1e-6)
