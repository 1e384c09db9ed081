"""Ray's notice that a node will be taken away: its autoscaler drains the node first."""

from __future__ import annotations

import importlib
import time
from typing import Any

from twoshift.batch.spot_notices import USUAL_S, SpotNotice

__all__ = ["node_drains"]


def node_drains() -> SpotNotice | None:
    """Whether this node is being drained, and how much time is left; nothing where Ray does not say."""
    try:
        ray: Any = importlib.import_module("ray")
        if not ray.is_initialized():  # asking would start a cluster
            return None
        state: Any = importlib.import_module("ray._private.state").state  # Ray Serve asks there, too
        due_ms = state.get_draining_nodes().get(ray.get_runtime_context().get_node_id())
    except Exception:  # Ray's own, of which no caller can do anything: the node is lost without a notice then
        return None
    if due_ms is None:
        return None
    left_s = max(0.0, due_ms / 1e3 - time.time()) if due_ms else USUAL_S
    return SpotNotice(f"Ray is draining the node, which stops in {left_s:.0f} s", left_s)
