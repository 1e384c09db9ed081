"""What a model answers: an embedding, labels, or a score for a pair."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from twoshift.errors import Broken, InvalidInput, Shown, UnusableModel
from twoshift.runtime.encoder.fields import Fields, decoded

__all__ = [
    "ClassificationTask",
    "Dense",
    "EmbeddingTask",
    "LayerNorm",
    "Normalize",
    "RegressionTask",
    "RerankingTask",
    "Step",
    "Task",
    "is_classifier",
    "read_classifier",
    "read_embedding",
    "read_static_steps",
    "read_task",
    "static_folder",
    "truncate_dim",
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
class LayerNorm:
    """A norm with weights of its own."""

    folder: Path
    width: int


@dataclass(frozen=True, slots=True)
class Normalize:
    """Vectors of length 1."""


Step = Dense | LayerNorm | Normalize


@dataclass(frozen=True, slots=True)
class EmbeddingTask:
    """A vector a text; several poolings stand side by side in it."""

    poolings: tuple[str, ...]
    steps: tuple[Step, ...] = ()  # after the pooling, in this order
    truncate_dim: int | None = None  # how many of the numbers are kept, at the end
    include_prompt: bool = True  # whether a prompt's tokens are pooled, too
    pooling_folder: Path | None = field(default=None, compare=False)  # where the poolings are named


@dataclass(frozen=True, slots=True)
class ClassificationTask:
    """A label a text or pair, and the score of every label."""

    labels: tuple[str, ...]
    multi_label: bool  # each label is its own question


@dataclass(frozen=True, slots=True)
class RerankingTask:
    """One score a pair of texts."""

    activation: str  # "sigmoid" unless the model says otherwise, as in sentence-transformers' CrossEncoder


@dataclass(frozen=True, slots=True)
class RegressionTask:
    """A number a text or pair."""


Task = EmbeddingTask | ClassificationTask | RerankingTask | RegressionTask


def read_task(folder: Path, config: Fields) -> Task:
    """What the folder's files say the model is for; without any, mean pooling, as sentence-transformers does."""
    embeds = (folder / "modules.json").is_file() and bool(_after_transformer(folder / "modules.json"))
    return read_classifier(folder, config) if is_classifier(config) and not embeds else read_embedding(folder)


def is_classifier(config: Fields) -> bool:
    """Whether a network with labels was saved."""
    return any(name.endswith("ForSequenceClassification") for name in config.texts("architectures"))


def read_embedding(folder: Path) -> EmbeddingTask:
    """What modules.json says is done with the hidden states; where there is none, their mean."""
    modules = folder / "modules.json"
    return _embedding(folder, _after_transformer(modules) if modules.is_file() else ())


def truncate_dim(folder: Path) -> int | None:
    """How many numbers of a vector are kept, where the folder says so, as after Matryoshka training."""
    config = Fields.read_if_there(folder / "config_sentence_transformers.json")
    return config.count("truncate_dim") if "truncate_dim" in config else None


def read_classifier(folder: Path, config: Fields) -> ClassificationTask | RerankingTask | RegressionTask:
    """The labels that config.json names; one alone is a pair's score, or a regression's."""
    names = {key: name for key, name in config.inner("id2label").items() if isinstance(name, str)}
    count = len(names) if names else config.count("num_labels", 2, most=_MOST_LABELS)
    if count > _MOST_LABELS:
        raise InvalidInput(f"{config.path}: id2label", f"{count:,} labels", f"at most {_MOST_LABELS:,} labels")
    labels = tuple(names.get(str(number), f"LABEL_{number}") for number in range(count))
    if len(labels) == 1:
        regression = config.text("problem_type") == "regression" and not _is_cross_encoder(folder, config)
        return RegressionTask() if regression else RerankingTask(_score_activation(folder, config))
    return ClassificationTask(labels, config.text("problem_type") == "multi_label_classification")


def _is_cross_encoder(folder: Path, config: Fields) -> bool:
    own = Fields.read_if_there(folder / "config_sentence_transformers.json")
    marks = "sentence_transformers" in config or "sbert_ce_default_activation_function" in config
    return marks or own.text("model_type") == "CrossEncoder"


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
        raise Broken(f"{path} does not contain a list of modules; replace it with an intact copy of the file")
    found = []
    for each in listed:
        module = Fields(path, each)
        kind, where = module.text("type").rpartition(".")[2], module.text("path")
        if Path(where).is_absolute() or ".." in Path(where).parts or "\0" in where:
            raise InvalidInput(f"{path}: path", where, "a folder inside the model folder")
        if not module.text("type").startswith("sentence_transformers."):
            raise InvalidInput(f"{path}: type", module.text("type"), "a module that sentence-transformers provides")
        found.append((kind, path.parent / where))
    return tuple(found)


