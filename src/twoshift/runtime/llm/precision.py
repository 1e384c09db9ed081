"""How vLLM computes: in which precision, on how many GPUs, and whether a batch may change an answer."""

from __future__ import annotations

import multiprocessing
import os
import sys
from typing import Any

from twoshift.errors import Inapplicable, InvalidInput
from twoshift.extras import needed
from twoshift.runtime.devices import chosen_cuda, cpu_device, cuda_device
from twoshift.runtime.llm.options import LlmOptions

__all__ = [
    "FULL_PRECISIONS",
    "Capability",
    "allow_children",
    "ask_for_batch_invariance",
    "check_batch_invariance",
    "checked_device",
    "chosen_gpus",
    "chosen_precision",
    "device_name",
    "gpu_capability",
    "precision_arguments",
]

FULL_PRECISIONS = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}  # as vLLM names them
_FP8 = "fp8"
_FP8_CAPABILITY, _INVARIANT_CAPABILITY = (8, 9), (8, 0)  # of GPUs
_INVARIANT = "VLLM_BATCH_INVARIANT"
_INVARIANT_NEEDS = "vLLM's batch-invariant mode needs a GPU of compute capability 8.0 or more"

Capability = tuple[int, int] | None  # of a GPU, as CUDA counts; None on a CPU


def gpu_capability(on_cuda: bool) -> Capability:
    """Of the GPU that is used, without a context on it."""
    if not on_cuda:
        return None
    from vllm.platforms import current_platform

    found: Any = current_platform.get_device_capability()
    return None if found is None else (found.major, found.minor)


def chosen_precision(asked: str | None, quantised: str | None, capability: Capability, torch: Any) -> str:
    """As it was asked for, or as suits folder and device; raises InvalidInput where they do not have it."""
    if quantised is not None:
        _check_quantised(asked, quantised)
        return quantised
    if asked is None:
        fast = capability or torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
        return "bf16" if fast else "fp32"
    if asked == _FP8:
        _check_fp8(capability)
    elif asked not in FULL_PRECISIONS:
        accepted = f"{', '.join(FULL_PRECISIONS)} or {_FP8} for a language model, or the folder of a quantised model"
        raise InvalidInput("precision", asked, accepted)
    return asked


def checked_device(options: LlmOptions, quantised: str | None) -> str | None:
    """The GPU to use, None for the CPU; raises InvalidInput for what can be refused before anything is loaded."""
    cuda = chosen_cuda(options.device)
    _check_parallel(options.tensor_parallel, cuda)
    if quantised is not None:
        _check_quantised(options.precision, quantised)
    elif cuda is None and options.precision == _FP8:
        _check_fp8(None)
    if options.batch_invariant and cuda is None:
        raise Inapplicable("batch_invariant", True, f"on a CPU: {_INVARIANT_NEEDS}")
    return cuda


def _check_quantised(asked: str | None, quantised: str) -> None:
    if asked not in (None, quantised):
        raise Inapplicable("precision", asked, f"because the weights of this model are quantised ({quantised})")


def _check_fp8(capability: Capability) -> None:
    needs = "fp8 needs a GPU of compute capability 8.9 or more"
    if capability is None:
        raise InvalidInput("precision", _FP8, f"{' or '.join(FULL_PRECISIONS)} on a CPU: {needs}")
    if capability < _FP8_CAPABILITY:
        raise InvalidInput("precision", _FP8, f"bf16 on this GPU: {needs}, and this GPU has {_shown(capability)}")


def precision_arguments(precision: str) -> dict[str, Any]:
    """As vLLM has them: a quantised folder says itself how it is to be read."""
    if precision == _FP8:
        return {"dtype": "bfloat16", "quantization": _FP8, "kv_cache_dtype": _FP8}
    return {"dtype": FULL_PRECISIONS.get(precision, "auto")}


def _check_parallel(devices: int, cuda: str | None) -> None:
    """Raises InvalidInput where the machine has fewer GPUs, from the chosen one on."""
    if devices == 1:
        return
    if cuda is None:
        raise InvalidInput("tensor_parallel", devices, "1 on a CPU: only GPUs can share a model")
    there = needed("torch", "vllm", cuda).cuda.device_count() - _index(cuda)
    if devices > there:
        seen = f"{there} GPU{'' if there == 1 else 's'}"
        raise InvalidInput("tensor_parallel", devices, f"at most {there}: this machine has {seen} from {cuda} on")


def chosen_gpus(cuda: str, devices: int) -> str:
    """As CUDA_VISIBLE_DEVICES names them."""
    return ",".join(str(_index(cuda) + each) for each in range(devices))


def allow_children() -> None:
    """vLLM starts a process for each of several GPUs; multiprocessing lets none of its daemons, as workers are, do so.

    Those processes end by themselves when this one is gone.
    """
    config: Any = getattr(multiprocessing.current_process(), "_config", {})
    config["daemon"] = False


def device_name(cuda: str | None, threads: int, options: LlmOptions) -> str:
    """How a profile names it: all that a step's time depends on besides the model."""
    if cuda is None:
        return cpu_device(threads)
    several = f" x{options.tensor_parallel}" if options.tensor_parallel > 1 else ""
    return f"{cuda_device(_index(cuda))}{several}{', batch-invariant' if options.batch_invariant else ''}"


def ask_for_batch_invariance() -> None:
    """Have vLLM give a sequence the same answer in every batch: it looks at its environment when it is imported."""
    if "vllm" in sys.modules and os.environ.get(_INVARIANT) != "1":
        why = "because this process has already loaded vLLM without this mode: load the model in a new process"
        raise Inapplicable("batch_invariant", True, why)
    os.environ[_INVARIANT] = "1"


def check_batch_invariance(vllm: Any, capability: Capability) -> None:
    """Raises InvalidInput where this vLLM or this GPU cannot do it."""
    if _INVARIANT not in vllm.envs.environment_variables:
        raise Inapplicable("batch_invariant", True, f"because vLLM {vllm.__version__} has no batch-invariant mode")
    if capability is None or capability < _INVARIANT_CAPABILITY:
        has = "an unknown capability" if capability is None else _shown(capability)
        raise Inapplicable("batch_invariant", True, f"on this GPU: {_INVARIANT_NEEDS}, and this GPU has {has}")


def _shown(capability: tuple[int, int]) -> str:
    return f"{capability[0]}.{capability[1]}"


def _index(cuda: str) -> int:
    return int(cuda.partition(":")[2])
