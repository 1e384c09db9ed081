"""What each simulation is asked: the options of `sim day`, `sim job`, `sim lanes` and `sim rollout`, in their order."""

from __future__ import annotations

from typing import Annotated

import msgspec

from twoshift.cli.plan.curves import StoredProfile
from twoshift.declare import setting
from twoshift.values import FLAG, Value, choice, count, duration, factor, millis, share, text, usd, whole

__all__ = ["POLICIES", "DaySettings", "LanesSettings", "RolloutSimSettings", "SimJobSettings"]

POLICIES = ("twoshift", "strict", "window", "greedy")
_ROWS = whole(most=1_000_000)
_FILE = text("FILE")
_MAX_BATCH, _SLO = "Maximum number of rows per call.", "Latency objective of a live request, in milliseconds."
_RECORDED = "With --replay: override the recorded"

OverheadMs = Annotated[
    float | None,
    setting(
        "Part of a forward call's time that does not depend on its number of rows, in milliseconds.",
        millis(True),
        shown="4, without --profile",
    ),
]
ItemMs = Annotated[
    float | None,
    setting("Time that each row adds to a forward call, in milliseconds.", millis(), shown="0.25, without --profile"),
]
CallBudgetMs = Annotated[
    float | None,
    setting(
        "Maximum duration of a model call with batch rows, in milliseconds.",
        millis(),
        shown="the duration above which larger calls gain little, at most SLO / 2",
    ),
]
Seed = Annotated[int, setting("Random seed; the same seed gives the same result.", whole(least=0))]
ReportFile = Annotated[str | None, setting("Write a report with charts to this HTML file.", _FILE)]
SpotDiscount = Annotated[float, setting("Spot discount, as a share of the price, such as 60%.", share(one=False))]
TraceFile = Annotated[
    str | None,
    setting(
        "CSV file of requests with the columns TIMESTAMP (arrival time) and ContextTokens (tokens of the request).",
        _FILE,
    ),
]


class DaySettings(msgspec.Struct, frozen=True, kw_only=True):
    """A fleet, its traffic over a day, and a backlog of batch rows; or a log of decisions to replay."""

    overhead_ms: OverheadMs = None
    item_ms: ItemMs = None
    max_batch: Annotated[int, setting(_MAX_BATCH, _ROWS)] = 32
    slo_ms: Annotated[float, setting(_SLO, millis())] = 50.0
    peak: Annotated[
        float, setting("Without --trace: live rows per second in the busiest hour.", count(), shown="20000")
    ] = 20_000.0
    trough: Annotated[float, setting("Load in the quietest hour, as a share of the peak load.", share(zero=False))] = (
        0.2
    )
    batch_items: Annotated[
        float, setting("Number of batch rows to process within the day.", count(zero=True), shown="400M")
    ] = 4e8
    price: Annotated[float, setting("Price of one device in dollars per hour.", usd())] = 2.50
    spot_discount: SpotDiscount = 0.0
    start: Annotated[float, setting("Time until a new replica is ready.", duration(zero=True), shown="60s")] = 60.0
    max_devices: Annotated[int, setting("Maximum number of replicas, and of batch workers.", _ROWS)] = 10_000
    call_budget_ms: CallBudgetMs = None
    profile: StoredProfile = None
    trace: TraceFile = None
    copies: Annotated[
        int,
        setting(
            "Number of copies of the trace, each shifted in time, to simulate a larger service.", whole(most=10_000)
        ),
    ] = 1
    seed: Seed = 1
    replay: Annotated[
        str | None,
        setting(
            "Log of a server's autoscaler: make each decision again, and show which results differ from the log.",
            _FILE,
        ),
    ] = None
    min_replicas: Annotated[int | None, setting(f"{_RECORDED} minimum number of replicas.", _ROWS)] = None
    max_replicas: Annotated[int | None, setting(f"{_RECORDED} maximum number of replicas.", _ROWS)] = None
    cooldown: Annotated[float | None, setting(f"{_RECORDED} cooldown.", duration(zero=True))] = None
    report: ReportFile = None

    @property
    def call_budget_s(self) -> float | None:
        """Of the policy, if the user gives one."""
        return None if self.call_budget_ms is None else self.call_budget_ms / 1e3


class SimJobSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A job, its workers, and what happens to them."""

    items: Annotated[float, setting("Number of items in the job.", count(least=1), shown="100M")] = 1e8
    workers: Annotated[
        int | None,
        setting("Number of workers; a preempted worker is replaced.", whole(most=100_000), shown="100"),
    ] = None
    max_workers: Annotated[
        int | None,
        setting(
            "Simulate `twoshift run --workers auto`: as many workers as the window needs, but at most this number.",
            whole(most=10_000),
        ),
    ] = None
    rate: Annotated[float, setting("Number of items that a healthy worker processes per second.", count())] = 100.0
    window: Annotated[
        float, setting("Time until the job must be done, counted from its start.", duration(), shown="12h")
    ] = 43200.0
    shard_seconds: Annotated[
        float | None,
        setting(
            "Processing time of one shard.",
            duration(),
            shown="60s, or less so that each worker gets at least twenty shards",
        ),
    ] = None
    preemptions_per_hour: Annotated[
        float, setting("Average number of preemptions of one worker per hour.", count(zero=True))
    ] = 0.1
    restart: Annotated[float, setting("Time until a replacement worker is ready.", duration(zero=True), shown="2m")] = (
        120.0
    )
    stragglers: Annotated[float, setting("Share of the time in which a worker is slow.", share(one=False))] = 0.05
    slowdown: Annotated[
        float, setting("Slowdown of a slow worker: 3 means three times as long per item.", count(least=1))
    ] = 3.0
    price: Annotated[float, setting("Price of one worker in dollars per hour, before the spot discount.", usd())] = 2.50
    spot_discount: SpotDiscount = 0.6
    runs: Annotated[
        int | None,
        setting(
            "Number of simulation runs, each with and without speculative execution.",
            whole(most=10_000),
            shown="as many as fit into a few seconds",
        ),
    ] = None
    seed: Seed = 1
    report: ReportFile = None


class LanesSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One device, its live requests, and the background work beside them."""

    overhead_ms: OverheadMs = None
    item_ms: ItemMs = None
    max_batch: Annotated[int | None, setting(_MAX_BATCH, _ROWS, shown="32; with --server, its limit")] = None
    slo_ms: Annotated[float | None, setting(_SLO, millis(), shown="50, without --server")] = None
    load: Annotated[
        float,
        setting("Live load, as a share of the capacity with --max-batch rows per call.", share(zero=False, most=20.0)),
    ] = 0.3
    background: Annotated[bool, setting("Add an endless backlog of batch rows.", FLAG, "--background")] = False
    policy: Annotated[str, setting("Scheduling policy to simulate.", choice(POLICIES))] = "twoshift"
    compare: Annotated[bool, setting("Simulate all scheduling policies on the same arrivals.", FLAG, "--compare")] = (
        False
    )
    call_budget_ms: CallBudgetMs = None
    seconds: Annotated[float, setting("Without --trace: simulated time.", duration(), shown="60s")] = 60.0
    noise: Annotated[
        float | None,
        setting(
            "Random spread of the call times around the cost curve, as a share of the time.",
            share(),
            shown="0; with --server, the observed spread",
        ),
    ] = None
    profile: StoredProfile = None
    server: Annotated[
        str | None,
        setting("Simulate this server: its URL, or a file with the reply of /v1/derived/MODEL.", text("URL")),
    ] = None
    trace: TraceFile = None
    scale_lengths: Annotated[
        float,
        setting("Multiply the row lengths in --trace by this factor.", share(zero=False, most=1000.0)),
    ] = 1.0
    rows: Annotated[int, setting("Without --trace: rows per request.", whole(most=4096))] = 1
    lanes: Annotated[
        int | None, setting("Number of concurrent calls on the device.", whole(most=64), shown="1, without --server")
    ] = None
    overtake: Annotated[
        bool,
        setting(
            "Let live calls overtake background calls that are already on the device, as on a GPU.", FLAG, "--overtake"
        ),
    ] = False
    replicas: Annotated[int, setting("Number of replica processes, each with its own device.", whole(most=64))] = 1
    host_ms: Annotated[
        float | None, setting("CPU time to read and prepare one request, in milliseconds.", millis(True), shown="0")
    ] = None
    reply_ms: Annotated[
        float | None, setting("CPU time to send one reply, in milliseconds.", millis(True), shown="0")
    ] = None
    front_ms: Annotated[
        float | None,
        setting(
            "With several replicas: time that the front-end process spends per request, in milliseconds.",
            millis(True),
            shown="0",
        ),
    ] = None
    seed: Seed = 1
    record: Annotated[
        str | None, setting("Write every event and decision to this file, for `twoshift sim replay`.", _FILE)
    ] = None
    report: ReportFile = None

    @property
    def call_budget_s(self) -> float | None:
        """Of the policy, if the user gives one."""
        return None if self.call_budget_ms is None else self.call_budget_ms / 1e3

    @property
    def shown_policies(self) -> tuple[str, ...]:
        """Those that are simulated."""
        return POLICIES if self.compare else (self.policy,)


class RolloutSimSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate, the traffic that judges it, and the rollout's own settings."""

    scenario: Annotated[
        tuple[str, ...],
        setting(
            "Built-in scenario to simulate, such as broken or slow.",
            Value("NAME", repeats=True),
            "--scenario",
            shown="all",
        ),
    ] = ()
    rate: Annotated[float | None, setting("Live requests per second.", count(), shown="100")] = None
    stable_failures: Annotated[
        float | None, setting("Share of requests that fail on the stable version.", share(), shown="0.001")
    ] = None
    candidate_failures: Annotated[
        float | None, setting("Share of requests that fail on the candidate.", share(), shown="0.001")
    ] = None
    slower: Annotated[
        float | None,
        setting("Latency of the candidate, as a multiple of the stable version's latency.", factor(), shown="1"),
    ] = None
    disagreement: Annotated[
        float | None,
        setting("Share of rows that the candidate answers differently from the stable version.", share(), shown="0"),
    ] = None
    bound: Annotated[
        float,
        setting(
            "Maximum share of rows that the candidate may answer differently from the stable version.", share(one=False)
        ),
    ] = 0.02
    slo_ms: Annotated[float | None, setting(_SLO, millis(), shown="none")] = None
    ladder: Annotated[str, setting("Shares of live requests that the candidate gets, step by step.", text("LIST"))] = (
        "1%,5%,25%,100%"
    )
    alpha: Annotated[
        float,
        setting(
            "Maximum probability that a candidate is rolled back although it is as good as the stable version.", share()
        ),
    ] = 0.01
    no_shadow: Annotated[
        bool, setting("Skip the shadow stage, and begin with the first share of live requests.", FLAG, "--no-shadow")
    ] = False
    runs: Annotated[int, setting("Number of simulated rollouts per scenario.", whole(most=100_000))] = 20
    seed: Seed = 1
    record: Annotated[
        str | None,
        setting(
            "Write every event and decision of the first simulated rollout to this file, which --replay can read.",
            _FILE,
        ),
    ] = None
    replay: Annotated[
        str | None,
        setting(
            "Log that --record wrote, or log of a server's rollout: make each decision again, and show which results "
            "differ from the log.",
            _FILE,
        ),
    ] = None
    report: Annotated[
        str | None,
        setting("Write a report with the evidence curves to this HTML file.", _FILE, "--report", "--html"),
    ] = None

    @property
    def candidate(self) -> dict[str, float]:
        """What the user says of a candidate of their own."""
        names = ("stable_failures", "candidate_failures", "slower", "disagreement")
        return {name: value for name in names if (value := getattr(self, name)) is not None}
