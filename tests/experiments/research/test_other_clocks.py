"""The same plan by other clocks: free channels, no transfers at all, and fusion at run time."""

import random

import pytest
from draws import draw

from placegap.experiments.research.other_clocks import fused_ns, other_clocks
from placegap.instances import Edge, Instance, Makespan, Op, Plan, simulate
from placegap.instances.costing.catalogue import catalogue
from placegap.instances.costing.costing import roofline_ns
from placegap.instances.transforms.merge import with_all_orders

MB, T4 = 10**6, catalogue()["T4"]


def fan() -> Instance:
    """Op a hands 10 bytes to each of b and c; a link takes 1 ns per byte."""
    ops = tuple(Op(name=name, time_ns={"gpu": 5}) for name in "abc")
    edges = tuple(Edge(producer="a", consumer=name, bytes=10, tensor=name) for name in "bc")
    devices = draw.devices(["gpu"] * 3)
    return draw.instance_of("fan", ops, edges, devices, draw.fast_links(devices))


def test_transfers_that_wait_for_one_port_do_not_wait_when_channels_are_free() -> None:
    plan = Plan.on([0, 1, 2])
    # with ports: a until 5, the tensors until 15 and 25, the last op until 30
    assert simulate(fan(), plan, Makespan(channels="port")).makespan_ns == 30
    # free: both tensors until 15, both ops until 20; without transfers: 5 + 5
    assert other_clocks(fan(), plan, Makespan(channels="port")) == {
        "free_channels_ns": 20,
        "no_transfers_ns": 10,
    }


def kernels(*pairs: str) -> Instance:
    """Ops named by their kinds, each of which reads and writes 1 MB, and edges like "Conv Relu"."""
    names = dict.fromkeys(name for pair in pairs for name in pair.split())
    time_ns = {"T4": roofline_ns(9, 2 * MB, T4)}
    ops = [Op(name=k, kind=k, time_ns=time_ns, flops=9, bytes_moved=2 * MB) for k in names]
    edges = [
        Edge(producer=a, consumer=b, bytes=MB, tensor=a)
        for a, b in (pair.split() for pair in pairs)
    ]
    devices = draw.devices(["T4"] * 2)
    return draw.instance_of("kernels", ops, edges, devices, draw.fast_links(devices))


def test_what_stands_together_takes_the_time_of_one_kernel() -> None:
    # three ops of 9 FLOPs; the two tensors of 1 MB between them are neither written nor read
    instance = kernels("Conv BatchNormalization", "BatchNormalization Relu")
    one = roofline_ns(27, 2 * MB, T4)
    assert fused_ns(instance, Plan.on([0, 0, 0]), Makespan()) == one
    assert fused_ns(instance, Plan.on([1, 1, 1]), Makespan()) == one


def test_what_is_split_is_not_fused() -> None:
    # on two devices: both ops, and 1 MB at 1 ns a byte between them
    instance = kernels("Conv Relu")
    apart = 2 * roofline_ns(9, 2 * MB, T4) + MB
    assert fused_ns(instance, Plan.on([0, 1]), Makespan()) == apart
    # of a group of three the two that stay together are a rule of their own
    instance = kernels("Conv BatchNormalization", "BatchNormalization Relu")
    left = roofline_ns(18, 2 * MB, T4) + MB + roofline_ns(9, 2 * MB, T4)
    assert fused_ns(instance, Plan.on([0, 0, 1]), Makespan()) == left


def test_a_fused_op_stands_where_its_last_op_stood() -> None:
    # Conv and Add become one op that needs Pool: with Conv's place it would wait for itself
    instance = kernels("Conv Add", "Pool Add", "Add Relu")
    assert [op.name for op in instance.graph.ops] == ["Conv", "Add", "Pool", "Relu"]
    plan = Plan.on([0] * 4, [(0, 2, 1, 3), ()])
    both = roofline_ns(27, 2 * MB, T4) + roofline_ns(9, 2 * MB, T4)
    assert fused_ns(instance, plan, Makespan()) == both


@pytest.mark.parametrize("transfers", ["per_edge", "per_tensor"])
def test_the_orders_of_any_schedule_hold_when_its_ops_are_fused(transfers: str) -> None:
    # nets of fusable kinds, of which a third of the ops has two inputs, placed by chance, with all
    # orders as the referee's clock runs them
    semantics = Makespan.model_validate({"channels": "port", "transfers": transfers})
    rng, kinds, is_fused = random.Random(5), ("Conv", "Add", "Relu", "BatchNormalization"), False
    for _ in range(60):
        arcs = [(rng.randrange(i), i) for i in range(1, 14)]
        arcs += [(rng.randrange(i), i) for i in range(1, 14) if rng.random() < 1 / 3]
        ops = [Op(name=f"{i}", kind=rng.choice(kinds), time_ns={"T4": 9}) for i in range(14)]
        edges = [
            Edge(producer=f"{a}", consumer=f"{b}", bytes=rng.randrange(9), tensor=f"{a}")
            for a, b in dict.fromkeys(arcs)
        ]
        size = {edge.producer: edge.bytes for edge in edges}  # one tensor has one size
        edges = [edge.model_copy(update={"bytes": size[edge.producer]}) for edge in edges]
        devices = draw.devices(["T4"] * 2)
        instance = draw.instance_of("net", ops, edges, devices, draw.fast_links(devices))
        plan = Plan.on([rng.randrange(2) for _ in ops])
        ordered = with_all_orders(instance, plan, semantics)
        work = sum(op.time_ns["T4"] for op in ops)
        # ops without FLOPs keep the sum of their times, so that only waiting differs
        found = fused_ns(instance, ordered, semantics)
        assert work / 2 <= found <= work + sum(edge.bytes for edge in edges)
        is_fused |= found != simulate(instance, ordered, semantics).makespan_ns
    assert is_fused
