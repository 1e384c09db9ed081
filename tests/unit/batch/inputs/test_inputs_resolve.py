"""From what the user calls the input to files."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from input_files import blobs_for

from twoshift.batch.inputs import InputFile, resolve
from twoshift.blobs.confined import ConfinedBlobs
from twoshift.blobs.local import LocalBlobs
from twoshift.blobs.roots import Roots
from twoshift.errors import InvalidInput
from twoshift.ports import Blob

TREE = [
    "b.parquet",
    "a.csv.gz",
    "sub/c.JSONL",
    "sub/deep/d.arrow",
    "notes.txt",
    "_SUCCESS",
    ".e.csv",
    "_old/f.csv",
    "sub/_g.csv",
]


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in TREE:
        (tmp_path / "docs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "docs" / name).write_bytes(b"x")
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "notes.txt").write_bytes(b"x")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names(*inputs: str, kind: str | None = None) -> list[str]:
    return [file.location for file in resolve(inputs, blobs_for, kind)]


def test_a_folder_is_every_known_file_below_it_in_order(tree: Path) -> None:
    expected = ["docs/a.csv.gz", "docs/b.parquet", "docs/sub/c.JSONL", "docs/sub/deep/d.arrow"]
    assert names("docs") == names("docs/") == expected
    assert names(str(tree / "docs")) == [str(tree / name) for name in expected]


def test_a_link_that_leads_nowhere_is_left_out_where_a_file_of_its_name_would_be(tree: Path) -> None:
    before = names("docs")
    (tree / "docs" / ".#b.parquet").symlink_to("user@host.1234")  # as an editor leaves one
    (tree / "docs" / "sub" / "notes.txt").symlink_to("nowhere")
    assert names("docs") == before
    (tree / "docs" / "sub" / "z.csv").symlink_to("nowhere")  # these rows would be lost in silence
    for given in ("docs", "docs/**/*.csv"):
        with pytest.raises(InvalidInput, match=r"docs/sub/z\.csv.*this path is a broken symbolic link"):
            names(given)


def test_inputs_keep_their_order(tree: Path) -> None:
    assert names("docs/sub", "docs/b.parquet") == ["docs/sub/c.JSONL", "docs/sub/deep/d.arrow", "docs/b.parquet"]


def test_patterns_are_as_in_a_shell(tree: Path) -> None:
    assert names("docs/*.parquet") == ["docs/b.parquet"]
    assert names("docs/**/*.arrow") == ["docs/sub/deep/d.arrow"]
    assert names("docs/[ab].*") == ["docs/a.csv.gz", "docs/b.parquet"]
    assert names("docs/_old/*.csv") == ["docs/_old/f.csv"]
    assert names("docs/_*/*.csv") == ["docs/_old/f.csv"]


def test_a_name_with_a_wildcard_in_it_is_that_file(tree: Path) -> None:
    (tree / "docs/x[1].csv").write_bytes(b"x")
    assert names("docs/x[1].csv") == ["docs/x[1].csv"]


def test_a_list_names_locations(tree: Path) -> None:
    (tree / "list.txt").write_text("# the input\ndocs/b.parquet\r\n\ndocs/sub\n")
    assert names("@list.txt") == ["docs/b.parquet", "docs/sub/c.JSONL", "docs/sub/deep/d.arrow"]
    (tree / "empty.txt").write_text("\n")
    for given in ("@empty.txt", "@none.txt"):
        with pytest.raises(InvalidInput, match="@ followed by a"):
            names(given)


def test_formats_are_told_by_suffix_or_by_the_option(tree: Path) -> None:
    kinds = {file.location: (file.format, file.compression) for file in resolve(["docs"], blobs_for, None)}
    assert kinds["docs/a.csv.gz"] == ("csv", "gzip")
    assert kinds["docs/sub/c.JSONL"] == ("jsonl", None)
    (file,) = resolve(["docs/notes.txt"], blobs_for, "jsonl")
    assert (file.format, file.compression) == ("jsonl", None)
    (file,) = resolve(["docs/a.csv.gz"], blobs_for, "tsv")
    assert (file.format, file.compression) == ("tsv", "gzip")
    assert "docs/notes.txt" in names("docs", kind="jsonl")


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        (["docs/notes.txt"], None, "or --input-format with one of parquet"),
        (["docs/b.parquet"], "xml", "parquet, jsonl"),
        (["docs/none.csv"], None, "docs/none.csv"),
        (["odd"], None, r"odd.*\.arrow; other suffixes need --input-format\)"),
        (["docs/*.xml"], None, "matches at least one file"),
        ([], None, "at least one"),
        (["docs", "docs/b.parquet"], None, "each input file once; both 'docs' and"),
        (["docs/b.parquet", "./docs/../docs/b.parquet"], None, "each input file once"),
    ],
)
def test_what_cannot_be_used_is_named(tree: Path, given: list[str], kind: str | None, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        names(*given, kind=kind)


class BucketBlobs(LocalBlobs):
    def stat(self, location: str) -> Blob | None:
        return next((blob for blob in self.list("s3://") if blob.location == location), None)

    def list(self, prefix: str) -> list[Blob]:
        every = [Blob(f"s3://bucket/{name}", 1, "etag") for name in TREE]
        return [blob for blob in every if blob.location.startswith(prefix)]


def test_buckets_have_folders_and_patterns_too() -> None:
    def found(given: str) -> list[str]:
        return [file.location.removeprefix("s3://bucket/") for file in resolve([given], lambda _: BucketBlobs(), None)]

    assert found("s3://bucket") == ["a.csv.gz", "b.parquet", "sub/c.JSONL", "sub/deep/d.arrow"]
    assert found("s3://bucket/sub/") == ["sub/c.JSONL", "sub/deep/d.arrow"]
    assert found("s3://bucket/b.parquet") == ["b.parquet"]
    assert found("s3://bucket/*.parquet") == ["b.parquet"]
    assert found("s3://bucket/**/*.arrow") == ["sub/deep/d.arrow"]
    assert found("s3://bucket/**/*.csv.gz") == ["a.csv.gz"]
    assert found("s3://bucket/s?b/[!x].*") == ["sub/c.JSONL"]
    assert found("s3://bucket/_old/*.csv") == ["_old/f.csv"]
    with pytest.raises(InvalidInput):
        found("s3://bucket/*.csv")


def test_a_file_survives_the_plan() -> None:
    file = InputFile("a.csv", 10, "etag", "csv", "gzip")
    assert msgspec.json.decode(msgspec.json.encode(file), type=InputFile) == file


def test_a_folder_whose_name_looks_like_a_pattern_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "br[1]").mkdir()
    (tmp_path / "br[1]" / "a.jsonl").write_text("{}\n")
    (file,) = resolve([str(tmp_path / "br[1]")], lambda _: LocalBlobs())
    assert file.location.endswith("br[1]/a.jsonl")


def test_a_name_that_is_not_utf_8_is_refused_with_the_name(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"a\xff.jsonl")).write_text("{}\n")
    with pytest.raises(InvalidInput, match="names are valid UTF-8"):
        resolve([str(tmp_path)], lambda _: LocalBlobs())


@pytest.fixture
def nest(tmp_path: Path) -> Path:
    """A folder with another tenant's in it."""
    (tmp_path / "nest" / "c").mkdir(parents=True)
    return tmp_path / "nest"


