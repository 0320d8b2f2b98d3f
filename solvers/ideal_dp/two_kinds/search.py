"""The ideal DP over layers (accelerators, hosts), for loads up to a limit (Tarnawski et al., 5.1).

value(k, h, I) is the least max_load when k accelerators and h hosts, in any order, take ideal I. A
layer holds the ideals in its window (`ideals.windows`) whose value is at most the limit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numba import njit

from placegap.instances.problem.graph_index import Ints
from placegap.solvers.chains.problem import ACCELERATOR, HOST, ChainProblem, Indices
from placegap.solvers.chains.slice_two_kinds import Slices
from placegap.solvers.chains.work_bound import Relief
from placegap.solvers.core.clock import Clock, LimitReached
from placegap.solvers.ideal_dp.ideals.ideals import Ideals, all_blocks
from placegap.solvers.ideal_dp.ideals.source_tree import build_sources
from placegap.solvers.ideal_dp.ideals.windows import Windows, build_windows, window
from placegap.solvers.ideal_dp.two_kinds.transitions import relax, see

BUDGET = 2_000_000
"""Nodes of trees between two looks at the clock."""


class TooManyNodes(Exception):
    """The search has looked at as many nodes as it may."""


@dataclass(frozen=True, eq=False)
class _Layer:
    """States of one layer: ideals, values, and 2 * (state before) + kind of the last device."""

    ideal: Indices
    value: Ints
    origin: Indices


class Search:
    """The DP over a list of ideals of a problem, the empty ideal and the full one among them.

    Ideals that are not in the list are not used: with all of them the search is exact, with some it
    is a heuristic.
    """

    def __init__(
        self, problem: ChainProblem, relief: Relief, ideals: Ideals, clock: Clock, max_states: int,
        max_nodes: int | None = None,
    ) -> None:  # fmt: skip
        self.problem = problem
        self.relief = relief
        self.ideals = ideals
        self.clock = clock
        self.max_states = max_states
        self.nodes_left = max_nodes
        self._views = [see(problem, ideals, kind) for kind in (ACCELERATOR, HOST)]
        full = all_blocks(problem)
        self._empty, self._full = ideals.find(np.zeros_like(full)), ideals.find(full)

    def best(self, limit: int, enough: int) -> Slices | None:
        """A split of least load, or None if none has at most `limit`.

        Loads up to `enough` are all good: the search for better ones ends there. With `enough` a
        lower bound the split is optimal; with ``enough == limit`` this only decides.

        Raises
        ------
        LimitReached
            If the time is over or there are more than `max_states` states.
        TooManyNodes
            If all runs together have looked at more than `max_nodes` nodes of trees.
        """
        accelerators, hosts = self.problem.counts
        windows = build_windows(self.problem, self.relief, limit)
        layers: dict[tuple[int, int], _Layer] = {}
        values: dict[tuple[int, int], Ints] = {}
        found: tuple[int, int, int, int] | None = None
        states = 0
        for h in range(hosts + 1):
            fewest, most = _windows_of(
                windows, h, self.ideals.time, self.ideals.need, self.ideals.cut
            )
            for k in range(accelerators + 1):
                if (k, h) == (0, 0):
                    start = np.array([self._empty], np.int32)
                    layer = _Layer(start, np.zeros(1, np.int64), np.zeros(1, np.int32))
                    known = np.full(self.ideals.size, limit + 1, np.int64)
                else:
                    known = _least(values, k, h)
                    inside = (fewest <= k) & (k <= most) & (known > enough)
                    if (k, h) == (accelerators, hosts):
                        inside[: self._full] = inside[self._full + 1 :] = False
                    targets = np.flatnonzero(inside).astype(np.int32)
                    layer = self._layer(targets, known[targets], k, h, layers, enough)
                known[layer.ideal] = layer.value
                layers[k, h], values[k, h] = layer, known
                values.pop((k, h - 1), None)
                if not hosts:
                    values.pop((k - 1, h), None)
                states += len(layer.ideal)
                if states > self.max_states:
                    raise LimitReached(f"{states} states of the ideal DP fill the memory")
                done = (k, h - 1) if h else (k - 1, h) if not hosts else (-1, -1)
                if done in layers:  # nothing extends it any more: only its path is needed
                    layers[done] = replace(layers[done], value=np.zeros(0, np.int64))
                full = np.flatnonzero(layer.ideal == self._full)
                if len(full) and (found is None or known[self._full] < found[0]):
                    found = int(known[self._full]), k, h, int(full[0])
                if found is not None and found[0] <= enough:
                    return self._split(layers, *found)
        return None if found is None else self._split(layers, *found)

    def _layer(
        self, targets: Indices, value: Ints, k: int, h: int,
        layers: dict[tuple[int, int], _Layer], enough: int,
    ) -> _Layer:  # fmt: skip
        """Extend the layers with one accelerator less and with one host less.

        Only states whose value is below what they inherit are new, and are extended in turn: what
        the others reach is reached with fewer devices.
        """
        origin = np.full(len(targets), -1, np.int32)
        for kind, before in ((ACCELERATOR, (k - 1, h)), (HOST, (k, h - 1))):
            if before not in layers or len(layers[before].ideal) == 0:
                continue
            view, layer = self._views[kind], layers[before]
            sources = build_sources(
                layer.ideal, layer.value, view.need, view.potential, view.members
            )
            at = 0
            while at < len(targets):
                at, looked = relax(view, sources, targets, value, origin, kind, enough, at, BUDGET)
                self.clock.check()
                if self.nodes_left is not None:
                    self.nodes_left -= looked
                    if self.nodes_left < 0:
                        raise TooManyNodes
        new = origin >= 0
        return _Layer(targets[new], value[new], origin[new])

    def _split(
        self, layers: dict[tuple[int, int], _Layer], value: int, k: int, h: int, at: int
    ) -> Slices:
        """Walk back from a state of the full ideal."""
        kind_of, number = (np.zeros(self.problem.num_blocks, np.int64) for _ in range(2))
        while (k, h) != (0, 0):
            layer = layers[k, h]
            before, kind = divmod(int(layer.origin[at]), 2)
            inside, at = self.ideals.members[layer.ideal[at]], before
            k, h = (k - 1, h) if kind == ACCELERATOR else (k, h - 1)
            outside = self.ideals.members[layers[k, h].ideal[at]]
            taken = _blocks_of(inside & ~outside, self.problem.num_blocks)
            kind_of[taken], number[taken] = kind, k if kind == ACCELERATOR else h
        return Slices(value, kind_of, number)


def _least(values: dict[tuple[int, int], Ints], k: int, h: int) -> Ints:
    """What one device less achieves, (N,)."""
    before = [values[at] for at in ((k - 1, h), (k, h - 1)) if at in values]
    return np.minimum(*before) if len(before) == 2 else before[0].copy()


def _blocks_of(members: Ints, num_blocks: int) -> Ints:
    """Blocks of a bit set."""
    bits = np.unpackbits(members.view(np.uint8), bitorder="little", count=num_blocks)
    return np.flatnonzero(bits)


@njit(cache=True)
def _windows_of(
    w: Windows, hosts: int, time: Ints, need: Ints, cut: Ints
) -> tuple[Indices, Indices]:
    """Fewest and most accelerators of each ideal with so many hosts."""
    fewest, most = np.zeros(len(cut), np.int32), np.zeros(len(cut), np.int32)
    for i in range(len(cut)):
        fewest[i], most[i] = window(
            w, hosts, time[i, 0], time[i, 1], need[i, 0], need[i, 1], cut[i]
        )
    return fewest, most
