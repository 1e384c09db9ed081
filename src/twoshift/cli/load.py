"""`load`: a job's committed parts into a database or a vector store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from twoshift.cli.app import app
from twoshift.cli.commands import command
from twoshift.cli.output import show
from twoshift.cli.params import JsonFlag, text
from twoshift.cli.progress import now_and_then, progress_bar

if TYPE_CHECKING:
    from twoshift.batch.loading import LoadReport

__all__ = ["load_command"]

_NOT_DONE = 3  # as a run that was stopped: the same command goes on


@command(app, "load", "twoshift load out/ --into results.duckdb --into-table docs --into-key id")
def load_command(
    output: Annotated[str, typer.Argument(help="Output folder of a job, local or in a bucket.")],
    *,
    into: Annotated[
        str,
        text(
            "Database or vector store: postgresql://user@host/db, FILE.duckdb, FILE.sqlite, FOLDER.lance, "
            "qdrant://host:6333, FOLDER.parquet with --partition-by, or redis://host:6379/0#NAME for "
            "`twoshift serve --precomputed`.",
            metavar="URL",
        ),
    ],
    into_table: Annotated[str, text("Table or collection, created if it does not exist.", metavar="NAME")] = "results",
    into_key: Annotated[
        str | None,
        text(
            "Output column (from `twoshift run --keep`) that identifies a row; a newer row replaces an older row with "
            "the same value.",
            metavar="COLUMN",
            shown="the row's position in the job",
        ),
    ] = None,
    partition_by: Annotated[
        str | None,
        text(
            "With --into FOLDER.parquet: output column whose values name the subfolders COLUMN=VALUE/.",
            metavar="COLUMN",
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> int:
    """Load the results of a job into a database or a vector store.

    Each part is loaded exactly once. To load the parts that are still missing, run the same command again. Exit code 3:
    the job is not done; its finished parts were loaded. Redis gets all parts at once, when the job is done.
    """
    if into.startswith(("redis://", "rediss://")):
        _load_answers(output, into, into_key, as_json)
        return 0
    from twoshift.wiring.job_workers import load_job

    wanted = {"into": into, "into_table": into_table, "into_key": into_key, "partition_by": partition_by}
    with progress_bar(f"Loading {output}") as progress:
        report, shards = load_job(output, wanted, progress)
    show(as_json, _data(output, report, shards), *_lines(report, shards))
    return 0 if report.shards == shards else _NOT_DONE


def _load_answers(output: str, place: str, key: str | None, as_json: bool) -> None:
    """What servers look up by key: all of it at one moment, in place of what was there."""
    from twoshift.answers.redis_place import redis_package, redis_place
    from twoshift.errors import InvalidInput
    from twoshift.wiring.answer_tables import build_table

    redis_package(redis_place(place, "into").url, "into")
    if key is None:
        accepted = "an output column (from `twoshift run --keep`) whose values are the keys of the answers"
        raise InvalidInput("into_key", None, accepted)
    made = build_table(output, key, place, now_and_then())
    left_out = "".join(f"; {count:,} rows {why}" for why, count in made.left_out.items())
    data = {"output": output, "into": place, "key": key, "keys": made.rows, "left_out": made.left_out}
    show(as_json, data, f"{made.rows:,} keys from the column {key} are in {place}{left_out}.")


def _data(output: str, report: LoadReport, shards: int) -> dict[str, object]:
    import msgspec

    return {"output": output, "shards_of_job": shards, **msgspec.to_builtins(report)}


def _lines(report: LoadReport, shards: int) -> Iterator[str]:
    from twoshift.batch.summary import load_words

    yield from load_words(report)
    if report.shards < shards:
        yield (
            f"Only {report.shards:,} of {shards:,} parts are loaded, because the job is not done. Run the job's "
            "command again until the job is done, and then this command."
        )
