from __future__ import annotations

import sys

import pytest

from twoshift.errors import InvalidInput
from twoshift.runtime.devices import chosen_cuda


def test_a_gpu_without_pytorch_is_the_devices_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(InvalidInput, match="pip install") as refused:
        chosen_cuda("cuda")
    assert (refused.value.field, refused.value.value) == ("device", "cuda")
