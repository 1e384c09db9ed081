"""Other networks, packed through transformers' attention interface, where they turn out to answer the same."""

from __future__ import annotations

import inspect
import threading
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from twoshift.errors import InvalidInput
from twoshift.runtime.companions import needed_transformers
from twoshift.runtime.encoder.cuda.attention import ANY_DISTANCE, Window, attend
from twoshift.runtime.encoder.cuda.rows import PackedRows
from twoshift.runtime.encoder.folder import ModelFolder
from twoshift.runtime.encoder.generic import body_class, load_network

__all__ = ["BorrowedNetwork", "borrow_network"]

_NAME = "twoshift_packed"
_AGREE = 0.999  # cosine of every token's state with what the network gives for the row alone
_CHECKED_LENGTHS = (3, 21, 9)
_current = threading.local()  # the rows of the call that this thread runs


def borrow_network(folder: ModelFolder, device: torch.device, dtype: torch.dtype) -> BorrowedNetwork | None:
    """The folder's network with packed attention; None where it does not answer as it does row by row."""
    transformers = needed_transformers("torch", str(folder.path))
    transformers.AttentionInterface.register(_NAME, _attend)
    transformers.AttentionMaskInterface.register(_NAME, _no_mask)
    model = load_network(folder, body_class(folder, transformers), dtype).to(device)
    if "position_ids" not in inspect.signature(model.forward).parameters:
        return None
    network = BorrowedNetwork(model, device, folder.takes_pairs)
    try:
        with torch.inference_mode():
            agrees = network.agrees(folder.architecture.vocabulary or 100)
    except (InvalidInput, MemoryError):
        raise
    except Exception:  # a network that cannot take packed rows may fail in any way
        return None
    return network if agrees else None


class BorrowedNetwork:
    """Token ids -> the last layer's hidden states, through transformers' own code."""

    def __init__(self, model: Any, device: torch.device, takes_pairs: bool) -> None:
        self.device = device
        self.recordable = False  # other people's code may look at the device as it goes
        self._model = model
        self._typed = takes_pairs and "token_type_ids" in inspect.signature(model.forward).parameters

    def __call__(self, ids: Tensor, rows: PackedRows, types: Tensor | None) -> Tensor:
        given = {"input_ids": ids[None].long(), "position_ids": rows.places[None].long()}
        if self._typed and types is not None:
            given["token_type_ids"] = types[None].long()
        _current.rows = rows
        return self._model(**given)[0][0]

    def agrees(self, vocabulary: int) -> bool:
        """Whether rows together give the states that each gives alone, with the network's plain attention."""
        generator = torch.Generator().manual_seed(0)
        texts = [torch.randint(0, vocabulary, (n,), generator=generator).to(self.device) for n in _CHECKED_LENGTHS]
        starts = torch.tensor([0, *_CHECKED_LENGTHS], device=self.device).cumsum(0).int()
        self._model.set_attn_implementation(_NAME)
        packed = self(torch.cat(texts), PackedRows.of(starts, int(starts[-1]), max(_CHECKED_LENGTHS)), None)
        self._model.set_attn_implementation("eager")
        alone = torch.cat([self._model(input_ids=text[None])[0][0] for text in texts])
        self._model.set_attn_implementation(_NAME)
        return bool(functional.cosine_similarity(packed.float(), alone.float(), dim=1).min() >= _AGREE)


def _attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, scaling: float | None = None,
    sliding_window: int | None = None, is_causal: bool | None = None, **_: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    """[1, heads, tokens, width] each -> [1, tokens, heads, width]"""
    causal = getattr(module, "is_causal", False) if is_causal is None else is_causal
    groups = query.shape[1] // key.shape[1]
    key, value = (each.repeat_interleave(groups, 1) if groups > 1 else each for each in (key, value))
    query, key, value = (each[0].transpose(0, 1) for each in (query, key, value))
    return attend(query, key, value, _current.rows, scaling, _window(sliding_window, causal))[None], None


def _window(sliding: int | None, causal: bool) -> Window:
    if sliding is None:
        return (-1, 0) if causal else ANY_DISTANCE
    return (sliding - 1, 0 if causal else sliding - 1)


def _no_mask(*_: Any, **__: Any) -> None:
    """Rows are kept apart by where they begin."""
