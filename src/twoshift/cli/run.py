"""`run`: a model over a dataset, committed shard by shard."""

from __future__ import annotations

import contextlib
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twoshift.batch.setting_values import Mark
from twoshift.batch.settings import JobSettings, make_settings, read_settings
from twoshift.cli.app import app
from twoshift.cli.commands import command
from twoshift.cli.output import note, own_stdout, show
from twoshift.cli.params import JsonFlag, LogFormatOption, flags_of, given_of, text, with_settings
from twoshift.cli.run_codes import EXIT_CODES
from twoshift.cli.run_warning import failed_rows_warning
from twoshift.config import naming_file
from twoshift.declare import declared
from twoshift.errors import Inapplicable, InvalidInput
from twoshift.logs import log_as
from twoshift.units import counted

if TYPE_CHECKING:
    from twoshift.batch.job import Job, JobResult
    from twoshift.batch.progress import JobSnapshot
    from twoshift.wiring.compared_jobs import ComparedJob

__all__ = ["run_command"]

_NAMED_SHARDS = 10
_INPUTS = f"{declared(JobSettings)['inputs'].setting.about} Or one .toml job file."


@command(
    app, "run", "twoshift run 'docs/*.parquet' --model minilm --text body --keep id -o out/", flags_of(JobSettings)
)
@with_settings(JobSettings)
def run_command(
    inputs: Annotated[list[str], typer.Argument(help=_INPUTS)],
    *,
    retry_errors: Annotated[
        str | None,
        text(
            "Output folder of an earlier job. Its parts without errors are reused, and its shards with errors are "
            "scored again. -o must be another folder."
        ),
    ] = None,
    on: Annotated[
        str | None,
        text("Run the job on this server, in the idle time of its replicas: http://host:8000.", metavar="URL"),
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="With --on: return immediately, while the job runs on the server.")
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Start a new job: fail if the output folder already contains a job.")
    ] = False,
    log_format: LogFormatOption = "text",
    as_json: JsonFlag = False,
    **given: Any,
) -> int:
    """Run a model over a dataset. To resume a stopped job, run the same command again.

    The output is written shard by shard, and each shard exactly once. After a crash, only unfinished shards run again.
    """
    log_as(log_format)
    said = given_of(JobSettings, given)
    if on is None:
        _refuse(
            "without --on, because only a server uses this option",
            _marked(said, Mark.SERVER) | {"detach": detach or None},
        )
    else:
        here = {"fresh": fresh or None, "retry_errors": retry_errors}
        _refuse("with --on, because only a job on this machine uses this option", here | _marked(said, Mark.HERE))
    fields = declared(JobSettings)
    with naming_file(inputs[0], said, fields) if _is_job_file(inputs) else contextlib.nullcontext():
        settings = _settings(inputs, said)
        _refuse_placeholders(settings)
        if on is not None:
            from twoshift.cli.run_on import run_on

            return run_on(on, settings, detach, as_json)
        result = _run(settings, fresh, retry_errors)
    return _tell(settings, result, as_json)


def _marked(said: dict[str, Any], mark: Mark) -> dict[str, Any]:
    return {name: value for name, value in said.items() if mark in declared(JobSettings)[name].marks}


def _run(settings: JobSettings, fresh: bool, retry_errors: str | None) -> JobResult:
    from twoshift.wiring.job_workers import job_for

    job = job_for(settings)
    from twoshift.cli.job_progress import JobProgress

    with (
        own_stdout(),
        _signals(job),
        JobProgress(settings) as progress,
    ):  # Ray says there what it does about lost workers
        job.tell = progress.finishing
        result = job.run(progress.found, progress.draw, progress.loading, fresh=fresh, retry_errors=retry_errors)
        progress.ended(result.last)
    return result


def _is_job_file(inputs: list[str]) -> bool:
    return len(inputs) == 1 and inputs[0].endswith(".toml")


def _refuse(why: str, options: dict[str, Any]) -> None:
    """Raises Inapplicable for the first option that was given."""
    for name, value in options.items():
        if value is not None:
            raise Inapplicable(name, value, why)


def _settings(inputs: list[str], given: dict[str, Any]) -> JobSettings:
    if _is_job_file(inputs):
        return read_settings(Path(inputs[0]), given)
    for name in ("model", "output"):
        if name not in given:
            raise InvalidInput(f"--{name}", None, f"this option, or a .toml job file that sets `{name}`")
    return make_settings({"inputs": inputs, **given})


def _refuse_placeholders(settings: JobSettings) -> None:
    """What only a schedule fills in would be the name of a folder here."""
    from twoshift.triggers.placeholders import placeholder_in

    for name, values in (("inputs", settings.inputs), ("output", (settings.output,))):
        for value in values:
            if found := placeholder_in(value):
                accepted = f"a name without {found}, which only `twoshift schedule add` replaces"
                raise InvalidInput(name, value, accepted)


