"""NVIDIA's AIPerf: embeddings and streamed chat."""

import json
import sys
import tempfile
from pathlib import Path

from checks import MINILM, SMOLLM, URL, check, expect, ran, version

version("aiperf")


def profile(*words: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        ran([str(Path(sys.executable).with_name("aiperf")), "profile", "--url", URL, "--request-count", "4",
             "--concurrency", "2", "--isl", "16", "--ui", "none", "--artifact-dir", folder, *words])  # fmt: skip
        found = json.loads(next(Path(folder).rglob("profile_export_aiperf.json")).read_text())
    count = found["request_count"]["avg"]
    errors = (found.get("error_request_count") or {}).get("avg", 0)
    expect(count == 4 and not errors, (count, errors, found.get("error_summary")))


@check("embeddings")
def _() -> None:
    profile("--endpoint-type", "embeddings", "--model", "minilm", "--tokenizer", MINILM)


@check("chat, streamed")
def _() -> None:
    profile("--endpoint-type", "chat", "--streaming", "--model", "smollm", "--tokenizer", SMOLLM, "--osl", "4")
