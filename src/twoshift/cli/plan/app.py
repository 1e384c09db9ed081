"""The group that the planner's commands hang on."""

from twoshift.cli.commands import group

__all__ = ["app"]

app = group(
    "Calculators based on the cost of a forward call: batch sizes, limits, fleets, memory, dollars.",
    "twoshift plan cap --overhead-ms 6 --item-ms 0.2 --slo-ms 100 --share 0.4",
)
