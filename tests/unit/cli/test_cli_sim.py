from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from twoshift.policy.cost import CallCost
from twoshift.policy.lane_values import LaneLimits
from twoshift.policy.plan.row import RowSize
from twoshift.serve.derived import derive
from twoshift.types import CallSize

Run = Callable[[str], Any]
LANES = "sim lanes --overhead-ms 4 --item-ms 0.25 --max-batch 32 --slo-ms 50 --load 0.3 --seconds 2 --seed 1"
TRACE = Path(__file__).resolve().parents[3] / "examples" / "azure_llm_code_2023_excerpt.csv"
DAY = f"sim day --trace {TRACE} --overhead-ms 20 --item-ms 100 --max-batch 8 --slo-ms 1000 --batch-items 5000"
JOB = "sim job --items 1e6 --workers 10 --rate 100 --window 30m --runs 3"


def test_sim_lanes_gives_the_promised_fields(twoshift: Run) -> None:
    ran = twoshift(f"{LANES} --background --policy twoshift --json")
    assert (ran.code, ran.err) == (0, "")
    assert {"p50_ms", "p99_ms", "offered_per_s", "goodput", "in_slo", "background_per_s"} <= set(ran.json)
    assert ran.json["p99_ms"] < 50


def test_without_background_nothing_rides(twoshift: Run) -> None:
    assert twoshift(f"{LANES} --json").json["background_per_s"] == 0


def test_sim_lanes_compares_all_policies_on_the_same_arrivals(twoshift: Run) -> None:
    policies = twoshift(f"{LANES} --background --compare --json").json["policies"]
    assert set(policies) == {"twoshift", "strict", "window", "greedy"}
    assert len({result["offered_per_s"] for result in policies.values()}) == 1


def test_a_call_budget_bounds_the_live_tail(twoshift: Run) -> None:
    assert twoshift(f"{LANES} --background --call-budget-ms 8 --json").json["p99_ms"] < 16


def test_a_budget_too_small_for_any_background_row_leaves_none_and_says_so(twoshift: Run) -> None:
    ran = twoshift("sim lanes --slo-ms 5 --seconds 1 --background")
    assert ran.code == 0
    assert "No background row runs" in ran.out


def test_sim_lanes_takes_a_trace_and_a_saved_profile(twoshift: Run, samples: Path) -> None:
    assert twoshift(f"plan fit {samples} --save mine").code == 0
    ran = twoshift(f"sim lanes --profile mine --slo-ms 200 --load 0.5 --trace {TRACE} --json")
    assert ran.code == 0, ran.err
    assert ran.json["offered_per_s"] == pytest.approx(0.5 * ran.json["capacity_per_s"])


def test_sim_lanes_takes_lanes_hosts_replicas_and_rows(twoshift: Run) -> None:
    plain = twoshift(f"{LANES} --json").json
    ran = twoshift(f"{LANES} --lanes 2 --replicas 2 --rows 4 --host-ms 0.2 --reply-ms 0.1 --front-ms 0.1 --json")
    assert (ran.code, ran.err) == (0, "")
    assert ran.json["capacity_per_s"] == pytest.approx(2 * plain["capacity_per_s"])
    assert 0 < ran.json["front_share"] < ran.json["host_share"] * 2
    assert plain["host_share"] == plain["front_share"] == 0
    assert twoshift(f"{LANES} --background --overtake --json").json["p99_ms"] < plain["p99_ms"] + 1


@pytest.mark.slow
def test_sim_lanes_takes_what_a_server_says_of_itself(twoshift: Run, folder: Path) -> None:
    limits = LaneLimits(max_rows=64, max_tokens=8192, slo_s=0.2, lanes=2)
    whole, lane = CallCost.line(0.002, 0.0001), CallCost.line(0.003, 0.00015)
    said = derive(lane, limits, RowSize(100.0), 4096, whole).to_dict()
    (folder / "derived.json").write_text(json.dumps(said))
    line = f"sim lanes --server derived.json --trace {TRACE} --scale-lengths 0.1 --load 0.5 --json"
    ran = twoshift(line)
    assert (ran.code, ran.err) == (0, "")
    assert ran.json["p50_ms"] > 2
    assert 2 / lane.seconds(CallSize.uniform(1, 208)) <= ran.json["capacity_per_s"] < 2 / (208 * lane.per_token_s)
    assert twoshift(f"{line} --slo-ms 100").json["p99_ms"] < 100
    assert twoshift(f"{line} --record j.jsonl").code == twoshift("sim replay j.jsonl").code == 0


