"""The running program against its own OpenAPI document, by schemathesis."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from servers import Server
from user_models import written

from twoshift.cli.http_docs import render_http, render_http_types
from twoshift.serve.keys import digest_of

pytestmark = pytest.mark.slow
KEY, ROOT_KEY = "ts-of-alice", "ts-of-root"
# A document cannot know how long a model's vectors are, or what its tensors are called.
LEFT_OUT = "positive_data_acceptance"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    for name in ("httptools", "schemathesis"):
        pytest.importorskip(name)
    home = tmp_path_factory.mktemp("home")
    models, config = written(home), home / "server.toml"
    config.write_text(f"""
        [models.embed]
        model = "{models}:Embed"
        slo_ms = 60000
        [models.rank]
        model = "{models}:Rank"
        slo_ms = 60000
        [keys.alice]
        sha256 = "{digest_of(KEY)}"
        [keys.root]
        sha256 = "{digest_of(ROOT_KEY)}"
        scopes = ["admin"]
    """)
    made = Server(home, "--config", str(config))
    yield made
    made.end()


@pytest.fixture(scope="module")
def described(server: Server) -> dict[str, Any]:
    return server.ask("GET", "/openapi.json").json()


def narrowed(document: dict[str, Any]) -> dict[str, Any]:
    """With the models that there are, so that requests reach them; without deadlines, which may really pass."""
    schemas = document["components"]["schemas"]
    schemas["EmbeddingRequest"]["properties"]["model"]["enum"] = ["embed"]
    schemas["RerankRequest"]["properties"]["model"]["enum"] = ["rank"]
    for methods in document["paths"].values():
        for operation in methods.values():
            parameters = [each for each in operation.get("parameters", ()) if each["name"] != "x-request-timeout-ms"]
            for each in (each for each in parameters if each["in"] == "path"):
                each["schema"]["enum"] = ["1"] if each["name"] == "version" else ["embed", "rank"]
            operation["parameters"] = parameters
    return document


def test_the_program_does_what_its_document_says(server: Server, described: dict[str, Any], tmp_path: Path) -> None:
    document = tmp_path / "openapi.json"
    document.write_text(json.dumps(narrowed(described)))
    words = ["run", str(document), "--url", server.address, "--header", f"Authorization: Bearer {KEY}"]
    words += ["--seed", "1", "--max-examples", "3", "--no-shrink", "--exclude-checks", LEFT_OUT]
    program = str(Path(sys.executable).with_name("schemathesis"))
    env = {**os.environ, "NO_COLOR": "1"}
    ended = subprocess.run([program, *words], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=270)
    assert ended.returncode == 0, ended.stdout[-20_000:] + ended.stderr
    assert "Traceback" not in server.said
    assert server.ask("GET", "/readyz").status == 200


@pytest.mark.parametrize(("page", "render"), [("http.md", render_http), ("http-types.md", render_http_types)])
def test_the_http_reference_is_the_document(server: Server, page: str, render: Any) -> None:
    shown = (Path(__file__).parents[2] / "docs" / page).read_text(encoding="utf-8")
    assert shown == render(server.ask("GET", "/openapi.json").json()), f"docs/{page} has drifted: run `make docs`"


def test_every_metric_is_in_the_reference(server: Server) -> None:
    from twoshift.cli.metrics_docs import metrics

    page = server.ask("GET", "/metrics", headers={"authorization": f"Bearer {ROOT_KEY}"}).body.decode()
    names = set(re.findall(r"^# HELP (\S+) ", page, re.MULTILINE))
    assert "twoshift_requests_total" in names
    assert names <= {each.name for those in metrics().values() for each in those}


def test_the_document_is_valid_and_open_to_all(server: Server) -> None:
    reply = server.ask("GET", "/openapi.json")
    assert reply.status == 200
    assert reply.headers["content-type"] == "application/json"
    shown = reply.json()
    assert shown["openapi"] == "3.1.0"
    assert {"/v1/chat/completions", "/v1/completions", "/v1/messages/batches"} <= shown["paths"].keys()
    assert {"/v1/files", "/v1/files/{file}/content", "/v1/batches", "/v1/batches/{batch}/retry"} <= shown[
        "paths"
    ].keys()
    assert {"/v1/embeddings", "/v1/rerank", "/v1/models/{model}", "/readyz", "/openapi.json"} <= shown["paths"].keys()
    validate = pytest.importorskip("openapi_spec_validator").validate
    validate(shown)
