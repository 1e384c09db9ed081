"""What the tests of faults share."""

from __future__ import annotations

from pathlib import Path

import pytest
from job_runs import JobFolder


@pytest.fixture
def job(tmp_path: Path) -> JobFolder:
    folder = JobFolder(tmp_path)
    folder.model()
    folder.parquet()
    return folder
