"""`twoshift serve --grpc-port` where gRPC is not installed."""

from __future__ import annotations

import sys

import pytest

from twoshift.cli import main

for _name in ("httptools", "prometheus_client"):
    pytest.importorskip(_name, reason="the serve extra is not installed")


def test_a_port_for_grpc_without_its_package_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    assert main(["serve", "minilm", "--grpc-port", "0"]) == 2
    assert "--grpc-port 0 needs" in (said := capsys.readouterr().err)
    assert "pip install grpcio" in said
