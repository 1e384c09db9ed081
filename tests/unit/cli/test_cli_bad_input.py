from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sampling import examples
from twoshift.cli import main

Run = Callable[[str], Any]
REPLICAS = "plan replicas --ttft-ms 1 --tpot-ms 1 --output-tokens 1 --tokens-per-s 1"
COST = "plan cost --overhead-ms 6 --item-ms 1 --batch 1"


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("plan cost --overhead-ms 6 --item-ms nan --batch 1", "--item-ms", "nan"),
        ("plan cost --overhead-ms -6 --item-ms 1 --batch 1", "--overhead-ms", "-6"),
        ("plan cost --overhead-ms 6 --item-ms 0 --batch 1", "--item-ms", "'0'"),
        ("plan cost --overhead-ms 6 --item-ms 1e400 --batch 1", "--item-ms", "1e400"),
        ("plan cost --overhead-ms 6 --item-ms 1 --batch 0", "--batch", "'0'"),
        ("plan cost --overhead-ms 6 --item-ms 1 --batch 1.5", "--batch", "1.5"),
        ("plan cost --overhead-ms 6 --item-ms 1 --batch 99999999999999999999", "--batch", "9999"),
        (f"{COST} --price [bold]", "--price", "[bold]"),
        (f"{COST} --price inf", "--price", "inf"),
        (f"{COST} --price 1 --price 2", "--price", "[1.0, 2.0]"),
        (f"{COST} --row-tokens 5", "--row-tokens", "5.0"),
        (f"{COST} --profile x", "--profile", "x"),
        ("plan cap --overhead-ms 6 --item-ms 1 --slo-ms 100 --share 1.5", "--share", "1.5"),
        ("plan cap --overhead-ms 6 --item-ms 1 --slo-ms 100 --share 0", "--share", "'0'"),
        ("plan cap --profile nope --slo-ms 5", "--profile", "nope"),
        ("plan fleet --items 1e400 --rate 1 --window 1h --price 1", "--items", "1e400"),
        ("plan fleet --items 1e9 --rate 1 --window 12x --price 1", "--window", "12x"),
        ("plan fleet --items 1e9 --rate 1 --window 1h --price 1 --spot-discount 1", "--spot-discount", "'1'"),
        ("plan fleet --items 1e9 --rate 1 --window 30s --price 1", "--shard-seconds", "60.0"),
        ("plan memory --params 7B --precision fp9", "--precision", "fp9"),
        ("plan cold-start --bytes 130GB --bandwidth 0", "--bandwidth", "'0'"),
        ("plan roofline --device H10 --params 7B", "--device", "did you mean H100?"),
        (f"{REPLICAS} --rate 1 --peak-to-average 0.5", "--peak-to-average", "0.5"),
    ],
)
def test_a_bad_value_is_refused_naming_the_option_the_value_and_what_is_accepted(
    twoshift: Run, line: str, field: str, value: str
) -> None:
    ran = twoshift(line)
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err.startswith(f"twoshift: {field}: ")
    assert value in ran.err
    assert "; expected " in ran.err or "cannot be used with" in ran.err


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("plan cost --overhead-ms 6 --item-ms 1", "--batch"),
        ("plan cost --overhead-ms 6 --batch 1", "--item-ms is missing"),
        ("plan cost --overhead-ms", "--overhead-ms"),
        ("plan cost --overheadms 6", "--overhead-ms"),
        ("plan csot", "Did you mean 'cost'"),
        ("plna", "Did you mean 'plan'"),
        ("plan fit a.csv b.csv", "b.csv"),
        ("plan roofline --device H100", "--params is missing"),
        ("plan roofline --params 7B", "--device is missing"),
        ("plan memory --params 7B --layers 3", "--kv-heads is missing"),
        ("plan tokens --tokens-per-s 5 --price 1 --batch-from 3", "--overhead-ms is missing"),
        ("plan tokens --tokens-per-s 5 --price 1 --params 7B", "--to-params is missing"),
        ("plan tokens --tokens-per-s 5 --price 1 --quantisation-speedup 2", "--quantisation is missing"),
        (REPLICAS, "--rate is missing"),
        ("plan regime", "--waiting is missing"),
    ],
)
def test_bad_usage_says_what_is_missing_or_nearest(twoshift: Run, line: str, words: str) -> None:
    ran = twoshift(line)
    assert ran.code == 2
    assert ran.out == ""
    assert words in ran.err


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"batch,ms\n", "at least two measured calls"),
        (b"a,b\n1,2\n", "columns `batch, ms` or `rows, tokens, longest, ms`"),
        (b"batch,ms\n1,6\n2,[red]x\n", "line 3, ms: '[red]x'"),
        (b"batch,ms\n1,6\n2,nan\n", "line 3, ms: 'nan'"),
        (b"batch,ms\n1,6\n2,1e999\n", "line 3, ms: '1e999'"),
        (b"batch,ms\n1,6\n-2,4\n", "line 3, batch: '-2'"),
        (b"batch,ms\n1.5,6\n2,4\n", "line 2, batch: '1.5'"),
        (b"batch,ms\n1,6\n2\n", "line 3, ms is missing"),
        (b"batch,ms\n1,6\n1,7\n", "at least two different sizes"),
        (b'batch,ms\n1,"6\n', "comma-separated values"),
        (b"batch,ms\n\x00\x01\xff", "UTF-8; line 2"),
        (b"batch,ms\n1,\x002\n", "binary"),
        (b"rows,tokens,longest,ms\n4,2,1,6\n", "line 2, tokens: '2'"),
        (b"rows,tokens,longest,ms\n4,40,60,6\n", "line 2, longest: 60"),
        (b"\n\n\n", "empty"),
    ],
)
def test_a_file_that_is_no_sample_file_is_refused_naming_the_place(
    twoshift: Run, folder: Path, content: bytes, words: str
) -> None:
    (folder / "s.csv").write_bytes(content)
    ran = twoshift("plan fit s.csv --json")
    assert ran.code == 2
    assert ran.out == ""
    assert words in ran.err


