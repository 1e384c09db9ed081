"""A fleet whose replicas are all full says so: nobody is hung up on."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from servers import Got, Server, until
from test_replicas import PATIENT, SOURCE

pytest.importorskip("httptools")
pytestmark = pytest.mark.slow
MOST_WAITING = 2
ASKED = 12


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("full")
    (folder / "m.py").write_text(SOURCE)
    words = ["--slo-ms", "500", "--replicas", "2", "--max-waiting", str(MOST_WAITING), "--grpc-port", "0"]
    made = Server(folder / "home", f"{folder}/m.py:Sized", *words)
    yield made
    made.end()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(3 + ASKED) as made:
        yield made


@pytest.fixture
def full(server: Server, pool: ThreadPoolExecutor, tmp_path: Path) -> Iterator[None]:
    """A call on the device of each, and nobody is answered meanwhile."""
    gate, running = tmp_path / "gate", list[Any]()

    def held() -> int:
        return len([*tmp_path.glob("gate.*")])

    try:
        while held() < 2:  # two fronts may choose the same one at first
            running.append(pool.submit(server.embed, "Sized", f"wait {gate}", **PATIENT))
            until(lambda: held() == 2 or held() + server.counted("waiting_rows") == len(running))
        yield
    finally:
        gate.touch()
    assert {each.result().status for each in running} == {200}


@pytest.mark.usefixtures("full")
def test_over_http_a_full_fleet_answers_503_with_when_to_come_back(server: Server, pool: ThreadPoolExecutor) -> None:
    got: list[Got] = list(pool.map(lambda k: server.embed("Sized", f"word {k}"), range(ASKED)))
    assert {each.status for each in got} == {503}, Counter((each.status, each.body) for each in got)
    for each in got:
        assert int(each.headers["retry-after"]) >= 1
        assert "try again in" in each.message


@pytest.mark.usefixtures("full")
def test_over_grpc_a_full_fleet_is_unavailable(server: Server, pool: ThreadPoolExecutor) -> None:
    triton: Any = pytest.importorskip("tritonclient.grpc")
    errors: Any = pytest.importorskip("tritonclient.utils").InferenceServerException
    found = re.search(r"gRPC at (\S+)", server.said)
    assert found

    def asked(number: int) -> str:
        with triton.InferenceServerClient(found[1]) as client:
            text = triton.InferInput("text", [1], "BYTES")
            text.set_data_from_numpy(np.array([f"word {number}".encode()], object))
            with pytest.raises(errors) as caught:
                client.infer("Sized", [text])
            return str(caught.value.status())

    assert {*pool.map(asked, range(ASKED))} == {"StatusCode.UNAVAILABLE"}
