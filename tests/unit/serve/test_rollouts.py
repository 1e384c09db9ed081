"""Rollouts of a server: who may begin one, how it goes on, and that a kill at any write loses nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

pytest.importorskip("sqlalchemy")

from twoshift.errors import InvalidInput, NotFound, TooLarge, TryLater
from twoshift.policy.answer_differences import DifferenceCounts
from twoshift.policy.rollout import RolloutPolicy
from twoshift.policy.rollout_values import Compared, RolloutSettings, RolloutState
from twoshift.ports import RuntimeInfo
from twoshift.rollout_ports import RolloutRecord
from twoshift.rollout_services import rollout_metrics
from twoshift.serve.deployments import Deployment, Deployments, Serving
from twoshift.serve.model_settings import ModelSettings
from twoshift.serve.rollout_table import RolloutTable
from twoshift.serve.rollouts import Candidate, DeployRequest, Rollouts
from twoshift.serve.trial import Trial
from twoshift.serve.versions import VersionSplit, Watch
from twoshift.store.database import Database
from twoshift.store.rollouts import SqlRollouts
from twoshift.wiring.candidates import RegisteredVersions, free_bytes

TABLE = RolloutTable(ladder=(0.5, 1.0), shadow=False, min_step="0s", follow_every="1s")


class Backend:
    """A model of which only its version matters."""

    def __init__(self, model: str) -> None:
        self.info = RuntimeInfo(model, model, "python", "cpu", "fp32", 1, ())
        self.derived = SimpleNamespace(slo_s=0.1)
        self.crashes = 0
        self.outputs = ()

    def replicas(self) -> Any:
        return SimpleNamespace(ready=1)


class Acts:
    """Loads at once, or when it is let; remembers what it did."""

    def __init__(self, models: Deployments) -> None:
        self.models, self.splits = models, list[VersionSplit[Deployment]]()
        self.did = list[str]()
        self.error: Exception | None = None
        self.holds = False

    def load_candidate(self, name: str, model: str, salt: str, cancelled: Future[None]) -> Future[Any]:
        self.did.append(f"load {model}")
        self.loading: Future[Any] = Future()
        if self.error is not None:
            self.loading.set_exception(self.error)
        elif not self.holds:
            self.loading.set_result(self.split(name, model, salt))
        cancelled.add_done_callback(
            lambda _: None if self.loading.done() else self.loading.set_exception(TryLater("x", 1))
        )
        return self.loading

    def split(self, name: str, model: str, salt: str) -> VersionSplit[Deployment]:
        stable = self.models.all[name]
        candidate = Deployment(name, model.rpartition(":")[2])
        candidate.serving = Serving(Backend(model))  # type: ignore[arg-type]
        stable.watch, candidate.watch = Watch(), Watch()
        made = stable.split = candidate.split = VersionSplit(stable, candidate, salt)
        self.splits.append(made)
        return made

    def end_candidate(self, split: VersionSplit[Deployment], promoted: bool, grace_s: float) -> Future[None]:
        self.did.append("promote" if promoted else "roll back")
        if promoted:
            self.models.hand_over(split.stable, split.candidate)
        split.stable.split = split.stable.watch = None
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def replace(self, name: str, model: str, before: str) -> Future[None]:
        self.did.append(f"replace {before} by {model}")
        done: Future[None] = Future()
        done.set_result(None)
        return done


class Source:
    """A registry with ten versions of every model."""

    def __init__(self) -> None:
        self.prod, self.room = "m:1", 1e9
        self.error: Exception | None = None

    def find(self, deployment: str, model: str) -> Candidate:
        if self.error is not None:
            raise self.error
        ref = self.prod if "@" in model else model
        if int(ref.rpartition(":")[2]) > 10:
            raise NotFound("model", model, "1 to 10")
        return Candidate(ref, 1000)

    def check_room(self, deployment: str, candidate: Candidate) -> None:
        if candidate.size_bytes > self.room:
            raise TooLarge("model", candidate.ref, "a smaller one, or --replace")


class World:
    """One start of a server."""

    def __init__(self, store: Any, model: str = "m:1", table: RolloutTable = TABLE, shadow: Any = None) -> None:
        self.settings = {"m": ModelSettings(model=model, rollout=table)}
        self.models, self.store, self.source = Deployments(), store, Source()
        self.acts = Acts(self.models)
        self.rollouts = Rollouts(
            store,
            self.models,
            self.settings,
            self.acts,
            self.source,
            lambda _settings, _split: shadow,
        )
        self.deployment = self.models.add(Deployment("m"))
        first = self.rollouts.word_for("m") or ("m:1" if "@" in model else model)
        self.deployment.word = first
        self.models.serve(self.deployment, Backend(first))  # type: ignore[arg-type]

    def deploy(self, model: str = "m:2", **more: Any) -> RolloutRecord:
        return self.rollouts.deploy(DeployRequest(model=model, **more), "alice")

    def tick(self, now_s: float, failed: bool = False) -> None:
        """A second of requests, and a look."""
        split = self.deployment.split
        if split is not None and split.share:
            for version in (split.stable, split.candidate):
                assert version.watch is not None
                version.watch.heard([(0.01, failed and version is split.candidate)] * 60)
        self.rollouts.turn(now_s)

    def until_over(self, now_s: float, failed: bool = False) -> RolloutRecord:
        for second in range(200):
            self.tick(now_s + second, failed)
            if self.rollouts.get("m").is_over:
                self.rollouts.turn(now_s + second)
                return self.rollouts.get("m")
        raise AssertionError(self.rollouts.get("m"))


@pytest.fixture
def store(tmp_path: Path) -> SqlRollouts:
    return SqlRollouts(Database(f"sqlite:///{tmp_path}/state.db"))


def test_a_good_candidate_climbs_and_is_promoted_and_every_decision_is_kept(store: SqlRollouts) -> None:
    world = World(store)
    began = world.deploy()
    assert (began.stable, began.candidate, began.stage, began.who) == ("m:1", "m:2", "loading", "alice")
    ended = world.until_over(1e9)
    assert (ended.stage, ended.share) == ("promoted", 1.0)
    assert world.acts.did == ["load m:2", "promote"]
    assert (world.deployment.version, world.deployment.word) == ("2", "m:2")
    told = [event.text.partition(":")[0] for event in store.events(ended.id)]
    assert told == ["advance", "promote"]
    assert all(event.figures for event in store.events(ended.id)[1:])
    assert World(store).deployment.word == "m:2"


def test_one_that_fails_is_rolled_back_and_the_next_start_has_the_stable_version(store: SqlRollouts) -> None:
    world = World(store)
    world.deploy()
    ended = world.until_over(1e9, failed=True)
    assert ended.stage == "rolled_back"
    assert "failed" in ended.reason
    assert world.acts.did == ["load m:2", "roll back"]
    ((_, name, _, _, samples),) = rollout_metrics(world.rollouts, world.models)()
    assert (name, sorted(samples)) == ("rollouts", [("m", "promoted", 0), ("m", "rolled_back", 1)])
    assert World(store).deployment.word == "m:1"


def test_a_crash_and_a_load_that_fails_end_it(store: SqlRollouts) -> None:
    world = World(store)
    world.deploy()
    world.tick(1e9)
    world.acts.splits[0].candidate.backend.crashes = 1  # type: ignore[attr-defined]
    assert "crashed" in world.until_over(1e9 + 1).reason
    world.acts.error = MemoryError("it does not fit")
    world.deploy("m:3")
    assert "it does not fit" in world.until_over(1e9 + 9).reason
    assert world.acts.did == ["load m:2", "roll back", "load m:3"]


def test_people_may_promote_roll_back_pause_and_resume(store: SqlRollouts) -> None:
    world = World(store)
    began = world.deploy()
    world.tick(1e9)
    world.rollouts.ask("m", "pause", "bob")
    for second in range(60):
        world.tick(1e9 + second)
    assert (world.rollouts.get("m").stage, world.rollouts.get("m").paused) == ("ladder", True)
    world.rollouts.ask(began.id, "resume")
    world.rollouts.ask("m", "rollback", "bob", "a wrong label")
    ended = world.until_over(1e9 + 60)
    assert (ended.stage, ended.reason) == ("rolled_back", "requested by bob: a wrong label")
    with pytest.raises(InvalidInput, match="the rollout is rolled back: only a rollout in progress"):
        world.rollouts.ask("m", "promote")
    world.deploy("m:3")
    world.rollouts.ask("m", "promote", "bob")
    assert world.until_over(1e9 + 90).reason == "requested by bob"


def test_modes_say_how_it_begins(store: SqlRollouts) -> None:
    world = World(store)
    world.deploy(mode="now")
    assert world.until_over(1e9).stage == "promoted"
    world.deploy("m:3", share=0.2)
    world.tick(1e9 + 9)
    assert world.rollouts.get("m").share == 0.2
    assert world.rollouts.get("m").settings["ladder"] == [0.2, 0.5, 1.0]
    world.rollouts.ask("m", "rollback")
    world.until_over(1e9 + 10)
    world.deploy("m:4", mode="replace")
    assert world.until_over(1e9 + 20).stage == "promoted"
    assert world.acts.did[-1] == "replace m:2 by m:4"


def test_what_cannot_be_deployed_is_refused_before_anything_is_loaded(store: SqlRollouts) -> None:
    world = World(store)
    for model, expected in (
        ("m:1", "a version other than m:1, which m already serves"),
        ("other:1", "one of these deployments: m"),
        ("m:77", "1 to 10"),
        ("./folder", "a version in the registry"),
    ):
        with pytest.raises(InvalidInput, match=expected):
            world.deploy(model)
    with pytest.raises(InvalidInput, match="a version number other than 1"):
        world.deploy("other:1", deployment="m")
    with pytest.raises(NotFound, match="one of these deployments: m"):
        world.deploy("m:2", deployment="n")
    with pytest.raises(InvalidInput, match=r"share: 0\.2 cannot be used with the mode now"):
        world.deploy("m:2", mode="now", share=0.2)
    world.models.add(Deployment("other"))
    world.settings["other"] = ModelSettings(model="m:1")
    with pytest.raises(InvalidInput, match=r"deployment is missing; expected .* m, other.*--as"):
        world.deploy("m:2")
    del world.settings["other"]
    world.source.room = 10
    with pytest.raises(TooLarge, match="--replace"):
        world.deploy("m:2")
    assert world.deploy("m:2", mode="replace").mode == "replace"
    with pytest.raises(InvalidInput, match="first promote that rollout or roll it back"):
        world.deploy("m:3", mode="replace")
    assert world.acts.did == []


def test_how_far_answers_were_apart_is_kept_when_the_shadow_has_ended(store: SqlRollouts) -> None:
    counts = DifferenceCounts(0.05)
    counts.add(np.full(40, 0.25))
    copies = [Compared(1, 0, candidate_s=0.01, stable_s=0.01)] * 40
    shadow = SimpleNamespace(taken=lambda: copies, differences=counts.summary, close=lambda: None, why_failed="")
    world = World(store, table=msgspec.structs.replace(TABLE, shadow=True), shadow=shadow)
    world.deploy()
    assert world.until_over(1e9).stage == "promoted"
    events = world.rollouts.events(world.rollouts.get("m").id)
    [seen] = [each for event in events for each in event.figures if each.startswith("answers compared")]
    assert "40; difference p50 0.2" in seen
    assert seen.endswith("100.00% differ by more than 0.05")


def test_an_alias_is_followed_and_a_silent_registry_changes_nothing(
    store: SqlRollouts, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr("twoshift.serve.rollouts.time", SimpleNamespace(monotonic=lambda: now[0], time=lambda: now[0]))

    def look(world: World) -> list[str]:
        for _ in range(3):
            now[0] += 10
            world.rollouts.turn(1e9 + now[0])
        return [each.candidate for each in store.list()]

    world = World(store, "m@prod")
    assert look(world) == []
    world.source.error = TryLater("the registry does not answer", 1.0)
    assert look(world) == []
    world.source.error, world.source.prod = None, "m:2"
    assert look(world) == ["m:2"]
    world.rollouts.ask("m", "rollback")
    assert look(world) == ["m:2"]
    again = World(store, "m@prod")
    again.source.prod = "m:2"
    assert (look(again), again.deployment.word) == (["m:2"], "m:1")
    again.source.prod = "m:3"
    assert look(again) == ["m:3", "m:2"]
    again.source.prod = "m:1"  # back to what answers
    assert look(again) == ["m:3", "m:2"]
    assert (store.list()[0].stage, "now points to m:1" in store.list()[0].reason) == ("rolled_back", True)
    again.deploy("m:2", mode="now")
    look(again)
    restarted = World(store, "m@prod")  # by hand it is another version than the alias, which has not moved
    assert (look(restarted), restarted.rollouts.word_for("m")) == (["m:2", "m:3", "m:2"], "m:2")


def test_without_the_database_the_candidate_gets_nothing_until_it_is_back(store: SqlRollouts) -> None:
    world = World(store)
    world.deploy()
    world.tick(1e9)
    split = world.acts.splits[0]
    assert split.share == 0.5
    world.rollouts._answered_s -= 60
    world.rollouts._without_database("no answer")
    assert split.share == 0.0
    world.tick(1e9 + 1)
    assert split.share == 0.5


class Killed(BaseException):
    """As SIGKILL: nothing after it is done."""


class Dying:
    """A store whose server is killed at one of its writes: before it, or just after it."""

    def __init__(self, inner: SqlRollouts, at: int, done: bool) -> None:
        self._inner, self._at, self._done, self.writes = inner, at, done, 0

    def __getattr__(self, name: str) -> Any:
        found: Callable[..., Any] = getattr(self._inner, name)
        if name not in ("add", "ask", "lead", "save"):
            return found

        def write(*given: Any, **values: Any) -> Any:
            self.writes += 1
            if self.writes == self._at and not self._done:
                raise Killed
            result = found(*given, **values)
            if self.writes == self._at:
                raise Killed
            return result

        return write


def begun_and_ended(world: World) -> RolloutRecord:
    world.deploy()
    return world.until_over(1e9)


@pytest.mark.slow
def test_a_kill_at_any_write_leads_to_the_same_end_with_the_same_evidence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twoshift.store.rollouts.has_ended", lambda _place, _process: True)
    database = Database(f"sqlite:///{tmp_path}/state.db")
    whole = Dying(SqlRollouts(database), 0, done=False)
    expected = begun_and_ended(World(whole))
    assert whole.writes > 6
    for number, done in ((number, done) for number in range(1, whole.writes + 1) for done in (False, True)):
        database = Database(f"sqlite:///{tmp_path}/{number}-{done}.db")
        with pytest.raises(Killed):
            begun_and_ended(World(Dying(SqlRollouts(database), number, done)))
        left = SqlRollouts(database).list()
        again = World(SqlRollouts(database))
        if not left:
            again.deploy()
        elif left[0].state:
            policy = RolloutPolicy.restored(
                RolloutSettings.from_dict(left[0].settings), RolloutState.from_dict(left[0].state)
            )
            assert (policy.stage, policy.state().to_dict()) == (left[0].stage, left[0].state)
        if left and left[0].is_over:
            assert again.deployment.word == "m:2"
            continue
        ended = again.until_over(1e9 + 500)
        assert (ended.stage, len(again.store.list())) == (expected.stage, 1)
        assert again.deployment.version == "2"
        database.close()


def test_one_server_judges_and_another_follows_it(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path}/state.db")
    one, other = (World(SqlRollouts(database)) for _ in range(2))
    one.deploy()
    one.tick(1e9)
    other.tick(1e9)
    assert other.acts.splits[0].share == 0.5
    other.acts.splits[0].candidate.watch.heard([(0.01, True)] * 500)  # type: ignore[union-attr]
    other.rollouts.turn(1e9 + 1)
    assert not other.rollouts.get("m").is_over  # who leads has its own evidence
    ended = one.until_over(1e9 + 2)
    assert ended.stage == "promoted"
    other.rollouts.turn(1e9 + 99)
    assert (other.acts.did[-1], other.deployment.version) == ("promote", "2")


def test_room_is_looked_for_where_the_model_is() -> None:
    world = World(SimpleNamespace(last=lambda *_: None))
    asked = list[bool]()

    def free(on_gpu: bool) -> int:
        asked.append(on_gpu)
        return 1000

    versions = RegisteredVersions(world.models, world.settings, None, free)
    versions.check_room("m", Candidate("m:2", 800))
    with pytest.raises(TooLarge, match=r"m:2, which needs about .* unloads m:1 first"):
        versions.check_room("m", Candidate("m:2", 900))
    world.deployment.backend.info = dataclasses.replace(world.deployment.info, device="cuda: H200")  # type: ignore[misc]
    versions.check_room("m", Candidate("m:2", 1))
    assert asked == [False, False, True]
    assert (free_bytes(False) or 0) > 1 << 20


def test_a_candidate_that_ended_the_server_is_rolled_back_and_not_loaded_again(store: Any, tmp_path: Path) -> None:
    world = World(store)
    world.deploy()
    world.rollouts.turn(0.0)
    [run] = world.rollouts._runs.values()
    assert run.trial is None  # replicas end alone
    again = World(store)
    run = again.rollouts._run_of(again.rollouts.get("m"), again.deployment)
    run.trial = Trial(tmp_path, run.record.id)
    (tmp_path / run.record.id).write_text("begun\nos._exit(3) in model\n")
    again.rollouts._runs[run.record.id] = run
    store.release()
    again.tick(1.0)
    ended = again.rollouts.get("m")
    assert ended.stage == "rolled_back"
    assert "the version crashed the server during its test: os._exit(3) in model" in ended.reason
    assert again.acts.did == []
