"""LoRA adapters of a tiny Llama in vLLM, loaded once: each answers as it does alone, whoever shares its steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lora_adapters import write_adapter
from real_smollm import MARKS
from tiny_llm import tiny_llama

from twoshift.errors import NotFound
from twoshift.generation import GenerationParams, GenerationRequest, Message
from twoshift.llm_ports import LlmRuntime

pytestmark = [*MARKS, pytest.mark.filterwarnings("ignore")]
TOKENS = 4  # of an answer
NAMES = ("", "sql", "support")  # the first is the base


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the base and its adapters."""
    made = tmp_path_factory.mktemp("adapters")
    base = tiny_llama(made / "tiny")
    for seed, (name, rank) in enumerate((("sql", 4), ("support", 9))):
        write_adapter(made / name, base, seed, rank)
    return made


@pytest.fixture(scope="module")
def runtime(folders: Path) -> Iterator[LlmRuntime]:
    from twoshift.runtime.llm import LlmOptions, load_llm

    adapters = {name: str(folders / name) for name in NAMES if name}
    # In fp32: in bf16 a batch of two is another sum than a batch of one
    options = LlmOptions("cpu", "fp32", context_tokens=512, kv_bytes=256 << 20, max_sequences=8, adapters=adapters)
    loaded = load_llm(str(folders / "tiny"), options)
    yield loaded
    loaded.close()


def answers(runtime: LlmRuntime, names: Sequence[str], text: str = "Write about the sea.") -> list[tuple[int, ...]]:
    """Tokens of each, all in the same steps."""
    params = GenerationParams(max_tokens=TOKENS, temperature=0.0)
    rows = [GenerationRequest((Message("user", text),), params, adapter=name) for name in names]
    for key, prompt in enumerate(runtime.prepare(rows).prompts):
        runtime.add(key, prompt, live=key % 2 == 0)
    found: list[tuple[int, ...]] = [()] * len(names)
    together = 0
    while (step := runtime.step()).tokens:
        together = max(together, len(step.tokens))
        for each in step.emitted:
            assert each.error is None
            found[each.key] += each.token_ids
        for key, token_ids in step.more:
            found[key] += tuple(token_ids)
    assert together == len(names)
    return found


def test_two_adapters_and_the_base_in_one_step_give_what_each_gives_alone(runtime: LlmRuntime) -> None:
    alone = {name: answers(runtime, [name])[0] for name in NAMES}
    assert len(set(alone.values())) == 3
    mixed = ["support", "", "sql", "", "support"]
    assert answers(runtime, mixed) == [alone[name] for name in mixed]


def test_the_base_answers_as_it_does_where_no_adapter_is_loaded(runtime: Any) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    row = GenerationRequest((Message("user", "Write about the sea."),))
    [prompt] = runtime.prepare([row]).prompts
    model: Any = AutoModelForCausalLM.from_pretrained(runtime.folder.path, dtype=torch.float32)
    given = torch.tensor([prompt.token_ids])
    made = model.generate(given, attention_mask=torch.ones_like(given), max_new_tokens=TOKENS, do_sample=False)
    assert answers(runtime, ["sql", ""])[1] == tuple(made[0, len(prompt.token_ids) :].tolist())


def test_an_adapter_is_the_sum_of_the_base_and_its_product(runtime: Any, folders: Path) -> None:
    import torch
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(runtime.folder.path, dtype=torch.float32)
    weights, state = load_file(folders / "sql/adapter_model.safetensors"), dict(model.named_parameters())
    with torch.no_grad():
        for name, down in weights.items():
            if "lora_A" in name:
                module = name.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
                state[f"{module}.weight"] += weights[name.replace("lora_A", "lora_B")] @ down
    [prompt] = runtime.prepare([GenerationRequest((Message("user", "Write about the sea."),))]).prompts
    given = torch.tensor([prompt.token_ids])
    made = model.generate(given, attention_mask=torch.ones_like(given), max_new_tokens=TOKENS, do_sample=False)
    assert answers(runtime, ["sql"])[0] == tuple(made[0, len(prompt.token_ids) :].tolist())


def test_no_adapter_reads_the_cache_of_another(runtime: LlmRuntime) -> None:
    params = GenerationParams(max_tokens=1, temperature=0.0)
    row = GenerationRequest("An old road leads to the sea, past a mill and a church. " * 4, params)

    def cached(name: str) -> int:
        [prompt] = runtime.prepare([replace(row, adapter=name)]).prompts
        runtime.add(0, prompt, live=True)
        return runtime.step().emitted[0].cached_tokens

    assert [cached(name) for name in NAMES] == [0, 0, 0]
    assert all(cached(name) > 0 for name in NAMES)


def test_its_adapters_are_told_with_their_checksums_and_no_other_is_taken(runtime: LlmRuntime, folders: Path) -> None:
    assert runtime.info.runtime == "vllm-lora"
    assert {name: each.path for name, each in runtime.info.adapters.items()} == {
        name: str(folders / name) for name in ("sql", "support")
    }
    assert len({each.checksum for each in runtime.info.adapters.values()}) == 2
    with pytest.raises(NotFound, match=r"one of \S+tiny, sql, support"):
        runtime.prepare([GenerationRequest("x", adapter="chess")])
