"""What a model answers: an embedding, labels, or a score for a pair."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from twoshift.errors import Broken, InvalidInput
from twoshift.runtime.encoder.fields import Fields, decoded

__all__ = [
    "Classification",
    "Dense",
    "Embedding",
    "Reranking",
    "Task",
    "default_prompt",
    "is_classifier",
    "read_classifier",
    "read_embedding",
    "read_task",
]

POOLINGS = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
_OLD_POOLINGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_MOST_LABELS = 100_000
_ACTIVATIONS = {"Tanh": "tanh", "Identity": "identity", "ReLU": "relu", "GELU": "gelu", "Sigmoid": "sigmoid"}


@dataclass(frozen=True, slots=True)
class Dense:
    """A layer after the pooling."""

    folder: Path
    inputs: int
    outputs: int
    bias: bool
    activation: str


@dataclass(frozen=True, slots=True)
class Embedding:
    """A vector a text; several poolings stand side by side in it."""

    poolings: tuple[str, ...]
    dense: tuple[Dense, ...]
    normalize: bool
    prompt: str  # put before every text
    pooling_folder: Path | None = field(default=None, compare=False)  # where the poolings are named


@dataclass(frozen=True, slots=True)
class Classification:
    """A label a text or pair, and the score of every label."""

    labels: tuple[str, ...]
    multi_label: bool  # each label is its own question


@dataclass(frozen=True, slots=True)
class Reranking:
    """One score a pair of texts."""

    activation: str  # "sigmoid" unless the model says otherwise, as in sentence-transformers' CrossEncoder


Task = Embedding | Classification | Reranking


def read_task(folder: Path, config: Fields) -> Task:
    """What the folder's files say the model is for; without any, mean pooling, as sentence-transformers does."""
    return read_classifier(folder, config) if is_classifier(config) else read_embedding(folder)


def is_classifier(config: Fields) -> bool:
    """Whether a network with labels was saved."""
    return any(name.endswith("ForSequenceClassification") for name in config.texts("architectures"))


def read_embedding(folder: Path) -> Embedding:
    """What modules.json says is done with the hidden states; where there is none, their mean."""
    modules = folder / "modules.json"
    return _embedding(folder, _modules(modules) if modules.is_file() else ())


def default_prompt(folder: Path) -> str:
    """What the folder wants put before every text; mostly nothing."""
    prompts = Fields.read_if_there(folder / "config_sentence_transformers.json")
    return prompts.inner("prompts").text(prompts.text("default_prompt_name"))


def read_classifier(folder: Path, config: Fields) -> Classification | Reranking:
    """The labels that config.json names; one label is the score of a pair."""
    names = {key: name for key, name in config.inner("id2label").items() if isinstance(name, str)}
    count = len(names) if names else config.count("num_labels", 2, most=_MOST_LABELS)
    if count > _MOST_LABELS:
        raise InvalidInput(f"{config.path}: id2label", f"{count:,} labels", f"at most {_MOST_LABELS:,}")
    labels = tuple(names.get(str(number), f"LABEL_{number}") for number in range(count))
    if len(labels) == 1:
        return Reranking(_score_activation(folder, config))
    return Classification(labels, config.text("problem_type") == "multi_label_classification")


def _score_activation(folder: Path, config: Fields) -> str:
    own = Fields.read_if_there(folder / "config_sentence_transformers.json")
    named = (
        own.text("activation_fn")
        or config.inner("sentence_transformers").text("activation_fn")
        or config.text("sbert_ce_default_activation_function")
    )
    return _activation(named, config.path, "activation_fn") if named else "sigmoid"


def _modules(path: Path) -> tuple[tuple[str, Path], ...]:
    """The kinds of the modules and their folders, in order; raises InvalidInput for one that is not known."""
    listed = decoded(path)
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        raise Broken(f"{path} is damaged; expected a list of modules")
    found = []
    for each in listed:
        module = Fields(path, each)
        kind, where = module.text("type").rpartition(".")[2], module.text("path")
        if Path(where).is_absolute() or ".." in Path(where).parts or "\0" in where:
            raise InvalidInput(f"{path}: path", where, "a folder inside the model's")
        if not module.text("type").startswith("sentence_transformers."):
            raise InvalidInput(f"{path}: type", module.text("type"), "a module of sentence-transformers' own")
        found.append((kind, path.parent / where))
    if not found or found[0] != ("Transformer", path.parent):
        raise InvalidInput(str(path), [kind for kind, _ in found], "a Transformer in the folder itself, then the rest")
    return tuple(found[1:])


def _embedding(folder: Path, modules: tuple[tuple[str, Path], ...]) -> Embedding:
    prompt = default_prompt(folder)
    poolings, pooling_folder, dense, normalize = ("mean",), None, [], False
    for kind, where in modules:
        if kind == "Pooling":
            poolings, pooling_folder = _poolings(Fields.read(where / "config.json"), bool(prompt)), where
        elif kind == "Dense" and not normalize:
            dense.append(_dense(Fields.read(where / "config.json"), where))
        elif kind == "Normalize":
            normalize = True
        else:
            accepted = "Pooling, Dense and Normalize after the Transformer, in that order"
            raise InvalidInput(str(folder / "modules.json"), kind, accepted)
    return Embedding(poolings, tuple(dense), normalize, prompt, pooling_folder)


def _poolings(config: Fields, prompted: bool) -> tuple[str, ...]:
    named = dict(config.items()).get("pooling_mode")
    if named is None:
        named = [name for key, name in _OLD_POOLINGS.items() if config.flag(key)] or ["mean"]
    poolings = (named,) if isinstance(named, str) else tuple(named) if isinstance(named, list) else ()
    if not poolings or not all(each in POOLINGS for each in poolings):
        raise InvalidInput(f"{config.path}: pooling_mode", named, ", ".join(POOLINGS))
    if prompted and not config.flag("include_prompt", True):
        raise InvalidInput(f"{config.path}: include_prompt", False, "true, where the model has a default prompt")
    return poolings


def _dense(config: Fields, folder: Path) -> Dense:
    for key, usual in (("module_input_name", "sentence_embedding"), ("module_output_name", "sentence_embedding")):
        if config.text(key, usual) != usual:
            raise InvalidInput(f"{config.path}: {key}", config.text(key), usual)
    if config.flag("use_residual"):
        raise InvalidInput(f"{config.path}: use_residual", True, "false")
    return Dense(
        folder=folder,
        inputs=config.count("in_features"),
        outputs=config.count("out_features"),
        bias=config.flag("bias", True),
        activation=_activation(config.text("activation_function", "torch.nn.Tanh"), config.path, "activation_function"),
    )


def _activation(dotted: str, path: Path, key: str) -> str:
    known = _ACTIVATIONS.get(dotted.rpartition(".")[2]) if dotted.startswith("torch.nn.") else None
    if known is None:
        raise InvalidInput(f"{path}: {key}", dotted, f"one of torch.nn's {', '.join(_ACTIVATIONS)}")
    return known
