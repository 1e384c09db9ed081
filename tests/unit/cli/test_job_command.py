"""The command that goes on with a server's job says all that the job was asked for."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from msgspec import json, structs, to_builtins

from twoshift.batch.setting_values import Mark
from twoshift.batch.settings import JobSettings
from twoshift.cli import main
from twoshift.cli.batch import _lines
from twoshift.cli.job_command import local_lines
from twoshift.cli.jobs import _here_lines, _settled, job_lines
from twoshift.declare import declared, differing
from twoshift.errors import Denied, InvalidInput

ASKED = JobSettings(
    inputs=("a b.parquet", "s3://place/c"),
    output="out",
    model="smollm",
    prompt="Is {text} good? 'yes' or \"no\"",
    system="You are brief, {name}",
    max_tokens=7,
    temperature=0.5,
    top_p=0.9,
    seed=3,
    stop=("\n", "a b"),
    json_schema='{"type": "object", "properties": {"good": {"type": "boolean"}}}',
    keep=("id", "name"),
    types={"zip": "string"},
    input_format="parquet",
    output_format="jsonl",
    shard_rows=5,
    shard_seconds=7.5,
    max_errors="1%",
    window="2h",
    price_usd_per_hour=1.5,
    grace_seconds=0.0,
    load_seconds=90.0,
    lease_seconds=400.0,
    preparers=3,
    weight=2.0,
    hours="22:00-06:00",
    tz="Europe/Berlin",
    max_live_load=0.3,
    notify=("ops", "me"),
)
OF_TEXTS = JobSettings(
    inputs=("a",), output="out", model="m", text="q", pair="d", prompt_name="query", too_long="error", empty="skip"
)
OF_ROWS = JobSettings(
    inputs=("a",), output="out", model="m", columns=("x", "y"), workers=3, file_size=2.5e8, compression="zstd:9"
)


def shown(settings: JobSettings) -> list[str]:
    loaded = {"model": settings.model, "precision": "bf16"}
    return local_lines(
        {"id": "job-1", "settings": json.decode(json.encode(settings)), "progress": {"loaded": loaded}}, " --on URL"
    )


@pytest.mark.parametrize("asked", [ASKED, OF_TEXTS, OF_ROWS], ids=["prompts", "texts", "rows"])
def test_the_command_of_a_job_asks_for_the_same_job(
    asked: JobSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run as it is printed, as far as the settings that it makes."""
    monkeypatch.chdir(tmp_path)
    Path("schema.json").write_text(asked.json_schema or "")
    made = list[JobSettings]()

    def run(settings: JobSettings, fresh: bool, retry_errors: str | None) -> None:
        made.append(settings)
        raise InvalidInput("test", "settings", "no more")

    monkeypatch.setattr("twoshift.cli.run._run", run)
    program, verb, *words = shlex.split(shown(asked)[0].partition(": ")[2])
    assert (program, verb) == ("twoshift", "run")
    main([verb, *words])
    fields = declared(JobSettings).values()
    elsewhere = {each.name: each.default for each in fields if Mark.SERVER in each.marks or not each.setting.has_option}
    assert made == [structs.replace(asked, **elsewhere)]


def test_what_a_command_cannot_say_is_said_beside_it() -> None:
    _, schema, there, file = shown(ASKED)
    assert schema == (
        "First save `settings.json_schema` from the output of `twoshift jobs show job-1 --on URL --json` as the file "
        "schema.json."
    )
    options = "--weight 2.0 --hours 22:00-06:00 --tz Europe/Berlin --max-live-load 0.3 --notify ops,me"
    kept = "`twoshift jobs resume job-1 --on URL` keeps these options."
    assert there == f"These options apply only on a server: {options}. {kept}"
    assert file == "The setting lease_seconds has no option; write it into a job file: lease_seconds = 400.0"
    assert len(shown(OF_ROWS)) == 1


