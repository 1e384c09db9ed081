"""A real Ray cluster of several nodes, all on this machine; a module has one, and each test its own nodes."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
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

    def add(self, **resources: float) -> Any:
        """One more node, with room for one worker."""
        node = self._cluster.add_node(num_cpus=1, object_store_memory=80 << 20, wait=False, resources=resources)
        self._added.append(node)
        return node

    def kill(self, node: Any) -> None:
        """As if its machine were gone."""
        self._added.remove(node)
        self._cluster.remove_node(node, allow_graceful=False)

    def clear(self) -> None:
        """Only the head is left."""
        for node in [*self._added]:
            self.kill(node)

    def close(self) -> None:
        """All of it."""
        self._cluster.shutdown()


def own_cluster() -> Iterator[Nodes]:
    """A fixture of a module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        made = Nodes()
        yield made
        made.close()
        gc.collect()  # what Ray left open is told here
