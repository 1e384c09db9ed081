"""Two versions of a language model: copies are compared by their texts, and no stream is lost where one goes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("httptools", reason="the serve extra is not installed")
pytest.importorskip("sqlalchemy", reason="the fleet extra is not installed")

from llm_service import GatedLlm, Got, LlmServer, llm_server, until

from twoshift.engine.llm import LlmEngine, LlmObjective
from twoshift.policy.cost import CallCost
from twoshift.policy.rollout_values import Compared
from twoshift.serve.candidate import begin_candidate, end_candidate
from twoshift.serve.deployments import Deployment
from twoshift.serve.llm.model import ServedLlm
from twoshift.serve.rollout_table import RolloutTable
from twoshift.serve.shadow import Shadow, shadow_of
from twoshift.serve.versions import VersionSplit


class Another(GatedLlm):
    """The same words, one letter further."""

    shift = 0

    def __init__(self) -> None:
        super().__init__(256)
        self.info = replace(self.info, model="m:2")

    def text_of(self, token_ids: Any) -> str:
        return super().text_of([(each + self.shift) % 26 for each in token_ids])


class Tried:
    """A server with a candidate."""

    def __init__(self, server: LlmServer) -> None:
        self.server, self.llm = server, Another()
        engine = LlmEngine(self.llm, CallCost(1e-5, 1e-6, per_row_s=1e-6), LlmObjective(ttft_s=60.0, tpot_s=10.0))
        self.model = ServedLlm("m", engine)
        self.deployment = server.service.find("m")
        self.split: VersionSplit[Deployment] = server.call(self._begun)

    async def _begun(self) -> VersionSplit[Deployment]:
        return begin_candidate(self.server.service, self.deployment, self.model, "ro-1")

    def ended(self, promoted: bool) -> Any:
        async def end() -> Any:
            return end_candidate(self.server.service, self.split, promoted)

        return self.server.call(end)

    def shadow(self, **table: Any) -> Shadow:
        async def made() -> Shadow:
            found = self.split.shadow = shadow_of(RolloutTable(**table), self.split, asyncio.get_running_loop())
            return found

        return self.server.call(made)


@pytest.fixture
def tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tried]:
    with llm_server(tmp_path, monkeypatch) as server:
        made = Tried(server)
        yield made
        made.llm.gate.set()
        if made.deployment.backend is made.model:
            server.served.close()
        else:
            made.model.close()


def compared(tried: Tried, shadow: Shadow, **more: Any) -> Compared:
    found = list[Compared]()
    assert tried.server.chat(**more).status == 200

    def came() -> bool:
        found.extend(shadow.taken())
        return bool(found)

    until(came)
    return found[0]


@pytest.mark.parametrize("stream", [False, True])
def test_texts_are_compared_where_they_are_the_same_each_time(tried: Tried, stream: bool) -> None:
    shadow = tried.shadow(max_difference=0.2)
    asked = {"temperature": 0, "stream": stream}
    assert compared(tried, shadow, **asked).disagreed == 0
    assert shadow.differences().worst == 0.0
    tried.llm.shift = 1
    assert compared(tried, shadow, **asked).disagreed == 1
    assert compared(tried, shadow, temperature=1.0, stream=stream).disagreed == 0  # another draw is another text
    assert tried.llm.added
    assert not any(each.live for each in tried.llm.inside.values())
    shadow.close()


@pytest.mark.parametrize("promoted", [True, False])
def test_a_stream_goes_on_to_its_end_whichever_version_goes(tried: Tried, promoted: bool) -> None:
    server, gates = tried.server, (tried.server.llm.gate, tried.llm.gate)
    tried.split.share = 0.0 if promoted else 1.0  # the one that will go answers
    for gate in gates:
        gate.clear()
    found = list[Got]()
    asking = threading.Thread(target=lambda: found.append(server.chat(stream=True, max_tokens=20, user="u")))
    asking.start()
    leaving = tried.deployment.serving if promoted else tried.split.candidate.serving
    assert leaving is not None
    until(lambda: leaving.inside == 1)
    assert tried.ended(promoted) is leaving
    for gate in gates:
        gate.set()
    asking.join()
    [got] = found
    assert (got.status, got.headers["x-twoshift-version"]) == (200, "1" if promoted else "2")
    assert got.events()[-1] == "[DONE]"
    until(lambda: leaving.inside == 0)
    assert server.chat().headers["x-twoshift-version"] == ("2" if promoted else "1")
