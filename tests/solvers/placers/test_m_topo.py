"""m-TOPO: shares of the memory, in order, and never back."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from draws import draw

from placegap.instances import Instance, MaxLoad, Op, Semantics
from placegap.instances.problem import Plan
from placegap.solvers import Task
from placegap.solvers.placers.baechi import TopoParams, m_topo

ANY = MaxLoad()
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
    assert plan is not None
    assert plan.devices.tolist() == [0, 0, 0, 1]
