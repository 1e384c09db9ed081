"""A model on a device, with the threads that were measured to be best."""

from __future__ import annotations

from twoshift.policy.profile import Profile
from twoshift.policy.threads import ThreadPlan
from twoshift.ports import Runtime, ThreadedRuntime
from twoshift.runtime.llm import is_llm
from twoshift.runtime.load import check_named
from twoshift.runtime.load import load_model as load
from twoshift.runtime.load_limit import LoadLimit
from twoshift.wiring.stored_profiles import stored_profile

__all__ = ["check_named", "is_llm", "load_model", "threads_of", "use_threads"]


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
    with LoadLimit(model, load_timeout_s):
        runtime = load(model, device=device, precision=precision, trust_pickle=trust_pickle, threads=threads)
    if measured_threads:
        use_threads(runtime, stored_profile(runtime.info))
    return runtime


def use_threads(runtime: Runtime, profile: Profile | None) -> None:
    """As many for each size of call as the profile's calls had, where that is not the user's to say."""
    chosen = None if profile is None else profile.threads
    if chosen is not None and isinstance(runtime, ThreadedRuntime) and len(runtime.thread_candidates) > 1:
        runtime.use_threads(chosen)


def threads_of(runtime: Runtime) -> ThreadPlan | None:
    """How many threads its calls use, by their rows; None where that is the library's to say."""
    return runtime.threads if isinstance(runtime, ThreadedRuntime) else None
