"""The gate of language models: answers, agreement token by token, and what is below the bar."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_llm import FakeLlm, PipelinedLlm, words_after

from twoshift.errors import Broken, InvalidInput
from twoshift.generation import GenerationParams, GenerationRequest
from twoshift.llm_ports import Emitted, Prompt, Step
from twoshift.policy.answer_quality import exact_match
from twoshift.runtime.llm.answers import answers_of, token_agreement
from twoshift.runtime.llm.folder import LlmFolder
from twoshift.runtime.llm.options import LlmOptions
from twoshift.runtime.llm.quality import (
    AGREEMENT_BAR,
    Evaluation,
    QualityGate,
    check_agreement,
    check_evaluation,
)

FOLDER = LlmFolder(Path("model"), "sha256:1", 256, 1, 1, 1, 1)
TEXTS = ("hello", "a red fox", "an old road", "what?")


class Lossy(FakeLlm):
    """Says another token wherever the sum of all before it is divisible by `every`."""

    def __init__(self, every: int, precision: str = "fp8") -> None:
        super().__init__()
        self.every, self.info = every, replace(self.info, precision=precision)

    def _emit(self, key: int, each: Any) -> Emitted:
        known = (*each.prompt.token_ids, *each.prompt.begun, *each.out)
        emitted = super()._emit(key, each)
        if sum(known) % self.every:
            return emitted
        each.out[-1] = (each.out[-1] + 1) % 26
        return replace(emitted, token_ids=(each.out[-1],), text=self.text_of(each.out[-1:]))


def requests(texts: Sequence[str] = TEXTS, **params: Any) -> list[GenerationRequest]:
    return [GenerationRequest(text, GenerationParams(**{"max_tokens": 8, **params})) for text in texts]


@pytest.mark.parametrize("made", [FakeLlm, PipelinedLlm])
def test_answers_come_in_the_order_of_their_prompts(made: type[FakeLlm]) -> None:
    llm = made()
    prompts = llm.prepare(requests()).prompts
    found = answers_of(llm, prompts)
    assert [each.token_ids for each in found] == [tuple(words_after(each.token_ids, 8)) for each in prompts]
    assert found[0].text == llm.text_of(found[0].token_ids)
    assert not llm.inside


def test_a_sequence_that_fails_is_told_and_nothing_stays_inside() -> None:
    class Failing(FakeLlm):
        def step(self, prefill_tokens: int | None = None) -> Step:
            step = super().step(prefill_tokens)
            return replace(step, emitted=(*step.emitted, Emitted(1, "", (), error=Broken("no"))))

    llm = Failing()
    with pytest.raises(Broken, match="no"):
        answers_of(llm, llm.prepare(requests()).prompts)
    assert not llm.inside


def test_a_model_agrees_with_itself_and_each_token_is_judged_after_the_same_ones() -> None:
    llm = FakeLlm()
    prompts = llm.prepare(requests()).prompts
    answers = answers_of(llm, prompts)
    assert token_agreement(FakeLlm(), prompts, answers) == 1.0
    places = [
        (*prompt.token_ids, *answer.token_ids[:at])
        for prompt, answer in zip(prompts, answers, strict=True)
        for at in range(len(answer.token_ids))
    ]
    wrong = sum(sum(known) % 5 == 0 for known in places)
    assert wrong
    assert token_agreement(Lossy(5), prompts, answers) == pytest.approx(1 - wrong / len(places))
    assert token_agreement(FakeLlm(), (), ()) == 1.0


def evaluation(answers: Sequence[str], fingerprint: str = "one") -> Evaluation:
    return Evaluation("exact on e.jsonl", requests(), answers, exact_match, fingerprint)


def test_an_evaluation_is_the_mean_of_its_scores_and_measured_once(tmp_path: Path) -> None:
    llm = FakeLlm()
    right = [each.text for each in answers_of(llm, llm.prepare(requests()).prompts)]
    report = check_evaluation(llm, evaluation([*right[:3], "no"]), 0.7, tmp_path)
    assert (report.figure, report.rows, report.is_passed) == (0.75, 4, True)
    steps = len(llm.steps)
    assert check_evaluation(llm, evaluation([*right[:3], "no"]), 0.7, tmp_path) == report
    assert len(llm.steps) == steps
    with pytest.raises(InvalidInput, match=r"at most 0\.7500, or another model: in fp32, fake scores 0\.7500 \(exact"):
        check_evaluation(llm, evaluation([*right[:3], "no"]), 0.76, tmp_path)
    assert check_evaluation(llm, evaluation(right, "two"), 0.7, tmp_path).figure == 1.0


class Loads:
    def __init__(self, lossy: FakeLlm) -> None:
        self.lossy, self.asked, self.inside = lossy, list[str | None](), 0

    def __call__(self, _folder: LlmFolder, options: LlmOptions) -> FakeLlm:
        assert all(each.closed for each in self.made), "a device has room for one"
        self.asked.append(options.precision)
        self.made.append(self.lossy if options.precision == "fp32" else FakeLlm())
        return self.made[-1]

    made: list[FakeLlm]


def gated(loads: Loads, at_least: float | None, home: Path, precision: str = "fp32") -> Any:
    loads.made = []
    gate = QualityGate(lambda: requests(temperature=0.7), at_least=at_least)
    return check_agreement(loads, (FOLDER, FOLDER), LlmOptions("cpu", precision), gate, home)


def test_full_precision_is_loaded_first_let_go_and_not_again(tmp_path: Path) -> None:
    loads = Loads(Lossy(50))
    runtime, report = gated(loads, 0.5, tmp_path)
    assert loads.asked == ["bf16", "fp32"]
    assert runtime is loads.lossy
    assert not runtime.closed
    assert (report.measure, report.rows) == ("agreement with bf16", 4)
    assert 0.5 <= report.figure < 1.0
    runtime.closed = False
    again = Loads(Lossy(50))
    assert gated(again, 0.5, tmp_path)[1] == report
    assert again.asked == ["fp32"]


def test_below_the_bar_nothing_stays_loaded(tmp_path: Path) -> None:
    loads = Loads(Lossy(3))
    with pytest.raises(InvalidInput, match="agreement with bf16, 4 rows") as refused:
        gated(loads, 0.99, tmp_path)
    assert refused.value.field == "at_least"
    assert all(each.closed for each in loads.made)
    with pytest.raises(InvalidInput, match=f"at least {AGREEMENT_BAR} is required") as refused:
        gated(Loads(Lossy(3)), None, tmp_path)
    assert refused.value.field == "precision"


def test_a_lossy_precision_is_never_used_unmeasured() -> None:
    gate = QualityGate(list)
    assert gate.wants_agreement(LlmOptions(precision="fp8"))
    assert not gate.wants_agreement(LlmOptions(precision="bf16"))
    assert QualityGate(list, at_least=0.9).wants_agreement(LlmOptions(precision="bf16"))
    assert not QualityGate(list, evaluation([""])).wants_agreement(LlmOptions(precision="fp8"))


def test_without_rows_there_is_nothing_to_agree_on(tmp_path: Path) -> None:
    def load(*_: Any) -> FakeLlm:
        raise AssertionError("nothing is to be loaded")

    with pytest.raises(InvalidInput, match="no rows on which to compare answers"):
        check_agreement(load, (FOLDER, FOLDER), LlmOptions("cpu"), QualityGate(list, at_least=0.5), tmp_path)


def test_prompts_go_to_the_model_greedy_and_short(tmp_path: Path) -> None:
    loads = Loads(Lossy(50))
    gated(loads, 0.0, tmp_path)
    first: Prompt = loads.made[0].added[0][1]
    assert (first.params.temperature, first.max_tokens) == (0.0, 16)
