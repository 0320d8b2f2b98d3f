"""The throughput IP counts as the referee does, and states every rule."""

from __future__ import annotations

from collections.abc import Callable

import pyomo.environ as pyo
import pytest
from draws.equal_devices import equal_device_draws
from references.brute_force import (
    FWD_BWD_SEMANTICS,
    MAX_LOAD_SEMANTICS,
    STAGE_SEMANTICS,
    max_load_draws,
)

from placegap.formulations.throughput_ip import Contiguous, build, count_rows, extract, warm_start
from placegap.instances import (
    Cluster,
    Device,
    Edge,
    Graph,
    Instance,
    LatencySubgraphs,
    Link,
    Makespan,
    MaxLoad,
    MaxLoadFwdBwd,
    Op,
    Plan,
    Semantics,
    evaluate,
    example,
)
from placegap.instances.problem import has_replicas
from placegap.solvers import Limits, run_method
from placegap.solvers.core.back_ends import solve_model

ADD, OVERLAP = (MaxLoad(load=load) for load in ("add", "overlap"))
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


def optimum(instance: Instance, semantics: Semantics, *, symmetry: bool = True) -> tuple[int, Plan]:
    model = build(instance, semantics, symmetry=symmetry)
    assert solve_model(model, Limits()).ending == "optimal"
    plan = extract(model, instance, semantics, symmetry)
    verdict = evaluate(instance, plan, semantics)
    assert verdict.feasible
    value = pyo.value(model.objective) * pyo.value(model.unit_ns)
    assert verdict.value_ns == pytest.approx(value)
    return verdict.value_ns, plan


FEATURES: dict[str, tuple[Callable[[], Instance], int, int]] = {
    # 10 on one device, 6 + 4 apart: the ops share the devices
    "parallel ops": (lambda: two_devices(op("a", 6), op("b", 4)), 6, 6),
    # apart: 6 + 3 out and 4 + 3 in = 9, against 10 together; overlapped, the larger of 6 and 3
    "a transfer is paid at both ends": (
        lambda: two_devices(op("a", 6), op("b", 4), edges=(edge("a", "b", 3),)),
        9,
        6,
    ),
    # apart: 6 + 5 = 11, against 10 together; overlapped 6
    "a dear transfer is avoided": (
        lambda: two_devices(op("a", 6), op("b", 4), edges=(edge("a", "b", 5),)),
        10,
        6,
    ),
    # a tensor of 2 to both consumers, apart: out of d0 once, 9 + 2, into d1 once, 4 + 4 + 2 = 10
    "a tensor is paid once however many consumers it has": (
        lambda: two_devices(
            op("a", 9),
            op("b", 4),
            op("c", 4),
            edges=(edge("a", "b", 2, "t"), edge("a", "c", 2, "t")),
        ),
        11,
        9,
    ),
    # the same with a tensor each: 9 + 2 + 2 apart, against a + b | c: 13 + 2 | 4 + 2
    "two tensors are paid twice": (
        lambda: two_devices(
            op("a", 9),
            op("b", 4),
            op("c", 4),
            edges=(edge("a", "b", 2), edge("a", "c", 2)),
        ),
        13,
        9,
    ),
    # b on the host: a pays 6 + 3, the host only 8; together on the gpu 6 + 4 = 10
    "hosts pay no communication": (
        lambda: two_devices(op("a", 6), op("b", 4, 8), edges=(edge("a", "b", 3),), host=True),
        9,
        8,
    ),
    # b cannot run on the gpu
    "an op runs where it is supported": (
        lambda: two_devices(op("a", 6), op("b", cpu=50), host=True),
        50,
        50,
    ),
    # the group stays together although 10 + 1 would be cut in half
    "a group stays together": (
        lambda: two_devices(op("a", 6, colocation="g"), op("b", 4, colocation="g"), op("c", 1)),
        10,
        10,
    ),
    # 7 together on the gpu, which holds 3 of 4 bytes: b goes to the host, 5 + 4 and 9
    "memory is limited": (
        lambda: two_devices(
            op("a", 5, 50, resident_bytes=2),
            op("b", 2, 9, resident_bytes=2),
            edges=(edge("a", "b", 4),),
            memory=3,
            host=True,
        ),
        9,
        9,
    ),
}