def test_no_setting_of_a_job_is_forgotten_in_its_command() -> None:
    of_the_server = {name for name, each in declared(JobSettings).items() if {Mark.HERE, Mark.BATCH} & {*each.marks}}
    changed = {name for each in (ASKED, OF_TEXTS, OF_ROWS) for name in differing(JobSettings, to_builtins(each))}
    assert changed | of_the_server == set(declared(JobSettings))  # the tests above ask for each of them


def test_the_command_of_a_paused_job_of_a_language_model_has_its_prompt() -> None:
    asked = JobSettings(inputs=("a.jsonl",), output="out", model="smollm", prompt="Is {text} good?", max_tokens=7)
    command = "twoshift run a.jsonl --model smollm -o out --prompt 'Is {text} good?' --max-tokens 7"
    assert shown(asked) == [f"To resume the job on this machine: {command}"]


@pytest.mark.parametrize(("reason", "shown"), [("expired", "b: expired"), ("cancelled", "b: cancelled")])
def test_a_job_whose_window_has_passed_was_cancelled_by_nobody(reason: str, shown: str) -> None:
    settings = {"model": "m", "inputs": ["a"], "output": "b"}
    assert (
        job_lines({"id": "b", "state": "cancelled", "reason": reason, "settings": settings, "progress": None})[0]
        == shown
    )


def test_a_batch_says_when_it_was_created_and_when_it_expires() -> None:
    counts, usage = {"completed": 1, "failed": 0, "total": 2}, {"total_tokens": 3}
    batch = {"id": "b", "status": "in_progress", "model": "m", "endpoint": "/v1/embeddings", "completion_window": "1h"}
    more = {"request_counts": counts, "usage": usage, "errors": None, "created_at": 1e9, "expires_at": 1e9 + 3600}
    more |= {"left_s": 90.0}
    assert any(line.startswith("created 2001-09-0") and ", expires 2001-09-0" in line for line in _lines(batch | more))
    assert "1 of 2 requests completed, 0 failed, 90 s left" in _lines(batch | more)


def test_a_job_that_failed_before_its_model_was_known_says_how_to_go_on() -> None:
    settings = {"model": "m", "inputs": ["a"], "output": "b"}
    job = {"id": "job-1", "state": "failed", "reason": "why", "settings": settings, "progress": None}
    assert _here_lines(job, True, " --on URL") == [
        "To resume the job on the server: twoshift jobs resume job-1 --on URL"
    ]
    assert _here_lines(job | {"state": "done"}, True, " --on URL") == []


def test_a_job_that_fails_as_soon_as_it_is_resumed_is_shown_failed() -> None:
    states = ["running", "failed"]

    class There:
        def get(self, path: str) -> dict[str, str]:
            return {"id": "job-1", "state": states.pop(0)}

    assert _settled(There(), {"id": "job-1", "state": "queued"})["state"] == "failed"  # pyright: ignore[reportArgumentType]


def test_a_missing_server_and_a_key_that_may_not_are_bad_usage(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TWOSHIFT_SERVER", raising=False)
    assert main(["jobs", "list"]) == 2
    assert "--on is missing; expected the URL" in capsys.readouterr().err

    def denied(*_: object) -> None:
        raise Denied("no key")

    monkeypatch.setattr("twoshift.cli.server.ServerClient.get", denied)
    assert main(["jobs", "list", "--on", "http://127.0.0.1:1"]) == 2


def test_a_job_of_an_adapter_is_shown_and_resumed_with_it() -> None:
    asked = JobSettings(inputs=("a",), output="out", model="m", prompt="x", adapter="sql")
    loaded = {"model": "m", "precision": "bf16", "adapter": "/adapters/sql"}
    job = {"id": "job-1", "settings": to_builtins(asked), "progress": {"loaded": loaded}}
    command = "twoshift run a --model m --adapter /adapters/sql -o out --prompt x"
    assert local_lines(job) == [f"To resume the job on this machine: {command}"]
    lines = job_lines({**job, "state": "paused", "reason": "", "progress": None})
    assert lines[1] == "model sql, input a, output out"
