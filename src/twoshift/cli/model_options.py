"""Which model a command is about, and how it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from twoshift.cli.params import duration, text, whole

__all__ = [
    "ERROR_FIELDS",
    "LOAD_TIMEOUT_S",
    "MODELS",
    "Device",
    "LoadTimeout",
    "Model",
    "Precision",
    "RowModel",
    "Threads",
    "TrustPickle",
]

# A model is an argument and not an option: its errors keep the plain word.
ERROR_FIELDS = {"model": "MODEL"}

_ROWS = "an .onnx, .json, .ubj, .txt, .lgb, .cbm or .skops file, file.py:Class or package.module:Class"
MODELS = f"minilm, smollm, the folder of an encoder or a language model, http://host/v1#name, {_ROWS}."
Model = Annotated[str, typer.Argument(help=MODELS)]
RowModel = Annotated[
    str, typer.Argument(help=f"minilm, an encoder's folder, {_ROWS}. Language models: `run --prompt`, `serve`.")
]
Device = Annotated[str, text("Device: auto, cpu, cuda or cuda:N.", metavar="NAME")]
Precision = Annotated[str | None, text("Precision: fp32, bf16 or int8.", metavar="NAME", shown="the model's own")]
Threads = Annotated[
    int | None, whole("CPU threads of a call.", most=4096, shown="all usable cores, or fewer where that is faster")
]
LoadTimeout = Annotated[float | None, duration("End where the model is not loaded within this time.", shown="10m")]
LOAD_TIMEOUT_S = 600.0
TrustPickle = Annotated[
    bool,
    typer.Option(
        "--trust-pickle", help="Load pickle and joblib files. They can run any code: load only files that you trust."
    ),
]
