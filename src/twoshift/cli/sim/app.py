"""The group that the simulator's commands hang on."""

from __future__ import annotations

from typing import Annotated

from twoshift.cli.commands import group
from twoshift.cli.params import millis, share, text, whole

__all__ = [
    "CallBudgetMs",
    "HostMs",
    "ItemMs",
    "LengthScale",
    "MaxBatch",
    "OverheadMs",
    "ReplyMs",
    "ReportFile",
    "Seed",
    "SloMs",
    "SpotDiscount",
    "TraceFile",
    "app",
]

app = group(
    "Simulate the scheduling policies of the server under a virtual clock. The same seed gives the same result.",
    "twoshift sim lanes --load 0.3 --background",
)

OverheadMs = Annotated[float | None, millis("Fixed cost of a call.", zero=True, shown="4, without --profile")]
ItemMs = Annotated[float | None, millis("Cost that each item adds to a call.", shown="0.25, without --profile")]
MaxBatch = Annotated[int, whole("Maximum number of rows per call.", most=1_000_000)]
SloMs = Annotated[float, millis("Latency objective of a live request.")]
CallBudgetMs = Annotated[
    float | None,
    millis(
        "Maximum duration of a model call with batch rows.", shown="where larger calls gain little, at most SLO / 2"
    ),
]
HostMs = Annotated[float | None, millis("CPU time to read and prepare one request.", zero=True, shown="0")]
ReplyMs = Annotated[float | None, millis("CPU time to send one reply.", zero=True, shown="0")]
Seed = Annotated[int, whole("Random seed.", least=0)]
ReportFile = Annotated[str | None, text("Write a report with charts to this HTML file.", metavar="FILE")]
SpotDiscount = Annotated[float, share("Spot discount, as a share of the price.", one=False)]
LengthScale = Annotated[
    float,
    share("Multiply the row lengths in --trace by this factor.", "--scale-lengths", zero=False, most=1000.0, shown="1"),
]
TraceFile = Annotated[
    str | None, text("CSV file with the arrival times of requests: columns TIMESTAMP, ContextTokens.", metavar="FILE")
]
