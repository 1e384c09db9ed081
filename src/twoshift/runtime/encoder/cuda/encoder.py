"""An encoder on a GPU, as a Runtime."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, cast

import torch

from twoshift.errors import Broken, OutOfMemory
from twoshift.ports import Prepared, RuntimeInfo
from twoshift.runtime.encoder.answers import encoder_info
from twoshift.runtime.encoder.cuda.bert import PackedBert, can_pack
from twoshift.runtime.encoder.cuda.borrowed import borrow_network
from twoshift.runtime.encoder.cuda.heads import PackedHead, has_head
from twoshift.runtime.encoder.cuda.lane import CallLane, OnDevice
from twoshift.runtime.encoder.cuda.rows import PackedRows
from twoshift.runtime.encoder.folder import ModelFolder
from twoshift.runtime.encoder.graph import has_type_ids
from twoshift.runtime.encoder.tokens import TextTokenizer, TokenRows
from twoshift.runtime.failures import device_failures

__all__ = ["CudaEncoder", "load_packed_encoder"]


def load_packed_encoder(folder: ModelFolder, name: str, device: torch.device) -> CudaEncoder | None:
    """The folder's model in bf16, packed; None where its attention cannot be: it must run padded."""
    if not has_head(folder):
        return None
    typed = has_type_ids(folder)
    with device_failures():
        network = None
        if can_pack(folder.architecture):
            network = PackedBert(folder, typed, device, torch.bfloat16)
        else:
            network = borrow_network(folder, device, torch.bfloat16)
        if network is None:
            return None
        head = PackedHead(folder, device)
        if isinstance(network, PackedBert):
            network.check_all_read(head.read)
        ran_on = f"cuda: {torch.cuda.get_device_name(device)}"
        info = dataclasses.replace(encoder_info(folder, name, "torch", ran_on, "bf16", pads=False), live_stream=True)
        return CudaEncoder(info, folder, TextTokenizer(folder, typed), _Answering(network, head))


class _Answering:
    """A network with its head."""

    def __init__(self, network: Any, head: PackedHead) -> None:
        self.network, self._head = network, head

    def __call__(self, ids: torch.Tensor, rows: PackedRows, types: torch.Tensor | None) -> torch.Tensor:
        return self._head(self.network(ids, rows, types), rows)


class CudaEncoder:
    """A Runtime with a lane for live calls, which overtake, and one for the others; one thread launches into each."""

    def __init__(self, info: RuntimeInfo, folder: ModelFolder, tokenizer: TextTokenizer, model: _Answering) -> None:
        self.info = info
        self.row_preparer = tokenizer
        device = model.network.device
        self._lanes = {live: CallLane(model, folder.task, has_type_ids(folder), device, live) for live in (True, False)}
        for lane in self._lanes.values() if model.network.recordable else ():
            lane.record(folder.max_tokens)

    def prepare(self, rows: Sequence[Any]) -> TokenRows:
        """Texts, or pairs of texts, as tokens; any thread may call it."""
        return self.row_preparer.rows(rows)

    def launch(self, parts: Sequence[Prepared], live: bool = False) -> OnDevice:
        """Begin one call over the rows of all parts; a live one overtakes the others on the device."""
        if not self._lanes:
            raise Broken(f"{self.info.model} is closed")
        try:
            with device_failures():
                return self._lanes[live].launch(cast("Sequence[TokenRows]", parts))
        except OutOfMemory:
            torch.cuda.empty_cache()
            raise

    def close(self) -> None:
        """Let the model go."""
        for lane in self._lanes.values():
            lane.close()
        self._lanes.clear()
        torch.cuda.empty_cache()
