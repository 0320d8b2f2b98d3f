"""Contraction: what chain plans keep together, and only that."""

import pytest
from draws import draw
from draws.chains import chain_instance

from placegap.instances import Device, Edge, Instance, Op
from placegap.instances.problem.blocks import Blocks, contract
from placegap.instances.problem.integers import UNSUPPORTED


def instance(ops: list[Op], edges: list[str], *, kinds: str = "gg") -> Instance:
    """Edges are written as two names of one letter; kinds are g (gpu) and c (cpu, a host)."""
    arcs = (Edge(producer=a, consumer=b, host_time_ns=1) for a, b in edges)
    devices = (Device(name=f"d{k}", kind=x, is_host=x == "c") for k, x in enumerate(kinds))
    return draw.instance_of("i", ops, arcs, devices)


def op(name: str, time_ns: int = 1, **fields: object) -> Op:
    return Op(name=name, time_ns={"g": time_ns, "c": time_ns}, **fields)  # type: ignore[arg-type]


def arcs(blocks: Blocks) -> list[tuple[int, int]]:
    return list(zip(blocks.arc_tail.tolist(), blocks.arc_head.tolist(), strict=True))


def test_a_colocation_group_is_a_block_with_the_sums_of_its_ops() -> None:
    ops = [
        op("a", 2, colocation="w", resident_bytes=3),
        op("b", 5),
        Op(name="c", time_ns={"g": 4}, colocation="w", resident_bytes=7),
    ]
    blocks = contract(instance(ops, [], kinds="gc"))
    assert blocks.block[0] == blocks.block[2] != blocks.block[1]
    together, alone = blocks.block[[0, 1]].tolist()
    assert blocks.time_ns[together].tolist() == [6, UNSUPPORTED]
    assert blocks.time_ns[alone].tolist() == [5, 5]
    assert blocks.resident_bytes[together] == 10


def test_groups_that_feed_each_other_become_one_block() -> None:
    # group w = {a, d} feeds v = {b, c} through a -> b, and v feeds w through c -> d
    ops = [op("a", colocation="w"), op("b", colocation="v"), op("c", colocation="v")]
    blocks = contract(instance([*ops, op("d", colocation="w")], ["ab", "cd"]))
    assert blocks.num_blocks == 1


def test_backward_ops_follow_their_group_and_add_no_arcs() -> None:
    # f -> g forward; the backward path G -> F runs the other way without making a cycle of blocks
    ops = [op("f", colocation="1"), op("g", colocation="2")]
    ops += [op("G", colocation="2", backward=True), op("F", colocation="1", backward=True)]
    blocks = contract(instance(ops, ["fg", "gG", "GF"]))
    assert blocks.block.tolist() == [0, 1, 1, 0]
    assert arcs(blocks) == [(0, 1)]


def test_a_backward_group_without_forward_op_has_reversed_arcs() -> None:
    # the group of b has no forward op: its edge b -> B is the arc B -> b between the blocks
    ops = [op("f", colocation="1"), op("b", backward=True), op("B", backward=True, colocation="1")]
    blocks = contract(instance(ops, ["bB"]))
    f, b, _ = blocks.block.tolist()
    assert arcs(blocks) == [(f, b)]


def test_an_idle_op_joins_its_only_neighbour() -> None:
    blocks = contract(instance([op("a", 0), op("b"), op("c"), op("d", 0)], ["ab", "bc", "cd"]))
    assert blocks.block.tolist() == [0, 0, 1, 1]
    row = [op("a", 0), op("b", 0), op("c", 0), op("d")]
    assert contract(instance(row, ["ab", "bc", "cd"])).num_blocks == 1
    assert contract(instance(row, [])).num_blocks == 1  # without edges they join some block


@pytest.mark.parametrize(
    ("ops", "edges"),
    [
        ([op("a", 0), op("b"), op("c")], ["ab", "ac"]),  # b and c may part
        ([Op(name="a", time_ns={"g": 0}), op("b")], ["ab"]),  # b may go where a cannot
        ([Op(name="a", time_ns={"g": 0, "c": 1}), op("b")], ["ab"]),  # a takes time on c
        ([Op(name="a", time_ns={"c": 0}), Op(name="b", time_ns={"g": 1})], []),  # never together
    ],
)
def test_an_idle_op_stays_alone_where_joining_could_cost(ops: list[Op], edges: list[str]) -> None:
    assert contract(instance(ops, edges, kinds="gc")).num_blocks == len(ops)


def test_an_idle_op_may_join_a_neighbour_that_runs_on_fewer_devices() -> None:
    ops = [Op(name="a", time_ns={"g": 0, "c": 1}), Op(name="b", time_ns={"g": 1})]
    blocks = contract(instance(ops, ["ab"], kinds="gc"))
    assert blocks.num_blocks == 1
    assert blocks.time_ns.tolist() == [[1, UNSUPPORTED]]


def test_blocks_are_numbered_topologically_and_arcs_are_sorted_and_single() -> None:
    for seed in range(20):
        blocks = contract(chain_instance(seed), merge_idle=seed % 2 == 0)
        assert sorted(set(blocks.block.tolist())) == list(range(blocks.num_blocks))
        assert (blocks.arc_tail < blocks.arc_head).all()
        assert arcs(blocks) == sorted(set(arcs(blocks)))
