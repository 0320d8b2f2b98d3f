"""max_load over plans of any kind, as arrays: blocks, nets, and kinds of equal devices.

A block is a colocation group. A device's load is the time of its blocks and the weight of the nets
that it cuts (`instances.problem.nets`), their sum or the larger of the two, so a plan of any kind
is a partition of the blocks. Blocks are merged where some optimal plan keeps them together
(`merge_blocks`), or to make a coarser problem for a search (`contract`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Flags, Ints
from placegap.instances.problem import Instance
from placegap.instances.problem.device_classes import Classes, classes_of, equal_columns
from placegap.instances.problem.graph_index import freeze, sum_by, times_by
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.instances.problem.nets import Nets, build_nets, index_nets, join_nets
from placegap.solvers.core.clock import Clock


@dataclass(frozen=True, eq=False)
class SplitProblem:
    """A partition problem of b blocks on K devices."""

    block: Ints  # (n,) int64: Block of each op
    time_ns: Ints  # (b, K) int64: `UNSUPPORTED` where a block cannot run
    size_bytes: Ints  # (b,) int64
    nets: Nets
    memory_bytes: Ints  # (K,) int64
    kind: Ints  # (K,) int64: Devices of one kind have the same times, weights and memory
    overlap: bool = False  # whether time and transfers run side by side, so that the larger counts

    @property
    def num_blocks(self) -> int:
        return len(self.size_bytes)

    @property
    def num_devices(self) -> int:
        return len(self.kind)

    def members(self) -> Classes:
        """Devices of each kind, ascending."""
        return classes_of(self.kind)

    def loads(self, device: Ints) -> Ints:
        """Load of every device, (K,), for the device of each block, as the referee counts it."""
        time, paid = self.parts(device)
        return np.maximum(time, paid) if self.overlap else time + paid

    def parts(self, device: Ints) -> tuple[Ints, Ints]:
        """Time of the blocks and weight of the cut nets of every device, (K,) each."""
        time = sum_by(device, self.time_ns[np.arange(self.num_blocks), device], self.num_devices)
        return time, self.paid_ns(self.pins_on(device))

    def paid_ns(self, pins: Ints) -> Ints:
        """Weight of the nets that every device cuts, (K,), of pins of each net on each, (e, K)."""
        cut = (pins > 0) & (pins < np.diff(self.nets.net_ptr)[:, None])
        paid: Ints = np.where(cut, self.nets.weight_ns, 0).sum(axis=0)
        return paid

    def pins_on(self, device: Ints) -> Ints:
        """Number of pins of each net on each device, (e, K); blocks at -1 are on none."""
        nets = self.nets
        pins = np.zeros((nets.num_nets, self.num_devices + 1), np.int64)
        owner = np.repeat(np.arange(nets.num_nets), np.diff(nets.net_ptr))
        np.add.at(pins, (owner, device[nets.pin]), 1)
        return np.ascontiguousarray(pins[:, :-1])

    def set_load(self, device: int, inside: Flags) -> int:
        """Load of a device that holds the blocks `inside`, (b,), all of which run there."""
        time, paid, nets = int(self.time_ns[inside, device].sum()), 0, self.nets
        if nets.num_nets:
            count = np.add.reduceat(inside[nets.pin].astype(np.int64), nets.net_ptr[:-1])
            cut = (count > 0) & (count < np.diff(nets.net_ptr))
            paid = int(nets.weight_ns[cut, device].sum())
        return max(time, paid) if self.overlap else time + paid

    def fits(self, device: Ints) -> bool:
        """Whether every block can run on its device and all memory suffices."""
        if (self.time_ns[np.arange(self.num_blocks), device] == UNSUPPORTED).any():
            return False
        held = sum_by(device, self.size_bytes, self.num_devices)
        return bool((held <= self.memory_bytes).all())


def build_split_problem(instance: Instance, *, overlap: bool = False) -> SplitProblem:
    """The problem of an instance; O(n K + p log p) for p pins."""
    # Memory is cut at the size of all blocks: more of it makes no two devices different.
    arrays = instance.arrays
    block = arrays.group
    time_ns = times_by(block, arrays.time_ns, arrays.num_groups)
    size_bytes = arrays.group_bytes
    memory_bytes = np.minimum(arrays.memory_bytes, size_bytes.sum())
    nets = build_nets(instance, block)
    return assemble(block, time_ns, size_bytes, nets, memory_bytes, overlap=overlap)


def assemble(
    block: Ints,
    time_ns: Ints,
    size_bytes: Ints,
    nets: Nets,
    memory_bytes: Ints,
    *,
    overlap: bool = False,
) -> SplitProblem:
    """A problem of these arrays; which devices are alike is found here."""
    kinds = equal_columns(time_ns, nets.weight_ns, memory_bytes)
    problem = SplitProblem(block, time_ns, size_bytes, nets, memory_bytes, kinds, overlap)
    freeze(problem)
    return problem


def contract(problem: SplitProblem, home: Ints) -> SplitProblem:
    """The problem whose blocks are groups of blocks, numbered by `home`, (b,)."""
    b, nets = int(home.max()) + 1, problem.nets
    time_ns, size_bytes = times_by(home, problem.time_ns, b), sum_by(home, problem.size_bytes, b)
    owner = np.repeat(np.arange(nets.num_nets), np.diff(nets.net_ptr))
    owner, pin = np.divmod(np.unique(owner * b + home[nets.pin]), b)
    merged = join_nets(owner, pin, nets.weight_ns, b)
    block, memory_bytes = home[problem.block], problem.memory_bytes
    return assemble(block, time_ns, size_bytes, merged, memory_bytes, overlap=problem.overlap)


class Merged(NamedTuple):
    """A smaller problem with the same optimum, and the plans mapped to it."""

    problem: SplitProblem
    home: Ints  # (b,) int64: Block of the smaller problem that contains each old one
    plans: list[Ints]  # (b',) int64: The given plans, at most as heavy as before


def merge_blocks(
    problem: SplitProblem, value_ns: int, plans: list[Ints], clock: Clock | None = None
) -> Merged:
    """Join blocks that some optimal plan keeps together, as far as the clock allows.

    Block v may join block u if, in every plan that has them apart, moving one to the other raises
    no load. With v on device A and u on B, moving v to B changes only these two devices. On B the
    net {u, v} is no longer paid, nets with both and others are cut there already, and at most v's
    other nets become cut; on A likewise. So, with W the weight of the net {u, v} and O that of v's
    nets without u,

        time(v, B) + O(B) <= W(B)  and  O(A) <= W(A) + time(v, A)

    make the move harmless, if B runs v and has room for it. The mirrored move, u to A, may serve
    instead. Pairs of devices that no plan below `value_ns` can use do not matter. If transfers
    overlap with the work, no net makes up for time, and nothing is merged. Only plans below
    `value_ns` are preserved; `plans` are mapped to the result.

    Each merge is exact for the problem that earlier ones left, so their order only decides how many
    there are. O(b d^2 K^2) for d nets per block, in practice.
    """
    merging = _Merging(problem, value_ns, plans)
    # A merge changes the nets of u and its neighbours alone: only these are tried again.
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
    """The blocks and nets during merging. A net is a sorted tuple of its pins."""

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
        """Blocks that share a net of two pins with v; no others can be merged with it."""
        near = {u: None for pins in self.nets_of[v] if len(pins) == 2 for u in pins if u != v}
        return list(near)

    def may_merge(self, v: int, u: int) -> bool:
        """Whether no two devices make it better to keep v and u apart."""
        own_v, own_u = self.nets_of[v], self.nets_of[u]
        between = self.weight[min(u, v), max(u, v)]
        none = np.zeros_like(between)
        both = sum((self.weight[pins] for pins in own_v if u in pins), none)
        rest_v = sum((self.weight[pins] for pins in own_v if u not in pins), none)
        rest_u = sum((self.weight[pins] for pins in own_u if v not in pins), none)
        # [A, B]: v is on A and u on B. Such a pair matters if both are within the value there, with
        # the nets cut that hold both, and if neither move is harmless.
        apart = self._usable(v, both)[:, None] & self._usable(u, both)[None, :]
        np.fill_diagonal(apart, val=False)
        apart &= ~self._harmless(v, between, rest_v)
        apart &= ~self._harmless(u, between, rest_u).T
        return not apart.any()

    def _usable(self, v: int, cut: Ints) -> Flags:
        """Devices that can hold v in a plan below the value, if nets of weight `cut` are cut."""
        time = self.time[v]
        fits = (time != UNSUPPORTED) & (self.size[v] <= self.problem.memory_bytes)
        return np.asarray(fits & (time + cut < self.value_ns))

    def _harmless(self, v: int, between: Ints, rest: Ints) -> Flags:
        """[A, B]: whether v may move from A to B, where the other block is."""
        # With limited memory only a block without bytes may move, as B's free room is not known.
        time = self.time[v]
        arrives = (time != UNSUPPORTED) & (time + rest <= between)
        if self.size[v] and not self.roomy:
            arrives[:] = False
        leaves = rest <= between + np.maximum(time, 0)
        return np.asarray(leaves[:, None] & arrives[None, :])

    def merge(self, v: int, u: int) -> None:
        """Make v a part of u."""
        # Plans that have them apart make the harmless move; without one they are no longer plans.
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
        """The merged problem, with blocks renumbered."""
        home = self.home
        while (home[home] != home).any():
            home = home[home]
        kept, home = np.unique(home, return_inverse=True)
        rank = {v: i for i, v in enumerate(kept.tolist())}
        pin = np.array([rank[v] for net in self.weight for v in net], np.int64)
        sizes = np.array([len(net) for net in self.weight], np.int64)
        weight = np.array(list(self.weight.values()), np.int64).reshape(-1, self.time.shape[1])
        problem = assemble(
            home[self.problem.block],
            self.time[kept],
            self.size[kept],
            index_nets(sizes, pin, weight, len(kept)),
            self.problem.memory_bytes,
            overlap=self.problem.overlap,
        )
        return Merged(problem, home, [plan[kept] for plan in self.plans])
