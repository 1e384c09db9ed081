"""Jobs whose processes are killed, at every write point and at random moments: nothing is lost or there twice."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from job_runs import JobFolder, children, end_group, wait_for
from programs import python_path

pytestmark = pytest.mark.slow
DRIVER = str(Path(__file__).parent / "killer" / "every_point.py")
KILLER = str(Path(__file__).parent / "killer")
MOMENTS = int(os.environ.get("TWOSHIFT_FAULTS", "12"))
ROWS, PARTS = 100, 2  # small: every write point is a run and its resume
MOST_POINTS = 60


def _killed_at(job: JobFolder, role: str, who: str, at: int) -> bool:
    """A run that is killed there and the one after it; False where it ended before it came so far."""
    out, mark = f"out-{role}-{who}-{at}", job.path / f"mark-{role}-{who}-{at}"
    environment = {
        "KILL_AT": f"{role}:{who}:{at}",
        "KILL_MARK": str(mark),
        "KILL_FOLDER": str(job.path / out),
        "PYTHONPATH": python_path(KILLER),
    }
    done = job.run("-o", out, expect=None, **environment)
    if not mark.exists():
        assert done.code == 0
        return False
    before = {path.name: path.read_bytes() for path in (job.path / out).glob("part-*")}
    if who == "self" and role == "worker":
        assert done.code == 0, done.err  # another worker took over
        job.check_squares(ROWS, out)
        return True
    assert done.code == -signal.SIGKILL
    job.run("-o", out)
    job.check_squares(ROWS, out)
    assert before.items() <= {path.name: path.read_bytes() for path in (job.path / out).glob("part-*")}.items()  # I1
    return True


@pytest.mark.parametrize("remainder", range(4))
def test_a_kill_of_everything_at_any_write_point_loses_nothing(job: JobFolder, remainder: int) -> None:
    """Workers as threads of the coordinator: a kill ends them all at the same write."""
    _one_file(job)
    words = [sys.executable, DRIVER, str(remainder), "4"]
    done = subprocess.run(words, cwd=job.path, capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stderr
    killed = [int(at) for at in done.stdout.split()]
    assert len(killed) >= 10  # mkdir, open, fsync, link, unlink of plan, parts, records, manifest, reports, _SUCCESS
    for at in killed:
        job.check_squares(ROWS, f"out-{at}")


def test_a_kill_of_a_worker_at_any_write_point_loses_nothing(job: JobFolder) -> None:
    """Each a process of its own; `make fault` does it with those that the program starts."""
    _one_file(job)
    env = {**os.environ, "PYTHONPATH": python_path(KILLER, str(Path(__file__).parent))}
    words = [sys.executable, "-c", "import worker_points; worker_points.main()"]
    done = subprocess.run(words, cwd=job.path, env=env, capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stderr
    killed = [int(at) for at in done.stdout.split()]
    assert 10 <= len(killed) < MOST_POINTS
    for at in killed:
        job.check_squares(ROWS, f"out-{at}")


@pytest.mark.skipif(MOMENTS <= 12, reason="`make fault` does it")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("remainder", range(4))
@pytest.mark.parametrize(
    ("role", "who"), [("coordinator", "self"), ("coordinator", "all"), ("worker", "all"), ("worker", "self")]
)
def test_a_kill_of_real_processes_at_any_write_point(job: JobFolder, role: str, who: str, remainder: int) -> None:
    _one_file(job)
    points = [at for at in range(1, MOST_POINTS) if at % 4 == remainder]
    killed = list(itertools.takewhile(lambda at: _killed_at(job, role, who, at), points))
    assert 2 <= len(killed) < len(points)


def _one_file(job: JobFolder) -> None:
    job.parquet(files=1, rows=ROWS)
    for path in (job.path / "docs").glob("00[12].parquet"):
        path.unlink()


@pytest.mark.parametrize("seed", range(MOMENTS))
def test_a_kill_at_a_random_moment_loses_nothing(job: JobFolder, seed: int) -> None:
    """Once or twice, with a plan and before the end."""
    chance = random.Random(seed)  # noqa: S311
    job.model("time.sleep(0.005 * len(x))")
    who = chance.choice(["worker", "coordinator", "all"])
    before: dict[str, bytes] = {}
    for _ in range(1 if who == "worker" else 1 + seed % 2):  # the job outlives a worker, and ends
        before |= _killed_in_work(job, who, str(1 + seed % 2), chance.uniform(0.0, 0.5))
    job.run()
    job.check_squares(300)
    assert before.items() <= _parts(job).items()  # I1


def _killed_in_work(job: JobFolder, who: str, workers: str, after_s: float) -> dict[str, bytes]:
    """A run that is killed so long after it has a plan and workers; the parts that are there then."""
    process = job.start("--workers", workers)
    try:
        plan = job.out / "_twoshift" / "plan.json"
        wait_for(lambda: process.poll() is not None or (plan.exists() and children(process.pid)), "a plan")
        assert process.poll() is None, process.communicate()
        time.sleep(after_s)
        is_done, found = (job.out / "_SUCCESS").exists(), _parts(job)
        _kill(process.pid, who)
        _, err = process.communicate(timeout=120)
    finally:
        end_group(process)
    assert not is_done
    assert process.returncode == (0 if who == "worker" else -signal.SIGKILL), err
    return found


def _parts(job: JobFolder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in job.out.glob("part-*")}


def _kill(pid: int, who: str) -> None:
    if who == "all":
        os.killpg(pid, signal.SIGKILL)
    elif who == "coordinator":
        os.kill(pid, signal.SIGKILL)
    else:
        os.kill(children(pid)[0], signal.SIGKILL)


def test_workers_end_when_their_coordinator_is_killed(job: JobFolder) -> None:
    job.model("time.sleep(0.01 * len(x))")
    process = job.start("--workers", "2")
    try:
        wait_for(lambda: list(job.out.glob("part-*")), "a first part")
        workers = children(process.pid)
        assert len(workers) == 2
        os.kill(process.pid, signal.SIGKILL)
        wait_for(lambda: not any(_is_alive(pid) for pid in workers), "the end of the workers", 10)
    finally:
        end_group(process)


def _is_alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[0]
    except OSError:
        return False


def test_a_killed_worker_costs_its_shard_and_the_job_goes_on(job: JobFolder) -> None:
    job.model("time.sleep(0.005 * len(x))")
    process = job.start("--json")
    try:
        wait_for(lambda: list(job.out.glob("part-*")), "a first part")
        os.kill(children(process.pid)[0], signal.SIGKILL)
        out, err = process.communicate(timeout=120)
    finally:
        end_group(process)
    assert process.returncode == 0, err
    assert "killed by SIGKILL" in out
    job.check_squares(300)


def test_every_worker_killed_at_once_ends_nothing(job: JobFolder) -> None:
    job.model("time.sleep(0.02 * len(x))")
    process = job.start("--workers", "6")
    try:
        wait_for(lambda: list(job.out.glob("part-*")), "a first part")
        for child in children(process.pid):
            os.kill(child, signal.SIGKILL)
        _, err = process.communicate(timeout=90)
    finally:
        end_group(process)
    assert process.returncode == 0, err
    job.check_squares(300)


def test_what_a_killed_worker_had_begun_is_cleared_away(job: JobFolder) -> None:
    job.run()
    staging = job.out / "_twoshift" / "staging"
    begun = [
        staging / "part-000001.parquet.1.abc",
        job.out / ".abc.twoshift-tmp",
        job.out / "_twoshift/.x.twoshift-tmp",
    ]
    for path in begun:
        path.write_bytes(b"half of it")
    (job.out / "part-000001.parquet").unlink()
    job.run()
    assert not any(path.exists() for path in begun)
    job.check_squares(300)
