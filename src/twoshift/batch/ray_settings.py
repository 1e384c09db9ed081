"""Settings of a job on Ray."""

from __future__ import annotations

import math
from typing import Annotated, Any

from twoshift.batch.setting_values import AMOUNTS
from twoshift.declare import setting
from twoshift.errors import Inapplicable, InvalidInput

__all__ = ["RayAddress", "RayResources", "check_ray"]

RayAddress = Annotated[
    str | None, setting("Address of the Ray cluster: auto or host:port.", shown="a new Ray cluster on this machine")
]
RayResources = Annotated[
    dict[str, float],
    setting(
        "Custom Ray resources that each worker needs: a=1,b=0.5.",
        AMOUNTS,
        more="In a job file: `{a = 1, b = 0.5}`.",
    ),
]

_RAYS_OWN = ("CPU", "GPU", "memory", "object_store_memory")


def check_ray(settings: Any) -> None:
    """Raises InvalidInput for what only a job on Ray has, and for resources that are set otherwise."""
    for name in ("address", "resources"):
        value = getattr(settings, name)
        if value and settings.engine != "ray":
            raise Inapplicable(name, value, "without --engine ray")
    for name, amount in settings.resources.items():
        if name in _RAYS_OWN:
            raise InvalidInput(
                "resources", name, "the name of a custom resource; --threads and --device set CPUs and GPUs"
            )
        if not 0 < amount < math.inf:
            raise InvalidInput("resources", amount, f"an amount above 0 for the resource {name}")