def edge(producer: str, consumer: str, size: int, tensor: str | None = None) -> Edge:
    return Edge(producer=producer, consumer=consumer, bytes=size, tensor=tensor)


@both_loads
@pytest.mark.parametrize("name", FEATURES, ids=lambda name: name.replace(" ", "-"))
def test_each_rule_has_its_optimum(name: str, semantics: Semantics) -> None:
    make, add, overlap = FEATURES[name]
    value, _ = optimum(make(), semantics)
    assert value == (add if semantics.load == "add" else overlap)


def row(*times: int, devices: int = 2, **fields: object) -> Instance:
    """Ops op0 -> op1 -> ... in a row, tensors of 1 ns, equal devices of one server."""
    ops = tuple(Op(name=f"op{i}", time_ns={"gpu": t}, **fields) for i, t in enumerate(times))  # type: ignore[arg-type]
    edges = tuple(edge(f"op{i}", f"op{i + 1}", 1) for i in range(len(times) - 1))
    return alike(ops, edges, "s" * devices)


def alike(ops: tuple[Op, ...], edges: tuple[Edge, ...], servers: str, slow: int = 1) -> Instance:
    """Devices of kind gpu in servers; 1 byte per ns within a server, `slow` times less between."""
    devices = tuple(Device(name=f"d{k}", kind="gpu", server=name) for k, name in enumerate(servers))
    links = tuple(
        Link(
            source=f"d{a}",
            target=f"d{b}",
            bandwidth_bytes_per_s=10**9 // (1 if servers[a] == servers[b] else slow),
        )
        for a in range(len(servers))
        for b in range(len(servers))
        if a != b
    )
    return Instance(
        name="alike",
        graph=Graph(name="alike", ops=ops, edges=edges),
        cluster=Cluster(name="alike", devices=devices, links=links),
    )


def rules(**more: object) -> Semantics:
    return MaxLoad(**more)  # type: ignore[arg-type]


CLASSES = {
    # ops of 4, 9 and 5 ns in a row: op0 and op2 have 9 + 2 and op1 has 9 + 2; without coming back
    # op0 op1 | op2 has 13 + 1, op0 | op1 op2 has 14 + 1
    "any": 11,
    "convex": 14,
    "chain": 14,
}


@pytest.mark.parametrize("plans", CLASSES)
def test_contiguous_plans_do_not_come_back(plans: str) -> None:
    assert optimum(row(4, 9, 5), rules(plans=plans))[0] == CLASSES[plans]


@pytest.mark.parametrize(("plans", "value"), [("any", 10), ("convex", 10), ("chain", 11)])
def test_devices_of_a_chain_do_not_feed_each_other(plans: str, value: int) -> None:
    # a -> b and c -> d without bytes, 9, 2, 8 and 1 ns: a + d and b + c have 10 each and are
    # convex, but feed each other; the best chain is a | b + c + d or a + b | c + d
    times = {"a": 9, "b": 2, "c": 8, "d": 1}
    ops = tuple(Op(name=name, time_ns={"gpu": t}) for name, t in times.items())
    on = alike(ops, (edge("a", "b", 0), edge("c", "d", 0)), "ss")
    assert optimum(on, rules(plans=plans))[0] == value


@pytest.mark.parametrize("plans", ["any", "convex", "chain"])
def test_forward_and_backward_loads_are_balanced_apart(plans: str) -> None:
    # two forward ops of 4 ns and a backward op of 6: forward 4 on either device + 6 = 10. The best
    # max_load, both forward ops on one device, has 8 + 6
    ops = (
        *(Op(name=x, time_ns={"gpu": 4}) for x in "fg"),
        Op(name="b", time_ns={"gpu": 6}, backward=True),
    )
    semantics = MaxLoadFwdBwd(plans=plans)  # type: ignore[arg-type]
    assert optimum(alike(ops, (), "ss"), semantics)[0] == 10
    assert optimum(alike(ops, (), "ss"), rules(plans=plans))[0] == 8


