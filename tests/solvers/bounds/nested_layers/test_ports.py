"""Transfers inside a section follow each other on their channels."""

from __future__ import annotations

import numpy as np
import pytest

from placegap.instances import Cluster, Device, Edge, Graph, Instance, Link, Makespan, Op
from placegap.instances.problem.integers import NO_WAY
from placegap.instances.problem.sections import Interval, interval
from placegap.instances.problem.semantics import Channels, Transfers
from placegap.solvers.bounds.interval_arcs import interval_arcs
from placegap.solvers.bounds.nested_layers.ports import channel_table, port_gap, section_edges


def fork_of_two() -> Instance:
    """A fork sends 5 bytes to two ops of 1 ns, and a join waits for both; links of 1 GB/s."""
    ops = tuple(Op(name=name, time_ns={"gpu": 1}) for name in ("fork", "x", "y", "join"))
    edges = tuple(
        Edge(producer=u, consumer=v, bytes=5, tensor=u)
        for u, v in (("fork", "x"), ("fork", "y"), ("x", "join"), ("y", "join"))
    )
    devices = tuple(Device(name=name, kind="gpu") for name in "ab")
    links = tuple(
        Link(source=u, target=v, bandwidth_bytes_per_s=10**9) for u, v in (("a", "b"), ("b", "a"))
    )
    graph = Graph(name="fork", ops=ops, edges=edges)
    return Instance(name="f", graph=graph, cluster=Cluster(name="p", devices=devices, links=links))


@pytest.mark.parametrize(
    ("channels", "transfers", "there", "there_and_home"),
    [
        # two transfers out of a and into b, then one op
        ("port", "per_edge", 5 + 5 + 1, 5 + 5 + 1 + 5),
        # one transfer, then both ops; home one after the other, once the first op has ended
        ("port", "per_tensor", 5 + 1 + 1, 5 + 1 + 5 + 5),
        ("link", "per_edge", 5 + 5 + 1, 5 + 5 + 1 + 5),
        # all four on one channel
        ("half_duplex", "per_edge", 5 + 5 + 1, 4 * 5),
        ("free", "per_edge", 5 + 1 + 1, 5 + 1 + 1 + 5),
    ],
)
def test_what_shares_a_channel_follows_each_other(
    channels: Channels, transfers: Transfers, there: int, there_and_home: int
) -> None:
    instance, semantics = fork_of_two(), Makespan(channels=channels, transfers=transfers)
    time = instance.arrays.time_ns.copy()
    time[1:3, 0] = NO_WAY  # x and y are on b
    arcs = interval_arcs(
        instance, [Interval(0, 3, (1, 2))], time, np.ones(4, np.int64), np.ones(2, np.int64)
    )
    edges = section_edges(instance, interval(instance, (1, 2), 0, 3), semantics)
    least = port_gap(
        arcs.gap_ns[0], time[1:3], arcs.head_ns, arcs.tail_ns, *edges, *channel_table(semantics, 2)
    )
    assert (least[0, 1], least[0, 0]) == (there, there_and_home)
