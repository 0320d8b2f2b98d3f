"""HEFT: its paper's example, insertion, and the definition in plain Python."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from draws.tiny import tiny_instance
from references.placers import heft as slow_heft
from references.placers import plan_of, pressed_instance, table_instance

from placegap.instances import Cluster, Device, Graph, Instance, Makespan, Op, evaluate, simulate
from placegap.solvers import Task
from placegap.solvers.placers.heft_peft_cpop import heft, upward_ranks

Draw = Callable[..., Instance]
FREE = Makespan(channels="free")

# Topcuoglu, Hariri, Wu 2002, figure 2
PAPER_TIMES = (
    (14, 16, 9),
    (13, 19, 18),
    (11, 13, 19),
    (13, 8, 17),
    (12, 13, 10),
    (13, 16, 9),
    (7, 15, 11),
    (5, 11, 14),
    (18, 12, 20),
    (21, 7, 16),
)
PAPER_EDGES = (
    "1-2 18, 1-3 12, 1-4 9, 1-5 11, 1-6 14, 2-8 19, 2-9 16, 3-7 23, 4-8 27, 4-9 23, 5-9 13, 6-8 15,"
    " 7-10 17, 8-10 11, 9-10 13"
)


def test_the_papers_ten_tasks_have_its_ranks() -> None:
    ranks, unit = upward_ranks(table_instance(PAPER_TIMES, PAPER_EDGES))
    # table 1 of the paper
    expected = [108.000, 77.000, 80.000, 80.000, 69.000, 63.333, 42.667, 35.667, 44.333, 14.667]
    assert [round(rank / unit, 3) for rank in ranks.tolist()] == expected


def test_the_papers_ten_tasks_take_80() -> None:
    instance = table_instance(PAPER_TIMES, PAPER_EDGES)
    plan = heft(Task(instance, FREE)).plan
    assert plan is not None
    assert simulate(instance, plan, FREE).makespan_ns == 80


def test_an_op_is_inserted_into_an_idle_gap() -> None:
    # T1 (10 on p1) sends for 10 to T2 (10 on p2), T3 (5 on p2) stands alone. Ranks 30, 10, 5: T2
    # takes p2 from 20 to 30, then T3 fits before it, from 0 to 5; behind it it would end at 35.
    instance = table_instance(((10, 99), (99, 10), (99, 5)), "1-2 10")
    ops = tuple(
        Op(name=op.name, time_ns={k: t for k, t in op.time_ns.items() if t < 99})
        for op in instance.graph.ops
    )
    graph = Graph(name="gap", ops=ops, edges=instance.graph.edges)
    instance = Instance(name="gap", graph=graph, cluster=instance.cluster)
    plan = heft(Task(instance, FREE)).plan
    assert plan is not None
    assert plan.device_order == ((0,), (2, 1))
    assert simulate(instance, plan, FREE).makespan_ns == 30


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("draw", [tiny_instance, pressed_instance])
def test_the_kernel_plans_as_the_definition_does(draw: Draw, seed: int) -> None:
    instance = draw(seed, num_ops=30, num_devices=3)
    outcome, times = heft(Task(instance, FREE)), slow_heft(instance)
    if times is None:
        assert outcome.plan is None
        return
    assert outcome.plan == plan_of(instance, times)
    # no op can move forward, so the referee's clock finds the planned times
    assert evaluate(instance, outcome.plan, FREE).value_ns == max(times[2])


def test_ranks_that_would_overflow_are_rounded_down() -> None:
    # 3 processors: the exact unit would be 1/6 ns, 6 * 2**61 does not fit; 2**61 // 3 is kept
    ranks, unit = upward_ranks(table_instance(((2**61, 0, 0), (1, 1, 1)), ""))
    assert (ranks.tolist(), unit) == ([2**61 // 3, 0], 1)


def test_an_op_that_fits_nowhere_is_named() -> None:
    ops = tuple(Op(name=x, time_ns={"gpu": 1}, resident_bytes=4) for x in "abc")
    devices = tuple(Device(name=x, kind="gpu", memory_bytes=7) for x in ("g0", "g1"))
    instance = Instance(
        name="full",
        graph=Graph(name="full", ops=ops),
        cluster=Cluster(name="two", devices=devices),
    )
    outcome = heft(Task(instance, FREE))
    assert outcome.plan is None
    assert outcome.message == (
        "memory: op 'c' (4 bytes) fits on no device any more; bytes left where it can run:"
        " 'g0' 3, 'g1' 3"
    )
