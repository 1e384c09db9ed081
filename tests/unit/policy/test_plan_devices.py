from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twoshift.errors import InvalidInput
from twoshift.policy.plan import DEVICES, PRECISION_BYTES, Device, KvShape, call_work, plan_memory, plan_roofline


def test_seven_billion_parameters_in_fp16_are_14_gb() -> None:
    assert plan_memory(7e9, PRECISION_BYTES["fp16"]).weights_bytes == 14e9


def test_the_kv_cache_is_tokens_times_layers_times_heads_times_dim_times_two_times_bytes() -> None:
    made = plan_memory(7e9, 2, KvShape(32, 32, 128), sequence_tokens=2048, device_bytes=80e9, utilisation=0.9)
    assert made.kv_bytes_per_token == 32 * 32 * 128 * 2 * 2
    assert made.kv_bytes_per_sequence == 2048 * 524_288
    assert made.largest_batch == 54


def test_weights_that_do_not_fit_leave_no_batch() -> None:
    made = plan_memory(70e9, 2, KvShape(80, 8, 128), device_bytes=80e9)
    assert (made.fits, made.largest_batch) == (False, 0)


@given(
    params=st.floats(1e6, 1e12),
    tokens=st.integers(1, 100_000),
    device_bytes=st.floats(1e9, 1e12),
    utilisation=st.floats(0.1, 1),
)
def test_the_largest_batch_fits_and_one_more_does_not(
    params: float, tokens: int, device_bytes: float, utilisation: float
) -> None:
    made = plan_memory(params, 2, KvShape(32, 8, 128), tokens, device_bytes, utilisation)
    assert made.largest_batch is not None
    assert made.kv_bytes_per_sequence is not None
    if made.largest_batch:
        used = made.weights_bytes + made.largest_batch * made.kv_bytes_per_sequence
        assert used <= device_bytes * utilisation * (1 + 1e-9)
    more = made.weights_bytes + (made.largest_batch + 1) * made.kv_bytes_per_sequence
    assert more > device_bytes * utilisation * (1 - 1e-9)


@pytest.mark.parametrize(("name", "ridge"), [("h100", 295), ("h200", 206)])
def test_the_ridge_of_known_devices_is_that_of_their_data_sheets(name: str, ridge: float) -> None:
    assert DEVICES[name].ridge() == pytest.approx(ridge, abs=0.5)


def test_decoding_one_token_is_memory_bound_and_a_long_prompt_compute_bound() -> None:
    h100 = DEVICES["h100"]
    assert plan_roofline(h100, *call_work(7e9, 2, tokens=1)).bound == "memory"
    assert plan_roofline(h100, *call_work(7e9, 2, tokens=4096)).bound == "compute"


def test_a_token_of_a_7b_model_takes_at_least_the_time_to_read_its_weights() -> None:
    made = plan_roofline(DEVICES["h100"], *call_work(7e9, 2, tokens=1))
    assert made.seconds == pytest.approx(14e9 / 3.35e12)
    assert made.intensity == pytest.approx(1.0)


@given(st.floats(1, 1e5), st.floats(1e9, 1e14), st.floats(1e6, 1e18), st.floats(1e3, 1e15))
def test_no_call_beats_either_roof(tflops: float, bandwidth: float, flops: float, moved: float) -> None:
    made = plan_roofline(Device("any", tflops, bandwidth), flops, moved)
    assert made.attainable_tflops <= tflops * (1 + 1e-9)
    assert made.seconds >= moved / bandwidth * (1 - 1e-9)
    assert (made.bound == "compute") == (made.intensity >= made.ridge)


def test_eight_bit_arithmetic_counts_only_where_the_device_has_it() -> None:
    assert DEVICES["h100"].flops_per_s("fp8") == pytest.approx(1979e12)
    assert DEVICES["a100-80gb"].flops_per_s("fp8") == DEVICES["a100-80gb"].flops_per_s("bf16")
    assert DEVICES["a100-80gb"].flops_per_s("int8") == pytest.approx(624e12)
    assert DEVICES["t4"].flops_per_s("fp32") == pytest.approx(8.1e12)


def test_a_call_that_moves_nothing_is_refused() -> None:
    with pytest.raises(InvalidInput, match="moved_bytes"):
        plan_roofline(DEVICES["l4"], 1e9, 0)
