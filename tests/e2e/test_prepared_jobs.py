"""Jobs on a server with preparing processes: the answers of the live path, and what the report says."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from job_runs import preparers
from programs import command
from servers import Server
from tiny_encoder import WORDS, make_tiny_encoder

for needs in ("httptools", "sqlalchemy"):
    pytest.importorskip(needs)
pytestmark = pytest.mark.slow
ROWS = 5000


@pytest.mark.parametrize("more", [(), ("--replicas", "1")], ids=["in the server", "in a replica"])
def test_a_job_on_a_server_is_prepared_by_processes_and_answers_as_live_requests_are(
    tmp_path: Path, more: tuple[str, ...]
) -> None:
    make_tiny_encoder(tmp_path / "encoder")
    chance = np.random.default_rng(0)
    texts = [" ".join(chance.choice(WORDS, count)) for count in chance.integers(1, 30, ROWS)]
    pq.write_table(pa.table({"id": np.arange(ROWS), "body": [*texts[:-1], None]}), tmp_path / "in.parquet")
    server = Server(tmp_path / "home", str(tmp_path / "encoder"), "--slo-ms", "60000", "--grace", "5s", *more)
    try:
        words = ["run", "in.parquet", "--model", "encoder", "--text", "body", "--keep", "id", "-o", "out"]
        words += ["--shard-rows", "500", "--preparers", "2", "--on", server.address, "--json"]
        done = command(*words, env={"TWOSHIFT_HOME": str(tmp_path / "home")}, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        table = pq.read_table(sorted((tmp_path / "out").glob("part-*.parquet")))
        assert table["id"].to_pylist() == list(range(ROWS))
        assert table["error"].to_pylist()[-1].endswith("the text is null")
        assert table["error"].null_count == ROWS - 1
        live = server.embed("encoder", texts[:8]).json()["data"]
        np.testing.assert_allclose(table["embedding"].to_pylist()[:8], [each["embedding"] for each in live], atol=1e-5)
        report = json.loads((tmp_path / "out" / "_twoshift" / "report.json").read_text())
        assert [run["preparers"] for run in report["runs"]] == [2]
        assert report["harvested_s"] > 0
        assert preparers(server.process.pid) == []
    finally:
        server.end()
