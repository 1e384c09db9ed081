"""The cells of the grid: what is served, to whom, and what is promised there."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

AT_LOW_LOAD, OF_CAPACITY = 0.99, 0.9  # inside the SLO: of all requests, and of capacity
MOST_TIMEOUTS = 0.01  # 504, of replies
BACK_S = 1.0  # after a burst
BASE, BURST, BURST_S = 0.7, 3.0, 1.0
BEFORE_S, AFTER_S = 2.0, 4.0  # of the base load, around a burst

MODELS, ROWS, SLOS_MS, REPLICAS = ("minilm", "slow", "echo"), (1, 32), (20.0, 100.0), (1, 2)
LOADS = (
    *(f"closed:{clients}:{when}" for clients in (32, 200, 1000) for when in ("now", "after")),
    *(f"open:{times:g}" for times in (0.7, 1, 1.4, 3, 10)),
    "burst",
)


class Served(NamedTuple):
    """A server's settings."""

    model: str
    slo_ms: float
    replicas: int

    def __str__(self) -> str:
        return f"{self.model} SLO {self.slo_ms:g} x{self.replicas}"


class Load(NamedTuple):
    """closed:CLIENTS:now|after, open:TIMES of capacity, rate:PER_S, or burst."""

    kind: str
    amount: float = 0.0
    honours_retry_after: bool = False

    @property
    def is_below_capacity(self) -> bool:
        """Everything has to be answered in time then."""
        return self.kind == "open" and self.amount < 1


class Cell(NamedTuple):
    """One of the grid."""

    served: Served
    rows: int
    load: str
    job: bool = False

    @property
    def key(self) -> str:
        model, slo_ms, replicas = self.served
        return f"{model:6} {self.rows:2} r {slo_ms:3g} ms x{replicas} {self.load}{' +job' * self.job}"


def load_of(text: str) -> Load:
    """Raises ValueError for what is none."""
    kind, *rest = text.split(":")
    match kind, rest:
        case "closed", [clients, ("now" | "after") as when]:
            return Load(kind, int(clients), when == "after")
        case (("open" | "rate"), [amount]):
            return Load(kind, float(amount))
        case "burst", []:
            return Load(kind)
    raise ValueError(f"a load is one of {', '.join(LOADS)}; not {text!r}")


def grid(
    models: Sequence[str], rows: Sequence[int], slos_ms: Sequence[float], replicas: Sequence[int], loads: Sequence[str],
    jobs: Sequence[bool],
) -> list[Cell]:  # fmt: skip
    """Every combination, those of one server together."""
    servers = itertools.starmap(Served, itertools.product(models, slos_ms, replicas))
    return [Cell(*each) for each in itertools.product(servers, rows, loads, jobs)]


def quick() -> list[Cell]:
    """Those that tell most, in about five minutes."""
    chosen = {
        Served("echo", 100, 1): (
            (32, "closed:200:now"), (32, "closed:200:after"), (32, "open:1.4"), (32, "open:3"), (32, "burst"),
        ),
        Served("echo", 20, 1): ((1, "open:0.7"), (1, "open:0.7", True), (1, "closed:32:now")),
        Served("slow", 20, 1): ((1, "closed:32:now"), (1, "open:1")),
        Served("slow", 100, 1): ((1, "closed:1000:after"), (1, "open:10")),
        Served("minilm", 100, 1): ((1, "closed:200:now"), (1, "open:1.4"), (1, "open:1.4", True)),
        Served("echo", 100, 2): ((32, "closed:200:now"), (1, "open:0.7", True)),
        Served("minilm", 100, 2): ((1, "closed:200:after"),),
    }  # fmt: skip
    return [Cell(served, *each) for served, cells in chosen.items() for each in cells]


def cuda() -> list[Cell]:
    """A BERT-base on a GPU."""
    served = Served("bert", 20, 1)
    return [
        Cell(served, 1, "closed:256:now"), Cell(served, 1, "closed:256:after"), Cell(served, 1, "rate:9000"),
        Cell(served, 1, "burst"), Cell(served, 32, "closed:32:now"), Cell(served, 32, "closed:32:after"),
    ]  # fmt: skip
