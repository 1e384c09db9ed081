"""What became of a job's index, for its report and its manifest."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from twoshift.units import counted
from twoshift.vectors.generations import Generation

__all__ = ["IndexReport", "index_words"]

_LEFT_OUT = {"not finite": "with NaN or infinity in the vector", "of length 0": "with a vector of length 0"}  # in words


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
        "" if not embedded_per_s else f", {made.rows_per_s / embedded_per_s:,.1f} times as fast as embedding the rows"
    )
    yield (
        f"The index {made.index} with {counted(made.rows, 'vector')} was built in {made.build_s:,.1f} s "
        f"({made.rows_per_s:,.0f} vectors per second{against})."
    )
    measured = (
        f"The recall@10 of the index, measured with {counted(made.sampled, 'vector')}, is {made.recall:.4f}; the "
        f"minimum is {made.required:g}."
    )
    if made.switched:
        yield f"{measured} Searches now use this index (generation {made.generation})."
    else:
        yield f"{measured} Searches do not use this index; they use the previous generation, if there is one."
    if made.left_out:
        left_out = ", ".join(f"{count:,} {_LEFT_OUT.get(why, why)}" for why, count in made.left_out.items())
        yield f"Rows that are not in the index: {left_out}."
