from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[[str], Any]
REPLICAS = "plan replicas --concurrency 100 --ttft 500ms --tpot 50ms --output-tokens 200"


def test_plan_cost_gives_the_figures_of_r1_1(twoshift: Run) -> None:
    ran = twoshift(
        "plan cost --overhead-ms 6 --item-ms 0.18 --batch 1 --batch 512 --price 3.00 --price 0.90 --slo-ms 50 --json"
    )
    online, offline = ran.json["rows"]
    assert ran.code == 0
    assert online["item_ms"] == pytest.approx(6.18)
    assert round(online["items_per_hour"]) == 582_524
    assert online["usd_per_million"] == pytest.approx(5.15)
    assert offline["call_ms"] == pytest.approx(98.16)
    assert round(offline["items_per_hour"]) == 18_777_506
    assert offline["usd_per_million"] == pytest.approx(0.0479, abs=5e-5)
    assert (online["within_slo"], offline["within_slo"]) == (True, False)
    assert round(ran.json["throughput_gain"], 1) == 32.2
    assert round(ran.json["cost_gain"], 1) == 107.4


def test_the_cost_table_for_people_shows_the_same_figures(twoshift: Run) -> None:
    ran = twoshift("plan cost --overhead-ms 6 --item-ms 0.18 --batch 1 --batch 512 --price 3 --price 0.9")
    assert ran.err == ""
    for figure in ("582,524", "18,777,506", "5.15", "0.0479", "98.16", "32.2x", "107.4x"):
        assert figure in ran.out


def test_plan_sweep_names_the_knee_and_says_why_online_refuses_it(twoshift: Run) -> None:
    line = "plan sweep --overhead-ms 6 --item-ms 0.18 --slo-ms 50"
    ran = twoshift(f"{line} --json")
    assert [r["batch"] for r in ran.json["rows"]] == [2**k for k in range(10)]
    assert (ran.json["knee"], ran.json["knee_within_slo"]) == (512, False)
    people = twoshift(line)
    assert "too large for online serving" in people.out
    assert "SLO 50 ms" in people.out
    assert "knee 512" in people.out
    assert all(len(text) <= 80 for text in people.out.splitlines())


