"""Batches by OpenAI's own client, against the real program."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from batch_clients import client_of, ended, lines_of, outcome, request_line, started
from programs import command
from servers import Server, until
from user_models import written

from twoshift.serve.keys import digest_of

pytest.importorskip("openai")
pytest.importorskip("sqlalchemy")
pytestmark = pytest.mark.slow
ALICE, BOB, CAROL = "ts-of-alice", "ts-of-bob", "ts-of-carol"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("home")
    models, config = written(home), home / "server.toml"
    config.write_text(f"""
        [models.embed]
        model = "{models}:Embed"
        slo_ms = 60000
        [models."org/embed"]
        model = "{models}:Embed"
        slo_ms = 60000
        [models.troubled]
        model = "{models}:Troubled"
        slo_ms = 60000
        [keys.alice]
        sha256 = "{digest_of(ALICE)}"
        [keys.bob]
        sha256 = "{digest_of(BOB)}"
        models = ["troubled"]
        [keys.carol]
        sha256 = "{digest_of(CAROL)}"
        tenant = "carol"
        [tenants.carol]
        concurrent_jobs = 1
        [files]
        max_mb = 1
        max_requests = 2000
    """)
    made = Server(home, "--config", str(config))
    yield made
    made.end()


def asking(server: Server, key: str = ALICE) -> dict[str, str]:
    """The environment of a command that asks this server."""
    return {"TWOSHIFT_SERVER": server.address, "TWOSHIFT_KEY": key, "COLUMNS": "200"}


@pytest.fixture(scope="module")
def client(server: Server) -> Any:
    return client_of(server, ALICE)


def test_the_whole_flow_answers_as_the_live_endpoint_does(server: Server, client: Any) -> None:
    asked: dict[str, dict[str, Any]] = {
        "one": {"input": "a text"},
        "many": {"input": ["a", "bb", "ccc"]},
        "packed": {"input": ["a", "bb"], "encoding_format": "base64"},
        "short": {"input": "abcd", "dimensions": 2},
        "too short": {"input": "abcd", "dimensions": 9},
        "nothing": {"input": []},
        "no input": {},
        "é ✓": {"input": "é"},
    }
    lines = [
        json.dumps({"custom_id": name, "method": "POST", "url": "/v1/embeddings", "body": {"model": "embed", **body}})
        for name, body in asked.items()
    ]
    file = client.files.create(file=("mine.jsonl", "\n".join(lines).encode()), purpose="batch")
    assert (file.purpose, file.status, file.filename, file.object) == ("batch", "processed", "mine.jsonl", "file")
    assert client.files.retrieve(file.id) == file
    assert client.files.content(file.id).content == "\n".join(lines).encode()
    batch = client.batches.create(
        input_file_id=file.id, endpoint="/v1/embeddings", completion_window="24h", metadata={"for": "us"}
    )
    assert (batch.status, batch.metadata, batch.completion_window) == ("validating", {"for": "us"}, "24h")
    done = ended(client, batch.id)
    assert (done.status, done.model, done.errors) == ("completed", "embed", None)
    assert done.created_at <= done.in_progress_at <= done.finalizing_at <= done.completed_at <= done.expires_at
    output, errors = outcome(client, done, asked)
    headers = {"authorization": f"Bearer {ALICE}"}
    for line in (*output, *errors):
        live = server.ask("POST", "/v1/embeddings", {"model": "embed", **asked[line["custom_id"]]}, headers)
        assert line["response"]["status_code"] == live.status
        assert line["response"]["body"] == live.json()
    assert [line["custom_id"] for line in errors] == ["too short", "nothing", "no input"]
    assert done.usage.input_tokens == sum(line["response"]["body"]["usage"]["total_tokens"] for line in output)
    output_file = client.files.retrieve(done.output_file_id)
    assert output_file.purpose == "batch_output"
    assert output_file.expires_at > output_file.created_at
    assert client.files.delete(file.id).deleted
    with pytest.raises(Exception, match="404"):
        client.files.retrieve(file.id)


@pytest.mark.parametrize(
    ("content", "code", "line"),
    [
        (b"", "empty_file", None),
        (b"\n \n", "empty_file", None),
        (b"{}\nno json\n", "invalid_request_line", 1),
        (request_line("a", "embed", "x") + b"\nno json\n", "invalid_json_line", 3),
        (b"\xff\xfe\n", "invalid_json_line", 1),
        (request_line("a", "embed", "x") * 2, "duplicate_custom_id", 2),
        (request_line("a", "embed", "x", url="/v1/rerank"), "invalid_url", 1),
        (request_line("a", "nobody", "x"), "model_not_found", 1),
        (request_line("a", "embed", "x") + request_line("b", "troubled", "x"), "mismatched_model", 2),
        (b"".join(request_line(str(k), "embed", "x") for k in range(2001)), "too_many_requests", 2001),
    ],
)
def test_a_file_that_is_no_batch_ends_as_failed(client: Any, content: bytes, code: str, line: int | None) -> None:
    done = ended(client, started(client, [content]).id)
    assert done.status == "failed"
    assert done.failed_at is not None
    assert (done.output_file_id, done.error_file_id) == (None, None)
    assert done.errors.object == "list"
    assert (code, line) in [(error.code, error.line) for error in done.errors.data]
    with pytest.raises(Exception, match="400"):
        client.batches.cancel(done.id)


def test_a_model_may_be_served_under_the_name_that_a_file_has(client: Any) -> None:
    done = ended(client, started(client, [request_line("a", "org/embed", "x")]).id)
    assert (done.status, done.model, done.request_counts.completed) == ("completed", "org/embed", 1)
    client.files.delete(done.output_file_id)


def test_lists_have_pages(client: Any) -> None:
    made = [started(client, [request_line("a", "embed", str(k))]).id for k in range(5)]
    for each in made:
        ended(client, each)
    page = client.batches.list(limit=2)
    assert page.has_more
    assert [each.id for each in page.data] == [made[4], made[3]]
    assert [each.id for each in client.batches.list(limit=2, after=made[3]).data] == [made[2], made[1]]
    listed = [each.id for each in client.batches.list(limit=3)]  # the client turns the pages
    assert listed[:5] == made[::-1]
    assert len(set(listed)) == len(listed)
    files = [each.id for each in client.files.list(purpose="batch", limit=3)]
    assert len(files) >= 5
    assert {each.purpose for each in client.files.list(purpose="batch_output")} == {"batch_output"}
    ascending = [each.id for each in client.files.list(order="asc")]
    assert ascending == [each.id for each in client.files.list(order="desc")][::-1]


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=101", "limit=x", "limit=-1", "limit=1&limit=2", "after=nobody", "limit="]
)
def test_a_page_that_cannot_be_is_refused(server: Server, query: str) -> None:
    reply = server.ask("GET", f"/v1/batches?{query}", headers={"authorization": f"Bearer {ALICE}"})
    assert reply.status in (400, 404)
    assert set(reply.json()["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"completion_window": "tomorrow"}, "completion_window"),
        ({"completion_window": "0h"}, "completion_window"),
        ({"endpoint": "/v1/nothing"}, "endpoint"),
        ({"input_file_id": "file-0"}, "file"),
        ({"metadata": {str(k): "x" for k in range(17)}}, "metadata"),
        ({"metadata": {"k" * 65: "x"}}, "metadata"),
        ({"metadata": {"k": "x" * 513}}, "metadata"),
        ({"output_expires_after": {"anchor": "created_at", "seconds": 5}}, "output_expires_after"),
    ],
)
def test_a_batch_that_cannot_be_is_refused(client: Any, change: dict[str, Any], named: str) -> None:
    import openai

    file = client.files.create(file=("r.jsonl", request_line("a", "embed", "x")), purpose="batch")
    asked = {"input_file_id": file.id, "endpoint": "/v1/embeddings", "completion_window": "24h", **change}
    with pytest.raises(openai.APIStatusError) as refused:
        client.batches.create(**asked)
    assert refused.value.status_code in (400, 404)
    assert named in refused.value.message


def test_a_create_that_is_sent_again_does_not_run_twice(client: Any) -> None:
    file = client.files.create(file=("r.jsonl", request_line("a", "embed", "x")), purpose="batch")
    asked = {"input_file_id": file.id, "endpoint": "/v1/embeddings", "completion_window": "24h"}
    first = client.batches.create(**asked)
    assert client.batches.create(**asked).id == first.id
    assert client.batches.create(**asked, metadata={"another": "one"}).id != first.id


def test_nobody_sees_what_is_anothers(server: Server, client: Any) -> None:
    import openai

    batch = ended(client, started(client, [request_line("a", "embed", "mine")]).id)
    bob = client_of(server, BOB)
    told = []
    for ask, known, unknown in (
        (bob.batches.retrieve, batch.id, "batch_0"),
        (bob.batches.cancel, batch.id, "batch_0"),
        (bob.files.retrieve, batch.input_file_id, "file-0"),
        (bob.files.content, batch.output_file_id, "file-0"),
        (bob.files.delete, batch.output_file_id, "file-0"),
    ):
        for given in (known, unknown):
            with pytest.raises(openai.NotFoundError) as refused:
                ask(given)
            told.append(refused.value.message.replace(given, "ID"))
    assert told[::2] == told[1::2]
    with pytest.raises(openai.NotFoundError):
        bob.batches.create(input_file_id=batch.input_file_id, endpoint="/v1/embeddings", completion_window="24h")
    assert batch.id not in [each.id for each in bob.batches.list()]
    assert not list(bob.files.list())
    assert server.ask("GET", f"/v1/jobs/{batch.id}", headers={"authorization": f"Bearer {BOB}"}).status == 404
    refused_model = ended(bob, started(bob, [request_line("a", "embed", "x")]).id)
    assert (refused_model.status, refused_model.errors.data[0].code) == ("failed", "model_not_found")


def test_a_cancelled_batch_keeps_what_is_done(client: Any) -> None:
    ids = [str(k) for k in range(300)]
    batch = started(client, [request_line(each, "troubled", "sleep 0.05") for each in ids], "100s")
    until(lambda: client.batches.retrieve(batch.id).request_counts.completed > 0)
    assert client.batches.cancel(batch.id).status == "cancelling"
    done = ended(client, batch.id)
    assert done.status == "cancelled"
    assert done.cancelling_at <= done.cancelled_at
    output, errors = outcome(client, done, ids)
    assert output
    assert errors
    assert {line["error"]["code"] for line in errors} == {"batch_cancelled"}
    assert {line["response"] for line in errors} == {None}


def test_an_expired_batch_keeps_what_is_done_and_the_rest_can_be_tried_again(server: Server, client: Any) -> None:
    ids = [str(k) for k in range(100)]
    lines = [request_line(each, "troubled", "sleep 0.2") for each in ids]
    batch = started(client, lines, "8s")
    done = ended(client, batch.id)
    assert done.status == "expired"
    assert done.expired_at >= done.expires_at
    _, errors = outcome(client, done, ids)
    assert {line["error"]["code"] for line in errors} == {"batch_expired"}
    listed = command("jobs", "list", "--limit", "1000", env=asking(server))
    assert re.search(rf"{batch.id}\s+expired\s", listed.stdout), listed
    headers = {"authorization": f"Bearer {ALICE}"}
    again = server.ask("POST", f"/v1/batches/{batch.id}/retry", headers=headers).json()
    assert again["id"] != batch.id
    assert server.ask("POST", f"/v1/batches/{batch.id}/retry", headers=headers).json()["id"] == again["id"]
    asked = client.files.content(again["input_file_id"]).text.splitlines()
    assert [json.loads(line)["custom_id"] for line in asked] == [line["custom_id"] for line in errors]
    client.batches.cancel(again["id"])
    ended(client, again["id"])


def test_rows_that_fail_are_errors_of_their_own(server: Server, client: Any) -> None:
    given = {
        "good": "a",
        "bad": "raise",
        "also good": ["b", "c"],
        "half": ["b", "raise"],
        "odd": "nan",
        "long": "x " * 9000,
    }
    done = ended(client, started(client, [request_line(name, "troubled", text) for name, text in given.items()]).id)
    assert done.status == "completed"
    output, errors = outcome(client, done, given)
    assert [line["custom_id"] for line in output] == ["good", "also good"]
    for line in errors:
        headers = {"authorization": f"Bearer {ALICE}"}
        live = server.ask("POST", "/v1/embeddings", {"model": "troubled", "input": given[line["custom_id"]]}, headers)
        assert line["response"]["body"] == live.json()
    told = {line["custom_id"]: line["response"]["status_code"] for line in errors}
    assert told == {"bad": 500, "half": 500, "odd": 500, "long": 413}


def test_a_mark_at_the_beginning_of_a_file_is_no_part_of_its_first_request(client: Any) -> None:
    for count in (1, 20):
        lines = [b"\xef\xbb\xbf", *(request_line(str(k), "embed", "text") for k in range(count))]
        done = ended(client, started(client, lines).id)
        output, errors = outcome(client, done, map(str, range(count)))
        assert (done.status, len(output), errors) == ("completed", count, [])


def test_the_input_of_a_running_batch_cannot_be_deleted(client: Any) -> None:
    batch = started(client, [request_line(str(k), "troubled", "sleep 0.05") for k in range(200)], "100s")
    with pytest.raises(Exception, match="400"):
        client.files.delete(batch.input_file_id)
    client.batches.cancel(batch.id)
    ended(client, batch.id)
    assert client.files.delete(batch.input_file_id).deleted


def test_content_has_etags_and_ranges(server: Server, client: Any) -> None:
    content = request_line("a", "embed", "x" * 1000)
    file = client.files.create(file=("r.jsonl", content), purpose="batch")
    path, key = f"/v1/files/{file.id}/content", {"authorization": f"Bearer {ALICE}"}
    whole = server.ask("GET", path, headers=key)
    assert (whole.status, whole.body) == (200, content)
    etag = whole.headers["etag"]
    known = server.ask("GET", path, headers={**key, "if-none-match": etag})
    assert (known.status, known.body, known.headers["etag"]) == (304, b"", etag)
    assert server.ask("GET", path, headers={**key, "if-none-match": '"another"'}).status == 200
    size = len(content)
    for wanted, status, start, stop in (
        ("bytes=0-9", 206, 0, 10),
        ("bytes=10-", 206, 10, size),
        ("bytes=-7", 206, size - 7, size),
        (f"bytes=5-{size * 9}", 206, 5, size),
        ("bytes=9-5", 200, 0, size),
        ("bytes=0-1,3-4", 200, 0, size),
        ("lines=0-1", 200, 0, size),
    ):
        part = server.ask("GET", path, headers={**key, "range": wanted})
        assert (part.status, part.body) == (status, content[start:stop]), wanted
        if status == 206:
            assert part.headers["content-range"] == f"bytes {start}-{stop - 1}/{size}"
    beyond = server.ask("GET", path, headers={**key, "range": f"bytes={size}-"})
    assert (beyond.status, beyond.headers["content-range"]) == (416, f"bytes */{size}")
    other = server.ask("GET", path, headers={**key, "range": "bytes=0-9", "if-range": '"another"'})
    assert (other.status, other.body) == (200, content)
    head = server.ask("HEAD", path, headers=key)
    assert (head.status, head.headers["content-length"], head.body) == (200, str(size), b"")


def test_a_file_says_when_it_goes(client: Any) -> None:
    import openai

    asked = {"file": ("r.jsonl", b"x"), "purpose": "batch"}
    file = client.files.create(**asked, expires_after={"anchor": "created_at", "seconds": 3600})
    assert file.expires_at == file.created_at + 3600
    with pytest.raises(openai.BadRequestError, match="3600"):
        client.files.create(**asked, expires_after={"anchor": "created_at", "seconds": 5})
    with pytest.raises(openai.BadRequestError, match="purpose"):
        client.files.create(file=("r.jsonl", b"x"), purpose="assistants")
    with pytest.raises(openai.APIStatusError) as refused:
        client.files.create(file=("r.jsonl", b"x" * 1_000_001), purpose="batch")
    assert refused.value.status_code == 413


def test_the_command_does_the_same(server: Server, tmp_path: Path) -> None:
    requests, output = tmp_path / "requests.jsonl", tmp_path / "out.jsonl"
    requests.write_bytes(b"".join(request_line(str(k), "embed", "x" * k) for k in range(1, 50)))

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return command("batch", *words, env=asking(server))

    sent = run("submit", str(requests), "--wait", "-o", str(output), "--json")
    assert sent.returncode == 0, sent.stderr
    assert f"Results: {output}" in sent.stderr
    batch = json.loads(sent.stdout)
    assert batch["status"] == "completed"
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    assert [line["custom_id"] for line in lines] == [str(k) for k in range(1, 50)]
    assert batch["id"] in run("list").stdout
    assert "completed" in run("show", batch["id"]).stdout
    assert run("results", batch["id"]).stdout == output.read_text()
    assert run("cancel", batch["id"]).returncode == 2
    assert run("retry", batch["id"]).returncode == 2
    assert run("show", "batch_0").returncode == 2
    none = run("results", batch["id"], "--errors")
    assert (none.returncode, none.stdout) == (0, "")
    assert "no request has failed" in none.stderr
    mixed = tmp_path / "mixed.jsonl"
    mixed.write_bytes(request_line("good", "troubled", "x") + request_line("bad", "troubled", "raise"))
    some = run("submit", str(mixed), "--wait")
    assert some.returncode == 4, some.stderr
    named = re.search(r"twoshift batch results (batch_\w+) --errors", some.stdout)
    assert named is not None
    assert '"bad"' in run("results", named[1], "--errors").stdout
    there = ("--on", server.address)
    assert f"twoshift batch results {named[1]} --errors --on {server.address}" in run("show", named[1], *there).stdout
    assert f"--on {server.address}`" in run("submit", str(requests), *there).stderr
    again = run("retry", named[1], "--window", "7m", "--wait", "--json")
    assert again.returncode == 4, again.stderr
    assert json.loads(again.stdout)["completion_window"] == "7m"
    assert run("retry", named[1], "--window", "soon").returncode == 2
    bad = tmp_path / "bad.jsonl"
    bad.write_text("")
    assert "the file is empty" in run("submit", str(bad)).stderr
    bad.write_text("no json\n")
    refused = run("submit", str(bad))
    assert (refused.returncode, "the first line is not JSON" in refused.stderr) == (2, True)
    assert run("submit", "nofile.jsonl").stderr.startswith("twoshift: requests: 'nofile.jsonl'")
    failed = run("submit", str(bad), "--wait", "--endpoint", "/v1/embeddings")
    assert failed.returncode == 2
    assert "line 1" in failed.stdout + failed.stderr


def test_the_command_says_why_a_batch_waits(server: Server) -> None:
    client = client_of(server, CAROL)
    made = [
        started(client, [request_line(f"{n} {k}", "troubled", "sleep 0.1") for k in range(600)], "10m").id for n in "ab"
    ]

    def shown() -> str:
        ran = [command("batch", "show", each, env=asking(server, CAROL)) for each in made]
        return " ".join("".join(each.stdout for each in ran).split())

    until(lambda: "queued: the tenant has reached its limit of 1 running job" in shown())
    until(lambda: re.search(r"requests completed, 0 failed, [\d.]+ ?\w+ left", shown()) is not None)
    listed = command("batch", "list", env=asking(server, CAROL)).stdout
    assert re.search(r"failed\s+time left\s+created", listed)
    for each in made:
        client.batches.cancel(each)
    for each in made:
        ended(client, each)


def test_jobs_of_batches_are_left_to_batches(server: Server, client: Any) -> None:
    batch = ended(client, started(client, [request_line("a", "embed", "job")]).id)
    key = {"authorization": f"Bearer {ALICE}"}
    job = server.ask("GET", f"/v1/jobs/{batch.id}", headers=key).json()
    assert job["state"] == "done"
    places = job["settings"]["inputs"], job["settings"]["output"]
    assert places == ([batch.input_file_id], batch.id)  # not where they lie
    for change in ("pause", "resume", "cancel"):
        refused = server.ask("POST", f"/v1/jobs/{batch.id}/{change}", headers=key)
        assert (refused.status, "/v1/batches/" in refused.message) == (400, True)
    told = server.ask("POST", "/v1/jobs", {"inputs": "x", "output": "y", "model": "embed", "endpoint": "z"}, key)
    assert told.status == 400
    assert lines_of(client, batch.output_file_id)
