"""vLLM on a Ray that the real program starts: live streams of a tiny Llama, which end before it does, and a job."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from programs import PROGRAM, environment
from real_smollm import MARKS, smollm_home
from servers import Server
from tiny_llm import tiny_llama

pytest.importorskip("ray.serve", reason="the ray extra is not installed")

pytestmark = MARKS
PATIENT = ("--ttft-ms", "600000", "--tpot-ms", "600000")  # the machine may be busy: nothing here is about time
FRANCE: Any = [{"role": "user", "content": "What is the capital of France? Answer in one word."}]


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    for name in ("httptools", "openai"):
        pytest.importorskip(name)
    home = tmp_path_factory.mktemp("home")
    made = Server(
        home, str(tiny_llama(home / "tiny")), *PATIENT, "--engine", "ray", "--grace", "10m",
        more={"VLLM_CPU_KVCACHE_SPACE": "1"}, wait_s=600,
    )  # fmt: skip
    yield made
    made.end()


def test_a_language_model_on_ray_answers_and_finishes_its_stream_when_it_is_told_to_end(server: Server) -> None:
    import openai

    with openai.OpenAI(base_url=f"{server.address}/v1", api_key="none", max_retries=0) as client:
        whole = client.chat.completions.create(model="tiny", messages=FRANCE, max_tokens=12, temperature=0)
        assert len(whole.choices[0].message.content or "") == 12
        assert server.counted("replicas", state="ready") == 1
        assert server.counted("offered_rows_total") == 1
        asked: Any = {"model": "tiny", "messages": FRANCE, "max_tokens": 200, "extra_body": {"ignore_eos": True}}
        stream = client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})
        next(stream)
        server.process.send_signal(signal.SIGTERM)
        *_, last = stream
        assert last.usage is not None
        assert last.usage.completion_tokens == 200
    assert server.process.wait(300) == 0
    assert "for admitted requests" in server.said
    assert "SIGTERM received" not in server.said  # by Ray, which would end the process in the midst of it


def test_a_job_on_ray_has_an_answer_or_an_error_for_every_row(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    asked = [{"id": k, "country": each} for k, each in enumerate(["France", None, "Japan"])]
    (tmp_path / "asked.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    prompt = "What is the capital of {country}? Answer in one word."
    command = [PROGRAM, "run", "asked.jsonl", "--model", "smollm", "--prompt", prompt, "--max-tokens", "12"]
    command += ["--keep", "id", "--engine", "ray", "--output-format", "jsonl", "-o", "out", "--json"]
    env = environment(smollm_home(tmp_path_factory), RAY_ADDRESS="local", VLLM_CPU_KVCACHE_SPACE="1")
    ran = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    parts = sorted((tmp_path / "out").glob("part-*"))
    rows = [json.loads(line) for part in parts for line in part.read_text().splitlines()]
    assert [row["id"] for row in rows] == [0, 1, 2]
    assert "Paris" in rows[0]["text"]
    assert "Tokyo" in rows[2]["text"]
    assert rows[1]["error"].endswith("column country, which the prompt uses, is null")
    assert (told["rows"], told["errors"]) == (3, 1)
    assert told["output_tokens"] == rows[0]["output_tokens"] + rows[2]["output_tokens"]
