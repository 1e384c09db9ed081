"""The program's own group, which everything hangs on."""

from twoshift.cli.commands import group

__all__ = ["app"]

app = group(
    "Serve live requests within an SLO, and run batch jobs in the idle time of the same devices.",
    "twoshift plan sweep --overhead-ms 6 --item-ms 0.18 --slo-ms 50",
)
