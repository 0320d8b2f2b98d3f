"""Merging ops: no cycle, nothing lost, and a plan of the merged instance is one of the instance."""

from typing import get_args

import networkx as nx
import pytest
from draws import draw
from draws.tiny import tiny_instance

from placegap.instances import Edge, Instance, Makespan, Op, Plan, Transfer, evaluate, generate
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.instances.transforms.merge import expand_plan
from placegap.instances.transforms.pesto_merge import MergeOrder, merge_ops

ORDERS: tuple[MergeOrder, ...] = get_args(MergeOrder)
both_orders = pytest.mark.parametrize("order", ORDERS)
LINK = Makespan(channels="link")


def pair(*ops: Op, edges: tuple[Edge, ...] = (), memory: int | None = None) -> Instance:
    """Two devices, d0 a gpu and d1 a cpu; a byte takes a nanosecond on the links."""
    devices = draw.devices(["gpu", "cpu"], lambda k: memory)
    return draw.instance_of("pair", ops, edges, devices, draw.links(2, lambda a, b: (10**9, 0)))


def op(name: str, **fields: object) -> Op:
    return Op(**{"name": name, "time_ns": {"gpu": 1, "cpu": 1}, **fields})  # type: ignore[arg-type]


def edge(producer: str, consumer: str, size: int, tensor: str | None = None) -> Edge:
    return Edge(producer=producer, consumer=consumer, bytes=size, tensor=tensor)


def random_instances() -> list[Instance]:
    """Small graphs with colocation, unsupported ops, memory limits, backward ops and hosts."""
    return [
        tiny_instance(seed, num_ops=n, num_devices=k, backward=backward, hosts=seed % 2)
        for seed in range(8)
        for n, k, backward in ((6, 2, False), (9, 3, True), (12, 3, False))
    ]


# ----------------------------------------------------------------------------- which ops are merged


def test_the_dearest_edge_that_closes_no_cycle_goes_first() -> None:
    # a -> c, 9 ns, is the dearest, but a -> b -> c would be a cycle; so b and c, 5 ns, are merged,
    # and take 2 + 4 on the gpu, with 1 + 2 bytes. Only a runs on the cpu.
    three = pair(
        op("a"),
        op("b", time_ns={"gpu": 2}, resident_bytes=1, parameter_bytes=1),
        op("c", time_ns={"gpu": 4, "cpu": 1}, resident_bytes=2),
        edges=(edge("a", "b", 1), edge("b", "c", 5), edge("a", "c", 9)),
    )
    merge = merge_ops(three, 2)
    assert merge.op.tolist() == [0, 1, 1]
    assert merge.edge.tolist() == [0, -1, 1]
    first, second = merge.coarse.graph.ops
    assert (first.name, second.name) == ("a", "b")
    assert second.time_ns == {"gpu": 6}
    assert (second.resident_bytes, second.parameter_bytes) == (3, 1)
    assert [e.bytes for e in merge.coarse.graph.edges] == [1, 9]
    # the cheapest is a -> b, 1 ns
    assert merge_ops(three, 2, "cheapest_first").op.tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("first", "second", "memory"),
    [
        ({}, {"backward": True}, None),
        ({"time_ns": {"gpu": 1}}, {"time_ns": {"cpu": 1}}, None),  # no device runs both
        ({"resident_bytes": 3}, {"resident_bytes": 3}, 5),  # no device holds both
    ],
)
def test_what_stays_apart(
    first: dict[str, object], second: dict[str, object], memory: int | None
) -> None:
    two = pair(op("a", **first), op("b", **second), edges=(edge("a", "b", 1),), memory=memory)
    assert merge_ops(two, 1).coarse.num_ops == 2


def test_colocation_groups_of_merged_ops_are_one_group() -> None:
    # a | b and c | d are groups; b and c become one op, so that all four must be together
    ops = (
        op("a", colocation="x", resident_bytes=1),
        op("b", colocation="x", resident_bytes=1),
        op("c", colocation="y", resident_bytes=1),
        op("d", colocation="y", resident_bytes=1),
    )
    merge = merge_ops(pair(*ops, edges=(edge("b", "c", 1),)), 3)
    assert merge.op.tolist() == [0, 1, 1, 2]
    assert [o.colocation for o in merge.coarse.graph.ops] == ["x", "x", "x"]
    # on devices of 3 bytes they cannot
    assert merge_ops(pair(*ops, edges=(edge("b", "c", 1),), memory=3), 3).coarse.num_ops == 4


