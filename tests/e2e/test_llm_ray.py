"""smollm in vLLM on a Ray that the real program starts: it answers, streams, and ends a stream before it ends."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest
from real_smollm import MARKS, smollm_home
from servers import Server

pytest.importorskip("ray.serve", reason="the ray extra is not installed")

pytestmark = MARKS
PATIENT = ("--ttft-ms", "600000", "--tpot-ms", "600000")  # the machine may be busy: nothing here is about time
FRANCE: Any = [{"role": "user", "content": "What is the capital of France? Answer in one word."}]


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    for name in ("httptools", "openai"):
        pytest.importorskip(name)
    made = Server(
        smollm_home(tmp_path_factory), "smollm", *PATIENT, "--engine", "ray", "--grace", "10m",
        more={"VLLM_CPU_KVCACHE_SPACE": "1"}, wait_s=600,
    )  # fmt: skip
    yield made
    made.end()


def test_a_language_model_on_ray_answers_and_finishes_its_stream_when_it_is_told_to_end(server: Server) -> None:
    import openai

    with openai.OpenAI(base_url=f"{server.address}/v1", api_key="none", max_retries=0) as client:
        whole = client.chat.completions.create(model="smollm", messages=FRANCE, max_tokens=12, temperature=0)
        assert "Paris" in (whole.choices[0].message.content or "")
        assert server.counted("replicas", state="ready") == 1
        assert server.counted("offered_rows_total") == 1
        asked: Any = {"model": "smollm", "messages": FRANCE, "max_tokens": 200, "extra_body": {"ignore_eos": True}}
        stream = client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})
        next(stream)
        server.process.send_signal(signal.SIGTERM)
        *_, last = stream
        assert last.usage is not None
        assert last.usage.completion_tokens == 200
    assert server.process.wait(300) == 0
    assert "for admitted requests" in server.said
    assert "SIGTERM received" not in server.said  # by Ray, which would end the process in the midst of it
