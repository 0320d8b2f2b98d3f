"""m-TOPO, m-ETF and Baechi's dynamic memory: worked examples."""

from collections.abc import Sequence

import numpy as np
import pytest
from draws import draw

from placegap.instances import Device, Edge, Instance, Makespan, MaxLoad, Op, Semantics
from placegap.instances.problem import Plan
from placegap.solvers import METHODS, Task, run_method
from placegap.solvers.placers.baechi import MemoryParams, TopoParams, footprint_of, m_etf, m_topo
from placegap.solvers.placers.earliest_start import (
    earliest_start_first,
    no_favourites,
    no_footprint,
)
from placegap.solvers.placers.list_problem import admission_of, problem_of
from placegap.solvers.placers.m_sct import SctParams, m_sct

# ----------------------------------------------------------------------------------------- m-TOPO


ANY = MaxLoad(plans="any")
CHAIN = MaxLoad(plans="chain")


def line(
    sizes: Sequence[int],
    memory: Sequence[int | None],
    colocation: Sequence[str | None] = (),
    kinds: str = "",
    runs: Sequence[str] = (),
) -> Instance:
    """A chain of ops; `kinds` are the devices' kinds, `runs` the kinds that each op knows."""
    kinds = kinds or "g" * len(memory)
    ops = tuple(
        Op(
            name=f"op{i}",
            time_ns=dict.fromkeys(runs[i] if runs else set(kinds), 1),
            resident_bytes=size,
            colocation=colocation[i] if colocation else None,
        )
        for i, size in enumerate(sizes)
    )
    return draw.row(ops, draw.devices(kinds, memory.__getitem__), bytes=1)


def devices_of(instance: Instance, semantics: Semantics = ANY) -> list[int] | None:
    plan: Plan | None = m_topo(Task(instance, semantics)).plan
    return None if plan is None else plan.devices.tolist()


@pytest.mark.parametrize("semantics", [ANY, CHAIN])
def test_each_device_takes_its_share_and_one_largest_op_within_memory(semantics: Semantics) -> None:
    # cap = floor(11 / 3) + 3 = 6: 2 + 2 + 2, then 1 + 3 (+ 1 more would be 5, it fits)
    instance = line([2, 2, 2, 1, 3, 1], [None, None, None])
    assert devices_of(instance, semantics) == [0, 0, 0, 1, 1, 1]
    # cap = floor(8 / 2) + 2 = 6, but d0 holds 3; op2 would fit there, but op1 did not
    assert devices_of(line([2, 2, 1, 2, 1], [3, None]), semantics) == [0, 1, 1, 1, 1]


def test_what_does_not_fit_behind_is_no_plan() -> None:
    # d0 holds 3: op0; op1 goes to d1 (4), op2 (1) too; op3 (2) does not fit, d0 is not asked again
    outcome = m_topo(Task(line([1, 3, 1, 2], [3, 4]), ANY))
    assert outcome.plan is None
    assert outcome.message == (
        "memory: op 'op3' with all that must share its device (2 bytes) fits on no device that"
        " comes next and can run it; bytes that each may take: 'd0' 3, 'd1' 4"
    )


def test_a_group_goes_whole_where_its_first_op_goes() -> None:
    # groups: {op0, op3} 4 bytes, op1 4, op2 2; cap = floor(10 / 2) + 4 = 9 but d0 holds 5
    instance = line([2, 4, 2, 2], [5, None], ["pair", None, None, "pair"])
    assert devices_of(instance) == [0, 1, 1, 0]


def test_for_a_chain_a_group_takes_along_what_lies_between_its_ops() -> None:
    # op0 .. op3 are one block of 10 bytes, which d0 (5 bytes) cannot hold
    instance = line([2, 4, 2, 2], [5, None], ["pair", None, None, "pair"])
    assert devices_of(instance, CHAIN) == [1, 1, 1, 1]


