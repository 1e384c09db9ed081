"""`run`: a model over a dataset, committed shard by shard."""

from __future__ import annotations

import contextlib
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twoshift.cli.app import app
from twoshift.cli.commands import command
from twoshift.cli.model_options import Precision, Threads, TrustPickle
from twoshift.cli.output import note, show
from twoshift.cli.params import JsonFlag, choice, count, duration, share, text, usd, whole
from twoshift.cli.run_codes import EXIT_CODES
from twoshift.cli.run_warning import failed_rows_warning
from twoshift.errors import InvalidInput

if TYPE_CHECKING:
    from twoshift.batch.job import Job, JobResult
    from twoshift.batch.progress import Snapshot
    from twoshift.batch.settings import JobSettings

__all__ = ["run_command"]

_INPUT_FORMATS = ("parquet", "jsonl", "csv", "tsv", "arrow")
_NAMED_SHARDS = 10
_FIELDS = {  # of errors, as the user typed them
    "inputs": "INPUTS",
    "text": "--text",
    "price_usd_per_hour": "--price",
    "grace_seconds": "--grace",
    "load_seconds": "--load-timeout",
}
# Documented in docs/jobs.md: 1 and 2 are those of every command.


@command(app, "run", "twoshift run 'docs/*.parquet' --model minilm --text body --keep id -o out/", _FIELDS)
def run_command(
    inputs: Annotated[
        list[str],
        typer.Argument(help="Files, folders, patterns, @lists or s3:// prefixes; or one .toml file that holds a job."),
    ],
    model: Annotated[str | None, text("Model: minilm, smollm, a folder, a file, file.py:Class.")] = None,
    output: Annotated[str | None, text("Output folder, local or s3://.", "-o", "--output")] = None,
    text_column: Annotated[
        str | None, text("Column with the text; of pairs, the first text: the query.", "--text", metavar="COLUMN")
    ] = None,
    pair: Annotated[
        str | None, text("Column with the second text of pairs: the document, as in live reranking.", metavar="COLUMN")
    ] = None,
    prompt_name: Annotated[
        str | None, text("Prompt of the model that goes before each text.", shown="the model's default prompt")
    ] = None,
    prompt: Annotated[
        str | None, text("Prompt for a language model: a column, or a template such as '{title}: {body}'.")
    ] = None,
    system: Annotated[str | None, text("System message for a language model; columns in braces are filled in.")] = None,
    max_tokens: Annotated[int | None, whole("Most tokens of an answer.", most=10**6, shown="256")] = None,
    temperature: Annotated[
        float | None, count("Sampling temperature; 0 always takes the likeliest token.", zero=True, shown="0")
    ] = None,
    top_p: Annotated[float | None, share("Sample from the likeliest tokens that have this share.", shown="1")] = None,
    seed: Annotated[int | None, whole("Sampling seed.", least=0)] = None,
    stop: Annotated[list[str] | None, typer.Option(help="Text that ends an answer; repeat it for several.")] = None,
    json_schema: Annotated[
        str | None, text("JSON schema of the answers; its properties become columns.", metavar="FILE")
    ] = None,
    columns: Annotated[str | None, text("Columns that a model over rows reads: a,b,c.", shown="all")] = None,
    types: Annotated[
        str | None, text("Types of CSV columns, if not as found: amount=float,zip=string (bool, float, int, string).")
    ] = None,
    keep: Annotated[str | None, text("Input columns to keep beside the results: a,b,c.")] = None,
    input_format: Annotated[
        str | None, choice("Input format, if the file's suffix does not say.", _INPUT_FORMATS)
    ] = None,
    output_format: Annotated[str | None, choice("Output format.", ("parquet", "jsonl"), shown="parquet")] = None,
    workers: Annotated[
        int | None, whole("Worker processes, each with a model of its own.", most=1024, shown="1")
    ] = None,
    engine: Annotated[str | None, choice("Where workers run.", ("local", "ray"), shown="local")] = None,
    address: Annotated[str | None, text("Ray cluster: auto or host:port.", shown="a local one")] = None,
    resources: Annotated[str | None, text("Custom Ray resources of a worker: a=1,b=0.5.")] = None,
    shard_rows: Annotated[int | None, whole("Most rows of a shard.")] = None,
    shard_seconds: Annotated[float | None, duration("Time that a shard takes.", shown="30s")] = None,
    max_errors: Annotated[str | None, text("Stop the job when more rows than this fail: 100 or 1%.")] = None,
    window: Annotated[str | None, text("Deadline of the job, from its start: 2h.", metavar="DURATION")] = None,
    price: Annotated[float | None, usd("Price of a worker in dollars an hour.")] = None,
    grace: Annotated[
        float | None, duration("On SIGTERM, time for the shards in work to finish.", zero=True, shown="30s")
    ] = None,
    device: Annotated[str | None, text("Device: auto, cpu, cuda or cuda:N.", metavar="NAME", shown="auto")] = None,
    precision: Precision = None,
    threads: Threads = None,
    trust_pickle: TrustPickle = False,
    load_timeout: Annotated[
        float | None, duration("End a worker whose model is not loaded within this time.", shown="30m")
    ] = None,
    retry_errors: Annotated[
        str | None, text("Folder of an earlier run: link its parts without errors, and do the others again.")
    ] = None,
    on: Annotated[
        str | None, text("Run the job in the batch lane of this server: http://host:8000", metavar="URL")
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="With --on: return at once, and let the job run.")] = False,
    weight: Annotated[float | None, count("With --on: share beside other jobs, relative to theirs.", shown="1")] = None,
    hours: Annotated[str | None, text("With --on: hours of the day in which the job may run: 22:00-06:00.")] = None,
    max_live_load: Annotated[
        float | None, share("With --on: hold the job while live load is above this share.")
    ] = None,
    notify: Annotated[str | None, text("With --on: webhooks of the server to call when the job ends: a,b.")] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Resume nothing: refuse an output folder that holds a job.")
    ] = False,
    as_json: JsonFlag = False,
) -> int:
    """Map a model over a dataset; the same command again resumes.

    Results are committed shard by shard, each exactly once; nothing is lost when anything dies.
    """
    given: dict[str, Any] = {
        "model": model, "output": output, "text": text_column, "pair": pair, "prompt_name": prompt_name,
        "columns": _listed(columns), "types": _types(types),
        "prompt": prompt, "system": system, "max_tokens": max_tokens, "temperature": temperature, "top_p": top_p,
        "seed": seed, "stop": stop or None, "json_schema": _schema(json_schema),
        "keep": _listed(keep), "input_format": input_format, "output_format": output_format, "workers": workers,
        "engine": engine, "address": address, "resources": _amounts(resources),
        "shard_rows": shard_rows, "shard_seconds": shard_seconds, "max_errors": max_errors, "window": window,
        "price_usd_per_hour": price, "grace_seconds": grace, "load_seconds": load_timeout,
        "precision": precision, "threads": threads, "device": device, "trust_pickle": trust_pickle or None,
        "weight": weight, "hours": hours, "max_live_load": max_live_load, "notify": _listed(notify),
    }  # fmt: skip
    if on is None:
        only_there = {"weight": weight, "hours": hours, "max_live_load": max_live_load, "notify": notify}
        _refuse("--on as well", **only_there, detach=detach or None)
    else:
        _refuse("no such option beside --on", fresh=fresh or None, retry_errors=retry_errors, workers=workers)
    said = {name: value for name, value in given.items() if value is not None}
    with _naming_file(inputs, said):
        settings = _settings(inputs, said)
        _refuse_placeholders(settings)
        if on is not None:
            from twoshift.cli.run_on import run_on

            return run_on(on, settings, detach, as_json)
        result = _run(settings, fresh, retry_errors)
    return _tell(settings, result, as_json)


