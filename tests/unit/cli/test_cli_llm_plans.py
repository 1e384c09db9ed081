"""Plans from a language model's profile and folder."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from twoshift.policy.cost import CallCost
from twoshift.policy.plan import RowSize
from twoshift.policy.profile import Profile
from twoshift.wiring.stored_profiles import profiles

Run = Callable[[str], Any]


@pytest.fixture(autouse=True)
def profile(folder: Path) -> None:
    cost = CallCost(0.02, 0.001)
    made = Profile("smollm-vllm", cost, "2026-01-01T00:00:00+00:00", 9, RowSize(), "smollm", "vllm", "cpu", "fp32")
    profiles().put(made)


def test_tokens_of_a_profile_by_the_sequences_at_once(twoshift: Run) -> None:
    asked = "plan tokens --profile smollm --prompt-tokens 1 --price 3.6 --json"
    one = json.loads(twoshift(f"{asked} --sequences 1").out)
    many = json.loads(twoshift(f"{asked} --sequences 20").out)
    assert one["usd_per_million_tokens"] == pytest.approx(1e6 * 0.021 * 3.6 / 3600)
    assert many["usd_per_million_tokens"] == pytest.approx(1e6 * 0.04 / 20 * 3.6 / 3600)
    assert [each["sequences"] for each in many["table"]] == [1, 2, 4, 8, 16, 20]


def test_prompts_that_are_read_beside_the_answers_count(twoshift: Run) -> None:
    asked = "plan tokens --profile smollm --sequences 20 --price 3.6 --json --answer-tokens 100 --step-tokens 512"
    alone, mixed = (json.loads(twoshift(f"{asked} --prompt-tokens {each}").out) for each in (1, 101))
    assert alone["tokens_per_s"] == pytest.approx(20 / 0.04)
    # Each answer: 100 steps of 20 tokens, in every fifth of them 100 more of a prompt on average; a step's are whole
    assert mixed["tokens_per_s"] == pytest.approx(20 * 100 / (100 * 0.04 + 20 * 0.1), rel=0.001)
    row = mixed["table"][-1]
    assert row["usd_per_million_input"] * 101 + row["usd_per_million_output"] * 100 == pytest.approx(
        100 * mixed["usd_per_million_tokens"]
    )
    cached = json.loads(twoshift(f"{asked} --prompt-tokens 1 --cached-tokens 100").out)
    assert cached["tokens_per_s"] == alone["tokens_per_s"]


def test_tokens_of_a_profile_are_told_with_what_was_assumed(twoshift: Run) -> None:
    told = " ".join(twoshift("plan tokens --profile smollm --price 3.6").out.split())
    assert "smollm: 16 sequences at once (--sequences), prompts of 256 tokens and answers of 128" in told
    assert "$ per M output tokens" in told


SIZES = "--params 8B --layers 32 --kv-heads 8 --head-dim 128"


def test_a_device_bounds_the_sequences_and_the_rate(twoshift: Run) -> None:
    asked = f"plan tokens {SIZES} --price 3 --prompt-tokens 250 --answer-tokens 128 --json"
    told = json.loads(twoshift(f"{asked} --device H100").out)
    kv_bytes = 32 * 8 * 128 * 2 * 2
    assert told["sequences"] == told["memory"]["largest_batch"] == (72e9 - 16e9) // (378 * kv_bytes)
    assert (told["bounds"][0], told["bounds"][-1]) == ("memory", "compute")
    assert told["table"][0]["tpot_s"] == pytest.approx(16e9 / 3.35e12, rel=0.02)
    fp8 = json.loads(twoshift(f"{asked} --device H100 --precision fp8 --kv-precision fp8").out)
    assert fp8["sequences"] > 2 * told["sequences"]
    assert fp8["usd_per_million_tokens"] < 0.6 * told["usd_per_million_tokens"]
    two = json.loads(twoshift(f"{asked} --device H100 --devices 2").out)
    assert two["sequences"] > 2 * told["sequences"]
    assert two["tokens_per_s"] == pytest.approx(2 * told["tokens_per_s"], rel=0.1)


def test_a_profile_and_a_device_give_the_measured_rate_of_as_many_as_fit(twoshift: Run) -> None:
    asked = f"plan tokens --profile smollm {SIZES} --device L4 --price 1 --sequences 300 --json"
    told = json.loads(twoshift(asked).out)
    assert told["sequences"] == told["memory"]["largest_batch"] < 300


def test_a_model_that_does_not_fit_is_refused(twoshift: Run) -> None:
    asked = "plan tokens --params 70B --layers 80 --kv-heads 8 --head-dim 128 --device H100 --price 3"
    assert "--devices, with room for the weights" in " ".join(twoshift(asked).err.split())
    assert json.loads(twoshift(f"{asked} --devices 4 --json").out)["sequences"] > 100
    assert "a language model, or --params" in " ".join(twoshift("plan tokens --device H100 --price 3").err.split())


def test_replicas_of_a_profile_hold_as_many_streams_as_keep_the_objective(twoshift: Run) -> None:
    asked = "plan replicas --profile smollm --rate 10 --ttft-ms 500 --tpot-ms 50.1 --output-tokens 60 --json"
    assert json.loads(twoshift(asked).out)["replicas_average"] == 1  # 600 tokens/s, and 30 streams in 50 ms are as many
    assert json.loads(twoshift(asked.replace("--rate 10", "--rate 11")).out)["replicas_average"] == 2


def test_neither_or_both_is_refused(twoshift: Run) -> None:
    assert "either --tokens-per-s" in twoshift("plan tokens --price 1").err
    assert "cannot be used with --profile" in twoshift("plan tokens --price 1 --tokens-per-s 5 --profile smollm").err


def test_memory_of_a_folder(twoshift: Run, tmp_path: Path) -> None:
    folder = tmp_path / "llm"
    folder.mkdir()
    config = {"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 512, "num_hidden_layers": 3}
    config |= {"num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 64}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text("{}")
    header = json.dumps({"a": {"dtype": "F32", "shape": [10, 5], "data_offsets": [0, 200]}}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(200))
    told = json.loads(twoshift(f"plan memory --model {folder} --precision fp16 --json").out)
    assert (told["weights_bytes"], told["kv_bytes_per_token"]) == (100.0, 3 * 2 * 16 * 2 * 2)
    two = json.loads(twoshift(f"plan memory --model {folder} --device-memory 1MB --devices 4 --json").out)
    assert two["usable_bytes"] == pytest.approx(3.6e6)
    assert two["kv_bytes_per_token"] == 3 * 4 * 16 * 2 * 2  # each device has a KV head, though the model has two
    assert "cannot be used with --params" in twoshift(f"plan memory --model {folder} --params 7B").err


def test_rows_of_a_language_model_are_refused_elsewhere(twoshift: Run) -> None:
    assert "smollm is a language model" in twoshift("score smollm").err
