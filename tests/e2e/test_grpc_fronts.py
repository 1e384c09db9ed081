"""gRPC over several front processes: one server to its clients, whichever process their connection lands at."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import signal
import socket
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from programs import PROGRAM, environment
from servers import Server, until
from test_fronts import FRONTS, PATIENT, fronts_of, started
from test_replicas import SOURCE, lives

pytest.importorskip("grpc", reason="the grpc extra is not installed")

import grpc

from twoshift.serve.grpc.messages import SERVICE, message

pytestmark = pytest.mark.slow
CODE = grpc.StatusCode
TIMEOUT_S = 60.0
MANY = 12  # connections: that one front gets them all is not to be expected


class Client:
    """A connection of its own."""

    def __init__(self, address: str, **metadata: str) -> None:
        self._metadata = tuple(metadata.items())
        self.channel = grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)])

    def begin(self, name: str, /, *, wait_for_ready: bool = False, **fields: Any) -> Any:
        """A call on its way."""
        method = self.channel.unary_unary(
            f"/{SERVICE}/{name}",
            request_serializer=message(f"{name}Request").SerializeToString,
            response_deserializer=message(f"{name}Response").FromString,
        )
        request = message(f"{name}Request")(**fields)
        return method.future(request, TIMEOUT_S, self._metadata, wait_for_ready=wait_for_ready)

    def infer(self, text: str, **how: Any) -> Any:
        """The same, for a text."""
        return self.begin("ModelInfer", **asked(text), **how)

    def size(self, text: str, **how: Any) -> int:
        """What the model answers."""
        reply = self.infer(text, **how).result()
        return int(np.frombuffer(reply.raw_output_contents[0], "<f8")[0])

    def stream(self, texts: Sequence[str]) -> Any:
        """Replies to texts, over one call."""
        method = self.channel.stream_stream(
            f"/{SERVICE}/ModelStreamInfer",
            request_serializer=message("ModelInferRequest").SerializeToString,
            response_deserializer=message("ModelStreamInferResponse").FromString,
        )
        return method((message("ModelInferRequest")(**asked(text)) for text in texts), TIMEOUT_S, self._metadata)


def asked(text: str) -> dict[str, Any]:
    given = {"name": "text", "datatype": "BYTES", "shape": [1], "contents": {"bytes_contents": [text.encode()]}}
    patient = {"timeout": {"int64_param": int(1e6 * TIMEOUT_S)}}
    return {"model_name": "Sized", "inputs": [given], "parameters": patient}


def code_of(call: Any) -> Any:
    """How it ends."""
    return call.exception().code() if call.exception() else CODE.OK


def grpc_address(server: Server) -> str:
    found = re.search(r"gRPC at (\S+)", server.said)
    assert found
    return found[1]


@contextlib.contextmanager
def clients_at(server: Server, **metadata: str) -> Iterator[list[Client]]:
    """Connected, with some at each front."""
    made = list[Client]()
    try:
        while len(made) < MANY or not all(connections(server, pid) for pid in fronts_of(server)):
            made.append(Client(grpc_address(server), **metadata))
            assert made[-1].begin("ServerLive").result().live
        yield made
    finally:
        for each in made:
            each.channel.close()


def connections(server: Server, pid: int) -> int:
    """Of gRPC's clients, that this process has."""
    port = int(grpc_address(server).rpartition(":")[2])
    links = set[str]()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # just closed
            links.add(str(each.readlink()))
    lines = [line for name in ("tcp", "tcp6") for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()]
    open_here = [each for each in map(str.split, lines) if each[3] == "01" and each[1].endswith(f":{port:04X}")]
    return sum(f"socket:[{each[9]}]" in links for each in open_here)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("grpc")
    (made / "m.py").write_text(SOURCE)
    return made


@pytest.fixture(scope="module")
def shared(folder: Path) -> Iterator[Server]:
    """For tests that leave it as they found it."""
    server = started(folder, "--grpc-port", "0")
    yield server
    server.end()


@pytest.fixture
def own(folder: Path) -> Iterator[Server]:
    """For one that does not."""
    server = started(folder, "--grpc-port", "0")
    yield server
    server.end()