def _run(settings: JobSettings, fresh: bool, retry_errors: str | None) -> JobResult:
    from twoshift.wiring import job_for

    job = job_for(settings)
    from twoshift.cli.job_progress import JobProgress

    with _signals(job), JobProgress(settings) as progress:
        result = job.run(progress.found, progress.draw, progress.loading, fresh=fresh, retry_errors=retry_errors)
        progress.ended(result.last)
    return result


@contextlib.contextmanager
def _naming_file(inputs: list[str], options: dict[str, Any]) -> Iterator[None]:
    """What a job's file says wrong is named as the file does, not as an option that nobody gave."""
    from twoshift.batch.settings import JobSettings

    try:
        yield
    except InvalidInput as error:
        is_from_file = _is_job_file(inputs) and error.field in JobSettings.__struct_fields__
        if not is_from_file or error.field in options:
            raise
        raise error.renamed(f"{inputs[0]}: {error.field}") from error


def _is_job_file(inputs: list[str]) -> bool:
    return len(inputs) == 1 and inputs[0].endswith(".toml")


def _refuse(accepted: str, **options: object) -> None:
    """Raises InvalidInput for the first option that was given."""
    for name, value in options.items():
        if value is not None:
            raise InvalidInput(f"--{name.replace('_', '-')}", value, accepted)