def test_a_recorded_run_replays_and_a_tampered_one_is_noticed(twoshift: Run, folder: Path) -> None:
    assert twoshift(f"{LANES} --background --record journal.jsonl").code == 0
    replayed = twoshift("sim replay journal.jsonl --json")
    assert (replayed.code, replayed.json["identical"]) == (0, True)
    journal = folder / "journal.jsonl"
    lines = journal.read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith('["decide"') and '"run"' in line)
    entry = json.loads(lines[at])
    entry[3][1] = [12345]
    journal.write_text("\n".join([*lines[:at], json.dumps(entry), *lines[at + 1 :]]))
    ran = twoshift("sim replay journal.jsonl")
    assert ran.code == 1
    assert f"entry {at + 1}" in ran.err


def test_sim_day_gives_both_sides_of_the_comparison(twoshift: Run) -> None:
    ran = twoshift(f"{DAY} --json")
    assert ran.code == 0, ran.err
    assert set(ran.json["device_hours"]) == {"live", "harvested", "dedicated", "idle"}
    assert ran.json["batch"]["done"] == 5000
    assert ran.json["usd"] > 0
    assert ran.json["two_fleets"]["usd"] > 0
    assert ran.json["saved_share"] == pytest.approx(1 - ran.json["usd"] / ran.json["two_fleets"]["usd"])
    assert all(decision["decision"] for decision in ran.json["decisions"])


def test_sim_job_gives_a_distribution_with_and_without_speculation(twoshift: Run) -> None:
    data = twoshift(f"{JOB} --json").json
    assert data["runs"] == 3
    for side in ("with_speculation", "without_speculation"):
        finish = data[side]["finish_s"]
        assert data["ideal_s"] < finish["p10"] <= finish["p50"] <= finish["p99"] <= finish["max"]
        assert 0 <= data[side]["chance"] <= 1
        assert data[side]["usd"] > 0
        assert 0 <= data[side]["lost_share"] < 1


@pytest.mark.parametrize("line", [f"{LANES} --background --compare", DAY, JOB])
@pytest.mark.slow
def test_the_same_seed_prints_the_same_and_a_report_is_one_whole_file(twoshift: Run, folder: Path, line: str) -> None:
    first = twoshift(f"{line} --json --report out.html")
    assert first.code == 0, first.err
    assert first.out == twoshift(f"{line} --json").out
    html = (folder / "out.html").read_text(encoding="utf-8")
    assert html.rstrip().endswith("</html>")
    assert "http" not in html.replace("http://www.w3.org/2000/svg", "")
    for svg in html.split("<svg")[1:]:
        ET.fromstring("<svg" + svg.split("</svg>")[0] + "</svg>")  # noqa: S314 - our own output
    assert [path.name for path in folder.iterdir() if path.name.startswith(".out")] == []


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("sim lanes --load 0", "--load"),
        ("sim lanes --load nan", "--load"),
        ("sim lanes --policy magic", "twoshift, strict, window, greedy"),
        ("sim lanes --slo-ms 1", "--slo-ms"),
        ("sim lanes --overhead-ms 1e-9 --item-ms 1e-9", "--seconds"),
        ("sim lanes --max-batch 0", "--max-batch"),
        ("sim lanes --trace nowhere.csv", "nowhere.csv"),
        ("sim lanes --trace samples.csv", "TIMESTAMP"),
        ("sim lanes --profile nowhere", "nowhere"),
        ("sim lanes --profile x --item-ms 1", "--profile"),
        ("sim lanes --record j.jsonl --policy strict", "--record"),
        ("sim lanes --report no/such/folder/out.html", "no/such/folder"),
        ("sim lanes --report .", "--report"),
        ("sim lanes --lanes 0", "--lanes"),
        ("sim lanes --lanes 2 --overtake", "lanes"),
        ("sim lanes --replicas 2 --record j.jsonl", "replicas"),
        ("sim lanes --server nowhere.json", "nowhere.json"),
        ("sim lanes --server samples.csv", "/v1/derived/{model}"),
        ("sim lanes --server derived.json --lanes 2", "--lanes"),
        ("sim lanes --server derived.json --profile x", "--profile"),
        ("sim day --peak 0", "--peak"),
        ("sim day --batch-items -1", "--batch-items"),
        ("sim day --trough 2", "--trough"),
        ("sim day --slo-ms 1", "--slo-ms"),
        ("sim day --copies 0", "--copies"),
        ("sim job --items 0", "--items"),
        ("sim job --workers 1.5", "--workers"),
        ("sim job --window soon", "--window"),
        ("sim job --slowdown 0.5", "--slowdown"),
        ("sim job --items 1e15", "--items"),
        ("sim job --shard-seconds 1ms", "--shard-seconds"),
        ("sim job --stragglers 1", "--stragglers"),
        ("sim replay nowhere.jsonl", "nowhere.jsonl"),
        ("sim replay samples.csv", "line 1"),
    ],
)
def test_bad_input_names_the_option_and_ends_with_two(twoshift: Run, samples: Path, line: str, told: str) -> None:
    ran = twoshift(line)
    assert ran.code == 2
    assert ran.out == ""
    assert told in ran.err
    assert "Traceback" not in ran.err
