"""A server of a language model for a module of tests, and the clients of others for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from llm_service import LlmServer


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whoever needs a package of another's client: each takes seconds to import."""
    for item in items:
        if {"openai", "anthropic"} & {*getattr(item, "fixturenames", ())}:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlmServer]:
    from llm_service import llm_server  # packages of several extras come with it

    with pytest.MonkeyPatch.context() as patch, llm_server(tmp_path_factory.mktemp("home"), patch) as made:
        yield made


@pytest.fixture(scope="session")
def openai() -> Any:
    """The package."""
    return pytest.importorskip("openai")


@pytest.fixture(scope="session")
def anthropic() -> Any:
    """The package."""
    return pytest.importorskip("anthropic")


@pytest.fixture(scope="module")
def client(server: LlmServer, openai: Any) -> Iterator[Any]:
    """OpenAI's."""
    with openai.OpenAI(base_url=f"{server.address}/v1", api_key="none", max_retries=0) as made:
        yield made


@pytest.fixture(scope="module")
def claude(server: LlmServer, anthropic: Any) -> Iterator[Any]:
    """Anthropic's."""
    with anthropic.Anthropic(base_url=server.address, api_key="none", max_retries=0) as made:
        yield made
