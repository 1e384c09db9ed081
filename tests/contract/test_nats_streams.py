"""Streams from NATS JetStream when the broker is gone, slow or restarted, and when messages are odd."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from real_nats import RealNats
from streaming import Streaming, running

from twoshift.errors import Broken, InvalidInput
from twoshift.streams.nats_connection import NatsConnection, NatsPlace
from waiting import until

pytestmark = pytest.mark.usefixtures("often")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RealNats]:
    broker = RealNats(tmp_path / "nats")
    broker.make_stream("docs", "docs.*")
    yield broker
    broker.kill()


@pytest.fixture
def streaming(tmp_path: Path, broker: RealNats) -> Streaming:
    return Streaming(tmp_path, {"source": broker.url("docs.new")})


def rows(ids: range) -> list[bytes]:
    return [b'{"id": %d, "x": %d}' % (row, row) for row in ids]


def test_a_broker_that_is_killed_and_comes_back_loses_no_row_and_doubles_none(
    streaming: Streaming, broker: RealNats
) -> None:
    broker.put("docs.new", rows(range(10)))
    stream = streaming.stream(once=False, fresh=0.3)
    with running(stream):
        until(lambda: stream.counts.snapshot.rows == 10)
        broker.kill()
        until(lambda: "source" in dict(stream.counts.snapshot.problems))
        assert "does not answer" in stream.counts.snapshot.problem
        broker.start()
        broker.put("docs.new", rows(range(10, 30)))
        until(lambda: stream.counts.snapshot.rows == 30)
        assert stream.counts.snapshot.problem == ""
    streaming.check_squares(30)


def test_a_broker_that_is_not_there_at_the_start_is_waited_for(streaming: Streaming, broker: RealNats) -> None:
    broker.put("docs.new", rows(range(5)))
    broker.kill()
    stream = streaming.stream(once=True)
    with running(stream) as thread:
        until(lambda: stream.counts.snapshot.problem)
        broker.start()
        thread.join()
    streaming.check_squares(5)


def test_a_broker_that_hangs_is_waited_for(streaming: Streaming, broker: RealNats) -> None:
    broker.put("docs.new", rows(range(5)))
    stream = streaming.stream(once=False, fresh=0.3)
    with running(stream):
        until(lambda: stream.counts.snapshot.rows == 5)
        os.kill(broker.pid, signal.SIGSTOP)
        until(lambda: "source" in dict(stream.counts.snapshot.problems))
        os.kill(broker.pid, signal.SIGCONT)
        broker.put("docs.new", rows(range(5, 10)))
        until(lambda: stream.counts.snapshot.rows == 10)
    streaming.check_squares(10)


def test_messages_of_other_subjects_and_those_that_are_sent_twice_are_no_rows(
    streaming: Streaming, broker: RealNats
) -> None:
    broker.put("docs.new", rows(range(3)), ids=["a", "b", "c"])
    broker.put("docs.old", rows(range(100, 103)))
    broker.put("docs.new", rows(range(3)), ids=["a", "b", "c"])
    broker.put("docs.new", rows(range(3, 5)), ids=["d", "e"])
    streaming.run()
    streaming.check_squares(5)


def test_a_dead_letter_has_the_message_and_where_it_was(streaming: Streaming, broker: RealNats) -> None:
    broker.put("docs.new", [*rows(range(2)), b"", b"{\n no JSON", b"\xff\x00", b'{"id": 5,\n "x": 5}'])
    last = streaming.run()
    assert (last.rows, last.errors) == (6, 3)
    empty, broken, binary = streaming.letters()
    assert empty["source"] == "docs.new:1-6"
    assert "row 3" in empty["error"]
    assert broken["payload"] == "{  no JSON"
    assert binary["payload_base64"] == "/wA="
    assert streaming.rows()[-1]["squared"] == 25.0


def test_a_message_that_is_too_long_is_a_dead_letter(
    streaming: Streaming, broker: RealNats, monkeypatch: pytest.MonkeyPatch
) -> None:
    from twoshift.batch.inputs import records

    monkeypatch.setattr(records, "MOST_ROW_BYTES", 1000)
    broker.put("docs.new", [*rows(range(2)), b'{"id": 2, "x": 2, "more": "%s"}' % (b"m" * 2000)])
    last = streaming.run()
    assert (last.rows, last.errors, last.dead_letters) == (3, 1, 1)
    assert "longer than" in streaming.letters()[0]["error"]


def test_a_subject_without_a_stream_and_one_whose_messages_do_not_stay_are_refused(
    streaming: Streaming, broker: RealNats
) -> None:
    with pytest.raises(InvalidInput, match="no JetStream stream has the subject nothing"):
        streaming.run(source=broker.url("nothing.here"))
    broker.make_stream("work", "work.rows", retention="workqueue")
    with pytest.raises(InvalidInput, match="the stream 'work' has the policy 'workqueue'"):
        streaming.run(source=broker.url("work.rows"))


@pytest.mark.parametrize("url", ["nats://host", "nats:///subject", "nats://host/a b", "nats://host/a?queue=b"])
def test_an_address_without_a_subject_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="SUBJECT"):
        NatsPlace.parse(url)


def test_a_password_is_written_nowhere(streaming: Streaming, broker: RealNats) -> None:
    broker.put("docs.new", rows(range(3)))
    streaming.run(source=broker.url("docs.new").replace("nats://", "nats://me:secret@"))
    files = [path for path in streaming.out.rglob("*") if path.is_file()]
    assert not [path for path in files if b"secret" in path.read_bytes()]
    streaming.check_squares(3)


def sent(broker: RealNats, subject: str) -> list[dict[str, Any]]:
    return [msgspec.json.decode(message.data) for message in broker.read(subject)]


def test_results_are_sent_to_a_subject_once_and_in_order(streaming: Streaming, broker: RealNats) -> None:
    broker.make_stream("results", "results")
    to = broker.url("results")
    broker.put("docs.new", rows(range(20)))
    streaming.run(to=to, buffer=900.0, compact=2)
    broker.put("docs.new", rows(range(20, 25)))
    streaming.run(to=to, compact=2)
    streaming.run(to=to, compact=2)
    assert [(row["id"], row["squared"]) for row in sent(broker, "results")] == [(row, row * row) for row in range(25)]


def test_a_window_that_was_sent_in_part_is_finished_and_nothing_is_there_twice(
    streaming: Streaming, broker: RealNats, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.make_stream("results", "results", duplicate_window=0.1)  # ids alone would not be enough
    publish, left = NatsConnection.publish, [7]

    def cut(self: NatsConnection, payload: bytes, headers: dict[str, str]) -> None:
        publish(self, payload, headers)
        left[0] -= 1
        if left[0] == 0:
            raise Broken("killed, after the broker has the message")

    broker.put("docs.new", rows(range(20)))
    monkeypatch.setattr(NatsConnection, "publish", cut)
    with pytest.raises(Broken, match="killed"):
        streaming.run(to=broker.url("results"))
    assert len(sent(broker, "results")) == 7
    streaming.run(to=broker.url("results"))
    assert [row["id"] for row in sent(broker, "results")] == list(range(20))


def test_a_broker_that_goes_while_results_are_sent_is_waited_for(streaming: Streaming, broker: RealNats) -> None:
    broker.make_stream("results", "results")
    streaming.put("a.jsonl", range(300))
    stream = streaming.stream(source=str(streaming.inbox), to=broker.url("results"), once=True)
    broker.kill()
    with running(stream) as thread:
        until(lambda: "outlet" in dict(stream.counts.snapshot.problems))
        broker.start()
        thread.join()
    assert [row["id"] for row in sent(broker, "results")] == list(range(300))


def test_a_subject_that_is_full_gets_the_rest_when_it_has_room(streaming: Streaming, broker: RealNats) -> None:
    broker.make_stream("results", "results", max_msgs=5, discard="new")
    broker.put("docs.new", rows(range(12)))
    stream = streaming.stream(to=broker.url("results"), once=True)
    with running(stream) as thread:
        until(lambda: "outlet" in dict(stream.counts.snapshot.problems))
        assert "maximum messages exceeded" in stream.counts.snapshot.problem
        broker.change_stream("results", "results", max_msgs=100)
        thread.join()
    assert [row["id"] for row in sent(broker, "results")] == list(range(12))


def test_a_subject_that_others_write_to_is_refused(streaming: Streaming, broker: RealNats) -> None:
    broker.make_stream("results", "results")
    broker.put("results", [b"somebody else's"])
    broker.put("docs.new", rows(range(3)))
    with pytest.raises(InvalidInput, match="only this stream"):
        streaming.run(to=broker.url("results"))
