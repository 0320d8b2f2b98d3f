"""Least cuts: each op is here, on one device, or elsewhere; and what a schedule takes at least.

Take a device and a chain of ops through the graph. Whatever the plan, its makespan is at least

- the path along the chain, by what is proven of its arcs when their ends are here or elsewhere;
- the work of all ops that are here;
- what the device's port sends: tensors from here to elsewhere; and what it receives.

So it is at least their mean with any weights that sum to 1. That mean is a sum over ops and pairs
of ops by their sides, and its least value over all sides is a minimum cut. Chains alone do not know
that work beside them can only leave the device through a port; loads alone do not know paths.

Weights are integers; so are cuts, and a flow whose conservation is checked here proves the bound.

`Branches` is branch and bound over sides. A node fixes the sides of some ops. Its bound is the
highest over weights of what `TwoSides` proves: a linear program over the sides that cuts have found
proposes weights, and a cut with these confirms the bound or adds sides. A mean of two plans, all
here and all elsewhere, can hide all of the work; so nodes branch, over the op of the chain about
which the sides differ most.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

import numpy as np

from placegap.formulations.shared.devices import possible_placements
from placegap.instances.problem import Instance, Makespan
from placegap.instances.problem.array_types import Flags, Ints
from placegap.instances.problem.integers import ceil_div, to_whole

HERE, ELSEWHERE, FREE = 1, 0, -1
"""Of an op: where it must be, or that it may be anywhere."""

PATH, WORK = 0, 1
"""Rows of loads; those of ports follow."""

PORTS: dict[str, tuple[tuple[int, int], ...]] = {
    "port": ((1, 0), (0, 1)),
    "link": ((1, 0), (0, 1)),
    "half_duplex": ((1, 1),),
    "free": (),
}
"""Of a model of channels: what each port counts, of the transfers out of and into the device."""

MOST_BITS, SUM_BITS = 18, 61
"""Bits of a weight, and of all capacities together."""

MOST_NODES, MOST_CUTS = 1_000, 25
"""Of a search; and of the cuts for one node."""

CLOSE = 2e-4
"""A node's bound is not raised any more by a smaller share."""

FEW_BITS = 6
"""Weights of fewer bits are too coarse."""

MOST_KEPT = 400
"""Sides that are kept from one search to the next."""


class SideArcs(NamedTuple):
    """What is proven of a chain's arcs, by sides."""

    #: head, tail: (2,) int64: Up to the end of the first op, and after the end of the last one:
    #: elsewhere, here.
    head: Ints
    tail: Ints
    #: (m, 2, 2) int64: From the end of an op to the end of the next one, by the side of the one and
    #: the other.
    between: Ints

    def length(self, here: Flags) -> int:
        """Of the whole chain, whose ops are here or not."""
        side = here.astype(np.int64)
        steps = self.between[np.arange(len(self.between)), side[:-1], side[1:]]
        return int(self.head[side[0]] + steps.sum() + self.tail[side[-1]])

    def fit_for_cuts(self) -> SideArcs:
        """The same or less, so that staying twice costs no more than two changes of sides."""
        between = self.between.copy()
        changes = between[:, HERE, ELSEWHERE] + between[:, ELSEWHERE, HERE]
        stay = between[:, HERE, HERE]
        between[:, HERE, HERE] = np.minimum(stay, changes)
        between[:, ELSEWHERE, ELSEWHERE] = np.minimum(
            between[:, ELSEWHERE, ELSEWHERE], changes - between[:, HERE, HERE]
        )
        return self._replace(between=between)


