"""How a model is loaded, wherever it is: settings that commands, jobs and servers share."""

from __future__ import annotations

from typing import Annotated

from twoshift.declare import setting
from twoshift.errors import Inapplicable, InvalidInput
from twoshift.values import FLAG, choice, duration, share, text, whole

__all__ = [
    "AtLeast",
    "BatchInvariant",
    "Device",
    "EvalFile",
    "LoadTimeout",
    "Metric",
    "Precision",
    "Reference",
    "RegistryLocation",
    "TensorParallel",
    "Threads",
    "TooLong",
    "TrustPickle",
    "check_gate",
    "check_no_llm",
]

Device = Annotated[str, setting("Device to run the model on: auto, cpu, cuda or cuda:N.", text("NAME"))]
Precision = Annotated[
    str | None,
    setting(
        "Precision to run the model in: fp32, bf16, int8, or fp8 (language models on a GPU).",
        text("NAME"),
        shown="the model's own",
    ),
]
Threads = Annotated[
    int | None,
    setting(
        "Number of CPU threads per forward call.",
        whole(most=4096),
        shown="all usable cores, or fewer if that is faster",
    ),
]
TrustPickle = Annotated[
    bool,
    setting(
        "Allow pickle and joblib model files. Such files can run any code: load only files that you trust.",
        FLAG,
        "--trust-pickle",
    ),
]
RegistryLocation = Annotated[
    str | None,
    setting(
        "Registry with the model's versions: a folder, or an s3://, gs:// or az:// prefix.",
        text("LOCATION"),
        "--registry",
        shown="TWOSHIFT_REGISTRY, or a folder in TWOSHIFT_HOME",
    ),
]
LoadTimeout = Annotated[
    float | None,
    setting("Fail if the model does not load within this time.", duration(), "--load-timeout", shown="10m"),
]
TensorParallel = Annotated[int, setting("Language model: number of GPUs that share the model.", whole(most=64))]
BatchInvariant = Annotated[
    bool,
    setting(
        "Language model: use vLLM's batch-invariant mode, in which an answer depends less on the other rows of its "
        "batch.",
        FLAG,
        "--batch-invariant",
        more="This mode is slower and needs a GPU. See [parity](llms.md#parity).",
    ),
]
EvalFile = Annotated[
    str | None,
    setting(
        "Language model: evaluation set that the model must pass before Twoshift uses the model.",
        text("FILE"),
        "--eval",
        more="JSON lines or Parquet with the columns `prompt` and `answer`. See [quality](llms.md#quality).",
    ),
]
Metric = Annotated[
    str, setting("How --eval scores answers: exact, rouge, or your own function, as file.py:function.", text("NAME"))
]
AtLeast = Annotated[
    float | None,
    setting(
        "Language model: minimum mean score on the evaluation set of --eval. Without --eval: minimum agreement with "
        "the full-precision model, as a share of the generated tokens.",
        share(),
        shown="0.95 without --eval",
    ),
]
Reference = Annotated[
    str | None,
    setting(
        "Folder of the full-precision model that a quantised language model is compared with.",
        text("FOLDER"),
        shown="the same model, not quantised",
    ),
]
TooLong = Annotated[
    str,
    setting(
        "How to handle a text that is longer than the model's limit: cut it, report an error, or split it into pieces.",
        choice(("cut", "error", "split")),
        more="The report of a job counts the texts that were cut or split.",
    ),
]
_LLM_DEFAULTS = {
    "tensor_parallel": 1,
    "batch_invariant": False,
    "eval_file": None,
    "at_least": None,
    "reference": None,
}


def check_gate(eval_file: str | None, metric: str, at_least: float | None, reference: str | None) -> None:
    """Raises InvalidInput where what is asked of a model before it is used does not go together."""
    if eval_file is not None and at_least is None:
        raise InvalidInput("at_least", None, "a minimum mean score from 0 to 1, because --eval is set")
    if eval_file is not None and reference is not None:
        raise Inapplicable("reference", reference, "with --eval: use either --reference or --eval")
    if eval_file is None and metric != "exact":
        raise Inapplicable("metric", metric, "without --eval")


def check_no_llm(settings: object, model: str) -> None:
    """Raises InvalidInput where something is said that only language models have."""
    for name, default in _LLM_DEFAULTS.items():
        value = getattr(settings, name)
        if value != default:
            raise Inapplicable(name, value, f"because {model} is not a language model")
