"""The indexes that a server searches, by the deployment that embeds their queries."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from twoshift.errors import Disabled
from twoshift.ports import Blobs
from twoshift.serve.deployments import Deployment

if TYPE_CHECKING:
    from twoshift.vectors.following import FollowedIndex
    from twoshift.vectors.searching import OpenIndex

__all__ = ["SearchIndexes", "version_for"]


class SearchIndexes:
    """Each is followed from when it is first named until it is named no more."""

    def __init__(self, blobs_for: Callable[[str], Blobs]) -> None:
        self._blobs_for = blobs_for
        self._indexes: dict[str, FollowedIndex] = {}
        self._lock = threading.Lock()  # guards changes of it

    def follow(self, deployment: str, location: str | None) -> None:
        """Queries of that deployment go to this index from now on; to none where there is none."""
        with self._lock:
            before = self._indexes.get(deployment)
            if before is not None and before.location == location:
                return
            if location is None:
                self._indexes.pop(deployment, None)
            else:
                from twoshift.vectors.following import FollowedIndex  # pyarrow: an extra

                found = self._indexes[deployment] = FollowedIndex(location, self._blobs_for)
                found.start()
        if before is not None:
            before.close()

    def close(self) -> None:
        """No more searches."""
        for name in [*self._indexes]:
            self.follow(name, None)

    def of(self, model: Deployment) -> OpenIndex:
        """The generation that its queries go to; raises Disabled where it has no index, TryLater where none is open."""
        found = self._indexes.get(model.name)
        if found is None:
            todo = "start the server with --index, or set `index` for this model in the configuration file"
            raise Disabled(f"search with {model.name}", todo)
        return found.now()


def version_for(model: Deployment, index: OpenIndex) -> Deployment:
    """The version of a deployment whose vectors the index has: vectors of two versions do not go together.

    Raises InvalidInput where it is neither the stable one nor a candidate.
    """
    split = model.split
    for each in (model,) if split is None else (split.stable, split.candidate):
        if each.serving is not None and each.info.checksum == index.generation.checksum:
            return each
    index.check_model(model.name, model.info.checksum)
    return model
