"""max_load counts each tensor once per device that it leaves or enters (Tarnawski et al.)."""

from __future__ import annotations

import numpy as np
from draws import draw

from placegap.instances import Edge, Instance, MaxLoad, MaxLoadFwdBwd, Op, Plan, evaluate
from placegap.instances.referee.loads import device_loads


def fan_out() -> Instance:
    """Op a (1 ns) sends one tensor (host time 10 ns) to b and c (2 ns each)."""
    times = {"a": 1, "b": 2, "c": 2}
    ops = (Op(name=name, time_ns={"x": time}) for name, time in times.items())
    edges = (Edge(producer="a", consumer=name, tensor="t", host_time_ns=10) for name in "bc")
    return draw.instance_of("fan-out", ops, edges, draw.devices(["x"] * 3))


def value(instance: Instance, placement: list[int], **rules: str) -> int | None:
    semantics = MaxLoad(**{"plans": "any", **rules})  # type: ignore[arg-type]
    return evaluate(instance, Plan.on(placement), semantics).value_ns


def test_a_tensor_leaves_a_device_once_however_many_consumers_it_has() -> None:
    # device 0: 1 + 10 out, devices 1 and 2: 2 + 10 in
    assert value(fan_out(), [0, 1, 2]) == 12
    parts = device_loads(fan_out(), np.array([0, 1, 2]))
    assert [part.tolist() for part in parts] == [[1, 2, 2], [0, 10, 10], [10, 0, 0]]
    # device 1 has both consumers: 2 + 2 + 10 in, and with overlap the larger of 4 and 10
    assert value(fan_out(), [0, 1, 1]) == 14
    assert value(fan_out(), [0, 1, 1], load="overlap") == 10


def one_pass_each(host_time_ns: int | None) -> Instance:
    """Forward op f (2 ns), backward op b (3 ns), and a tensor from f to b if it has a time."""
    edge = Edge(producer="f", consumer="b", host_time_ns=host_time_ns)
    ops = (Op(name="f", time_ns={"x": 2}), Op(name="b", time_ns={"x": 3}, backward=True))
    edges = () if host_time_ns is None else (edge,)
    return draw.instance_of("passes", ops, edges, draw.devices(["x"] * 2))


def passes(instance: Instance, placement: list[int], load: str = "add") -> int | None:
    semantics = MaxLoadFwdBwd(plans="any", load=load)  # type: ignore[arg-type]
    return evaluate(instance, Plan.on(placement), semantics).value_ns


def test_the_two_maxima_may_be_of_different_devices() -> None:
    # d0 forward 2, d1 backward 3: 2 + 3, wherever they are, though the heaviest device has 3
    assert passes(one_pass_each(None), [0, 1]) == passes(one_pass_each(None), [0, 0]) == 5
    assert value(one_pass_each(None), [0, 1]) == 3


def test_a_tensor_of_a_forward_op_is_forward_load_also_where_a_backward_op_reads_it() -> None:
    # forward: d0 2 + 10 out, d1 10 in; backward: d1 3. Charged to the pass that reads it, d1 would
    # have 3 + 10 and the value would be 12 + 13
    assert passes(one_pass_each(10), [0, 1]) == 12 + 3
    uses = evaluate(one_pass_each(10), Plan.on([0, 1]), MaxLoadFwdBwd(plans="any")).uses  # type: ignore[arg-type]
    assert [use.load_ns for use in uses] == [12, 10 + 3]


def test_each_pass_overlaps_its_own_communication() -> None:
    # forward: d0 max(2, 10), d1 max(0, 10); backward: max(3, 0)
    assert passes(one_pass_each(10), [0, 1], load="overlap") == 10 + 3
