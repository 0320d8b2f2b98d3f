"""Splits of serving tools: where their rules put each layer, by hand."""

import pytest
from draws import draw

from placegap.instances import Device, Instance, Makespan, Op
from placegap.solvers import run_method
from placegap.solvers.placers.layer_splits import exo_split, sglang_split, vllm_split


def row_of_layers(num_layers: int, *memory: int, host: int | None = None) -> Instance:
    """An embedding, layers and a head of a byte each, on GPUs and perhaps a host."""
    names = ["embed", *(f"layers.{n}" for n in range(num_layers)), "head"]
    ops = [Op(name=x, module=x, time_ns={"gpu": 1, "cpu": 9}, resident_bytes=1) for x in names]
    devices = [Device(name=f"g{k}", kind="gpu", memory_bytes=m) for k, m in enumerate(memory)]
    if host is not None:
        devices.append(Device(name="host", kind="cpu", memory_bytes=host, is_host=True))
    return draw.row(ops, devices)


def homes(instance: Instance, method: str) -> list[int] | None:
    plan = run_method(instance, Makespan(), method).plan
    return None if plan is None else plan.devices.tolist()


def test_vllm_spreads_the_remainder_over_the_middle_and_sglang_over_the_end() -> None:
    # vLLM's docstring: 0 < x <= pp_size - 2 remaining layers go to the middle partitions
    instance = row_of_layers(9, *[99] * 4)
    assert vllm_split(instance, 9)[1:-1] == [0, 0, 1, 1, 2, 2, 2, 3, 3]
    assert sglang_split(instance, 9)[1:-1] == [0, 0, 1, 1, 2, 2, 3, 3, 3]


def test_exo_gives_the_largest_device_the_first_layers_or_equal_shares() -> None:
    # shares 3/4 and 1/4 of 8 layers
    assert exo_split(row_of_layers(8, 10, 30), 8) == [1, 1, 1, 1, 1, 1, 1, 0, 0, 0]
    # of devices without memory:
    # half of 4 layers each; of equal devices the last name comes first
    assert exo_split(row_of_layers(4, 0, 0), 4) == [1, 1, 1, 0, 0, 0]


def test_llama_cpp_leaves_the_first_layers_and_the_embedding_on_the_host() -> None:
    # 5 bytes hold 5 of the 6 layers: -ngl 5, with the head on the host as well; shares 2/5 and 3/5
    # of them are 2 and 3, as a layer at a share goes to the next GPU
    instance = row_of_layers(6, 2, 3, host=99)
    assert homes(instance, "llama-cpp") == [2, 2, 0, 0, 1, 1, 1, 2]
    # all 6 and the head fit 7 bytes; shares 3/7 and 4/7
    assert homes(row_of_layers(6, 3, 4, host=99), "llama-cpp") == [2, 0, 0, 0, 1, 1, 1, 1]


@pytest.mark.parametrize("method", ["vllm-even", "sglang-even"])
def test_a_rule_that_looks_at_no_memory_has_no_plan_where_it_overfills_a_device(
    method: str,
) -> None:
    result = run_method(row_of_layers(6, 3, 99), Makespan(), method)
    assert result.plan is None
    assert "g0" in result.message
