"""Notices become deliveries, over a real store and real sockets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from receivers import SECRET, Posted, Receiver
from servers import until

pytest.importorskip("sqlalchemy")

from twoshift.errors import Elsewhere, InvalidInput
from twoshift.policy.job_states import JobMove
from twoshift.ports import JobRecord
from twoshift.store.claimed import ClaimedDatabase
from twoshift.store.database import Database
from twoshift.store.jobs import SqlJobs
from twoshift.store.notices import SqlNotices
from twoshift.triggers.notifier import Notifier
from twoshift.triggers.sending import Sender
from twoshift.triggers.webhook_settings import WebhookSettings, check_webhook
from twoshift.types import JobState

pytestmark = pytest.mark.slow


class Office:
    """A store, a clock and webhooks; the notifier may be started again."""

    def __init__(self, path: Path) -> None:
        self.database = Database(f"sqlite:///{path}/state.db")
        self.store, self.jobs = SqlNotices(ClaimedDatabase(self.database)), SqlJobs(self.database)
        self.webhooks: dict[str, WebhookSettings] = {}
        self.receivers: list[Receiver] = []
        self.now_s, self.is_ours = 1_000_000.0, True
        self.notes: list[tuple[str, str]] = []
        self.limit_s = 60.0

    def hook(self, name: str, receiver: Receiver | None = None, **more: Any) -> Receiver:
        made = receiver or Receiver()
        self.receivers.append(made)
        self.webhooks[name] = WebhookSettings(**{"url": made.url, "secret": SECRET, **more})
        return made

    def opened(self) -> Notifier:
        sender = Sender(private_too=True, limit_s=self.limit_s)
        log = lambda subject, text: self.notes.append((subject, text))  # noqa: E731
        return Notifier(self.store, self.webhooks, sender, self.check_ours, log, lambda: self.now_s)

    def check_ours(self) -> None:
        if not self.is_ours:
            raise Elsewhere("another server", 1.0)

    def turn(self, notifier: Notifier) -> None:
        notifier.turn()
        until(lambda: not notifier._hands._at_work)

    def states(self) -> list[tuple[str, str, int]]:
        return sorted((each.webhook, str(each.state), each.attempts) for each in self.store.list())


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    made = Office(tmp_path)
    yield made
    for each in made.receivers:
        each.end()
    made.database.close()


def test_what_ended_is_told_signed_and_once(office: Office) -> None:
    receiver = office.hook("ops")
    notifier = office.opened()
    notifier.notify("alice", "batch.completed", "batch_1", {"id": "batch_1"})
    for _ in range(3):
        office.turn(notifier)
    (got,) = receiver.posted
    assert got.is_signed()
    assert not got.is_signed("whsec_" + "A" * 44)
    assert got.headers["webhook-id"].startswith("msg_")
    assert got.headers["webhook-timestamp"] == "1000000"
    assert got.event == {"type": "batch.completed", "timestamp": "1970-01-12T13:46:40+00:00", "data": {"id": "batch_1"}}
    assert office.states() == [("ops", "delivered", 1)]
    assert office.notes == [("batch_1", "webhook ops, event batch.completed: status 204")]


def test_it_is_tried_again_under_the_same_id_until_it_is_taken_also_by_the_next_server(office: Office) -> None:
    receiver = office.hook("ops")
    receiver.reply = lambda _: Receiver.status(503)
    notifier = office.opened()
    notifier.notify("", "job.failed", "job-1", {})
    office.turn(notifier)
    office.turn(notifier)  # not due yet
    assert len(receiver.posted) == 1
    office.now_s += 3
    office.turn(notifier)
    receiver.reply = lambda _: Receiver.status(200)
    office.now_s += 10
    office.turn(office.opened())
    assert len(receiver.posted) == 3
    assert len({each.headers["webhook-id"] for each in receiver.posted}) == 1
    assert [int(each.headers["webhook-timestamp"]) for each in receiver.posted] == [1_000_000, 1_000_003, 1_000_013]
    assert all(each.is_signed() for each in receiver.posted)
    assert office.states() == [("ops", "delivered", 3)]
    assert "status 503; next attempt in" in office.notes[0][1]


def test_it_is_given_up_after_a_day_or_where_nobody_wants_it(office: Office) -> None:
    office.hook("ops").reply = lambda _: Receiver.status(500)
    office.hook("gone").reply = lambda _: Receiver.status(410)
    notifier = office.opened()
    notifier.notify("", "job.failed", "job-1", {})
    office.turn(notifier)
    assert ("gone", "failed", 1) in office.states()
    for _ in range(60):
        office.now_s += 3600
        office.turn(notifier)
    ((_, state, attempts),) = [each for each in office.states() if each[0] == "ops"]
    assert state == "failed"
    assert 20 < attempts < 60
    assert "no further attempt after" in office.notes[-1][1]


def test_who_is_told_of_what(office: Office) -> None:
    every, failures = office.hook("every"), office.hook("failures", events=("failed",))
    alices, named = office.hook("alices", tenant="alice"), office.hook("named", only_named=True)
    notifier = office.opened()
    notifier.notify("alice", "job.completed", "job-1", {})
    notifier.notify("bob", "job.failed", "job-2", {}, ["named", "every"])
    notifier.notify("bob", "batch.expired", "batch-3", {}, ["alices"])  # which is not his
    office.turn(notifier)
    office.turn(notifier)

    def heard(receiver: Receiver) -> list[str]:
        return sorted(each.event["type"] for each in receiver.posted)

    assert heard(every) == ["batch.expired", "job.completed", "job.failed"]
    assert heard(failures) == ["job.failed"]
    assert heard(alices) == ["job.completed"]
    assert heard(named) == ["job.failed"]
    assert {each.subject for each in notifier.list(owner="bob")} == {"job-2", "batch-3"}


def test_which_webhooks_a_job_may_name(office: Office) -> None:
    receiver = office.hook("ops")
    office.hook("alices", tenant="alice")
    office.webhooks["team"] = WebhookSettings(url=f"http://127.0.0.1:{receiver.port}/team/", secret=SECRET, below=True)
    notifier = office.opened()
    base = office.webhooks["team"].url
    notifier.check(["ops", "alices", f"{base}search", f"{base}a%20b?to=../x;y"], "alice")
    refused = ["alices", "other", receiver.url, "https://example.com/", f"{base}../hook"]
    climbing = (
        "%2E%2e/hook", "x/..?", "..?a=b", "..%2fhook", "..%2Fhook", "%252e%252e/hook", "%25252525252e", "..;/hook",
        "a%3Bb", "a%5cb", "a%2500", "%20../hook", "%c0%ae%c0%ae/hook",
    )  # fmt: skip
    for name in (*refused, *(f"{base}{each}" for each in climbing)):
        with pytest.raises(InvalidInput, match="one of ops, team, or a URL that starts with"):
            notifier.check([name], "bob")
    with pytest.raises(InvalidInput, match="a URL such as"):
        notifier.check([f"{base}a b"], "bob")
    notifier.notify("bob", "job.completed", "job-1", {}, [f"{base}search"])
    office.turn(notifier)
    office.turn(notifier)
    assert sorted(each.path for each in receiver.posted) == ["/hook", "/team/", "/team/search"]


def test_one_that_hangs_holds_up_nobody_else(office: Office) -> None:
    hanging, quick = office.hook("hanging", tenant="alice"), office.hook("quick", tenant="bob")
    hanging.reply = lambda _: None
    notifier = office.opened()
    for k in range(300):
        notifier.notify("alice", "job.completed", f"job-a{k}", {})
    notifier.notify("bob", "job.completed", "job-b", {})
    notifier.turn()
    until(lambda: len(quick.posted) == 1)
    notifier.turn()
    assert len(hanging.posted) <= 2  # at a time
    hanging.end()


def test_a_webhook_that_is_no_more_is_told_of(office: Office) -> None:
    receiver = office.hook("ops")
    office.opened().notify("", "job.completed", "job-1", {})
    receiver.reply = lambda _: Receiver.status(500)
    office.turn(office.opened())
    office.webhooks.clear()
    office.now_s += 10
    office.turn(office.opened())
    assert office.states() == [("ops", "failed", 2)]
    assert "this webhook no longer exists" in office.notes[-1][1]


def test_a_clock_that_is_put_back_does_not_silence_it(office: Office) -> None:
    receiver = office.hook("ops")
    receiver.reply = lambda _: Receiver.status(500)
    notifier = office.opened()
    notifier.notify("", "job.completed", "job-1", {})
    office.turn(notifier)
    office.now_s -= 1e8
    office.turn(notifier)
    assert len(receiver.posted) == 2


def test_the_end_of_a_job_is_a_notice_in_the_same_moment(office: Office) -> None:
    receiver = office.hook("ops")
    for name, move in (("a", JobMove.FINISH), ("b", JobMove.CANCEL), ("c", JobMove.FAIL), ("d", JobMove.PAUSE)):
        settings = {"model": "m", "output": f"out/{name}"}
        office.jobs.add(JobRecord(f"job-{name}", settings, JobState.RUNNING, 1.0, 1.0, owner="alice"))
        assert office.jobs.move(f"job-{name}", move, "so it is")
        assert not office.jobs.move(f"job-{name}", move)
    office.jobs.move("job-c", JobMove.RESUME)
    office.jobs.move("job-c", JobMove.BEGIN)
    office.jobs.move("job-c", JobMove.FAIL, "again")  # another end
    for _ in range(3):
        office.turn(office.opened())
    heard = sorted((each.event["type"], each.event["data"]["id"]) for each in receiver.posted)
    assert heard == [("job.cancelled", "job-b"), ("job.completed", "job-a"), *[("job.failed", "job-c")] * 2]
    data = next(each.event["data"] for each in receiver.posted if each.event["type"] == "job.cancelled")
    assert (data["output"], data["reason"], data["state"]) == ("out/b", "so it is", "cancelled")


def test_its_own_thread_delivers_and_where_another_server_has_the_jobs_none_does(office: Office) -> None:
    receiver = office.hook("ops")
    notifier = office.opened()
    office.is_ours = False
    notifier.start()
    office.opened().notify("", "job.completed", "job-1", {})
    with pytest.raises(Elsewhere):
        notifier.turn()
    assert receiver.posted == []
    office.is_ours = True
    until(lambda: office.states() == [("ops", "delivered", 1)])
    notifier.close()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"url": "https://example.com/"}, "either `secret` or `secret_env`"),
        ({"url": "https://example.com/", "secret": "short"}, "at least 16 bytes"),
        ({"url": "https://example.com/", "secret": "whsec_!!!!!!!!!!!!!!!!!!!!!!!!!!!"}, "at least 16 bytes"),
        ({"url": "https://example.com/", "secret_env": "NOT_SET_ANYWHERE"}, "NOT_SET_ANYWHERE.*that is set"),
        (
            {"url": "https://example.com/", "secret": SECRET, "events": ("done",)},
            "completed, failed, expired, cancelled",
        ),
        ({"url": "https://example.com/x", "secret": SECRET, "below": True}, "ends with /"),
        ({"url": "http://example.com/", "secret": SECRET}, "https"),
        ({"url": "https://10.0.0.1/", "secret": SECRET}, "a public IP address"),
    ],
)
def test_a_webhook_that_cannot_be_is_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidInput, match=told) as refused:
        check_webhook(WebhookSettings(**given), private_too=False)
    assert "short" not in str(refused.value)  # no secret in an error


def test_a_secret_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    hook = WebhookSettings(url="https://example.com/", secret_env="HOOK_SECRET")  # noqa: S106
    check_webhook(hook, private_too=False)
    assert hook.signing_key() == WebhookSettings(url="https://example.com/", secret=SECRET).signing_key()


def test_a_posted_request_is_read_whole() -> None:
    receiver = Receiver()
    assert Sender(private_too=True).post(receiver.url, {}, b"x" * 300_000) == 204
    assert receiver.posted[0] == Posted("/hook", receiver.posted[0].headers, b"x" * 300_000)
    receiver.end()
