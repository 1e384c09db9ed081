"""What a job makes of its parts once they are all there: an index of vectors, a table of answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from twoshift.batch.answer_job import JobAnswers, answers_for
from twoshift.batch.index_job import JobIndex, index_for
from twoshift.batch.index_report import IndexReport
from twoshift.batch.plan import Plan
from twoshift.ports import Blobs

__all__ = ["ByProducts"]


@dataclass(frozen=True, slots=True)
class ByProducts:
    """Those that its settings ask for."""

    index: JobIndex | None = None
    answers: JobAnswers | None = None

    @classmethod
    def of(cls, plan: Plan, blobs_for: Callable[[str], Blobs]) -> ByProducts:
        """Raises InvalidInput where the job cannot have one."""
        return cls(index_for(plan, blobs_for), answers_for(plan, blobs_for))

    def __bool__(self) -> bool:
        return self.index is not None or self.answers is not None

    @property
    def are_done(self) -> bool:
        """Whether each is or was the current one."""
        return all(each is None or each.is_done for each in (self.index, self.answers))

    def commit(self, tell: Callable[[str], None]) -> IndexReport | None:
        """Make them; what the report says of the index."""
        if self.answers is not None:
            self.answers.commit(tell)
        return None if self.index is None else self.index.commit(tell)
