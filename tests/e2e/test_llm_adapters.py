"""LoRA adapters of a tiny Llama behind the real program: served together by name, in a batch, and in a job."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lora_adapters import write_adapter
from real_smollm import MARKS
from servers import Server, until
from tiny_llm import tiny_llama

pytestmark = MARKS
NAMES = ("tiny", "sql", "support")
PATIENT = ("--ttft-ms", "600000", "--tpot-ms", "600000")  # the machine may be busy: nothing here is about time
ASKED = {"messages": [{"role": "user", "content": "Write about the sea."}], "max_tokens": 6, "temperature": 0}
OVER = ("completed", "failed", "expired", "cancelled")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """With two adapters in it."""
    made = tmp_path_factory.mktemp("home")
    base = tiny_llama(made / "tiny")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TWOSHIFT_HOME", str(made))
        for seed, name in enumerate(NAMES[1:]):
            write_adapter(made / "adapters" / name, base, seed)
        yield made


@pytest.fixture(scope="module")
def server(home: Path) -> Iterator[Server]:
    for name in ("httptools", "openai", "sqlalchemy"):
        pytest.importorskip(name)
    adapters = [word for name in NAMES[1:] for word in ("--adapter", f"{name}={home}/adapters/{name}")]
    # In fp32: in bf16 a batch of two is another sum than a batch of one
    made = Server(home, f"{home}/tiny", *PATIENT, "--precision", "fp32", *adapters, wait_s=800)
    yield made
    made.end()


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[Any]:
    import openai

    with openai.OpenAI(base_url=f"{server.address}/v1", api_key="none", max_retries=0, timeout=600) as made:
        yield made


@pytest.fixture(scope="module")
def live(client: Any) -> dict[str, str]:
    """What each answers."""
    made = {name: client.chat.completions.create(model=name, **ASKED) for name in NAMES}
    assert {name: each.model for name, each in made.items()} == {name: name for name in NAMES}
    return {name: each.choices[0].message.content for name, each in made.items()}


def test_the_base_and_its_adapters_are_listed_and_answer_each_in_its_own_way(client: Any, live: dict[str, str]) -> None:
    import openai

    parents = {each.id: getattr(each, "parent", None) for each in client.models.list()}
    assert parents == {"tiny": None, "sql": "tiny", "support": "tiny"}
    assert len(set(live.values())) == 3
    with pytest.raises(openai.NotFoundError, match="sql, support, tiny"):
        client.chat.completions.create(model="chess", **ASKED)


def test_a_batch_has_a_model_on_each_line(client: Any, live: dict[str, str]) -> None:
    url = "/v1/chat/completions"
    lines = [
        json.dumps({"custom_id": name, "method": "POST", "url": url, "body": {"model": name, **ASKED}})
        for name in NAMES
    ]
    file = client.files.create(file=("mine.jsonl", "\n".join(lines).encode()), purpose="batch")
    batch = client.batches.create(input_file_id=file.id, endpoint=url, completion_window="24h")
    until(lambda: client.batches.retrieve(batch.id).status in OVER, 600)
    done = client.batches.retrieve(batch.id)
    assert (done.status, done.request_counts.completed) == ("completed", 3)
    read = map(json.loads, client.files.content(done.output_file_id).text.splitlines())
    answers = {line["custom_id"]: line["response"]["body"]["choices"][0]["message"]["content"] for line in read}
    assert answers == live


def test_a_job_runs_with_an_adapter_and_its_report_names_it(
    home: Path, server: Server, live: dict[str, str], tmp_path: Path
) -> None:
    server.end()  # two models at once would be slow here
    (tmp_path / "asked.jsonl").write_text('{"q": "Write about the sea."}\n')
    options = [
        "--model",
        f"{home}/tiny",
        "--prompt",
        "q",
        "--max-tokens",
        "6",
        "--precision",
        "fp32",
        "-o",
        "out",
        "--json",
    ]

    def run(adapter: str) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-m", "twoshift", "run", "asked.jsonl", *options, "--output-format", "jsonl"]
        return subprocess.run([*words, "--adapter", adapter], cwd=tmp_path, capture_output=True, text=True, check=False)

    ran = run(f"{home}/adapters/sql")
    assert ran.returncode == 0, ran.stderr
    [row] = map(json.loads, (tmp_path / "out/part-000000.jsonl").read_text().splitlines())
    assert row["text"] == live["sql"]
    report = json.loads((tmp_path / "out/_twoshift/report.json").read_text())
    assert [*report["adapters"]] == [f"{home}/adapters/sql"]
    assert report["adapters"][f"{home}/adapters/sql"].startswith("sha256:")
    refused = run(f"{home}/adapters/nowhere")
    assert (refused.returncode, "adapter_config.json" in refused.stderr) == (2, True)
