"""Deployments are loaded, replaced and unloaded beside the requests of the others."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from twoshift.errors import InvalidInput, NotFound, TryLater
from twoshift.serve.candidate import begin_candidate, end_candidate
from twoshift.serve.deployments import Deployment, DeploymentState, Serving
from twoshift.serve.live_model import LiveModel
from twoshift.serve.service import Service
from twoshift.serve.versions import VersionSplit

__all__ = ["Deployer", "DeployerHooks", "OpenBackend", "Progress", "Tell"]

_logger = logging.getLogger("twoshift.serve")
_LOOK_S = 0.02
_RETRY_S = 1.0
_T = TypeVar("_T")
Tell = Callable[[str], None]
# A deployment's name and the model, None: as it is set. May take minutes; ends early once the future is done
OpenBackend = Callable[[str, str | None, Tell, Future[None]], LiveModel]
Progress = Callable[[], AbstractContextManager[Tell]]  # tells people what is done now


@dataclass(frozen=True, slots=True)
class DeployerHooks:
    """What else there is to do where backends come and go."""

    open_backend: OpenBackend
    arrived: Callable[[Deployment], None]  # a backend answers for it
    leaving: Callable[[Deployment, LiveModel], None]  # one does so no more
    tried: Callable[[Deployment, LiveModel], None]  # one is loaded beside the one that answers
    parting: Callable[[Deployment, LiveModel, float], None]  # one is closed next; within that time nobody asks it
    reloads: Callable[[str], None]  # it is about to be loaded anew


class Deployer:
    """One thing at a time for each deployment; any thread may ask, and a future says how it ended."""

    def __init__(
        self,
        service: Service,
        hooks: DeployerHooks,
        grace_s: float,  # for what was admitted
        progress: Progress,
    ) -> None:
        self._service, self._models, self._hooks = service, service.models, hooks
        self._grace_s, self._progress = grace_s, progress
        self._lock = threading.Lock()  # guards the four below
        self._last: dict[str, Future[Any]] = {}  # what was asked last of a deployment
        self._threads = set[threading.Thread]()
        self._loading = set[Future[None]]()  # done: nobody waits for the model
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """On the loop that serves."""
        self._loop = asyncio.get_running_loop()

    def close(self, timeout_s: float) -> bool:
        """Begin nothing more, and give up what loads; False where something has not ended after that time."""
        with self._lock:
            self._closed = True
            loading, threads = [*self._loading], [*self._threads]
            self._loading.clear()
        for each in loading:
            if not each.done():
                each.set_result(None)
        until_s = time.monotonic() + timeout_s
        for each in threads:
            each.join(max(0.0, until_s - time.monotonic()))
        return not any(each.is_alive() for each in threads)

    def do(self, what: Callable[[], _T], name: str = "") -> Future[_T]:
        """In a thread of its own, after what was asked of that deployment before."""
        future: Future[_T] = Future()
        with self._lock:
            if self._closed:
                future.set_exception(TryLater("the server is shutting down", _RETRY_S))
                return future
            before, self._last[name] = self._last.get(name), future
            thread = threading.Thread(
                target=self._work, args=(name, before, what, future), name="twoshift-deployer", daemon=True
            )
            self._threads.add(thread)
        thread.start()
        return future

    def load(self, name: str) -> Future[None]:
        """Load a deployment that is known, or replace what answers for it by the same loaded anew.

        Where that fails, what answered goes on. Raises NotFound at once.
        """
        deployment = self._known(name)
        self._hooks.reloads(name)
        if deployment.serving is None:
            self._models.move(deployment, DeploymentState.LOADING, "another model is loading first")
        return self.do(lambda: self._load(deployment), name)

    def unload(self, name: str, forget: bool = False) -> Future[None]:
        """What was admitted is answered, then the model is let go; with `forget` its name is, too."""
        deployment = self._known(name)
        return self.do(lambda: self._unload(deployment, forget), name)

    def load_candidate(
        self, name: str, model: str, salt: str, cancelled: Future[None]
    ) -> Future[VersionSplit[Deployment]]:
        """A version that is loaded beside the one that answers, and gets no requests yet. Raises NotFound at once."""
        deployment = self._known(name)
        return self.do(lambda: self._load_candidate(deployment, model, salt, cancelled), f"{name} {salt}")

    def end_candidate(self, split: VersionSplit[Deployment], promoted: bool, grace_s: float) -> Future[None]:
        """One of the two answers alone, at once; then the other is let go."""
        before = self._on_loop(lambda: end_candidate(self._service, split, promoted))
        deployment, salt = split.stable, id(split)
        return self.do(lambda: self._ended(deployment, before, promoted, grace_s), f"{deployment.name} {salt}")

    def replace(self, name: str, model: str, before: str) -> Future[None]:
        """Let what answers go, then load that model; requests wait meanwhile. Where that fails, `before` is loaded."""
        deployment = self._known(name)
        return self.do(lambda: self._replace(deployment, model, before), name)

    def _known(self, name: str) -> Deployment:
        deployment = self._models.all.get(name)
        if deployment is None:
            raise NotFound("model", name, f"one of these models: {', '.join(sorted(self._models.all))}")
        return deployment

    # In their threads

    def _work(self, name: str, before: Future[Any] | None, what: Callable[[], Any], future: Future[Any]) -> None:
        if before is not None:
            wait([before])
        try:
            if future.set_running_or_notify_cancel():
                future.set_result(what())
        except BaseException as error:  # a model's own code may raise anything
            future.set_exception(error)
        finally:
            with self._lock:
                self._threads.discard(threading.current_thread())
                if self._last.get(name) is future:
                    del self._last[name]

    def _load(self, deployment: Deployment) -> None:
        if self._models.all.get(deployment.name) is not deployment:
            raise InvalidInput(
                "model", deployment.name, "a model of this server; this model was removed before it could be loaded"
            )
        is_first = deployment.serving is None
        if is_first:
            self._models.move(deployment, DeploymentState.LOADING)
        try:
            backend = self._opened(deployment, deployment.word)
        except BaseException as error:
            if is_first:
                self._models.move(deployment, DeploymentState.FAILED, str(error))
            else:
                deployment.reason = (
                    f"{deployment.name} could not be reloaded, and the old version still answers requests: {error}"
                )
            raise
        try:
            before = self._on_loop(lambda: self._service.deploy(deployment, backend))
        except BaseException:
            backend.close()
            raise
        if before is not None:
            self._let_go(deployment, before)
        self._hooks.arrived(deployment)

    def _load_candidate(
        self, deployment: Deployment, model: str, salt: str, cancelled: Future[None]
    ) -> VersionSplit[Deployment]:
        backend = self._opened(deployment, model, cancelled)
        try:
            split = self._on_loop(lambda: begin_candidate(self._service, deployment, backend, salt))
        except BaseException:
            backend.close()
            raise
        self._hooks.tried(deployment, backend)
        return split

    def _ended(self, deployment: Deployment, before: Serving | None, promoted: bool, grace_s: float) -> None:
        if before is None:
            return
        if promoted:
            try:
                self._hooks.leaving(deployment, before.backend)
            except Exception:  # a job that does not stop: it fails with the model, which goes
                _logger.exception(
                    "%s: the old version is unloaded, but a job or a stream still uses it", deployment.name
                )
            self._hooks.arrived(deployment)
        self._drained(before, grace_s)
        self._hooks.parting(deployment, before.backend, grace_s)
        self._closed_now(deployment, before)

    def _replace(self, deployment: Deployment, model: str, before: str) -> None:
        serving = deployment.serving
        self._on_loop(lambda: self._models.move(deployment, DeploymentState.LOADING, f"{model} replaces {before}"))
        if serving is not None:
            deployment.leaves(serving.backend)
            self._let_go(deployment, serving)
            deployment.serving = None
        try:
            self._serve_word(deployment, model)
        except BaseException as error:
            _logger.warning("%s could not be loaded, and %s is loaded again: %s", model, before, error)
            try:
                self._serve_word(deployment, before)
            except BaseException as another:
                self._models.move(deployment, DeploymentState.FAILED, str(another))
                raise
            raise

    def _serve_word(self, deployment: Deployment, word: str) -> None:
        backend = self._opened(deployment, word)
        deployment.word = word
        self._on_loop(lambda: self._service.deploy(deployment, backend))
        self._hooks.arrived(deployment)

    def _opened(self, deployment: Deployment, model: str | None, cancelled: Future[None] | None = None) -> LiveModel:
        cancelled = cancelled or Future()
        with self._lock:
            if self._closed:
                raise TryLater("the server is shutting down", _RETRY_S)
            self._loading.add(cancelled)
        try:
            with self._progress() as tell:
                told = partial(self._tell, deployment, tell)
                return self._hooks.open_backend(deployment.name, model, told, cancelled)
        finally:
            with self._lock:
                self._loading.discard(cancelled)

    def _tell(self, deployment: Deployment, tell: Tell, text: str) -> None:
        if deployment.state is DeploymentState.LOADING:
            deployment.reason = text
        tell(text)

    def _unload(self, deployment: Deployment, forget: bool) -> None:
        serving = deployment.serving
        self._on_loop(lambda: self._models.move(deployment, DeploymentState.UNLOADING))
        if serving is not None:
            try:
                self._let_go(deployment, serving)
            except BaseException:
                self._models.serve(deployment, serving.backend)
                raise
        self._models.move(deployment, DeploymentState.UNLOADED)
        if forget:
            self._models.remove(deployment)

    def _let_go(self, deployment: Deployment, serving: Serving) -> None:
        self._drained(serving, self._grace_s)
        self._hooks.parting(deployment, serving.backend, self._grace_s)
        self._hooks.leaving(deployment, serving.backend)
        self._closed_now(deployment, serving)

    def _drained(self, serving: Serving, grace_s: float) -> None:
        until_s = time.monotonic() + grace_s
        while serving.inside and time.monotonic() < until_s and not self._closed:
            time.sleep(_LOOK_S)

    def _closed_now(self, deployment: Deployment, serving: Serving) -> None:
        deployment.retired(serving.backend)
        with contextlib.suppress(Exception):  # a user's own code may raise anything; the model is gone all the same
            serving.backend.close()

    def _on_loop(self, what: Callable[[], _T]) -> _T:
        async def done() -> _T:
            return what()

        assert self._loop is not None  # noqa: S101 - started
        return asyncio.run_coroutine_threadsafe(done(), self._loop).result()