@pytest.mark.parametrize("plans", ["any", "convex", "chain"])
@pytest.mark.parametrize(
    ("parameter_bytes", "value", "replicas"),
    # 10 ns and w bytes: 10 alone, 5 + w on two devices, 4 + ceil(4 w / 3) on three
    [(0, 4, 3), (3, 8, 0), (4, 9, 2), (6, 10, 1)],
)
def test_a_stage_has_as_many_replicas_as_pay(
    plans: str, parameter_bytes: int, value: int, replicas: int
) -> None:
    on = row(10, devices=3, parameter_bytes=parameter_bytes)
    found, plan = optimum(on, rules(plans=plans, replicas=True))
    assert found == value
    assert replicas in (0, len(plan.placement[0]))  # 3 bytes: two or three devices


@pytest.mark.parametrize(("memory", "value"), [(6, 7), (5, 9)])
def test_every_replica_holds_the_whole_stage(memory: int, value: int) -> None:
    # 10 and 9 ns, 3 bytes each: together on three devices ceil(19 / 3); apart one has no replica
    on = row(10, 9, devices=3, resident_bytes=3)
    devices = tuple(d.model_copy(update={"memory_bytes": memory}) for d in on.cluster.devices)
    graph = on.graph.model_copy(update={"edges": ()})
    cluster = on.cluster.model_copy(update={"devices": devices})
    tight = on.model_copy(update={"graph": graph, "cluster": cluster})
    assert optimum(tight, rules(replicas=True))[0] == value


@pytest.mark.parametrize("plans", ["any", "convex", "chain"])
@pytest.mark.parametrize(("slow", "value"), [(3, 10), (4, 11)])
def test_servers_pay_for_what_goes_between_them(plans: str, slow: int, value: int) -> None:
    # three ops of 4 ns in a row, tensors of 3 bytes, two devices in s and one in t. Apart: 4 + 3,
    # 4 + 3 + 3, and 4 alone in its server; both servers 3 * slow. Within s: 4 + 3 and 8 + 3
    ops = tuple(Op(name=f"op{i}", time_ns={"gpu": 4}) for i in range(3))
    on = alike(ops, (edge("op0", "op1", 3), edge("op1", "op2", 3)), "sst", slow)
    assert optimum(on, rules(plans=plans, levels=2))[0] == value


def test_servers_form_a_chain() -> None:
    # ops of 9 ns on gpu and 1 ns on cpu or the reverse, a row c g c of empty tensors: the cpu in s,
    # the gpu in t. One device each is 1 + 1 and 1, but comes back to s; so does the device. With a
    # second cpu in s the devices are a chain, the servers not: 1 + 9 ns on the gpu then
    kinds = ("cpu", "gpu", "cpu")
    ops = tuple(
        Op(name=f"op{i}", time_ns={kind: 1, ("gpu" if kind == "cpu" else "cpu"): 9})
        for i, kind in enumerate(kinds)
    )
    base = alike(ops, (edge("op0", "op1", 0), edge("op1", "op2", 0)), "sts")
    devices = tuple(
        d.model_copy(update={"kind": kind})
        for d, kind in zip(base.cluster.devices, kinds, strict=True)
    )
    on = base.model_copy(update={"cluster": base.cluster.model_copy(update={"devices": devices})})
    for plans in ("chain", "convex"):
        assert optimum(on, rules(plans=plans))[0] == 1
        assert optimum(on, rules(plans=plans, levels=2))[0] == 9
    assert optimum(on, rules(levels=2))[0] == 1


ALL_RULES = [*MAX_LOAD_SEMANTICS, *FWD_BWD_SEMANTICS, *STAGE_SEMANTICS]


