"""max_load counts each tensor once per device that it leaves or enters (Tarnawski et al.)."""

from __future__ import annotations

import random

import numpy as np
from draws.tiny import tiny_instance

from placegap.instances import (
    Cluster,
    Device,
    Edge,
    Graph,
    Instance,
    MaxLoad,
    MaxLoadFwdBwd,
    Op,
    Plan,
    evaluate,
)
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.instances.referee.loads import device_loads


def fan_out(host: bool = False) -> Instance:
    """Op a (1 ns) sends one tensor (host time 10 ns) to b and c (2 ns each)."""
    times = {"a": 1, "b": 2, "c": 2}
    return Instance(
        name="fan-out",
        graph=Graph(
            name="fan-out",
            ops=tuple(Op(name=name, time_ns={"x": time}) for name, time in times.items()),
            edges=tuple(
                Edge(producer="a", consumer=name, tensor="t", host_time_ns=10) for name in "bc"
            ),
        ),
        cluster=Cluster(
            name="three",
            devices=tuple(
                Device(name=f"d{k}", kind="x", is_host=host and k == 0) for k in range(3)
            ),
        ),
    )


def value(instance: Instance, placement: list[int], **rules: str) -> int | None:
    semantics = MaxLoad(**rules)  # type: ignore[arg-type]
    return evaluate(instance, Plan.on(placement), semantics).value_ns


def test_a_tensor_leaves_a_device_once_however_many_consumers_it_has() -> None:
    # device 0: 1 + 10 out, devices 1 and 2: 2 + 10 in
    assert value(fan_out(), [0, 1, 2]) == 12
    parts = device_loads(fan_out(), np.array([0, 1, 2]))
    assert [part.tolist() for part in parts] == [[1, 2, 2], [0, 10, 10], [10, 0, 0]]


def test_a_tensor_enters_a_device_once_however_many_consumers_it_has_there() -> None:
    # device 1: 2 + 2 + 10 in
    assert value(fan_out(), [0, 1, 1]) == 14


def test_hosts_pay_no_communication() -> None:
    # all on the host except c: host 3, device 1: 2 + 10 in
    parts = device_loads(fan_out(host=True), np.array([0, 0, 1]))
    assert [part.tolist() for part in parts] == [[3, 2, 0], [0, 10, 0], [0, 0, 0]]


def test_overlap_takes_the_larger_of_compute_and_communication() -> None:
    assert value(fan_out(), [0, 1, 1], load="overlap") == 10


def one_pass_each(host_time_ns: int | None) -> Instance:
    """Forward op f (2 ns), backward op b (3 ns), and a tensor from f to b if it has a time."""
    edge = Edge(producer="f", consumer="b", host_time_ns=host_time_ns)
    return Instance(
        name="passes",
        graph=Graph(
            name="passes",
            ops=(
                Op(name="f", time_ns={"x": 2}),
                Op(name="b", time_ns={"x": 3}, backward=True),
            ),
            edges=() if host_time_ns is None else (edge,),
        ),
        cluster=Cluster(
            name="two", devices=tuple(Device(name=f"d{k}", kind="x") for k in range(2))
        ),
    )


def passes(instance: Instance, placement: list[int], load: str = "add") -> int | None:
    semantics = MaxLoadFwdBwd(load=load)  # type: ignore[arg-type]
    return evaluate(instance, Plan.on(placement), semantics).value_ns


def test_the_two_maxima_may_be_of_different_devices() -> None:
    # d0 forward 2, d1 backward 3: 2 + 3, wherever they are, though the heaviest device has 3
    assert passes(one_pass_each(None), [0, 1]) == passes(one_pass_each(None), [0, 0]) == 5
    assert value(one_pass_each(None), [0, 1]) == 3


def test_a_tensor_of_a_forward_op_is_forward_load_also_where_a_backward_op_reads_it() -> None:
    # forward: d0 2 + 10 out, d1 10 in; backward: d1 3. Charged to the pass that reads it, d1 would
    # have 3 + 10 and the value would be 12 + 13
    assert passes(one_pass_each(10), [0, 1]) == 12 + 3
    uses = evaluate(one_pass_each(10), Plan.on([0, 1]), MaxLoadFwdBwd()).uses  # type: ignore[arg-type]
    assert [use.load_ns for use in uses] == [12, 10 + 3]


def test_each_pass_overlaps_its_own_communication() -> None:
    # forward: d0 max(2, 10), d1 max(0, 10); backward: max(3, 0)
    assert passes(one_pass_each(10), [0, 1], load="overlap") == 10 + 3


def test_loads_agree_with_a_literal_count_over_ops() -> None:
    """The definition of tarnawski-semantics section 3, comm(S), tensor by tensor."""
    rng = random.Random(7)
    for seed in range(100):
        instance = tiny_instance(seed, num_ops=7, num_devices=3, hosts=seed % 2, backward=True)
        arrays, index = instance.arrays, instance.arrays.index
        device = np.array(
            [rng.choice(np.flatnonzero(row != UNSUPPORTED).tolist()) for row in arrays.time_ns]
        )
        total = np.zeros(3, np.int64)
        for k in range(3):
            total[k] = sum(int(arrays.time_ns[i, k]) for i in range(7) if device[i] == k)
            if arrays.is_host[k]:
                continue
            for u in range(len(index.tensor_producer)):
                edges = np.flatnonzero(index.tensor == u)
                inside = device[index.producer[edges]] == k
                if any(inside != (device[index.consumer[edges]] == k)):
                    total[k] += arrays.host_ns[u, k]
        assert sum(device_loads(instance, device)).tolist() == total.tolist()
