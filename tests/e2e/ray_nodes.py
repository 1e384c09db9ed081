"""A real Ray cluster of several nodes, all on this machine; a module has one, and each test its own nodes."""

from __future__ import annotations

import gc
import importlib
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

__all__ = ["Nodes", "own_cluster"]


class Nodes:
    """A cluster whose head runs no workers."""

    def __init__(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Ray's own
            from ray.cluster_utils import Cluster

            quick = {
                "health_check_initial_delay_ms": 0,
                "health_check_period_ms": 500,
                "health_check_timeout_ms": 2000,
                "health_check_failure_threshold": 3,
            }
            head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": 80 << 20}
            self._cluster = Cluster(initialize_head=True, head_node_args={**head, "_system_config": quick})
        self.address = str(self._cluster.address)
        self._added: list[Any] = []

    def add(self, cpus: int = 1, gpus: int = 0, **resources: float) -> Any:
        """One more node, with room for one worker; GPUs that it says it has."""
        given = {"num_cpus": cpus, "num_gpus": gpus, "object_store_memory": 80 << 20, "resources": resources}
        with _left_open():
            node = self._cluster.add_node(wait=False, **given)
        self._added.append(node)
        return node

    def processes(self, actor: str) -> dict[int, Any]:
        """Those of this class, by their ids, each with its node."""
        return {pid: node for node in self._added for pid in _children(_raylet(node), f"ray::{actor}".encode())}

    def kill(self, node: Any) -> None:
        """As if its machine were gone."""
        self._added.remove(node)
        with _left_open():
            self._cluster.remove_node(node, allow_graceful=False)

    def drain(self, node: Any, left_s: float) -> None:
        """As the autoscaler does with a node that its cloud will take away."""
        raylet: Any = importlib.import_module("ray._raylet")
        values: Any = importlib.import_module("ray.core.generated.autoscaler_pb2")
        preempted = values.DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION")
        due_ms = int((time.time() + left_s) * 1000)
        is_accepted, why = raylet.GcsClient(address=self.address).drain_node(node.node_id, preempted, "spot", due_ms)
        assert is_accepted, why

    def clear(self) -> None:
        """Only the head is left."""
        for node in [*self._added]:
            self.kill(node)

    def close(self) -> None:
        """All of it."""
        with _left_open():
            self._cluster.shutdown()


def own_cluster() -> Iterator[Nodes]:
    """A fixture of a module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        made = Nodes()
        yield made
        made.close()


@contextmanager
def _left_open() -> Iterator[None]:
    """Ray leaves sockets open: they are collected here, and no later test is told of them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
        gc.collect()


def _raylet(node: Any) -> int:
    [raylet] = node.all_processes["raylet"]
    return raylet.process.pid


def _children(parent: int, name: bytes) -> list[int]:
    found = list[int]()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if int((entry / "stat").read_text().rpartition(") ")[2].split()[1]) == parent and (
                entry / "cmdline"
            ).read_bytes().startswith(name):
                found.append(int(entry.name))
        except OSError:  # it is gone by now
            continue
    return found
