"""What devices of each kind can hold: their frontiers, and grids of loads over them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placegap.instances.arrays import UNSUPPORTED
from placegap.instances.index import Ints
from placegap.instances.nets import Nets
from placegap.solvers.covering_lp import Flags
from placegap.solvers.elimination_order import elimination_orders
from placegap.solvers.frontier import Frontier, build_frontier
from placegap.solvers.frontier_pricing import Grid, build_grid
from placegap.solvers.split_problem import SplitProblem

MOST_MOVES = 200_000
"""Frontiers with more moves leave out their lightest nets; the bound stays valid."""

MOST_BYTES = 500_000_000
"""Memory for the choices of one pricing."""


@dataclass(frozen=True, eq=False)
class Pricer:
    """What devices of each kind can hold.

    Attributes
    ----------
    problem : SplitProblem
    counts : tuple of int
        Devices of each kind.
    frontiers : tuple of Frontier
    weights : tuple of (e_k,) int64
        Weights of the nets that each kind's frontier knows.
    """

    problem: SplitProblem
    counts: tuple[int, ...]
    frontiers: tuple[Frontier, ...]
    weights: tuple[Ints, ...]

    def cells(self, work: float, fewest: int, most: int) -> int:
        """Cells of a grid, so that moves times cells is about `work`."""
        moves = max(len(frontier.source) for frontier in self.frontiers)
        states = max(int(frontier.num_states.sum()) for frontier in self.frontiers)
        return min(most, max(fewest, int(work / moves)), MOST_BYTES // states)

    def grids(self, unit_ns: int, num_cells: int, active: Flags | None = None) -> tuple[Grid, ...]:
        """Loads of every kind in cells; only active blocks may be held."""
        problem, grids = self.problem, []
        for kind, devices in enumerate(problem.members()):
            k = devices[0]
            allowed = (problem.time_ns[:, k] != UNSUPPORTED) & (
                problem.size_bytes <= problem.memory_bytes[k]
            )
            if active is not None:
                allowed &= active
            time_ns = np.maximum(problem.time_ns[:, k], 0)
            grids.append(
                build_grid(
                    self.frontiers[kind], time_ns, self.weights[kind], allowed, unit_ns, num_cells
                )
            )
        return tuple(grids)


def build_pricer(problem: SplitProblem) -> Pricer:
    """Elimination orders and frontiers for every kind of device."""
    frontiers, weights, known = [], [], {}
    members = problem.members()
    for devices in members:
        paid = np.flatnonzero(problem.nets.weight_ns[:, devices[0]] > 0)
        nets = select_nets(problem.nets, paid)
        key = nets.pin.tobytes(), nets.net_ptr.tobytes()
        if key not in known:
            known[key] = _light_frontier(nets, problem.num_blocks)
        frontier, kept = known[key]
        frontiers.append(frontier)
        weights.append(nets.weight_ns[kept, devices[0]])
    counts = tuple(len(devices) for devices in members)
    return Pricer(problem, counts, tuple(frontiers), tuple(weights))


def select_nets(nets: Nets, kept: Ints) -> Nets:
    """Some of the nets, in that order."""
    pins = [nets.pin[nets.net_ptr[e] : nets.net_ptr[e + 1]] for e in kept.tolist()]
    sizes = np.array([len(own) for own in pins], np.int64)
    net_ptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    pin = np.concatenate([np.zeros(0, np.int64), *pins])
    order = np.argsort(pin, kind="stable")
    num_blocks = len(nets.block_ptr) - 1
    block_ptr = np.concatenate(
        [np.zeros(1, np.int64), np.cumsum(np.bincount(pin, minlength=num_blocks))]
    )
    owner = np.repeat(np.arange(len(pins)), sizes)[order]
    return Nets(net_ptr, pin, block_ptr, owner, nets.weight_ns[kept])


def _light_frontier(nets: Nets, num_blocks: int) -> tuple[Frontier, Ints]:
    """A frontier with few enough moves, and the nets that it knows.

    Nets that are left out cost nothing: loads only fall.
    """
    kept = np.arange(nets.num_nets)
    by_weight = np.argsort(-nets.weight_ns.max(axis=1, initial=0), kind="stable")
    while True:
        chosen = select_nets(nets, kept)
        for order in elimination_orders(chosen, num_blocks)[:2]:
            frontier = build_frontier(chosen, order, MOST_MOVES)
            if frontier is not None:
                return frontier, kept
        kept = np.sort(by_weight[: len(kept) * 4 // 5])
