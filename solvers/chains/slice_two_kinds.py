"""Upper bounds on max_load: cut one topological order into segments, optimally.

Every segment of a topological order is the difference of two ideals, so this is a restriction of
the ideal DP to one chain. For b blocks, a accelerators and h hosts O(b^2 a h + pins), less where a
limit T ends the segments early.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.kernels import kernel
from placegap.solvers.chains.orders import places_to_cut
from placegap.solvers.chains.problem import ACCELERATOR, HOST, ChainProblem, CutNets, Indices
from placegap.solvers.chains.slices import joining_costs, leave_behind, touched_nets


@dataclass(frozen=True)
class Slices:
    """Blocks on devices: the kind, and the number among its kind, of each block's device."""

    value: int
    kind: Ints
    number: Ints

    def devices(self, problem: ChainProblem) -> Ints:
        """Device of each op."""
        table = [np.array(own, np.int64) for own in problem.devices]
        of_block = np.empty(problem.num_blocks, np.int64)
        for kind in (ACCELERATOR, HOST):
            here = self.kind == kind
            of_block[here] = table[kind][self.number[here]]
        return of_block[problem.blocks.block]


def best_slices(problem: ChainProblem, order: Ints, limit: int) -> Slices | None:
    """Least max_load over all ways to cut the order, or None if none has at most `limit`.

    Examples
    --------
    The diamond on one device takes 43 ns; ops 1 and 3 on one and 2 and 4 on the other have loads of
    5 + 10 + 1 + 10 and 20 + 8 + 1 + 10:

    >>> from placegap.instances import example
    >>> from placegap.solvers.chains.problem import build_problem
    >>> problem = build_problem(example())
    >>> best_slices(problem, np.array([0, 2, 1, 3]), 100).value
    39
    """
    stops = places_to_cut(order, problem.time.max(axis=0), problem.nets)
    accelerators, hosts = problem.counts
    value, k, c, origin = _slice(
        order,
        stops,
        problem.time,
        problem.need,
        problem.room,
        problem.nets,
        accelerators,
        hosts,
        problem.overlap,
        limit,
    )
    if value > limit:
        return None
    kind, number = np.zeros(len(order), np.int64), np.zeros(len(order), np.int64)
    at = len(stops) - 1
    while at > 0:
        before, its_kind = divmod(int(origin[at, k, c]), 2)
        k, c = (k, c - 1) if its_kind == HOST else (k - 1, c)
        segment = order[stops[before] : stops[at]]
        kind[segment], number[segment] = its_kind, c if its_kind == HOST else k
        at = before
    return Slices(int(value), kind, number)


@kernel
def _slice(
    order: Ints,
    stops: Ints,
    time: Ints,
    need: Ints,
    room: Ints,
    nets: CutNets,
    accelerators: int,
    hosts: int,
    overlap: bool,
    limit: int,
) -> tuple[int, int, int, Indices]:
    """Shortest chain of segments: the value, the devices of each kind in use, and where from.

    ``value[j, k, c]`` is the least load of k accelerators and c hosts that share the order up to
    stop j, and ``origin[j, k, c]`` 2 * (stop before) + kind of the last device.
    """
    last = len(stops) - 1
    value = np.full((last + 1, accelerators + 1, hosts + 1), limit + 1, np.int64)
    origin = np.zeros(value.shape, np.int32)
    value[0, 0, 0] = 0
    weight = nets.weight.copy().reshape(-1, 1)
    touched = touched_nets(order, stops, nets)
    joining = joining_costs(touched, weight)
    time_of, need_of = _in_buckets(order, stops, time), _in_buckets(order, stops, need)
    for i in range(last):
        if i > 0:
            leave_behind(touched, weight, joining, i - 1)
        if value[i].min() > limit:
            continue
        work = host_work = size = host_size = cut = np.int64(0)
        for j in range(i + 1, last + 1):
            cut += joining[j - 1, 0]
            work += time_of[ACCELERATOR, j - 1]
            host_work += time_of[HOST, j - 1]
            size += need_of[ACCELERATOR, j - 1]
            host_size += need_of[HOST, j - 1]
            on_accelerator = size <= room[ACCELERATOR] and work <= limit and accelerators > 0
            on_host = host_size <= room[HOST] and host_work <= limit and hosts > 0
            if not on_accelerator and not on_host:
                break
            load = max(work, cut) if overlap else work + cut
            for k in range(accelerators + 1):
                for c in range(hosts + 1):
                    before = value[i, k, c]
                    if before > limit:
                        continue
                    if on_accelerator and k < accelerators and load <= limit:
                        now = max(before, load)
                        if now < value[j, k + 1, c]:
                            value[j, k + 1, c], origin[j, k + 1, c] = now, 2 * i + ACCELERATOR
                    if on_host and c < hosts:
                        now = max(before, host_work)
                        if now < value[j, k, c + 1]:
                            value[j, k, c + 1], origin[j, k, c + 1] = now, 2 * i + HOST
    best, best_k, best_c = limit + 1, 0, 0
    for k in range(accelerators + 1):
        for c in range(hosts + 1):
            if value[last, k, c] < best:
                best, best_k, best_c = value[last, k, c], k, c
    return best, best_k, best_c, origin


@kernel
def _in_buckets(order: Ints, stops: Ints, quantity: Ints) -> Ints:
    """Sums of the rows of a quantity of blocks over what lies between two stops."""
    total = np.zeros((len(quantity), len(stops) - 1), np.int64)
    for j in range(len(stops) - 1):
        for v in order[stops[j] : stops[j + 1]]:
            total[:, j] += quantity[:, v]
    return total
