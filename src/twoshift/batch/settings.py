"""What a job is asked to do, read once from flags or a file."""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import msgspec

from twoshift.batch.prompting import Prompting, Template
from twoshift.config import naming_file, read_toml
from twoshift.declare import check, key, setting, settings_of
from twoshift.decodable import decodable
from twoshift.errors import InvalidInput
from twoshift.generation import GenerationParams
from twoshift.loading_settings import Device, Precision, Threads, TrustPickle
from twoshift.policy.hours import Hours
from twoshift.types import JobKindName
from twoshift.units import parse_duration
from twoshift.values import EACH, choice, contents, count, duration, mapping, names, share, span, text, usd, whole

__all__ = ["LINES_FORMAT", "ErrorBudget", "JobSettings", "Mark", "make_settings", "read_settings"]

INPUT_FORMATS = ("parquet", "jsonl", "csv", "tsv", "arrow")
OUTPUT_FORMATS = ("parquet", "jsonl")
TYPE_NAMES = ("bool", "float", "int", "string")  # of columns
LINES_FORMAT = "lines"  # of the parts of a batch: results, errors, and how many bytes each has
_FORMATS_OF = {JobKindName.TABLE: OUTPUT_FORMATS, JobKindName.REQUESTS: (LINES_FORMAT,)}
ENGINES = ("local", "ray")
_RAYS_OWN = ("CPU", "GPU", "memory", "object_store_memory")


class Mark(enum.Enum):
    """What more is to be known of a setting. Those without the first two may change from one run to the next."""

    ROWS = enum.auto()  # decides what the rows of the output are
    SHARDS = enum.auto()  # decides which rows are in which part
    HERE = enum.auto()  # a server's jobs run on its own replicas: it is not theirs to say
    SERVER = enum.auto()  # only a job on a server has it
    BATCH = enum.auto()  # set by the server, for a file of requests


ROWS, SHARDS, HERE, SERVER, BATCH = Mark


def _is_each_once(values: tuple[str, ...]) -> bool:
    return len(set(values)) == len(values)


def _is_location(value: str) -> bool:
    return bool(value.strip()) and "\0" not in value


_COLUMN = text("COLUMN")
_LOCATION = text(plain="the name of a file or folder", fits=_is_location)
_INPUT = replace(choice(INPUT_FORMATS), fits=lambda _: True)  # csv.gz and the like, too: by whoever reads them
_OUTPUT = replace(choice(OUTPUT_FORMATS), fits=lambda _: True)  # a batch has its own
_COLUMNS = names("each column once", _is_each_once)
_TYPES = mapping("columns with types, such as amount=float,zip=string", "column")
_AMOUNTS = mapping("names with amounts, such as a=1,b=0.5", "name", float)