def test_every_front_answers_and_what_they_count_is_one_servers(shared: Server) -> None:
    before = shared.counted("requests_total", status="200")
    with clients_at(shared) as clients, ThreadPoolExecutor(len(clients)) as pool:
        sizes = range(1, len(clients) + 1)
        assert list(pool.map(lambda client, size: client.size("a" * size), clients, sizes)) == [*sizes]
        held = {pid: connections(shared, pid) for pid in fronts_of(shared)}
        assert len(held) == FRONTS
        assert sum(held.values()) == len(clients)
        assert min(held.values()) > 0
        assert shared.counted("requests_total", status="200") - before == len(clients)
        for each in clients:
            found = each.begin("ModelStatistics", name="Sized").result().model_stats[0].inference_stats.success
            assert found.count == shared.counted("requests_total", status="200")


def test_every_front_says_how_the_server_is(shared: Server) -> None:
    with clients_at(shared) as clients:
        for each in clients:
            assert each.begin("ServerReady").result().ready
            assert each.begin("ModelReady", name="Sized").result().ready
            assert not each.begin("ModelReady", name="nope").result().ready
            assert each.begin("ServerMetadata").result().name == "twoshift"
        for name in ("ModelMetadata", "ModelConfig"):
            found = [each.begin(name, name="Sized").result() for each in clients]
            assert all(each == found[0] for each in found)
            assert code_of(clients[0].begin(name, name="nope")) is CODE.NOT_FOUND


def test_a_stream_is_answered_in_order_by_every_front(shared: Server) -> None:
    with clients_at(shared) as clients:
        for each in clients:
            replies = [reply.infer_response for reply in each.stream(["a" * k for k in range(1, 21)])]
            assert [np.frombuffer(reply.raw_output_contents[0], "<f8")[0] for reply in replies] == [*range(1, 21)]


def test_models_are_unloaded_and_loaded_from_every_front_and_all_know_at_once(shared: Server) -> None:
    with clients_at(shared) as clients:
        for each in clients[:3]:
            each.begin("RepositoryModelUnload", model_name="Sized").result()
            assert {code_of(other.infer("a")) for other in clients} == {CODE.NOT_FOUND}
            assert not any(other.begin("ModelReady", name="Sized").result().ready for other in clients)
            index = [other.begin("RepositoryIndex").result().models[0].state for other in clients]
            assert set(index) == {"UNAVAILABLE"}
            each.begin("RepositoryModelLoad", model_name="Sized").result()
            assert [other.size("abc") for other in clients] == [3] * len(clients)
            assert all(other.begin("ServerReady").result().ready for other in clients)


def test_what_goes_on_to_the_main_process_comes_back_as_it_was_told(shared: Server) -> None:
    with clients_at(shared, **{"x-request-id": "mine"}) as clients:
        for each in clients:
            call = each.begin("RepositoryIndex")
            assert call.result().models[0].state == "READY"
            assert dict(call.trailing_metadata())["x-request-id"] == "mine"
            refused = each.begin("RepositoryModelLoad", model_name="nope")
            assert refused.exception().code() is CODE.NOT_FOUND
            assert "one of these models: Sized" in refused.exception().details()
            assert dict(refused.trailing_metadata())["x-request-id"] == "mine"


def test_the_limit_of_a_key_holds_over_all_fronts_and_over_http(folder: Path) -> None:
    lines = ["grpc_port = 0", f"fronts = {FRONTS}", f'[models.Sized]\nmodel = "{folder}/m.py:Sized"\nslo_ms = 60000']
    limits = {"few": "requests_per_minute = 6", "narrow": "concurrency = 2", "free": 'scopes = ["admin"]'}
    for name, more in limits.items():
        digest = hashlib.sha256(f"ts-{name}".encode()).hexdigest()
        lines.append(f'[keys.{name}]\nsha256 = "{digest}"\n{more}')
    (folder / "server.toml").write_text("\n".join(lines))
    server = Server(folder / "home", "--config", str(folder / "server.toml"))
    gate = folder / "narrow"
    try:
        with clients_at(server, authorization="Bearer ts-few") as clients:
            codes = Counter(code_of(each) for each in [each.infer("a") for each in clients])
            assert codes == {CODE.OK: 1, CODE.RESOURCE_EXHAUSTED: len(clients) - 1}
            assert server.embed("Sized", "a", authorization="Bearer ts-few", **PATIENT).status == 429
            assert code_of(clients[0].begin("RepositoryModelUnload", model_name="Sized")) is CODE.PERMISSION_DENIED
        with clients_at(server, authorization="Bearer ts-narrow") as clients:
            calls = [each.infer(f"wait {gate}") for each in clients]
            until(lambda: sum(each.done() for each in calls) == len(calls) - 2)
            gate.touch()
            codes = Counter(map(code_of, calls))
            assert codes == {CODE.OK: 2, CODE.RESOURCE_EXHAUSTED: len(calls) - 2}
            assert clients[0].size("a") == 1
        with clients_at(server, authorization="Bearer ts-nobody") as clients:
            assert {code_of(each.infer("a")) for each in clients} == {CODE.UNAUTHENTICATED}
            assert {code_of(each.begin("RepositoryIndex")) for each in clients} == {CODE.UNAUTHENTICATED}
    finally:
        server.end()


