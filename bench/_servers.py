"""Servers in processes of their own: started, waited for, asked, stopped."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "bench"  # what runs share: environments, the model's graph and profile, logs
READY_S, STOP_S = 180.0, 20.0


class Skipped(Exception):
    """A server that cannot be measured here, and why."""


class Reply(NamedTuple):
    """One reply, whole."""

    status: int
    head: bytes
    body: bytes


class Line:
    """A connection that asks one thing after the other."""

    def __init__(self, port: int, timeout_s: float = 60.0) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, request: bytes) -> Reply:
        """Raises OSError where the other side hangs up."""
        self._socket.sendall(request)
        data = b""
        while (end := data.find(b"\r\n\r\n")) < 0:
            data += self._more()
        head = data[:end]
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        size = end + 4 + int(fields.get(b"content-length", b"0"))
        while len(data) < size:
            data += self._more()
        return Reply(int(head[9:12]), head, data[end + 4 :])

    def close(self) -> None:
        self._socket.close()

    def _more(self) -> bytes:
        data = self._socket.recv(1 << 16)
        if not data:
            raise ConnectionResetError("closed in the middle of a reply")
        return data


def free_port() -> int:
    """One that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """A server's: the same model files and profiles for all of them."""
    BUILD.mkdir(parents=True, exist_ok=True)
    return {**os.environ, "TWOSHIFT_HOME": str(BUILD / "home"), "HF_HUB_OFFLINE": "1", **extra}


def forget_profiles() -> None:
    """So that the first server of a run measures its model anew: an older profile may be of a busier machine."""
    shutil.rmtree(BUILD / "home" / "profiles", ignore_errors=True)


@contextlib.contextmanager
def running(name: str, words: Sequence[str], extra: Mapping[str, str] | None = None) -> Iterator[int]:
    """The process's id; its whole group ends with the block. What it says goes into a log."""
    environ = environment(extra or {})
    with log_of(name).open("wb") as log:
        process = subprocess.Popen(
            words, env=environ, cwd=ROOT / "bench", stdout=log, stderr=log, start_new_session=True
        )
    keep_priority(process.pid)
    try:
        yield process.pid
    finally:
        stop(process)


def keep_priority(pid: int) -> None:
    """A process with a session of its own has our priority: with autogroups, `nice` counts only inside a session."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(os.getpriority(os.PRIO_PROCESS, 0)))


def stop(process: subprocess.Popen[bytes]) -> None:
    """In peace, or after a while by force."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def log_of(name: str) -> Path:
    """Where a server's words are."""
    return BUILD / f"{name}.log"


def first_reply(name: str, pid: int, port: int, request: bytes, ready_s: float = READY_S) -> Reply:
    """Asks until the answer is 200; raises Skipped where it never is."""
    until_s = time.monotonic() + ready_s
    reply: Reply | None = None
    while time.monotonic() < until_s and _is_alive(pid):
        with contextlib.suppress(OSError):
            line = Line(port)
            try:
                reply = line.ask(request)
            finally:
                line.close()
            if reply.status == 200:
                return reply
        time.sleep(0.1)
    last = f"; its last reply is {reply.status}: {reply.body[:300]!r}" if reply else ""
    raise Skipped(f"{name} does not answer{last}\n{log_of(name).read_text(errors='replace')[-1500:]}")


def wait_for(port: int, ready_s: float = READY_S) -> None:
    """Until somebody listens there."""
    until_s = time.monotonic() + ready_s
    while True:
        try:
            return Line(port).close()
        except OSError:
            if time.monotonic() > until_s:
                raise
            time.sleep(0.05)


def _is_alive(pid: int) -> bool:
    with contextlib.suppress(ChildProcessError):
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    return False


def cpu_s(pid: int) -> tuple[float, float]:
    """Seconds that its threads have been on a core: its first one, where the loop is, and the others."""
    used_s = [0.0, 0.0]
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # a thread that ends meanwhile
            used_s[task.name != str(pid)] += int((task / "schedstat").read_text().split()[0]) / 1e9
    return used_s[0], used_s[1]


def tree_cpu_s(pid: int) -> dict[int, float]:
    """Seconds that a process and all that it has started have been on cores, of each."""
    used_s, parents = dict[int, float](), dict[int, int]()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # a process that ends meanwhile
            words = (folder / "stat").read_text().rpartition(")")[2].split()
            parents[int(folder.name)] = int(words[1])
            used_s[int(folder.name)] = (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
    inside, found = {pid}, 0
    while found < len(inside):
        found = len(inside)
        inside |= {each for each, parent in parents.items() if parent in inside}
    return {each: used_s[each] for each in inside if each in used_s}
