"""Every broken rule is named, with its op, device and time."""

from __future__ import annotations

from draws import draw

from placegap.instances import (
    Edge,
    Instance,
    Makespan,
    MaxLoad,
    Op,
    Plan,
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


def test_an_unknown_device_is_named() -> None:
    (violation,) = check(example(), Plan.on([0, 0, 0, 2]), MAKESPAN)
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
    assert "7 B, 1 B more than its 6 B" in violation.message
    assert check(on, Plan.on([0, 1]), ANY) == ()
    full = instance((op("a", resident_bytes=3), op("b", resident_bytes=3)), [], memory=6)
    assert check(full, Plan.on([0, 0]), ANY) == ()


def test_a_split_colocation_group_is_named() -> None:
    on = instance((op("a", colocation="w"), op("b", colocation="w")), [])
    (violation,) = check(on, Plan.on([0, 1]), ANY)
    assert (violation.rule, violation.op, violation.device) == ("colocation", "b", "d1")


def test_a_path_that_comes_back_is_not_convex() -> None:
    on = instance((op("a"), op("b"), op("c")), [("a", "b"), ("b", "c")])
    (violation,) = check(on, Plan.on([0, 1, 0]), CONVEX)
    assert (violation.rule, violation.op, violation.device) == ("convex", "c", "d0")
    assert check(on, Plan.on([0, 1, 1]), CONVEX) == ()


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
