"""Who is measured: Twoshift, and Triton, LitServe, BentoML and Ray Serve, each in an environment of its own.

The model inside each is Twoshift's own runtime.
"""

from __future__ import annotations

import argparse
import base64
import json
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from _environments import Environment, variables
from _load import post
from _servers import Skipped
from numpy.typing import NDArray

SLO_MS = "2000"
T = TypeVar("T")
_OCTETS = "content-type: application/octet-stream"


class Face(NamedTuple):
    """How a row is asked for, and where its numbers are in the reply's body."""

    request: Callable[[Any], bytes]
    numbers: Callable[[bytes], NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class Peer:
    """A server and its faces, by name; the model is what a face's name begins with."""

    name: str
    faces: Mapping[str, Face]
    words: Callable[[str, int], list[str]]  # of a model and a port; without the interpreter
    environment: Environment | None = None  # None: this very one
    extra: Mapping[str, str] = field(default_factory=dict[str, str])  # of its environment: as tuned
    plain: Mapping[str, str] = field(default_factory=dict[str, str])  # over it: as its first examples have it

    def changed(self, extra: Mapping[str, str]) -> Peer:
        """With other settings."""
        return replace(self, extra={**self.extra, **extra})

    def command(self, model: str, port: int) -> list[str]:
        """Raises Skipped where it cannot be installed."""
        python = self.environment.python() if self.environment else Path(sys.executable)
        return [str(python), *self.words(model, port)]

    def environ(self) -> dict[str, str]:
        """As it is tuned."""
        return {**variables(), **self.extra}


def _json_face(wrap: Callable[[Any], Any], path: str, find: Callable[[Any], Any]) -> Face:
    """Vectors come in base64, other numbers as such."""

    def numbers(body: bytes) -> NDArray[np.float32]:
        found = find(json.loads(body))
        return np.frombuffer(base64.b64decode(found), "<f4") if isinstance(found, str) else np.array(found, np.float32)

    return Face(lambda row: post(path, json.dumps(wrap(row)).encode()), numbers)


def _oip(model: str, head: dict[str, Any], payload: bytes = b"") -> bytes:
    """A request of the Open Inference Protocol; with a payload, by its binary extension."""
    path, packed = f"/v2/models/{model}/infer", json.dumps(head).encode()
    if not payload:
        return post(path, packed)
    return post(path, packed + payload, (_OCTETS, f"inference-header-content-length: {len(packed)}"))


def _tensor(name: str, kind: str, shape: list[int], payload: bytes) -> dict[str, Any]:
    return {"name": name, "shape": shape, "datatype": kind, "parameters": {"binary_data_size": len(payload)}}


def _oip_text(text: str) -> bytes:
    payload = struct.pack("<I", len(text)) + text.encode()
    outputs = [{"name": "embedding", "parameters": {"binary_data": True}}]
    return _oip("minilm", {"inputs": [_tensor("text", "BYTES", [1, 1], payload)], "outputs": outputs}, payload)


def _oip_numbers(row: Sequence[float]) -> bytes:
    given = {"name": "x", "shape": [1, len(row)], "datatype": "FP32", "data": list(row)}
    return _oip("identity", {"inputs": [given]})


def _oip_packed_numbers(row: Sequence[float]) -> bytes:
    payload = np.array(row, "<f4").tobytes()
    outputs = [{"name": "y", "parameters": {"binary_data": True}}]
    inputs = [_tensor("x", "FP32", [1, len(row)], payload)]
    return _oip("identity", {"inputs": inputs, "outputs": outputs}, payload)


def _tail(count: int) -> Callable[[bytes], NDArray[np.float32]]:
    return lambda body: np.frombuffer(body[-4 * count :], "<f4")


def _listed(body: bytes) -> NDArray[np.float32]:
    return np.ravel(json.loads(body)["outputs"][0]["data"]).astype(np.float32)


_OIP_IDENTITY = {"identity": Face(_oip_numbers, _listed), "identity, binary": Face(_oip_packed_numbers, _tail(4))}
_PLAIN = {
    "minilm": _json_face(lambda text: {"input": text}, "/predict", lambda reply: reply["output"]),
    "identity": _json_face(lambda row: {"input": list(row)}, "/predict", lambda reply: reply["output"]),
}
_LISTS = {
    "minilm": _json_face(lambda text: {"texts": [text]}, "/predict", lambda reply: reply[0]),
    "identity": _json_face(lambda row: {"rows": [list(row)]}, "/predict", lambda reply: reply[0]),
}


def _openai_body(text: str) -> dict[str, str]:
    return {"model": "minilm", "input": text, "encoding_format": "base64"}  # as OpenAI's own client asks


def _twoshift_words(model: str, port: int) -> list[str]:
    served = {"minilm": ["minilm"], "identity": ["_identity.py:Identity", "--name", "identity"]}[model]
    return ["-m", "twoshift", "serve", *served, "--slo-ms", SLO_MS, "--port", str(port)]


def _bentoml_words(model: str, port: int) -> list[str]:
    service = {"minilm": "Embedder", "identity": "Identity"}[model]
    return ["-m", "bentoml", "serve", f"_peer_bentoml:{service}", "--host", "127.0.0.1", "--port", str(port)]


def _program(name: str) -> Callable[[str, int], list[str]]:
    return lambda model, port: [str(Path(__file__).with_name(name)), model, str(port)]


TWOSHIFT = Peer(
    "twoshift",
    {
        "minilm": _json_face(_openai_body, "/v1/embeddings", lambda reply: reply["data"][0]["embedding"]),
        **_OIP_IDENTITY,
    },
    _twoshift_words,
)
TRITON = Peer(
    "Triton",
    {"minilm": Face(_oip_text, _tail(384)), **_OIP_IDENTITY},
    _program("_peer_triton.py"),
    Environment("Triton", ("nvidia-pytriton",), numpy="numpy<2", system_python=True),  # it takes no newer one
)
LITSERVE = Peer(
    "LitServe",
    _PLAIN,
    _program("_peer_litserve.py"),
    Environment("LitServe", ("litserve", "uvloop", "httptools")),
    plain={"PEER_FAST_QUEUE": "0", "PEER_WAIT_MS": "50"},
)
BENTOML = Peer(
    "BentoML",
    _LISTS,
    _bentoml_words,
    Environment("BentoML", ("bentoml", "uvloop", "httptools")),
    plain={"PEER_SLOWEST_MS": "60000"},
)
RAY = Peer(
    "Ray Serve",
    _PLAIN,
    _program("_peer_ray.py"),
    Environment("Ray Serve", ("ray[serve]",)),
    extra={"RAY_AUTH_MODE": "disabled", "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1", "RAY_SERVE_ENABLE_HA_PROXY": "1"},
    plain={"RAY_SERVE_THROUGHPUT_OPTIMIZED": "0", "RAY_SERVE_ENABLE_HA_PROXY": "0", "PEER_WAIT_MS": "10"},
)
PEERS = (TRITON, LITSERVE, BENTOML, RAY)


def add_choice(parser: argparse.ArgumentParser) -> None:
    """Which peers, and how."""
    parser.add_argument("--only", nargs="*", default=[peer.name for peer in PEERS], help="the peers, by name")
    parser.add_argument("--plain", action="store_true", help="the peers as their first examples have them, not tuned")


def chosen(options: argparse.Namespace) -> list[Peer]:
    """The peers that were asked for."""
    return [peer.changed(peer.plain if options.plain else {}) for peer in PEERS if peer.name in options.only]


def take_turns(peers: Sequence[Peer], measured: Callable[[Peer], T], turns: int) -> dict[str, list[T]]:
    """Every peer in each turn; one that cannot run is named and left out."""
    found: dict[str, list[T]] = {peer.name: [] for peer in peers}
    left = list(peers)
    for turn in range(turns):
        print(f"turn {turn + 1}", flush=True)
        for peer in tuple(left):
            try:
                found[peer.name].append(measured(peer))
            except Skipped as why:
                if peer is TWOSHIFT:
                    raise SystemExit(str(why)) from None
                print(f"  skipped: {why}", flush=True)
                left.remove(peer)
    return {name: each for name, each in found.items() if each}
