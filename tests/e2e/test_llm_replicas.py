"""A tiny Llama in two vLLM processes behind the real program: both answer, and one is killed under a stream."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from real_smollm import MARKS
from servers import Server
from tiny_llm import tiny_llama

pytestmark = MARKS
PATIENT = ("--ttft-ms", "600000", "--tpot-ms", "600000")  # the machine may be busy: nothing here is about time
FRANCE: Any = [{"role": "user", "content": "What is the capital of France? Answer in one word."}]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    for name in ("httptools", "openai"):
        pytest.importorskip(name)
    home = tmp_path_factory.mktemp("home")
    words = (str(tiny_llama(home / "tiny")), *PATIENT, "--replicas", "2")
    made = Server(home, *words, more={"VLLM_CPU_KVCACHE_SPACE": "1"}, wait_s=600)
    yield made
    made.end()


def replicas(pid: int) -> list[int]:
    """The processes that its threads have started as replicas."""
    found = {int(each) for file in Path(f"/proc/{pid}/task").glob("*/children") for each in file.read_text().split()}
    return [each for each in found if b"spawn_main" in Path(f"/proc/{each}/cmdline").read_bytes()]


def test_replicas_answer_and_a_killed_one_ends_its_stream_with_an_error(server: Server) -> None:
    import openai

    with openai.OpenAI(base_url=f"{server.address}/v1", api_key="none", max_retries=0) as client:
        whole = client.chat.completions.create(model="tiny", messages=FRANCE, max_tokens=12, temperature=0)
        answer = whole.choices[0].message.content or ""
        assert len(answer) == 12
        told = client.responses.create(model="tiny", input=FRANCE, max_output_tokens=12, temperature=0)
        assert told.output_text == answer
        message = {
            "model": "tiny",
            "messages": FRANCE,
            "max_tokens": 12,
            "temperature": 0,
            "stop_sequences": [answer[4:9]],
        }
        assert server.ask("POST", "/v1/messages", message).json()["stop_sequence"] == answer[4:9]
        assert server.ask("POST", "/tokenize", {"prompt": "Hello"}).json()["count"] >= 1
        before = replicas(server.process.pid)
        assert len(before) == 2
        asked: Any = {"model": "tiny", "messages": FRANCE, "max_tokens": 1500, "extra_body": {"ignore_eos": True}}
        streams = [client.chat.completions.create(**asked, stream=True) for _ in range(2)]
        for stream in streams:
            next(stream)
        for victim in before:
            os.kill(victim, signal.SIGKILL)
        for stream in streams:
            with pytest.raises(openai.APIError, match="the answer is incomplete"):
                list(stream)
