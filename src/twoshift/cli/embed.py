"""`embed`: texts to vectors, a line each."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from twoshift.cli.app import app
from twoshift.cli.commands import command
from twoshift.cli.model_options import ERROR_FIELDS, RowModel, TextLoading, loaded
from twoshift.cli.output import own_stdout
from twoshift.cli.params import JsonFlag, given_of, with_settings
from twoshift.cli.rows import opened, text_row
from twoshift.errors import UnusableModel

__all__ = ["embed_command"]


@command(app, "embed", "twoshift embed minilm texts.txt", ERROR_FIELDS)
@with_settings(TextLoading)
def embed_command(
    model: RowModel,
    texts: Annotated[str, typer.Argument(help="Input file with one text per line; - reads stdin.")] = "-",
    *,
    as_json: JsonFlag = False,
    **given: Any,
) -> int:
    """Compute embeddings of texts, and print one JSON object per input line, in the same order."""
    asked = TextLoading(**given_of(TextLoading, given))
    with opened(texts, "TEXTS") as stream:
        from twoshift.cli.answers import Answers, answer_lines

        with own_stdout() as out:
            runtime = loaded(model, asked)
            outputs = runtime.info.outputs
            if outputs and "embedding" not in outputs:
                runtime.close()
                why = f"returns {', '.join(outputs)} and no embeddings; use `twoshift score`"
                raise UnusableModel("model", model, why)
            return answer_lines(runtime, stream, text_row, Answers(out, as_json, runtime.info))
