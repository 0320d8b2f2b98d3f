"""The throughput IP counts as the referee does, and states every rule."""

from __future__ import annotations

import random
from collections.abc import Callable

import pyomo.environ as pyo
import pytest
from oracles import max_load_draws
from support import tiny_instance

from placegap.formulations.throughput_ip import build, count_rows, extract, warm_start
from placegap.instances import (
    Cluster,
    Device,
    Edge,
    Graph,
    Instance,
    Link,
    Op,
    Plan,
    Semantics,
    evaluate,
    example,
)
from placegap.solvers import Limits
from placegap.solvers.highs import solve_model

ADD, OVERLAP = (Semantics(objective="max_load", load=load) for load in ("add", "overlap"))
both_loads = pytest.mark.parametrize("semantics", [ADD, OVERLAP], ids=["add", "overlap"])


def two_devices(
    *ops: Op, edges: tuple[Edge, ...] = (), memory: int | None = None, host: bool = False
) -> Instance:
    """Ops on d0, a gpu, and d1, another gpu or a host of kind cpu; links of 1 byte per ns."""
    second = Device(name="d1", kind="cpu", is_host=True) if host else Device(name="d1", kind="gpu")
    devices = (Device(name="d0", kind="gpu", memory_bytes=memory), second)
    links = tuple(
        Link(source=a, target=b, bandwidth_bytes_per_s=10**9)
        for a, b in (("d0", "d1"), ("d1", "d0"))
    )
    return Instance(
        name="two",
        graph=Graph(name="two", ops=ops, edges=edges),
        cluster=Cluster(name="two", devices=devices, links=links),
    )


def op(name: str, gpu: int | None = None, cpu: int | None = None, **more: object) -> Op:
    times = {kind: time for kind, time in (("gpu", gpu), ("cpu", cpu)) if time is not None}
    return Op(name=name, time_ns=times, **more)  # type: ignore[arg-type]


def optimum(instance: Instance, semantics: Semantics) -> tuple[int, Plan]:
    model = build(instance, semantics)
    assert solve_model(model, Limits()).ending == "optimal"
    plan = extract(model, instance)
    verdict = evaluate(instance, plan, semantics)
    assert verdict.feasible
    assert verdict.value_ns == pytest.approx(pyo.value(model.largest) * pyo.value(model.unit_ns))
    return verdict.value_ns, plan


FEATURES: dict[str, tuple[Callable[[], Instance], int, int]] = {
    # 10 on one device, 6 + 4 apart: the ops share the devices
    "parallel ops": (lambda: two_devices(op("a", 6), op("b", 4)), 6, 6),
    # apart: 6 + 3 out and 4 + 3 in = 9, against 10 together; overlapped, the larger of 6 and 3
    "a transfer is paid at both ends": (
        lambda: two_devices(op("a", 6), op("b", 4), edges=(edge("a", "b", 3),)), 9, 6,
    ),
    # apart: 6 + 5 = 11, against 10 together; overlapped 6
    "a dear transfer is avoided": (
        lambda: two_devices(op("a", 6), op("b", 4), edges=(edge("a", "b", 5),)), 10, 6,
    ),
    # a tensor of 2 to both consumers, apart: out of d0 once, 9 + 2, into d1 once, 4 + 4 + 2 = 10
    "a tensor is paid once however many consumers it has": (
        lambda: two_devices(
            op("a", 9), op("b", 4), op("c", 4),
            edges=(edge("a", "b", 2, "t"), edge("a", "c", 2, "t")),
        ), 11, 9,
    ),
    # the same with a tensor each: 9 + 2 + 2 apart, against a + b | c: 13 + 2 | 4 + 2
    "two tensors are paid twice": (
        lambda: two_devices(
            op("a", 9), op("b", 4), op("c", 4), edges=(edge("a", "b", 2), edge("a", "c", 2)),
        ), 13, 9,
    ),
    # b on the host: a pays 6 + 3, the host only 8; together on the gpu 6 + 4 = 10
    "hosts pay no communication": (
        lambda: two_devices(
            op("a", 6), op("b", 4, 8), edges=(edge("a", "b", 3),), host=True
        ), 9, 8,
    ),
    # b cannot run on the gpu
    "an op runs where it is supported": (
        lambda: two_devices(op("a", 6), op("b", cpu=50), host=True), 50, 50,
    ),
    # the group stays together although 10 + 1 would be cut in half
    "a group stays together": (
        lambda: two_devices(op("a", 6, colocation="g"), op("b", 4, colocation="g"), op("c", 1)),
        10, 10,
    ),
    # 7 together on the gpu, which holds 3 of 4 bytes: b goes to the host, 5 + 4 and 9
    "memory is limited": (
        lambda: two_devices(
            op("a", 5, 50, resident_bytes=2), op("b", 2, 9, resident_bytes=2),
            edges=(edge("a", "b", 4),), memory=3, host=True,
        ), 9, 9,
    ),
}  # fmt: skip


def edge(producer: str, consumer: str, size: int, tensor: str | None = None) -> Edge:
    return Edge(producer=producer, consumer=consumer, bytes=size, tensor=tensor)


@both_loads
@pytest.mark.parametrize("name", FEATURES, ids=lambda name: name.replace(" ", "-"))
def test_each_rule_has_its_optimum(name: str, semantics: Semantics) -> None:
    make, add, overlap = FEATURES[name]
    value, _ = optimum(make(), semantics)
    assert value == (add if semantics.load == "add" else overlap)


@both_loads
def test_the_model_counts_a_plan_as_the_referee_does(semantics: Semantics) -> None:
    rng = random.Random(7)
    for instance in max_load_draws()[::4]:
        devices = [rng.randrange(instance.num_devices) for _ in range(instance.num_ops)]
        verdict = evaluate(instance, Plan.on(devices), semantics)
        if not verdict.feasible or verdict.value_ns is None:
            continue
        model = build(instance, semantics)
        warm_start(model, instance, Plan.on(devices), semantics)
        rows = list(model.component_data_objects(pyo.Constraint, active=True))
        assert all(row.slack() >= -1e-9 for row in rows)
        assert extract(model, instance).devices.tolist() == devices
        model.largest.set_value(pyo.value(model.largest) - 1e-3)
        assert verdict.value_ns == 0 or any(row.slack() < -1e-9 for row in rows)


def test_rows_are_counted_without_building() -> None:
    for seed in range(10):
        instance = tiny_instance(seed, num_ops=7, num_devices=3, hosts=1)
        model = build(instance, ADD)
        rows = sum(1 for _ in model.component_data_objects(pyo.Constraint))
        assert count_rows(instance) + instance.num_devices * (1 + instance.num_ops) >= rows
    alone = example()
    rows = sum(1 for _ in build(alone, OVERLAP).component_data_objects(pyo.Constraint))
    assert count_rows(alone) == rows


def test_a_user_may_add_constraints() -> None:
    model = build(example(), ADD)
    model.apart = pyo.Constraint(expr=model.x[0, 0] + model.x[1, 0] == 1)
    assert solve_model(model, Limits()).ending == "optimal"
    placement = extract(model, example()).placement
    assert placement[0] != placement[1]


@pytest.mark.parametrize(
    "semantics",
    [Semantics(objective="makespan"), Semantics(objective="max_load", plans="chain")],
    ids=lambda semantics: semantics.label.replace(" ", "-"),
)
def test_other_semantics_are_refused(semantics: Semantics) -> None:
    with pytest.raises(ValueError, match=semantics.label):
        build(example(), semantics)
