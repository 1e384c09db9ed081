"""What answers for a deployment: a model in this process, replicas in processes of their own, or Ray Serve."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

import msgspec

from twoshift.errors import InvalidInput
from twoshift.fleet.group import ReplicaFleet
from twoshift.fleet.llm_model import FleetLlm
from twoshift.fleet.model import FleetModel
from twoshift.fleet.replica_process import OpenModel, ReplicaSpec
from twoshift.fleet.supervisor import Supervisor
from twoshift.runtime.devices import grouped_gpus, usable_threads, visible_gpus
from twoshift.runtime.llm.remote import is_address
from twoshift.runtime.load_limit import load_within
from twoshift.serve.live_model import LiveModel
from twoshift.serve.model_settings import ModelSettings
from twoshift.serve.settings import ServeSettings
from twoshift.wiring.model_loading import is_llm
from twoshift.wiring.registered_models import fetched, is_registered, pinned, registry_location
from twoshift.wiring.served_models import served_llm, served_model

__all__ = ["fleet_model", "live_model", "ray_model"]


# Libraries set threads, precision and environment of the whole process while they load, and import one another
_one_load_here = threading.Lock()


def live_model(
    name: str,
    settings: ServeSettings,
    note: Callable[[str], None],
    cancelled: Future[None] | None = None,
    apart: bool = False,
    model: str | None = None,
) -> LiveModel:
    """A model that is served: in this process, by replicas in processes of their own, or by Ray Serve.

    `apart`: never in this process, since several fronts ask it. Once `cancelled` is done, nobody waits for it any
    longer, and replicas that have started end. `model`: another one than the settings say.
    """
    wanted = settings.models[name]
    wanted = wanted if model is None else msgspec.structs.replace(wanted, model=model)
    each = _versioned(wanted, settings, note)
    if language := is_llm(each.model, each.registry):
        each.check_sequences()
        _check_remote(each, settings.engine)
    else:
        each.check_rows()
    if apart and each.min_replicas == 0:
        accepted = "at least 1, because front-end processes cannot wake a model; with --fronts 1, the value can be 0"
        raise InvalidInput("min_replicas", 0, accepted)
    cancelled = cancelled or Future()
    if settings.engine == "ray":
        return ray_model(name, each, settings.address, note, cancelled)
    if apart or ((each.first_replicas > 1 or each.is_scaled) and not is_address(each.model)):
        return fleet_model(name, each, note, each.max_replicas, cancelled)
    served: OpenModel = served_llm if language else served_model
    with _one_load_here:
        return load_within(
            each.model,
            each.load_timeout_s,
            lambda: served(name, each, note),
            lambda model: model.close(),
            cancelled,
        )


def _versioned(model: ModelSettings, settings: ServeSettings, note: Callable[[str], None]) -> ModelSettings:
    """With the version of a registered model, which all replicas load; of replicas here its files are there then."""
    registry = model.registry or settings.registry
    if not is_registered(model.model, registry):
        return model
    word = (pinned if settings.engine == "ray" else fetched)(model.model, registry, note)
    return msgspec.structs.replace(model, model=word, registry=registry_location(registry))


def _check_remote(settings: ModelSettings, engine: str) -> None:
    """A model on another server is asked by this process; raises InvalidInput by the setting that says otherwise."""
    if not is_address(settings.model):
        return
    why = f"{settings.model} runs on another server, which has its own replicas"
    if engine != "local":
        raise InvalidInput("engine", engine, f"local: {why}")
    for name in ("replicas", "min_replicas", "max_replicas"):
        if getattr(settings, name) not in (None, 1):
            raise InvalidInput(name, getattr(settings, name), f"1: {why}")


def ray_model(
    name: str,
    settings: ModelSettings,
    address: str | None,
    note: Callable[[str], None],
    cancelled: Future[None] | None = None,
) -> FleetModel | FleetLlm:
    """A model whose replicas are a deployment of Ray Serve, ready."""
    from twoshift.fleet.ray_fleet import RayFleet  # ray: an extra

    model, spec = _fleet_of(name, settings)
    return _open(model, RayFleet(spec, address, model.group, note), cancelled)


def fleet_model(
    name: str,
    settings: ModelSettings,
    note: Callable[[str], None],
    most: int | None = None,
    cancelled: Future[None] | None = None,
) -> FleetModel | FleetLlm:
    """A model with replica processes, all ready; the cores are shared out among as many as there can ever be."""
    cores = settings.threads or max(1, usable_threads() // (most or settings.first_replicas))
    model, spec = _fleet_of(name, settings, cores)
    gpus = grouped_gpus(visible_gpus(settings.device), settings.tensor_parallel)
    return _open(model, Supervisor(spec, settings.first_replicas, gpus, model.group, note), cancelled)


def _fleet_of(
    name: str, settings: ModelSettings, cores: int | None = None
) -> tuple[FleetModel | FleetLlm, ReplicaSpec]:
    if is_llm(settings.model, settings.registry):
        # vLLM fails in its first step where torch has fewer threads than the process has cores: all of them, for each
        return FleetLlm(name), ReplicaSpec(name, settings, served_llm)
    return FleetModel(name), ReplicaSpec(name, settings, served_model, cores)


def _open(model: FleetModel | FleetLlm, fleet: ReplicaFleet, cancelled: Future[None] | None) -> FleetModel | FleetLlm:
    if cancelled is not None:
        cancelled.add_done_callback(lambda _: fleet.close())
    try:
        model.open(fleet)
    except BaseException:
        fleet.close()
        raise
    return model
