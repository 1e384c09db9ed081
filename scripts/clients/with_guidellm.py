"""GuideLLM: streamed requests, every event with its usage."""

import json
import sys
import tempfile
from pathlib import Path

from checks import SMOLLM, URL, check, expect, ran, version

version("guidellm")


def run(path: str) -> None:
    """Three requests, one after the other."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "found.json"
        words = ["--backend", f"kind=openai_http,target={URL},model=smollm,request_format={path}"]
        words += ["--profile", "kind=synchronous", "--constraint", "kind=max_requests,count=3"]
        words += ["--tokenizer", f"kind=huggingface_auto,model={SMOLLM}"]
        words += ["--data", "kind=synthetic_text,prompt_tokens=16,output_tokens=4"]
        words += ["--output", f"kind=json,path={out}", "--disable-progress"]
        ran([str(Path(sys.executable).with_name("guidellm")), "run", *words])
        totals = json.loads(out.read_text())["benchmarks"][0]["metrics"]["request_totals"]
    expect(totals["successful"] >= 3 and not totals["errored"], totals)


@check("chat, streamed")
def _() -> None:
    run("/v1/chat/completions")


@check("completions, streamed")
def _() -> None:
    run("/v1/completions")
