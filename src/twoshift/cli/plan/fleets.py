"""`plan fleet`, `plan replicas`, `plan cold-start`: how many machines, and how soon."""

from __future__ import annotations

from typing import Annotated, Any

from twoshift.cli.commands import command
from twoshift.cli.output import plain, pretty, show, table
from twoshift.cli.params import JsonFlag, count, duration, given_of, millis, size, usd, with_settings
from twoshift.cli.plan.app import app
from twoshift.cli.plan.decoding import replica_rate
from twoshift.cli.plan.settings import FleetSettings, ReplicasSettings
from twoshift.errors import Inapplicable, InvalidInput
from twoshift.policy.plan.cold_start import ColdStart, plan_cold_start
from twoshift.policy.plan.fleet import FleetAsk, FleetPlan, plan_fleet
from twoshift.policy.plan.replicas import ReplicasAsk, ReplicasPlan, plan_replicas
from twoshift.units import format_duration

__all__ = ["cold_start_command", "fleet_command", "replicas_command"]


_NO_HEADROOM = 0.9  # of the replicas' tokens per second
_FLEETS = {"over": "twice as many", "right": "enough", "under": "half as many"}


@command(
    app,
    "fleet",
    """
    twoshift plan fleet --items 1e9 --rate 2000 --window 12h --price 2.50 \\
        --spot-discount 0.6 --preemptions-per-hour 0.1 \\
        --shard-seconds 60 --straggler-margin 0.1
    """,
)
@with_settings(FleetSettings)
def fleet_command(
    items: Annotated[float, count("Number of items in the job.")],
    rate: Annotated[float, count("Number of items that one worker processes per second.")],
    window: Annotated[float, duration("Time until the job must be done, counted from its start.")],
    price: Annotated[float, usd("Price of one worker in dollars per hour, before the spot discount.")],
    *,
    as_json: JsonFlag = False,
    **given: Any,
) -> None:
    """Find the number of workers that finish a job within a window, and compare it with twice and half this number."""
    settings = FleetSettings(**given_of(FleetSettings, given))
    ask = FleetAsk(
        items,
        rate,
        window,
        price,
        settings.spot_discount,
        settings.preemptions_per_hour,
        settings.shard_seconds,
        settings.restart,
        settings.straggler_margin,
    )
    made = plan_fleet(ask)
    columns = ["<fleet", "workers", "finish", "<in window", "usd", "idle usd"]
    rows = [
        [
            _FLEETS[r.provision],
            pretty(r.workers),
            format_duration(r.finish_s),
            "yes" if r.makes_window else "no",
            f"{r.usd:,.2f}",
            f"{r.idle_usd:,.2f}",
        ]
        for r in made.rows
    ]
    words = fleet_words(made)
    show(as_json, {**plain(made), "window_s": window, "words": words}, table(columns, rows), words)


def fleet_words(made: FleetPlan) -> str:
    """What the three rows say."""
    over, right, under = made.rows
    workers = "1 worker finishes" if right.workers == 1 else f"{right.workers:,} workers finish"
    margin = made.padded_work_s * (1 - made.lost_share) / made.work_s - 1
    lost = f" and about {pretty(made.preemptions, 3)} preemptions, which lose {made.lost_share:.2%} of the time"
    lines = [
        f"{workers} in {format_duration(right.finish_s)}, at ${made.price_usd_per_hour:.2f} per worker and hour. This "
        f"includes {margin:.0%} extra work for stragglers{lost if made.preemptions else ''}.",
        "Machines are paid until the window ends, or until the job ends if that is later. Twice as many workers cost "
        f"${over.usd:,.2f}, of which ${over.idle_usd:,.2f} is for idle hours after the job. To save the idle hours, "
        "release the machines when the job ends.",
    ]
    if over.workers == right.workers or under.workers == right.workers:
        lines.append(
            "Lines with the same number of workers show the same fleet, because a fleet has a whole number of workers."
        )
    if not under.makes_window:
        lines.append(f"Half as many workers miss the window: the job then takes {format_duration(under.finish_s)}.")
    if made.lost_share > 0.2:
        lines.append("Shards are long compared with the time between preemptions: shorter shards lose less work.")
    return "\n".join(lines)


