"""One look admits requests that come close together, and none that a look at it alone would have refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("uvloop", reason="the serve extra is not installed")

from twoshift.serve.host import Host, Visit

BYTE_S, LOOK_S = 1e-6, 0.1  # what a byte costs the device; it is asked to look ahead for a tenth of the time left


class Device:
    """Answers after so many seconds a byte, and says 0 where that is a small part of the time left."""

    def __init__(self) -> None:
        self.looks = 0

    def finish_in_s(self, size: int, requests: int, left_s: float, /) -> float:
        self.looks += 1
        needed_s = BYTE_S * size + 1e-5 * requests
        return 0.0 if needed_s < LOOK_S * left_s else needed_s


def host_with(cost_s: float) -> Host:
    host = Host()
    for _ in range(32):
        host.policy.before.observed(100, cost_s)
        host.policy.after.observed(100, cost_s)
    return host


def waits_alone(host: Host, size: int, left_s: float, now_s: float, device: Device) -> bool:
    ahead = host.policy.ahead_of(size)
    device_s = device.finish_in_s(size + ahead.waiting_bytes, ahead.waiting + 1, left_s)
    return host.policy.wait_s(size, left_s, now_s, device_s) is not None


requests = st.tuples(
    st.sampled_from((10, 100, 5_000, 100_000)),  # bytes
    st.floats(0.0005, 0.2),  # seconds left
    st.floats(0.0, 0.0008),  # until the next one
)


@given(cost_s=st.sampled_from((1e-5, 1e-4, 1e-3)), came=st.lists(requests, max_size=60))
def test_nobody_is_admitted_who_would_not_be_alone(cost_s: float, came: list[tuple[int, float, float]]) -> None:
    host, device, now_s = host_with(cost_s), Device(), 1_000.0
    for size, left_s, pause_s in came:
        refused_alone = waits_alone(host, size, left_s, now_s, Device())
        if host.wait_s(size, left_s, now_s, device) is None:
            assert not refused_alone
            Visit(host, size)
        now_s += pause_s


def test_requests_that_come_close_together_need_few_looks() -> None:
    host, device = host_with(1e-5), Device()
    for at in range(64):
        assert host.wait_s(100, 0.1, 1_000.0 + 1e-6 * at, device) is None
        Visit(host, 100)
    assert device.looks < 16


def test_where_not_all_of_the_next_are_surely_admitted_each_is_looked_at_once() -> None:
    host, device = host_with(1e-5), Device()
    for at in range(64):
        host.wait_s(5_000, 0.1, 1_000.0 + 1e-6 * at, device)
    assert device.looks <= 64 + 1


def test_requests_that_come_far_from_each_other_are_looked_at_once_each() -> None:
    host, device = host_with(1e-5), Device()
    for at in range(10):
        assert host.wait_s(100, 0.1, 1_000.0 + at, device) is None
    assert device.looks == 10