def test_the_chart_is_drawn_in_ascii_where_nothing_else_can_be_shown(
    twoshift: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twoshift.cli.plan.calls.unicode_ok", lambda: False)
    ran = twoshift("plan sweep --overhead-ms 6 --item-ms 0.18 --slo-ms 50")
    assert "o ms per call   * ms per item" in ran.out
    assert not set("○●┄┊┤") & set(ran.out)


@pytest.mark.parametrize("batches", ["--batch 7", "--batch 1 --batch 1000000000000", "--batch 3 --batch 2 --batch 3"])
def test_a_sweep_takes_any_list_of_sizes(twoshift: Run, batches: str) -> None:
    line = f"plan sweep --overhead-ms 0 --item-ms 0.18 --slo-ms 50 {batches}"
    assert twoshift(line).code == 0
    found = [r["batch"] for r in twoshift(f"{line} --json").json["rows"]]
    assert found == sorted(set(found))


def test_plan_cap_gives_170_items_and_says_what_preemption_changes(twoshift: Run) -> None:
    line = "plan cap --overhead-ms 6 --item-ms 0.2 --slo-ms 100 --share 0.4"
    ran = twoshift(f"{line} --json")
    assert ran.json["batch"] == 170
    assert ran.json["call_ms"] == pytest.approx(40.0)
    assert ran.json["efficiency"] == pytest.approx(0.85)
    assert "between two background calls" in ran.json["words"]
    assert "between two background calls" in " ".join(twoshift(line).out.split())


def test_plan_fleet_shows_over_right_and_under(twoshift: Run) -> None:
    ran = twoshift(
        "plan fleet --items 1e9 --rate 2000 --window 12h --price 2.50 --spot-discount 0.6 "
        "--preemptions-per-hour 0.1 --shard-seconds 60 --straggler-margin 0.1 --json"
    )
    assert ran.json["workers"] == 13
    assert [r["workers"] for r in ran.json["rows"]] == [26, 13, 6]
    assert {"workers", "finish_s", "makes_window", "usd", "idle_usd"} <= set(ran.json["rows"][0])


def test_a_fit_recovers_the_curve_and_holds_out_the_size_it_predicts(twoshift: Run, samples: Path) -> None:
    made = twoshift("plan fit samples.csv --predict 1024 --json").json
    assert made["shape"] == "line"
    assert made["overhead_ms"] == pytest.approx(6, rel=0.01)
    assert made["item_ms"] == pytest.approx(0.18, rel=0.01)
    assert made["predicted_ms"] == pytest.approx(190.32, rel=0.01)
    assert made["measured_ms"] == pytest.approx(190.32)
    assert made["predicted_error"] < 0.01
    assert (made["samples"], made["knee"]) == (10, 512)


def test_a_size_that_was_not_measured_has_no_measured_time(twoshift: Run, samples: Path) -> None:
    made = twoshift("plan fit samples.csv --predict 4096 --json").json
    assert made["predicted_ms"] == pytest.approx(6 + 0.18 * 4096, rel=0.01)
    assert made["measured_ms"] is None
    assert made["predicted_error"] is None


def test_a_fit_over_tokens_predicts_rows_of_the_mean_length(twoshift: Run, folder: Path) -> None:
    lines = [
        f"{rows},{rows * length},{length},{max(0.6, 0.1 + 0.0005 * rows * length)}"
        for rows in (1, 4, 16, 64)
        for length in (10, 100, 400)
    ]
    (folder / "calls.csv").write_text("\n".join(["rows,tokens,longest,ms", *lines]))
    made = twoshift("plan fit calls.csv --predict 128 --json").json
    assert made["shape"] == "hinge"
    assert made["floor_ms"] == pytest.approx(0.6, rel=0.02)
    assert made["row_tokens"] == pytest.approx(170)
    assert made["predicted_ms"] == pytest.approx(0.1 + 0.0005 * 128 * 170, rel=0.02)


def test_a_fit_reads_windows_files_with_a_byte_order_mark(twoshift: Run, folder: Path) -> None:
    (folder / "s.csv").write_bytes("\ufeffBatch, MS\r\n1,6.18\r\n2,6.36\r\n\r\n64,17.52\r\n".encode())
    assert twoshift("plan fit s.csv --json").code == 0


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("plan memory --params 7B --precision fp16", "weights_bytes", 14e9),
        ("plan cold-start --bytes 130GB --bandwidth 5GB/s", "cold_start_s", 26),
        ("plan roofline --device H100 --params 7B", "ridge", 295.2),
        ("plan roofline --device h200 --params 7B", "ridge", 206.0),
        ("plan roofline --tflops 989 --bandwidth 3.35TB/s --flops 1e12 --moved 1GB", "intensity", 1000),
        ("plan tokens --tokens-per-s 1000 --price 3.60", "usd_per_million_tokens", 1.0),
        (f"{REPLICAS} --tokens-per-s 1000", "end_to_end_s", 10.5),
    ],
)
def test_the_other_commands_give_their_reference_figures(twoshift: Run, line: str, field: str, value: float) -> None:
    assert twoshift(f"{line} --json").json[field] == pytest.approx(value, rel=1e-3)


@pytest.mark.parametrize(
    ("words", "regime"),
    [
        ("--waiting --p99-ms 80", "online"),
        ("--ttft-ms 400", "interactive"),
        ("--nobody-waiting --known", "batch"),
        ("--known", "batch"),
        ("--freshness 5m", "micro-batch"),
        ("--waiting --p99-ms 80 --precomputable 90%", "hybrid"),
    ],
)
def test_plan_regime_names_the_regime(twoshift: Run, words: str, regime: str) -> None:
    made = twoshift(f"plan regime {words} --json").json
    assert made["regime"] == regime
    assert made["deciding_property"]
    assert made["hardware"]


def test_units_are_accepted_as_people_write_them(twoshift: Run) -> None:
    plain = twoshift("plan fleet --items 400000000 --rate 2000 --window 43200 --price 2.5 --json")
    people = twoshift("plan fleet --items 400M --rate 2k --window 12h --price '$2.50' --json")
    assert people.json == plain.json
    assert (
        twoshift("plan cap --overhead-ms 6ms --item-ms 200e-6s --slo-ms 0.1s --share 40% --json").json["batch"] == 170
    )
