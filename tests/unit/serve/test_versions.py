"""Two versions of a deployment: who answers a request, what is seen of both, and how one of them goes."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("httptools", reason="the serve extra is not installed")

from two_versions import Asking, two_versions

from twoshift.serve.candidate import end_candidate
from twoshift.serve.counts import HistogramCounts, MetricCounts
from twoshift.serve.deployments import Deployment, version_of
from twoshift.serve.http.messages import Reply
from twoshift.serve.past_versions import PastVersions
from twoshift.serve.stages import Stages
from twoshift.serve.versions import VersionSplit, Watch


def version(reply: Reply) -> str:
    return dict(reply.headers)[b"x-twoshift-version"].decode()


def split(salt: str = "ro-1") -> VersionSplit[Deployment]:
    return VersionSplit(Deployment("m", "1"), Deployment("m", "2"), salt)


def test_a_key_stays_with_the_candidate_while_its_share_grows() -> None:
    made, keys = split(), [f"user {number}".encode() for number in range(2000)]
    before = set[bytes]()
    for share in (0.0, 0.01, 0.05, 0.25, 1.0):
        made.share = share
        now = {key for key in keys if made.chosen(key) is made.candidate}
        assert before <= now
        assert abs(len(now) / len(keys) - share) < 0.03
        before = now


def test_another_rollout_tries_other_keys_and_a_request_without_one_is_drawn() -> None:
    one, other = split("ro-1"), split("ro-2")
    one.share = other.share = 0.1
    keys = [f"{number}".encode() for number in range(1000)]
    first, second = ({key for key in keys if each.chosen(key) is each.candidate} for each in (one, other))
    assert len(first & second) < len(first) / 2
    one.share = 0.5
    assert {one.chosen(None).version for _ in range(100)} == {"1", "2"}


def test_a_reply_names_the_version_that_made_it() -> None:
    async def asking(on: Asking) -> None:
        assert version(await on.ask()) == "1"
        on.split.share = 1.0
        reply = await on.ask()
        assert (version(reply), json.loads(reply.body)["model_version"]) == ("2", "2")
        assert json.loads(reply.body)["outputs"][0]["data"] == [30.0]
        assert b'version;desc="2"' in dict(reply.headers)[b"server-timing"]
        for named, expected in (("1", 20.0), ("2", 30.0)):
            reply = await on.ask(path=f"/v2/models/m/versions/{named}")
            assert (version(reply), json.loads(reply.body)["outputs"][0]["data"]) == (named, [expected])
        assert (await on.ask(path="/v2/models/m/versions/3")).status == 404

    with two_versions() as made:
        made.run(asking)


def test_the_stable_version_answers_where_the_candidate_fails_and_that_is_held_against_it() -> None:
    async def asking(on: Asking) -> None:
        on.split.share = 1.0
        reply = await on.ask()
        assert (reply.status, version(reply)) == (200, "1")
        assert on.split.candidate.watch is not None
        assert on.split.stable.watch is not None
        assert [failed for _, failed in on.split.candidate.watch.taken()] == [True]
        assert on.split.stable.watch.taken() == []  # its time has the candidate's in it
        assert (await on.ask(path="/v2/models/m/versions/2")).status == 500
        assert on.split.candidate.watch.taken() == []  # who asks for a version is no evidence

    with two_versions() as made:
        made.models[1].error = "broken"
        made.run(asking)


def test_what_a_client_does_wrong_is_held_against_nobody() -> None:
    async def asking(on: Asking) -> None:
        on.split.share = 1.0
        assert (
            await on.ask(body={"inputs": [{"name": "x", "shape": [1], "datatype": "FP64", "data": []}]})
        ).status == 400
        assert [each.watch and each.watch.taken() for each in (on.split.stable, on.split.candidate)] == [[], []]

    with two_versions() as made:
        made.run(asking)


def test_where_both_fail_it_is_held_against_both() -> None:
    async def asking(on: Asking) -> None:
        on.split.share = 1.0
        assert (await on.ask()).status == 500
        for each in (on.split.stable, on.split.candidate):
            assert each.watch is not None
            assert [failed for _, failed in each.watch.taken()] == [True]

    with two_versions() as made:
        for each in made.models:
            each.error = "the store is down"
        made.run(asking)


@pytest.mark.parametrize(("status", "against"), [(200, []), (500, [True]), (502, [True]), (503, []), (504, [])])
def test_who_steps_in_too_late_for_a_candidate_has_not_failed(status: int, against: list[bool]) -> None:
    async def asking(on: Asking) -> None:
        on.split.fell_back(status, 0.5)
        stable, candidate = on.split.stable.watch, on.split.candidate.watch
        assert stable is not None
        assert candidate is not None
        assert [failed for _, failed in stable.taken()] == against
        assert [failed for _, failed in candidate.taken()] == [True]

    with two_versions() as made:
        made.run(asking)


def test_a_candidate_that_is_promoted_answers_alone_and_counts_go_on() -> None:
    async def asking(on: Asking) -> None:
        await on.ask()
        on.split.share = 1.0
        for _ in range(3):
            await on.ask()
        old = on.deployment.serving
        assert {each.version: each.requests for each in on.deployment.by_version()} == {"1": {200: 1}, "2": {200: 3}}
        assert end_candidate(on.service, on.split, promoted=True) is old
        assert end_candidate(on.service, on.split, promoted=True) is None
        assert (on.deployment.version, on.deployment.split) == ("2", None)
        reply = await on.ask()
        assert (version(reply), json.loads(reply.body)["outputs"][0]["data"]) == ("2", [30.0])
        counts = {each.version: (each.role, each.requests) for each in on.deployment.by_version()}
        assert counts == {"2": ("stable", {200: 4}), "1": ("past", {200: 1})}
        assert on.deployment.stats().lanes  # what the old one has done is counted while it leaves

    with two_versions() as made:
        made.run(asking)


def test_a_candidate_that_is_rolled_back_gets_nothing_more() -> None:
    async def asking(on: Asking) -> None:
        on.split.share = 1.0
        await on.ask()
        left = end_candidate(on.service, on.split, promoted=False)
        assert left is on.split.candidate.serving
        assert version(await on.ask()) == "1"
        assert (await on.ask(path="/v2/models/m/versions/2")).status == 404
        counts = {each.version: (each.role, each.requests) for each in on.deployment.by_version()}
        assert counts == {"1": ("stable", {200: 1}), "2": ("past", {200: 1})}

    with two_versions() as made:
        made.run(asking)


def test_versions_that_come_back_go_on_with_their_counts() -> None:
    def counted(requests: int) -> MetricCounts:
        return MetricCounts(latency=HistogramCounts((requests, 0), float(requests)), requests={200: requests})

    past = PastVersions()
    past.ended("1", counted(10), "2", counted(4), promoted=False)
    assert [(each.version, each.requests) for each in past.counts("1", counted(12))] == [
        ("1", {200: 8}),
        ("2", {200: 4}),
    ]
    again = past.counts("1", counted(15), ("2", 0.5, counted(3)))
    assert [(each.version, each.requests, each.share) for each in again] == [("1", {200: 8}, 0.5), ("2", {200: 7}, 0.5)]
    past.ended("1", counted(15), "2", counted(3), promoted=True)
    assert [(each.version, each.requests) for each in past.counts("2", counted(20))] == [
        ("2", {200: 12}),
        ("1", {200: 8}),
    ]


def test_a_watch_keeps_the_newest_and_takes_the_first_token_of_a_language_model() -> None:
    watch = Watch()
    for number in range(5000):
        watch.replied(200, float(number), None)
    seen = watch.taken()
    assert (len(seen), seen[-1]) == (500, (4999.0, False))
    for status in (400, 404, 429, 499):
        watch.replied(status, 1.0, None)
    assert watch.taken() == []
    first = Watch(to_first_token=True)
    first.replied(200, 9.0, Stages(admit=0.1, prepare=0.2, queue=0.3, forward=8.0))
    [(seconds, failed)] = first.taken()
    assert (pytest.approx(seconds), failed) == (0.6, False)


def test_the_version_of_a_model_is_the_registrys_number() -> None:
    with two_versions() as made:
        assert [version_of(each.info) for each in (made.stable, made.candidate)] == ["1", "2"]


def test_who_judges_is_told_of_each_failure_at_once_and_of_nothing_else() -> None:
    watch, told = Watch(), list[int]()
    watch.on_failure = lambda: told.append(1)
    watch.replied(200, 0.1, None)
    watch.replied(400, 0.1, None)
    watch.heard([(0.1, False)])
    assert not told
    watch.replied(500, 0.1, None)
    watch.heard([(0.1, False), (0.1, True)])
    watch.failed(0.1)
    assert len(told) == 3
    assert len(watch.taken()) == 6
