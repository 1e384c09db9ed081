"""The commands, requests and Python of the documentation, run as they stand there, against one server.

What is not run, and why, is in tests/doc_blocks.py.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from servers import Server

from doc_blocks import ROOT, blocks, command_lines, reason_not_to_run

pytest.importorskip("httptools", reason="the serve extra is not installed")
pytest.importorskip("sqlalchemy", reason="the fleet extra is not installed")
pytest.importorskip("usearch", reason="the index extra is not installed")
pytest.importorskip("duckdb", reason="the query extra is not installed")
pytest.importorskip("deltalake", reason="the delta extra is not installed")

from doc_runner import PageRun, write_inputs
from programs import command

from twoshift.blobs.local import LocalBlobs
from twoshift.quickstart import read_sample
from twoshift.registry.artifact import Artifact, files_below
from twoshift.registry.store import Registry

pytestmark = pytest.mark.slow
ADDRESS = "http://127.0.0.1:8000"
SHELL = sorted({
    block.page for block in blocks("sh") for line in command_lines(block) if reason_not_to_run(block, line) is None
} - {"docs/llm-serving.md"})  # fmt: skip


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what commands read, a job's output with an index and a table, and four versions of a model."""
    folder = tmp_path_factory.mktemp("docs")
    write_inputs(folder)
    env = {"TWOSHIFT_HOME": str(folder / "home")}
    line = "run docs/ --model tickets.py:Words --text body --keep id -o had/ --index vectors.usearch --index-key id"
    assert command(*line.split(), "--answer-key", "id", env=env, cwd=folder).returncode == 0
    assert command(*["plan", "fit", "samples.csv", "--save", "minilm"], env=env, cwd=folder).returncode == 0
    for home in ("home", "other"):
        registry = Registry(str(folder / home / "registry"), LocalBlobs())
        for version in range(3):
            (folder / "pushed").mkdir(exist_ok=True)
            text = (folder / "model.py").read_text()
            (folder / "pushed" / "model.py").write_text(f"{text}# {version}\n")
            files = tuple(files_below(folder / "pushed"))
            registry.push("sentiment", Artifact("model.py:Sentiment", files, "model.py:Sentiment"))
        registry.alias("sentiment", "prod", 3)
    return folder


@pytest.fixture(scope="module")
def server(ground: Path) -> Iterator[Server]:
    """With the models that the documentation names."""
    models = (
        read_sample("server.toml").replace("tickets.py", f"{ground}/tickets.py").replace("slo_ms = 50", "slo_ms = 9000")
    )
    had = f'index = "{ground}/had"\nprecomputed = "{ground}/had"\nkey = "id"\n'
    for name, model, more in (
        ("minilm", f"{ground}/tickets.py:Words", had),
        ("spare", f"{ground}/tickets.py:Words", ""),
        ("fraud", f"{ground}/fraud.py:Fraud", ""),
        ("sentiment", "sentiment:3", ""),  # an alias would begin the rollout that a command asks for
    ):
        models += f'\n[models.{name}]\nmodel = "{model}"\nslo_ms = 9000\n{more}'
    config = ground / "docs-server.toml"
    config.write_text(models)
    made = Server(ground / "home", "--config", str(config))
    yield made
    made.end()


@pytest.mark.parametrize("page", SHELL)
def test_the_commands_of_a_page_run(page: str, server: Server, ground: Path, tmp_path: Path) -> None:
    write_inputs(tmp_path)
    home = ground / ("other" if page == "docs/registry.md" else "home")  # whose versions are others
    assert PageRun(page, tmp_path, home, server).run()


def python_of(page: str) -> str:
    """What is to be run of a page's blocks, as one program."""
    found = [each for each in blocks("python") if each.page == page]
    return "\n".join(each.text for each in found if reason_not_to_run(each, each.text.partition("\n")[0]) is None)


def run_python(page: str, replaced: dict[str, str]) -> dict[str, Any]:
    code = python_of(page)
    for shown, real in replaced.items():
        assert shown in code
        code = code.replace(shown, real)
    names: dict[str, Any] = {}
    exec(compile(code, page, "exec"), names)  # noqa: S102 - our own page
    return names


def test_python_is_run_here_or_by_tests_of_its_page() -> None:
    elsewhere = {"README.md": "unit/test_docs.py", "docs/python.md": "e2e/test_python_api.py"}
    elsewhere["docs/pipelines.md"] = "e2e/test_pipelines.py"
    for page, test in elsewhere.items():
        assert Path(page).name in (ROOT / "tests" / test).read_text(encoding="utf-8")
    run = {each.page for each in blocks("python") if reason_not_to_run(each, each.text.partition("\n")[0]) is None}
    here = {"batches", "llm-serving", "planning", "quickstart", "serving", "triggers"}
    assert run == elsewhere.keys() | {f"docs/{name}.md" for name in here}


def test_python_of_the_planner_runs(capsys: pytest.CaptureFixture[str]) -> None:
    run_python("docs/planning.md", {})
    assert capsys.readouterr().out == "170\n"


def test_python_of_the_quickstart_runs(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    run_python("docs/quickstart.md", {ADDRESS: server.address})
    assert capsys.readouterr().out.startswith("(1, 256)\n")


def test_python_of_batches_runs(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("openai")
    write_inputs(tmp_path)
    monkeypatch.chdir(tmp_path)
    names = run_python("docs/batches.md", {ADDRESS: server.address, "time.sleep(1)": "time.sleep(0.05)"})
    names["client"].close()
    assert (tmp_path / "out.jsonl").read_text().count("custom_id") == 1


def test_python_of_serving_runs(
    server: Server, ground: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("openai")
    monkeypatch.setenv("TWOSHIFT_HOME", str(ground / "another"))
    replaced = {ADDRESS: server.address, 'Server("minilm"': f'Server("{ground}/tickets.py:Words"'}
    names = run_python("docs/serving.md", {**replaced, "models/fraud.ubj": f"{ground}/fraud.py:Fraud"})
    names["client"].close()
    assert capsys.readouterr().out.startswith("256\n50\nhttp://")


def test_python_of_language_models_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("openai", "anthropic"):
        pytest.importorskip(name)
    llm_service = pytest.importorskip("llm_service")
    with llm_service.llm_server(tmp_path, monkeypatch) as llm:
        replaced = {"http://127.0.0.1:8000": llm.address, '"smollm"': '"m"', "time.sleep(1)": "time.sleep(0.05)"}
        run_python("docs/llm-serving.md", replaced)["client"].close()
        for line in (line for block in blocks("sh") for line in command_lines(block) if "/v1/chat/" in line):
            body = json.loads(shlex.split(line)[-1])
            assert llm.ask("POST", "/v1/chat/completions", {**body, "model": "m"}).status == 200
    assert "one succeeded" in capsys.readouterr().out


def test_a_signature_of_a_webhook_is_checked_as_the_page_does() -> None:
    is_ours = run_python("docs/triggers.md", {})["is_ours"]
    key, body = b"k" * 32, b'{"type": "job.completed"}'
    signed = hmac.new(key, b"msg_1.1700000000." + body, hashlib.sha256).digest()
    headers = {"webhook-id": "msg_1", "webhook-timestamp": "1700000000"}
    headers["webhook-signature"] = f"v1,{base64.b64encode(signed).decode()}"
    secret = f"whsec_{base64.b64encode(key).decode()}"
    assert is_ours(headers, body, secret)
    assert not is_ours(headers, body + b" ", secret)
