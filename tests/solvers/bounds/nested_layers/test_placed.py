"""Times through sections with groups in their places are at least those of arcs."""

from __future__ import annotations

import numpy as np
from draws.training_steps import nested_instance, training_step

from placegap.instances import Instance, Makespan
from placegap.instances.problem.integers import NO_WAY
from placegap.instances.problem.sections import Interval, choose_chain
from placegap.solvers.bounds.interval_arcs import interval_arcs
from placegap.solvers.bounds.nested_layers.placed import SectionTimes, ways_to_place
from placegap.solvers.bounds.work_windows import work_windows

SEMANTICS = Makespan()


def times_of(instance: Instance) -> SectionTimes | None:
    windows = work_windows(instance)
    assert windows is not None
    chain = choose_chain(instance, windows.intervals)
    if any(part.entry is None or part.exit is None for part in chain):
        return None
    return SectionTimes(instance, SEMANTICS, chain, windows)


def test_a_placed_group_is_nowhere_else() -> None:
    instance = training_step(2, 3)
    times = times_of(instance)
    assert times is not None
    group = int(instance.arrays.group[0])
    found = times.through(range(1), (group,), ways_to_place([[0, 1]]))
    # f0 takes 10 ns, and its tensor 3 ns if f1 is elsewhere
    assert found.tolist() == [[[10, 13], [NO_WAY, NO_WAY]], [[NO_WAY, NO_WAY], [13, 10]]]


def test_without_groups_they_are_no_less_than_arcs() -> None:
    for seed in range(40):
        instance = nested_instance(seed)
        times, windows = times_of(instance), work_windows(instance)
        if times is None or windows is None:
            continue
        chain = choose_chain(instance, windows.intervals)
        for s, part in enumerate(chain):
            arc = interval_arcs(
                instance,
                [Interval(part.ops[0], part.ops[-1], part.ops[1:-1])],
                windows.time_ns,
                windows.mass,
                windows.weights,
            )
            enter = windows.time_ns[part.ops[0]][:, None]
            least = np.minimum(enter + arc.gap_ns[0], NO_WAY)
            least[:, windows.time_ns[part.ops[-1]] >= NO_WAY] = NO_WAY
            found = times.through(range(s, s + 1), (), np.zeros((1, 0), np.int64))[0]
            assert (found >= least).all(), seed


def test_a_group_more_never_takes_less() -> None:
    for seed in range(40):
        instance = nested_instance(seed)
        times = times_of(instance)
        if times is None:
            continue
        every, group = range(instance.num_devices), int(instance.arrays.group[0])
        sections = range(len(times.parts))
        free = times.through(sections, (), np.zeros((1, 0), np.int64))[0]
        for table in times.through(sections, (group,), ways_to_place([every])):
            assert (table >= free).all(), seed


def test_no_groups_are_placed_in_one_way() -> None:
    assert ways_to_place([]).shape == (1, 0)
    assert ways_to_place([[0], []]).shape == (0, 2)