class TwoSides:
    """The minimum cuts of one device and one chain.

    Parameters
    ----------
    device : int
        What is called here; there are others.
    chain : sequence of int
        Ops, each an ancestor of the next one.
    """

    def __init__(
        self, instance: Instance, semantics: Makespan, device: int, chain: Sequence[int]
    ) -> None:
        arrays, index = instance.arrays, instance.arrays.index
        possible, self.group = possible_placements(instance), arrays.group
        self.num, self.chain = arrays.num_groups, self.group[np.array(chain)]
        self.fixed = np.full(self.num, FREE, np.int64)
        self.fixed[self.group[~possible[:, device]]] = ELSEWHERE
        others = [k for k in range(instance.num_devices) if k != device]
        self.fixed[self.group[~possible[:, others].any(axis=1)]] = HERE
        self.work_ns = np.zeros(self.num, np.int64)
        np.add.at(
            self.work_ns, self.group, np.where(possible[:, device], arrays.time_ns[:, device], 0)
        )
        per_edge = semantics.transfers == "per_edge"
        item = np.arange(len(index.producer)) if per_edge else index.tensor
        self.ports = PORTS[semantics.channels]
        self._items(item, self.group[index.producer], self.group[index.consumer])
        moves = arrays.transfer_ns[index.tensor[self._edge]]
        parts = len(others) if semantics.channels == "link" else 1  # ports of their own
        out, into = arrays.link_class[device, others], arrays.link_class[others, device]
        self.out_ns = moves[:, out].min(axis=1) // parts
        self.in_ns = moves[:, into].min(axis=1) // parts

    def _items(self, item: Ints, producer: Ints, consumer: Ints) -> None:
        """What is sent: an edge or a tensor each, with the groups that read it."""
        keep = producer != consumer
        order = np.lexsort((consumer[keep], item[keep]))
        edge = np.flatnonzero(keep)[order]
        _, first = np.unique(item[edge], return_index=True)
        self._edge, self._first = edge[first], first
        self.producer, self.reader = producer[edge[first]], consumer[edge]
        self.item = np.repeat(np.arange(len(first)), np.diff([*first, len(edge)]))

    @property
    def num_rows(self) -> int:
        """Loads of a plan's sides."""
        return 2 + len(self.ports)

    def loads(self, here: Flags, arcs: SideArcs) -> Ints:
        """Path, work and ports of groups that are here or not, in ns."""
        if len(self.item):
            read_here = np.logical_or.reduceat(here[self.reader], self._first)
            read_away = np.logical_or.reduceat(~here[self.reader], self._first)
            sent = int(self.out_ns[here[self.producer] & read_away].sum())
            received = int(self.in_ns[~here[self.producer] & read_here].sum())
        else:
            sent = received = 0
        ports = [a * sent + b * received for a, b in self.ports]
        path = arcs.length(here[self.chain])
        return np.array([path, int(self.work_ns[here].sum()), *ports], np.int64)

    def weight_bits(self, arcs: SideArcs) -> int:
        """So many that no sum overflows; may be negative, where times are too long."""
        total = sum(
            int(part.astype(object).sum())
            for part in (self.work_ns, self.out_ns, self.in_ns, arcs.head, arcs.tail, arcs.between)
        )
        return min(MOST_BITS, SUM_BITS - (4 * total + 1).bit_length())

    def least(self, arcs: SideArcs, weights: Ints, fixed: Ints) -> tuple[int, Flags]:
        """The least weighted sum of the loads of sides that keep what is fixed, and the sides.

        Parameters
        ----------
        arcs : SideArcs
            Fit for cuts.
        weights : (num_rows,) int64
        fixed : (groups,) int64
            `HERE`, `ELSEWHERE` or `FREE`.

        Returns
        -------
        tuple of (int, (groups,) bool)
            A bound that a checked flow proves; the sides are those that the solver says.
        """
        first, second = self.chain[:-1], self.chain[1:]
        constant, unary = self._terms(arcs, weights)
        sent = sum(int(w) * a for w, (a, _) in zip(weights[2:], self.ports, strict=True))
        received = sum(int(w) * b for w, (_, b) in zip(weights[2:], self.ports, strict=True))
        # nodes: 0 is here, 1 is elsewhere, then the groups, then two for each item
        node = np.where(fixed == FREE, np.arange(self.num) + 2, np.where(fixed == HERE, 0, 1))
        source = np.arange(len(self._edge)) + self.num + 2
        target = source + len(self._edge)
        between, endless = arcs.between, 1 << SUM_BITS
        change = between[:, HERE, ELSEWHERE] + between[:, ELSEWHERE, HERE]
        change = change - between[:, HERE, HERE] - between[:, ELSEWHERE, ELSEWHERE]
        rise, fall = unary > 0, unary < 0
        reader, maker = node[self.reader], node[self.producer]
        whole = np.full(len(self.item), endless)
        arcs_of = [  # tails, heads and capacities
            (np.zeros(rise.sum(), np.int64), node[rise], unary[rise]),
            (node[fall], np.ones(fall.sum(), np.int64), -unary[fall]),
            (node[first], node[second], weights[PATH] * change),
            (maker, source, sent * self.out_ns),
            (source[self.item], reader, whole),
            (reader, target[self.item], whole),
            (target, maker, received * self.in_ns),
        ]
        tail, head, capacity = (np.concatenate(part) for part in zip(*arcs_of, strict=True))
        keep = (tail != head) & (tail != 1) & (head != 0) & (capacity > 0)
        num_nodes = self.num + 2 + 2 * len(self._edge)
        value, here = _minimum_cut(tail[keep], head[keep], capacity[keep], num_nodes)
        return constant + value, here[node]

    def _terms(self, arcs: SideArcs, weights: Ints) -> tuple[int, Ints]:
        """Of the weighted sum, what all sides pay, and what a group adds that is elsewhere."""
        path, work = int(weights[PATH]), int(weights[WORK])
        unary, between = -work * self.work_ns, path * arcs.between
        here = between[:, HERE, HERE]
        np.add.at(unary, self.chain[:-1], between[:, ELSEWHERE, HERE] - here)
        np.add.at(
            unary, self.chain[1:], between[:, ELSEWHERE, ELSEWHERE] - between[:, ELSEWHERE, HERE]
        )
        for at, end in ((0, arcs.head), (-1, arcs.tail)):
            unary[self.chain[at]] += path * int(end[ELSEWHERE] - end[HERE])
        constant = work * int(self.work_ns.sum()) + int(here.sum())
        constant += path * int(arcs.head[HERE] + arcs.tail[HERE])
        return constant + int(unary[unary < 0].sum()), unary


