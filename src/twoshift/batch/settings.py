"""What a job is asked to do, read once from flags or a file."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from twoshift.batch.json_answers import AnswerSchema
from twoshift.batch.prompting import Prompting, Template
from twoshift.config import naming_file, read_toml, settings_of
from twoshift.endpoints.known import ENDPOINTS
from twoshift.errors import InvalidInput
from twoshift.generation import GenerationParams
from twoshift.policy.hours import Hours
from twoshift.types import JobKindName
from twoshift.units import parse_duration

__all__ = ["LINES_FORMAT", "ErrorBudget", "JobSettings", "make_settings", "read_settings"]

OUTPUT_FORMATS = ("parquet", "jsonl")
TYPE_NAMES = ("bool", "float", "int", "string")  # of columns
LINES_FORMAT = "lines"  # of the parts of a batch: results, errors, and how many bytes each has
ENGINES = ("local", "ray")
_LISTS = ("inputs", "columns", "keep", "notify", "stop")  # of which one may be written as a plain string
_RAYS_OWN = ("CPU", "GPU", "memory", "object_store_memory")


class JobSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One job. The first group decides what is in the output; the rest may change from one run to the next."""

    inputs: tuple[str, ...]
    output: str
    model: str
    text: str | None = None  # the column with the text
    pair: str | None = None  # the column with the second text, for a model that scores pairs
    prompt_name: str | None = None  # of the prompts that an encoder brings: what goes before each text
    columns: tuple[str, ...] = ()  # of a model over rows; all, without any
    types: dict[str, str] = {}  # of columns that are text in their file, such as those of CSV
    prompt: str | None = None  # of a language model: a column, or a template over columns
    system: str | None = None  # its system message, a template too
    max_tokens: int = 256  # of an answer
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    json_schema: str | None = None  # that answers keep to: the schema itself; its properties become columns
    keep: tuple[str, ...] = ()
    endpoint: str | None = None  # of a batch: each line of the input is a request to it
    input_format: str | None = None
    output_format: str = "parquet"
    precision: str | None = None
    trust_pickle: bool = False
    shard_rows: int | None = None
    shard_seconds: float = 30.0

    device: str = "auto"
    threads: int | None = None
    workers: int = 1
    engine: str = "local"  # where the workers run
    address: str | None = None  # of the Ray cluster
    resources: dict[str, float] = {}  # Ray's custom ones, of each worker
    max_errors: str | None = None
    window: str | None = None
    due_unix_s: float | None = None  # of a batch, instead of a window: when it ends
    price_usd_per_hour: float | None = None
    weight: float = 1.0  # of its share of a device that serves, where other jobs want it, too
    hours: str | None = None  # of the day, in which it may run on a device that serves
    max_live_load: float | None = None  # the share of such a device that live rows have, above which it gives way
    notify: tuple[str, ...] = ()  # webhooks of a server, which are told of its end
    grace_seconds: float = 30.0
    load_seconds: float = 1800.0  # after which a worker whose model is not loaded counts as hung
    lease_seconds: float = 300.0  # without progress, after which a worker counts as hung; longer than S3 is asked again

    def __post_init__(self) -> None:
        _require(bool(self.inputs), "inputs", self.inputs, "at least one file, folder or pattern")
        formats = OUTPUT_FORMATS if self.endpoint is None else (LINES_FORMAT,)
        _require(self.output_format in formats, "output_format", self.output_format, " or ".join(formats))
        known = self.endpoint is None or self.endpoint in ENDPOINTS
        _require(known, "endpoint", self.endpoint, f"one of {', '.join(ENDPOINTS)}")
        alone = self.endpoint is None or not (self.text or self.columns or self.keep)
        _require(alone, "endpoint", self.endpoint, "no columns beside it: the input has requests")
        _require(self.pair is None or self.text is not None, "pair", self.pair, "--text as well, for the first text")
        _require(not (self.text and self.columns), "columns", self.columns, "either --text or --columns")
        _require(self.prompt_name is None or self.text is not None, "prompt_name", self.prompt_name, "--text as well")
        given = self.text or self.columns
        _require(not (self.prompt and given), "prompt", self.prompt, "a prompt without --text or --columns")
        for name in ("system", "json_schema", "seed", "stop"):
            value = getattr(self, name)
            _require(self.prompt is not None or value in (None, ()), name, value, "--prompt as well")
        prompting = self.prompting
        _require(prompting is None or bool(prompting.columns), "prompt", self.prompt, "at least one column in it")
        if self.json_schema is not None:
            AnswerSchema(self.json_schema)
        _require(self.workers >= 1, "workers", self.workers, "at least 1")
        _require(0.001 <= self.weight <= 1000, "weight", self.weight, "a number from 0.001 to 1000")
        for name, values in (("inputs", self.inputs), ("output", (self.output,))):
            for value in values:
                _require(bool(value.strip()) and "\0" not in value, name, value, "the name of a file or folder")
        if self.hours is not None:
            Hours.parse(self.hours)
        load = self.max_live_load
        _require(load is None or 0 < load <= 1, "max_live_load", load, "a share above 0 and at most 1")
        _require(self.engine in ENGINES, "engine", self.engine, " or ".join(ENGINES))
        for name in ("address", "resources"):
            value = getattr(self, name)
            _require(not value or self.engine == "ray", name, value, "--engine ray as well")
        for name, amount in self.resources.items():
            _require(name not in _RAYS_OWN, "resources", name, "custom ones: --threads and --device say CPUs and GPUs")
            _require(0 < amount < math.inf, "resources", amount, f"an amount of {name} above 0")
        _require(self.shard_rows is None or self.shard_rows >= 1, "shard_rows", self.shard_rows, "at least 1")
        _require(0 < self.shard_seconds < math.inf, "shard_seconds", self.shard_seconds, "seconds above 0")
        _require(0 <= self.grace_seconds < math.inf, "grace_seconds", self.grace_seconds, "seconds, 0 or more")
        _require(0 < self.load_seconds < math.inf, "load_seconds", self.load_seconds, "seconds above 0")
        _require(0 < self.lease_seconds < math.inf, "lease_seconds", self.lease_seconds, "seconds above 0")
        for name in ("keep", "columns"):
            values = getattr(self, name)
            _require(len(set(values)) == len(values), name, values, "each column once")
        self._check_types()
        _ = self.error_budget, self.window_s

    def _check_types(self) -> None:
        as_text = (self.text, self.pair, *(() if self.prompting is None else self.prompting.columns))
        for name, kind in self.types.items():
            _require(kind in TYPE_NAMES, "types", f"{name}={kind}", f"{', '.join(TYPE_NAMES[:-1])} or {TYPE_NAMES[-1]}")
            is_fine = kind == "string" or name not in as_text
            _require(is_fine, "types", f"{name}={kind}", f"{name}=string: the model is given this column as text")

    @property
    def error_budget(self) -> ErrorBudget | None:
        """How many rows may fail."""
        return None if self.max_errors is None else ErrorBudget.parse(self.max_errors)

    @property
    def window_s(self) -> float | None:
        """The time the job has."""
        return None if self.window is None else parse_duration(self.window, "window")

    @property
    def prompting(self) -> Prompting | None:
        """How rows become prompts, for a language model."""
        if self.prompt is None:
            return None
        params = GenerationParams(
            may_shorten=True,
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            top_p=self.top_p,
            seed=self.seed,
            stop=self.stop,
            json_schema=self.json_schema,
        )
        system = None if self.system is None else Template.parse(self.system, "system")
        return Prompting(Template.parse(self.prompt, "prompt", is_column=True), system, params)

    def check_model(self, is_llm: bool) -> None:
        """Whether the model takes rows as these settings make them; raises InvalidInput."""
        if not is_llm:
            _require(self.prompt is None, "prompt", self.prompt, f"a language model, and {self.model} is none")
            return
        instead = " instead of --text" if self.text else " instead of --columns" if self.columns else ""
        wanted = f"--prompt with a column or a template{instead}: {self.model} is a language model"
        _require(self.prompt is not None, "prompt", None, wanted)

    def check_prompt_name(self, prompts: Mapping[str, str]) -> None:
        """Whether the model has the prompt that is named; raises InvalidInput."""
        accepted = f"one of {', '.join(sorted(prompts))}" if prompts else f"none: {self.model} has no prompts"
        _require(self.prompt_name is None or self.prompt_name in prompts, "prompt_name", self.prompt_name, accepted)

    @property
    def kind(self) -> JobKindName:
        """What the input is."""
        return JobKindName.TABLE if self.endpoint is None else JobKindName.REQUESTS

    @property
    def takes_rows(self) -> bool:
        """Whether the model is given rows of named values; texts, prompts or requests where not."""
        return self.text is None and self.prompt is None and self.endpoint is None

    @property
    def model_columns(self) -> tuple[str, ...] | None:
        """The columns that the model sees; None for all."""
        if self.prompting is not None:
            return self.prompting.columns
        return tuple(name for name in (self.text, self.pair) if name) or self.columns or None

    @property
    def read_columns(self) -> tuple[str, ...] | None:
        """The columns that are read; None for all."""
        return None if self.model_columns is None else tuple(dict.fromkeys((*self.model_columns, *self.keep)))


