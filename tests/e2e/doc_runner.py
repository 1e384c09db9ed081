"""Runs what the documentation shows: commands in this process, requests against one server."""

from __future__ import annotations

import importlib
import json
import re
import shlex
import shutil
import tomllib
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from programs import command
from servers import Server

from doc_blocks import ROOT, Block, blocks, command_lines, reason_not_to_run
from twoshift import Client
from twoshift.quickstart import FILES, read_sample

__all__ = ["PageRun", "write_inputs"]

_SERVER = re.compile(r"http://(?:127\.0\.0\.1|localhost):8000")
_IDS = ("job-0123456789ab", "batch_0123456789ab", "file-0123456789ab")
# Models that take long to load, or that the repository does not have
_STANDS_FOR = {"minilm": "tickets.py:Words", "fraud.ubj": "fraud.py:Fraud"}
# Fewer repetitions: the figures are not looked at
_SHORTER = {"sim job": "--runs 1", "sim rollout": "--runs 1", "profile": "--seconds 0.5"}
# What has to be so before a command
_BEFORE = {
    r"--profile mymodel": ["twoshift plan fit examples/samples.csv --save mymodel"],
    r"--retry-errors out/": ["twoshift run 'docs/*.parquet' --model minilm --text body --keep id -o out/"],
}
_FRAUD = """
import numpy as np


class Fraud:
    outputs = ("prediction",)
    example = {"amount": 1.0, "age": 1.0}

    def load(self):
        pass

    def prepare(self, rows):
        return {"amount": np.array([row["amount"] for row in rows])}

    def predict(self, batch):
        return {"prediction": np.stack([batch["amount"], batch["amount"]], 1)}
"""


def write_inputs(folder: Path) -> None:
    """The files that commands of the documentation read."""
    for name in FILES:
        (folder / name).write_text(read_sample(name), encoding="utf-8")
    (folder / "fraud.py").write_text(_FRAUD)
    (folder / "examples").symlink_to(ROOT / "examples")
    shutil.copy(ROOT / "examples" / "sentiment.py", folder / "model.py")
    shutil.copy(ROOT / "examples" / "scale.jsonl", folder / "minilm.jsonl")
    shutil.copy(ROOT / "examples" / "azure_llm_code_2023_excerpt.csv", folder / "trace.csv")
    shutil.copy(ROOT / "examples" / "samples.csv", folder / "samples.csv")
    (folder / "requests.csv").write_text("key,count\nfox,900\nroad,20\nhouse,1\n")
    asked = {"method": "POST", "url": "/v1/embeddings", "body": {"model": "minilm", "input": "a red fox"}}
    (folder / "requests.jsonl").write_text(json.dumps({"custom_id": "a", **asked}) + "\n")
    texts = ["a red fox", "an old road"]
    table = pa.table({"id": ["doc-17", "doc-18"], "title": texts, "body": texts, "text": texts, "lang": ["en", "de"]})
    payments = pa.table({"id": [1, 2], "amount": [12.5, 5.0], "age": [3.0, None]})
    for place, rows in (("docs/a.parquet", table), ("tx/a.parquet", payments)):
        (folder / place).parent.mkdir()
        pq.write_table(rows, folder / place)


def _write_delta(folder: Path) -> None:
    events = pa.table({"id": ["doc-17"], "body": ["a red fox"], "day": ["2026-11-01"]})
    importlib.import_module("deltalake").write_deltalake(str(folder / "lake" / "events"), events, partition_by=["day"])


@dataclass
class PageRun:
    """A page in a folder of its own, beside a server."""

    page: str
    folder: Path
    home: Path
    server: Server
    _ids: dict[str, str] = field(default_factory=dict[str, str])

    def run(self) -> list[str]:
        """Every command that is to be run; those that were."""
        self._write_settings()
        done = list[str]()
        for block in (each for each in blocks("sh") if each.page == self.page):
            for line in command_lines(block):
                if reason_not_to_run(block, line) is None:
                    self._prepare(line)
                    self._do(block, line)
                    done.append(line)
        return done

    def _write_settings(self) -> None:
        """A job as the page shows it; the quickstart brings its own."""
        for block in (each for each in blocks("toml") if each.page == self.page):
            if "inputs" in tomllib.loads(block.text):
                (self.folder / "job.toml").write_text(block.text, encoding="utf-8")

    def _prepare(self, line: str) -> None:
        if found := re.search(r"^twoshift run .*-o (\S+)", line):  # another job of the page may have written there
            shutil.rmtree(self.folder / found[1], ignore_errors=True)
        if line.startswith("twoshift models push"):  # a new version is another file
            with (self.folder / "model.py").open("a") as file:
                file.write(f"# {line}\n")
        if " lake/events " in line:
            _write_delta(self.folder)
        for pattern, before in _BEFORE.items():
            for each in before if re.search(pattern, line) else ():
                self._prepare(each)
                self._twoshift(each)

    def _do(self, block: Block, line: str) -> None:
        if line.startswith("cd "):
            self.folder /= shlex.split(line)[1]
        elif line.startswith("curl "):
            self._curl(block, line)
        else:
            self._twoshift(line)

    def _twoshift(self, line: str) -> None:
        given = [self._known(word) for word in shlex.split(line)]
        words = [self._instead(before, word, "--on" in given) for before, word in pairwise(["", *given])]
        name = " ".join(words[1:3])
        words += [word for begins, more in _SHORTER.items() if name.startswith(begins) for word in more.split()]
        env = {"TWOSHIFT_HOME": str(self.home), "TWOSHIFT_SERVER": self.server.address}
        done = command(*words[1:], env=env, cwd=self.folder)
        assert done.returncode == 0, f"{self.page}: {line}\n{done.stdout}{done.stderr}"
        assert done.stdout or done.stderr

    def _curl(self, block: Block, line: str) -> None:
        words = [self._known(word) for word in shlex.split(line)]
        at = {flag: words[words.index(flag) + 1] for flag in ("-X", "-d") if flag in words}
        (url,) = (word for word in words if word.startswith(self.server.address))
        path = url.removeprefix(self.server.address).replace("/repository/models/minilm", "/repository/models/spare")
        body = at["-d"].encode() if "-d" in at else None
        reply = self.server.ask(at.get("-X", "POST" if body else "GET"), path, body, {"x-request-timeout-ms": "30000"})
        assert reply.status == 200, f"{block}: {line}\n{reply.body.decode()}"

    def _instead(self, option: str, value: str, on_server: bool) -> str:
        """A model that loads at once; one of the server's models, where the documentation's server has one."""
        if option == "--server":
            return f"{value}/v1/derived/minilm"
        return _STANDS_FOR.get(value, value) if option == "--model" and not on_server else value

    def _known(self, word: str) -> str:
        """With the server's address, and the id of something that it has."""
        word = _SERVER.sub(self.server.address, word)
        for each in _IDS:
            if each in word:
                word = word.replace(each, self._ids.get(each) or self._make()[each])
        return word

    def _make(self) -> dict[str, str]:
        """A job, a file and a batch that is done."""
        with Client(self.server.address) as client:
            file = client.files.upload(self.folder / "requests.jsonl")
            batch = client.batches.wait(
                client.batches.create(file, endpoint="/v1/embeddings", completion_window="1h"), timeout_s=120
            )
            given, output = str(self.folder / "docs"), str(self.folder / "made")
            job = client.jobs.submit(given, model="minilm", output=output, text="body")
            client.jobs.wait(job)
        self._ids = dict(zip(_IDS, (job.id, batch.id, file.id), strict=True))
        return self._ids
