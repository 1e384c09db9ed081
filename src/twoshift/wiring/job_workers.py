"""Jobs on workers of their own: processes of this machine, or actors of a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable

from twoshift.batch.device import OwnDevice, WorkDevice
from twoshift.batch.evaluation import sampled_requests
from twoshift.batch.job import Job
from twoshift.batch.llm_device import LlmDevice
from twoshift.batch.pool import LocalPool, WorkerPool
from twoshift.batch.settings import JobSettings
from twoshift.batch.verify import Verification, verify_output
from twoshift.runtime.devices import usable_threads
from twoshift.runtime.llm import LlmOptions, is_llm
from twoshift.runtime.load import check_named
from twoshift.wiring.blob_stores import blobs_for
from twoshift.wiring.llm_loading import gate_of, load_gated
from twoshift.wiring.model_loading import load_model
from twoshift.wiring.served_models import engine_of

__all__ = ["job_for", "open_job_device", "verify_job"]

_SAMPLE_ROWS = 16  # on which a precision is compared with full precision
_SOONER = 0.95  # of a worker's time to load: it says where it hangs before its coordinator ends it


def job_for(settings: JobSettings) -> Job:
    """A job on workers of this machine, the cores shared out among them, or of a Ray cluster."""
    return Job(settings, blobs_for, _pool_for(settings))


def _pool_for(settings: JobSettings) -> WorkerPool:
    if settings.engine == "ray":
        from twoshift.batch.ray_pool import RayPool  # ray: an extra

        return RayPool(settings, open_job_device, blobs_for)

    check_named(settings.model)
    settings.check_preparers(usable_threads())
    settings.check_model(is_llm(settings.model))  # before a worker is started

    threads = settings.threads or max(1, usable_threads() // settings.workers)
    return LocalPool(settings, threads, open_job_device, blobs_for)


def open_job_device(settings: JobSettings) -> WorkDevice:
    """A job's model on a device of its own, in a worker."""
    language = is_llm(settings.model)
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
    runtime, quality = load_gated(settings.model, options, gate)
    return LlmDevice(engine_of(runtime, serves=False), quality=quality)


def verify_job(output: str, progress: Callable[[float], None]) -> Verification:
    """Read every part of a job's output folder, and compare it with what was written; raises InvalidInput."""
    return verify_output(blobs_for(output), output, progress)