def _settings(inputs: list[str], given: dict[str, Any]) -> JobSettings:
    from twoshift.batch.settings import make_settings, read_settings

    if _is_job_file(inputs):
        return read_settings(Path(inputs[0]), given)
    for name in ("model", "output"):
        if name not in given:
            raise InvalidInput(f"--{name}", None, "this option, or a .toml file that holds it")
    return make_settings({"inputs": inputs, **given})


def _refuse_placeholders(settings: JobSettings) -> None:
    """What only a schedule fills in would be the name of a folder here."""
    from twoshift.triggers.placeholders import placeholder_in

    for name, values in (("inputs", settings.inputs), ("output", (settings.output,))):
        for value in values:
            if found := placeholder_in(value):
                accepted = f"a name without {found}: only `twoshift schedule add` fills that in"
                raise InvalidInput(name, value, accepted)


def _listed(value: str | None) -> list[str] | None:
    return None if value is None else [name.strip() for name in value.split(",") if name.strip()]


def _types(value: str | None) -> dict[str, str] | None:
    if value is None:
        return None
    pairs = [each.rpartition("=") for each in value.split(",")]
    if not all(name.strip() and kind.strip() for name, _, kind in pairs):
        raise InvalidInput("--types", value, "columns with types, such as amount=float,zip=string")
    names = [name.strip() for name, _, _ in pairs]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InvalidInput("--types", value, f"each column once; {twice} is there {names.count(twice)} times")
    return {name: kind.strip() for name, (_, _, kind) in zip(names, pairs, strict=True)}


def _schema(path: str | None) -> str | None:
    if path is None:
        return None
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput("--json-schema", path, f"a file that can be read ({error})") from None


def _amounts(value: str | None) -> dict[str, float] | None:
    if value is None:
        return None
    try:
        return {name.strip(): float(amount) for name, amount in (each.split("=") for each in value.split(","))}
    except ValueError:
        raise InvalidInput("--resources", value, "names with amounts, such as a=1,b=0.5") from None


@contextlib.contextmanager
def _signals(job: Job) -> Iterator[None]:
    """SIGTERM and the first SIGINT stop cleanly; a second SIGINT gives up what is in work."""
    interrupts, asked = 0, set[bool]()

    def stop(number: int, _frame: object) -> None:
        nonlocal interrupts
        interrupts += number == signal.SIGINT
        now = interrupts > 1
        if now in asked:  # a storm of signals asks for nothing new
            return
        asked.add(now)
        with contextlib.suppress(RuntimeError):  # stderr is in the middle of a line
            note("Stopping now." if now else "Stopping: what is in work may finish. Ctrl-C again to stop now.")
        job.stop(now=now)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _tell(settings: JobSettings, result: JobResult, as_json: bool) -> int:
    show(as_json, _data(settings, result), *_lines(settings, result))
    whole = result.summary
    if whole and (warning := failed_rows_warning(whole.errors, whole.rows, whole.error_kinds, settings.output)):
        note(warning)
    return EXIT_CODES[result.ending]


