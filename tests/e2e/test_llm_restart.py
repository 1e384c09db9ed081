"""What a server has learned of a language model's steps is there after a restart of the real program."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from servers import Server
from word_server import word_server

from twoshift.policy.cost import CallCost
from twoshift.policy.plan.row import RowSize
from twoshift.runtime.llm import load_llm
from twoshift.wiring.stored_profiles import profile_of, profiles

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

STEP_S = 2.0  # as the stored profile says: a thousand times what a word takes
PATIENT = ("--ttft-ms", "600000", "--tpot-ms", "600000")


def one_token_s(server: Server) -> float:
    return server.ask("GET", "/v1/derived/words").json()["one_token_s"]


def end(server: Server) -> None:
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(60) == 0
    server.end()


def test_learned_step_times_survive_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("httptools")
    monkeypatch.setenv("TWOSHIFT_HOME", str(tmp_path))
    with word_server() as words:
        runtime = load_llm(words.model)
        began = profile_of(runtime.info, CallCost(STEP_S, 1e-3), RowSize.uniform(1), 0)
        runtime.close()
        profiles().put(began)
        given = (words.model, "--name", "words", *PATIENT)
        first = Server(tmp_path, *given)
        assert one_token_s(first) == pytest.approx(STEP_S, rel=0.01)
        asked = {"model": "words", "messages": [{"role": "user", "content": "word " * 60}], "max_tokens": 400}
        for _ in range(4):
            assert first.ask("POST", "/v1/chat/completions", asked).status == 200
        learned_s = one_token_s(first)
        end(first)
        assert learned_s < STEP_S / 2
        stored = profiles().get(began.name)
        assert stored.created_at >= began.created_at
        second = Server(tmp_path, *given)
        assert one_token_s(second) == pytest.approx(stored.served_cost.seconds(RowSize.uniform(1).call(1), 0.9))
        assert one_token_s(second) < STEP_S / 2
        end(second)
