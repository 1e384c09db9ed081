"""Which model a command is about, and how it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from twoshift.cli.params import text, whole

__all__ = ["ERROR_FIELDS", "MODELS", "Device", "Model", "Precision", "RowModel", "Threads", "TrustPickle"]

# A model is an argument and not an option: its errors keep the plain word.
ERROR_FIELDS = {"model": "MODEL"}

_ROWS = "an .onnx, .json, .ubj or .skops file, file.py:Class or package.module:Class"
MODELS = f"minilm, smollm, the folder of an encoder or a language model, http://host/v1#name, {_ROWS}."
Model = Annotated[str, typer.Argument(help=MODELS)]
RowModel = Annotated[
    str, typer.Argument(help=f"minilm, an encoder's folder, {_ROWS}. Language models: `run --prompt`, `serve`.")
]
Device = Annotated[str, text("auto, cpu, cuda or cuda:N.", metavar="NAME")]
Precision = Annotated[str | None, text("fp32, bf16 or int8; the model's own without it.", metavar="NAME")]
Threads = Annotated[int | None, whole("CPU threads; as many as this process may use without it.", most=4096)]
TrustPickle = Annotated[
    bool, typer.Option("--trust-pickle", help="Open a pickle or joblib file: it can run any code, so know its origin.")
]
