"""Rollouts of a version against itself that are rolled back, as a share of alpha; and callers that meet a bad one.

`--runs 10000` takes half an hour; what is printed is the same with fewer, only less sure.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from twoshift.policy.rollout_values import RolloutSettings, Stage
from twoshift.sim.rollout import RolloutSpec, RolloutStudy, simulate_rollouts

SETTINGS = RolloutSettings(disagreement_bound=0.02, slo_s=0.08)
SAME = RolloutSpec(settings=SETTINGS, most_requests=60_000)
LIVE = replace(SAME, settings=replace(SETTINGS, shadow=False))
ALIKE = {
    "with a shadow": SAME,
    "live only": LIVE,
    "both fail 2 %": replace(LIVE, stable_failures=0.02, candidate_failures=0.02, most_requests=10_000),
    "an outage of both": replace(LIVE, outage=(20.0, 40.0), most_requests=10_000),
    "200 clients": replace(LIVE, clients=200, most_requests=10_000),
}
WORSE = {
    "fails 20 %": replace(LIVE, candidate_failures=0.2),
    "fails 5 %": replace(LIVE, candidate_failures=0.05),
    "twice as slow": replace(LIVE, slower=2.0),
    "twice as slow, shadow": replace(SAME, slower=2.0),
    "10 % differ, shadow": replace(SAME, disagreement=0.1),
}


def alike(name: str, study: RolloutStudy) -> bool:
    """Print how often it was rolled back; whether that is seldom enough."""
    runs, alpha = len(study.runs), study.spec.settings.alpha
    wrong = sum(run.stage is Stage.ROLLED_BACK for run in study.runs)
    promoted = study.share_of(Stage.PROMOTED)
    print(
        f"{name:22}  rolled back {wrong} of {runs}: {wrong / runs / alpha:.2f} of alpha   "
        f"promoted {promoted:.1%} after {study.median('requests'):,.0f} requests",
        flush=True,
    )
    return wrong <= alpha * runs


def worse(name: str, study: RolloutStudy) -> bool:
    """Print how many callers met it; whether all of them were rolled back."""
    runs = len(study.runs)
    exposed, failed = (sum(getattr(run, each) for run in study.runs) / runs for each in ("exposed", "failed"))
    print(
        f"{name:22}  rolled back {study.share_of(Stage.ROLLED_BACK):.1%}   answered {exposed:.1f} requests on average "
        f"(median {study.median('exposed'):.0f}), failed {failed:.2f} (median {study.median('failed'):.0f})",
        flush=True,
    )
    return study.share_of(Stage.PROMOTED) <= 0.01


def main() -> int:
    """1 where a version was rolled back against itself too often, or a bad one was promoted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1, help="of the first; the others have those after it")
    parser.add_argument("--only", default="", help="lines whose name begins so")
    given = parser.parse_args()
    good = True
    for lines, told in ((ALIKE, alike), (WORSE, worse)):
        for name, spec in lines.items():
            if name.startswith(given.only):
                runs = given.runs if lines is ALIKE else max(1, given.runs // 10)
                good = told(name, simulate_rollouts(replace(spec, seed=given.seed), runs)) and good
    return int(not good)


if __name__ == "__main__":
    raise SystemExit(main())
