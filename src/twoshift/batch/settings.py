"""Settings of a job, from options or a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from twoshift.batch.answer_settings import AnswerKey, AnswerPlace, check_answers
from twoshift.batch.error_budget import ErrorBudget
from twoshift.batch.index_settings import IndexKey, IndexMetric, IndexName, IndexRecall, check_index
from twoshift.batch.output_settings import (
    FileSize,
    PartCompression,
    PartitionColumn,
    StoreKey,
    StorePlace,
    StoreTable,
    check_outputs,
)
from twoshift.batch.piece_settings import PieceName, PieceTimeout, check_piece
from twoshift.batch.prompt_settings import (
    AnswerSchemaText,
    MaxTokens,
    PromptText,
    SamplingSeed,
    StopStrings,
    SystemText,
    Temperature,
    TopP,
    check_prompt,
    prompting_of,
)
from twoshift.batch.prompting import Prompting
from twoshift.batch.ray_settings import RayAddress, RayResources, check_ray
from twoshift.batch.setting_values import (
    AUTO,
    COLUMN,
    COLUMNS,
    FOLDER,
    INPUT_FORMAT,
    LOCATION,
    NOTICE_PLACE,
    OUTPUT_FORMAT,
    OUTPUT_FORMATS,
    SQL,
    TYPES,
    WORKERS,
    ZONE,
    Mark,
    is_location,
)
from twoshift.config import naming_file, read_toml
from twoshift.declare import check, key, setting, settings_of
from twoshift.decodable import decodable
from twoshift.errors import Inapplicable, InvalidInput
from twoshift.loading_settings import (
    AtLeast,
    BatchInvariant,
    Device,
    EvalFile,
    Metric,
    Precision,
    Reference,
    RegistryLocation,
    TensorParallel,
    Threads,
    TooLong,
    TrustPickle,
    check_gate,
    check_no_llm,
)
from twoshift.policy.hours import Hours
from twoshift.triggers.zones import offset_of
from twoshift.types import JobKindName, TextPolicy
from twoshift.units import parse_duration
from twoshift.values import choice, count, duration, names, share, span, usd, whole

__all__ = ["LINES_FORMAT", "ErrorBudget", "JobSettings", "make_settings", "read_settings"]

EMPTY_TEXTS = ("error", "skip", "answer")
TYPE_NAMES = ("bool", "float", "int", "string")  # of columns
LINES_FORMAT = "lines"  # of the parts of a batch: results, errors, and how many bytes each has
_FORMATS_OF = {JobKindName.TABLE: OUTPUT_FORMATS, JobKindName.REQUESTS: (LINES_FORMAT,)}
ENGINES = ("local", "ray")


ROWS, SHARDS, HERE, SERVER, BATCH = Mark


@decodable
class JobSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All settings of one job."""

    # fmt: off
    inputs: Annotated[
        tuple[str, ...],
        setting("Input: files, folders, patterns such as 'docs/*.csv', bucket prefixes, or @FILE (a file with a list "
                "of inputs).", names(), "INPUTS")]
    output: Annotated[
        str, setting("Output folder: a local path, or an s3://, gs:// or az:// prefix.", LOCATION, "-o", "--output")]
    model: Annotated[
        str,
        setting("Model: minilm, smollm, a model folder or file, file.py:Class, or a registered model (NAME:3 "
                "or NAME@prod).")]
    text: Annotated[
        str | None, ROWS,
        setting("Input column with the text. For a reranker: input column with the query.", COLUMN)] = None
    pair: Annotated[
        str | None, ROWS,
        setting("For a reranker: input column with the document, the second text of each pair.", COLUMN)] = None
    prompt_name: Annotated[
        str | None, ROWS,
        setting("Name of a prompt that the model defines; Twoshift puts this prompt before each text.",
                shown="the model's default prompt")] = None
    prompt: Annotated[PromptText, ROWS] = None
    system: Annotated[SystemText, ROWS] = None
    max_tokens: Annotated[MaxTokens, ROWS] = 256
    temperature: Annotated[Temperature, ROWS] = 0.0
    top_p: Annotated[TopP, ROWS] = 1.0
    seed: Annotated[SamplingSeed, ROWS] = None
    stop: Annotated[StopStrings, ROWS] = ()
    json_schema: Annotated[AnswerSchemaText, ROWS] = None
    too_long: Annotated[TooLong, ROWS] = "cut"
    empty: Annotated[
        str | None, ROWS,
        setting("How to handle a null or blank text: error, skip (no result, no error), or answer (run the model).",
                choice(EMPTY_TEXTS), shown="null is an error, a blank text is answered")] = None
    columns: Annotated[
        tuple[str, ...], ROWS,
        setting("Input columns to pass to a model with named inputs: a,b,c.", COLUMNS, shown="all")] = ()
    types: Annotated[
        dict[str, str], ROWS,
        setting("Types of input columns, in place of the detected types: amount=float,zip=string. A type is bool, "
                "float, int or string.", TYPES,
                more='Types of CSV columns are detected. In a job file: `{amount = "float", zip = "string"}`.')] = {}
    query: Annotated[
        str | None, HERE, ROWS,
        setting("SQL query (DuckDB) whose result is the input of the job. In the query, the table `input` has the rows "
                "of the input files.",
                SQL, more="See [queries](jobs.md#queries).")] = None
    keep: Annotated[
        tuple[str, ...], ROWS, setting("Input columns to copy to the output: a,b,c.", COLUMNS)] = ()
    input_format: Annotated[
        str | None, ROWS,
        setting("Format of the input files; needed only if the suffixes of the file names do not show the format.",
                INPUT_FORMAT)] = None
    output_format: Annotated[str, ROWS, setting("Format of the output files.", OUTPUT_FORMAT)] = "parquet"
    index: Annotated[IndexName, HERE] = None
    index_metric: Annotated[IndexMetric, HERE] = "cos"
    index_key: Annotated[IndexKey, HERE] = None
    index_recall: Annotated[IndexRecall, HERE] = 0.95
    answer_key: Annotated[AnswerKey, HERE] = None
    answer_table: Annotated[AnswerPlace, HERE] = None
    workers: Annotated[
        int | Literal["auto"],
        setting("Number of worker processes; each worker loads its own copy of the model. auto: as many workers as are "
                "needed to finish within --window. With --on: minimum number of replicas of the model on the server "
                "while the job runs.",
                WORKERS, more="See [workers](jobs.md#shards-workers-windows).")] = 1
    max_workers: Annotated[
        int | None, HERE, setting("With --workers auto: maximum number of workers.", whole(most=1024))] = None
    engine: Annotated[
        str, HERE, setting("Where the workers run: as local processes or on Ray.", choice(ENGINES))] = "local"
    address: Annotated[RayAddress, HERE] = None
    resources: Annotated[RayResources, HERE] = {}
    spot_notice: Annotated[
        str | None, HERE,
        setting("Where to look for preemption notices of a worker's machine: aws, gcp, a URL or a file.",
                NOTICE_PLACE, more="See [spot machines](jobs.md#spot-machines).")] = None
    into: Annotated[StorePlace, HERE] = None
    into_table: Annotated[StoreTable, HERE] = "results"
    into_key: Annotated[StoreKey, HERE] = None
    partition_by: Annotated[PartitionColumn, HERE] = None
    piece: Annotated[PieceName, HERE] = None
    piece_seconds: Annotated[PieceTimeout, HERE] = 60.0
    file_size: Annotated[FileSize, SHARDS] = None
    compression: Annotated[PartCompression, SHARDS] = "zstd"
    shard_rows: Annotated[int | None, SHARDS, setting("Maximum number of rows per shard.", whole())] = None
    shard_seconds: Annotated[
        float, SHARDS,
        setting("Target processing time of one shard.", duration(), shown="30s",
                more="A very large job without `shard_rows` gets longer shards, so that it has at most 10,000 "
                     "shards.")] = 30.0
    max_errors: Annotated[
        str | None,
        setting("Stop the job if more rows than this fail: a number of rows (100) or a share of the rows (1%).")] = None
    window: Annotated[
        str | None,
        setting("Time within which the job must be done, counted from the start of the job: 2h.", span())] = None
    price_usd_per_hour: Annotated[
        float | None, setting("Price of one worker in dollars per hour.", usd(zero=True), "--price")] = None
    grace_seconds: Annotated[
        float,
        setting("Time that running shards get to finish after a SIGTERM.", duration(zero=True), "--grace", shown="30s"),
    ] = 30.0
    device: Annotated[Device, HERE] = "auto"
    precision: Annotated[Precision, HERE] = None
    threads: Annotated[Threads, HERE] = None
    preparers: Annotated[
        int | None,
        setting("Number of processes per worker that read, tokenise and write rows; 0: threads of the worker do this. "
                "On Ray: number of these processes in total.",
                whole(0, 1024), shown="as many as a GPU needs; 0 on a CPU",
                more="For encoders only. The value must not exceed the number of usable cores. On Ray, these processes "
                     "are actors with one CPU each, divided among the workers. See "
                     "[jobs](jobs.md#preparing-processes).")] = None
    trust_pickle: Annotated[TrustPickle, HERE] = False
    adapter: Annotated[
        str | None, HERE,
        setting("Folder of a LoRA adapter for the language model.", FOLDER, shown="none",
                more="With --on, give the name of the adapter as --model instead of using --adapter. See "
                     "[adapters](llms.md#adapters).")] = None
    tensor_parallel: Annotated[TensorParallel, HERE] = 1
    batch_invariant: Annotated[BatchInvariant, HERE, ROWS] = False
    eval_file: Annotated[EvalFile, HERE] = None
    metric: Annotated[Metric, HERE] = "exact"
    at_least: Annotated[AtLeast, HERE] = None
    reference: Annotated[Reference, HERE] = None
    registry: Annotated[RegistryLocation, HERE] = None
    against: Annotated[
        str | None, HERE,
        setting("Also run this registered model (NAME:3), and report how much the answers of the two models differ.",
                more="The output has only the answers of `model`. See [the registry](registry.md#evaluations).")] = None
    load_seconds: Annotated[
        float,
        setting(
            "Replace a worker that takes longer than this to load the model.",
            duration(),
            "--load-timeout",
            shown="30m",
        ),
    ] = 1800.0
    lease_seconds: Annotated[  # longer than S3 is asked again
        float, key("Replace a worker that makes no progress for this time.", duration())] = 300.0
    weight: Annotated[
        float, SERVER,
        setting("With --on: weight of the job among other jobs. A job of weight 2 gets twice the capacity "
                "of a job of weight 1.",
                count(least=0.001, most=1000))] = 1.0
    hours: Annotated[
        str | None, SERVER,
        setting("With --on: hours during which the job may run: 22:00-06:00, or 'mon-fri 22:00-06:00, sat, sun'.",
                more="A span that passes midnight belongs to the day on which it begins: `fri 22:00-06:00` ends on "
                     "Saturday.")] = None
    tz: Annotated[
        str | None, SERVER,
        setting("With --hours: time zone of the hours, such as Europe/Berlin.", ZONE,
                shown="the server's time zone")] = None
    max_live_load: Annotated[
        float | None, SERVER,
        setting("With --on: pause the job while live requests use more than this share of a device.",
                share(zero=False))] = None
    notify: Annotated[
        tuple[str, ...], SERVER,
        setting("With --on: names of the server's webhooks to call when the job ends: a,b.", names(),
                more="See [webhooks](triggers.md).")] = ()
    endpoint: Annotated[
        str | None, BATCH, ROWS,
        key("Set by the server for a [batch](batches.md): the API endpoint of the requests.")] = None
    adapters: Annotated[
        tuple[str, ...], BATCH, key("Set by the server for a batch: the adapters that the requests name.", names())
    ] = ()
    due_unix_s: Annotated[
        float | None, BATCH,
        key("Set by the server for a batch: the deadline of the batch in Unix seconds, in place of `window`.")] = None
    # fmt: on

    def __post_init__(self) -> None:
        _require(bool(self.inputs), "inputs", self.inputs, "at least one file, folder or pattern")
        formats = _FORMATS_OF[self.kind]
        _require(self.output_format in formats, "output_format", self.output_format, " or ".join(formats))
        if self.kind is JobKindName.REQUESTS:
            self._check_requests()
        check(self)
        self._check_text()
        for value in self.inputs:
            _require(is_location(value), "inputs", value, "the name of a file or folder")
        check_prompt(self)
        self._check_workers()
        check_gate(self.eval_file, self.metric, self.at_least, self.reference)
        if self.hours is not None:
            Hours.parse(self.hours)
        _refuse(self.tz is not None and self.hours is None, "tz", self.tz, "without --hours")
        if self.tz is not None:
            offset_of(self.tz)
        check_ray(self)
        self._check_types()
        check_index(self)
        check_answers(self)
        check_outputs(self)
        check_piece(self)
        _ = self.error_budget

    def _check_text(self) -> None:
        """What goes with `text`, and what does not."""
        has_text = self.text is not None
        without_first = "without --text, the column of the first text"
        _refuse(self.pair is not None and not has_text, "pair", self.pair, without_first)
        _refuse(bool(self.text and self.columns), "columns", self.columns, "with --text: use only one of the two")
        _refuse(self.prompt_name is not None and not has_text, "prompt_name", self.prompt_name, "without --text")
        for name, usual in (("too_long", "cut"), ("empty", None)):
            value = getattr(self, name)
            _refuse(value != usual and not has_text, name, value, "without --text")
        can_split = self.too_long != "split" or self.pair is None
        _require(can_split, "too_long", self.too_long, "cut or error: a pair of texts cannot be split")

    def _check_workers(self) -> None:
        for name in ("window", "max_workers"):
            is_missing = self.workers == AUTO and getattr(self, name) is None
            _refuse(is_missing, "workers", self.workers, f"without --{name.replace('_', '-')}")
        is_fixed = self.workers != AUTO and self.max_workers is not None
        _refuse(is_fixed, "max_workers", self.max_workers, "without --workers auto")

    @property
    def first_workers(self) -> int:
        """Number of workers at the start."""
        return 1 if self.workers == AUTO else self.workers

    @property
    def most_workers(self) -> int:
        """Maximum number of workers."""
        return (self.max_workers or 1) if self.workers == AUTO else self.workers

    def _check_requests(self) -> None:
        from twoshift.endpoints.known import ENDPOINTS  # slow to load, and a command of a job has none

        _require(self.endpoint in ENDPOINTS, "endpoint", self.endpoint, f"one of {', '.join(ENDPOINTS)}")
        has_columns = bool(self.text or self.columns or self.keep)
        why = "with --text, --columns or --keep: the input is a file of requests"
        _refuse(has_columns, "endpoint", self.endpoint, why)

    def _check_types(self) -> None:
        as_text = (self.text, self.pair, *(() if self.prompting is None else self.prompting.columns))
        for name, kind in self.types.items():
            _require(kind in TYPE_NAMES, "types", f"{name}={kind}", f"{', '.join(TYPE_NAMES[:-1])} or {TYPE_NAMES[-1]}")
            is_fine = kind == "string" or name not in as_text
            _require(is_fine, "types", f"{name}={kind}", f"{name}=string: the model reads this column as text")

    @property
    def error_budget(self) -> ErrorBudget | None:
        """Number of rows that may fail."""
        return None if self.max_errors is None else ErrorBudget.parse(self.max_errors)

    @property
    def texts(self) -> TextPolicy:
        """What to do with long and empty texts."""
        return TextPolicy(self.too_long, self.empty)

    @property
    def window_s(self) -> float | None:
        """Deadline of the job, from its start."""
        return None if self.window is None else parse_duration(self.window, "window")

    @property
    def prompting(self) -> Prompting | None:
        """How rows become prompts, for a language model."""
        return prompting_of(self)

    def check_preparers(self, cores: int) -> None:
        """Raises InvalidInput where the machine of the workers has fewer cores than processes are asked for."""
        accepted = f"at most {cores}, the number of usable cores"
        _require(self.preparers is None or self.preparers <= cores, "preparers", self.preparers, accepted)

    def check_model(self, is_llm: bool) -> None:
        """Whether the model takes rows as these settings make them; raises InvalidInput."""
        if not is_llm:
            for name in ("prompt", "adapter"):
                value = getattr(self, name)
                _refuse(value is not None, name, value, f"because {self.model} is not a language model")
            check_no_llm(self, self.model)
            return
        instead = " instead of --text" if self.text else " instead of --columns" if self.columns else ""
        wanted = f"--prompt with a column or a template{instead}: {self.model} is a language model"
        _require(self.prompt is not None, "prompt", None, wanted)

    def check_prompt_name(self, prompts: Mapping[str, str]) -> None:
        """Whether the model has the prompt that is named; raises InvalidInput."""
        named = f"one of the model's prompts: {', '.join(sorted(prompts))}"
        accepted = named if prompts else f"a model that defines prompts; {self.model} defines none"
        _require(self.prompt_name is None or self.prompt_name in prompts, "prompt_name", self.prompt_name, accepted)

    @property
    def used_adapters(self) -> tuple[str, ...]:
        """Of the model, by the names that it has for them: they decide answers as the model's own weights do."""
        return self.adapters if self.adapter is None else (self.adapter,)

    @property
    def kind(self) -> JobKindName:
        """Kind of the input."""
        return JobKindName.TABLE if self.endpoint is None else JobKindName.REQUESTS

    @property
    def model_columns(self) -> tuple[str, ...] | None:
        """Columns that the model gets; None for all."""
        if self.prompting is not None:
            return self.prompting.columns
        return tuple(name for name in (self.text, self.pair) if name) or self.columns or None

    @property
    def read_columns(self) -> tuple[str, ...] | None:
        """Columns to read; None for all."""
        return None if self.model_columns is None else tuple(dict.fromkeys((*self.model_columns, *self.keep)))


def read_settings(path: Path, overrides: dict[str, Any]) -> JobSettings:
    """Settings from a job's TOML file, overridden by the given options; raises InvalidInput that names the key."""
    data = read_toml(path, "job file")
    with naming_file(path, overrides):
        return make_settings({**data, **overrides})


def make_settings(data: dict[str, Any]) -> JobSettings:
    """Settings from plain values; raises InvalidInput that names the nearest known key for an unknown one."""
    return settings_of(JobSettings, data)


def _require(holds: bool, field: str, value: object, accepted: str) -> None:
    if not holds:
        raise InvalidInput(field, _as_option(value), accepted)


def _refuse(is_given: bool, field: str, value: object, why: str) -> None:
    if is_given:
        raise Inapplicable(field, _as_option(value), why)


def _as_option(value: object) -> object:
    return ",".join(value) if isinstance(value, tuple) else value
