"""Settings of one model of a server."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from twoshift.declare import check, setting
from twoshift.declare import key as table_key  # a model has a setting of that name
from twoshift.errors import Inapplicable, InvalidInput
from twoshift.loading_settings import (
    AtLeast,
    BatchInvariant,
    Device,
    EvalFile,
    Metric,
    Precision,
    Reference,
    TensorParallel,
    Threads,
    TooLong,
    TrustPickle,
    check_gate,
    check_no_llm,
)
from twoshift.registry.names import parse_ref
from twoshift.serve.precomputed_settings import (
    WRITE_BACK_BYTES,
    KeyColumn,
    MaxAge,
    OnMiss,
    PrecomputedPlace,
    WriteBackFlag,
    WriteBackSize,
    check_precomputed,
)
from twoshift.serve.rollout_table import RolloutTable
from twoshift.serve.scale_settings import ScaleSettings
from twoshift.units import parse_duration
from twoshift.values import choice, each_named, factor, millis, share, span, text, usd, whole

__all__ = ["ModelSettings", "check_names", "name_of"]

_LONGEST_NAME = 100
_SLO_MS = 50.0
_DERIVED = "derived from the SLO"
_REPLICAS = whole(most=1024)
_MODEL = (
    "Model: minilm or smollm (built in), a model folder, a model file, file.py:Class, a model on another server "
    "(http://host/v1#name), or a registered model (NAME:3 or NAME@prod)."
)
_PARSER = "vLLM's parser for the tool calls of a language model: hermes, llama3_json and others."
_ADAPTERS = (
    "LoRA adapter of a language model, as NAME=FOLDER. Clients use NAME as the model name. Repeat the option for "
    "several adapters."
)
_ADAPTERS_MORE = 'In a configuration file: `{sql = "adapters/sql"}`. See [adapters](llm-serving.md#adapters).'
_SLOWDOWN = "Factor by which jobs may slow live requests down on average: 1.2 allows 20 % more time per request."


def _are_adapters(given: dict[str, str]) -> bool:
    return all(0 < len(name) <= _LONGEST_NAME and name.isprintable() and path for name, path in given.items())


_NAMED = each_named(
    "NAME=FOLDER", "names (printable, up to 100 characters), each with the folder of an adapter", _are_adapters
)


class ModelSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One model. The objective is all that must be said; the last group overrides what follows from it."""

    model: Annotated[str, setting(_MODEL, None, "MODEL", shown="the name of the table")]
    slo_ms: Annotated[
        float | None, setting("Latency objective (SLO) of a request, in milliseconds.", millis(), shown="50")
    ] = None
    ttft_ms: Annotated[
        float | None,
        setting("Language model: objective for the time to the first token, in milliseconds.", millis(), shown="2000"),
    ] = None
    tpot_ms: Annotated[
        float | None,
        setting(
            "Language model: objective for the time per token after the first, in milliseconds.", millis(), shown="100"
        ),
    ] = None
    replicas: Annotated[
        int, setting("Number of replica processes. Each replica gets a GPU or a share of the CPU cores.", _REPLICAS)
    ] = 1
    min_replicas: Annotated[
        int | None,
        setting(
            "With --max-replicas: minimum number of replicas. With 0, an idle model has no replicas.",
            whole(0, 1024),
            shown="1",
            more="See [scale to zero](autoscaling.md#scale-to-zero).",
        ),
    ] = None
    max_replicas: Annotated[int | None, setting("Maximum number of replicas; enables autoscaling.", _REPLICAS)] = None
    scale: Annotated[ScaleSettings, table_key("Settings of the autoscaler for this model.")] = ScaleSettings()
    rollout: Annotated[RolloutTable, table_key("Settings of rollouts: how the server tests a new version.")] = (
        RolloutTable()
    )
    device: Device = "auto"
    precision: Precision = None
    threads: Threads = None
    trust_pickle: TrustPickle = False
    too_long: TooLong = "cut"
    empty: Annotated[
        str,
        setting(
            "How to handle a blank text: answer (run the model on it), or error (return an error).",
            choice(("answer", "error")),
        ),
    ] = "answer"
    tensor_parallel: TensorParallel = 1
    batch_invariant: BatchInvariant = False
    eval_file: EvalFile = None
    metric: Metric = "exact"
    at_least: AtLeast = None
    reference: Reference = None
    tool_parser: Annotated[
        str | None,
        setting(_PARSER, text("NAME"), shown="no parser: the model calls tools only if the request forces a call"),
    ] = None
    adapters: Annotated[dict[str, str], setting(_ADAPTERS, _NAMED, "--adapter", more=_ADAPTERS_MORE)] = {}
    registry: Annotated[
        str | None,
        table_key(
            "Registry of this model: a folder, or an s3://, gs:// or az:// prefix.", shown="the server's registry"
        ),
    ] = None
    index: Annotated[
        str | None,
        setting(
            "Vector index for /v1/search: the output folder of `twoshift run --index`, or the folder of an index.",
            text("FOLDER"),
            more="When a new generation of the index is complete, the server switches to this generation. See "
            "[search](search.md).",
        ),
    ] = None
    precomputed: PrecomputedPlace = None
    key: KeyColumn = None
    max_age: MaxAge = None
    on_miss: OnMiss = "live"
    write_back: WriteBackFlag = False
    write_back_size: WriteBackSize = WRITE_BACK_BYTES
    load_timeout: Annotated[str, setting("Fail if a model does not load within this time.", span())] = "10m"
    price_usd_per_hour: Annotated[
        float | None, table_key("Price of one device in dollars per hour.", usd(zero=True), shown="the server's price")
    ] = None

    call_budget_ms: Annotated[
        float | None,
        setting(
            "Longest forward call that may contain batch rows, in milliseconds.",
            millis(),
            shown="long enough for 95 % of the best throughput, but at most half of the SLO",
        ),
    ] = None
    live_slowdown: Annotated[float | None, setting(_SLOWDOWN, factor(), shown="no limit")] = None
    min_share: Annotated[
        float,
        table_key(
            "Share of the device that is reserved for jobs that would otherwise miss their deadline.", share(most=0.5)
        ),
    ] = 0.0
    max_batch: Annotated[int | None, setting("Maximum number of rows per forward call.", whole(), shown=_DERIVED)] = (
        None
    )
    max_waiting: Annotated[
        int | None, setting("Maximum number of rows that may wait in the queue.", whole(), shown=_DERIVED)
    ] = None

    def __post_init__(self) -> None:
        check(self)
        least, most = max(self.replicas, self.min_replicas or 1), self.max_replicas
        _require(
            most is None or most >= least,
            "max_replicas",
            most,
            f"at least {least}, the value of replicas or min_replicas",
        )
        bounded = self.min_replicas is None or most is not None
        _refuse(not bounded, "min_replicas", self.min_replicas, "without max_replicas")
        check_gate(self.eval_file, self.metric, self.at_least, self.reference)
        check_precomputed(self)

    def check_rows(self) -> None:
        """Raises InvalidInput where something is said that only a language model has."""
        for name in ("ttft_ms", "tpot_ms"):
            why = f"because {self.model} is not a language model: use slo_ms"
            _refuse(getattr(self, name) is not None, name, getattr(self, name), why)
        why = f"because {self.model} is not a language model"
        _refuse(self.tool_parser is not None, "tool_parser", self.tool_parser, why)
        _refuse(bool(self.adapters), "adapters", ", ".join(self.adapters), why)
        check_no_llm(self, self.model)

    def check_sequences(self) -> None:
        """Raises InvalidInput where something is said that a language model has not."""
        why = "for a language model, whose latency depends on the length of the answer: use ttft_ms and tpot_ms"
        _refuse(self.slo_ms is not None, "slo_ms", self.slo_ms, why)
        why = f"because {self.model} is a language model, which returns no vectors"
        _refuse(self.index is not None, "index", self.index, why)
        why = f"because {self.model} is a language model"
        _refuse(self.precomputed is not None, "precomputed", self.precomputed, why)
        for name in ("call_budget_ms", "max_batch"):
            value = getattr(self, name)
            _refuse(value is not None, name, value, "for a language model: the value follows from tpot_ms")
        for name, usual in (("too_long", "cut"), ("empty", "answer")):
            value = getattr(self, name)
            _refuse(value != usual, name, value, why)

    @property
    def load_timeout_s(self) -> float:
        """Time limit for loading and warming up."""
        return parse_duration(self.load_timeout, "load_timeout")

    @property
    def slo_s(self) -> float:
        """Latency objective of a request."""
        return (_SLO_MS if self.slo_ms is None else self.slo_ms) / 1e3

    @property
    def objective_s(self) -> float | None:
        """That was asked for, until an answer or its first token comes; None: there is none."""
        asked_ms = self.ttft_ms if self.slo_ms is None else self.slo_ms
        return None if asked_ms is None else asked_ms / 1e3

    @property
    def ttft_s(self) -> float | None:
        """To a first token; None: what the device can keep."""
        return None if self.ttft_ms is None else self.ttft_ms / 1e3

    @property
    def tpot_s(self) -> float | None:
        """For each token after it; None: what the device can keep."""
        return None if self.tpot_ms is None else self.tpot_ms / 1e3

    @property
    def is_scaled(self) -> bool:
        """Whether the number of replicas is scaled automatically."""
        return self.max_replicas is not None and (self.min_replicas is not None or self.max_replicas > self.replicas)

    def job_replicas(self, engine: str) -> int:
        """That a job may ask for: those that are always there, and what batch_replicas allows beyond them."""
        least = (self.min_replicas or 1) if self.is_scaled else self.first_replicas
        more = self.scale.batch_replicas if engine == "local" else 0  # Ray Serve adds none for jobs
        return min(least + more, self.max_replicas or least)

    @property
    def first_replicas(self) -> int:
        """Number of replicas at the start."""
        return max(self.replicas, self.min_replicas or 1)


def check_names(models: Mapping[str, ModelSettings]) -> None:
    """Raises InvalidInput where an adapter has the name of a model, or of another model's adapter."""
    taken = {*models}
    for model, each in models.items():
        for name in each.adapters:
            accepted = "a name that no model and no other adapter has"
            _require(name not in taken, f"models.{model}.adapters", name, accepted)
            taken.add(name)


def name_of(model: str) -> str:
    """Default name of a model for clients: its class, or the name of its file or folder."""
    if (ref := parse_ref(model)) is not None and ref.is_explicit:
        return ref.name
    last = model.rpartition(":")[2] if ".py:" in model else Path(model).expanduser().name or model
    return Path(last).stem if Path(last).suffix in (".onnx", ".json", ".ubj", ".skops", ".pkl", ".joblib") else last


def _require(holds: bool, field: str, value: object, accepted: str) -> None:
    if not holds:
        raise InvalidInput(field, value, accepted)


def _refuse(is_given: bool, field: str, value: object, why: str) -> None:
    if is_given:
        raise Inapplicable(field, value, why)