def of_b(nest: Path, given: str) -> list[str] | str:
    """What a tenant that has the folder, but not what is in `c`, is told."""
    blobs = ConfinedBlobs(LocalBlobs(), Roots((str(nest),), (str(nest / "c"),)))
    try:
        return [file.location for file in resolve([given], lambda _: blobs)]
    except InvalidInput as error:
        return str(error)


PATTERNS = ["", "/**/*.jsonl", "/*/c-s*.jsonl", "/*/q*.jsonl", "/*", "/**"]


def test_files_of_another_tenant_are_as_if_they_were_not_there(nest: Path) -> None:
    told = [of_b(nest, f"{nest}{each}") for each in PATTERNS]
    (nest / "c" / "deep").mkdir()
    for name in ("c/c-secret.jsonl", "c/deep/d.jsonl"):
        (nest / name).write_text("{}")
    (nest / "c" / "c-sly.jsonl").symlink_to("nowhere")
    assert [of_b(nest, f"{nest}{each}") for each in PATTERNS] == told
    assert not any("secret" in each or "/c/" in each for each in told)
    (nest / "own.jsonl").write_text("{}")
    for each in ("", "/**/*.jsonl", "/*"):
        assert of_b(nest, f"{nest}{each}") == [f"{nest}/own.jsonl"]


def test_a_link_to_another_tenant_is_refused_by_its_own_name(nest: Path) -> None:
    (nest / "own.jsonl").write_text("{}")
    (nest / "way").symlink_to(nest / "c")
    told = [of_b(nest, f"{nest}{each}") for each in ("", "/w*/c-s*.jsonl")]
    assert f"/{nest.name}/way' cannot be used" in told[0]  # a long value is shown by its ends
    (nest / "c" / "c-secret.jsonl").write_text("{}")
    assert [of_b(nest, f"{nest}{each}") for each in ("", "/w*/c-s*.jsonl")] == told
