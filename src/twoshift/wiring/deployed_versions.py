"""NAME:3 and NAME@prod where a server is asked: the deployment that serves this version."""

from __future__ import annotations

from twoshift.errors import NotFound
from twoshift.registry.names import parse_ref
from twoshift.serve.deployments import Deployments
from twoshift.wiring.registered_models import pinned

__all__ = ["deployed_version"]


def deployed_version(models: Deployments, word: str, registry: str | None) -> tuple[str, str]:
    """The deployment of that name and NAME:3, which it serves; raises NotFound where it serves another version.

    Only the deployment that has the model's name is looked at: who may use it is known by what was asked for.
    """
    ref = parse_ref(word)
    known = None if ref is None or not ref.is_explicit else models.all.get(ref.name)
    if ref is None or known is None:
        raise NotFound("model", word, f"one of {', '.join(sorted(models.names()))}, the models of this server")
    serving = known.serving
    if serving is None:  # it says itself why it does not answer
        return known.name, word
    served = serving.backend.info.model
    try:
        wanted = word if ref.version is not None else pinned(word, serving.backend.info.registry or registry)
    except NotFound:  # what else the registry has is not for everybody to know
        wanted = word
    if wanted != served:
        raise NotFound("model", word, f"{served}, the version that this server serves as {known.name}")
    return known.name, wanted
