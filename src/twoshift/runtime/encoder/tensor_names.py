"""Every weight comes from the file: the tensors that a network lacks, leaves unread, or has in another shape."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twoshift.errors import UnusableModel

__all__ = ["SAVE_AGAIN", "check_finite", "check_tensors", "is_finite", "is_pooler", "is_spare"]

_SHOWN = 3
_BUFFERS = ("position_ids", "token_type_ids", "inv_freq")  # older versions saved what is computed
# Heads of the training task, and the decoder beside an encoder: no embedding and no label is made from them
_HEADS = frozenset({
    "cls", "decoder", "discriminator_predictions", "generator_lm_head", "generator_predictions", "head", "lm_head",
    "lm_predictions", "mask_predictions", "mlm_head", "predictions", "sop_classifier", "vocab_layer_norm",
    "vocab_projector", "vocab_transform",
})  # fmt: skip
SAVE_AGAIN = "correct config.json (model_type, sizes), or save the model again with save_pretrained"


def is_pooler(name: str) -> bool:
    """Whether a tensor belongs to the pooler of the pre-training task, which only BERT's own classifier reads."""
    return "pooler" in name.split(".")[:2]


def is_spare(name: str) -> bool:
    """Whether a tensor may go unread: a buffer, the pooler, or a head of another task. Names come without a prefix."""
    parts = name.split(".")
    return parts[-1] in _BUFFERS or is_pooler(name) or parts[0] in _HEADS


def check_tensors(
    folder: Path,
    missing: Collection[str] = (),
    unexpected: Collection[str] = (),
    misshapen: Collection[tuple[str, Sequence[int], Sequence[int]]] = (),
    or_more: bool = False,
) -> None:
    """Raise UnusableModel where there are any; `misshapen` has the shape in the file, then the one in config.json.

    With `or_more` nobody has looked for all of them.
    """
    shapes = [f"{name} {list(held)} instead of {list(wanted)}" for name, held, wanted in sorted(misshapen)]
    found = [
        f"{'at least ' * or_more}{len(names)} {'weight' if len(names) == 1 else 'weights'} {problem} ({_first(names)})"
        for names, problem in (
            (missing, "missing"),
            (shapes, "of another shape"),
            (unexpected, "unknown to the network"),
        )
        if names
    ]
    if found:
        raise UnusableModel(
            "model", str(folder), f"has weights that do not fit config.json: {', '.join(found)}; {SAVE_AGAIN}"
        )


def is_finite(values: NDArray[Any]) -> bool:
    """Whether no value is NaN or infinite; without an array of answers."""
    return bool(np.isfinite(values.min(initial=0)) and np.isfinite(values.max(initial=0)))


def check_finite(where: Path, names: Collection[str]) -> None:
    """Raise UnusableModel that names tensors that are not."""
    if names:
        told = f"has weights that are not finite ({_first(names)}); save the model again without NaN and infinity"
        raise UnusableModel("model", str(where), told)


def _first(names: Iterable[str]) -> str:
    named = sorted(names)
    return ", ".join(named[:_SHOWN]) + (", ..." if len(named) > _SHOWN else "")
