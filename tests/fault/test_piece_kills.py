"""Jobs in pieces whose processes are killed: nothing is lost or there twice, and the end is written once."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from job_runs import JobFolder
from programs import python_path
from s3_server import CREDENTIALS, make_bucket, moto_server

pytestmark = pytest.mark.slow
KILLER = str(Path(__file__).parent / "killer")
IS_LONG = int(os.environ.get("TWOSHIFT_FAULTS", "12")) > 12
PIECES, KILLS, SEEDS = (16, 24, 5) if IS_LONG else (6, 6, 1)


def _killed(job: JobFolder, inputs: str, output: str, seed: int, **environment: str) -> int:
    words = [sys.executable, f"{KILLER}/pieces.py", inputs, output, str(PIECES), str(KILLS), str(seed)]
    env = {**os.environ, "PYTHONPATH": python_path(KILLER, str(Path(__file__).parent)), **environment}
    done = subprocess.run(words, cwd=job.path, env=env, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_processes_on_one_folder_lose_nothing(job: JobFolder, seed: int) -> None:
    job.model("time.sleep(0.01 * len(x))")
    job.parquet(files=4, rows=200)
    assert _killed(job, "docs", "out", seed) >= 1
    job.check_squares(800)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_processes_on_one_bucket_lose_nothing_and_write_each_object_once(job: JobFolder, seed: int) -> None:
    job.model("time.sleep(0.01 * len(x))")
    job.parquet(files=4, rows=200)
    with moto_server() as endpoint:
        make_bucket(endpoint, "bucket")
        client = _client(endpoint)  # so that what is replaced or deleted is seen:
        client.put_bucket_versioning(Bucket="bucket", VersioningConfiguration={"Status": "Enabled"})
        settings = {**CREDENTIALS, "AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true"}
        assert _killed(job, "docs", "s3://bucket/out", seed, **settings) >= 1
        versions = _versions(client)
        parts = sorted(key for key in versions if re.fullmatch(r"out/part-\d+\.parquet", key))
        tables = [
            pq.read_table(io.BytesIO(client.get_object(Bucket="bucket", Key=key)["Body"].read())) for key in parts
        ]
    assert [row for table in tables for row in table["id"].to_pylist()] == list(range(800))
    assert [row for table in tables for row in table["squared"].to_pylist()] == [float(k) ** 2 for k in range(800)]
    once = [*parts, "out/_SUCCESS", "out/_twoshift/plan.json"]
    assert {key: versions.get(key) for key in once} == dict.fromkeys(once, 1)


def _client(endpoint: str) -> Any:
    import boto3  # moto brings it

    key, secret, region = CREDENTIALS.values()
    return boto3.client(
        "s3", endpoint_url=endpoint, region_name=region, aws_access_key_id=key, aws_secret_access_key=secret
    )


def _versions(client: Any) -> Counter[str]:
    """How often each object was written or deleted."""
    found = [page.get(kind, []) for page in _pages(client) for kind in ("Versions", "DeleteMarkers")]
    return Counter(each["Key"] for entries in found for each in entries)


def _pages(client: Any) -> Iterator[dict[str, Any]]:
    return client.get_paginator("list_object_versions").paginate(Bucket="bucket", Prefix="out/")
