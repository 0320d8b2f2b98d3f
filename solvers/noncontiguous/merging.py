"""Exact merging: blocks that some optimal plan keeps together become one.

Block v may join block u if, wherever the two are apart, bringing one to the other raises no load:
with v on device A and u on B, moving v to B leaves every device but these as it was. On B the net
{u, v} is paid no more, nets with both and others are cut there already, and at most v's other nets
become cut; on A likewise. So, with W the weight of the net {u, v} and O that of v's nets without u,

    time(v, B) + O(B) <= W(B)  and  O(A) <= W(A) + time(v, A)

make the move harmless, if B runs v and has room for it. The mirrored move, u to A, may serve
instead. Pairs of devices that a plan below the known value cannot use do not matter. Where
transfers overlap with the work, no net makes up for time, and nothing is merged.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placegap.instances.problem.array_types import Flags, Ints
from placegap.instances.problem.graph_index import freeze, group_by
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.instances.problem.nets import Nets
from placegap.solvers.core.clock import Clock
from placegap.solvers.noncontiguous.problem import SplitProblem, assemble


class Merged(NamedTuple):
    """A smaller problem with the same optimum, and plans carried over to it.

    Attributes
    ----------
    problem : SplitProblem
    home : (b,) int64
        Block of the smaller problem that each old one is part of.
    plans : list of (b',) int64
        The plans given, no heavier than they were.
    """

    problem: SplitProblem
    home: Ints
    plans: list[Ints]


def merge_blocks(
    problem: SplitProblem, value_ns: int, plans: list[Ints], clock: Clock | None = None
) -> Merged:
    """Merge until no pair qualifies, or the clock is over.

    Parameters
    ----------
    problem : SplitProblem
    value_ns : int
        Plans of at least this load need not survive.
    plans : list of (b,) int64
        Devices of the blocks in feasible plans to carry over.
    clock : Clock, optional

    Notes
    -----
    Each merge is exact for the problem that earlier ones left, so their order only decides how far
    it goes. O(b d^2 K^2) for d nets per block, in practice.

    Examples
    --------
    Op 0 of the diamond takes 5 ns and pays 20 ns if it is apart from op 2, else 1 ns to op 1: it
    joins op 2. So does op 3, which takes 8 ns, for 10 ns against 1 ns.

    >>> from placegap.instances import example
    >>> from placegap.solvers.noncontiguous.problem import build_split_problem
    >>> problem = build_split_problem(example())
    >>> merge_blocks(problem, 44, []).home.tolist()
    [1, 0, 1, 1]
    """
    merging = _Merging(problem, value_ns, plans)
    waiting = dict.fromkeys(range(0 if problem.overlap else problem.num_blocks))
    while waiting and (clock is None or clock.left_s != 0.0):
        v = next(iter(waiting))
        del waiting[v]
        if merging.home[v] != v:
            continue
        for u in merging.neighbours(v):
            if merging.may_merge(v, u):
                merging.merge(v, u)
                waiting.update(dict.fromkeys([u, *merging.neighbours(u)]))
                break
    return merging.result()


class _Merging:
    """Blocks and nets that shrink. A net is a sorted tuple of its pins."""

    def __init__(self, problem: SplitProblem, value_ns: int, plans: list[Ints]) -> None:
        self.problem = problem
        self.value_ns = value_ns
        self.time = problem.time_ns.copy()
        self.size = problem.size_bytes.copy()
        self.plans = [plan.copy() for plan in plans]
        self.home = np.arange(problem.num_blocks)
        self.roomy = bool((problem.memory_bytes >= problem.size_bytes.sum()).all())
        nets = problem.nets
        self.weight: dict[tuple[int, ...], Ints] = {}
        self.nets_of: list[dict[tuple[int, ...], None]] = [{} for _ in range(problem.num_blocks)]
        for e in range(nets.num_nets):
            pins = tuple(nets.pin[nets.net_ptr[e] : nets.net_ptr[e + 1]].tolist())
            self._add(pins, nets.weight_ns[e])

    def _add(self, pins: tuple[int, ...], weight: Ints) -> None:
        if pins in self.weight:
            self.weight[pins] = self.weight[pins] + weight
            return
        self.weight[pins] = weight
        for v in pins:
            self.nets_of[v][pins] = None

    def neighbours(self, v: int) -> list[int]:
        """Blocks that share a net of two with v; only they are tried."""
        near = {u: None for pins in self.nets_of[v] if len(pins) == 2 for u in pins if u != v}
        return list(near)

    def may_merge(self, v: int, u: int) -> bool:
        """Whether apart is never better than together, on any two devices."""
        own_v, own_u = self.nets_of[v], self.nets_of[u]
        between = self.weight[min(u, v), max(u, v)]
        none = np.zeros_like(between)
        both = sum((self.weight[pins] for pins in own_v if u in pins), none)
        rest_v = sum((self.weight[pins] for pins in own_v if u not in pins), none)
        rest_u = sum((self.weight[pins] for pins in own_u if v not in pins), none)
        # [A, B]: v is on A and u on B
        apart = self._usable(v, both)[:, None] & self._usable(u, both)[None, :]
        np.fill_diagonal(apart, val=False)
        apart &= ~self._harmless(v, between, rest_v)
        apart &= ~self._harmless(u, between, rest_u).T
        return not apart.any()

    def _usable(self, v: int, cut: Ints) -> Flags:
        """Devices that v can be on, with nets worth `cut` cut, in a plan that matters."""
        time = self.time[v]
        fits = (time != UNSUPPORTED) & (self.size[v] <= self.problem.memory_bytes)
        return np.asarray(fits & (time + cut < self.value_ns))

    def _harmless(self, v: int, between: Ints, rest: Ints) -> Flags:
        """[A, B]: whether v may go from A to B, where the other one is."""
        time = self.time[v]
        arrives = (time != UNSUPPORTED) & (time + rest <= between)
        if self.size[v] and not self.roomy:
            arrives[:] = False
        leaves = rest <= between + np.maximum(time, 0)
        return np.asarray(leaves[:, None] & arrives[None, :])

    def merge(self, v: int, u: int) -> None:
        """V becomes part of u."""
        own_v, own_u = self.nets_of[v], self.nets_of[u]
        between = self.weight[min(u, v), max(u, v)]
        none = np.zeros_like(between)
        for pins_of, one, other in ((own_v, v, u), (own_u, u, v)):
            rest = sum((self.weight[pins] for pins in pins_of if other not in pins), none)
            harmless = self._harmless(one, between, rest)
            for plan in self.plans:
                if plan[v] != plan[u] and harmless[plan[one], plan[other]]:
                    plan[one] = plan[other]
        self.plans = [plan for plan in self.plans if plan[v] == plan[u]]
        refused = (self.time[v] == UNSUPPORTED) | (self.time[u] == UNSUPPORTED)
        self.time[u] = np.where(refused, UNSUPPORTED, self.time[u] + self.time[v])
        self.size[u] += self.size[v]
        self.home[v] = u
        for pins in list(own_v):
            weight = self.weight.pop(pins)
            for w in pins:
                del self.nets_of[w][pins]
            joined = tuple(sorted({u if w == v else w for w in pins}))
            if len(joined) > 1:
                self._add(joined, weight)

    def result(self) -> Merged:
        """What is left, numbered anew."""
        home = self.home
        while (home[home] != home).any():
            home = home[home]
        kept, home = np.unique(home, return_inverse=True)
        rank = {v: i for i, v in enumerate(kept.tolist())}
        pins = [np.array([rank[v] for v in net], np.int64) for net in self.weight]
        weight = np.array(list(self.weight.values()), np.int64).reshape(-1, self.time.shape[1])
        problem = assemble(
            home[self.problem.block],
            self.time[kept],
            self.size[kept],
            _nets(pins, weight, len(kept)),
            self.problem.memory_bytes,
            overlap=self.problem.overlap,
        )
        return Merged(problem, home, [plan[kept] for plan in self.plans])


def _nets(pins: list[Ints], weight_ns: Ints, num_blocks: int) -> Nets:
    sizes = np.array([len(own) for own in pins], np.int64)
    net_ptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    pin = np.concatenate([np.zeros(0, np.int64), *pins])
    block_ptr, at = group_by(pin, num_blocks)
    nets = Nets(net_ptr, pin, block_ptr, np.repeat(np.arange(len(pins)), sizes)[at], weight_ns)
    freeze(nets)
    return nets
