"""A job that is done, and whose rows failed nevertheless: nobody should have to look into its parts to know."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["failed_rows_warning"]

_MANY = 0.5  # of the rows


def failed_rows_warning(errors: int, rows: int, kinds: Mapping[str, int], output: str) -> str:
    """What to do where more than half of the rows failed; empty where not."""
    if errors <= _MANY * rows:
        return ""
    most = max(kinds, key=lambda kind: kinds[kind], default="")
    often = f", most often: {most} ({kinds[most]:,})" if most else ""
    return (
        f"Warning: {errors:,} of {rows:,} rows failed{often}. The column `error` in {output} shows the reasons. "
        f"`twoshift run --retry-errors {output}` with a new -o scores the shards with errors again. --max-errors 1% "
        "would have stopped this job early."
    )
