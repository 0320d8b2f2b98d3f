"""Times through sections with groups in their places are at least those of arcs.

Transfers inside a section follow each other on their channels.
"""

import numpy as np
import pytest
from draws import draw
from draws.training_steps import training_step

from placegap.instances import Edge, Instance, Makespan, Op
from placegap.instances.problem import Channels, Transfers
from placegap.instances.problem.integers import NO_WAY
from placegap.instances.problem.sections import Interval, choose_chain, interval
from placegap.solvers.bounds.labels.nested_layers import SectionTimes, ways_to_place
from placegap.solvers.bounds.work_windows import (
    channel_table,
    interval_arcs,
    port_gap,
    section_edges,
    work_windows,
)

SEMANTICS = Makespan()


def times_of(instance: Instance) -> SectionTimes | None:
    windows = work_windows(instance, SEMANTICS)
    chain = choose_chain(instance, windows.intervals)
    if any(part.entry is None or part.exit is None for part in chain):
        return None
    return SectionTimes(instance, SEMANTICS, chain, windows)


def test_a_placed_group_is_nowhere_else() -> None:
    instance = training_step(2, 3)
    times = times_of(instance)
    group = int(instance.arrays.group[0])
    found = times.through(range(1), (group,), ways_to_place([[0, 1]]))
    # f0 takes 10 ns, and its tensor 3 ns if f1 is elsewhere
    assert found.tolist() == [[[10, 13], [NO_WAY, NO_WAY]], [[NO_WAY, NO_WAY], [13, 10]]]


def test_no_groups_are_placed_in_one_way() -> None:
    assert ways_to_place([]).shape == (1, 0)
    assert ways_to_place([[0], []]).shape == (0, 2)


def fork_of_two() -> Instance:
    """A fork sends 5 bytes to two ops of 1 ns, and a join waits for both; links of 1 GB/s."""
    ops = [Op(name=name, time_ns={"gpu": 1}) for name in ("fork", "x", "y", "join")]
    edges = [
        Edge(producer=u, consumer=v, bytes=5, tensor=u)
        for u, v in (("fork", "x"), ("fork", "y"), ("x", "join"), ("y", "join"))
    ]
    devices = draw.devices(["gpu"] * 2)
    return draw.instance_of("fork", ops, edges, devices, draw.fast_links(devices))


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
    time[1:3, 0] = NO_WAY  # x and y are on the second
    arcs = interval_arcs(
        instance, [Interval(0, 3, (1, 2))], time, np.ones(4, np.int64), np.ones(2, np.int64)
    )
    edges = section_edges(instance, interval(instance, (1, 2), 0, 3), semantics)
    channels = channel_table(semantics, 2)
    least = port_gap(arcs.gap_ns[0], time[1:3], arcs.head_ns, arcs.tail_ns, edges, channels)
    assert (least[0, 1], least[0, 0]) == (there, there_and_home)
