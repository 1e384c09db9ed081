"""One lane, no host, one replica: a plain loop that the simulator must agree with to the last digit."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from twoshift.policy.admission import AdmissionPolicy, Admit
from twoshift.policy.background_queue import Block
from twoshift.policy.lane_values import Call, Drop, Run
from twoshift.policy.lanes import LanePolicy
from twoshift.sim.lanes import POLICIES, LanesSpec
from twoshift.sim.traffic import Arrivals, poisson
from twoshift.types import Item

__all__ = ["PlainLoop"]


@dataclass
class PlainLoop:
    """Arrivals, then the end of the call, then the next decision."""

    spec: LanesSpec
    latencies_ms: list[float] = field(default_factory=list[float])
    in_slo: int = 0
    refused: int = 0
    dropped: int = 0
    background_rows: int = 0
    busy_s: float = 0.0

    def run(self) -> Arrivals:
        spec = self.spec
        rng = np.random.default_rng(spec.seed)
        rate_per_s = spec.load * spec.capacity_per_s
        arrivals = spec.trace.rescaled(rate_per_s) if spec.trace else poisson(rate_per_s, spec.seconds, rng)
        noise = iter(np.exp(rng.normal(0.0, spec.noise or 0.0, 1 << 16)).tolist())
        self.rows = list(zip(arrivals.times_s.tolist(), arrivals.tokens.tolist(), strict=True))[::-1]
        policy = POLICIES[spec.policy](spec.cost, spec.limits)
        admission = AdmissionPolicy(policy) if spec.policy == "twoshift" else None
        now_s, blocks, cost = 0.0, 0, spec.cost.at(0.5)
        while now_s < arrivals.horizon_s or self.rows or len(policy.live):
            self.arrive(policy, admission, now_s)
            if spec.background and now_s < arrivals.horizon_s and not policy.background:
                policy.submit_block(Block(blocks, [spec.row_tokens] * 4096), now_s)
                blocks += 1
            decision = policy.decide(now_s)
            if isinstance(decision, Run):
                elapsed_s = cost.seconds(decision.call.size) * (next(noise) if spec.noise else 1.0)
                now_s += elapsed_s
                self.arrive(policy, admission, now_s)
                policy.finished(decision.call, elapsed_s)
                self.end(decision.call, elapsed_s, now_s, arrivals.horizon_s)
            elif isinstance(decision, Drop):
                assert not decision.background
                self.dropped += len(decision.live)
            else:
                wake_s = min(self.rows[-1][0] if self.rows else np.inf, decision.until_s or np.inf)
                now_s = wake_s if wake_s < np.inf else arrivals.horizon_s
        return arrivals

    def arrive(self, policy: LanePolicy, admission: AdmissionPolicy | None, until_s: float) -> None:
        while self.rows and self.rows[-1][0] <= until_s:
            at_s, tokens = self.rows.pop()
            item = Item(len(self.rows), at_s + self.spec.slo_s, tokens)
            if admission and not isinstance(admission.decide([item], at_s), Admit):
                self.refused += 1
            else:
                policy.submit(item, at_s)

    def end(self, call: Call, elapsed_s: float, now_s: float, horizon_s: float) -> None:
        for item in call.live:
            self.latencies_ms.append(1e3 * (now_s - (item.deadline_s - self.spec.slo_s)))
            self.in_slo += now_s <= item.deadline_s + 1e-9
        if now_s <= horizon_s:
            self.background_rows += sum(part.stop - part.start for part in call.background)
            self.busy_s += elapsed_s