class ErrorBudget(msgspec.Struct, frozen=True):
    """How many rows of a job may fail: a count, or a share of those seen."""

    count: int | None = None
    share: float | None = None

    @classmethod
    def parse(cls, given: str) -> ErrorBudget:
        """`100` or `1%`; raises InvalidInput."""
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(%?)\s*", given)
        if found and found[2] and float(found[1]) <= 100:
            return cls(share=float(found[1]) / 100)
        if found and not found[2] and "." not in found[1]:
            return cls(count=int(found[1]))
        raise InvalidInput("max_errors", given, "a count such as 100, or a share such as 1%")

    def is_spent(self, errors: int, rows: int, least_rows: int) -> bool:
        """Whether so many errors among so many rows are too many; a share is judged once there are some rows."""
        if self.count is not None:
            return errors > self.count
        return self.share is not None and rows >= least_rows and errors > self.share * rows


def read_settings(path: Path, overrides: dict[str, Any]) -> JobSettings:
    """A job's TOML file with the flags that were given put over it; raises InvalidInput that names the key."""
    data = read_toml(path, "job file")
    with naming_file(path, overrides):
        return make_settings({**data, **overrides})


def make_settings(data: dict[str, Any]) -> JobSettings:
    """Settings from plain values; raises InvalidInput that names the nearest known key for an unknown one."""
    lone = {name: (data[name],) for name in _LISTS if isinstance(data.get(name), str)}
    return settings_of(JobSettings, {**data, **lone})


def _require(holds: bool, field: str, value: object, accepted: str) -> None:
    if not holds:
        shown = ",".join(value) if isinstance(value, tuple) else value  # as the option has it
        raise InvalidInput(field, shown, accepted)