@pytest.mark.parametrize("path", ["nope.csv", ".", "/dev/zero", "a/b/c.csv"])
def test_a_path_that_is_no_file_is_refused(twoshift: Run, path: str) -> None:
    ran = twoshift(f"plan fit {path}")
    assert ran.code == 2
    assert ran.err.startswith("twoshift: SAMPLES: ")
    assert path in ran.err


@pytest.mark.parametrize("name", ["../x", "a/b", "a b", ".."])
def test_a_profile_name_that_leaves_the_folder_is_refused(
    twoshift: Run, samples: Path, folder: Path, name: str
) -> None:
    ran = twoshift(f"plan fit samples.csv --save '{name}'")
    assert ran.code == 2
    assert "--save" in ran.err
    assert not (folder / "home").exists()


def test_extreme_but_valid_values_still_give_valid_json(twoshift: Run) -> None:
    ran = twoshift(
        "plan fleet --items 1e18 --rate 1e-12 --window 1e18 --price 1e18 --preemptions-per-hour 0.1 "
        "--restart 1e18 --json"
    )
    assert ran.code == 0
    assert ran.json["workers"] > 0


class _Gone(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError(32, "Broken pipe")


def test_a_reader_that_went_away_is_no_traceback(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", _Gone())
    assert main(["plan", "cap", "--overhead-ms", "6", "--item-ms", "1", "--slo-ms", "100", "--json"]) == 141


def test_a_full_disk_is_no_traceback(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    with Path("/dev/full").open("w") as full, contextlib.redirect_stdout(full):
        code = main(["plan", "cap", "--overhead-ms", "6", "--item-ms", "1", "--slo-ms", "100", "--json"])
    assert code == 1
    assert os.strerror(28) in capsys.readouterr().err


def test_control_c_ends_with_130(twoshift: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("twoshift.cli.plan.calls.cap", interrupt)
    assert twoshift("plan cap --overhead-ms 6 --item-ms 1 --slo-ms 100").code == 130


OPTIONS = {
    "cost": ["--overhead-ms", "--item-ms", "--batch", "--price", "--slo-ms", "--row-tokens", "--profile"],
    "cap": ["--overhead-ms", "--item-ms", "--slo-ms", "--share", "--quantile"],
    "fleet": ["--items", "--rate", "--window", "--price", "--spot-discount", "--restart", "--straggler-margin"],
    "memory": ["--params", "--precision", "--layers", "--kv-heads", "--head-dim", "--tokens", "--device-memory"],
    "regime": ["--p99-ms", "--ttft-ms", "--freshness", "--precomputable"],
}
VALUES = st.one_of(
    st.text(max_size=8),
    st.floats().map(repr),
    st.integers(-(10**25), 10**25).map(str),
    st.sampled_from(["12h", "7B", "80GB", "40%", "1e-12", "1e18", "0", "-0", "1e308", "١٢", "1_0", "--", "[/red]"]),
)


@st.composite
def _lines(draw: st.DrawFn) -> list[str]:
    name = draw(st.sampled_from(sorted(OPTIONS)))
    line = ["plan", name, *draw(st.sampled_from([[], ["--json"]]))]
    for option in OPTIONS[name]:
        if draw(st.integers(0, 4)):
            line += [option, draw(VALUES)]
    return line


@settings(max_examples=examples(150))
@given(_lines())
def test_whatever_is_typed_ends_in_0_or_2_and_never_in_a_traceback(line: list[str]) -> None:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(line)
    assert code in (0, 2), err.getvalue()
    assert "Traceback" not in err.getvalue()
    if code == 2:
        assert err.getvalue()