def merge_slowly(instance: Instance, num_ops: int, order: MergeOrder) -> list[int]:
    """What `merge_ops` does, by its description: all edges looked at anew before every merge."""
    arrays = instance.arrays
    index, k = arrays.index, instance.num_devices
    cost = [
        sum(int(row[arrays.link_class[a, b]]) for a in range(k) for b in range(k) if a != b)
        for row in arrays.transfer_ns
    ]
    position = index.topological_position.tolist()
    home = list(range(instance.num_ops))  # the topologically first op of each merged one
    group = arrays.group.tolist()

    def together(u: int, v: int) -> bool:
        members = [i for i, g in enumerate(group) if g in (group[u], group[v])]
        if group[u] == group[v]:
            return True
        return any(
            all(arrays.time_ns[i, d] != UNSUPPORTED for i in members)
            and sum(arrays.resident_bytes[i] for i in members) <= arrays.memory_bytes[d]
            for d in range(k)
        )

    while len(set(home)) > num_ops:
        between: dict[tuple[int, int], set[int]] = {}
        for a, b, t in zip(index.producer, index.consumer, index.tensor, strict=True):
            if home[a] != home[b]:
                between.setdefault((home[a], home[b]), set()).add(int(t))
        merged = nx.DiGraph(list(between))
        choices = []
        for (u, v), tensors in between.items():
            merged.remove_edge(u, v)
            joined = nx.has_path(merged, u, v)
            merged.add_edge(u, v)
            if not joined and arrays.backward[u] == arrays.backward[v] and together(u, v):
                price = sum(cost[t] for t in tensors)
                key = -price if order == "dearest_first" else price
                choices.append((key, position[u], position[v], u, v))
        if not choices:
            break
        *_, u, v = min(choices)
        keep, gone = sorted((u, v), key=position.__getitem__)
        home = [keep if i == gone else i for i in home]
        group = [group[keep] if g == group[gone] else g for g in group]
    return [sorted(set(home)).index(i) for i in home]


@both_orders
def test_it_merges_as_described(order: MergeOrder) -> None:
    for instance in random_instances():
        for num_ops in (1, 4):
            assert merge_ops(instance, num_ops, order).op.tolist() == merge_slowly(
                instance, num_ops, order
            ), instance.name


def test_a_thousand_ops_are_merged() -> None:
    graph = generate("layered", {"ops": 1000, "width": 10}, seed=1)
    assert merge_ops(pair(*graph.ops, edges=graph.edges), 50).coarse.num_ops == 50


# ----------------------------------------------------------------------------------- what it is for


def test_an_edge_that_stands_for_two_transfers_makes_the_plan_longer() -> None:
    # a, 0-1 on d0, sends a tensor of 4 to b and c, merged on d1. As one op they take 1-5, 5-7; as
    # two, b gets it at 5 and c at 9, 9 + 1 = 10; if tensors go once, still 7. The repeated transfer
    # takes 4: 10 <= 7 + 4.
    three = pair(
        op("a", time_ns={"gpu": 1}),
        op("b", time_ns={"cpu": 1}),
        op("c", time_ns={"cpu": 1}),
        edges=(edge("a", "b", 4, "t"), edge("a", "c", 4, "t"), edge("b", "c", 0)),
    )
    merge = merge_ops(three, 2)
    for transfers, expected in (("per_edge", 10), ("per_tensor", 7)):
        semantics = LINK.model_copy(update={"transfers": transfers})
        plan = Plan.on([0, 1], [[0], [1]])
        assert evaluate(merge.coarse, plan, semantics).value_ns == 7
        expanded = expand_plan(merge, plan, semantics)
        assert expanded.device_order == ((0,), (1, 2))
        assert evaluate(three, expanded, semantics).value_ns == expected


def test_the_orders_of_channels_are_expanded() -> None:
    # the transfers of the tensor to b and c, edges 0 and 1, stay together before that to d
    four = pair(
        op("a"),
        op("b"),
        op("c"),
        op("d"),
        edges=(
            edge("a", "b", 4, "t"),
            edge("a", "c", 4, "t"),
            edge("b", "c", 9),
            edge("a", "d", 1),
        ),
    )
    merge = merge_ops(four, 3)
    link = 1  # from d0 to d1, of two devices
    for transfers, expected in (("per_edge", (3, 0, 1)), ("per_tensor", (2, 0))):
        semantics = LINK.model_copy(update={"transfers": transfers})
        order = {link: (Transfer(1, 1), Transfer(0, 1))}
        plan = Plan(((0,), (1,), (1,)), None, order)
        assert evaluate(merge.coarse, plan, semantics).feasible
        expanded = expand_plan(merge, plan, semantics)
        assert expanded.channel_order == {link: tuple(Transfer(i, 1) for i in expected)}
        assert evaluate(four, expanded, semantics).feasible


def test_replicated_placements_and_calls_are_expanded() -> None:
    two = pair(op("a"), op("b"), edges=(edge("a", "b", 1),))
    plan = expand_plan(merge_ops(two, 1), Plan(((0, 1),), call=(3,)), LINK)
    assert (plan.placement, plan.call) == (((0, 1), (0, 1)), (3, 3))
