from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from twoshift.policy.preparing import PreparersPolicy, shared_out

SECONDS = st.floats(1e-7, 10.0)


def test_a_gpu_has_as_many_as_it_needs() -> None:
    policy = PreparersPolicy.on_machine(cores=16, on_cpu=False)
    assert policy.wanted(1 / 24_000, 150e-6) == 5  # 3.6 cores, each busy for 80 %
    assert policy.wanted(1 / 130_000, 150e-6) == 14  # more than there are: two are left to the worker


def test_a_slow_model_on_a_gpu_is_fed_by_threads() -> None:
    assert PreparersPolicy.on_machine(cores=16, on_cpu=False).wanted(1 / 500, 150e-6) == 0


def test_a_model_on_the_cores_themselves_has_none() -> None:
    policy = PreparersPolicy.on_machine(cores=64, on_cpu=True)
    assert policy.most == 0
    assert policy.wanted(1e-6, 1e-3) == 0


def test_what_the_user_asks_for_is_done_as_far_as_there_are_cores() -> None:
    assert PreparersPolicy.on_machine(cores=8, on_cpu=True, asked=3).wanted(1.0, 1e-6) == 3
    assert PreparersPolicy.on_machine(cores=8, on_cpu=False, asked=0).wanted(1e-6, 1e-3) == 0
    assert PreparersPolicy.on_machine(cores=2, on_cpu=False, asked=100).most == 2


@given(st.integers(1, 256), SECONDS, SECONDS, SECONDS)
def test_there_are_never_more_than_cores_and_costlier_rows_have_no_fewer(
    cores: int, device_s: float, host_s: float, more_s: float
) -> None:
    policy = PreparersPolicy.on_machine(cores, on_cpu=False)
    wanted = policy.wanted(device_s, host_s)
    assert 0 <= wanted <= policy.most <= cores
    assert policy.wanted(device_s, host_s + more_s) >= wanted
    assert policy.wanted(device_s + more_s, host_s) <= wanted


def test_what_is_asked_for_on_a_cluster_is_so_many_in_all_whatever_is_free() -> None:
    policies = PreparersPolicy.on_cluster(free_cpus=1, workers=3, on_cpu=True, asked=5)
    assert [policy.wanted(1.0, 1e-6) for policy in policies] == [2, 2, 1]
    assert [policy.most for policy in PreparersPolicy.on_cluster(64, 2, on_cpu=False, asked=0)] == [0, 0]


def test_gpus_of_a_cluster_share_the_cpus_that_their_workers_leave_and_take_what_they_need() -> None:
    first, second = PreparersPolicy.on_cluster(free_cpus=25, workers=2, on_cpu=False)
    assert (first.most, second.most) == (13, 12)
    assert second.wanted(1 / 24_000, 150e-6) == 5
    assert second.wanted(1 / 500, 150e-6) == 0


def test_models_on_the_cpus_of_a_cluster_have_none() -> None:
    assert [policy.most for policy in PreparersPolicy.on_cluster(free_cpus=64, workers=2, on_cpu=True)] == [0, 0]


@given(st.integers(0, 2000), st.integers(1, 200))
def test_shares_are_alike_and_all_is_shared_out(total: int, workers: int) -> None:
    shares = shared_out(total, workers)
    assert sum(shares) == total
    assert max(shares) - min(shares) <= 1
