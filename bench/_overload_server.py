"""A server under test, what it is asked, and the job that may run beside."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from _corpus import documents, queries
from _load import post
from _overload_cells import Served
from _servers import BUILD, Line, environment, first_reply, free_port, running

PATIENT_MS = 10_000
NAME = "served"  # as clients call the model
_TOKENS, _REQUESTS, _LONE = 16, 256, 15
_JOB_ROWS = {"minilm": 20_000, "bert": 400_000, "slow": 60_000, "echo": 400_000}  # of a file
_JOB_FILES = {"bert": 4, "echo": 40}  # so that no job ends within a minute
_JOB_WAIT_S = 60.0


@cache
def tokenizer() -> Path:
    from twoshift.runtime.encoder.folder import find_minilm

    return find_minilm() / "tokenizer.json"


@cache
def requests(rows: int, patient: bool = False) -> list[bytes]:
    """All different; a patient one has time enough to be answered whatever is before it."""
    texts = queries(tokenizer(), _REQUESTS * (1 if rows > 1 else 4), _TOKENS)
    headers = ["content-type: application/json", *([f"x-request-timeout-ms: {PATIENT_MS}"] if patient else [])]

    def request(at: int) -> bytes:
        given = texts[at] if rows == 1 else [texts[(at + k) % len(texts)] for k in range(rows)]
        body = {"model": NAME, "input": given, "encoding_format": "base64"}
        return post("/v1/embeddings", json.dumps(body).encode(), headers)

    return [request(at) for at in range(len(texts))]


class Server:
    """It runs, and answers."""

    def __init__(self, served: Served, port: int, pid: int, folder: Path) -> None:
        self.served, self.port, self.pid, self._folder = served, port, pid, folder
        self._jobs = 0

    def get(self, path: str, method: str = "GET") -> Any:
        """Its JSON."""
        line = Line(self.port)
        try:
            reply = line.ask(f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 0\r\n\r\n".encode())
        finally:
            line.close()
        return json.loads(reply.body) if reply.body.startswith(b"{") else reply.body.decode()

    def alone_s(self, rows: int) -> float:
        """The median of requests one by one."""
        line, took_s = Line(self.port), list[float]()
        for request in requests(rows, patient=True)[:_LONE]:
            began_s = time.perf_counter()
            line.ask(request)
            took_s.append(time.perf_counter() - began_s)
        line.close()
        return statistics.median(took_s)

    def batch_rows(self) -> float:
        """What jobs have had so far."""
        found = re.findall(r'^twoshift_rows_total\{[^}]*lane="batch"[^}]*\} (\S+)$', self.get("/metrics"), re.MULTILINE)
        return sum(map(float, found))

    @contextlib.contextmanager
    def job(self, inputs: Sequence[Path] = ()) -> Iterator[None]:
        """One that is at work beside what happens in the block; over these files, or the model's own."""
        self._jobs += 1
        output, before = self._folder / f"out-{self._jobs}", self.batch_rows()
        words = [
            "run",
            *map(str, inputs or _job_inputs(self.served.model)),
            "--model",
            NAME,
            "--text",
            "text",
            "-o",
            str(output),
        ]
        words += ["--on", f"http://127.0.0.1:{self.port}", "--detach", "--json"]
        done = subprocess.run([sys.executable, "-m", "twoshift", *words], env=environment({}), capture_output=True)
        if done.returncode:
            raise RuntimeError(f"the job does not start: {done.stderr.decode()}")
        path = f"/v1/jobs/{json.loads(done.stdout)['id']}"
        _wait(lambda: self.batch_rows() > before, f"the job does not begin: {self.get(path)}")
        try:
            yield
            state = self.get(path)["state"]
        finally:  # the next measurement has no job beside it
            self.get(f"{path}/cancel", "POST")
            _wait(lambda: self.get(path)["state"] in ("cancelled", "done", "failed"), "the job does not end")
        if state != "running":
            raise RuntimeError(f"the job is {state} before its cell ends")


def _wait(holds: Any, why: str) -> None:
    until_s = time.monotonic() + _JOB_WAIT_S
    while not holds():
        if time.monotonic() > until_s:
            raise RuntimeError(why)
        time.sleep(0.05)


@cache
def _job_inputs(model: str) -> list[Path]:
    """Texts, as JSON lines; short ones where a row costs the same whatever it holds. All files are one on the disk."""
    paths = [BUILD / f"overload-{model}-{at}.jsonl" for at in range(_JOB_FILES.get(model, 1))]
    if not paths[-1].exists():
        is_encoder = model in ("minilm", "bert")
        texts = documents(tokenizer(), 20_000, 65, 510) if is_encoder else ["a red fox"]
        lines = (json.dumps({"text": texts[at % len(texts)]}) for at in range(_JOB_ROWS[model]))
        paths[0].write_text("".join(f"{line}\n" for line in lines))
        for path in paths[1:]:
            path.unlink(missing_ok=True)
            path.hardlink_to(paths[0])
    return paths


def model_words(name: str) -> list[str]:
    """As `serve` and `run` take it."""
    match name:
        case "slow" | "echo":
            return [f"_overload_models.py:{name.capitalize()}"]
        case "bert":
            return [str(made_folder("bert-base")), "--device", "cuda"]
        case _:
            return [name]


@cache
def made_folder(size: str) -> Path:
    """Random weights of that size, made once in a run."""
    from encoder_gpu import make_folder

    folder = BUILD / "models" / size
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    return make_folder(folder, size, tokenizer())


@contextlib.contextmanager
def serving(served: Served, cores: str = "", jobs: bool = False, more: Sequence[str] = ()) -> Iterator[Server]:
    """With jobs it has a database of its own; `more` goes to `serve`. Raises Skipped where it does not answer."""
    port, name = free_port(), f"overload {served}"
    with tempfile.TemporaryDirectory() as work:
        words = [*(["taskset", "-c", cores] if cores else []), sys.executable, "-m", "twoshift", "serve"]
        words += [*model_words(served.model), "--name", NAME, "--slo-ms", str(served.slo_ms), *more]
        words += ["--port", str(port), *(["--database", f"sqlite:///{work}/jobs.db"] if jobs else [])]
        words += ["--replicas", str(served.replicas)] if served.replicas > 1 else []
        with running(name, words) as pid:
            first_reply(name, pid, port, b"GET /readyz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
            first_reply(name, pid, port, requests(1, patient=True)[0])
            yield Server(served, port, pid, Path(work))