def test_an_op_that_the_current_device_cannot_run_leaves_the_filling_there() -> None:
    instance = line([1, 1, 1, 1], [None] * 3, kinds="ccg", runs=("cg", "g", "cg", "cg"))
    # cap = floor(4 / 3) + 1 = 2: d0 takes op0 and, when op1 is on d2, op2; then d1 takes op3
    assert devices_of(instance) == [0, 2, 0, 1]
    # in a chain nothing returns from d2, which is full with op1 and op2
    assert devices_of(instance, CHAIN) is None


def test_with_two_levels_a_chain_does_not_come_back_to_a_server() -> None:
    # 6 ops of 1 byte, 2 bytes each: in the listed order of devices servers would go s0, s1, s0
    drawn = line([1] * 6, [2, 2, 2])
    instance = draw.with_devices(drawn, server=["s0", "s1", "s0"])
    two_levels = MaxLoad(plans="chain", levels=2)
    assert devices_of(instance, two_levels) == [0, 0, 2, 2, 1, 1]
    assert devices_of(instance, CHAIN) == [0, 0, 1, 1, 2, 2]


def test_where_a_groups_first_op_alone_counts_a_device_may_be_overfilled() -> None:
    # op0 and op2 share a device. Whole: units of 1 + 3, 1 and 1 bytes, cap = floor(6 / 2) + 4 = 7,
    # all on d0 with its 7. First op: units of 1, 1 and 1, cap = floor(3 / 2) + 1 = 2: two on d0,
    # which then holds 1 + 3 + 1, and the last on d1.
    instance = line([1, 1, 3, 1], [7, 7], colocation=["x", None, "x", None])
    assert devices_of(instance) == [0, 0, 0, 0]
    plan = m_topo(Task(instance, ANY), TopoParams(group_bytes="first")).plan
    assert plan.devices.tolist() == [0, 0, 0, 1]


# ------------------------------------------------------------------------------------------ m-ETF


def booked_starts(ops: dict[str, str], edges: Sequence[Edge]) -> list[int]:
    """Planned starts of ops of 2 ns, each on the only device that runs it; 1 byte takes 1 ns."""
    devices = [Device(name=name, kind=name) for name in sorted(set(ops.values()))]
    placed = [Op(name=op, time_ns={where: 2}) for op, where in ops.items()]
    instance = draw.instance_of("booked", placed, edges, devices, draw.fast_links(devices))
    problem, admission = problem_of(instance.arrays), admission_of(instance.arrays)
    order = np.array(instance.arrays.index.topological_order)
    nothing, alone = no_footprint(instance), no_favourites(instance)
    times = earliest_start_first(problem, admission, nothing, order, True, alone)
    starts: list[int] = times.start_ns.tolist()
    return starts


def test_a_device_sends_one_tensor_after_the_other() -> None:
    # a ends at 2; its tensors of 4 leave from 2 to 6 and from 6 to 10
    edges = [Edge(producer="a", consumer=x, bytes=4) for x in "bc"]
    assert booked_starts({"a": "d0", "b": "d1", "c": "d2"}, edges) == [0, 6, 10]


def test_a_tensor_goes_once_to_each_device() -> None:
    # b and c on d1 share what arrives at 6; c waits for b only
    edges = [Edge(producer="a", consumer=x, bytes=4, tensor="out") for x in "bc"]
    assert booked_starts({"a": "d0", "b": "d1", "c": "d1"}, edges) == [0, 6, 8]


def test_sending_and_receiving_share_a_clock() -> None:
    # d1 receives for c from 2 to 6; b, which d1 ran from 0 to 2, is sent to d2 only then: 6 to 10
    edges = [Edge(producer=a, consumer=b, bytes=4) for a, b in ("ac", "bd")]
    starts = booked_starts({"a": "d0", "b": "d1", "c": "d1", "d": "d2"}, edges)
    assert starts == [0, 0, 6, 10]


def test_a_receipt_may_lag_behind_its_send() -> None:
    # Two clocks: d0 sends from 2 to 6, d1 from 2 to 6, but d2 receives from 2 to 6, then 6 to 10
    edges = [Edge(producer=x, consumer="c", bytes=4) for x in "ab"]
    assert booked_starts({"a": "d0", "b": "d1", "c": "d2"}, edges) == [0, 0, 10]


