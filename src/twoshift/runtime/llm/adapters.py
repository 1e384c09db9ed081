"""LoRA adapters of a language model, in the layout of PEFT: read and held against their base; nothing is run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twoshift.errors import Broken, InvalidInput, NotFound
from twoshift.runtime.artifacts import checksum_of_files
from twoshift.runtime.llm.folder import LlmFolder, tensor_shapes
from twoshift.types import LoadedAdapter

__all__ = [
    "LORA_MODULES",
    "Adapter",
    "check_adapter",
    "check_adapter_folder",
    "lora_arguments",
    "lora_requests",
    "read_adapters",
]

LORA_MODULES = "lora_target_modules"  # an argument that older engines do not have
_CONFIG, _WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # that vLLM reserves memory for
_MOST_IN_STEP = 16  # different ones; each has a place in the memory of the device
_TENSOR = re.compile(r"(?:base_model\.model\.)?(.+?)\.lora_([AB])(?:\.default)?\.weight")
_PREFIXES = ("", "model.", "language_model.")  # that a folder's names may have and an adapter's not, or the reverse
_PROJECTIONS = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}  # vLLM has names for all
_TIED = "lm_head"  # which a folder may leave out: it is the embedding


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter that fits its base."""

    name: str  # that requests have for it
    path: Path
    rank: int  # the largest of its modules
    modules: frozenset[str]  # the last parts of their names
    loaded: LoadedAdapter


def read_adapters(given: Mapping[str, str], base: LlmFolder) -> tuple[Adapter, ...]:
    """Their folders, read and checked; raises InvalidInput that names what is wrong, Broken where a file is damaged."""
    if not given:
        return ()
    weights = _base_weights(base)
    return tuple(_read(name, path, base, weights) for name, path in given.items())


def check_adapter(name: str, model: str, known: Mapping[str, Any]) -> None:
    """Raises NotFound where the model has no such adapter."""
    if name and name not in known:
        raise NotFound("model", name, f"one of {', '.join([model, *sorted(known)])}")


def lora_arguments(adapters: Sequence[Adapter], on_cuda: bool) -> dict[str, Any]:
    """As vLLM's engine has them.

    On a CPU, vLLM takes the weights of the last place for sequences without an adapter: that one stays empty.
    """
    if not adapters:
        return {}
    places = min(len(adapters), _MOST_IN_STEP) if on_cuda else len(adapters) + 1
    modules = frozenset[str]().union(*(each.modules for each in adapters))
    return {
        "enable_lora": True,
        "max_loras": places,
        "max_cpu_loras": max(places, len(adapters)),
        "max_lora_rank": _reserved(max(each.rank for each in adapters)),
        LORA_MODULES: sorted(modules) if modules <= _PROJECTIONS else None,  # the others stay as fast as they are
    }


def lora_requests(engine: Any, adapters: Sequence[Adapter]) -> dict[str, Any]:
    """What vLLM wants with each sequence, by name; they are loaded now. Raises InvalidInput where vLLM refuses one."""
    if not adapters:
        return {}
    from vllm.lora.request import LoRARequest

    made = dict[str, Any]()
    for number, each in enumerate(adapters, 1):
        made[each.name] = LoRARequest(each.name, number, str(each.path.absolute()))
        try:
            engine.add_lora(made[each.name])
        except Exception as error:  # it has errors of its own for what it does not take
            raise _unfit(each.loaded.path, f"an adapter that vLLM supports ({error})") from error
    return made


def check_adapter_folder(given: str) -> int:
    """The rank of the adapter in a folder; raises InvalidInput where there is none, Broken where it is damaged."""
    path = Path(given).expanduser()
    for file in (_CONFIG, _WEIGHTS):
        if not (path / file).is_file():
            raise _unfit(given, f"the folder of a LoRA adapter with {file} in it, as PEFT saves it")
    return _rank(path / _CONFIG, given)


def _read(name: str, given: str, base: LlmFolder, weights: Mapping[str, tuple[int, ...]]) -> Adapter:
    path, rank = Path(given).expanduser(), check_adapter_folder(given)
    shapes = tensor_shapes(path / _WEIGHTS)
    problem = next(_problems(shapes, weights, rank), None)
    if problem is not None:
        raise _unfit(given, f"an adapter that fits {base.path}: {problem}")
    modules = frozenset(found[1].rpartition(".")[2] if (found := _TENSOR.fullmatch(each)) else each for each in shapes)
    checksum = checksum_of_files([path / _CONFIG, path / _WEIGHTS])
    return Adapter(name, path, rank, modules, LoadedAdapter(given, checksum))


def _rank(file: Path, given: str) -> int:
    try:
        config = json.loads(file.read_bytes())
        kind = str(config.get("peft_type") or "LORA")
        ranks = [int(config["r"]), *(int(each) for each in (config.get("rank_pattern") or {}).values())]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Broken(f"{file} cannot be read as the config of a LoRA adapter ({error!r})") from error
    if kind != "LORA":
        raise _unfit(given, f"an adapter with the peft_type LORA; this adapter has the peft_type {kind}")
    if not 1 <= min(ranks) <= max(ranks) <= _RANKS[-1]:
        raise _unfit(given, f"an adapter with a rank from 1 to {_RANKS[-1]}; this adapter has the rank {max(ranks)}")
    return max(ranks)


def _reserved(rank: int) -> int:
    return next(each for each in _RANKS if each >= rank)


def _base_weights(base: LlmFolder) -> dict[str, tuple[int, ...]]:
    """Shapes by name, over all files of the folder."""
    found = dict[str, tuple[int, ...]]()
    for file in sorted(base.path.glob("*.safetensors")):
        found |= tensor_shapes(file)
    return found


def _problems(
    shapes: Mapping[str, tuple[int, ...]], weights: Mapping[str, tuple[int, ...]], rank: int
) -> Iterator[str]:
    """Why its tensors do not belong to the base's; the name of the base in its config is only a hint."""
    modules = {name.rpartition(".")[0] for name in weights}
    matched = [(found[1], found[2], shape) for name, shape in shapes.items() if (found := _TENSOR.fullmatch(name))]
    if not matched:
        yield "the adapter has no LoRA weights"
    for module, side, shape in matched:
        if len(shape) != 2:
            continue  # of experts, all in one: vLLM knows
        width = shape[0] if side == "A" else shape[1]
        if width > rank:
            yield f"the adapter's config has rank {rank}, but the adapter's weights of {module} have rank {width}"
        there = next((each for each in _names(module) if each in modules), None)
        if there is None:
            if _TIED not in module and ".experts" not in module:
                yield f"the model has no module {module}"
            continue
        wanted = weights.get(f"{there}.weight", ())
        if len(wanted) != 2:
            continue  # quantised: packed in another shape
        size, here = (wanted[1], shape[1]) if side == "A" else (wanted[0], shape[0])
        if size != here:
            what = "inputs" if side == "A" else "outputs"
            yield f"the module {module} has {here:,} {what} in the adapter, but {size:,} in the model"


def _names(module: str) -> Iterator[str]:
    """As a folder may have it."""
    for prefix in _PREFIXES:
        yield prefix + module
        yield module.removeprefix(prefix)


def _unfit(given: str, accepted: str) -> InvalidInput:
    return InvalidInput("adapter", given, accepted)
