"""Jobs as the tests run them: the real program, a small model of the user's own, and what it leaves behind."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from programs import PROGRAM, command, python_path
from user_models import square

TIMEOUT_S = 120


@dataclass
class JobFolder:
    """A folder with a model, its input and a command line."""

    path: Path
    options: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def end(self) -> None:
        """Whatever a test that failed has left running."""
        for process in self.started:
            end_group(process)

    @property
    def out(self) -> Path:
        return self.path / "out"

    def model(self, body: str = "time.sleep(0.002)") -> None:
        """x squared; `body` is what else it does with x, an array."""
        (self.path / "m.py").write_text(square(body))

    def parquet(self, files: int = 3, rows: int = 100) -> None:
        """Rows with the columns id and x, both counted over all files."""
        (self.path / "docs").mkdir(exist_ok=True)
        for number in range(files):
            ids = range(number * rows, (number + 1) * rows)
            table = pa.table({"id": pa.array(ids, pa.int64()), "x": pa.array([float(k) for k in ids])})
            pq.write_table(table, self.path / "docs" / f"{number:03d}.parquet")

    def words(self, *more: str) -> list[str]:
        """The command."""
        given = [] if "-o" in more else ["-o", "out"]
        return [PROGRAM, "run", *(self.options or SQUARES), *given, *more]

    def start(self, *more: str, **environment: str) -> subprocess.Popen[str]:
        """The program, running in a session of its own."""
        home = {"TWOSHIFT_HOME": str(self.path / "home")}
        process = subprocess.Popen(
            self.words(*more),
            cwd=self.path,
            env={**os.environ, "PYTHONPATH": python_path(), **home, **self.environment, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def run(self, *more: str, expect: int | None = 0, **environment: str) -> Done:
        """The command to its end, with forked workers; in a process of its own where its environment is another."""
        if environment or self.environment:
            return self.program(*more, expect=expect, **environment)
        home = {"TWOSHIFT_HOME": str(self.path / "home"), "PYTHONPATH": python_path()}
        told = command(*self.words(*more)[1:], env=home, cwd=self.path)
        return Done(told.returncode, told.stdout, told.stderr).checked(expect)

    def program(self, *more: str, expect: int | None = 0, **environment: str) -> Done:
        """The same in a process of its own with workers as the program starts them; it takes two seconds longer."""
        process = self.start(*more, **environment)
        try:
            out, err = process.communicate(timeout=TIMEOUT_S)
        finally:
            end_group(process)
        return Done(process.returncode, out, err).checked(expect)

    def rows(self, out: str = "out") -> list[dict[str, Any]]:
        """What is committed, in the order of the parts."""
        paths = sorted((self.path / out).glob("part-*.parquet"))
        return [row for path in paths for row in pq.read_table(path).to_pylist()]

    def check_squares(self, count: int, out: str = "out") -> None:
        """Every row once, in order, with its value and nothing besides."""
        rows = self.rows(out)
        assert [row["id"] for row in rows] == list(range(count))
        assert [row["squared"] for row in rows] == [float(k) ** 2 for k in range(count)]
        assert {row["error"] for row in rows} <= {None}
        assert (self.path / out / "_SUCCESS").exists()
        self.check_clean(out)

    def check_clean(self, out: str = "out") -> None:
        """Nothing is left of what was begun and not finished."""
        names = [path.name for path in (self.path / out).rglob("*") if path.is_file()]
        assert [name for name in names if name.endswith(".twoshift-tmp") or name.count(".") > 1] == []


SQUARES = ["docs", "--model", "m.py:Square", "--columns", "x", "--keep", "id", "--shard-rows", "50"]


@dataclass(frozen=True)
class Done:
    """A run that has ended."""

    code: int
    out: str
    err: str

    def checked(self, expect: int | None) -> Done:
        """Itself, if it ended as expected."""
        assert "Traceback" not in self.err, self.err
        assert expect is None or self.code == expect, self
        return self


def end_group(process: subprocess.Popen[str]) -> None:
    """Whatever is left of a run: only what it started itself."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, 9)
    process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def wait_for(holds: Callable[[], object], what: str, timeout_s: float = 150.0) -> None:
    """Look until it holds."""
    until_s = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < until_s, what
        time.sleep(0.01)


def children(pid: int) -> list[int]:
    """The workers of a run; multiprocessing's own helper is not one."""
    return _children(pid, b"spawn_main")


def preparers(worker: int) -> list[int]:
    """The preparing processes of a worker or of a server."""
    return _children(worker, b"twoshift.batch.preparing")


def _children(pid: int, program: bytes) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rpartition(") ")[2].split()[1])
            is_one = program in (entry / "cmdline").read_bytes()
        except (OSError, IndexError):
            continue
        if parent == pid and is_one:
            found.append(int(entry.name))
    return found
