"""Costing: the roofline, exact and recorded."""

from fractions import Fraction
from math import ceil

import pytest
from draws.draw import cluster_of as cluster

from placegap.instances import Edge, Graph, Op, Provenance
from placegap.instances.costing.catalogue import catalogue
from placegap.instances.costing.costing import cost_graph, roofline_ns, with_costs
from placegap.instances.files.document import Document


def graph(**op: object) -> Graph:
    return Graph(name="g", ops=(Op(name="a", **op),))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("flops", "bytes_moved", "shares", "time_ns"),
    [
        # T4: 8.1e12 FLOP/s, 320e9 bytes/s, 5000 ns. 8.1e9 FLOP take 1 ms, 3.2e7 bytes 0.1 ms.
        (8_100_000_000, 32_000_000, {}, 1_000_000),
        # 8.1e8 FLOP take 0.1 ms, 3.2e8 bytes 1 ms
        (810_000_000, 320_000_000, {}, 1_000_000),
        # 8101 FLOP at 8.1 FLOP/ps take 1.0001 ns, rounded up
        (8_101, 0, {}, 2),
        # half of the peak doubles the time
        (8_100_000_000, 0, {"compute_percent": 50}, 2_000_000),
        (0, 320_000_000, {"bandwidth_percent": 50}, 2_000_000),
    ],
)
def test_an_op_takes_the_longer_of_computing_and_moving_and_a_launch(
    flops: int, bytes_moved: int, shares: dict[str, int], time_ns: int
) -> None:
    assert roofline_ns(flops, bytes_moved, catalogue()["T4"], **shares) == 5_000 + time_ns
    huge = ceil(Fraction((2**61 + 1) * 10**9, 8_100_000_000_000))  # exact beyond 64 bits
    assert roofline_ns(2**61 + 1, 7, catalogue()["T4"]) == 5_000 + huge


def test_an_op_in_half_precision_takes_its_flops_over_the_rate_of_that_type() -> None:
    # T4: 65e12 FLOP/s in float16; 6.5e10 FLOP take 1 ms, in float32 6.5e10 / 8.1e12 s = 8.0247 ms
    op = {"flops": 65_000_000_000, "bytes_moved": 0}
    for dtype, time_ns in (("float16", 1_000_000), (None, 8_024_692)):
        costed = cost_graph(graph(**op, dtype=dtype), cluster("T4"))
        assert costed.ops[0].time_ns == {"T4": 5_000 + time_ns}
    half = cost_graph(graph(flops=1, dtype="float16"), cluster("T4")).provenance.parameters
    assert half["costing.T4.peak_flops_per_s.float16"] == 65 * 10**12


def test_every_kind_that_the_catalogue_knows_and_the_op_has_no_time_for_gets_one() -> None:
    costed = cost_graph(graph(flops=10**9, bytes_moved=0), cluster("P4", "T4", "T4", "mine"))
    # 1e9 / 5.5e12 = 181.8 us and 1e9 / 8.1e12 = 123.5 us
    assert costed.ops[0].time_ns == {"P4": 5_000 + 181_819, "T4": 5_000 + 123_457}
    costed = cost_graph(graph(flops=8_100_000, time_ns={"T4": 3, "x": 4}), cluster("T4", "P4"))
    assert costed.ops[0].time_ns == {"T4": 3, "x": 4, "P4": 5_000 + 1_473}


def test_what_the_times_were_made_from_is_recorded() -> None:
    mine = Provenance(source="s", licence="l", changes=("one",), parameters={"p": 1})
    before = Graph(name="g", ops=(Op(name="a", flops=1),), provenance=mine)
    after = cost_graph(before, cluster("T4"), compute_percent=40).provenance
    assert (after.source, after.licence) == ("s", "l")
    assert after.changes == ("one", "times on T4 are roofline estimates")
    assert after.parameters == {
        "p": 1,
        "costing.T4.peak_flops_per_s": 8_100_000_000_000,
        "costing.T4.bandwidth_bytes_per_s": 320_000_000_000,
        "costing.T4.launch_overhead_ns": 5_000,
        "costing.T4.source": catalogue()["T4"].source,
        "costing.T4.compute_percent": 40,
        "costing.T4.bandwidth_percent": 100,
    }


def test_costing_twice_adds_only_what_is_new() -> None:
    once = cost_graph(graph(flops=5), cluster("T4"))
    twice = cost_graph(once, cluster("T4", "P4"))
    noted = tuple(f"times on {kind} are roofline estimates" for kind in ("T4", "P4"))
    assert twice.provenance.changes == noted
    assert twice.ops[0].time_ns["T4"] == once.ops[0].time_ns["T4"]
    for nothing_to_add in (twice, graph(time_ns={"T4": 1}), graph()):
        assert cost_graph(nothing_to_add, cluster("P4")) is nothing_to_add


def test_a_document_is_costed_for_the_cluster_it_meets() -> None:
    # one of FLOP and bytes is enough, and an op that computes and moves nothing is free
    ops = (Op(name="a", flops=8_100_000), Op(name="b", bytes_moved=320_000))
    ops = (*ops, Op(name="c", bytes_moved=0, flops=0))
    of = Graph(name="g", ops=ops, edges=(Edge(producer="a", consumer="b"),))
    instance = Document(name="g", graph=with_costs(of, "roofline")).instance(cluster("T4"))
    assert instance.arrays.time_ns.tolist() == [[6_000], [6_000], [0]]