def _minimum_cut(tail: Ints, head: Ints, capacity: Ints, num_nodes: int) -> tuple[int, Flags]:
    """A flow from node 0 to node 1 that is checked, and the nodes on the side of 0.

    Where the solver fails, nothing flows, and node 0 is alone.
    """
    here = np.zeros(num_nodes, np.bool_)
    here[0] = True
    from ortools.graph.python import max_flow

    solver = max_flow.SimpleMaxFlow()
    arcs = solver.add_arcs_with_capacity(tail.astype(np.int32), head.astype(np.int32), capacity)
    if not len(tail) or solver.solve(0, 1) != solver.OPTIMAL:
        return 0, here
    flow = np.asarray(solver.flows(arcs), np.int64)
    net = np.zeros(len(here), np.int64)
    np.add.at(net, tail, flow)
    np.subtract.at(net, head, flow)
    if (flow < 0).any() or (flow > capacity).any() or net[2:].any():  # no flow: it proves nothing
        return 0, here
    here[np.asarray(solver.get_source_side_min_cut(), np.int64)] = True
    return int(net[0]), here


@dataclass(order=True)
class _Node:
    """Sides that are fixed, the bound, and how much of each group is here in its mean of sides."""

    bound_ns: int
    number: int
    fixed: Ints = field(compare=False)
    share: np.ndarray[tuple[int], np.dtype[np.float64]] = field(compare=False)


class LeastSides(NamedTuple):
    """What a search proves, and of the ops of the chain which are here where it is least."""

    bound_ns: int
    here: Flags


