"""m-ETF: Baechi's booking of transfers, and the definition in plain Python."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from draws.tiny import tiny_instance
from references.placers import busy_instance, plan_of, pressed_instance
from references.placers import m_etf as slow_m_etf

from placegap.instances import Cluster, Device, Edge, Graph, Instance, Link, Makespan, Op
from placegap.solvers import Task
from placegap.solvers.placers.baechi import m_etf
from placegap.solvers.placers.earliest_start import (
    earliest_start_first,
    no_favourites,
    no_footprint,
)
from placegap.solvers.placers.list_problem import admission_of, problem_of

Draw = Callable[..., Instance]
SEMANTICS = Makespan(channels="half_duplex", transfers="per_tensor")


def booked_starts(ops: dict[str, str], edges: tuple[Edge, ...]) -> list[int]:
    """Planned starts of ops of 2 ns, each on the only device that runs it; 1 byte takes 1 ns."""
    names = sorted(set(ops.values()))
    instance = Instance(
        name="booked",
        graph=Graph(
            name="booked",
            ops=tuple(Op(name=op, time_ns={where: 2}) for op, where in ops.items()),
            edges=edges,
        ),
        cluster=Cluster(
            name="booked",
            devices=tuple(Device(name=name, kind=name) for name in names),
            links=tuple(
                Link(source=a, target=b, bandwidth_bytes_per_s=10**9)
                for a in names
                for b in names
                if a != b
            ),
        ),
    )
    problem, admission = problem_of(instance.arrays), admission_of(instance.arrays)
    order = np.array(instance.arrays.index.topological_order)
    nothing, alone = no_footprint(instance), no_favourites(instance)
    times = earliest_start_first(problem, admission, nothing, order, True, alone)
    starts: list[int] = times.start_ns.tolist()
    return starts


def test_a_device_sends_one_tensor_after_the_other() -> None:
    # a ends at 2; its tensors of 4 leave from 2 to 6 and from 6 to 10
    edges = (
        Edge(producer="a", consumer="b", bytes=4),
        Edge(producer="a", consumer="c", bytes=4),
    )
    assert booked_starts({"a": "d0", "b": "d1", "c": "d2"}, edges) == [0, 6, 10]


def test_a_tensor_goes_once_to_each_device() -> None:
    # b and c on d1 share what arrives at 6; c waits for b only
    edges = (
        Edge(producer="a", consumer="b", bytes=4, tensor="out"),
        Edge(producer="a", consumer="c", bytes=4, tensor="out"),
    )
    assert booked_starts({"a": "d0", "b": "d1", "c": "d1"}, edges) == [0, 6, 8]


def test_sending_and_receiving_share_a_clock() -> None:
    # d1 receives for c from 2 to 6; b, which d1 ran from 0 to 2, is sent to d2 only then: 6 to 10
    edges = (
        Edge(producer="a", consumer="c", bytes=4),
        Edge(producer="b", consumer="d", bytes=4),
    )
    starts = booked_starts({"a": "d0", "b": "d1", "c": "d1", "d": "d2"}, edges)
    assert starts == [0, 0, 6, 10]


def test_a_receipt_may_lag_behind_its_send() -> None:
    # Two clocks: d0 sends from 2 to 6, d1 from 2 to 6, but d2 receives from 2 to 6, then 6 to 10
    edges = (
        Edge(producer="a", consumer="c", bytes=4),
        Edge(producer="b", consumer="c", bytes=4),
    )
    assert booked_starts({"a": "d0", "b": "d1", "c": "d2"}, edges) == [0, 0, 10]


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("draw", [tiny_instance, pressed_instance, busy_instance])
def test_the_kernel_plans_as_the_definition_does(draw: Draw, seed: int) -> None:
    instance = draw(seed, num_ops=30, num_devices=3)
    outcome, times = m_etf(Task(instance, SEMANTICS)), slow_m_etf(instance)
    assert outcome.plan == (None if times is None else plan_of(instance, times))


def test_the_kernel_plans_as_the_definition_does_where_many_ops_compete() -> None:
    instance = tiny_instance(3, num_ops=90, num_devices=5, density=0.03)
    times = slow_m_etf(instance)
    assert times is not None
    assert m_etf(Task(instance, SEMANTICS)).plan == plan_of(instance, times)
