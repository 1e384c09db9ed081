"""A playground: one request to a model, its answer, and where its time went."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from twoshift.serve.deployments import Deployment, Deployments, columns_of, is_reranker
from twoshift.serve.http.messages import Reply
from twoshift.serve.llm.language_model import is_language_model
from twoshift.ui.visit import Asked, Visit, sealed

__all__ = ["AskPages"]

_STAGE = re.compile(r"(\w+);dur=([\d.]+)")
_TONES = {"lookup": "muted", "admit": "muted", "prepare": "sky", "queue": "pink", "forward": "blue", "finish": "teal"}
_MOST_SHOWN = 20_000  # characters of an answer
_CHAT = "/v1/chat/completions"


class AskPages:
    """Each question is a request like any other: it is admitted, counted and billed."""

    def __init__(self, deployments: Deployments) -> None:
        self._deployments = deployments

    async def form(self, visit: Visit) -> Reply:
        """Nothing is asked yet."""
        return self._page(visit, visit.query)

    async def ask(self, visit: Visit) -> Reply:
        """The answer below the question."""
        given = visit.form
        kind = self._kind(given.get("model", ""), visit)
        path, body = _request(kind, given)
        reply = await visit.reply("POST", path, msgspec.json.encode(body))
        found: Any = msgspec.json.decode(reply.body)
        if reply.status >= 400:
            refused = Asked(reply.status, str(found.get("error", {}).get("message", "the request failed")))
            return self._page(visit, given, refused=refused)
        timing = next((value.decode() for name, value in reply.headers if name == b"server-timing"), "")
        return self._page(visit, given, _answer(kind, found), _bars(timing))

    async def chat(self, visit: Visit) -> Reply:
        """A streamed answer, for the page's script: the events are the API's own."""
        return sealed(await visit.reply("POST", _CHAT, visit.script()))

    def _page(
        self,
        visit: Visit,
        given: dict[str, str],
        answer: dict[str, Any] | None = None,
        bars: Sequence[Any] = (),
        refused: Asked | None = None,
    ) -> Reply:
        models = [(name, _kind_of(each)) for name, each in self._mine(visit)]
        chosen = given.get("model") or (models[0][0] if models else "")
        about = {"models": models, "given": given, "chosen": chosen, "kind": dict(models).get(chosen, "")}
        status, problem = (200, "") if refused is None else (refused.status, str(refused))
        return visit.page("ask.html", status, answer=answer, bars=bars, problem=problem, **about)

    def _mine(self, visit: Visit) -> list[tuple[str, Deployment]]:
        sight = visit.session.sight
        return [(name, each) for name, each in sorted(self._deployments.items()) if sight.sees(name)]

    def _kind(self, model: str, visit: Visit) -> str:
        found = dict(self._mine(visit)).get(model)
        return "rows" if found is None else _kind_of(found)  # the API says what is wrong with it


def _kind_of(model: Deployment) -> str:
    if is_language_model(model.backend):
        return "chat"
    if "embedding" in columns_of(model):
        return "embedding"
    return "pair" if is_reranker(model) else "rows"


def _request(kind: str, given: dict[str, str]) -> tuple[str, dict[str, Any]]:
    model, text, other = given.get("model", ""), given.get("text", ""), given.get("other", "")
    match kind:
        case "chat":
            return _CHAT, {"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": 256}
        case "embedding":
            return "/v1/embeddings", {"model": model, "input": [text, other] if other else [text]}
        case "pair":
            return "/v1/rerank", {"model": model, "query": text, "documents": [other or text]}
        case _:
            return "/v1/score", {"model": model, "rows": [_row(text)]}


def _row(text: str) -> Any:
    """An object as JSON, or a text."""
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError:
        found = None
    return found if isinstance(found, dict) else {"text": text}


def _answer(kind: str, found: dict[str, Any]) -> dict[str, Any]:
    """What is shown of it."""
    raw = msgspec.json.format(msgspec.json.encode(found), indent=2).decode()[:_MOST_SHOWN]
    if kind == "chat":
        return {"text": found["choices"][0]["message"]["content"], "raw": raw, "usage": found.get("usage")}
    if kind == "embedding":
        vectors = [each["embedding"] for each in found["data"]]
        like = None if len(vectors) < 2 else _cosine(vectors[0], vectors[1])
        return {"cosine": like, "size": len(vectors[0]), "raw": raw}
    return {"raw": raw}


def _cosine(a: Sequence[float], b: Sequence[float]) -> float:
    size = math.hypot(*a) * math.hypot(*b)
    return sum(x * y for x, y in zip(a, b, strict=True)) / size if size else 0.0


def _bars(timing: str) -> list[tuple[str, str, float, float]]:
    """Stage, tone, milliseconds, and where it begins: of Server-Timing."""
    found = [(name, float(ms)) for name, ms in _STAGE.findall(timing) if name in _TONES and float(ms) > 0]
    total, at, made = sum(ms for _, ms in found) or 1.0, 0.0, list[tuple[str, str, float, float]]()
    for name, ms in found:
        made.append((name, _TONES[name], ms, 100 * at / total))
        at += ms
    return made
