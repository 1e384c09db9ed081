"""A language model on a device, past the gate that its settings put before it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from twoshift.config import home
from twoshift.errors import Inapplicable, InvalidInput
from twoshift.generation import GenerationRequest, Message
from twoshift.llm_ports import LlmRuntime, QualityReport
from twoshift.policy.answer_quality import exact_match, rouge_l
from twoshift.runtime.encoder.sample import varied_texts
from twoshift.runtime.llm import LlmOptions, llm_folder
from twoshift.runtime.llm.folder import LlmFolder
from twoshift.runtime.llm.quality import Evaluation, QualityGate, check_agreement, check_evaluation
from twoshift.runtime.llm.remote import is_address
from twoshift.runtime.llm.vllm_runtime import VllmRuntime, load_vllm
from twoshift.runtime.python_source import call_user, load_function
from twoshift.wiring.blob_stores import blobs_for
from twoshift.wiring.model_loading import load_llm, named
from twoshift.wiring.registered_models import local_model

if TYPE_CHECKING:
    from twoshift.batch.prompting import Prompting

__all__ = ["GateSettings", "built_in_requests", "gate_of", "load_gated"]

_METRICS = {"exact": exact_match, "rouge": rouge_l}
_LEAST_TEXT = 20  # characters of a built-in prompt: a sign alone says little about a model


class GateSettings(Protocol):
    """Of a job, or of a model that is served."""

    @property
    def eval_file(self) -> str | None: ...
    @property
    def metric(self) -> str: ...
    @property
    def at_least(self) -> float | None: ...
    @property
    def reference(self) -> str | None: ...


def gate_of(
    settings: GateSettings, sample: Callable[[], Sequence[GenerationRequest]], prompting: Prompting | None = None
) -> QualityGate:
    """What its settings ask of the model; raises InvalidInput where the evaluation set cannot be used."""
    evaluation = None
    if settings.eval_file is not None:
        from twoshift.batch.evaluation import evaluation_requests, read_evaluation  # pyarrow: an extra

        rows, digest = read_evaluation(settings.eval_file, blobs_for)
        requests = evaluation_requests(rows, prompting)
        score, source = _score(settings.metric)
        mark = hashlib.sha256(repr((digest, settings.metric, source, requests[0].params)).encode()).hexdigest()
        name = f"{settings.metric} on {settings.eval_file}"
        evaluation = Evaluation(name, requests, [answer for _, answer in rows], score, mark)
    return QualityGate(sample, evaluation, settings.at_least, settings.reference)


def _score(metric: str) -> tuple[Callable[[str, str], float], str]:
    """The function of that name, and a checksum of its source where it is the user's."""
    if metric in _METRICS:
        return _METRICS[metric], ""
    if ".py:" not in metric:
        raise InvalidInput("metric", metric, f"{', '.join(_METRICS)}, or file.py:function")
    function, checksum = load_function(metric, "metric")

    def score(expected: str, text: str) -> float:
        found = call_user(metric, "score an answer", function, expected, text)
        if not isinstance(found, int | float):
            raise InvalidInput("metric", metric, f"a function that returns a number; this function returned {found!r}")
        return float(found)

    return score, checksum


def built_in_requests() -> list[GenerationRequest]:
    """Prompts of many kinds, for a model that nobody has asked anything yet."""
    return [GenerationRequest((Message("user", text),)) for text in varied_texts() if len(text) >= _LEAST_TEXT]


def load_gated(
    model: str, options: LlmOptions, gate: QualityGate, registry: str | None = None
) -> tuple[LlmRuntime, QualityReport | None]:
    """The model, and what it was measured by; raises InvalidInput where it is below the bar, or cannot be used."""
    if gate.evaluation is not None:
        runtime = load_llm(model, options, registry)
        try:
            return runtime, check_evaluation(runtime, gate.evaluation, gate.at_least or 0.0, home())
        except BaseException:
            runtime.close()
            raise
    if not gate.wants_agreement(options):
        return load_llm(model, options, registry), None
    if is_address(model):
        raise Inapplicable("at_least", gate.at_least, f"without --eval, because {model} runs on another server")
    local = local_model(model, registry)
    folder = llm_folder(local.word)
    full = folder if gate.reference is None else llm_folder(local_model(gate.reference, registry).word)
    for name, each in (("model", folder), ("reference", full)):
        if each.quantisation is not None and (name == "reference" or full is folder):
            accepted = f"--eval, or --reference with a model in full precision, because {each.path} is quantised"
            raise InvalidInput("reference", gate.reference, accepted)

    def loaded(one: LlmFolder, how: LlmOptions) -> VllmRuntime:
        return named(load_vllm(one, local.name, how), local)

    return check_agreement(loaded, (folder, full), options, gate, home())
