"""What the real command line makes of the words in a manifest, an image or a compose file."""

from __future__ import annotations

from typing import Any

import pytest

from twoshift.cli import main

__all__ = ["parsed"]


class _Parsed(BaseException):
    """Ends a command where its settings are known."""

    def __init__(self, settings: Any) -> None:
        self.settings = settings


def parsed(words: list[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """The settings that the real command line makes of a container's arguments."""

    def stop(settings: Any, *_rest: Any) -> None:
        raise _Parsed(settings)

    monkeypatch.setattr("twoshift.cli.serve._serve", stop)
    monkeypatch.setattr("twoshift.cli.run._run", stop)
    with pytest.raises(_Parsed) as caught:
        main(words)
    return caught.value.settings
