"""Tables of answers of outputs that have none, built where they are served."""

from __future__ import annotations

from collections.abc import Callable

from twoshift.answers.generations import Generation
from twoshift.errors import InvalidInput
from twoshift.extras import install_command, missing_from
from twoshift.wiring.blob_stores import blobs_for

__all__ = ["build_table"]


def build_table(output: str, key: str, place: str, tell: Callable[[str], None]) -> Generation:
    """Raises InvalidInput where the output is no job's or has no such column, TryLater, Broken."""
    try:
        from twoshift.batch.answer_job import build_answers  # pyarrow: an extra
    except ModuleNotFoundError as error:
        how = install_command("jobs", missing_from("jobs"))
        accepted = (
            "the output of a job that has built a table of answers (`twoshift run --answer-key`); to build this table "
            f"on the server, install the missing packages there: {how}"
        )
        raise InvalidInput("precomputed", output, accepted) from error
    return build_answers(output, key, place, blobs_for, tell)
