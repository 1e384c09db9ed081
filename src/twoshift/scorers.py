"""`twoshift.Scorer` and `twoshift.spark_scorer`: a model inside somebody else's pipeline, the same on every worker."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from twoshift.batch.pipeline_models import plain_options
from twoshift.batch.pipelines import BatchScorer
from twoshift.errors import Broken, InvalidInput
from twoshift.registry.names import parse_ref
from twoshift.wiring.registered_models import found_version, is_registered, local_model, registry_location

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Scorer", "spark_scorer"]


class Scorer(BatchScorer):
    """A model that adds its columns and `error` to batches; loaded once, in whatever process makes it.

    For `Dataset.map_batches`, with `fn_constructor_kwargs`. A row that cannot be scored has a text in `error`, and in
    the model's columns NaN where they hold floats, None where they hold texts, and 0 elsewhere.
    """

    def __init__(self, model: str, *, registry: str | None = None, checksum: str | None = None, **options: Any) -> None:
        """`text`, `pair` or `columns` are what the model is given, all columns without any; `keep` is what stays.

        Other options are those of `load_model`, and for a language model what `run` has for it: `prompt` (a column, or
        a template), `system`, `max_tokens`, `temperature`, `top_p`, `seed`, `stop`, `json_schema`. A registered model
        is looked up in `registry`, and with `checksum` it has to be that very content: `Scorer.pinned` gives both.
        Raises InvalidInput where the model or an option cannot be used.
        """
        super().__init__(_files(model, registry, checksum, bool(options.get("trust_pickle"))), **options)

    @classmethod
    def pinned(cls, model: str, *, registry: str | None = None, **options: Any) -> dict[str, Any]:
        """The keyword arguments with which every worker loads the version that `model` names now.

        For `fn_constructor_kwargs`; other models than registered ones are left as they are. Raises NotFound.
        """
        return {**_pin(model, registry), **options}


def spark_scorer(
    model: str, *, registry: str | None = None, **options: Any
) -> Callable[[Iterator[pd.DataFrame]], Iterator[pd.DataFrame]]:
    """A function for `DataFrame.mapInPandas`; the options are those of `Scorer`. A row that failed has nulls.

    A registered model is looked up here, and every worker loads that version. It is loaded where Spark runs it, once a
    Python worker, with as many threads as Spark gives a task.
    """
    given = tuple(sorted(plain_options({**_pin(model, registry), **options}).items()))

    def score(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        return _shared_scorer(given).stream(batches)

    return score


# Spark uses a Python worker for many tasks. All are kept: nobody would close one that is dropped, as a task may use it
@cache
def _shared_scorer(options: tuple[tuple[str, Any], ...]) -> Scorer:
    return Scorer(**dict(options))


def _pin(model: str, registry: str | None) -> dict[str, Any]:
    version = found_version(model, registry)
    if version is None:
        return {"model": model}
    return {"model": version.ref, "registry": registry_location(registry), "checksum": version.checksum}


def _files(model: str, registry: str | None, checksum: str | None, trust_pickle: bool) -> str:
    """The model as the runtimes take it; raises Broken where another version lies there than the driver has seen."""
    if not is_registered(model, registry):
        return model
    ref = parse_ref(model)
    if ref is not None and ref.version is None and _is_ray_actor():
        accepted = (
            "a model version, so that every actor loads the same model: pass "
            "fn_constructor_kwargs=twoshift.Scorer.pinned(model, ...)"
        )
        raise InvalidInput("model", model, accepted)
    version = found_version(model, registry)
    if checksum is not None and version is not None and version.checksum != checksum:
        where = registry_location(registry)
        raise Broken(
            f"{version.ref} in {where} has the checksum {version.checksum}, but the driver has loaded {checksum}: "
            "give the workers and the driver the same registry, and run the driver again"
        )
    return local_model(model, registry, trust_pickle=trust_pickle).word


def _is_ray_actor() -> bool:
    ray = sys.modules.get("ray")
    return ray is not None and ray.is_initialized() and ray.get_runtime_context().get_actor_id() is not None
