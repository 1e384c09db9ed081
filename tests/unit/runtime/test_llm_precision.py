"""How a language model is loaded: what is refused before anything is, and what vLLM is told."""

from __future__ import annotations

import json
import multiprocessing
import os
import struct
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from twoshift.errors import Broken, InvalidInput
from twoshift.runtime.devices import grouped_gpus
from twoshift.runtime.llm.folder import LlmFolder, read_llm_folder
from twoshift.runtime.llm.options import LlmOptions
from twoshift.runtime.llm.precision import (
    allow_children,
    ask_for_batch_invariance,
    check_batch_invariance,
    checked_device,
    chosen_gpus,
    chosen_precision,
    device_name,
    precision_arguments,
)
from twoshift.runtime.llm.vllm_runtime import engine_arguments

HOPPER, AMPERE, TURING = (9, 0), (8, 0), (7, 5)


def torch(has_bf16: bool = False) -> Any:
    cpu = SimpleNamespace(_is_avx512_bf16_supported=lambda: has_bf16, _is_amx_tile_supported=lambda: False)
    return SimpleNamespace(cpu=cpu)


def folder_of(path: Path, **more: Any) -> Path:
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64, "max_position_embeddings": 512}
    (path / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"], **sizes, **more}))
    (path / "tokenizer.json").write_text("{}")
    header = json.dumps({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    (path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    return path


def test_what_suits_the_device_where_nobody_says() -> None:
    assert chosen_precision(None, None, HOPPER, torch()) == "bf16"
    assert chosen_precision(None, None, None, torch(has_bf16=True)) == "bf16"
    assert chosen_precision(None, None, None, torch()) == "fp32"


@pytest.mark.parametrize(("capability", "said"), [(None, "on a CPU"), (AMPERE, "and this GPU has 8.0")])
def test_fp8_is_refused_by_name_where_the_device_has_none(capability: Any, said: str) -> None:
    with pytest.raises(InvalidInput, match=rf"precision.*{said}.*|precision.*8\.9 or more.*{said}") as refused:
        chosen_precision("fp8", None, capability, torch())
    assert "fp8 needs a GPU of compute capability 8.9 or more" in str(refused.value)


def test_fp8_is_of_weights_and_kv_cache() -> None:
    assert chosen_precision("fp8", None, HOPPER, torch()) == "fp8"
    wanted = {"dtype": "bfloat16", "quantization": "fp8", "kv_cache_dtype": "fp8"}
    assert precision_arguments("fp8") == wanted
    assert precision_arguments("fp32") == {"dtype": "float32"}
    assert precision_arguments("awq") == {"dtype": "auto"}  # vLLM reads the rest in config.json


def test_an_unknown_precision_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(InvalidInput, match="fp32, bf16, fp16 or fp8 for a language model, or the folder"):
        chosen_precision("int8", None, HOPPER, torch())


def test_a_quantised_folder_says_its_own_precision(tmp_path: Path) -> None:
    plain = read_llm_folder(folder_of(tmp_path))
    quantised = read_llm_folder(folder_of(tmp_path, quantization_config={"quant_method": "awq", "bits": 4}))
    assert (plain.quantisation, quantised.quantisation) == (None, "awq")
    assert plain.checksum != quantised.checksum
    assert chosen_precision(None, "awq", None, torch()) == chosen_precision("awq", "awq", None, torch()) == "awq"
    for asked in ("bf16", "fp8"):
        with pytest.raises(InvalidInput, match=r"because the weights of this model are quantised \(awq\)"):
            checked_device(LlmOptions("cpu", asked), "awq")
        with pytest.raises(InvalidInput, match="quantised"):
            chosen_precision(asked, "awq", HOPPER, torch())


def test_a_folder_that_does_not_say_how_it_is_quantised_is_damaged(tmp_path: Path) -> None:
    with pytest.raises(Broken, match="quant_method"):
        read_llm_folder(folder_of(tmp_path, quantization_config={"bits": 4}))


@pytest.mark.parametrize(
    ("options", "field"),
    [
        (LlmOptions("cpu", "fp8"), "precision"),
        (LlmOptions("cpu", tensor_parallel=2), "tensor_parallel"),
        (LlmOptions("cpu", batch_invariant=True), "batch_invariant"),
    ],
)
def test_what_a_cpu_cannot_do_is_refused_before_anything_is_loaded(options: LlmOptions, field: str) -> None:
    with pytest.raises(InvalidInput, match="CPU") as refused:
        checked_device(options, None)
    assert refused.value.field == field


def test_several_gpus_are_part_of_the_device_and_told_to_vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twoshift.runtime.llm.precision.cuda_device", lambda index: f"cuda: H200 no {index}")
    assert device_name("cuda:1", 8, LlmOptions()) == "cuda: H200 no 1"
    assert device_name("cuda:1", 8, LlmOptions(tensor_parallel=2)) == "cuda: H200 no 1 x2"
    assert device_name("cuda:1", 8, LlmOptions(batch_invariant=True)) == "cuda: H200 no 1, batch-invariant"
    assert chosen_gpus("cuda:1", 2) == "1,2"
    folder = LlmFolder(tmp_path, "sum", 512, 1, 2, 2, 16)
    assert engine_arguments(folder, LlmOptions(tensor_parallel=2), True, "bf16")["tensor_parallel_size"] == 2
    assert "tensor_parallel_size" not in engine_arguments(folder, LlmOptions(), True, "bf16")


def test_more_gpus_than_there_are_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    two = SimpleNamespace(cuda=SimpleNamespace(device_count=lambda: 2))
    monkeypatch.setattr("twoshift.runtime.llm.precision.needed", lambda *_: two)
    monkeypatch.setattr("twoshift.runtime.llm.precision.chosen_cuda", lambda device: device)
    assert checked_device(LlmOptions("cuda:0", tensor_parallel=2), None) == "cuda:0"
    with pytest.raises(InvalidInput, match="at most 1: this machine has 1 GPU from cuda:1 on"):
        checked_device(LlmOptions("cuda:1", tensor_parallel=2), None)


def _start_a_child(sent: Any) -> None:
    allow_children()
    child = multiprocessing.get_context("spawn").Process(target=sent.send, args=("here",), daemon=True)
    child.start()
    child.join()


@pytest.mark.slow
def test_a_worker_may_start_vllms_processes() -> None:
    """A job's worker is a daemon of multiprocessing."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    worker = context.Process(target=_start_a_child, args=(theirs,), daemon=True)
    worker.start()
    theirs.close()
    assert ours.recv() == "here"
    worker.join()
    assert worker.exitcode == 0


def test_replicas_share_gpus_out_in_groups() -> None:
    assert grouped_gpus(["0", "1", "2", "3", "4"], 2) == ["0,1", "2,3"]
    assert grouped_gpus(["4", "7"], 1) == ["4", "7"]
    assert grouped_gpus(["0"], 2) == ["0"]  # too few: the replica says so
    assert grouped_gpus([], 2) == []


def test_batch_invariance_is_asked_for_before_vllm_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VLLM_BATCH_INVARIANT", raising=False)
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace())
    with pytest.raises(InvalidInput, match="without this mode"):
        ask_for_batch_invariance()
    monkeypatch.delitem(sys.modules, "vllm")
    ask_for_batch_invariance()
    assert os.environ.pop("VLLM_BATCH_INVARIANT") == "1"


def test_batch_invariance_is_refused_where_vllm_or_the_gpu_has_none() -> None:
    older = SimpleNamespace(__version__="0.9", envs=SimpleNamespace(environment_variables={}))
    with pytest.raises(InvalidInput, match=r"vLLM 0\.9 has no batch-invariant mode"):
        check_batch_invariance(older, HOPPER)
    newer: Any = SimpleNamespace(__version__="1", envs=SimpleNamespace(environment_variables={"VLLM_BATCH_INVARIANT"}))
    check_batch_invariance(newer, AMPERE)
    with pytest.raises(InvalidInput, match=r"compute capability 8\.0 or more, and this GPU has 7\.5"):
        check_batch_invariance(newer, TURING)