def _after_transformer(path: Path) -> tuple[tuple[str, Path], ...]:
    """The modules after the network, which lies in the folder itself; raises UnusableModel."""
    found = _modules(path)
    if not found or found[0] != ("Transformer", path.parent):
        first = f"{found[0][0]} in {found[0][1]}" if found else "nothing"
        told = f"lists {first} as the first module in modules.json"
        accepted = "expected a Transformer module in the model folder itself, not in a subfolder"
        raise UnusableModel("model", str(path.parent), f"{told}; {accepted}")
    return found[1:]


def static_folder(folder: Path) -> Path | None:
    """Where the table of a StaticEmbedding lies; None where the folder begins with another module."""
    modules = folder / "modules.json"
    first = _modules(modules)[:1] if modules.is_file() else ()
    return first[0][1] if first and first[0][0] == "StaticEmbedding" else None


def read_static_steps(folder: Path) -> tuple[Step, ...]:
    """The steps after a StaticEmbedding; raises UnusableModel for one that does not run here."""
    return _steps(folder, _modules(folder / "modules.json")[1:])


def _embedding(folder: Path, modules: tuple[tuple[str, Path], ...]) -> EmbeddingTask:
    if not modules:  # as sentence-transformers does with a bare folder
        return EmbeddingTask(("mean",), truncate_dim=truncate_dim(folder))
    if modules[0][0] != "Pooling":
        raise _unknown_modules(folder, modules)
    where = modules[0][1]
    pooling = Fields.read(where / "config.json")
    return EmbeddingTask(
        poolings=_poolings(pooling),
        steps=_steps(folder, modules[1:]),
        truncate_dim=truncate_dim(folder),
        include_prompt=pooling.flag("include_prompt", True),
        pooling_folder=where,
    )


def _steps(folder: Path, modules: tuple[tuple[str, Path], ...]) -> tuple[Step, ...]:
    if not {kind for kind, _ in modules} <= {*_STEPS, "Dropout"}:
        raise _unknown_modules(folder, modules)
    return tuple(_STEPS[kind](inside) for kind, inside in modules if kind != "Dropout")


def _unknown_modules(folder: Path, modules: tuple[tuple[str, Path], ...]) -> UnusableModel:
    told = f"has the modules {', '.join(kind for kind, _ in modules)} after its first module"
    return UnusableModel("model", str(folder), f"{told}; only Pooling and then {', '.join(_STEPS)} are supported")


def _poolings(config: Fields) -> tuple[str, ...]:
    named = dict(config.items()).get("pooling_mode")
    if named is None:
        named = [name for key, name in _OLD_POOLINGS.items() if config.flag(key)] or ["mean"]
    poolings = (named,) if isinstance(named, str) else tuple(named) if isinstance(named, list) else ()
    if not poolings or not all(each in POOLINGS for each in poolings):
        raise InvalidInput(f"{config.path}: pooling_mode", named, f"one or several of {', '.join(POOLINGS)}")
    return poolings


def _normalize(folder: Path) -> Normalize:
    _check_names(Fields.read_if_there(folder / "config.json"))
    return Normalize()


def _layer_norm(folder: Path) -> LayerNorm:
    return LayerNorm(folder, Fields.read(folder / "config.json").count("dimension"))


def _check_names(config: Fields) -> None:
    for key, usual in (("module_input_name", "sentence_embedding"), ("module_output_name", "sentence_embedding")):
        if config.text(key, usual) != usual:
            raise InvalidInput(f"{config.path}: {key}", config.text(key), usual)


def _dense(folder: Path) -> Dense:
    config = Fields.read(folder / "config.json")
    _check_names(config)
    if config.flag("use_residual"):
        raise InvalidInput(f"{config.path}: use_residual", Shown("true"), "false")
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
        raise InvalidInput(f"{path}: {key}", dotted, f"one of these classes of torch.nn: {', '.join(_ACTIVATIONS)}")
    return known


_STEPS: dict[str, Callable[[Path], Step]] = {"Dense": _dense, "LayerNorm": _layer_norm, "Normalize": _normalize}
