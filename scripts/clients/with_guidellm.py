"""GuideLLM: streamed chat, every event with its usage."""

import json
import sys
import tempfile
from pathlib import Path

from checks import SMOLLM, URL, check, expect, ran, version

version("guidellm")


@check("benchmark: streamed requests without an error")
def _() -> None:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "found.json"
        words = ["--target", URL, "--model", "smollm", "--processor", SMOLLM, "--profile", "synchronous"]
        words += ["--max-requests", "3", "--data", "prompt_tokens=16,output_tokens=4", "--outputs", str(out)]
        ran([str(Path(sys.executable).with_name("guidellm")), "benchmark", *words])
        totals = json.loads(out.read_text())["benchmarks"][0]["metrics"]["request_totals"]
    expect(totals["successful"] >= 3 and not totals["errored"], totals)
