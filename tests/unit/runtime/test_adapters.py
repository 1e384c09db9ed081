"""LoRA adapters as folders: what fits a base, and what is told of one that does not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from twoshift.errors import Broken, InvalidInput, NotFound
from twoshift.runtime.llm import LlmOptions, load_llm
from twoshift.runtime.llm.adapters import check_adapter, lora_arguments, lora_requests, read_adapters
from twoshift.runtime.llm.folder import LlmFolder

save_file: Any = pytest.importorskip("safetensors.numpy").save_file
from lora_adapters import write_adapter  # noqa: E402


def base_at(path: Path, width: int = 8, layers: int = 2, prefix: str = "model.") -> LlmFolder:
    """A base without anything but projections."""
    path.mkdir()
    shapes = {"q_proj": (width, width), "v_proj": (width // 2, width)}
    tensors = {
        f"{prefix}layers.{layer}.self_attn.{name}.weight": np.zeros(shape, np.float32)
        for layer in range(layers)
        for name, shape in shapes.items()
    }
    half = len(tensors) // 2
    for number, part in enumerate((dict([*tensors.items()][:half]), dict([*tensors.items()][half:]))):
        save_file(part, path / f"model-{number}.safetensors")
    return LlmFolder(path, "sha256:0", 64, 0, layers, 1, 4)


@pytest.fixture
def base(tmp_path: Path) -> LlmFolder:
    return base_at(tmp_path / "base")


def read(path: Path, base: LlmFolder) -> Any:
    return read_adapters({"mine": str(path)}, base)


def refused(path: Path, base: LlmFolder) -> str:
    with pytest.raises(InvalidInput) as error:
        read(path, base)
    assert (error.value.field, error.value.value) == ("adapter", str(path))
    return error.value.accepted


def test_an_adapter_that_fits_is_known_by_its_content(base: LlmFolder, tmp_path: Path) -> None:
    one, same, other = (
        read(write_adapter(tmp_path / name, base.path, seed, rank=3), base)[0]
        for name, seed in (("one", 0), ("same", 0), ("other", 1))
    )
    assert (one.name, one.rank, one.loaded.path) == ("mine", 3, str(tmp_path / "one"))
    assert one.loaded.checksum == same.loaded.checksum != other.loaded.checksum
    louder = write_adapter(tmp_path / "louder", base.path, 0, rank=3, lora_alpha=64)
    assert read(louder, base)[0].loaded.checksum != one.loaded.checksum
    assert read_adapters({}, base) == ()


def test_the_names_of_a_base_may_have_another_beginning(tmp_path: Path) -> None:
    base = base_at(tmp_path / "base")
    adapter = write_adapter(tmp_path / "adapter", base.path)
    for name, prefix in (("bare", ""), ("inner", "language_model.model.")):
        assert read(adapter, base_at(tmp_path / name, prefix=prefix))[0].rank == 4


def test_what_is_missing_is_named(base: LlmFolder, tmp_path: Path) -> None:
    assert "adapter_config.json" in refused(tmp_path / "nowhere", base)
    adapter = write_adapter(tmp_path / "adapter", base.path)
    (adapter / "adapter_model.safetensors").rename(adapter / "adapter_model.bin")
    assert "adapter_model.safetensors" in refused(adapter, base)


def test_an_adapter_of_another_base_is_refused_by_its_shapes(base: LlmFolder, tmp_path: Path) -> None:
    wide = write_adapter(tmp_path / "wide", base_at(tmp_path / "wider", width=16).path)
    assert refused(wide, base).endswith("self_attn.q_proj has 16 inputs in the adapter, but 8 in the model")
    deep = write_adapter(tmp_path / "deep", base_at(tmp_path / "deeper", layers=3).path)
    assert refused(deep, base).endswith("the model has no module model.layers.2.self_attn.q_proj")
    assert refused(write_adapter(tmp_path / "none", base.path, modules=()), base).endswith(
        "the adapter has no LoRA weights"
    )
    hinted = write_adapter(tmp_path / "hinted", base.path, base_model_name_or_path="somebody/else")
    assert read(hinted, base)[0].rank == 4  # the name is a hint: the shapes fit


def test_ranks_that_vllm_has_no_place_for_are_refused(base: LlmFolder, tmp_path: Path) -> None:
    assert refused(write_adapter(tmp_path / "large", base.path, r=513), base).endswith("this adapter has the rank 513")
    pattern = write_adapter(tmp_path / "pattern", base.path, rank_pattern={"q_proj": 700})
    assert refused(pattern, base).endswith("this adapter has the rank 700")
    assert "rank from 1 to 512" in refused(write_adapter(tmp_path / "zero", base.path, r=0), base)
    told = refused(write_adapter(tmp_path / "liar", base.path, rank=4, r=2), base)
    assert told.endswith("config has rank 2, but the adapter's weights of model.layers.0.self_attn.q_proj have rank 4")


def test_other_kinds_and_damaged_files_are_told(base: LlmFolder, tmp_path: Path) -> None:
    assert "this adapter has the peft_type IA3" in refused(
        write_adapter(tmp_path / "ia3", base.path, peft_type="IA3"), base
    )
    adapter = write_adapter(tmp_path / "cut", base.path)
    (adapter / "adapter_model.safetensors").write_bytes(b"\x09")
    with pytest.raises(Broken, match="safetensors"):
        read(adapter, base)
    for config in ("[]", "{", '{"r": "many"}', "{}"):
        (adapter / "adapter_config.json").write_text(config)
        with pytest.raises(Broken, match="adapter_config"):
            read(adapter, base)


def test_vllm_gets_places_for_all_and_on_a_cpu_an_empty_one(base: LlmFolder, tmp_path: Path) -> None:
    made = {str(k): str(write_adapter(tmp_path / str(k), base.path, k, rank=k + 1)) for k in range(20)}
    adapters = read_adapters(made, base)
    assert lora_arguments((), on_cuda=False) == {}
    projections = {"lora_target_modules": ["q_proj", "v_proj"]}
    few = {"enable_lora": True, "max_loras": 3, "max_cpu_loras": 3, "max_lora_rank": 8, **projections}
    assert lora_arguments(adapters[:2], on_cuda=False) == few
    assert lora_arguments(adapters[:3], on_cuda=True) == few
    assert lora_arguments(adapters, on_cuda=True) == {
        "enable_lora": True, "max_loras": 16, "max_cpu_loras": 20, "max_lora_rank": 32, **projections
    }  # fmt: skip
    only = read(write_adapter(tmp_path / "query", base.path, modules=["q_proj"]), base)
    assert lora_arguments(only, on_cuda=True)["lora_target_modules"] == ["q_proj"]
    assert lora_arguments([*only, replace(only[0], modules=frozenset({"w1"}))], True)["lora_target_modules"] is None


@pytest.mark.slow
def test_what_vllm_refuses_is_told_with_the_adapter(base: LlmFolder, tmp_path: Path) -> None:
    pytest.importorskip("vllm")

    class Refuses:
        def add_lora(self, _request: Any) -> None:
            raise ValueError("Adapter bias is not supported.")

    [biased] = read(write_adapter(tmp_path / "biased", base.path, bias="all"), base)
    with pytest.raises(InvalidInput, match=r"an adapter that vLLM supports \(Adapter bias is not supported.\)"):
        lora_requests(Refuses(), [biased])


def test_names_are_checked_and_another_server_has_its_own() -> None:
    check_adapter("", "m", {})
    check_adapter("sql", "m", {"sql": 1})
    with pytest.raises(NotFound, match="one of m, sql"):
        check_adapter("chess", "m", {"sql": 1})
    with pytest.raises(InvalidInput, match="with a remote model"):
        load_llm("http://127.0.0.1:1/v1#x", LlmOptions(adapters={"sql": "adapters/sql"}))


def test_its_config_is_all_that_a_hint_is_read_from(base: LlmFolder, tmp_path: Path) -> None:
    adapter = write_adapter(tmp_path / "adapter", base.path, rank=2)
    told = json.loads((adapter / "adapter_config.json").read_text())
    (adapter / "adapter_config.json").write_text(json.dumps(told | {"peft_type": None, "rank_pattern": {"x": 3}}))
    assert read(adapter, base)[0].rank == 3
