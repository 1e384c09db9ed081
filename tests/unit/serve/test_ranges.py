"""Ranges and conditions of a download."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twoshift.serve.http.messages import Request
from twoshift.serve.http.ranges import is_known, wanted_range


def request(**headers: str) -> Request:
    given_headers = {name.replace("_", "-").encode(): value.encode("latin-1") for name, value in headers.items()}
    return Request("GET", b"/", given_headers, b"", 0.0)


@pytest.mark.parametrize(
    ("range_", "found"),
    [
        ("bytes=0-0", (0, 1)),
        ("bytes=2-", (2, 10)),
        ("bytes=-3", (7, 10)),
        ("bytes=-30", (0, 10)),
        ("bytes=4-99", (4, 10)),
        ("bytes= 4 - 5", (4, 6)),
        ("bytes=10-", (0, 0)),
        ("bytes=-0", (10, 10)),
        ("bytes=5-4", None),
        ("bytes=-", None),
        ("bytes=1-2,4-5", None),
        ("items=1-2", None),
        ("bytes=a-b", None),
    ],
)
def test_a_range_is_understood_or_passed_over(range_: str, found: tuple[int, int] | None) -> None:
    assert wanted_range(request(range=range_), '"e"', 10) == found


@given(st.text(st.characters(codec="latin-1"), max_size=40), st.integers(0, 100))
def test_whatever_is_asked_for_lies_within_the_file(range_: str, size: int) -> None:
    found = wanted_range(request(range=f"bytes={range_}"), '"e"', size)
    assert found is None or 0 <= found[0] <= found[1] <= size


def test_a_range_of_another_version_is_passed_over() -> None:
    assert wanted_range(request(range="bytes=0-1", if_range='"e"'), '"e"', 10) == (0, 2)
    assert wanted_range(request(range="bytes=0-1", if_range='"f"'), '"e"', 10) is None


@pytest.mark.parametrize(
    ("given_etags", "known"),
    [('"e"', True), ('"d", "e"', True), ('W/"e"', True), ("*", True), ('"d"', False), ("e", False)],
)
def test_what_the_client_has_is_known(given_etags: str, known: bool) -> None:
    assert is_known(request(if_none_match=given_etags), '"e"') is known
    assert not is_known(request(), '"e"')
