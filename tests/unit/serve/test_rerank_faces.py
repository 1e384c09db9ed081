"""Reranking over HTTP in the shapes that clients have: Cohere's two, Jina's and vLLM's, and that of TEI."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from twoshift.endpoints.known import told_openai
from twoshift.engine import Engine
from twoshift.errors import InvalidInput
from twoshift.policy.cost import CallCost
from twoshift.policy.lane_values import LaneLimits
from twoshift.policy.plan.row import RowSize
from twoshift.ports import RuntimeInfo
from twoshift.runtime.columns import ColumnRows
from twoshift.runtime.host_model import HostModel
from twoshift.serve.deployments import Deployments
from twoshift.serve.derived import derive
from twoshift.serve.http.app import App
from twoshift.serve.http.messages import Reply, Request
from twoshift.serve.http.oip import add_oip
from twoshift.serve.http.openai import add_openai
from twoshift.serve.http.reranking import add_reranking
from twoshift.serve.keys import Keys
from twoshift.serve.model import ServedModel
from twoshift.serve.service import Service

COST, LIMITS = CallCost.line(0.001, 1e-5), LaneLimits(slo_s=600.0)
TEXTS = ["aaaa", "a", "aa"]


class Shorter:
    """The shorter a text, the better; one of them is refused."""

    def prepare(self, rows: Sequence[Any]) -> ColumnRows:
        for place, (_, text) in enumerate(rows):
            if text == "bad":
                raise InvalidInput(f"row {place}", text, "another one")
        return ColumnRows.from_rows([{"size": len(text)} for _, text in rows])

    def predict(self, columns: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        return {"score": 1 / np.asarray(columns["size"], float)}


@pytest.fixture
def app() -> Iterator[tuple[App, Service]]:
    limits = RowSize.uniform(1)
    models = {
        name: ServedModel(
            name,
            Engine(HostModel(RuntimeInfo(name, "0", "python", "cpu", "fp32", 8, outputs), Shorter()), COST, LIMITS),
            lambda cost: derive(cost, LIMITS, limits, 10),
        )
        for name, outputs in (("ranker", ("score",)), ("embedder", ("embedding",)))
    }
    service = Service(Deployments(models))
    made = App(told_openai, Keys({}))
    add_openai(made, service)
    add_reranking(made, service)
    add_oip(made, service)
    yield made, service
    service.close()


def asked(app: tuple[App, Service], path: str, **body: Any) -> Reply:
    request = Request("POST", path.encode(), {}, json.dumps(body).encode(), time.monotonic())

    async def run() -> Reply:
        app[1].start()
        return await app[0].handle(request)

    return asyncio.run(run())


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank", "/rerank"])
def test_documents_come_back_best_first(app: tuple[App, Service], path: str) -> None:
    reply = asked(
        app,
        path,
        model="ranker",
        query="q",
        documents=TEXTS,
        top_n=2,
        max_tokens_per_doc=4096,
        truncate_prompt_tokens=-1,
    )
    assert reply.status == 200, reply.body
    results = json.loads(reply.body)["results"]
    assert [(each["index"], each["relevance_score"]) for each in results] == [(1, 1.0), (2, 0.5)]
    shows = path == "/rerank"  # as vLLM and Jina do unless they are told otherwise
    assert [each.get("document") for each in results] == ([{"text": "a"}, {"text": "aa"}] if shows else [None, None])


@pytest.mark.parametrize("path", ["/v1/rerank", "/rerank"])
def test_documents_are_shown_as_they_are_wanted(app: tuple[App, Service], path: str) -> None:
    for wanted in (True, False):
        reply = asked(app, path, model="ranker", query="q", documents=TEXTS, return_documents=wanted)
        assert all(("document" in each) is wanted for each in json.loads(reply.body)["results"])


def test_tei_clients_get_a_list_from_the_only_reranker(app: tuple[App, Service]) -> None:
    reply = asked(app, "/rerank", query="q", texts=TEXTS, truncate=True)
    assert json.loads(reply.body) == [
        {"index": 1, "score": 1.0},
        {"index": 2, "score": 0.5},
        {"index": 0, "score": 0.25},
    ]
    shown = json.loads(asked(app, "/rerank", query="q", texts=TEXTS, return_text=True).body)
    assert [each["text"] for each in shown] == ["a", "aa", "aaaa"]
    refused = asked(app, "/rerank", query="q", texts=TEXTS, raw_scores=True)
    assert (refused.status, json.loads(refused.body)["error"]["param"]) == (400, "raw_scores")


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"documents": TEXTS, "relevant_spans": {}}, "relevant_spans"),
        ({"documents": TEXTS, "max_tokens_per_doc": 3}, "max_tokens_per_doc"),
        ({"documents": TEXTS, "truncate_prompt_tokens": 3}, "truncate_prompt_tokens"),
        ({"documents": []}, "documents"),
        ({"documents": ["a", "bad"]}, "documents[1]"),
        ({"documents": ["a", 7]}, "documents[1]"),
        ({"documents": TEXTS, "model": "embedder"}, "model"),
    ],
)
def test_what_is_wrong_is_told_by_the_requests_own_name(
    app: tuple[App, Service], more: dict[str, Any], param: str
) -> None:
    reply = asked(app, "/v1/rerank", **{"model": "ranker", "query": "q", **more})
    assert (reply.status, json.loads(reply.body)["error"]["param"]) == (400, param)
    assert json.loads(reply.body)["error"]["message"].startswith(param)


def test_coheres_client_reads_errors_of_its_own_path(app: tuple[App, Service]) -> None:
    reply = asked(app, "/v2/rerank", model="nope", query="q", documents=TEXTS)
    told = json.loads(reply.body)
    assert reply.status == 404
    assert told["message"] == told["error"]
    assert "ranker" in told["message"]


@pytest.mark.parametrize("body", [{"texts": TEXTS}, {"documents": TEXTS}])
def test_a_server_without_a_reranker_says_so_where_no_model_is_named(body: dict[str, Any]) -> None:
    engine = Engine(
        HostModel(RuntimeInfo("e", "0", "python", "cpu", "fp32", 8, ("embedding",)), Shorter()), COST, LIMITS
    )
    service = Service(
        Deployments({"e": ServedModel("e", engine, lambda cost: derive(cost, LIMITS, RowSize.uniform(1), 10))})
    )
    made = App(told_openai, Keys({}))
    add_reranking(made, service)
    reply = asked((made, service), "/rerank", query="q", **body)
    service.close()
    assert reply.status == 400
    assert "a reranking model; the models of this server (e) cannot" in json.loads(reply.body)["error"]["message"]
