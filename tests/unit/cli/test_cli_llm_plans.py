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
    one = json.loads(twoshift("plan tokens --profile smollm --sequences 1 --price 3.6 --json").out)
    many = json.loads(twoshift("plan tokens --profile smollm --sequences 20 --price 3.6 --json").out)
    assert one["usd_per_million_tokens"] == pytest.approx(1e6 * 0.021 * 3.6 / 3600)
    assert many["usd_per_million_tokens"] == pytest.approx(1e6 * 0.04 / 20 * 3.6 / 3600)


def test_tokens_of_a_profile_are_told_with_what_was_assumed(twoshift: Run) -> None:
    told = twoshift("plan tokens --profile smollm --price 3.6").out
    assert "smollm: 16 sequences decoded at once (--sequences): 444 output tokens per second" in " ".join(told.split())
    assert "$ per M output tokens" in told


def test_replicas_of_a_profile_hold_as_many_streams_as_keep_the_objective(twoshift: Run) -> None:
    asked = "plan replicas --profile smollm --rate 10 --ttft-ms 500 --tpot-ms 50.1 --output-tokens 60 --json"
    assert json.loads(twoshift(asked).out)["replicas_average"] == 1  # 600 tokens/s, and 30 streams in 50 ms are as many
    assert json.loads(twoshift(asked.replace("--rate 10", "--rate 11")).out)["replicas_average"] == 2


def test_neither_or_both_is_refused(twoshift: Run) -> None:
    assert "either --tokens-per-s" in twoshift("plan tokens --price 1").err
    assert "either --tokens-per-s" in twoshift("plan tokens --price 1 --tokens-per-s 5 --profile smollm").err


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
    assert "either a model" in twoshift(f"plan memory --model {folder} --params 7B").err


def test_rows_of_a_language_model_are_refused_elsewhere(twoshift: Run) -> None:
    assert "this is a language model" in twoshift("score smollm").err