@command(
    app,
    "replicas",
    """
    twoshift plan replicas --rate 20 --ttft-ms 500 --tpot-ms 40 \\
        --output-tokens 250 --tokens-per-s 2500 --peak-to-average 3
    """,
)
@with_settings(ReplicasSettings)
def replicas_command(
    ttft_ms: Annotated[
        float, millis("Objective for the time to the first token, in milliseconds.", "--ttft-ms", "--ttft")
    ],
    tpot_ms: Annotated[
        float,
        millis("Objective for the time per output token after the first, in milliseconds.", "--tpot-ms", "--tpot"),
    ],
    output_tokens: Annotated[float, count("Number of tokens in a typical answer.", least=1)],
    *,
    as_json: JsonFlag = False,
    **given: Any,
) -> None:
    """Find how many replicas a language model needs at average and at peak load. Set --rate or --concurrency."""
    settings = ReplicasSettings(**given_of(ReplicasSettings, given))
    concurrency, rate, peak = settings.concurrency, settings.rate, settings.peak_to_average
    if (concurrency is None) == (rate is None):
        if rate is not None:
            raise Inapplicable("rate", rate, "with --concurrency: use only one of the two")
        raise InvalidInput("rate", None, "--rate or --concurrency")
    tokens_per_s = replica_rate(settings.tokens_per_s, settings.profile, tpot_ms / 1e3)
    ask = ReplicasAsk(ttft_ms / 1e3, tpot_ms / 1e3, output_tokens, tokens_per_s, concurrency, rate, peak)
    made = plan_replicas(ask)
    rows = [
        ["average", pretty(made.rate), pretty(made.tokens_per_s), pretty(made.replicas_average)],
        ["peak", pretty(made.rate * peak), pretty(made.peak_tokens_per_s), pretty(made.replicas_peak)],
    ]
    columns = ["<load", "requests/s", "tokens/s", "replicas"]
    show(as_json, plain(made), table(columns, rows), _replicas_words(made, tokens_per_s))


def _replicas_words(made: ReplicasPlan, tokens_per_s: float) -> str:
    words = (
        f"An answer takes {format_duration(made.end_to_end_s)} (TTFT + output tokens x TPOT). On average, "
        f"{pretty(made.concurrency)} requests are in progress. A replica serves {pretty(made.streams_per_replica)} "
        "streams at this TPOT."
    )
    busy = made.tokens_per_s / (made.replicas_average * tokens_per_s)
    words += f" At average load the replicas run at {busy:.0%} of their maximum tokens per second."
    if busy > _NO_HEADROOM:
        words += (
            " WARNING: there is no headroom, so requests queue at every burst. Plan with a higher --peak-to-average."
        )
    if not made.tpot_reachable:
        words += (
            " The TPOT objective cannot be met: a single stream needs more tokens per second than one "
            "replica generates."
        )
    return words


@command(app, "cold-start", "twoshift plan cold-start --bytes 130GB --bandwidth 5GB/s --slo-ms 2000")
def cold_start_command(
    bytes_: Annotated[float, size("Size of the weights to load.", "--bytes")],
    bandwidth: Annotated[float, size("Loading bandwidth, such as 5GB/s.")],
    startup: Annotated[
        float, duration("Start-up time in addition to loading: container start, warm-up.", zero=True, shown="0s")
    ] = 0.0,
    slo_ms: Annotated[
        float | None,
        millis(
            "Longest time in milliseconds that a request may wait if no replica runs when the request arrives.",
            "--slo-ms",
            "--objective",
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Compute the cold-start time of a replica, and whether the replicas may scale to zero."""
    made = plan_cold_start(bytes_, bandwidth, startup, None if slo_ms is None else slo_ms / 1e3)
    words = cold_start_words(made)
    allowed = {None: "-", True: "allowed", False: "refused"}[made.scale_to_zero]
    row = [
        format_duration(made.load_s),
        format_duration(made.startup_s),
        format_duration(made.cold_start_s),
        "-" if made.objective_s is None else format_duration(made.objective_s),
        allowed,
    ]
    columns = ["load", "start-up", "cold start", "objective", "<scale to zero"]
    show(as_json, {**plain(made), "words": words}, table(columns, [row]), words)


def cold_start_words(made: ColdStart) -> str:
    """Why scale-to-zero is allowed or refused."""
    total = format_duration(made.cold_start_s)
    if made.objective_s is None:
        return f"A cold start takes at least {total}; add --slo-ms to see whether the replicas may scale to zero."
    objective = format_duration(made.objective_s)
    if made.scale_to_zero:
        return f"Scale-to-zero is allowed: a cold start of {total} fits the objective of {objective}."
    return (
        f"Scale-to-zero is not allowed: a cold start of {total} exceeds the objective of {objective}. Keep at least "
        "one replica warm."
    )
