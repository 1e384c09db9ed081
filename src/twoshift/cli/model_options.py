"""Which model a command is about, and how it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from twoshift import loading_settings
from twoshift.cli.params import duration, option_of

__all__ = [
    "ERROR_FIELDS",
    "LOAD_TIMEOUT_S",
    "MODELS",
    "BatchInvariant",
    "Device",
    "LoadTimeout",
    "Model",
    "Precision",
    "RegistryAt",
    "RowModel",
    "TensorParallel",
    "Threads",
    "TrustPickle",
]

# A model is an argument and not an option: its errors keep the plain word.
ERROR_FIELDS = {"model": "MODEL"}

_ROWS = (
    "an .onnx, .json, .ubj, .txt, .lgb, .cbm or .skops file, file.py:Class, package.module:Class, or a registered "
    "NAME, NAME:3 or NAME@prod"
)
MODELS = f"Model: minilm, smollm, the folder of an encoder or language model, http://host/v1#name, {_ROWS}."
Model = Annotated[str, typer.Argument(help=MODELS)]
RowModel = Annotated[
    str,
    typer.Argument(
        help=f"Model: minilm, the folder of an encoder, {_ROWS}. For language models use `run --prompt` or `serve`."
    ),
]
Device = Annotated[str, option_of(loading_settings.Device)]
Precision = Annotated[str | None, option_of(loading_settings.Precision)]
Threads = Annotated[int | None, option_of(loading_settings.Threads)]
TensorParallel = Annotated[int, option_of(loading_settings.TensorParallel)]
BatchInvariant = Annotated[bool, option_of(loading_settings.BatchInvariant)]
TrustPickle = Annotated[bool, option_of(loading_settings.TrustPickle)]
RegistryAt = Annotated[str | None, option_of(loading_settings.RegistryLocation)]
LoadTimeout = Annotated[float | None, duration("Fail if the model does not load within this time.", shown="10m")]
LOAD_TIMEOUT_S = 600.0
