"""Memory along a chain of intervals: what does not fit on one device must move, and pays.

The chain is one of `structure.intervals`, with what `interval_arcs` proves between each op and the
next as its arcs; `memory_runs` says what the devices' memory makes of it, with groups as stops and
with ops as stops.
"""

from __future__ import annotations

import numpy as np

from placegap.formulations.shared.devices import identical_devices
from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import NO_WAY
from placegap.instances.problem.sections import Interval, choose_chain
from placegap.solvers.bounds.interval_arcs import IntervalArcs, chain_arcs
from placegap.solvers.bounds.memory_runs import memory_runs
from placegap.solvers.bounds.work_windows import WorkWindows


def memory_bound(instance: Instance, windows: WorkWindows) -> int:
    """What memory along a chain proves of every makespan, in ns; 0 if nothing.

    Examples
    --------
    >>> from placegap.instances import example
    >>> from placegap.solvers.bounds.work_windows import work_windows
    >>> memory_bound(example(), work_windows(example()))  # memory is slack there
    0
    """
    sections = choose_chain(instance, windows.intervals)
    time, best = windows.time_ns, 0
    parts, arcs, all_tables = chain_arcs(instance, sections, time, windows.mass, windows.weights)
    tables = list(all_tables)
    if not parts:
        return 0
    before = windows.head_ns[parts[0].entry] + time[parts[0].entry]
    after = np.where(time[parts[-1].exit] < NO_WAY, windows.tail_ns[parts[-1].exit], NO_WAY)
    pointer = np.cumsum([0, *(len(part.inner) for part in parts)])
    known = len(arcs.head_ns) == pointer[-1]

    def through(s: int) -> tuple[Ints, Ints] | None:
        return _through(arcs, parts[s], slice(pointer[s], pointer[s + 1]), time) if known else None

    alike = max(map(len, identical_devices(instance)), default=1) == instance.num_devices
    for fold in (True, False):
        runs = memory_runs(
            instance,
            sections[: len(parts)],
            np.minimum(before, NO_WAY),
            np.minimum(after, NO_WAY),
            through,
            fold=fold,
        )
        least = NO_WAY if runs is None else runs.cheapest(tables).ns
        if runs is None or least >= NO_WAY:
            continue  # no plan at all: nothing that the portfolio says
        if not alike:
            runs = runs.priced(tables)
        best = max(best, runs.cheapest(tables).ns)
    return best


def _through(arcs: IntervalArcs, part: Interval, rows: slice, time: Ints) -> tuple[Ints, Ints]:
    """A `Through` by the paths of the arcs; nothing is said of the ends."""
    num_devices = time.shape[1]
    shape = (num_devices, len(part.inner) + 2, num_devices)
    before, after = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    inner = time[list(part.inner)]
    head, tail = (_spread(ways[rows], num_devices) for ways in (arcs.head_ns, arcs.tail_ns))
    before[:, 1:-1] = np.minimum(head + inner, NO_WAY)
    after[:, 1:-1] = np.minimum(tail + time[part.exit][:, None, None], NO_WAY)
    return before, after


def _spread(ways: Ints, num_devices: int) -> Ints:
    """Rows of heads or tails for all devices, (K, ops, K)."""
    if ways.shape[2] == num_devices:
        return ways.transpose(1, 0, 2)
    # all devices are alike: the end's own one, and any other
    here, there = ways[None, :, 0, 0, None], ways[None, :, 0, 2, None]
    return np.where(np.eye(num_devices, dtype=np.bool_)[:, None, :], here, there)
