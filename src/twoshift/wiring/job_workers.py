"""Jobs on workers of their own: processes of this machine, or actors of a Ray cluster."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from twoshift.batch.device import OwnDevice, WorkDevice
from twoshift.batch.evaluation import sampled_requests
from twoshift.batch.finish import add_to_report
from twoshift.batch.folder import one_coordinator
from twoshift.batch.job import Job
from twoshift.batch.llm_device import LlmDevice
from twoshift.batch.loading import LoadReport, load_parts
from twoshift.batch.plan import read_plan
from twoshift.batch.pool import LocalPool, WorkerPool
from twoshift.batch.query import check_query
from twoshift.batch.settings import JobSettings
from twoshift.batch.verify import Verification, verify_output
from twoshift.errors import TwoshiftError
from twoshift.registry.names import parse_ref, version_ref
from twoshift.runtime.devices import usable_threads
from twoshift.runtime.llm import LlmOptions
from twoshift.runtime.llm.adapters import check_adapter_folder
from twoshift.runtime.llm.remote import is_address
from twoshift.wiring.blob_stores import blobs_for
from twoshift.wiring.compared_jobs import ComparedJob
from twoshift.wiring.llm_loading import gate_of, load_gated
from twoshift.wiring.loading_turn import LoadingTurn
from twoshift.wiring.measuring import know_steps
from twoshift.wiring.model_loading import check_named, is_llm, load_model
from twoshift.wiring.registered_models import answers, fetched, is_registered, pinned, registry_at, registry_location
from twoshift.wiring.served_models import engine_of

__all__ = ["check_local_model", "job_for", "load_job", "open_job_device", "verify_job", "versioned"]

_SAMPLE_ROWS = 16  # on which a precision is compared with full precision
_SOONER = 0.95  # of a worker's time to load: it says where it hangs before its coordinator ends it


def job_for(settings: JobSettings) -> Job | ComparedJob:
    """A job on workers of this machine, the cores shared out among them, or of a Ray cluster."""
    if settings.query is not None:
        check_query(settings.query)
    if settings.against is not None:
        check_named(settings.against, settings.registry)  # before the first model runs for hours
        return ComparedJob(_job_for(settings), _job_for, _place(settings.output))
    return _job_for(settings)


def _job_for(settings: JobSettings) -> Job:
    settings = versioned(settings)
    return Job(settings, blobs_for, _pool_for(settings))


def versioned(settings: JobSettings) -> JobSettings:
    """With the version of a registered model: that of its plan, wherever its alias points by now."""
    word, ref = settings.model, parse_ref(settings.model)
    if ref is None or not is_registered(word, settings.registry):
        return settings
    plan = read_plan(blobs_for(settings.output), settings.output)
    begun = None if plan is None else parse_ref(plan.model.name)
    if ref.version is None and begun is not None and begun.version and begun.name == ref.name:
        word = str(begun)
    word = (pinned if settings.engine == "ray" else fetched)(word, settings.registry)
    if answers(settings.registry):
        with suppress(TwoshiftError):  # it may be read-only
            registry_at(settings.registry).used_by(version_ref(word), "job", _place(settings.output))
    return msgspec.structs.replace(settings, model=word, registry=registry_location(settings.registry))


def _place(output: str) -> str:
    return output if "://" in output else f"{socket.gethostname()}:{Path(output).absolute()}"


def _pool_for(settings: JobSettings) -> WorkerPool:
    if settings.engine == "ray":
        from twoshift.batch.ray_pool import RayPool  # ray: an extra

        return RayPool(settings, open_job_device, blobs_for)

    check_local_model(settings)
    settings.check_preparers(usable_threads())
    threads = settings.threads or max(1, usable_threads() // settings.most_workers)
    return LocalPool(settings, threads, open_job_device, blobs_for)


def check_local_model(settings: JobSettings) -> None:
    """Whether the model is there and takes rows as the settings make them; raises InvalidInput, loads nothing."""
    check_named(settings.model, settings.registry)
    settings.check_model(language := is_llm(settings.model, settings.registry))
    if language:
        _check_language_model(settings)


def _check_language_model(settings: JobSettings) -> None:
    """Raises InvalidInput for what a worker would find out only with its model; reads small files alone."""
    gate_of(settings, list, settings.prompting)
    if settings.adapter is not None and not is_address(settings.model):
        check_adapter_folder(settings.adapter)


def open_job_device(settings: JobSettings) -> WorkDevice:
    """A job's model on a device of its own, in a worker."""
    language = is_llm(settings.model, settings.registry)
    settings.check_model(language)
    if language:
        return _llm_device(settings)
    runtime = load_model(
        settings.model,
        device=settings.device,
        precision=settings.precision,
        trust_pickle=settings.trust_pickle,
        threads=settings.threads,
        load_timeout_s=_SOONER * settings.load_seconds,
        measured_threads=False,  # its large calls share the interpreter with its reading, which no profile has seen
        registry=settings.registry,
    )
    return OwnDevice(runtime)


def _llm_device(settings: JobSettings) -> WorkDevice:
    options = LlmOptions(
        settings.device,
        settings.precision,
        settings.threads,
        tensor_parallel=settings.tensor_parallel,
        batch_invariant=settings.batch_invariant,
        adapters={} if settings.adapter is None else {settings.adapter: settings.adapter},
    )
    gate = gate_of(settings, lambda: sampled_requests(settings, blobs_for, _SAMPLE_ROWS), settings.prompting)
    with LoadingTurn() as turn:
        runtime, quality = load_gated(settings.model, options, gate, settings.registry)
        try:
            if not is_address(settings.model):
                know_steps(runtime, turn.alone)
        except BaseException:
            runtime.close()
            raise
    return LlmDevice(engine_of(runtime, serves=False), quality=quality)


def load_job(output: str, wanted: dict[str, Any], loaded: Callable[[float], None]) -> tuple[LoadReport, int]:
    """A job's parts into a store, and how many shards it has; its report says so, where it is done."""
    blobs = blobs_for(output)
    with one_coordinator(output):
        report, shards = load_parts(blobs, output, wanted, loaded)
        plan = read_plan(blobs, output)
        if plan is not None and report.shards == shards:
            settings = msgspec.structs.replace(plan.settings, output=output)  # it may have been moved
            add_to_report(blobs, msgspec.structs.replace(plan, settings=settings), load=report)
    return report, shards


def verify_job(output: str, progress: Callable[[float], None]) -> Verification:
    """Read every part of a job's output folder, and compare it with what was written; raises InvalidInput."""
    return verify_output(blobs_for(output), output, progress)
