"""A job folder that was written by release 0.1 is finished by this one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the jobs extra is not installed")

from job_runs import JobFolder

from twoshift.batch.plan import read_plan
from twoshift.blobs.local import LocalBlobs
from twoshift.errors import Broken


def test_a_job_that_release_0_1_began_is_finished_and_its_parts_are_left_as_they_are(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    shutil.copytree(Path(__file__).parent / "release_0_1", folder)
    before = {path.name: path.read_bytes() for path in (folder / "out").glob("part-*")}
    assert len(before) == 3
    job = JobFolder(folder)
    job.options = ["in.jsonl", "--model", "model.py:Model", "--columns", "x", "--output-format", "jsonl"]
    done = job.run("--shard-rows", "10")
    assert "3 of 4 shards" in done.out + done.err
    after = {path.name: path.read_bytes() for path in (folder / "out").glob("part-*")}
    assert before.items() < after.items()
    rows = [json.loads(line) for name in sorted(after) for line in after[name].splitlines()]
    assert [row["y"] for row in rows] == [2.0 * x for x in range(40)]


@pytest.mark.parametrize("change", [{"format": 2, "shards": "elsewhere"}, {"settings": {"later": 1}}])
def test_a_job_that_a_newer_release_began_is_told_from_a_damaged_one(tmp_path: Path, change: dict[str, Any]) -> None:
    output = tmp_path / "out"
    shutil.copytree(Path(__file__).parent / "release_0_1" / "out", output)
    plan = output / "_twoshift" / "plan.json"
    given = json.loads(plan.read_text())
    given["settings"] |= change.pop("settings", {})
    plan.write_text(json.dumps(given | change))
    with pytest.raises(Broken, match=r"plan\.json was written by a newer version of Twoshift"):
        read_plan(LocalBlobs(), str(output))
