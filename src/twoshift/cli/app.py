"""The program's own group, which everything hangs on."""

from twoshift.cli.commands import group

__all__ = ["app"]

app = group(
    "One model, two shifts: live requests inside an SLO, batch jobs in the idle time of the same devices.",
    "twoshift plan sweep --overhead-ms 6 --item-ms 0.18 --slo-ms 50",
)
