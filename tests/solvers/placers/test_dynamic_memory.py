"""Baechi's dynamic memory in m-ETF and m-SCT: what is held, for how long, and what is refused."""

from __future__ import annotations

import pytest
from draws import draw
from references.placers import pressed_instance, with_room

from placegap.instances import Device, Edge, Instance, Makespan, Op, evaluate
from placegap.solvers import METHODS, Task, run_method
from placegap.solvers.placers.baechi import MemoryParams, footprint_of, m_etf
from placegap.solvers.placers.m_sct import SctParams, m_sct

SEMANTICS = Makespan(channels="half_duplex", transfers="per_tensor")
DYNAMIC = MemoryParams(memory="dynamic")


def line(
    sizes: list[int], memory: list[int], *, scratch: list[int] | None = None, resident: int = 0
) -> Instance:
    """A chain; each op but the last hands a tensor of the given size to the next."""
    n = len(sizes) + 1
    ops = tuple(
        Op(
            name=f"op{i}",
            time_ns={"gpu": 1},
            resident_bytes=resident,
            workspace_bytes=scratch[i] if scratch else 0,
        )
        for i in range(n)
    )
    edges = [
        Edge(producer=f"op{i}", consumer=f"op{i + 1}", bytes=size) for i, size in enumerate(sizes)
    ]
    devices = draw.devices(["gpu"] * len(memory), memory.__getitem__)
    return draw.instance_of("line", ops, edges, devices, draw.fast_links(devices))


def devices_of(instance: Instance) -> list[int] | None:
    plan = m_etf(Task(instance, SEMANTICS), DYNAMIC).plan
    return None if plan is None else [int(k) for k in plan.devices]


def test_outputs_are_freed_when_the_last_consumer_is_committed() -> None:
    # 10 bytes each, two at a time (what op i reads and what it writes): 20 bytes suffice, 19 do not
    instance = line([10, 10, 10], [20])
    assert footprint_of(instance).outputs.tolist() == [10, 10, 10, 0]
    assert devices_of(instance) == [0, 0, 0, 0]
    assert devices_of(line([10, 10, 10], [19])) is None


def test_a_tensor_counts_once_for_all_its_consumers() -> None:
    ops = tuple(Op(name=name, time_ns={"gpu": 1}) for name in "abc")
    edges = [Edge(producer="a", consumer=name, bytes=7, tensor="out") for name in "bc"]
    devices = [Device(name="d", kind="gpu", memory_bytes=7)]
    instance = draw.instance_of("fork", ops, edges, devices)
    assert footprint_of(instance).outputs.tolist() == [7, 0, 0]
    assert devices_of(instance) == [0, 0, 0]


def test_scratch_memory_is_free_again_at_once() -> None:
    # every op needs 5 bytes of scratch memory for itself: never more than 5 at a time
    assert devices_of(line([0, 0], [5], scratch=[5, 5, 5])) == [0, 0, 0]
    # op1 needs 5 beside the 4 that op0 left and its own 4: on d0 only 12 would do
    assert devices_of(line([4, 4], [12, 100], scratch=[0, 5, 0]))[:2] == [0, 1]  # type: ignore[index]
    assert devices_of(line([4, 4], [13, 100], scratch=[0, 5, 0])) == [0, 0, 0]


def test_a_device_that_was_full_is_tried_again() -> None:
    # a and b want d0; b is refused while a's output (6) is there, and fits when c has read it
    ops = [Op(name=name, time_ns={"gpu": 2}) for name in "abcd"]
    edges = [Edge(producer=a, consumer=b, bytes=6) for a, b in ("ac", "bd")]
    devices = [Device(name="d0", kind="gpu", memory_bytes=6)]
    instance = draw.instance_of("four", ops, edges, devices)
    plan = m_etf(Task(instance, SEMANTICS), DYNAMIC).plan
    assert plan is not None
    assert plan.device_order == ((0, 2, 1, 3),)


def test_what_does_not_fit_names_what_it_lacks() -> None:
    result = run_method(line([10, 10], [15]), SEMANTICS, "m-etf", {"memory": "dynamic"})
    assert (result.status, result.plan) == ("no_plan", None)
    assert result.message == (
        "memory: op 'op1' needs 10 bytes for its outputs and scratch memory beside the resident"
        " ones, and fits nowhere then; bytes left: 'd0' 5"
    )


@pytest.mark.parametrize("name", ["m-etf", "m-sct"])
def test_a_plan_under_dynamic_memory_fits_the_resident_bytes(name: str) -> None:
    found = 0
    for seed in range(8):
        instance = with_room(pressed_instance(seed, num_ops=20, num_devices=3), 3)
        result = run_method(instance, SEMANTICS, name, {"memory": "dynamic"})
        if result.plan is None:
            assert result.message.startswith("memory: ")
            continue
        assert evaluate(instance, result.plan, SEMANTICS).feasible
        found += 1
    assert found >= 1


def test_sizes_beyond_64_bits_are_refused() -> None:
    instance = line([2**61], [1], scratch=[2**61, 0], resident=1)
    for name, params in (("m-etf", DYNAMIC), ("m-sct", SctParams(memory="dynamic"))):
        reason = METHODS[name].applies(Task(instance, SEMANTICS), params)
        assert reason is not None
        assert "2**62" in reason
    assert m_sct(Task(line([1], [9]), SEMANTICS), SctParams(memory="dynamic")).plan is not None
