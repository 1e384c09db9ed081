"""A measured cost curve under a name."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from twoshift.errors import InvalidInput
from twoshift.policy.cost import CallCost
from twoshift.policy.plan.row import RowSize

__all__ = ["Profile", "checked_name"]

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")


def checked_name(name: str, field: str = "profile") -> str:
    """The name, if it is safe as a file name; raises InvalidInput otherwise."""
    if not _NAME.fullmatch(name):
        accepted = "a name of up to 100 letters, digits, '.', '_' or '-' that does not start with '.'"
        raise InvalidInput(field, name, accepted)
    return name


@dataclass(frozen=True, slots=True)
class Profile:
    """What a call of one model costs on one device, as measured."""

    name: str
    cost: CallCost
    created_at: str  # RFC 3339, UTC
    samples: int
    row: RowSize = field(default_factory=RowSize)  # the typical row of the samples
    model: str = ""
    runtime: str = ""
    device: str = ""
    precision: str = ""

    def __post_init__(self) -> None:
        checked_name(self.name)
