"""Text encoders: embeddings, sequence classification and reranking from a model folder."""

from __future__ import annotations

from pathlib import Path

from twoshift.errors import InvalidInput
from twoshift.ports import Runtime
from twoshift.runtime.devices import chosen_cuda
from twoshift.runtime.encoder.architecture import Family
from twoshift.runtime.encoder.folder import MINILM, ModelFolder, read_folder, read_minilm
from twoshift.runtime.encoder.static import is_static, load_static_encoder

__all__ = ["load_encoder"]


def load_encoder(
    model: str, *, device: str = "auto", precision: str | None = None, threads: int | None = None
) -> Runtime:
    """The encoder in a model folder, or `minilm`, on a device.

    Raises InvalidInput where the folder, the device or the precision cannot be used, Broken where a file is damaged.
    """
    if model != MINILM and is_static(path := Path(model).expanduser()):
        return load_static_encoder(path, model, device, precision)
    cuda = chosen_cuda(device)
    _check_precision(precision, cuda is not None)
    folder = read_minilm() if model == MINILM else read_folder(Path(model).expanduser())
    if cuda is not None:
        return _on_cuda(folder, model, cuda, precision or "bf16")
    return _on_cpu(folder, model, threads, precision or "fp32")


def _check_precision(precision: str | None, on_cuda: bool) -> None:
    if precision not in ((None, "bf16", "fp32") if on_cuda else (None, "fp32", "int8")):
        accepted = "bf16 or fp32 on a GPU" if on_cuda else "fp32 or int8 on the CPU"
        raise InvalidInput("precision", precision, accepted)


def _on_cuda(folder: ModelFolder, name: str, device: str, precision: str) -> Runtime:
    """Packed where that can be; in fp32, and where a network cannot take packed rows, padded."""
    from twoshift.runtime.encoder.generic import load_generic_encoder

    if precision == "bf16":
        import torch

        from twoshift.runtime.encoder.cuda.encoder import load_packed_encoder

        packed = load_packed_encoder(folder, name, torch.device(device))
        if packed is not None:
            return packed
    return load_generic_encoder(folder, name, device=device, precision=precision)


def _on_cpu(folder: ModelFolder, name: str, threads: int | None, precision: str) -> Runtime:
    if folder.architecture.family is Family.OTHER:
        if precision != "fp32":
            accepted = f"fp32: on the CPU, {folder.architecture.model_type} supports no other precision"
            raise InvalidInput("precision", precision, accepted)
        from twoshift.runtime.encoder.generic import load_generic_encoder

        return load_generic_encoder(folder, name, threads)
    from twoshift.runtime.encoder.onnx_encoder import load_onnx_encoder

    return load_onnx_encoder(folder, name, threads, precision=precision)
