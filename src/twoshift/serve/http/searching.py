"""Search over HTTP: the query is embedded in the live lane, and looked up in the index of its model."""

from __future__ import annotations

from twoshift.endpoints.known import told_openai
from twoshift.endpoints.search import SEARCH, SearchCall, read_search
from twoshift.endpoints.types import SearchReply, SearchRequest
from twoshift.errors import InvalidInput
from twoshift.serve.http.app import App, Exchange, RouteKind
from twoshift.serve.http.blocking_calls import BlockingCalls
from twoshift.serve.http.messages import Reply
from twoshift.serve.http.row_calls import asking, facts_of
from twoshift.serve.indexes import SearchIndexes, version_for
from twoshift.serve.keys import Access
from twoshift.serve.service import Service

__all__ = ["add_search"]

_WAIT_S = 30.0


def add_search(app: App, service: Service, indexes: SearchIndexes) -> None:
    """/v1/search."""
    calls = BlockingCalls(_WAIT_S, "search")

    async def search(exchange: Exchange) -> Reply:
        request = exchange.request
        asked = await exchange.read(read_search, request.body)
        model = service.find_or_only(asked.model, "embedding")
        index = indexes.of(model)  # held to the end: it may be replaced meanwhile
        model = exchange.model = version_for(model, index)
        call = await exchange.read(SearchCall, asked, facts_of(model))
        try:
            answer = await service.answer(
                model, call.rows, exchange.timeout_s, request.arrived_s, exchange.caller, request.visit
            )
        except InvalidInput as error:
            raise error.renamed("query") if error.field.startswith(("input", "row ")) else error from error
        exchange.answer = answer
        found = await calls.ask(index.search, call.vectors(answer.rows), asked.k)
        return Reply(200, call.reply(found, index.generation.name, answer.tokens))

    about = asking(
        "Search a model's vector index for the rows that are nearest to each given text.", SearchRequest, SearchReply
    )
    app.add("POST", SEARCH, search, told_openai, about, needs=Access.SERVE, kind=RouteKind.GATED)
