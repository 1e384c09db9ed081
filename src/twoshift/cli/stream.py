"""`stream`: a model over rows that keep coming, committed window by window."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from twoshift.cli.app import app
from twoshift.cli.commands import command
from twoshift.cli.output import note, own_stdout, show
from twoshift.cli.params import JsonFlag, LogFormatOption, flags_of, given_of, text, with_settings
from twoshift.declare import declared
from twoshift.errors import Inapplicable
from twoshift.logs import log_as
from twoshift.streams.settings import StreamJobSettings, StreamSettings, make_stream, read_stream

if TYPE_CHECKING:
    from twoshift.batch.settings import JobSettings
    from twoshift.streams.progress import StreamSnapshot
    from twoshift.streams.stream import Stream

__all__ = ["stream_command"]

_SOURCE = f"{declared(StreamSettings)['source'].setting.about} Or one .toml stream file."


@command(
    app,
    "stream",
    "twoshift stream inbox/ --model minilm --text body --keep id --fresh 30s -o out/",
    flags_of(StreamJobSettings, StreamSettings),
)
@with_settings(StreamSettings, StreamJobSettings)
def stream_command(
    source: Annotated[str, typer.Argument(help=_SOURCE)],
    *,
    on: Annotated[
        str | None,
        text(
            "Run the stream on the replicas of this server: http://host:8000. Live requests come before the stream, "
            "and the stream comes before jobs.",
            metavar="URL",
        ),
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="With --on: return immediately, while the stream runs on the server.")
    ] = False,
    log_format: LogFormatOption = "text",
    as_json: JsonFlag = False,
    **given: Any,
) -> int:
    """Run a model over rows that keep arriving. To continue after a stop or a crash, run the same command again.

    Rows are collected into windows. Each window is committed as one output file together with its end offset, so every
    row is in the output exactly once.
    """
    log_as(log_format)
    said = given_of(StreamJobSettings, given) | given_of(StreamSettings, given)
    is_file = source.endswith(".toml")
    settings, job = read_stream(Path(source), said) if is_file else make_stream({"source": source, **said})
    if on is not None:
        from twoshift.cli.stream_on import stream_on

        return stream_on(on, settings, job, detach, as_json)
    if detach:
        raise Inapplicable("detach", True, "without --on")
    last = _run(settings, job)
    from twoshift.cli.stream_progress import stream_lines

    data = {"output": job.output, "source": settings.source, "fresh_s": settings.fresh, **msgspec.to_builtins(last)}
    show(as_json, data, *stream_lines(last, job.output, settings.fresh))
    return 0


def _run(settings: StreamSettings, job: JobSettings) -> StreamSnapshot:
    from twoshift.cli.stream_progress import StreamProgress
    from twoshift.wiring.streams import stream_for

    stream = stream_for(settings, job)
    progress = StreamProgress(settings.fresh)
    with own_stdout(), _signals(stream), _metrics(settings, stream):
        return stream.run(progress.draw, lambda: note(f"Streaming from {settings.source} to {job.output}."))


@contextlib.contextmanager
def _metrics(settings: StreamSettings, stream: Stream) -> Iterator[None]:
    if settings.metrics_port is None:
        yield
        return
    from twoshift.streams.metrics import served

    with served(stream.counts, settings.fresh, settings.metrics_port):
        yield


@contextlib.contextmanager
def _signals(stream: Stream) -> Iterator[None]:
    """SIGTERM and the first SIGINT commit what is in work; a second SIGINT gives it up."""
    interrupts = 0

    def stop(number: int, _frame: object) -> None:
        nonlocal interrupts
        interrupts += number == signal.SIGINT
        with contextlib.suppress(RuntimeError):  # stderr is in the middle of a line
            later = "Stopping after the windows in progress. Press Ctrl-C again to stop now."
            note("Stopping now." if interrupts > 1 else later)
        stream.stop(now=interrupts > 1)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