@contextlib.contextmanager
def _signals(job: Job | ComparedJob) -> Iterator[None]:
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
            note("Stopping now." if now else "Stopping after the running shards. Press Ctrl-C again to stop now.")
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
        "report": _report(settings) if whole or (last.shards and settings.piece is None) else None,
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
        "usd_per_million_input_tokens": whole and whole.usd_per_million_input,
        "usd_per_million_output_tokens": whole and whole.usd_per_million_output,
        "quality": whole and whole.quality and msgspec.to_builtins(whole.quality),
        "parity": whole and whole.parity and whole.parity.to_dict(),
        "load": whole and whole.load and msgspec.to_builtins(whole.load),
        "against": whole and whole.against and msgspec.to_builtins(whole.against),
        "index": whole and whole.index and msgspec.to_builtins(whole.index),
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
            yield "Stopped before the first shard. Run the same command again to resume."
        case "stopped":
            yield f"Stopped. {_this_run(last)}"
            yield (
                f"The whole job: {last.shards_done:,} of {last.shards:,} shards are done. Run the same command "
                "again to resume."
            )
        case "too many errors":
            yield from _error_lines(settings, last)
        case "dead shards":
            yield from _dead_lines(result)
        case "low recall":
            yield from _recall_lines(settings, result)
    yield from (
        f"{counted(count, 'time')}: {message}" for message, count in list(result.failures.items())[:_NAMED_SHARDS]
    )
    if result.summary is None and last.shards and settings.piece is None:
        yield f"Report so far: {_report(settings)}"


def _done_lines(settings: JobSettings, result: JobResult) -> Iterator[str]:
    from twoshift.batch.index_report import index_words
    from twoshift.batch.summary import against_words, dollars, load_words, parity_words, token_price_words

    whole, last = result.summary, result.last
    if whole is not None:
        rows, parts = counted(whole.rows, "row"), counted(last.shards, "part")
        yield f"Done: {rows}, {_errors(whole.errors)}; {settings.output} contains {parts} and _SUCCESS."
        if whole.output_tokens:
            read = f"{whole.tokens:,} prompt tokens, {whole.cached_tokens:,} of them read from the prefix cache"
            yield f"{read}; {whole.output_tokens:,} tokens generated, {whole.output_tokens_per_s:,.1f} per second."
        if whole.usd is not None:
            yield f"Cost of the whole job: {dollars(whole.usd)}."
            yield from token_price_words(whole)
        if whole.parity is not None and whole.parity.passed is False:
            yield from parity_words(whole.parity)
        if whole.load is not None:
            yield from load_words(whole.load)
        if whole.against is not None:
            yield from against_words(whole.against)
        if whole.index is not None:
            yield from index_words(whole.index, whole.rows_per_s)
    checked = f"only file sizes were compared; `twoshift verify {shlex.quote(settings.output)}` compares checksums"
    left = "other processes did the work" if settings.piece else f"nothing was left to do ({checked})"
    yield _this_run(last) if last.committed_rows else f"This run: {left}."
    made = _made_window(settings, result)
    if made is not None:
        yield f"The job {'ended within' if made else 'missed'} its window of {settings.window}."
    yield f"Report: {_report(settings)}"


def _recall_lines(settings: JobSettings, result: JobResult) -> Iterator[str]:
    from twoshift.batch.index_report import index_words

    if result.summary is not None and result.summary.index is not None:
        yield from index_words(result.summary.index, result.summary.rows_per_s)
    yield "Every part is committed. To use this index anyway, run the same command with a lower --index-recall."
    yield f"Report: {_report(settings)}"


def _error_lines(settings: JobSettings, last: JobSnapshot) -> Iterator[str]:
    failed = f"{last.failed_words} in all runs, {last.errors:,} of {last.committed_rows:,} in this run"
    yield f"Stopped: too many rows failed: {failed}; --max-errors allows {settings.max_errors}."
    yield (
        "Committed parts are kept; their column `error` shows the reasons. To resume, run the same command "
        "with a higher --max-errors."
    )


def _dead_lines(result: JobResult) -> Iterator[str]:
    last, named = result.last, list(result.dead.items())[:_NAMED_SHARDS]
    yield from (f"Shard {shard} failed: {what}" for shard, what in named)
    if len(result.dead) > len(named):
        yield f"{counted(len(result.dead) - len(named), 'more shard')} failed."
    yield _this_run(last)
    yield (
        f"The whole job: {last.shards_done:,} of {last.shards:,} shards are committed. "
        "Run the same command again to retry the other shards."
    )


def _this_run(last: JobSnapshot) -> str:
    from twoshift.batch.summary import dollars

    cost = "" if last.usd is None else f", {dollars(last.usd)}"
    rows = counted(last.committed_rows, "row")
    return f"This run: {rows} in {last.elapsed_s:,.1f} s, {_errors(last.errors)}{cost}."


def _errors(errors: int) -> str:
    return f"{errors:,} with an error" if errors else "no errors"
