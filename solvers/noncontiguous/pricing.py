"""The sets that devices of each kind can hold: their frontiers, and grids of loads over them.

If a device holds a set S within load T and its memory, then

    sum over v in S of (work * time(v) + rent * size(v) / memory) + transfer * cut(S)
        <= (work + transfer) * T + rent       where transfers overlap with the work
        <= work * T + rent                    where they add up, with transfer = work

for any work, transfer and rent >= 0, as the bytes of S are at most the memory. The knapsack over a
frontier has one dimension: the left side is the load that it counts. So `rent` is the Lagrange
multiplier of the memory (Geoffrion 1974), work and transfer are those of the two loads that
overlap, and each choice of the three (`Weights`) gives valid bounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Floats, Ints
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.instances.problem.nets import index_nets
from placegap.solvers.core.clock import Clock
from placegap.solvers.noncontiguous.knapsack import (
    Frontier,
    Grid,
    build_frontier,
    build_grid,
    elimination_orders,
    find_steps,
)
from placegap.solvers.noncontiguous.problem import SplitProblem

MOST_MOVES = 200_000  # if a frontier has more, its lightest nets are left out; the bound is valid
LIGHTER = 0.8  # share of the nets that each further try keeps
MOST_BYTES = 500_000_000  # memory for the choices of one pricing
LONGEST_NS = 2**56  # total work times devices above which `Weights` other than 1 might overflow
OVERLAPS = ((1, 0), (7, 1), (3, 1), (1, 1))  # work and transfer that are tried if the two overlap
# Rents that are tried, as fractions of the value of the best plan.
RENTS = ((0, 1), (1, 4), (1, 2), (1, 1), (2, 1))


class Weights(NamedTuple):
    """Weights of work and transfers, and the rent of all memory of a device."""

    work: int = 1
    transfer: int = 1
    rent_ns: int = 0


class DeviceKind(NamedTuple):
    """Frontier and weighted loads of the devices of a kind."""

    frontier: Frontier
    #: load_ns, weight_ns: (b,): Weighted load of each block, and of each net if it is cut.
    load_ns: Ints
    weight_ns: Ints
    #: scale, spare_ns: A set within load T has at most ``scale * T + spare_ns`` of them.
    scale: int
    spare_ns: int


@dataclass(frozen=True, eq=False)
class Pricer:
    """The frontiers of all kinds of devices of a problem, with one choice of weights."""

    problem: SplitProblem
    counts: tuple[int, ...]  # devices of each kind
    kinds: tuple[DeviceKind, ...]
    rent_ns: Ints  # (b,) int64: Mean rent of each block
    threads: int = 1  # most kinds that are priced at a time

    @property
    def order(self) -> Ints:
        """The elimination order of the kind with most moves."""
        return max((kind.frontier for kind in self.kinds), key=lambda f: len(f.source)).order

    @property
    def num_moves(self) -> int:
        """Moves of the longest frontier."""
        return max(len(kind.frontier.source) for kind in self.kinds)

    def cells(self, value_ns: int, work: float, fewest: int, most: int) -> int:
        """Number of cells of a grid up to a value such that moves times cells is about `work`."""
        moves = self.num_moves
        states = max(int(kind.frontier.num_states.sum()) for kind in self.kinds)
        spare = max(kind.spare_ns // kind.scale for kind in self.kinds)
        # `best_sets` keeps a byte per state and cell; cells for the rent come before cell 0.
        room = int(MOST_BYTES / states / (1 + spare / max(1, value_ns)))
        return max(1, min(most, max(fewest, int(work / moves)), room))

    def grids(self, unit_ns: int, num_cells: int) -> tuple[Grid, ...]:
        """The moves of every kind in cells of loads."""
        problem, grids = self.problem, []
        for kind, devices in zip(self.kinds, problem.members(), strict=True):
            k = devices[0]
            allowed = (problem.time_ns[:, k] != UNSUPPORTED) & (
                problem.size_bytes <= problem.memory_bytes[k]
            )
            unit = unit_ns * kind.scale
            grids.append(
                build_grid(
                    kind.frontier,
                    kind.load_ns,
                    kind.weight_ns,
                    allowed,
                    unit,
                    num_cells,
                    spare=-(-kind.spare_ns // unit),
                )
            )
        return tuple(grids)

    def first_prices(self) -> Floats:
        """First prices: a block's time on its fastest device, and its rent."""
        # They prove about what the work alone proves. A thousandth of the mean time gives a price
        # to blocks that take no time on some device.
        problem = self.problem
        refused = problem.time_ns == UNSUPPORTED
        time = np.where(refused, 0, problem.time_ns).astype(np.float64)
        mean = time.sum(axis=1) / (~refused).sum(axis=1) + 1.0
        fast: Floats = np.where(refused, np.inf, time).min(axis=1) + 1e-3 * mean
        return fast + self.rent_ns


