"""The service's methods, one message in and one out."""

from __future__ import annotations

from typing import Any

import msgspec
from google.protobuf import json_format

from twoshift.errors import NotFound
from twoshift.serve.grpc.calls import GrpcCall, Method
from twoshift.serve.grpc.messages import message
from twoshift.serve.grpc.tensors import answer_of, given_of, parameter, wanted_of
from twoshift.serve.keyed import Asked
from twoshift.serve.keys import Access
from twoshift.serve.keys_of import ask
from twoshift.serve.oip.about import ServerMetadata, config_of, index_of, metadata_of, statistics_of
from twoshift.serve.oip.outputs import outputs_of
from twoshift.serve.oip.protocol import InferenceProtocol, asked_timeout_s, sooner
from twoshift.serve.service import Service

__all__ = ["Methods"]


class Methods:
    """Over the same protocol as HTTP's face."""

    def __init__(self, service: Service) -> None:
        self._service, self._protocol = service, InferenceProtocol(service)
        self.by_name: dict[str, Method] = {
            "ServerLive": self._server_live,
            "ServerReady": self._server_ready,
            "ServerMetadata": self._server_metadata,
            "ModelReady": self._model_ready,
            "ModelMetadata": self._model_metadata,
            "ModelConfig": self._model_config,
            "ModelStatistics": self._model_statistics,
            "ModelInfer": self.infer,
            "RepositoryIndex": self._repository_index,
            "RepositoryModelLoad": self._load,
            "RepositoryModelUnload": self._unload,
        }

    async def infer(self, request: Any, call: GrpcCall) -> Any:
        """Tensors to tensors."""
        model = self._protocol.find(request.model_name, request.model_version)
        if request.model_version:
            call.is_pinned = True
        model = call.model = call.routed(model)
        wanted = wanted_of(request)
        given, keys = self._protocol.keyed(model, given_of(request))
        rows = self._protocol.rows(model, given, wanted)
        asked_s = asked_timeout_s(parameter(request, "timeout"), parameter(request, "priority"))
        timeout_s = sooner(asked_s, call.timeout_s)
        visit = self._service.enter(model, request.ByteSize(), timeout_s, call.arrived_s)
        try:
            asked = Asked(rows, keys, timeout_s, call.arrived_s, call.caller, visit)
            call.answer = answer = await ask(self._service, model, asked)
            return answer_of(request.id, model.name, answer.version, outputs_of(answer.rows, wanted or None))
        finally:
            visit.end()

    async def _server_live(self, _request: Any, _call: GrpcCall) -> Any:
        return message("ServerLiveResponse")(live=True)

    async def _server_ready(self, _request: Any, _call: GrpcCall) -> Any:
        return message("ServerReadyResponse")(ready=self._service.unready() is None)

    async def _server_metadata(self, _request: Any, _call: GrpcCall) -> Any:
        return _made("ServerMetadataResponse", ServerMetadata())

    async def _model_ready(self, request: Any, _call: GrpcCall) -> Any:
        """False for one that is not there: clients ask until it is true."""
        try:
            name = self._protocol.find(request.name, request.version).name
        except NotFound:
            return message("ModelReadyResponse")(ready=False)
        return message("ModelReadyResponse")(ready=self._service.unready(name) is None)

    async def _model_metadata(self, request: Any, _call: GrpcCall) -> Any:
        return _made("ModelMetadataResponse", metadata_of(self._protocol.find(request.name, request.version)))

    async def _model_config(self, request: Any, _call: GrpcCall) -> Any:
        config = config_of(self._protocol.find(request.name, request.version))
        return _made("ModelConfigResponse", {"config": config})

    async def _model_statistics(self, request: Any, _call: GrpcCall) -> Any:
        await self._service.refresh()
        named = [self._protocol.find(request.name, request.version)] if request.name else self._service.models.values()
        return _made("ModelStatisticsResponse", statistics_of([*named]))

    async def _repository_index(self, request: Any, _call: GrpcCall) -> Any:
        return _made("RepositoryIndexResponse", {"models": index_of(self._service, request.ready)})

    async def _load(self, request: Any, call: GrpcCall) -> Any:
        call.caller.check(Access.ADMIN)
        await self._protocol.load(request.model_name, changed=bool(request.parameters))
        return message("RepositoryModelLoadResponse")()

    async def _unload(self, request: Any, call: GrpcCall) -> Any:
        call.caller.check(Access.ADMIN)
        await self._protocol.unload(request.model_name)
        return message("RepositoryModelUnloadResponse")()


def _made(name: str, values: Any) -> Any:
    return json_format.ParseDict(msgspec.to_builtins(values), message(name)())
