"""How `twoshift run` ends: in peace, by a signal, by its errors; what it says then, and its exit codes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from job_runs import TIMEOUT_S, JobFolder, children, wait_for
from programs import python_path

pytestmark = pytest.mark.slow
SLOW_ROWS = "time.sleep(0.01 * len(x))"


def test_json_is_all_there_is_on_stdout_whatever_a_model_prints(job: JobFolder) -> None:
    job.model("print('working', flush=True); os.system('echo from a child')")
    told = json.loads(job.run("--json", "--price", "3").out)
    assert (told["ending"], told["rows"], told["errors"], told["shards_done"]) == ("done", 300, 0, 6)
    assert told["usd"] > 0
    assert told["dead_shards"] == {}


def test_a_model_that_cannot_be_used_is_explained(job: JobFolder) -> None:
    job.options = ["docs", "--model", "m.py:Cube"]
    assert "Cube" in job.run(expect=2).err
    job.model("raise RuntimeError('no row is good enough')")
    job.options = []
    assert "no row is good enough" in job.run(expect=2).err
    (job.path / "m.py").write_text("class Square:\n def load(self): 1 / 0\n def predict(self, batch): return batch\n")
    assert "ZeroDivisionError" in job.run(expect=None).err
    (job.path / "m.py").write_text("class Square:\n def load(self): pass\n def predict(self, batch): return 1\n")
    done = job.run(expect=None)
    assert done.code in (1, 2)
    assert "predict" in done.err


# What libraries in C++ do at the end of a process would abort this one, as Arrow's threads do now and then
ABORTS_AT_EXIT = """
import ctypes, sys

if "run" in sys.orig_argv:
    libc = ctypes.CDLL(None)
    libc.__cxa_atexit(libc.abort, None, None)
