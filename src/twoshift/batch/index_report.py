"""What became of a job's index, for its report and its manifest."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from twoshift.units import counted
from twoshift.vectors.generations import Generation

__all__ = ["IndexReport", "index_words"]


class IndexReport(msgspec.Struct, frozen=True, kw_only=True):
    """The generation that a job has built, and whether it is searched now."""

    index: str
    generation: str
    library: str
    metric: str
    dims: int
    rows: int
    left_out: dict[str, int]
    recall: float  # at the effort with which it is searched; the best one where none is good enough
    required: float
    effort: int | None
    sampled: int
    switched: bool
    build_s: float
    rows_per_s: float
    memory_bytes: int

    @classmethod
    def of(cls, index: str, generation: Generation, required: float, switched: bool) -> IndexReport:
        """From its manifest."""
        effort = generation.effort_for(required)
        return cls(
            index=index,
            generation=generation.name,
            library=generation.library,
            metric=generation.metric,
            dims=generation.dims,
            rows=generation.rows,
            left_out=generation.left_out,
            recall=generation.best_recall if effort is None else generation.recall[effort],
            required=required,
            effort=effort,
            sampled=generation.sampled,
            switched=switched,
            build_s=generation.build_s,
            rows_per_s=generation.rows_per_s,
            memory_bytes=generation.memory_bytes,
        )


def index_words(made: IndexReport, embedded_per_s: float | None = None) -> Iterator[str]:
    """For people; `embedded_per_s` is what the job's rows took before."""
    against = (
        "" if not embedded_per_s else f", {made.rows_per_s / embedded_per_s:,.1f} times the rate of embedding the rows"
    )
    yield (
        f"The index {made.index} with {counted(made.rows, 'vector')} was built in {made.build_s:,.1f} s "
        f"({made.rows_per_s:,.0f} vectors per second{against})."
    )
    measured = (
        f"recall@10, measured with {counted(made.sampled, 'vector')}, is {made.recall:.4f}; the minimum is "
        f"{made.required:g}"
    )
    if made.switched:
        yield f"The index's {measured}. Searches now use this index (generation {made.generation})."
    else:
        yield (
            f"The index's {measured}. The index was not activated: searches use the previous generation, if there is "
            "one."
        )
    if made.left_out:
        yield f"Rows that are not in the index: {', '.join(f'{n:,} {why}' for why, n in made.left_out.items())}."
