"""Who tries new versions on a server, with its adapters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import msgspec

from twoshift.errors import Inapplicable, InvalidInput, NotFound, TryLater, TwoshiftError
from twoshift.rollout_ports import FINAL
from twoshift.serve.deployments import Deployment, DeploymentState
from twoshift.serve.http.jobs import NoJobs
from twoshift.serve.rollouts import DeployRequest, Rollouts
from twoshift.serve.shadow import compare_function, shadow_of
from twoshift.wiring.candidates import RegisteredVersions

if TYPE_CHECKING:
    import asyncio

    from twoshift.serve.deployments import Deployments
    from twoshift.serve.exposition import MoreMetrics
    from twoshift.serve.model_settings import ModelSettings
    from twoshift.serve.rollout_run import Split, VersionActs
    from twoshift.serve.settings import ServeSettings
    from twoshift.serve.shadow import Shadow
    from twoshift.server_services import ServerServices

__all__ = ["FileChanges", "remember_versions", "rollout_metrics", "rollouts_for"]


def rollouts_for(
    services: ServerServices,
    models: Deployments,
    settings: ServeSettings,
    acts: VersionActs,
    loop: asyncio.AbstractEventLoop,
) -> Rollouts | NoJobs:
    """Not started; where there is no database, one who says why. Raises InvalidInput."""
    for name, each in settings.models.items():
        if each.rollout.compare is not None:
            _checked(name, each.rollout.compare)
    if services.database is None:
        why = services.jobs.why if isinstance(services.jobs, NoJobs) else "the server has no database"
        return NoJobs(why)
    from twoshift.store.rollouts import SqlRollouts

    def shadow_for(of: ModelSettings, split: Split) -> Shadow:
        return shadow_of(of.rollout, split, loop)

    source = RegisteredVersions(models, settings.models, settings.registry)
    made = Rollouts(SqlRollouts(services.database), models, settings.models, acts, source, shadow_for)
    made.scored = services.predictions.add
    return made


def rollout_metrics(rollouts: Rollouts | NoJobs, models: Deployments) -> MoreMetrics:
    """How rollouts have ended."""

    def families() -> Iterator[Any]:
        ended = Counter[tuple[str, str]]() if isinstance(rollouts, NoJobs) else rollouts.ended
        names = {*models.all, *(name for name, _ in ended)}  # 0 before the first: an alert sees each that comes
        samples = [(name, stage, ended[name, stage]) for name in sorted(names) for stage in FINAL]
        yield "counter", "rollouts", "Rollouts that have ended on this server.", ("model", "result"), samples

    return families


def _checked(name: str, compare: str) -> None:
    try:
        compare_function(compare)
    except InvalidInput as error:
        raise error.renamed(f"models.{name}.rollout.compare") from None


def remember_versions(
    rollouts: Rollouts, models: Deployments, settings: ServeSettings, note: Callable[[str], None]
) -> None:
    """Deployments begin with the version that was stable when an earlier server ended."""
    find = RegisteredVersions(models, settings.models, settings.registry).find
    for name, deployment in models.all.items():
        configured = settings.models[name].model
        word = rollouts.word_for(name)
        if word is None or word == configured:
            continue
        try:
            word = find(name, word).ref
        except NotFound:
            note(
                f"{name}: {word}, the stable version of the last rollout, is no longer in the registry; loading "
                f"{configured} from the settings"
            )
            continue
        except (InvalidInput, TryLater):
            pass  # no registered model; or the cache has it
        deployment.word = word
        note(f"{name}: loading {word}, the stable version of the last rollout, instead of {configured} in the settings")


class FileChanges:
    """What a configuration file says anew: other versions become rollouts, other models are loaded."""

    def __init__(
        self,
        settings: ServeSettings,
        models: Deployments,
        rollouts: Callable[[], Rollouts | NoJobs | None],  # once they have started
        load: Callable[[str], Future[None]],
        note: Callable[[str], None],
    ) -> None:
        self._settings, self._models, self._rollouts = settings, models, rollouts
        self._load, self._note = load, note

    def apply(self, reread: Callable[[], ServeSettings]) -> None:
        """As far as a running server can; the rest is said, and changes nothing."""
        try:
            new = reread()
        except (TwoshiftError, OSError) as error:
            self._note(f"The configuration file was not applied: {error}")
            return
        known = self._settings.models
        for name, each in new.models.items():
            try:
                self._apply_model(name, each)
            except Exception as error:  # a model's own code may raise anything
                self._note(f"models.{name} was not applied: {error}")
        if gone := ", ".join(sorted({*known} - {*new.models})):
            self._note(f"Restart the server to remove {gone}")
        fields = [name for name in type(new).__struct_fields__ if name != "models"]
        if changed := [name for name in fields if getattr(new, name) != getattr(self._settings, name)]:
            self._note(f"Restart the server to apply {', '.join(changed)}")

    def _apply_model(self, name: str, new: ModelSettings) -> None:
        known = self._settings.models
        before = known.get(name)
        if before is None:
            known[name] = new
            self._models.add(Deployment(name, adapters=[*new.adapters]))
            self._load(name)
            return
        if msgspec.structs.replace(before, model=new.model, rollout=new.rollout) != new:
            self._note(f"Restart the server to apply the other settings of models.{name}")
        known[name] = msgspec.structs.replace(before, model=new.model, rollout=new.rollout)
        if new.model == before.model:
            return
        deployment = self._models.all[name]
        if deployment.state is DeploymentState.FAILED:  # there is nothing to compare another version with
            deployment.word = None
            self._load(name)
            return
        try:
            self._deploy(name, new.model)
        except BaseException:
            known[name] = before
            raise

    def _deploy(self, name: str, model: str) -> None:
        rollouts = self._rollouts()
        if not isinstance(rollouts, Rollouts):
            raise Inapplicable(
                "model", model, "until the server is restarted, because rollouts are disabled on this server"
            )
        begun = rollouts.deploy(DeployRequest(model=model, deployment=name), "the configuration file")
        self._note(f"{name}: rollout {begun.id} to {begun.candidate} begins")