def build_pricer(
    problem: SplitProblem,
    weights: Weights | None = None,
    threads: int = 1,
    like: Pricer | None = None,
    clock: Clock | None = None,
) -> Pricer:
    """The pricer of some weights; frontiers do not depend on them and may come from another one."""
    if weights is None:
        weights = Weights(1, 0) if problem.overlap else Weights()
    members = problem.members()
    found = _frontiers(problem, clock) if like is None else [kind.frontier for kind in like.kinds]
    kinds, rents_ns = [], np.zeros(problem.num_blocks, np.int64)
    for frontier, (k, *same) in zip(found, members, strict=True):
        rent_ns = _rents_ns(problem, k, weights)
        rents_ns += rent_ns * (1 + len(same))
        kinds.append(
            DeviceKind(
                frontier,
                weights.work * np.maximum(problem.time_ns[:, k], 0) + rent_ns,
                weights.transfer * problem.nets.weight_ns[:, k],
                weights.work + weights.transfer * problem.overlap,
                weights.rent_ns if rent_ns.any() else 0,
            )
        )
    counts = tuple(len(devices) for devices in members)
    return Pricer(problem, counts, tuple(kinds), rents_ns // problem.num_devices, threads)


def _rents_ns(problem: SplitProblem, k: int, weights: Weights) -> Ints:
    """Rent of each block on a device: blocks that fit together pay at most all rent."""
    # Rounded down block by block, and none where memory holds everything or nothing.
    memory_bytes = int(problem.memory_bytes[k])
    if memory_bytes in (0, int(problem.size_bytes.sum())):
        return np.zeros(problem.num_blocks, np.int64)
    sizes = np.minimum(problem.size_bytes, memory_bytes).tolist()
    return np.array([size * weights.rent_ns // memory_bytes for size in sizes], np.int64)


def choices(problem: SplitProblem, value_ns: int) -> Iterator[Weights]:
    """Weights worth trying: without rent if memory holds everything, (1, 1) without overlap."""
    longest = int(problem.time_ns.max(initial=0)) * problem.num_blocks
    heaviest = sum(problem.nets.weight_ns.max(axis=1, initial=0).tolist())
    safe = (longest + heaviest + value_ns) * problem.num_devices < LONGEST_NS
    roomy = bool((problem.memory_bytes >= problem.size_bytes.sum()).all())
    for work, transfer in OVERLAPS[: None if safe else 1] if problem.overlap else ((1, 1),):
        for part, whole in RENTS[:1] if roomy or not safe else RENTS:
            scale = work + transfer if problem.overlap else work
            yield Weights(work, transfer, part * scale * value_ns // whole)


def _frontiers(problem: SplitProblem, clock: Clock | None = None) -> list[Frontier]:
    """A frontier for each kind over the nets that it pays for; kinds of equal nets share one."""
    known: dict[bytes, Frontier] = {}
    found = []
    for k, *_ in problem.members():
        paid = problem.nets.weight_ns[:, k] > 0
        key = paid.tobytes()
        if key not in known:
            known[key] = _light_frontier(problem, np.flatnonzero(paid), clock)
        found.append(known[key])
    return found


def _light_frontier(problem: SplitProblem, paid: Ints, clock: Clock | None = None) -> Frontier:
    """A frontier with few enough moves, over the heaviest nets if all are too many."""
    # A net that is left out costs nothing: loads only fall, so bounds stay valid. Shares of 1, 4/5,
    # (4/5)^2, ... of the nets are tried by bisection.
    nets, b = problem.nets, problem.num_blocks
    by_weight = paid[np.argsort(-nets.weight_ns[paid].max(axis=1, initial=0), kind="stable")]

    def tried(step: int) -> Frontier | None:
        kept = by_weight[: int(len(paid) * LIGHTER**step)]
        known = np.zeros(nets.num_nets, np.bool_)
        known[kept] = True
        sizes = np.diff(nets.net_ptr)
        pin, weight_ns = nets.pin[np.repeat(known, sizes)], nets.weight_ns[known]
        chosen = index_nets(sizes[known], pin, weight_ns, b)
        for order in elimination_orders(chosen, b, clock)[:2]:
            steps = find_steps(nets, np.array(order, np.int64))
            frontier = build_frontier(nets, steps, known, MOST_MOVES, clock)
            if frontier is not None:
                return frontier
        return None

    best = tried(0)
    if best is not None:
        return best
    least, most = 0, math.ceil(math.log(max(2, len(paid))) / -math.log(LIGHTER)) + 1
    while most - least > 1:
        middle = (least + most) // 2
        found = tried(middle)
        best, least, most = (best, middle, most) if found is None else (found, least, middle)
    if best is None:
        best = tried(most)
    assert best is not None  # no net at all is left
    return best
