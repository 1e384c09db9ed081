"""Who tries new versions on a server, with its adapters."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from twoshift.errors import InvalidInput, NotFound, TryLater
from twoshift.serve.http.jobs import NoJobs
from twoshift.serve.rollouts import Rollouts
from twoshift.wiring.candidates import RegisteredVersions, compare_function, shadow_of

if TYPE_CHECKING:
    import asyncio

    from twoshift.serve.deployments import Deployments
    from twoshift.serve.rollout_run import Split, VersionActs
    from twoshift.serve.settings import ModelSettings, ServeSettings
    from twoshift.serve.shadow import Shadow
    from twoshift.server_services import ServerServices

__all__ = ["remember_versions", "rollouts_for"]

_ONE_FRONT = "a server with one front-end process: start it with fronts = 1 (--fronts 1) to use rollouts"
_LOCAL = "a server with engine = local: on Ray Serve, a new version is deployed by changing `model` and a restart"


def rollouts_for(
    services: ServerServices,
    models: Deployments,
    settings: ServeSettings,
    acts: VersionActs,
    loop: asyncio.AbstractEventLoop,
    has_fronts: bool,
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
        return shadow_of(of, split, loop)

    refusal = _ONE_FRONT if has_fronts else "" if settings.engine == "local" else _LOCAL
    source = RegisteredVersions(models, settings.models, settings.registry)
    return Rollouts(SqlRollouts(services.database), models, settings.models, acts, source, shadow_for, refusal)


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
            note(f"{name}: {word}, which a rollout left stable, is not in the registry any more; loading {configured}")
            continue
        except (InvalidInput, TryLater):
            pass  # no registered model; or the cache has it
        deployment.word = word
        note(f"{name}: loading {word}, which the last rollout left stable; the settings name {configured}")
