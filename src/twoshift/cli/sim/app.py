"""The group that the simulator's commands hang on."""

from __future__ import annotations

from twoshift.cli.commands import group

__all__ = ["app"]

app = group(
    "Simulate the scheduling policies of the server with a virtual clock. The same seed gives the same result.",
    "twoshift sim lanes --load 0.3 --background",
)
