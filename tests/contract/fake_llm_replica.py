"""A language model of arithmetic for processes of their own: replicas, and workers of jobs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from fake_llm import SHAPE, FakeLlm

from twoshift.batch.device import WorkDevice
from twoshift.batch.llm_device import LlmDevice
from twoshift.batch.settings import JobSettings
from twoshift.engine.llm import LlmEngine
from twoshift.llm_ports import LlmShape, Prompt, Step
from twoshift.policy.cost import CallCost
from twoshift.serve.llm.model import ServedLlm
from twoshift.serve.llm_derived import objective_for
from twoshift.serve.model_settings import ModelSettings
from twoshift.types import LoadedAdapter

__all__ = ["open_fake_job", "open_fake_llm"]

_CONTEXT = 1 << 20
_COST = CallCost(1e-3, 1e-5)


class FileGatedLlm(FakeLlm):
    """No step is made while the file `hold` is there; a file says which process has which prompt."""

    def __init__(self, folder: Path) -> None:
        super().__init__(LlmShape(_CONTEXT, 4 * _CONTEXT, SHAPE.block_tokens, 64, SHAPE.max_sequences))
        self._folder = folder

    def add(self, key: int, prompt: Prompt, live: bool) -> None:
        super().add(key, prompt, live)
        name = "".join(map(chr, prompt.token_ids[:8]))
        (self._folder / f"{name}.{os.getpid()}").touch()

    def step(self, prefill_tokens: int | None = None) -> Step:
        while (self._folder / "hold").exists() and self.inside:
            time.sleep(0.005)
        time.sleep(0.001)
        return super().step(prefill_tokens)


def open_fake_llm(name: str, settings: ModelSettings, _note: Callable[[str], None]) -> ServedLlm:
    """The model is a folder's name."""
    objective = objective_for(_COST, ttft_s=60.0, tpot_s=10.0, max_waiting=settings.max_waiting)
    llm = FileGatedLlm(Path(settings.model))
    adapters = {each: LoadedAdapter(path, f"sha256:{path}") for each, path in settings.adapters.items()}
    llm.info = replace(llm.info, adapters=adapters)
    return ServedLlm(name, LlmEngine(llm, _COST, objective))


def open_fake_job(_settings: JobSettings) -> WorkDevice:
    """The same for a job that has a device of its own."""
    return LlmDevice(LlmEngine(FakeLlm(), _COST, serves=False))
