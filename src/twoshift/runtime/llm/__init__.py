"""Language models: vLLM in this process, or whatever speaks OpenAI's protocol at an address."""

from __future__ import annotations

from pathlib import Path

from twoshift.errors import InvalidInput
from twoshift.llm_ports import LlmRuntime
from twoshift.runtime.llm.folder import LlmFolder, is_llm_folder, read_llm_folder
from twoshift.runtime.llm.options import LlmOptions
from twoshift.runtime.llm.prompts import PromptMaker
from twoshift.runtime.llm.remote import is_address, load_remote
from twoshift.runtime.llm.smollm import SMOLLM, smollm_folder
from twoshift.runtime.llm.vllm_runtime import load_vllm
from twoshift.runtime.tokenization import TextTokens

__all__ = ["LlmFolder", "LlmOptions", "is_llm", "llm_folder", "llm_tokens", "load_llm"]


def is_llm(model: str) -> bool:
    """Whether a name is that of a language model: `smollm`, an address, or a folder whose config says so."""
    return model == SMOLLM or is_address(model) or is_llm_folder(Path(model).expanduser())


def llm_folder(model: str) -> LlmFolder:
    """Its folder, read and not loaded; raises InvalidInput where there is none, Broken if damaged."""
    return read_llm_folder(_path_of(model))


def llm_tokens(model: str) -> TextTokens:
    """Its tokenizer, without its weights; raises InvalidInput where it has none here, Broken if damaged."""
    return PromptMaker(_path_of(model), 0).tokens


def _path_of(model: str) -> Path:
    if not is_llm(model) or is_address(model):
        raise InvalidInput("model", model, "smollm, or the folder of a language model with config.json and weights")
    return smollm_folder() if model == SMOLLM else Path(model).expanduser()


def load_llm(model: str, options: LlmOptions | None = None) -> LlmRuntime:
    """The language model that `model` names; raises InvalidInput where it cannot be used, Broken if damaged."""
    if is_address(model):
        return load_remote(model, options or LlmOptions())
    return load_vllm(llm_folder(model), model, options or LlmOptions())