@decodable
class JobSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One job."""

    # fmt: off
    inputs: Annotated[
        tuple[str, ...], setting("Files, folders, patterns, @lists or s3:// prefixes.", names(), "INPUTS")]
    output: Annotated[str, setting("Output folder, local or s3://.", _LOCATION, "-o", "--output")]
    model: Annotated[str, setting("Model: minilm, smollm, a folder, a file, file.py:Class.")]
    text: Annotated[
        str | None, ROWS, setting("Column with the text; of pairs, the first text: the query.", _COLUMN)] = None
    pair: Annotated[
        str | None, ROWS,
        setting("Column with the second text of pairs: the document, as in live reranking.", _COLUMN)] = None
    prompt_name: Annotated[
        str | None, ROWS,
        setting("Prompt of the model that goes before each text.", shown="the model's default prompt")] = None
    prompt: Annotated[
        str | None, ROWS,
        setting("Prompt for a language model: a column, or a template such as '{title}: {body}'.",
                more="See [language models](llms.md).")] = None
    system: Annotated[
        str | None, ROWS, setting("System message for a language model; columns in braces are filled in.")] = None
    max_tokens: Annotated[int, ROWS, setting("Most tokens per answer.", whole(most=10**6))] = 256
    temperature: Annotated[
        float, ROWS, setting("Sampling temperature; 0 always takes the likeliest token.", count(zero=True))] = 0.0
    top_p: Annotated[
        float, ROWS, setting("Sample from the likeliest tokens that have this share.", share(zero=False))] = 1.0
    seed: Annotated[int | None, ROWS, setting("Sampling seed.", whole(-(2**63), 2**63 - 1))] = None
    stop: Annotated[tuple[str, ...], ROWS, setting("Text that ends an answer; repeat it for several.", EACH)] = ()
    json_schema: Annotated[
        str | None, ROWS,
        setting("JSON schema of the answers; its properties become columns.", contents(),
                more="In a file: the schema itself. vLLM takes only [these schemas](llm-serving.md#schemas).")] = None
    columns: Annotated[
        tuple[str, ...], ROWS, setting("Columns that a model over rows reads: a,b,c.", _COLUMNS, shown="all")] = ()
    types: Annotated[
        dict[str, str], ROWS,
        setting("Types of CSV columns, if not as found: amount=float,zip=string (bool, float, int, string).", _TYPES,
                more='In a file: `{amount = "float", zip = "string"}`.')] = {}
    keep: Annotated[
        tuple[str, ...], ROWS, setting("Input columns to keep beside the results: a,b,c.", _COLUMNS)] = ()
    input_format: Annotated[
        str | None, ROWS, setting("Input format, if the file's suffix does not say.", _INPUT)] = None
    output_format: Annotated[str, ROWS, setting("Output format.", _OUTPUT)] = "parquet"
    workers: Annotated[
        int, HERE, setting("Worker processes, each with a model of its own.", whole(most=1024))] = 1
    engine: Annotated[str, HERE, setting("Where workers run.", choice(ENGINES))] = "local"
    address: Annotated[str | None, HERE, setting("Ray cluster: auto or host:port.", shown="a local one")] = None
    resources: Annotated[
        dict[str, float], HERE,
        setting("Custom Ray resources of a worker: a=1,b=0.5.", _AMOUNTS, more="In a file: `{a = 1, b = 0.5}`.")] = {}
    shard_rows: Annotated[int | None, SHARDS, setting("Most rows per shard.", whole())] = None
    shard_seconds: Annotated[
        float, SHARDS,
        setting("Target time of a shard.", duration(), shown="30s",
                more="More where there would be over 10,000 shards and no `shard_rows` is given.")] = 30.0
    max_errors: Annotated[str | None, setting("Stop the job when more rows than this fail: 100 or 1%.")] = None
    window: Annotated[str | None, setting("Deadline of the job, from its start: 2h.", span(zero=True))] = None
    price_usd_per_hour: Annotated[
        float | None, setting("Price of a worker in dollars an hour.", usd(zero=True), "--price")] = None
    grace_seconds: Annotated[
        float,
        setting("On SIGTERM, time for the shards in work to finish.", duration(zero=True), "--grace", shown="30s"),
    ] = 30.0
    device: Annotated[Device, HERE] = "auto"
    precision: Annotated[Precision, HERE] = None
    threads: Annotated[Threads, HERE] = None
    preparers: Annotated[
        int | None,
        setting("Processes per worker (on Ray: in all) that read, tokenise and write; 0: its own threads.",
                whole(0, 1024), shown="on a GPU as many as it needs, on a CPU 0",
                more="For encoders. Never more than the usable cores. On Ray: actors of one CPU each, shared out "
                "among the workers. See [jobs](jobs.md#preparing-processes).")] = None
    trust_pickle: Annotated[TrustPickle, HERE] = False
    load_seconds: Annotated[
        float,
        setting("Replace a worker that has not loaded its model by then.", duration(), "--load-timeout", shown="30m"),
    ] = 1800.0
    lease_seconds: Annotated[  # longer than S3 is asked again
        float, key("End a worker that makes no progress within this time.", duration())] = 300.0
    weight: Annotated[
        float, SERVER,
        setting("With --on: share beside other jobs, relative to theirs.", count(least=0.001, most=1000))] = 1.0
    hours: Annotated[
        str | None, SERVER,
        setting("With --on: hours of the day in which the job may run: 22:00-06:00.",
                more="In the server's time zone.")] = None
    max_live_load: Annotated[
        float | None, SERVER,
        setting("With --on: hold the job while live load is above this share.", share(zero=False))] = None
    notify: Annotated[
        tuple[str, ...], SERVER,
        setting("With --on: webhooks of the server to call when the job ends: a,b.", names(),
                more="See [webhooks](triggers.md).")] = ()
    endpoint: Annotated[
        str | None, BATCH, ROWS,
        key("Set by the server for a [batch](batches.md): the endpoint of its requests.")] = None
    due_unix_s: Annotated[
        float | None, BATCH, key("Set by the server for a batch: its deadline, in place of a window.")] = None
    # fmt: on

    def __post_init__(self) -> None:
        _require(bool(self.inputs), "inputs", self.inputs, "at least one file, folder or pattern")
        formats = _FORMATS_OF[self.kind]
        _require(self.output_format in formats, "output_format", self.output_format, " or ".join(formats))
        if self.kind is JobKindName.REQUESTS:
            self._check_requests()
        check(self)
        _require(self.pair is None or self.text is not None, "pair", self.pair, "--text as well, for the first text")
        _require(not (self.text and self.columns), "columns", self.columns, "either --text or --columns")
        _require(self.prompt_name is None or self.text is not None, "prompt_name", self.prompt_name, "--text as well")
        for value in self.inputs:
            _require(_is_location(value), "inputs", value, "the name of a file or folder")
        self._check_prompt()
        if self.hours is not None:
            Hours.parse(self.hours)
        for name in ("address", "resources"):
            value = getattr(self, name)
            _require(not value or self.engine == "ray", name, value, "--engine ray as well")
        for name, amount in self.resources.items():
            _require(name not in _RAYS_OWN, "resources", name, "custom ones: --threads and --device say CPUs and GPUs")
            _require(0 < amount < math.inf, "resources", amount, f"an amount of {name} above 0")
        self._check_types()
        _ = self.error_budget

    def _check_requests(self) -> None:
        from twoshift.endpoints.known import ENDPOINTS  # slow to load, and a command of a job has none

        _require(self.endpoint in ENDPOINTS, "endpoint", self.endpoint, f"one of {', '.join(ENDPOINTS)}")
        alone = not (self.text or self.columns or self.keep)
        _require(alone, "endpoint", self.endpoint, "no columns beside it: the input has requests")

    def _check_prompt(self) -> None:
        given = self.text or self.columns
        _require(not (self.prompt and given), "prompt", self.prompt, "a prompt without --text or --columns")
        for name in ("system", "json_schema", "seed", "stop"):
            value = getattr(self, name)
            _require(self.prompt is not None or value in (None, ()), name, value, "--prompt as well")
        prompting = self.prompting
        _require(prompting is None or bool(prompting.columns), "prompt", self.prompt, "at least one column in it")
        if self.json_schema is not None:
            from twoshift.batch.json_answers import AnswerSchema  # slow to load: numpy

            AnswerSchema(self.json_schema)

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
        """Deadline of the job, from its start."""
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
    return settings_of(JobSettings, data)


def _require(holds: bool, field: str, value: object, accepted: str) -> None:
    if not holds:
        shown = ",".join(value) if isinstance(value, tuple) else value  # as the option has it
        raise InvalidInput(field, shown, accepted)