@pytest.mark.parametrize("symmetry", [True, False], ids=["ordered", "free"])
@pytest.mark.parametrize("semantics", ALL_RULES, ids=lambda s: s.label.replace(" ", "-"))
def test_a_plan_is_a_solution_of_the_referees_value(semantics: Semantics, symmetry: bool) -> None:
    staged = semantics in STAGE_SEMANTICS
    draws = equal_device_draws() if staged else max_load_draws()
    for instance in draws[ALL_RULES.index(semantics) :: 24]:
        best = run_method(instance, semantics, "brute-force")
        if best.plan is None:
            continue
        model = build(instance, semantics, symmetry=symmetry)
        warm_start(model, instance, best.plan, semantics, symmetry)
        assert best.value_ns == pytest.approx(pyo.value(model.objective) * pyo.value(model.unit_ns))
        rows = list(model.component_data_objects(pyo.Constraint, active=True))
        assert [row.name for row in rows if row.slack() < -1e-9] == []
        plan = extract(model, instance, semantics, symmetry)
        assert evaluate(instance, plan, semantics).value_ns == best.value_ns
        if not symmetry and not has_replicas(semantics):
            assert plan == best.plan
        largest = next(v for v in model.component_objects(pyo.Var) if "largest" in v.name)
        largest.set_value(pyo.value(largest) - 1e-3)
        assert pyo.value(largest) < 0 or any(row.slack() < -1e-9 for row in rows)


def test_a_share_of_many_nanoseconds_is_not_rounded() -> None:
    # 10**6 + 1 ns on two devices: 500001 by the referee, 500000.5 in units of 1000 ns
    on = row(10**6 + 1)
    model = build(on, rules(replicas=True))
    assert solve_model(model, Limits()).ending == "optimal"
    assert pyo.value(model.objective) * pyo.value(model.unit_ns) == pytest.approx(500_000.5)
    verdict = evaluate(on, extract(model, on, rules(replicas=True)), rules(replicas=True))
    assert verdict.value_ns == 500_001


@pytest.mark.parametrize("semantics", ALL_RULES, ids=lambda s: s.label.replace(" ", "-"))
def test_rows_are_counted_without_building(semantics: Semantics) -> None:
    draws = equal_device_draws() if semantics in STAGE_SEMANTICS else max_load_draws()
    for instance in draws[:20:3]:
        model = build(instance, semantics)
        beside = ("memory", "colocate")
        rows = sum(
            len(part)
            for part in model.component_objects(pyo.Constraint)
            if not any(word in part.name for word in beside)
        )
        assert count_rows(instance, semantics) >= rows


def test_the_count_of_rows_is_close() -> None:
    for plans in ("any", "convex", "chain"):
        for load in ("add", "overlap"):
            semantics = rules(plans=plans, load=load)
            rows = sum(map(len, build(example(), semantics).component_objects(pyo.Constraint)))
            assert rows <= count_rows(example(), semantics) <= rows + 8


def test_a_user_may_add_constraints() -> None:
    model = build(example(), ADD)
    model.apart = pyo.Constraint(expr=model.x[0, 0] + model.x[1, 0] == 1)
    assert solve_model(model, Limits()).ending == "optimal"
    placement = extract(model, example(), ADD).placement
    assert placement[0] != placement[1]


@pytest.mark.parametrize("plans", ["any", "convex", "chain"])
def test_constraints_that_name_devices_need_no_option(plans: str) -> None:
    # the diamond against its order: the end on the first device, the rest on the second
    semantics = rules(plans=plans)
    model = build(example(), semantics)
    model.pinned = pyo.Constraint(expr=model.x[0, 1] + model.x[3, 0] == 2)
    assert solve_model(model, Limits()).ending == "optimal"
    placement = extract(model, example(), semantics).placement
    assert (placement[0], placement[3]) == ((1,), (0,))


@pytest.mark.parametrize(
    ("semantics", "contiguous", "why"),
    [
        (Makespan(), None, "not makespan"),
        (LatencySubgraphs(), None, "not latency_subgraphs"),
        (MaxLoad(plans="chain"), "convex", "states plans convex, not"),
        (MaxLoad(), "chain", "states plans chain, not max_load any"),
        (MaxLoad(levels=2), None, "names none"),
    ],
)
def test_other_semantics_are_refused(
    semantics: Semantics, contiguous: Contiguous | None, why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        build(example(), semantics, contiguous)


def test_many_equal_devices_with_uneven_links_are_refused() -> None:
    on = row(1, devices=7)
    first, *others = on.cluster.links
    slow = first.model_copy(update={"bandwidth_bytes_per_s": 10**8})
    uneven = on.model_copy(
        update={"cluster": on.cluster.model_copy(update={"links": (slow, *others)})}
    )
    with pytest.raises(ValueError, match="at most 6 equal devices"):
        build(uneven, rules(replicas=True))
