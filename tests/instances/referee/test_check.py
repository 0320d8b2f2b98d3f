"""Every broken rule is named, with its op, device and time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from draws import draw

from placegap.instances import (
    Edge,
    Instance,
    Makespan,
    MaxLoad,
    Op,
    Plan,
    Semantics,
    Transfer,
    Violation,
    check,
    example,
)

MAKESPAN = Makespan()
CHAIN = MaxLoad(plans="chain")
CONVEX = MaxLoad(plans="convex")
ANY = MaxLoad(plans="any")


def instance(
    ops: tuple[Op, ...], edges: list[tuple[str, str]], memory: int | None = None, devices: int = 2
) -> Instance:
    arcs = [Edge(producer=a, consumer=b, host_time_ns=1) for a, b in edges]
    return draw.instance_of("i", ops, arcs, draw.devices(["x"] * devices, lambda k: memory))


def op(name: str, **fields: object) -> Op:
    return Op(name=name, time_ns={"x": 1}, **fields)  # type: ignore[arg-type]


def rules(violations: tuple[Violation, ...]) -> list[str]:
    return [violation.rule for violation in violations]


@pytest.mark.parametrize("device", [-1, 2])
def test_an_unknown_device_is_named(device: int) -> None:
    (violation,) = check(example(), Plan.on([0, 0, 0, device]), MAKESPAN)
    assert "op4" in violation.message


def test_an_op_where_it_cannot_run_is_named() -> None:
    on = draw.instance_of("i", [op("a")], [], draw.devices(["x", "y"]))
    (violation,) = check(on, Plan.on([1]), ANY)
    assert "'a' cannot run on 'd1'" in violation.message


def test_memory_is_the_sum_of_resident_bytes() -> None:
    on = instance((op("a", resident_bytes=3), op("b", resident_bytes=4)), [], memory=6)
    (violation,) = check(on, Plan.on([0, 0]), ANY)
    assert (violation.rule, violation.op, violation.device, violation.time_ns) == (
        "memory",
        "b",
        "d0",
        0,
    )
    assert "7 bytes, 1 more than its 6" in violation.message
    assert check(on, Plan.on([0, 1]), ANY) == ()
    full = instance((op("a", resident_bytes=3), op("b", resident_bytes=3)), [], memory=6)
    assert check(full, Plan.on([0, 0]), ANY) == ()


def test_a_split_colocation_group_is_named() -> None:
    on = instance((op("a", colocation="w"), op("b", colocation="w")), [])
    (violation,) = check(on, Plan.on([0, 1]), ANY)
    assert (violation.rule, violation.op, violation.device) == ("colocation", "b", "d1")


ON_FIRST = Plan.on([0] * 4)
REFUSED: list[tuple[Plan, Semantics, str]] = [
    (Plan.on([0]), MAKESPAN, "shape"),  # of the wrong length
    (Plan(((0, 1), (0,), (0,), (0,))), MAKESPAN, "shape"),  # replicas
    (replace(ON_FIRST, device_order=((0, 1, 2, 3), ())), ANY, "fields"),
    (replace(ON_FIRST, device_order=((0, 1, 2), (3,))), MAKESPAN, "order"),  # of other ops
    (replace(ON_FIRST, channel_order={0: (Transfer(0, 1),)}), MAKESPAN, "order"),  # no transfer
    (replace(ON_FIRST, channel_order={-1: ()}), MAKESPAN, "order"),  # two devices: ports 0 to 3
    (replace(ON_FIRST, channel_order={4: ()}), MAKESPAN, "order"),
]


@pytest.mark.parametrize(("plan", "semantics", "rule"), REFUSED)
def test_what_a_plan_must_not_say_is_refused(plan: Plan, semantics: Semantics, rule: str) -> None:
    assert rules(check(example(), plan, semantics)) == [rule]


def test_a_cycle_of_orders_is_named() -> None:
    # op4 before op1 on one device contradicts op1 -> op2 -> op4
    (violation,) = check(example(), Plan.on([0] * 4, [[3, 0, 1, 2], []]), MAKESPAN)
    assert violation.rule == "order"
    assert "op1" in violation.message
    assert "op4" in violation.message


def test_a_path_that_comes_back_is_not_convex() -> None:
    on = instance((op("a"), op("b"), op("c")), [("a", "b"), ("b", "c")])
    (violation,) = check(on, Plan.on([0, 1, 0]), CONVEX)
    assert (violation.rule, violation.op, violation.device) == ("convex", "c", "d0")
    assert check(on, Plan.on([0, 1, 1]), CONVEX) == ()


def test_convex_devices_need_not_form_a_chain() -> None:
    # a -> b and c -> d, with a, d on one device and b, c on the other: each set is convex, but
    # the devices feed each other
    on = instance((op("a"), op("b"), op("c"), op("d")), [("a", "b"), ("c", "d")])
    plan = Plan.on([0, 1, 1, 0])
    assert check(on, plan, CONVEX) == ()
    assert rules(check(on, plan, CHAIN)) == ["chain"]


def test_backward_ops_need_not_be_contiguous() -> None:
    ops = (op("f1"), op("f2"), op("b2", backward=True), op("b1", backward=True))
    classes = [o.model_copy(update={"colocation": o.name[1]}) for o in ops]
    on = instance(tuple(classes), [("f1", "f2"), ("f2", "b2"), ("b2", "b1")])
    assert check(on, Plan.on([0, 1, 1, 0]), CHAIN) == ()
    assert check(on, Plan.on([0, 1, 1, 0]), CONVEX) == ()


def test_a_backward_orphan_orders_its_device_as_its_mirror_image() -> None:
    # b has no forward op; its backward edge b -> b1 is mirrored to f1 -> mirror(b): with b and f0
    # on device 0 and class 1 on device 1, f0 -> f1 -> mirror(b) comes back.
    ops = (op("f0"), op("f1", colocation="1"), op("b", backward=True))
    back = op("b1", backward=True, colocation="1")
    on = instance((*ops, back), [("f0", "f1"), ("b", "b1")])
    assert rules(check(on, Plan.on([0, 1, 0, 1]), CHAIN)) == ["chain"]
    assert check(on, Plan.on([0, 1, 1, 1]), CHAIN) == ()