"""


def test_a_job_ends_with_its_own_code_whatever_libraries_do_at_the_end_of_its_process(job: JobFolder) -> None:
    folder = job.path / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(ABORTS_AT_EXIT)
    aborts = {"PYTHONPATH": python_path(str(folder))}
    assert subprocess.run([sys.executable, "-c", "", "run"], env={**os.environ, **aborts}).returncode == -signal.SIGABRT
    assert "Cube" in job.run("--model", "m.py:Cube", expect=2, **aborts).err
    assert json.loads(job.run("--json", expect=0, **aborts).out)["ending"] == "done"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_what_is_in_work_done(job: JobFolder, number: signal.Signals) -> None:
    job.model(SLOW_ROWS)
    process = job.start()
    wait_for(lambda: list(job.out.glob("part-*")), "a first part")
    os.killpg(process.pid, number)  # as a terminal does it: everybody hears of it
    out, err = process.communicate(timeout=120)
    assert process.returncode == 3, err
    assert "Traceback" not in err
    assert "Run the same command again to resume" in out
    done = len(list(job.out.glob("part-*")))
    assert 1 <= done < 6
    job.check_clean()
    left = _report(job)
    assert (left["state"], left["shards_done"], left["rows"], left["shards"]) == ("stopped", done, 50 * done, 6)
    assert "The job is not done" in (job.out / "_twoshift" / "report.html").read_text()
    assert not (job.out / "_SUCCESS").exists()
    assert f"{done} of 6 shards are done" in job.run().err
    job.check_squares(300)
    assert (_report(job)["state"], _report(job)["rows"]) == ("done", 300)


def _report(job: JobFolder) -> Any:
    return json.loads((job.out / "_twoshift" / "report.json").read_text())


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, 130)])
def test_a_signal_before_the_job_has_begun_ends_the_program(job: JobFolder, number: signal.Signals, code: int) -> None:
    os.mkfifo(job.path / "job.toml")
    command, environment = [sys.executable, "-m", "twoshift", "run", "job.toml"], {"PYTHONPATH": python_path()}
    process = subprocess.Popen(command, cwd=job.path, env=os.environ | environment, stderr=subprocess.PIPE, text=True)
    job.started.append(process)
    writers = list[int]()
    wait_for(lambda: process.poll() is not None or _opened(job.path / "job.toml", writers), "a reader of the job file")
    process.send_signal(number)
    _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == code, err  # a shell shows a signal as 128 more than its number
    assert not job.out.exists()
    os.close(writers[0])


def _opened(pipe: Path, into: list[int]) -> bool:
    with contextlib.suppress(OSError):  # nobody reads it yet
        into.append(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
    return bool(into)


def test_a_signal_before_the_first_shard_ends_it_too(job: JobFolder) -> None:
    (job.path / "m.py").write_text((job.path / "m.py").read_text().replace("pass", "time.sleep(3)", 1))
    process = job.start("--json")
    wait_for(lambda: children(process.pid), "a worker")
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 3, err
    assert "Traceback" not in err
    assert json.loads(out)["ending"] == "stopped"
    job.run()
    job.check_squares(300)


def _started_and_stuck(job: JobFolder, *more: str) -> subprocess.Popen[str]:
    """A run in which rows of shard 3, which no sample of the input holds, end once the file `go` is there."""
    stuck = "Path('stuck').touch()", "while not Path('go').exists(): time.sleep(0.01)"
    job.model("\n            ".join(["if ((x >= 164) & (x < 200)).any():", *stuck]))
    process = job.start(*more)
    wait_for((job.path / "stuck").exists, "the rows that stick")
    return process


def _said(process: subprocess.Popen[str], what: str) -> None:
    assert process.stderr is not None
    assert any(what in line for line in process.stderr)


def test_a_stop_does_not_wait_longer_than_its_grace(job: JobFolder) -> None:
    process = _started_and_stuck(job, "--grace", "2s")
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=TIMEOUT_S)  # it would wait for its rows for ever
    assert process.returncode == 3, err
    assert f"{len(list(job.out.glob('part-*')))} of 6 shards are done" in out
    assert not (job.out / "part-000003.parquet").exists()


def test_a_stop_waits_for_what_is_in_work_inside_its_grace(job: JobFolder) -> None:
    process = _started_and_stuck(job, "--grace", "1h")
    process.send_signal(signal.SIGTERM)
    _said(process, "Stopping after the running shards")
    (job.path / "go").touch()
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 3, err
    assert (job.out / "part-000003.parquet").exists()
    assert f"{len(list(job.out.glob('part-*')))} of 6 shards are done" in out


def test_a_second_interrupt_ends_it_now(job: JobFolder) -> None:
    process = _started_and_stuck(job, "--grace", "1h")
    process.send_signal(signal.SIGINT)
    _said(process, "Ctrl-C again")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=TIMEOUT_S)  # its rows and its grace never end
    assert process.returncode == 3
    assert not (job.out / "part-000003.parquet").exists()


def test_too_many_errors_end_it_and_keep_what_was_committed(job: JobFolder) -> None:
    job.model("time.sleep(0.01)\n        if (x >= 150).any(): raise ValueError('too large')")
    done = job.run("--max-errors", "20", expect=4)
    assert "too many rows failed" in done.out
    rows = job.rows()
    assert 150 <= len(rows) < 300
    assert (_report(job)["state"], _report(job)["rows"]) == ("too many errors", len(rows))
    assert _report(job)["error_kinds"] == {"ValueError": _report(job)["errors"]}
    assert not (job.out / "_SUCCESS").exists()
    assert json.loads(job.run("--max-errors", "200", "--json").out)["rows"] == 300


def test_a_shard_that_cannot_be_done_is_named_with_the_cause(job: JobFolder) -> None:
    """A file that is damaged after the job was planned: the others are committed."""
    job.run()
    for name in ("part-000002.parquet", "part-000003.parquet", "part-000005.parquet", "_SUCCESS"):
        (job.out / name).unlink()
    path = job.path / "docs" / "001.parquet"
    stat, data = path.stat(), bytearray(path.read_bytes())
    data[4:400] = bytes(396)  # its pages; the footer stays
    path.write_bytes(data)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    done = job.run(expect=5)
    assert "Shard 2 failed: docs/001.parquet" in done.out
    assert "is damaged" in done.out
    assert max(path.name for path in job.out.glob("part-*")) == "part-000005.parquet"
    assert _report(job)["state"] == "dead shards"
    assert "is damaged" in _report(job)["reason"]
    assert not (job.out / "_SUCCESS").exists()


def test_a_window_that_cannot_be_made_is_told_with_the_workers_that_would(job: JobFolder) -> None:
    job.model("time.sleep(0.01 * len(x))")
    done = job.run("--window", "2s", "--shard-rows", "10")
    warned = [line for line in done.err.splitlines() if "will not finish within 2s" in line]
    assert len(warned) == 1
    assert "workers would finish in time" in warned[0]
