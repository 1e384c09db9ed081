"""`search`: the rows of a job's output that are nearest to a text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twoshift.cli.app import app
from twoshift.cli.commands import command
from twoshift.cli.model_options import Loading, loaded
from twoshift.cli.output import own_stdout, show
from twoshift.cli.params import JsonFlag, given_of, text, with_settings
from twoshift.cli.server import server_at
from twoshift.errors import Inapplicable, InvalidInput

if TYPE_CHECKING:
    from twoshift.ports import Runtime

__all__ = ["search_command"]

_DEADLINE_S = 3600.0
_INT8 = "int8"


@command(
    app, "search", 'twoshift search out/ "a red fox" -k 5', {"server": "--on", "index": "INDEX", "query": "QUERIES"}
)
@with_settings(Loading)
def search_command(
    index: Annotated[str, typer.Argument(help="Output folder of `twoshift run --index`, or the folder of an index.")],
    queries: Annotated[list[str], typer.Argument(help="Texts to search for.")],
    *,
    k: Annotated[
        int, typer.Option("-k", help="Maximum number of results to show per query.", metavar="N", min=1, max=1000)
    ] = 5,
    model: Annotated[
        str | None,
        text(
            "Location of the model, if the model has moved since the index was built.",
            metavar="MODEL",
            shown="the model that built the index",
        ),
    ] = None,
    prompt_name: Annotated[
        str | None,
        text(
            "Name of a prompt that the model defines; Twoshift puts this prompt before each text.",
            metavar="NAME",
            shown="`query`, if the model has that prompt",
        ),
    ] = None,
    on: Annotated[
        str | None,
        text(
            "Search on this server, started with `twoshift serve --index`: http://host:8000. INDEX is then the name of "
            "the model.",
            metavar="URL",
        ),
    ] = None,
    as_json: JsonFlag = False,
    **given: Any,
) -> None:
    """Find the rows of a job's output whose vectors are nearest to the given texts.

    The texts are embedded by the model that built the index; any other model is refused.
    """
    said = given_of(Loading, given)
    if on is not None:
        _refuse_local(said | ({} if model is None else {"model": model}))
        body = {"model": index, "query": queries, "k": k} | ({"prompt_name": prompt_name} if prompt_name else {})
        found = server_at(on).post("/v1/search", body)
    else:
        found = _searched(index, queries, k, model, prompt_name, Loading(**said))
    show(as_json, found, *_lines(queries, found))


def _refuse_local(said: dict[str, Any]) -> None:
    for name, value in said.items():
        raise Inapplicable(name, value, "with --on, because the server has loaded the model")


def _searched(
    location: str, queries: Sequence[str], k: int, model: str | None, prompt_name: str | None, asked: Loading
) -> dict[str, Any]:
    import msgspec

    from twoshift.vectors.searching import open_current
    from twoshift.wiring.blob_stores import blobs_for

    index = open_current(blobs_for, location)
    assert index is not None  # noqa: S101 - nothing was left out
    named, made = model or index.generation.model, index.generation
    if asked.precision is None and made.precision == _INT8:
        asked = msgspec.structs.replace(asked, precision=_INT8)
    with own_stdout():
        runtime = loaded(named, asked)
        try:
            index.check_model(named, runtime.info.checksum)
            vectors = _vectors(runtime, queries, prompt_name)
        finally:
            runtime.close()
    data = [
        {"index": place, "hits": [{"key": hit.key, "score": hit.score} for hit in hits]}
        for place, hits in enumerate(index.search(vectors, k))
    ]
    return {"data": data, "model": named, "generation": made.name, "rows": made.rows, "recall": index.pointer.recall}


def _vectors(runtime: Runtime, queries: Sequence[str], prompt_name: str | None) -> Any:
    """In one call each: somebody waits, and nobody else."""
    import numpy as np

    from twoshift.endpoints.search import query_rows

    prepared = runtime.prepare(query_rows(queries, prompt_name, runtime.info.prompts))
    columns = runtime.launch([prepared], live=True).wait()
    if "embedding" not in columns:
        raise InvalidInput("model", runtime.info.model, "a model with an output named `embedding`")
    return np.asarray(columns["embedding"], np.float32)


def _lines(queries: Sequence[str], found: dict[str, Any]) -> Iterator[str]:
    for query, each in zip(queries, found["data"], strict=True):
        if len(queries) > 1:
            yield f"{query}:"
        yield from (f"{hit['score']:.4f}  {hit['key']}" for hit in each["hits"])
        if not each["hits"]:
            yield "Nothing found: the index is empty."
