"""Jobs in the console: whose they are, what may be done with them, and what hostile names do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

pytest.importorskip("jinja2", reason="the serve extra is not installed")
pytest.importorskip("httptools", reason="the serve extra is not installed")

from console_app import HOSTILE, ConsoleApp, console_app, header

from twoshift.batch_ports import InputColumn, JobFailures
from twoshift.ports import RuntimeInfo, Tensor
from twoshift.serve.deployments import Deployment
from twoshift.types import JobState
from twoshift.ui.model_rows import is_field, takes_texts

KEYS = {
    "root": {"scopes": ("admin",)},
    "alice": {"tenant": "red", "scopes": ("batch",)},
    "rita": {"tenant": "red", "scopes": ("read",)},
    "bob": {"tenant": "blue", "scopes": ("batch",)},
    "live": {"tenant": "red", "scopes": ("serve",)},
}
PROGRESS = {
    "shards": 4, "shards_done": 1, "share": 0.25, "rows": 1000, "rows_total": 4000, "rows_committed": 900, "errors": 3,
    "rows_per_s": 50.0, "elapsed_s": 20.0, "left_s": 60.0, "predicted_s": 70.0, "chance": 0.9, "harvested_s": 1000.0,
    "riding_s": 1.0, "held": "", "loaded": None, "ending": None,
}  # fmt: skip


@pytest.fixture
def keyed() -> Iterator[ConsoleApp]:
    with console_app(keys=KEYS, price_usd_per_hour=3.6) as (made, _):
        made.desk.add("job-red", "red", progress=PROGRESS, settings={"window": "2h"})
        made.desk.add("job-blue", "blue", reason="the secret of blue")
        yield made


def test_progress_time_left_its_chance_and_dollars_are_shown(keyed: ConsoleApp) -> None:
    keyed.login("alice")
    page = keyed.page("/console/jobs/job-red")
    for shown in ("25 %", "1,000", "of 4,000", "60 s", "90 % chance", "$0.50", "about $2.00 in all", "predicted"):
        assert shown in page


def test_a_job_without_a_window_has_no_chance_to_end_in_it(keyed: ConsoleApp) -> None:
    keyed.desk.add("job-free", "red", progress={**PROGRESS, "chance": 1.0})
    keyed.login("alice")
    assert "chance" not in keyed.page("/console/jobs/job-free")
    assert "100 %" not in keyed.page("/console/jobs")


def test_a_job_that_has_ended_shows_what_it_cost(keyed: ConsoleApp) -> None:
    keyed.desk.add("job-done", "red", JobState.DONE, progress={**PROGRESS, "share": 1.0, "harvested_s": 0.054})
    keyed.desk.add("job-gone", "red", JobState.CANCELLED, progress=PROGRESS)
    keyed.login("alice")
    assert "$0.000027" in keyed.page("/console/jobs/job-done")
    for page in (keyed.page("/console/jobs/job-done"), keyed.page("/console/jobs/job-gone")):
        assert "in all" not in page
        assert "so far" not in page


def test_a_tenant_sees_and_moves_its_own_jobs_alone(keyed: ConsoleApp) -> None:
    keyed.login("alice")
    assert "job-red" in keyed.page("/console/jobs")
    assert "job-blue" not in keyed.page("/console/jobs")
    for path in ("", "/report"):
        reply = keyed.ask("GET", f"/console/jobs/job-blue{path}")
        assert reply.status == 404
        assert b"secret" not in reply.body
    assert keyed.send("/console/jobs/job-blue/cancel").status == 404
    assert keyed.desk.moved == []
    assert keyed.send("/console/jobs/job-red/cancel").status == 303
    assert keyed.desk.moved == [("job-red", "pause")]
    keyed.login("root")
    assert "job-blue" in keyed.page("/console/jobs")


def test_a_key_that_reads_and_a_login_that_reads_change_nothing(keyed: ConsoleApp) -> None:
    for name, more in (("rita", ""), ("alice", "&read_only=1")):
        keyed.login(name, more)
        assert keyed.ask("GET", "/console/jobs/job-red").status == 200
        assert "/console/jobs/job-red/pause" not in keyed.page("/console/jobs/job-red")
        assert "/console/jobs/new" not in keyed.page("/console/jobs")
        assert keyed.ask("GET", "/console/jobs/new").status == 403
        assert keyed.send("/console/jobs/job-red/pause").status == 403
        assert keyed.send("/console/jobs", model="m", inputs="a", output="b").status == 403
    assert keyed.desk.moved == keyed.desk.asked == []
    keyed.login("live")
    assert keyed.ask("GET", "/console/jobs").status == 403


def test_an_action_needs_the_sessions_own_token(keyed: ConsoleApp) -> None:
    keyed.login("bob")
    others = keyed.token()
    keyed.login("alice")
    for body in (b"", b"token=", f"token={others}".encode()):
        assert keyed.post("/console/jobs/job-red/cancel", body).status == 403
    keyed.cookie = ""
    reply = keyed.post("/console/jobs/job-red/cancel", b"token=x")
    assert (reply.status, header(reply, b"location")) == (303, "/console/login")
    assert keyed.desk.moved == []


def test_a_job_is_submitted_after_its_input_and_its_cost_were_shown(keyed: ConsoleApp) -> None:
    keyed.login("alice")
    page = keyed.page("/console/jobs/new?model=m&inputs=%2Fdata%2Fin.parquet")
    for shown in ("60k", "Estimated duration", "Estimated cost", 'name="keep.id"', "body (string)", "Start the job"):
        assert shown in page
    inputs = ["/data/in.parquet", "/data/b.parquet"]
    given = {"model": "m", "inputs": "\r\n".join(inputs), "text": "body", "keep.id": "1", "window": "2h"}
    again = keyed.send("/console/jobs", **given)
    assert again.status == 400
    assert "a folder" in again.body.decode()
    assert 'value="2h"' in again.body.decode()
    assert header(keyed.send("/console/jobs", **given, output="/data/out"), b"location") == "/console/jobs/job-new"
    wanted = {"model": "m", "output": "/data/out", "text": "body", "window": "2h", "inputs": inputs, "keep": ["id"]}
    assert keyed.desk.asked == [(wanted, "red")]


def test_a_text_column_is_chosen_for_models_that_take_texts_alone(
    keyed: ConsoleApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyed.login("alice")
    new = "/console/jobs/new?model=m&inputs=in.parquet"
    page = keyed.page(new)  # a class of one's own
    assert '<option value="body" selected>' not in page
    assert 'name="column.id" value="1" checked' in page
    given = {"model": "m", "inputs": "in.parquet", "output": "out", "text": "", "column.id": "1"}
    assert keyed.send("/console/jobs", **given).status == 303
    assert keyed.desk.asked[0][0]["columns"] == ["id"]
    told = replace(keyed.models["m"].info, inputs=(Tensor("text", "text"),))
    monkeypatch.setattr(Deployment, "info", told)
    assert '<option value="body" selected>' in keyed.page(new)


def test_fields_are_those_that_a_model_names() -> None:
    named = RuntimeInfo("m", "0", "python", "cpu", "fp32", 1, (), example={"id": 1})
    assert (is_field(named, "id"), is_field(named, "body"), takes_texts(named)) == (True, False, False)
    assert takes_texts(replace(named, example="a text"))


def test_names_errors_and_logs_that_are_markup_are_shown_and_not_obeyed(keyed: ConsoleApp) -> None:
    settings = {"inputs": [HOSTILE], "output": HOSTILE, "model": HOSTILE}
    keyed.desk.add(HOSTILE, "red", JobState.FAILED, HOSTILE, settings=settings, progress=PROGRESS)
    keyed.desk.failed = JobFailures(kinds={HOSTILE: 3}, rows=[(HOSTILE, HOSTILE)], parts=2, parts_read=1)
    keyed.desk.columns = [InputColumn(HOSTILE, HOSTILE)]
    keyed.login("alice")
    quoted = "%3Cscript%3Ealert(1)%3C%2Fscript%3E%22'%3E%3Cimg%20src=x%20onerror=alert(2)%3E"
    pages = ["/console/jobs", f"/console/jobs/{quoted}", f"/console/jobs/new?model=m&inputs={quoted}&output={quoted}"]
    for path in pages:
        page = keyed.page(path)
        assert "<img" not in page
        assert "<script>" not in page
        assert "&lt;script&gt;alert(1)" in page
    assert "Only failures in the first 1 of " in keyed.page(f"/console/jobs/{quoted}")


def test_a_report_comes_without_a_right_to_run_scripts(keyed: ConsoleApp) -> None:
    keyed.login("alice")
    assert keyed.ask("GET", "/console/jobs/job-red/report").status == 404
    keyed.desk.page = b"<html><script>alert(1)</script>"
    reply = keyed.ask("GET", "/console/jobs/job-red/report")
    assert (reply.status, reply.body) == (200, keyed.desk.page)
    content = header(reply, b"content-security-policy")
    assert content.startswith("sandbox; default-src 'none'")
    assert "script" not in content


def test_what_the_server_has_not_is_said_on_the_page(keyed: ConsoleApp) -> None:
    keyed.login("alice")
    reply = keyed.ask("GET", "/console/batches")
    assert reply.status == 400
    assert "jobs need a database" in reply.body.decode()