def _data(settings: JobSettings, result: JobResult) -> dict[str, object]:
    import msgspec

    last, whole = result.last, result.summary
    return {
        "ending": result.ending,
        "output": settings.output,
        "report": _report(settings) if whole or last.shards else None,
        "shards": last.shards,
        "shards_done": last.shards_done,
        "rows": whole.rows if whole else last.committed_rows,
        "errors": whole.errors if whole else last.errors,
        "seconds": last.elapsed_s,
        "rows_per_s": last.committed_rows / last.elapsed_s,
        "padding": last.padding,
        "window_s": settings.window_s,
        "made_window": _made_window(settings, result),
        "tokens": whole and whole.tokens,
        "output_tokens": whole and whole.output_tokens,
        "cached_tokens": whole and whole.cached_tokens,
        "output_tokens_per_s": whole and whole.output_tokens_per_s,
        "usd": whole.usd if whole else last.usd,
        "usd_per_million": whole and whole.usd_per_million,
        "parity": whole and whole.parity and msgspec.structs.asdict(whole.parity),
        "dead_shards": result.dead,
        "failures": result.failures,
    }


def _report(settings: JobSettings) -> str:
    return f"{settings.output.rstrip('/')}/_twoshift/report.html"


def _made_window(settings: JobSettings, result: JobResult) -> bool | None:
    """Whether the job was done in its window; None where there is none, or where it may still be."""
    if settings.window_s is None:
        return None
    if result.summary is not None:
        return result.summary.span_s <= settings.window_s
    return False if result.last.elapsed_s > settings.window_s else None


def _lines(settings: JobSettings, result: JobResult) -> Iterator[str]:
    last = result.last
    match result.ending:
        case "done":
            yield from _done_lines(settings, result)
        case "stopped" if not last.shards:
            yield "Stopped before the first shard. The same command resumes."
        case "stopped":
            yield f"Stopped. {_this_run(last)}"
            yield f"The whole job: {last.shards_done:,} of {last.shards:,} shards done. The same command resumes."
        case "too many errors":
            yield from _error_lines(settings, last)
        case "dead shards":
            yield from _dead_lines(result)
    yield from (f"{count} x {message}" for message, count in list(result.failures.items())[:_NAMED_SHARDS])
    if result.summary is None and last.shards:
        yield f"Report so far: {_report(settings)}"


def _done_lines(settings: JobSettings, result: JobResult) -> Iterator[str]:
    from twoshift.batch.summary import dollars
    from twoshift.units import counted

    whole, last = result.summary, result.last
    if whole is not None:
        rows, parts = counted(whole.rows, "row"), counted(last.shards, "part")
        yield f"Done: {rows}, {_errors(whole.errors)}; {settings.output} holds {parts} and _SUCCESS."
        if whole.output_tokens:
            read = f"{whole.tokens:,} prompt tokens, {whole.cached_tokens:,} saved by shared prefixes"
            yield f"{read}; {whole.output_tokens:,} generated, {whole.output_tokens_per_s:,.1f} a second."
        if whole.usd is not None:
            yield f"The whole job: {dollars(whole.usd)}."
    checked = f"sizes compared; `twoshift verify {shlex.quote(settings.output)}` reads all"
    yield _this_run(last) if last.committed_rows else f"This run: nothing was left to do ({checked})."
    made = _made_window(settings, result)
    if made is not None:
        yield f"The window of {settings.window} was {'made' if made else 'missed'}."
    yield f"Report: {_report(settings)}"


def _error_lines(settings: JobSettings, last: Snapshot) -> Iterator[str]:
    failed = f"{last.errors:,} of {last.committed_rows:,} in this run"
    yield f"Stopped: too many rows failed: {failed}; --max-errors allows {settings.max_errors} over all runs."
    yield "What was committed is kept: see the column `error`. The same command with a higher --max-errors resumes."


def _dead_lines(result: JobResult) -> Iterator[str]:
    last, named = result.last, list(result.dead.items())[:_NAMED_SHARDS]
    yield from (f"Shard {shard} could not be done: {what}" for shard, what in named)
    if len(result.dead) > len(named):
        yield f"and {len(result.dead) - len(named):,} more"
    yield _this_run(last)
    yield (
        f"The whole job: {last.shards_done:,} of {last.shards:,} shards are committed. "
        "The same command tries the others."
    )


def _this_run(last: Snapshot) -> str:
    from twoshift.batch.summary import dollars
    from twoshift.units import counted

    cost = "" if last.usd is None else f", {dollars(last.usd)}"
    rows = counted(last.committed_rows, "row")
    return f"This run: {rows} in {last.elapsed_s:,.1f} s, {_errors(last.errors)}{cost}."


def _errors(errors: int) -> str:
    return f"{errors:,} with an error" if errors else "no errors"
