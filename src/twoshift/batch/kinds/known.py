"""Which kind a job is of."""

from __future__ import annotations

from twoshift.batch.kinds.kind import JobKind
from twoshift.batch.kinds.requests import RequestKind
from twoshift.batch.kinds.table import TableKind
from twoshift.batch.settings import JobSettings
from twoshift.types import JobKindName

__all__ = ["kind_of"]

_KINDS: dict[JobKindName, JobKind] = {JobKindName.TABLE: TableKind(), JobKindName.REQUESTS: RequestKind()}


def kind_of(settings: JobSettings) -> JobKind:
    """By what the settings say of the input."""
    return _KINDS[settings.kind]
