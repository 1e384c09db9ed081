"""Nothing is looked through while a language model is loaded, and afterwards all is as it was."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from twoshift.runtime.llm.collecting import no_collections, skip_what_is_there


@pytest.fixture
def _thawed() -> Iterator[None]:
    """The tests themselves are frozen."""
    gc.unfreeze()
    yield
    gc.freeze()


@pytest.mark.usefixtures("_thawed")
def test_what_is_there_is_skipped_until_the_end_also_where_loading_fails() -> None:
    seen = list[tuple[bool, bool]]()

    def load() -> None:
        with no_collections():
            skip_what_is_there()
            seen.append((gc.isenabled(), gc.get_freeze_count() > 0))
            raise ValueError("damaged")

    with pytest.raises(ValueError, match="damaged"):
        load()
    assert seen == [(False, True)]
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


@pytest.mark.usefixtures("_thawed")
def test_what_a_server_has_frozen_stays_so() -> None:
    gc.freeze()
    with no_collections():
        skip_what_is_there()
    assert gc.get_freeze_count() > 0


def test_who_collects_by_hand_goes_on_doing_so() -> None:
    gc.disable()
    try:
        with no_collections():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
