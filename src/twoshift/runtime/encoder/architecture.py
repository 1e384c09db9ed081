"""config.json -> which network this is, as frozen values."""

from __future__ import annotations

import dataclasses
import enum
from dataclasses import dataclass
from pathlib import Path

from twoshift.errors import InvalidInput, UnusableModel
from twoshift.runtime.encoder.fields import Fields

__all__ = [
    "Architecture",
    "Biases",
    "Family",
    "Rotary",
    "exported_architecture",
    "read_architecture",
    "static_architecture",
]

_ACTIVATIONS = {"gelu": "gelu", "gelu_python": "gelu", "relu": "relu", "gelu_new": "gelu_tanh"}
_ACTIVATIONS["gelu_pytorch_tanh"] = "gelu_tanh"
_MOST_LAYERS = 1000


class Family(enum.StrEnum):
    """Networks whose graph is written here; OTHER goes through transformers."""

    BERT = "bert"
    ROBERTA = "roberta"  # XLM-RoBERTa and CamemBERT are the same network
    MPNET = "mpnet"
    MODERNBERT = "modernbert"
    OTHER = "other"


_FAMILIES = {
    "bert": Family.BERT,
    "roberta": Family.ROBERTA,
    "xlm-roberta": Family.ROBERTA,
    "camembert": Family.ROBERTA,
    "mpnet": Family.MPNET,
    "modernbert": Family.MODERNBERT,
}


@dataclass(frozen=True, slots=True)
class Rotary:
    """ModernBERT's positions: which layers see only a window, and the base of each kind's angles."""

    local_layers: tuple[bool, ...]
    window: int  # tokens a local layer sees on each side
    global_theta: float
    local_theta: float


@dataclass(frozen=True, slots=True)
class Biases:
    """Which parts of a network have biases; BERT's kin have them everywhere, ModernBERT where its config says so."""

    attention: bool = True
    feed_forward: bool = True
    norm: bool = True
    head: bool = True


@dataclass(frozen=True, slots=True)
class Architecture:
    """The sizes of a network, as config.json gives them."""

    family: Family
    model_type: str
    classes: tuple[str, ...]  # `architectures`: what was saved
    hidden: int
    layers: int
    heads: int
    inner: int
    vocabulary: int
    positions: int  # rows of the position table; for ModernBERT the longest it was made for
    types: int  # segment embeddings; 0 where there are none
    norm_eps: float
    activation: str  # "gelu", "gelu_tanh" or "relu"
    pad_id: int
    relative_buckets: int = 0
    rotary: Rotary | None = None
    classifier_pooling: str = "cls"  # ModernBERT's classifier may look at the mean instead
    biases: Biases = Biases()
    spare_vectors: int = 0  # behind those of the vocabulary

    @property
    def first_position(self) -> int:
        """The position of the first token: RoBERTa and MPNet count from after the padding's."""
        return self.pad_id + 1 if self.family in (Family.ROBERTA, Family.MPNET) else 0

    @property
    def max_tokens(self) -> int:
        """The longest row that has a position for every token."""
        return self.positions - self.first_position


def read_architecture(config: Fields) -> Architecture:
    """What config.json says; raises InvalidInput where it asks for code from the folder or makes no sense."""
    if "auto_map" in config:
        told = "needs Python code from the model folder (auto_map in config.json), which Twoshift never runs"
        todo = "export the model to ONNX, or wrap the model in a Python class: file.py:Class"
        raise UnusableModel("model", str(config.path.parent), f"{told}; {todo}")
    model_type = config.text("model_type")
    if not model_type:
        raise InvalidInput(f"{config.path}: model_type", None, "the kind of network, such as 'bert'")
    family = _FAMILIES.get(model_type, Family.OTHER)
    if family is Family.OTHER or _is_unusual(config):
        return _generic(config, model_type)
    return _modernbert(config) if family is Family.MODERNBERT else _bert_like(config, family, model_type)


def exported_architecture(config: Fields, pad_id: int) -> Architecture:
    """What matters of a network that comes as a graph: its family for the positions, and its limits.

    Nothing is refused: the graph holds the network, so no code is run whatever the config asks for.
    """
    model_type = config.text("model_type", "unknown")
    family = _FAMILIES.get(model_type, Family.OTHER)
    pad_id = config.count("pad_token_id", pad_id, 0)
    return dataclasses.replace(_generic(config, model_type), family=family, pad_id=pad_id)


def static_architecture(vocabulary: int, width: int) -> Architecture:
    """A table of vectors, and one behind them that stands for no token at all."""
    made = _generic(Fields(Path(), {"hidden_size": width, "vocab_size": vocabulary}), "static")
    return dataclasses.replace(made, pad_id=vocabulary, spare_vectors=1)


