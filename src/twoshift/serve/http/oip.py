"""The Open Inference Protocol over HTTP, with Triton's binary extension."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from twoshift.endpoints.faults import Fault
from twoshift.endpoints.json_body import decoded
from twoshift.errors import Inapplicable, TryLater
from twoshift.serve.deployments import Deployment
from twoshift.serve.http.app import App, Exchange, RouteKind
from twoshift.serve.http.messages import Reply, Request
from twoshift.serve.http.oip_body import HEADER, given_inputs, read_infer
from twoshift.serve.http.oip_types import (
    IndexRequest,
    InferReply,
    InferRequest,
    Live,
    Loaded,
    LoadRequest,
    OipError,
    OutputTensor,
    Ready,
)
from twoshift.serve.http.openapi import ASKING, Operation
from twoshift.serve.http.operations import Health
from twoshift.serve.http.packing import packed
from twoshift.serve.keyed import Asked, RequestKeys
from twoshift.serve.keys import Access, Caller
from twoshift.serve.keys_of import ask
from twoshift.serve.oip.about import (
    ModelIndex,
    ModelMetadata,
    ServerMetadata,
    config_of,
    index_of,
    metadata_of,
    statistics_of,
)
from twoshift.serve.oip.outputs import Output, outputs_of
from twoshift.serve.oip.protocol import InferenceProtocol, asked_timeout_s, sooner
from twoshift.serve.service import Service

__all__ = ["add_oip", "add_oip_health", "told_oip"]

_HEADER = HEADER.encode()
_BINARY = "application/octet-stream"
_NOT_READY_S = 1.0
_encoder = msgspec.json.Encoder()
_indexes, _loads = msgspec.json.Decoder(IndexRequest), msgspec.json.Decoder(LoadRequest)


def told_oip(fault: Fault) -> bytes:
    """An error as the protocol's clients read it."""
    return _encoder.encode(OipError(fault.message))


def add_oip(app: App, service: Service) -> None:
    """The paths below /v2."""
    face = _Oip(service)
    app.tell_below("/v2", told_oip)
    for model in ("/v2/models/{model}", "/v2/models/{model}/versions/{version}"):
        app.add(
            "POST",
            f"{model}/infer",
            face.infer,
            told_oip,
            _INFER,
            needs=Access.SERVE,
            kind=RouteKind.GATED,
            check=face.check_head,
        )
        for path, answer, about in (
            (f"{model}/ready", face.model_ready, _of_model("Check whether a model is ready.", Ready, 503)),
            (model, face.model, _of_model("Show the inputs and outputs of a model.", ModelMetadata)),
            (
                f"{model}/config",
                face.config,
                _of_model("Show a model's configuration in Triton's format.", dict[str, Any]),
            ),
            (f"{model}/stats", face.statistics, _of_model("Show statistics of a model.", dict[str, Any])),
        ):
            app.add("GET", path, answer, told_oip, about, needs=Access.SERVE)
    for method, path, answer, about in (
        ("GET", "/v2", face.server, _about("Show the name, version and extensions of the server.", ServerMetadata)),
        ("GET", "/v2/models/stats", face.all_statistics, _about("Show statistics of all models.", dict[str, Any])),
        ("POST", "/v2/repository/index", face.index,
         _about("List the models and their states.", list[ModelIndex], 400, takes=IndexRequest)),
    ):  # fmt: skip
        app.add(method, path, answer, told_oip, about, needs=Access.SERVE)
    load = _about("Load or reload a model.", Loaded, 400, 404, 500, 503, takes=LoadRequest)
    unload = _of_model("Unload a model after its admitted requests are answered.", Loaded, 400)
    app.add("POST", "/v2/repository/models/{model}/load", face.load, told_oip, load, needs=Access.ADMIN)
    app.add("POST", "/v2/repository/models/{model}/unload", face.unload, told_oip, unload, needs=Access.ADMIN)
    add_oip_health(app, service.unready)


def add_oip_health(app: App, unready: Health) -> None:
    """/v2/health/live and /v2/health/ready."""

    async def live(_exchange: Exchange) -> Reply:
        return Reply(200, _encoder.encode(Live()))

    async def ready(_exchange: Exchange) -> Reply:
        return _told_ready(unready())

    for path, answer, about in (
        ("/v2/health/live", live, _about("Check that the server process runs (liveness).", Live)),
        ("/v2/health/ready", ready, _about("Check whether the server is ready for requests.", Ready, 503)),
    ):
        app.add("GET", path, answer, told_oip, about, needs=Access.OPEN, kind=RouteKind.PROBE)


def _about(summary: str, gives: Any, *statuses: int, takes: Any = None) -> Operation:
    return Operation(summary, gives, OipError, takes, statuses=statuses, may_be_empty=True)


def _of_model(summary: str, gives: Any, *statuses: int) -> Operation:
    return _about(summary, gives, 404, *statuses)


_INFER = Operation(
    "Run inference. Tensors are sent as JSON, or as binary data after the JSON.",
    InferReply,
    OipError,
    InferRequest,
    takes_also=(_BINARY,),
    gives_also=(_BINARY,),
    statuses=ASKING,
    timed=True,
)


