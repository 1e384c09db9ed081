"""Which model a command is about, and how it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from twoshift import loading_settings
from twoshift.cli.params import option_of

if TYPE_CHECKING:
    from twoshift.ports import Runtime

__all__ = [
    "ERROR_FIELDS", "LOAD_TIMEOUT_S", "MODELS", "LoadTimeout", "Loading", "Model", "ProfileLoading", "RegistryAt",
    "RowModel", "TextLoading", "TrustPickle", "loaded",
]  # fmt: skip

# A model is an argument and not an option: its errors keep the plain word.
ERROR_FIELDS = {"model": "MODEL"}

_ROWS = (
    "a file (.onnx, .json, .ubj, .txt, .lgb, .cbm or .skops), a class (file.py:Class or package.module:Class), or a "
    "registered model (NAME, NAME:3 or NAME@prod)"
)
MODELS = (
    "Model: minilm, smollm, the folder of an encoder or language model, a model of an OpenAI-compatible server "
    f"(http://host/v1#name), {_ROWS}."
)
Model = Annotated[str, typer.Argument(help=MODELS)]
RowModel = Annotated[
    str,
    typer.Argument(
        help=f"Model: minilm, the folder of an encoder, {_ROWS}. For a language model, use `twoshift run --prompt` or "
        "`twoshift serve`."
    ),
]
TrustPickle = Annotated[bool, option_of(loading_settings.TrustPickle)]
RegistryAt = Annotated[str | None, option_of(loading_settings.RegistryLocation)]
LoadTimeout = Annotated[float | None, option_of(loading_settings.LoadTimeout)]
LOAD_TIMEOUT_S = 600.0


class TextLoading(msgspec.Struct, frozen=True, kw_only=True):
    """How a model is loaded that takes texts."""

    device: loading_settings.Device = "auto"
    precision: loading_settings.Precision = None
    threads: loading_settings.Threads = None
    load_timeout: loading_settings.LoadTimeout = None
    registry: loading_settings.RegistryLocation = None


class Loading(TextLoading, frozen=True, kw_only=True):
    """How a model of any rows is."""

    trust_pickle: loading_settings.TrustPickle = False


class ProfileLoading(Loading, frozen=True, kw_only=True):
    """How a model of any kind is, to be measured."""

    tensor_parallel: loading_settings.TensorParallel = 1
    batch_invariant: loading_settings.BatchInvariant = False


def loaded(model: str, asked: TextLoading) -> Runtime:
    """The model, on its device; raises InvalidInput, Broken."""
    from twoshift.wiring.model_loading import load_model

    return load_model(
        model,
        device=asked.device,
        precision=asked.precision,
        threads=asked.threads,
        trust_pickle=isinstance(asked, Loading) and asked.trust_pickle,
        load_timeout_s=asked.load_timeout or LOAD_TIMEOUT_S,
        registry=asked.registry,
    )
