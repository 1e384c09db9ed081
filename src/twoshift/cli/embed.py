"""`embed`: texts to vectors, a line each."""

from __future__ import annotations

from typing import Annotated

import typer

from twoshift.cli.app import app
from twoshift.cli.commands import command
from twoshift.cli.model_options import (
    ERROR_FIELDS,
    LOAD_TIMEOUT_S,
    Device,
    LoadTimeout,
    Precision,
    RegistryAt,
    RowModel,
    Threads,
)
from twoshift.cli.output import own_stdout
from twoshift.cli.params import JsonFlag
from twoshift.cli.rows import opened, text_row
from twoshift.errors import InvalidInput

__all__ = ["embed_command"]


@command(app, "embed", "twoshift embed minilm texts.txt", ERROR_FIELDS)
def embed_command(
    model: RowModel,
    texts: Annotated[str, typer.Argument(help="Input file with one text per line; - reads stdin.")] = "-",
    device: Device = "auto",
    precision: Precision = None,
    threads: Threads = None,
    load_timeout: LoadTimeout = None,
    registry: RegistryAt = None,
    as_json: JsonFlag = False,
) -> int:
    """Compute embeddings of texts: print one JSON object per input line, in order."""
    with opened(texts, "TEXTS") as stream:
        from twoshift.cli.answers import Answers, answer_lines
        from twoshift.wiring.model_loading import load_model

        with own_stdout() as out:
            runtime = load_model(
                model,
                device=device,
                precision=precision,
                threads=threads,
                load_timeout_s=load_timeout or LOAD_TIMEOUT_S,
                registry=registry,
            )
            outputs = runtime.info.outputs
            if outputs and "embedding" not in outputs:
                runtime.close()
                accepted = f"an embedding model; this model returns {', '.join(outputs)}: use `twoshift score`"
                raise InvalidInput("model", model, accepted)
            return answer_lines(runtime, stream, text_row, Answers(out, as_json, runtime.info))