def _is_unusual(config: Fields) -> bool:
    """Whether a known family is used in a way that the graphs here do not write."""
    activation = config.text("hidden_activation" if "hidden_activation" in config else "hidden_act", "gelu")
    scaled = any(rope.text("rope_type", "default") != "default" for rope in _ropes(config))
    return (
        activation not in _ACTIVATIONS
        or config.text("position_embedding_type", "absolute") != "absolute"
        or config.text("classifier_activation", "gelu") != "gelu"
        or config.flag("is_decoder")
        or scaled
    )


def _ropes(config: Fields) -> tuple[Fields, Fields]:
    ropes = config.inner("rope_parameters")
    return ropes.inner("full_attention"), ropes.inner("sliding_attention")


def _bert_like(config: Fields, family: Family, model_type: str) -> Architecture:
    hidden, heads = _hidden_and_heads(config)
    return Architecture(
        family=family,
        model_type=model_type,
        classes=config.texts("architectures"),
        hidden=hidden,
        layers=config.count("num_hidden_layers", 12, most=_MOST_LAYERS),
        heads=heads,
        inner=config.count("intermediate_size", 3072),
        vocabulary=config.count("vocab_size"),
        positions=config.count("max_position_embeddings", 512, least=8),
        types=0 if family is Family.MPNET else config.count("type_vocab_size", 2),
        norm_eps=config.number("layer_norm_eps", 1e-12),
        activation=_ACTIVATIONS[config.text("hidden_act", "gelu")],
        # MPNet's code has the 1 built in, whatever its config says
        pad_id=1 if family is Family.MPNET else config.count("pad_token_id", int(family is Family.ROBERTA), 0),
        relative_buckets=config.count("relative_attention_num_buckets", 32, 32) if family is Family.MPNET else 0,
    )


def _modernbert(config: Fields) -> Architecture:
    hidden, heads = _hidden_and_heads(config)
    layers = config.count("num_hidden_layers", 22, most=_MOST_LAYERS)
    every = config.count("global_attn_every_n_layers", 3)
    kinds = config.texts("layer_types") or tuple(
        "sliding_attention" if i % every else "full_attention" for i in range(layers)
    )
    if len(kinds) != layers or not set(kinds) <= {"sliding_attention", "full_attention"}:
        accepted = f"a list of {layers} values, one for each layer: sliding_attention or full_attention"
        raise InvalidInput(f"{config.path}: layer_types", kinds, accepted)
    full, sliding = _ropes(config)
    rotary = Rotary(
        local_layers=tuple(kind == "sliding_attention" for kind in kinds),
        window=config.count("local_attention", 128) // 2,
        global_theta=full.number("rope_theta", config.number("global_rope_theta", 160_000.0)),
        local_theta=sliding.number("rope_theta", config.number("local_rope_theta", 10_000.0)),
    )
    return Architecture(
        family=Family.MODERNBERT,
        model_type="modernbert",
        classes=config.texts("architectures"),
        hidden=hidden,
        layers=layers,
        heads=heads,
        inner=config.count("intermediate_size", 1152),
        vocabulary=config.count("vocab_size"),
        positions=config.count("max_position_embeddings", 8192, least=8),
        types=0,
        norm_eps=config.number("norm_eps", 1e-5),
        activation=_ACTIVATIONS[config.text("hidden_activation", "gelu")],
        pad_id=config.count("pad_token_id", 50283, 0),
        rotary=rotary,
        classifier_pooling="mean" if config.text("classifier_pooling", "cls") == "mean" else "cls",
        biases=Biases(*(config.flag(f"{part}_bias") for part in ("attention", "mlp", "norm", "classifier"))),
    )


def _generic(config: Fields, model_type: str) -> Architecture:
    """A network that only transformers knows: what is common to all, 0 where the config does not say."""
    return Architecture(
        family=Family.OTHER,
        model_type=model_type,
        classes=config.texts("architectures"),
        hidden=config.count("hidden_size", config.count("dim", 0, 0), 0),
        layers=config.count("num_hidden_layers", 0, 0, _MOST_LAYERS),
        heads=config.count("num_attention_heads", 0, 0),
        inner=0,
        vocabulary=config.count("vocab_size", 0, 0),
        positions=config.count("max_position_embeddings", 512, least=8),
        types=0,
        norm_eps=1e-12,
        activation="",
        pad_id=config.count("pad_token_id", 0, 0),
    )


def _hidden_and_heads(config: Fields) -> tuple[int, int]:
    hidden, heads = config.count("hidden_size"), config.count("num_attention_heads")
    if hidden % heads:
        raise InvalidInput(f"{config.path}: num_attention_heads", heads, f"a divisor of hidden_size, which is {hidden}")
    return hidden, heads
