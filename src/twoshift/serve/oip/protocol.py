"""The Open Inference Protocol over a service, whatever its messages are made of."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from twoshift.errors import Broken, Disabled, InvalidInput, Malformed, NotFound, TooLarge, TwoshiftError
from twoshift.ports import RuntimeInfo
from twoshift.serve.deployments import Deployment
from twoshift.serve.keyed import RequestKeys
from twoshift.serve.oip.outputs import unknown_output
from twoshift.serve.oip.rows import declared_inputs, row_reader
from twoshift.serve.oip.tensors import GivenTensor, bad_tensor
from twoshift.serve.service import Repository, Service

__all__ = ["InferenceProtocol", "asked_timeout_s", "sooner"]

_MOST_READERS = 256
_TEXT = "text"
_LONGEST_US = 3_600_000_000


class InferenceProtocol:
    """What both of its transports do."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._readers: dict[tuple[str, str], tuple[RuntimeInfo, Callable[[Sequence[GivenTensor]], Sequence[Any]]]] = {}

    def find(self, name: str, version: str = "") -> Deployment:
        """The model; raises NotFound where there is none of that name or version."""
        model = self.service.find(name)
        if version in ("", model.version):
            return model
        split = model.split
        if split is not None and split.candidate.version == version:
            return split.candidate
        known = model.version if split is None else f"{model.version} or {split.candidate.version}"
        raise NotFound("version", version, f"{known}, which the server serves for {model.name}")

    def keyed(
        self, model: Deployment, given: Sequence[GivenTensor]
    ) -> tuple[Sequence[GivenTensor], RequestKeys | None]:
        """The model's own tensors, and keys of precomputed answers: a tensor that has the name of their column."""
        by_key = self.service.precomputed(model.name)
        if by_key is None:
            return given, None
        name = by_key.rules.key
        keys = next((each for each in given if each.name == name), None)
        if keys is None:
            texts = next((each for each in given if each.name == _TEXT), None) if by_key.text_is_key else None
            return given, None if texts is None else RequestKeys(list(texts.values), f"input '{_TEXT}'")
        if any(each.name == name for each in declared_inputs(model.info)):
            return given, RequestKeys(_listed(keys), f"input {name!r}")
        rest = [each for each in given if each is not keys]
        if rest and keys.shape[0] != rest[0].shape[0]:
            raise bad_tensor(name, list(keys.shape), f"{rest[0].shape[0]:,} rows, as in {rest[0].name[:80]!r}")
        return rest, RequestKeys(_listed(keys), f"input {name!r}")

    def rows(self, model: Deployment, given: Sequence[GivenTensor], outputs: Sequence[str]) -> Sequence[Any]:
        """A request's rows; raises InvalidInput for tensors that are not the model's, before they cost anything."""
        for each in given:
            if each.shape[0] > model.most_rows:  # not after: a row costs more than its byte
                accepted = f"at most {model.most_rows:,} rows in a request"
                raise TooLarge(f"input {each.name[:80]!r}", f"{each.shape[0]:,} rows", accepted)
        known = model.info.outputs  # of a class that does not say, only its answer knows
        for name in outputs if known else ():
            if name not in known:
                raise unknown_output(name, known)
        return self._reader(model)(given)

    def _reader(self, model: Deployment) -> Callable[[Sequence[GivenTensor]], Sequence[Any]]:
        """Made once for what answers now."""
        info, kept = model.info, (model.name, model.version)
        known = self._readers.get(kept)
        if known is None or known[0] is not info:
            if len(self._readers) >= _MOST_READERS:
                self._readers.clear()
            known = self._readers[kept] = (info, row_reader(info))
        return known[1]

    async def load(self, name: str, changed: bool) -> None:
        """Load it, or load it anew; raises NotFound, InvalidInput, or why it cannot be loaded."""
        if changed:
            told = f"no parameters, because the server always loads {name} with the settings of its own configuration"
            raise Malformed("parameters", told)
        await self._done(self._repository.load, name)

    async def unload(self, name: str) -> None:
        """What was admitted is answered, then it is let go; raises NotFound."""
        await self._done(self._repository.unload, name)

    @property
    def _repository(self) -> Repository:
        if self.service.repository is None:
            raise Disabled("model repository", "models cannot be loaded or unloaded on this server")
        return self.service.repository

    async def _done(self, what: Callable[[str], Future[None]], name: str) -> None:
        """It goes on where the client does not wait for it."""
        try:
            await asyncio.shield(asyncio.wrap_future(what(name)))
        except TwoshiftError:
            raise
        except Exception as error:  # a model's own code may raise anything
            raise Broken(f"{name} could not be loaded: {error}") from error


def _listed(keys: GivenTensor) -> list[Any]:
    """One a row; raises InvalidInput where they are none."""
    values = keys.values if isinstance(keys.values, list) else keys.values.tolist()
    if len(values) != keys.shape[0] or not all(isinstance(each, int | str) for each in values):
        raise bad_tensor(keys.name, f"{keys.datatype} {list(keys.shape)}", "integers or texts of the shape [rows]")
    return values


def asked_timeout_s(timeout_us: object, priority: object) -> float | None:
    """The parameter `timeout`; 0 is none.

    `priority` is 1 or more, and 0 for the usual: it is checked and changes nothing, as live requests have one lane.
    """
    if timeout_us is None and priority is None:
        return None
    for name, value in (("priority", priority), ("timeout", timeout_us)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
            raise InvalidInput(f"parameters.{name}", value, "a whole number, 0 or more")
    if not isinstance(timeout_us, int) or timeout_us == 0:
        return None
    if timeout_us > _LONGEST_US:
        raise InvalidInput(
            "parameters.timeout", timeout_us, f"a number of microseconds, at most {_LONGEST_US:,} (one hour)"
        )
    return timeout_us / 1e6


def sooner(one_s: float | None, other_s: float | None) -> float | None:
    """The shorter of two times, of which either may not be given."""
    if one_s is None or other_s is None:
        return other_s if one_s is None else one_s
    return min(one_s, other_s)
