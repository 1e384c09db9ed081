"""Parts that were damaged after they were written: no job ends in success with one, and `twoshift verify` names it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from job_runs import JobFolder
from programs import command
from s3_server import CREDENTIALS, make_bucket, moto_server

from twoshift.blobs.s3 import S3Blobs, S3Settings

pytestmark = pytest.mark.slow

WHY = "is damaged: its checksum differs from the recorded checksum"


def verify(job: JobFolder, *words: str, expect: int = 0) -> Any:
    """What `twoshift verify` says, as JSON, and its lines for people."""
    asked = ("verify", *(words or ("out",)))
    ended = [command(*asked, *more, env=job.environment, cwd=job.path) for more in ([], ["--json"])]
    assert {each.returncode for each in ended} == {expect}, [each.stderr for each in ended]
    return json.loads(ended[1].stdout), ended[0].stdout


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)


def unfinished(job: JobFolder, *more: str) -> None:
    """A job whose last shard is still to be done."""
    job.run(*more)
    (job.out / "_SUCCESS").unlink()
    max(job.out.glob("part-*")).unlink()


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_part_that_was_cut_short_is_refused_as_the_job_resumes(job: JobFolder, kind: str) -> None:
    unfinished(job, "--output-format", kind)
    part = job.out / f"part-000001.{kind}"
    whole = part.read_bytes()
    lines = whole.splitlines(keepends=True)
    part.write_bytes(b"".join(lines[:-5]) if kind == "jsonl" else whole[:-1])
    cut = part.read_bytes()
    said = job.run("--output-format", kind, expect=1).err
    assert f"part-000001.{kind} has {len(cut):,} bytes, but {len(whole):,} bytes were written" in said
    assert "Delete this part and run the same command again" in said
    assert part.read_bytes() == cut  # nothing is done to it
    assert not (job.out / "_SUCCESS").exists()
    part.unlink()
    job.run("--output-format", kind)
    assert verify(job)[0]["verified"] == 6


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_flipped_bit_keeps_the_job_from_its_success(job: JobFolder, kind: str) -> None:
    unfinished(job, "--output-format", kind)
    part = job.out / f"part-000002.{kind}"
    flip(part, 100)
    said = job.run("--output-format", kind, expect=1).err
    assert f"part-000002.{kind} is damaged: its checksum differs" in said
    assert not (job.out / "_SUCCESS").exists()
    assert len(list(job.out.glob("part-*"))) == 6  # what was left is done all the same
    part.unlink()
    job.run("--output-format", kind)
    assert (job.out / "_SUCCESS").exists()


def test_a_link_that_leads_nowhere_does_not_turn_off_the_check_of_parts(job: JobFolder) -> None:
    job.run()
    flip(job.out / "part-000002.parquet", 100)
    (job.out / "_SUCCESS").unlink()
    (job.out / ".#lock").symlink_to("/nowhere")  # as an editor leaves one
    assert "part-000002.parquet is damaged: its checksum differs" in job.run(expect=1).err
    assert not (job.out / "_SUCCESS").exists()
    found, _ = verify(job, expect=1)
    assert (found["verified"], found["missing"]) == (5, [])


def test_a_part_that_is_no_file_is_named_as_damaged(job: JobFolder) -> None:
    job.run()
    (job.out / "_SUCCESS").unlink()
    for name in ("part-000001.parquet", "part-000003.parquet"):
        (job.out / name).unlink()
    (job.out / "part-000001.parquet").symlink_to("/nowhere")
    (job.out / "part-000003.parquet").mkdir()
    said = job.run(expect=1).err
    assert "part-000001.parquet is a broken symbolic link; part-000003.parquet is a folder. Delete these parts" in said
    assert not (job.out / "_SUCCESS").exists()
    found, said = verify(job, expect=1)
    assert (found["verified"], found["missing"]) == (4, [])
    assert "part-000001.parquet" in said
    assert "is a broken symbolic link" in said


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_verify_names_what_is_damaged_missing_or_somebody_elses(job: JobFolder, kind: str) -> None:
    job.run("--output-format", kind)
    found, said = verify(job)
    assert (found["verified"], found["rows"], found["errors"], found["finished"]) == (6, 300, 0, True)
    assert "Verified 6 of 6 parts in out." in said
    flip(job.out / f"part-000003.{kind}", -20)
    (job.out / f"part-000001.{kind}").unlink()
    (job.out / f"part-000000 copy.{kind}").write_bytes((job.out / f"part-000000.{kind}").read_bytes())
    found, said = verify(job, expect=1)
    assert found["damaged"] == [{"part": f"part-000003.{kind}", "why": WHY}]
    assert found["missing"] == [f"part-000001.{kind}"]
    assert found["unexpected"] == [f"part-000000 copy.{kind}"]
    assert "run the job's command again: only their shards are computed again" in " ".join(said.split())


def test_verify_tells_a_job_that_is_not_done_from_one_that_is_damaged(job: JobFolder) -> None:
    unfinished(job)
    found, said = verify(job, expect=3)
    assert (found["verified"], found["shards"], found["finished"], found["damaged"]) == (5, 6, False, [])
    assert "The job is not done" in said
    assert "no job" not in verify_error(job, "docs")
    assert "the output folder of a job" in verify_error(job, "docs")


def verify_error(job: JobFolder, folder: str) -> str:
    ended = command("verify", folder, cwd=job.path)
    assert ended.returncode == 2
    return ended.stderr


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_parts_of_an_earlier_release_still_open_and_their_rows_are_counted(job: JobFolder, kind: str) -> None:
    unfinished(job, "--output-format", kind)
    for record in (job.out / "_twoshift" / "parts").iterdir():
        record.unlink()
    (job.out / "_twoshift" / "manifest.json").unlink()
    job.run("--output-format", kind)
    found, told = verify(job)
    said = " ".join(told.split())
    assert (found["verified"], len(found["not_verifiable"]), found["rows"]) == (1, 5, 300)
    assert "5 parts cannot be verified, because no checksum was recorded; only their rows were counted" in said
    if kind == "jsonl":
        part = job.out / "part-000001.jsonl"
        part.write_bytes(b"".join(part.read_bytes().splitlines(keepends=True)[:-5]))
        damaged = verify(job, expect=1)[0]["damaged"]
        assert damaged == [{"part": "part-000001.jsonl", "why": "has 45 rows, but its shard has 50 rows"}]


def test_parts_that_are_taken_over_are_verified_too(job: JobFolder) -> None:
    job.model("if (x == 13).any(): raise ValueError('unlucky')")
    job.run()
    job.model()
    job.run("--retry-errors", "out", "-o", "again")
    assert verify(job, "again")[0]["verified"] == 6


def test_a_job_on_s3_is_verified(job: JobFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("obstore")
    with moto_server() as endpoint:
        make_bucket(endpoint, "bucket")
        job.environment = {**CREDENTIALS, "AWS_ENDPOINT_URL": endpoint, "TMPDIR": str(job.path)}
        for name, value in CREDENTIALS.items():
            monkeypatch.setenv(name, value)
        job.run("-o", "s3://bucket/out")
        assert verify(job, "s3://bucket/out/")[0]["verified"] == 6
        blobs = S3Blobs(S3Settings.from_environment({**CREDENTIALS, "AWS_ENDPOINT_URL": endpoint}))
        part = "s3://bucket/out/part-000004.parquet"
        data = bytearray(blobs.read(part) or b"")
        data[50] ^= 1
        blobs.write(part, bytes(data))
        assert [each["part"] for each in verify(job, "s3://bucket/out", expect=1)[0]["damaged"]] == [part[16:]]
