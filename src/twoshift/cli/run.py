"""`run`: a model over a dataset, committed shard by shard."""

from __future__ import annotations

import contextlib
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
from twoshift.errors import InvalidInput

if TYPE_CHECKING:
    from twoshift.batch.job import Job, JobResult
    from twoshift.batch.progress import Snapshot
    from twoshift.batch.settings import JobSettings

__all__ = ["run_command"]

_INPUT_FORMATS = ("parquet", "jsonl", "csv", "tsv", "arrow")
_NAMED_SHARDS = 10
# Documented in docs/jobs.md: 1 and 2 are those of every command.


@command(app, "run", "twoshift run 'docs/*.parquet' --model minilm --text body --keep id -o out/")
def run_command(
    inputs: Annotated[
        list[str],
        typer.Argument(help="Files, folders, patterns, @lists or s3:// prefixes; or one .toml file that holds a job."),
    ],
    model: Annotated[
        str | None, text("As in `twoshift profile`: minilm, smollm, a folder, a file, file.py:Class.")
    ] = None,
    output: Annotated[str | None, text("The folder for the results, local or s3://.", "-o", "--output")] = None,
    text_column: Annotated[str | None, text("The column with the text.", "--text", metavar="COLUMN")] = None,
    pair: Annotated[str | None, text("The second text's column, for a model over pairs.", metavar="COLUMN")] = None,
    prompt_name: Annotated[
        str | None, text("Prompt of the model that goes before each text (default: the model's default prompt).")
    ] = None,
    prompt: Annotated[str | None, text("Of a language model: a column, or a template: '{title}: {body}'.")] = None,
    system: Annotated[str | None, text("Its system message; may have columns in braces, too.")] = None,
    max_tokens: Annotated[int | None, whole("Of an answer; 256 without it.", most=10**6)] = None,
    temperature: Annotated[float | None, count("0 without it: always the likeliest token.", zero=True)] = None,
    top_p: Annotated[float | None, share("Of the likeliest tokens; 1 without it.")] = None,
    seed: Annotated[int | None, whole("Of sampling.", least=0)] = None,
    stop: Annotated[list[str] | None, typer.Option(help="A text that ends an answer; may be given again.")] = None,
    json_schema: Annotated[
        str | None, text("A JSON schema that answers keep to; its properties become columns.", metavar="FILE")
    ] = None,
    columns: Annotated[str | None, text("Columns of a model over rows: a,b,c; all without it.")] = None,
    keep: Annotated[str | None, text("Columns to keep beside the results: a,b,c.")] = None,
    input_format: Annotated[str | None, choice("Where names do not tell.", _INPUT_FORMATS)] = None,
    output_format: Annotated[str | None, choice("parquet without it.", ("parquet", "jsonl"))] = None,
    workers: Annotated[int | None, whole("Processes, a model each; 1 without it.", most=1024)] = None,
    engine: Annotated[str | None, choice("Where workers run; local without it.", ("local", "ray"))] = None,
    address: Annotated[str | None, text("The Ray cluster: auto or host:port; a local one without it.")] = None,
    resources: Annotated[str | None, text("Ray's custom resources of a worker: a=1,b=0.5.")] = None,
    shard_rows: Annotated[int | None, whole("Rows of a shard at the most.")] = None,
    shard_seconds: Annotated[float | None, duration("Work of a shard; 30s without it.")] = None,
    max_errors: Annotated[str | None, text("Rows that may fail, 100 or 1%, before the job stops.")] = None,
    window: Annotated[str | None, text("The time it has, such as 2h.", metavar="DURATION")] = None,
    price: Annotated[float | None, usd("Dollars an hour of a worker.")] = None,
    grace: Annotated[
        float | None, duration("What is in work may finish within this on SIGTERM; 30s without it.", zero=True)
    ] = None,
    device: Annotated[str | None, text("auto, cpu, cuda or cuda:N; auto without it.", metavar="NAME")] = None,
    precision: Precision = None,
    threads: Threads = None,
    trust_pickle: TrustPickle = False,
    retry_errors: Annotated[
        str | None, text("An earlier run's folder: its parts without errors are linked, the others done anew.")
    ] = None,
    on: Annotated[
        str | None, text("A running `twoshift serve`: the job rides in its batch lane. http://host:8000", metavar="URL")
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="With --on: do not wait for its end.")] = False,
    weight: Annotated[float | None, count("With --on: of its share beside other jobs; 1 without it.")] = None,
    hours: Annotated[str | None, text("With --on: of the day, in which it may run: 22:00-06:00.")] = None,
    max_live_load: Annotated[float | None, share("With --on: it gives way where live rows have more.")] = None,
    notify: Annotated[str | None, text("With --on: webhooks of the server that are told of its end: a,b.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin anew: refuse a folder that holds a job.")] = False,
    as_json: JsonFlag = False,
) -> int:
    """Map a model over a dataset; the same command again resumes.

    Results are committed shard by shard, each exactly once; nothing is lost when anything dies.
    """
    given: dict[str, Any] = {
        "model": model, "output": output, "text": text_column, "pair": pair, "prompt_name": prompt_name,
        "columns": _listed(columns),
        "prompt": prompt, "system": system, "max_tokens": max_tokens, "temperature": temperature, "top_p": top_p,
        "seed": seed, "stop": stop or None, "json_schema": _schema(json_schema),
        "keep": _listed(keep), "input_format": input_format, "output_format": output_format, "workers": workers,
        "engine": engine, "address": address, "resources": _amounts(resources),
        "shard_rows": shard_rows, "shard_seconds": shard_seconds, "max_errors": max_errors, "window": window,
        "price_usd_per_hour": price, "grace_seconds": grace, "precision": precision, "threads": threads,
        "device": device, "trust_pickle": trust_pickle or None,
        "weight": weight, "hours": hours, "max_live_load": max_live_load, "notify": _listed(notify),
    }  # fmt: skip
    if on is None:
        only_there = {"weight": weight, "hours": hours, "max_live_load": max_live_load, "notify": notify}
        _refuse("--on with it", **only_there, detach=detach or None)
    else:
        _refuse("a job without it, on a server", fresh=fresh or None, retry_errors=retry_errors, workers=workers)
    said = {name: value for name, value in given.items() if value is not None}
    with _naming_file(inputs, said):
        settings = _settings(inputs, said)
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
        result = job.run(progress.found, progress.draw, fresh=fresh, retry_errors=retry_errors)
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


def _listed(value: str | None) -> list[str] | None:
    return None if value is None else [name.strip() for name in value.split(",") if name.strip()]


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
    from twoshift.batch.summary import counted, dollars

    whole, last = result.summary, result.last
    if whole is not None:
        rows, parts = counted(whole.rows, "row"), counted(last.shards, "part")
        yield f"Done: {rows}, {_errors(whole.errors)}; {settings.output} holds {parts} and _SUCCESS."
        if whole.output_tokens:
            read = f"{whole.tokens:,} prompt tokens, {whole.cached_tokens:,} saved by shared prefixes"
            yield f"{read}; {whole.output_tokens:,} generated, {whole.output_tokens_per_s:,.1f} a second."
        if whole.usd is not None:
            yield f"The whole job: {dollars(whole.usd)}."
    yield _this_run(last) if last.committed_rows else "This run: nothing was left to do."
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
    from twoshift.batch.summary import counted, dollars

    cost = "" if last.usd is None else f", {dollars(last.usd)}"
    rows = counted(last.committed_rows, "row")
    return f"This run: {rows} in {last.elapsed_s:,.1f} s, {_errors(last.errors)}{cost}."


def _errors(errors: int) -> str:
    return f"{errors:,} with an error" if errors else "no errors"
