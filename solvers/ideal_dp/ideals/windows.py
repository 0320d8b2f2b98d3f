"""Windows: how many devices an ideal may be the union of, if no load exceeds a limit T.

With c hosts, an ideal I needs at least `least_accelerators(I, c)` accelerators, and what is left of
the graph needs some too. Both tests are lower bounds on work, communication and memory:

- Without a host, pieces that cover I pay at least cut(I) together, as cuts are subadditive: k
  accelerators do work(I) + cut(I) <= k T (with overlapped communication each of the two <= k T).
- With c hosts, work(I) - absorbed(c T) <= k T (`work_bound.Relief`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.kernels import kernel
from placegap.solvers.chains.ideals import Amounts, CurrentSet, IdealPath, Ideals, next_ideal, write
from placegap.solvers.chains.problem import ACCELERATOR, HOST, LARGEST_LOAD, ChainProblem
from placegap.solvers.chains.work_bound import Relief

NO_MULTIPLE = 2**30
"""More accelerators than any cluster has."""


class IdealWindows(NamedTuple):
    """What the tests need, for a limit T; the kernels' form.

    Attributes
    ----------
    limit : int
        T.
    counts, room : (2,) int64
        Number and room of accelerators and hosts.
    host_time, host_need, absorbed : (hosts + 1,) int64
        For each number of hosts: their time, their room, the accelerator work they absorb.
    total_time, total_need : (2,) int64
        Of all blocks.
    overlap : bool
    """

    limit: int
    counts: Ints
    room: Ints
    host_time: Ints
    host_need: Ints
    absorbed: Ints
    total_time: Ints
    total_need: Ints
    overlap: bool


def build_windows(problem: ChainProblem, relief: Relief, limit: int) -> IdealWindows:
    """The windows of a problem for loads up to `limit` ns."""
    hosts = range(problem.counts[HOST] + 1)
    room = int(problem.room[HOST])
    return IdealWindows(
        limit,
        np.array(problem.counts, np.int64),
        problem.room.copy(),
        np.array([min(c * limit, LARGEST_LOAD) for c in hosts], np.int64),
        np.array([min(c * room, LARGEST_LOAD) for c in hosts], np.int64),
        np.array([relief.absorbed(c * limit) for c in hosts], np.int64),
        problem.time.sum(axis=1),
        problem.need.sum(axis=1),
        problem.overlap,
    )


@kernel(allocates=False)
def _parts(amount: int, unit: int) -> int:
    """How many units hold an amount."""
    if amount <= 0:
        return 0
    return NO_MULTIPLE if unit <= 0 else -(-amount // unit)


@kernel(allocates=False)
def least_accelerators(
    w: IdealWindows, hosts: int, work: int, host_work: int, need: int, host_need: int, cut: int
) -> int:
    """Fewest accelerators that, with so many hosts, may hold a set of blocks.

    `work` and `host_work` are its times on the two kinds, `need` and `host_need` what it takes of
    their rooms, `cut` the weight of the nets that are cut between the set and the rest.
    """
    if hosts == 0:
        busy = max(work, cut) if w.overlap else work + cut
        return max(_parts(busy, w.limit), _parts(need, w.room[ACCELERATOR]))
    if host_work <= w.host_time[hosts] and host_need <= w.host_need[hosts]:
        return 0
    return max(1, _parts(work - w.absorbed[hosts], w.limit))


@kernel(allocates=False)
def window(
    w: IdealWindows, hosts: int, work: int, host_work: int, need: int, host_need: int, cut: int
) -> tuple[int, int]:
    """Fewest and most accelerators that an ideal may be the union of, with so many hosts.

    The ideal is in no window of that many hosts if the first is above the second.
    """
    fewest = least_accelerators(w, hosts, work, host_work, need, host_need, cut)
    rest = least_accelerators(
        w,
        w.counts[HOST] - hosts,
        w.total_time[ACCELERATOR] - work,
        w.total_time[HOST] - host_work,
        w.total_need[ACCELERATOR] - need,
        w.total_need[HOST] - host_need,
        cut,
    )
    return fewest, w.counts[ACCELERATOR] - rest


@kernel(allocates=False)
def walk_in_windows(
    w: IdealWindows, amounts: Amounts, now: CurrentSet, path: IdealPath, ideals: Ideals, stop: int
) -> bool:
    """Enumerate on, and keep the ideals that lie in some window; see `enumerate_ideals`."""
    s = now.sums
    while path.done[0] < stop and path.done[1] < len(ideals.members):
        if not next_ideal(amounts, now, path):
            return True
        for hosts in range(w.counts[HOST] + 1):
            fewest, most = window(w, hosts, s[1], s[2], s[3], s[4], s[0])
            if fewest <= most:
                write(now, ideals, path.done[1])
                path.done[1] += 1
                break
    return False
