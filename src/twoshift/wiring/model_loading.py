"""A model on a device, with the threads that were measured to be best."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from twoshift.llm_ports import LlmRuntime
from twoshift.policy.profile import Profile
from twoshift.policy.threads import ThreadPlan
from twoshift.ports import Runtime, ThreadedRuntime
from twoshift.runtime import llm
from twoshift.runtime.llm import LlmOptions
from twoshift.runtime.load import check_named as check_word
from twoshift.runtime.load import load_model as load
from twoshift.runtime.load_limit import LoadLimit
from twoshift.wiring.registered_models import LocalModel, found_version, local_model
from twoshift.wiring.stored_profiles import stored_profile

__all__ = ["check_named", "is_llm", "load_llm", "load_model", "named", "threads_of", "use_threads"]

R = TypeVar("R")


def check_named(model: str, registry: str | None = None) -> None:
    """Raises InvalidInput where no file, folder or model has this name; loads and downloads nothing."""
    if found_version(model, registry) is None:
        check_word(model)


def is_llm(model: str, registry: str | None = None) -> bool:
    """Whether a name is that of a language model; of a registered one its version says so."""
    version = found_version(model, registry)
    return llm.is_llm(model) if version is None else version.is_llm


def load_model(
    model: str,
    *,
    device: str = "auto",
    precision: str | None = None,
    trust_pickle: bool = False,
    threads: int | None = None,
    load_timeout_s: float | None = None,
    measured_threads: bool = True,
    registry: str | None = None,
) -> Runtime:
    """The model that `model` names, on a device; raises InvalidInput where it cannot be used, Broken if damaged.

    With `load_timeout_s`, this process ends where it is not loaded by then: native code cannot be interrupted.
    `measured_threads`: the stored choice of them, which is for calls that somebody waits for. `registry` is where a
    registered model lies.
    """
    local = local_model(model, registry, trust_pickle=trust_pickle)
    with LoadLimit(model, load_timeout_s):
        runtime = load(local.word, device=device, precision=precision, trust_pickle=trust_pickle, threads=threads)
    named(runtime, local)
    if measured_threads:
        use_threads(runtime, stored_profile(runtime.info))
    return runtime


def load_llm(model: str, options: LlmOptions | None = None, registry: str | None = None) -> LlmRuntime:
    """The language model that `model` names; raises InvalidInput where it cannot be used, Broken if damaged."""
    local = local_model(model, registry)
    return named(llm.load_llm(local.word, options), local)


def named(runtime: R, local: LocalModel) -> R:
    """A registered model goes by its version, wherever its files lie."""
    if local.folder is not None:
        of: Any = runtime
        of.info = dataclasses.replace(of.info, model=local.name, registry=local.registry, files=local.word)
    return runtime


def use_threads(runtime: Runtime, profile: Profile | None) -> None:
    """As many for each size of call as the profile's calls had, where that is not the user's to say."""
    chosen = None if profile is None else profile.threads
    if chosen is not None and isinstance(runtime, ThreadedRuntime) and len(runtime.thread_candidates) > 1:
        runtime.use_threads(chosen)


def threads_of(runtime: Runtime) -> ThreadPlan | None:
    """How many threads its calls use, by their rows; None where that is the library's to say."""
    return runtime.threads if isinstance(runtime, ThreadedRuntime) else None
