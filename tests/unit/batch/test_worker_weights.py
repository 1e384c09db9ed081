from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
from test_coordinator import plan_of

from twoshift.batch.messages import Begin, FromWorker, Ready, Unusable
from twoshift.batch.plan import plan_location
from twoshift.batch.worker import ShardWorker
from twoshift.blobs.local import LocalBlobs


def test_a_worker_with_other_weights_than_the_plans_is_refused_by_name(tmp_path: Path) -> None:
    plan, said = plan_of(3), list[FromWorker]()
    output = str(tmp_path / "out")
    stored = Path(plan_location(output))
    stored.parent.mkdir(parents=True)
    stored.write_bytes(msgspec.json.encode(plan))
    info: Any = SimpleNamespace(checksum=f"not {plan.model.checksum}")
    device: Any = SimpleNamespace(info=info, padding_tokens=0, close=lambda: None)
    worker = ShardWorker(plan.settings, "node:1", lambda _: device, lambda _: LocalBlobs(), said.append)
    worker.start()
    worker.handle(Begin(output, 0.1))
    worker.close()
    refused = next(each for each in said if isinstance(each, Unusable))
    assert any(isinstance(each, Ready) for each in said)
    assert refused.is_beginning
    assert "worker node:1 has loaded other weights" in str(refused.error)