class _Oip:
    def __init__(self, service: Service) -> None:
        self._service, self._protocol = service, InferenceProtocol(service)

    async def infer(self, exchange: Exchange) -> Reply:
        model = self._found(exchange)
        if "version" in exchange.matched:
            exchange.is_pinned = True
        model = exchange.model = exchange.routed(model)
        request = exchange.request
        asked, wanted, rows, keys = (
            self._asked(model, request) if request.large is None else await exchange.read(self._asked, model, request)
        )
        parameters = asked.parameters
        timeout_s = sooner(asked_timeout_s(parameters.timeout, parameters.priority), exchange.timeout_s)
        whole = Asked(rows, keys, timeout_s, request.arrived_s, exchange.caller, request.visit)
        answer = await ask(self._service, model, whole)
        exchange.answer = answer
        reply = _reply(model.name, answer.version, asked, outputs_of(answer.rows, wanted or None))
        encodings = request.headers.get(b"accept-encoding")
        return reply if encodings is None else await packed(reply, encodings)

    def _asked(
        self, model: Deployment, request: Request
    ) -> tuple[InferRequest, list[str], Sequence[Any], RequestKeys | None]:
        """A request, the outputs that it wants, its rows and their keys."""
        asked, binary = read_infer(request.body, request.header(_HEADER), is_large=request.large is not None)
        wanted = _wanted(asked)
        given, keys = self._protocol.keyed(model, given_inputs(asked, binary))
        return asked, wanted, self._protocol.rows(model, given, wanted), keys

    def check_head(self, matched: dict[str, str], caller: Caller) -> None:
        """Whether there is such a model, for this caller."""
        caller.check_model(self._protocol.find(matched["model"], matched.get("version", "")).name)

    async def model_ready(self, exchange: Exchange) -> Reply:
        return _told_ready(self._service.unready(self._found(exchange).name))

    async def server(self, _exchange: Exchange) -> Reply:
        return Reply(200, _encoder.encode(ServerMetadata()))

    async def model(self, exchange: Exchange) -> Reply:
        return Reply(200, _encoder.encode(metadata_of(self._found(exchange))))

    async def config(self, exchange: Exchange) -> Reply:
        return Reply(200, _encoder.encode(config_of(self._found(exchange))))

    async def statistics(self, exchange: Exchange) -> Reply:
        await self._service.refresh()
        return Reply(200, _encoder.encode(statistics_of([self._found(exchange)])))

    async def all_statistics(self, _exchange: Exchange) -> Reply:
        await self._service.refresh()
        return Reply(200, _encoder.encode(statistics_of([*self._service.models.values()])))

    async def index(self, exchange: Exchange) -> Reply:
        asked = decoded(_indexes, exchange.request.body or b"{}")
        return Reply(200, _encoder.encode(index_of(self._service, asked.ready)))

    async def load(self, exchange: Exchange) -> Reply:
        asked = decoded(_loads, exchange.request.body or b"{}")
        await self._protocol.load(exchange.matched["model"], changed=bool(asked.parameters))
        return Reply(200, _encoder.encode(Loaded()))

    async def unload(self, exchange: Exchange) -> Reply:
        await self._protocol.unload(exchange.matched["model"])
        return Reply(200, _encoder.encode(Loaded()))

    def _found(self, exchange: Exchange) -> Deployment:
        return self._protocol.find(exchange.matched["model"], exchange.matched.get("version", ""))


def _told_ready(why_not: str | None) -> Reply:
    if why_not is not None:
        raise TryLater(why_not, _NOT_READY_S)
    return Reply(200, _encoder.encode(Ready()))


def _reply(model: str, version: str, asked: InferRequest, outputs: list[Output]) -> Reply:
    listed, raw = list[OutputTensor](), list[bytes]()
    for number, output in enumerate(outputs):
        if _is_binary(asked, number):
            raw.append(block := output.raw())
            parameters = {"binary_data_size": len(block)}
            listed.append(OutputTensor(output.name, output.datatype, output.shape, parameters))
        else:
            listed.append(OutputTensor(output.name, output.datatype, output.shape, data=output.listed()))
    head = _encoder.encode(InferReply(model, version, listed, UNSET if asked.id is None else asked.id))
    if not raw:
        return Reply(200, head)
    return Reply(200, b"".join([head, *raw]), _BINARY.encode(), [(_HEADER, b"%d" % len(head))])


def _wanted(asked: InferRequest) -> list[str]:
    for output in asked.outputs:
        if output.parameters.classification or output.parameters.shared_memory_region is not None:
            why = "to ask for the classification or the shared-memory extension: neither is supported"
            raise Inapplicable(f"output {output.name[:80]!r}", True, why)
    return [output.name for output in asked.outputs]


def _is_binary(asked: InferRequest, number: int) -> bool:
    binary = asked.outputs[number].parameters.binary_data if asked.outputs else None
    return asked.parameters.binary_data_output if binary is None else binary