def test_a_killed_front_costs_its_own_calls_alone(own: Server, folder: Path) -> None:
    gate = folder / "killed"
    with clients_at(own) as clients:
        assert [each.size("a") for each in clients] == [1] * len(clients)
        before = own.counted("requests_total", status="200")
        calls = [each.infer(f"wait {gate}") for each in clients]
        until(lambda: own.counted("host_requests") == len(calls))
        victim = min(fronts_of(own))
        lost = connections(own, victim)
        os.kill(victim, signal.SIGKILL)
        until(lambda: not Path(f"/proc/{victim}").exists())  # all of its threads, the last of which closes its sockets
        new = [Client(grpc_address(own)) for _ in range(MANY)]
        assert all(each.begin("ServerLive").result().live for each in new)  # the other front has them
        until(lambda: sum(each.done() for each in calls) == lost)
        gate.touch()
        codes = Counter(map(code_of, calls))
        assert codes == {CODE.UNAVAILABLE: lost, CODE.OK: len(calls) - lost}
        assert [each.size("ab", wait_for_ready=True) for each in (*clients, *new)] == [2] * (len(clients) + MANY)
        until(lambda: len(fronts_of(own)) == FRONTS)
        answered = len(calls) - lost + len(clients) + MANY
        assert own.counted("requests_total", status="200") == before + answered
        for each in new:
            each.channel.close()
    with clients_at(own) as clients:  # some at the new front
        assert [each.size("abc") for each in clients] == [3] * len(clients)
    assert own.stop() == 0


def test_calls_at_a_front_that_hangs_end_when_it_is_replaced(own: Server) -> None:
    with clients_at(own) as clients:
        victim = min(fronts_of(own))
        lost = connections(own, victim)
        os.kill(victim, signal.SIGSTOP)
        codes = Counter(code_of(each) for each in [each.infer("a") for each in clients])
        assert codes == {CODE.UNAVAILABLE: lost, CODE.OK: len(clients) - lost}
        until(lambda: not lives(victim))
        assert [each.size("a", wait_for_ready=True) for each in clients] == [1] * len(clients)


def test_what_was_admitted_is_answered_before_the_end(own: Server, folder: Path) -> None:
    gate = folder / "end"
    with clients_at(own) as clients:
        calls = [each.infer(f"wait {gate}") for each in clients]
        until(lambda: own.counted("host_requests") == len(calls))
        own.process.send_signal(signal.SIGTERM)
        until(lambda: "stopping" in own.said)
        gate.touch()
        assert {code_of(each) for each in calls} == {CODE.OK}
        assert own.process.wait(60) == 0


def test_a_port_that_somebody_has_is_refused(shared: Server, folder: Path) -> None:
    taken = grpc_address(shared).rpartition(":")[2]
    with socket.create_server(("127.0.0.1", 0)) as made:
        free = str(made.getsockname()[1])
    for port, grpc_port, told in (("0", taken, "--grpc-port"), (taken, "0", "--port"), (free, free, "--grpc-port")):
        words = ["--fronts", "2", "--port", port, "--grpc-port", grpc_port]
        command = [PROGRAM, "serve", f"{folder}/m.py:Sized", *words]
        done = subprocess.run(command, env=environment(folder / "home"), capture_output=True, text=True, timeout=150)
        assert done.returncode == 2
        assert told in done.stderr
        assert "free" in done.stderr
