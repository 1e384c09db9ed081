"""Text encoders: embeddings, sequence classification and reranking from a model folder."""

from __future__ import annotations

from pathlib import Path

from twoshift.errors import InvalidInput
from twoshift.ports import Runtime
from twoshift.runtime.devices import checked_device
from twoshift.runtime.encoder.architecture import Family
from twoshift.runtime.encoder.folder import MINILM, ModelFolder, read_folder, read_minilm

__all__ = ["load_encoder"]


def load_encoder(
    model: str, *, device: str = "auto", precision: str | None = None, threads: int | None = None
) -> Runtime:
    """The encoder in a model folder, or `minilm`, on a device.

    Raises InvalidInput where the folder, the device or the precision cannot be used, Broken where a file is damaged.
    """
    _check_options(device, precision)
    folder = read_minilm() if model == MINILM else read_folder(Path(model).expanduser())
    return _on_cpu(folder, model, threads)


def _check_options(device: str, precision: str | None) -> None:
    if checked_device(device) not in ("auto", "cpu"):
        raise InvalidInput("device", device, "cpu or auto: the GPU runtime for encoders is not here yet")
    if precision not in (None, "fp32"):
        raise InvalidInput("precision", precision, "fp32, the one precision in which encoders run on the CPU")


def _on_cpu(folder: ModelFolder, name: str, threads: int | None) -> Runtime:
    if folder.architecture.family is Family.OTHER:
        from twoshift.runtime.encoder.generic import load_generic_encoder

        return load_generic_encoder(folder, name, threads)
    from twoshift.runtime.encoder.onnx_encoder import load_onnx_encoder

    return load_onnx_encoder(folder, name, threads)
