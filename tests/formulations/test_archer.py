"""The exact model of Archer et al., for identical accelerators."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import count

import pyomo.environ as pyo
import pytest
from draws import draw
from draws.chains import best_chain, chain_instance

from placegap.formulations.archer import build, extract, warm_start
from placegap.instances import Device, Edge, Instance, MaxLoad, Op, Plan, evaluate, example
from placegap.solvers import Limits
from placegap.solvers.core.back_ends import solve_model

ADD, OVERLAP = (MaxLoad(plans="chain", load=w) for w in ("add", "overlap"))


def optimum(model: pyo.ConcreteModel, *, relax: bool = False) -> float:
    """In ns; infinite if there is none."""
    found = solve_model(model, Limits(), relax=relax)
    if found.ending == "infeasible":
        return float("inf")
    assert found.ending == "optimal"
    assert found.objective is not None
    return found.objective * float(pyo.value(model.unit_ns))


def graph_on(devices: Sequence[Device], ops: tuple[Op, ...], edges: dict[str, int]) -> Instance:
    """Edges by the names of their ends ("ab"), of so many ns between a device and host memory."""
    parts = (Edge(producer=a, consumer=b, host_time_ns=cost) for (a, b), cost in edges.items())
    return draw.instance_of("by hand", ops, parts, devices)


def gpus(number: int, memory: int | None = None) -> list[Device]:
    return draw.devices(["gpu"] * number, lambda k: memory)


def op(name: str, time_ns: int, *, host_ns: int | None = None, **more: object) -> Op:
    times = {"gpu": time_ns} | ({} if host_ns is None else {"cpu": host_ns})
    return Op(name=name, time_ns=times, **more)  # type: ignore[arg-type]


def row_of_three() -> Instance:
    """a -> b -> c, 4 ns each on three accelerators, 1 ns for each of the two tensors."""
    return graph_on(gpus(3), tuple(op(name, 4) for name in "abc"), {"ab": 1, "bc": 1})


@cache
def identical_draws() -> tuple[tuple[Instance, int | None, int | None], ...]:
    """12 instances on accelerators of one kind with their optima (add, overlap); 2 infeasible."""
    found: list[tuple[Instance, int | None, int | None]] = []
    infeasible = 0
    for seed in count():
        instance = chain_instance(seed)
        if instance.arrays.is_host.any():
            continue
        values = best_chain(instance), best_chain(instance, overlap=True)
        infeasible += values[0] is None
        if values[0] is not None or infeasible <= 2:
            found.append((instance, *values))
        if len(found) == 12:
            break
    return tuple(found)


# -------------------------------------------------------------------------------------- by hand


def test_a_row_of_three_is_cut_twice() -> None:
    # a | b | c is 4 + 1, 1 + 4 + 1, 1 + 4; a b | c: 8 + 1; all together 12
    assert optimum(build(row_of_three(), ADD)) == pytest.approx(6)


def test_costs_and_memory_can_be_changed() -> None:
    # a | b | c with b of 9 ns: 4 + 1, 1 + 9 + 1, 1 + 4; with free tensors 9
    model = build(row_of_three(), ADD)
    model.duration_ns["b"] = 9
    assert optimum(model) == pytest.approx(11)
    for cost in model.cut_ns.values():
        cost.value = 0
    assert optimum(model) == pytest.approx(9)
    assert pyo.value(model.load_ns) == pytest.approx(9)
    ops = tuple(op(name, 1, resident_bytes=1) for name in "abcd")
    model = build(graph_on(gpus(2, 2), ops, {}), ADD)
    model.capacity_bytes[1] = 1  # of 2: one of four ops has no room
    assert optimum(model) == float("inf")


def test_overlapped_loads_count_work_and_tensors_apart() -> None:
    # 4 and at most 2
    assert optimum(build(row_of_three(), OVERLAP)) == pytest.approx(4)


def test_hosts_are_taken_as_accelerators_without_tensors() -> None:
    # a gpu and a host on which an op takes 7, as two gpus without tensors: 8 and 4
    devices = (*gpus(1), Device(name="h", kind="cpu", is_host=True))
    ops = tuple(op(name, 4, host_ns=7) for name in "abc")
    instance = graph_on(devices, ops, {"ab": 1, "bc": 1})
    assert optimum(build(instance, ADD)) == pytest.approx(8)


def test_each_block_fits_into_the_memory_of_a_device() -> None:
    # 2 bytes on each of two devices hold four ops of 1 byte, 1 byte on each does not
    ops = tuple(op(name, 1, resident_bytes=1) for name in "abcd")
    fits, full = (graph_on(gpus(2, memory), ops, {}) for memory in (2, 1))
    assert optimum(build(fits, ADD)) == pytest.approx(2)
    assert optimum(build(full, ADD)) == float("inf")


def test_a_group_stays_in_one_part() -> None:
    # a and c together, and b between them too: 12
    ops = (op("a", 4, colocation="g"), op("b", 4), op("c", 4, colocation="g"))
    instance = graph_on(gpus(3), ops, {"ab": 1, "bc": 1})
    assert optimum(build(instance, ADD)) == pytest.approx(12)


def test_a_tensor_is_paid_once_at_each_border() -> None:
    # a with two consumers of one tensor of 3: a | b c is 4 + 3, 3 + 8 = 11; a b | c: 11, 7; 12
    ops = tuple(op(name, 4) for name in "abc")
    edges = tuple(Edge(producer="a", consumer=x, host_time_ns=3, tensor="t") for x in "bc")
    instance = draw.instance_of("fork", ops, edges, gpus(2))
    assert optimum(build(instance, ADD)) == pytest.approx(11)


def test_the_model_does_not_bound_convex_plans() -> None:
    # {1, 4} and {2, 3} do 8 + 2 and 5 + 5 ns, each other's inputs are free, and both edges of 1 ns
    # stay inside. As a chain: {1} | {2, 3, 4} is 8 + 1 and 12 + 1, {1, 3} | {2, 4}: 13 + 2.
    ops = tuple(op(name, time) for name, time in zip("1234", (8, 5, 5, 2), strict=True))
    instance = graph_on(gpus(2), ops, {"12": 0, "34": 0, "14": 1, "32": 1})
    convex = MaxLoad(plans="convex")
    assert evaluate(instance, Plan.on([0, 1, 1, 0]), convex).value_ns == 10
    assert best_chain(instance) == 13
    assert optimum(build(instance, ADD)) == pytest.approx(13)


# ------------------------------------------------------------------------------------- properties


def test_the_exact_model_equals_the_enumeration_of_chains_on_identical_accelerators() -> None:
    for instance, added, overlapped in identical_draws():
        for semantics, best in ((ADD, added), (OVERLAP, overlapped)):
            expected = float("inf") if best is None else best
            assert optimum(build(instance, semantics)) == pytest.approx(expected)


def test_the_lp_relaxation_of_identical_accelerators_is_the_work_over_k() -> None:
    # an op in equal shares on all devices cuts nothing: 43 ns of the diamond
    assert optimum(build(example(), ADD, num_blocks=3), relax=True) == pytest.approx(43 / 3)


# -------------------------------------------------------------------------------------- the model


def test_the_exact_model_counts_a_plan_as_the_referee_does() -> None:
    for instance, best, _ in identical_draws()[:6]:
        if best is None:
            continue
        model = build(instance, ADD)
        optimum(model)
        plan = extract(model, instance)
        verdict = evaluate(instance, plan, ADD)
        assert verdict.feasible
        # any numbering of the devices is a chain of the same load
        mirrored = Plan.on([instance.num_devices - 1 - k for k in plan.devices.tolist()])
        model = build(instance, ADD)
        warm_start(model, instance, mirrored)
        rows = list(model.component_data_objects(pyo.Constraint, active=True))
        assert all(row.slack() >= -1e-9 for row in rows)
        assert pyo.value(model.largest) * pyo.value(model.unit_ns) == pytest.approx(best)
        assert evaluate(instance, extract(model, instance), ADD).value_ns == verdict.value_ns