class Branches:
    """Searches over the sides of one problem, for arcs of which more and more is known.

    Parameters
    ----------
    begin : (groups,) int64, optional
        Sides that are known beforehand, such as by symmetry.
    """

    def __init__(self, sides: TwoSides, begin: Ints | None = None) -> None:
        self.sides, self.begin = sides, sides.fixed if begin is None else begin
        self.kept: list[Flags] = []
        self._loads: list[Ints] = []  # of those, by the arcs of this search
        self._bits = 0

    def search(
        self,
        arcs: SideArcs,
        target_ns: int,
        is_over: Callable[[], bool],
        most_nodes: int = MOST_NODES,
    ) -> LeastSides:
        """The least bound of a tree of nodes that covers all plans.

        Parameters
        ----------
        arcs : SideArcs
            What is proven of the chain by now.
        target_ns : int
            A bound that suffices.
        is_over : callable
            Whether time is over.
        """
        arcs, number = arcs.fit_for_cuts(), count()
        self.kept = self.kept[-MOST_KEPT:]
        self._loads = [self.sides.loads(here, arcs) for here in self.kept]
        self._bits = self.sides.weight_bits(arcs)
        if self._bits < FEW_BITS:
            return LeastSides(0, np.ones(len(self.sides.chain), np.bool_))
        heap = [self._node(arcs, self.begin, 0, next(number), target_ns)]
        while heap[0].bound_ns < target_ns and len(heap) < most_nodes and not is_over():
            group = self._unsure(heap[0])
            if group is None:
                break
            node = heapq.heappop(heap)
            for side in (HERE, ELSEWHERE):
                fixed = node.fixed.copy()
                fixed[group] = side
                heapq.heappush(
                    heap, self._node(arcs, fixed, node.bound_ns, next(number), target_ns)
                )
        return LeastSides(heap[0].bound_ns, heap[0].share[self.sides.chain] > 0.5)

    def _node(
        self, arcs: SideArcs, fixed: Ints, known_ns: int, number: int, target_ns: int
    ) -> _Node:
        """Cuts with better and better weights, until they prove no more."""
        sides = self.sides
        rows = [at for at, here in enumerate(self.kept) if _keeps(here, fixed)]
        known, loads = [self.kept[at] for at in rows], [self._loads[at] for at in rows]
        weights, share = np.full(sides.num_rows, 1.0 / sides.num_rows), None
        best, promised = known_ns, float("inf")
        for _ in range(MOST_CUTS):
            if loads:
                weights, promised, share = _weights(np.array(loads))
                if promised <= best * (1 + CLOSE) or best >= target_ns:
                    break
            whole = to_whole(np.rint(weights * 2**self._bits))
            value, here = sides.least(arcs, whole, fixed)
            best = max(best, ceil_div(value, int(whole.sum())))
            known.append(here)
            loads.append(sides.loads(here, arcs))
            self.kept.append(here)
            self._loads.append(loads[-1])
        assert known
        if share is None or len(share) != len(known):
            _, _, share = _weights(np.array(loads))
        mean = np.einsum("c,cg->g", share, np.array(known, np.float64))
        return _Node(best, number, fixed, mean)

    def _unsure(self, node: _Node) -> int | None:
        """The group to branch over: of the chain, in the middle of where sides differ most."""
        chain = self.sides.chain
        differ = np.minimum(node.share, 1 - node.share)
        differ[node.fixed != FREE] = 0.0
        along = differ[chain]
        if along.max() > CLOSE:
            near = np.flatnonzero(along >= along.max() - CLOSE)
            runs = np.split(near, np.flatnonzero(np.diff(near) > 1) + 1)
            longest = max(runs, key=len)
            return int(chain[longest[len(longest) // 2]])
        beside = int((differ * self.sides.work_ns).argmax())
        return beside if differ[beside] > CLOSE else None


def _keeps(here: Flags, fixed: Ints) -> bool:
    return bool((here[fixed == HERE]).all() and not here[fixed == ELSEWHERE].any())


def _weights(loads: Ints) -> tuple[Ints, float, Ints]:
    """Weights under which the least of known sides takes longest; that time, and the sides' shares.

    They only propose: what they prove is worked out in integers.
    """
    from scipy.optimize import linprog  # takes 0.1 s to load

    num, rows = loads.shape
    unit = max(1.0, float(loads.max()))
    found = linprog(
        [-1.0] + [0.0] * rows,
        A_ub=np.hstack([np.ones((num, 1)), -loads / unit]),
        b_ub=np.zeros(num),
        A_eq=[[0.0] + [1.0] * rows],
        b_eq=[1.0],
        bounds=[(None, None)] + [(0.0, 1.0)] * rows,
        method="highs",
    )
    share = np.maximum(-found.ineqlin.marginals, 0.0)
    weights = np.maximum(found.x[1:], 0.0)
    return weights / weights.sum(), float(found.x[0]) * unit, share / max(share.sum(), 1e-12)
