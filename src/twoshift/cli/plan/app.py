"""The group that the planner's commands hang on."""

from twoshift.cli.commands import group

__all__ = ["app"]

app = group(
    "Plan batch sizes, fleets, memory and cost, based on the time of a forward call.",
    "twoshift plan cap --overhead-ms 6 --item-ms 0.2 --slo-ms 100 --share 0.4",
)
