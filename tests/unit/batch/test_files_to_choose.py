"""Files that somebody may choose as an input."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from twoshift.batch.job_looks import JobLooks
from twoshift.blobs.confined import ConfinedBlobs
from twoshift.blobs.local import LocalBlobs
from twoshift.blobs.roots import Roots


def test_links_out_of_a_root_and_others_folders_in_it_are_left_out_and_the_rest_is_listed(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside.jsonl"
    (root / "theirs").mkdir(parents=True)
    for file in (outside, root / "theirs" / "b.jsonl", root / "a.jsonl"):
        file.write_text("{}")
    (root / "link.jsonl").symlink_to(outside)
    blobs = ConfinedBlobs(LocalBlobs(), Roots((str(root),), (str(root / "theirs"),)))
    allowance = cast(Any, SimpleNamespace(blobs_for=lambda _: blobs))
    looks = JobLooks(cast(Any, None), {}, lambda _: allowance)
    assert looks.files_below([str(root)], "me") == [str(root / "a.jsonl")]
