"""The faces of language models against their own OpenAPI document, by schemathesis."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from llm_service import LlmServer, llm_server

pytestmark = pytest.mark.slow
PATHS = "/v1/chat/completions|/v1/completions|/v1/messages$|/v1/responses$|/v1/messages/batches$|/v1/derived|/v1/models"
# A document cannot know how long a prompt may be, or which models there are in a batch
LEFT_OUT = "positive_data_acceptance"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlmServer]:
    for name in ("httptools", "schemathesis", "sqlalchemy"):
        pytest.importorskip(name)
    with pytest.MonkeyPatch.context() as patch, llm_server(tmp_path_factory.mktemp("home"), patch) as made:
        yield made


def test_the_faces_do_what_their_document_says(server: LlmServer, tmp_path: Path) -> None:
    document = server.ask("GET", "/openapi.json").json()
    schemas = document["components"]["schemas"]
    for name in ("ChatRequest", "CompletionRequest", "MessageRequest", "ResponseRequest"):
        schemas[name]["properties"]["model"]["enum"] = ["m"]
    for methods in document["paths"].values():
        for operation in methods.values():
            given = [each for each in operation.get("parameters", ()) if each["name"] != "x-request-timeout-ms"]
            for each in (each for each in given if each["in"] == "path"):
                each["schema"]["enum"] = ["m"]
            operation["parameters"] = given
    path = tmp_path / "openapi.json"
    path.write_text(json.dumps(document))
    program = str(Path(sys.executable).with_name("schemathesis"))
    words = ["run", str(path), "--url", server.address, "--seed", "1", "--max-examples", "5", "--no-shrink"]
    words += ["--include-path-regex", PATHS, "--exclude-checks", LEFT_OUT, "--phases", "coverage,fuzzing"]
    env = {**os.environ, "NO_COLOR": "1"}
    ended = subprocess.run([program, *words], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=170)
    assert ended.returncode == 0, ended.stdout[-20_000:] + ended.stderr
    answered = server.metric("twoshift_requests_total", model="m", status="200")
    assert answered > 0, ended.stdout[-5000:]
    assert server.metric("twoshift_requests_total", model="m", status="500") == 0
