from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from test_coordinator import plan_of

from twoshift.batch.messages import Begin, FromWorker, Ready, Unusable
from twoshift.batch.plan import plan_location
from twoshift.batch.worker import ShardWorker
from twoshift.blobs.local import LocalBlobs


@pytest.mark.parametrize("model", ["encoder", "model.py:Model"])
def test_a_worker_with_another_model_than_the_jobs_is_refused_by_name(tmp_path: Path, model: str) -> None:
    said = _begun(tmp_path, model, has="sha256:other", job_has="sha256:first")
    refused = next(each for each in said if isinstance(each, Unusable))
    assert Ready in map(type, said)
    assert refused.is_beginning
    assert (
        f"worker node:1 has loaded different weights of {model}: checksum sha256:other, expected sha256:first"
        in str(refused.error)
    )
    assert "put the same files on every machine" in str(refused.error)


def test_workers_of_a_mended_class_agree_with_each_other_and_not_with_an_older_plan(tmp_path: Path) -> None:
    said = _begun(tmp_path, "model.py:Model", has="sha256:mended", job_has="sha256:mended")
    assert "other weights" not in str(said)


def _begun(folder: Path, model: str, has: str, job_has: str) -> list[FromWorker]:
    plan, said = plan_of(3), list[FromWorker]()
    output = str(folder / "out")
    stored = Path(plan_location(output))
    stored.parent.mkdir(parents=True)
    stored.write_bytes(msgspec.json.encode(plan))
    info: Any = SimpleNamespace(checksum=has, model=model, device="cpu")
    device: Any = SimpleNamespace(info=info, row_preparer=None, padding_tokens=0, close=lambda: None)
    worker = ShardWorker(plan.settings, "node:1", lambda _: device, lambda _: LocalBlobs(), said.append)
    worker.start()
    worker.handle(Begin(output, 0.1, job_has))
    worker.close()
    return said