# --------------------------------------------------------------------------------- dynamic memory


SEMANTICS = Makespan(channels="half_duplex", transfers="per_tensor")
DYNAMIC = MemoryParams(memory="dynamic")


def tensors_in_a_row(
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


def devices_by_m_etf(instance: Instance) -> list[int] | None:
    plan = m_etf(Task(instance, SEMANTICS), DYNAMIC).plan
    return None if plan is None else [int(k) for k in plan.devices]


def test_outputs_are_freed_when_the_last_consumer_is_committed() -> None:
    # 10 bytes each, two at a time (what op i reads and what it writes): 20 bytes suffice, 19 do not
    instance = tensors_in_a_row([10, 10, 10], [20])
    assert footprint_of(instance).outputs.tolist() == [10, 10, 10, 0]
    assert devices_by_m_etf(instance) == [0, 0, 0, 0]
    assert devices_by_m_etf(tensors_in_a_row([10, 10, 10], [19])) is None


def test_a_tensor_counts_once_for_all_its_consumers() -> None:
    ops = tuple(Op(name=name, time_ns={"gpu": 1}) for name in "abc")
    edges = [Edge(producer="a", consumer=name, bytes=7, tensor="out") for name in "bc"]
    devices = [Device(name="d", kind="gpu", memory_bytes=7)]
    instance = draw.instance_of("fork", ops, edges, devices)
    assert footprint_of(instance).outputs.tolist() == [7, 0, 0]
    assert devices_by_m_etf(instance) == [0, 0, 0]


def test_scratch_memory_is_free_again_at_once() -> None:
    # every op needs 5 bytes of scratch memory for itself: never more than 5 at a time
    assert devices_by_m_etf(tensors_in_a_row([0, 0], [5], scratch=[5, 5, 5])) == [0, 0, 0]
    # op1 needs 5 beside the 4 that op0 left and its own 4: on d0 only 12 would do
    assert devices_by_m_etf(tensors_in_a_row([4, 4], [12, 100], scratch=[0, 5, 0]))[:2] == [0, 1]  # type: ignore[index]
    assert devices_by_m_etf(tensors_in_a_row([4, 4], [13, 100], scratch=[0, 5, 0])) == [0, 0, 0]


def test_a_device_that_was_full_is_tried_again() -> None:
    # a and b want d0; b is refused while a's output (6) is there, and fits when c has read it
    ops = [Op(name=name, time_ns={"gpu": 2}) for name in "abcd"]
    edges = [Edge(producer=a, consumer=b, bytes=6) for a, b in ("ac", "bd")]
    devices = [Device(name="d0", kind="gpu", memory_bytes=6)]
    instance = draw.instance_of("four", ops, edges, devices)
    plan = m_etf(Task(instance, SEMANTICS), DYNAMIC).plan
    assert plan.device_order == ((0, 2, 1, 3),)


def test_what_does_not_fit_names_what_it_lacks() -> None:
    result = run_method(tensors_in_a_row([10, 10], [15]), SEMANTICS, "m-etf", {"memory": "dynamic"})
    assert (result.status, result.plan) == ("no_plan", None)
    assert result.message == (
        "memory: op 'op1' needs 10 bytes for its outputs and scratch memory beside the resident"
        " ones, and fits nowhere then; bytes left: 'd0' 5"
    )


def test_sizes_beyond_64_bits_are_refused() -> None:
    instance = tensors_in_a_row([2**61], [1], scratch=[2**61, 0], resident=1)
    for name, params in (("m-etf", DYNAMIC), ("m-sct", SctParams(memory="dynamic"))):
        reason = METHODS[name].applies(Task(instance, SEMANTICS), params)
        assert reason is not None
        assert "2**62" in reason
    enough = Task(tensors_in_a_row([1], [9]), SEMANTICS)
    assert m_sct(enough, SctParams(memory="dynamic")).plan is not None
