"""`score`: rows to predictions, a line each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from twoshift.cli.app import app
from twoshift.cli.commands import command
from twoshift.cli.model_options import ERROR_FIELDS, Loading, RowModel, loaded
from twoshift.cli.output import own_stdout
from twoshift.cli.params import JsonFlag, given_of, with_settings
from twoshift.cli.rows import Parse, json_row, opened, pair_row, text_or_pair
from twoshift.errors import UnusableModel

if TYPE_CHECKING:
    from twoshift.ports import RuntimeInfo

__all__ = ["row_parser", "score_command"]


@command(app, "score", "twoshift score model.py:Doubler rows.jsonl", ERROR_FIELDS)
@with_settings(Loading)
def score_command(
    model: RowModel,
    rows: Annotated[
        str,
        typer.Argument(
            help='File with one row per line: {"field": value, ...} for a tabular model or your own class; '
            '{"query": ..., "text": ...} or ["query", "text"] for a reranker; a text for a classifier. - reads stdin.',
        ),
    ] = "-",
    *,
    as_json: JsonFlag = False,
    **given: Any,
) -> int:
    """Score rows with a model, and print one JSON object per input line, in the same order."""
    asked = Loading(**given_of(Loading, given))
    with opened(rows, "ROWS") as stream:
        from twoshift.cli.answers import Answers, answer_lines

        with own_stdout() as out:
            runtime = loaded(model, asked)
            if runtime.info.outputs == ("embedding",) and runtime.info.runtime != "python":
                runtime.close()
                raise UnusableModel("model", model, "is an embedding model and returns no scores; use `twoshift embed`")
            answers = Answers(out, as_json, runtime.info)
            return answer_lines(runtime, stream, row_parser(runtime.info), answers, skip_blank=True)


def row_parser(info: RuntimeInfo) -> Parse:
    """How a line becomes a row of this model: encoders take texts, everything else JSON."""
    if info.max_row_tokens <= 1 or info.runtime == "python":
        return json_row
    return pair_row if info.outputs == ("score",) else text_or_pair  # a reranker's
