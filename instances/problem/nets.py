"""Nets: the communication of max_load as a hypergraph cut over blocks.

A tensor is paid once by each device that it leaves or enters. With the blocks of its producer and
consumers as pins, device k pays it exactly if some pins are on k and some are not: a hyperedge that
is cut. Nets with the same pins add up, and a net with one pin is never paid.

For pipeline_iteration `stage_blocks` finds the ops that every plan keeps in one stage.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Ints
from placegap.instances.problem.blocks import components, distinct
from placegap.instances.problem.graph_index import freeze, group_by, numbered, sum_by
from placegap.instances.problem.instance import Instance


class NetLists(NamedTuple):
    """What kernels read of `Nets`."""

    net_ptr: Ints
    pin: Ints
    block_ptr: Ints
    net: Ints
    weight_ns: Ints


@dataclass(frozen=True, eq=False)
class Nets:
    """Nets over b blocks."""

    #: net_ptr, pin: (e + 1,): Pins of net i are the blocks ``pin[net_ptr[i]:net_ptr[i + 1]]``,
    #: ascending, at least two.
    net_ptr: Ints
    pin: Ints
    #: block_ptr, net: (b + 1,): Nets of block v are ``net[block_ptr[v]:block_ptr[v + 1]]``,
    #: ascending.
    block_ptr: Ints
    net: Ints
    weight_ns: Ints  # (e, K) int64: What each device pays if the net is cut there; 0 on hosts

    @property
    def num_nets(self) -> int:
        return len(self.weight_ns)

    @property
    def lists(self) -> NetLists:
        """For kernels."""
        return NetLists(self.net_ptr, self.pin, self.block_ptr, self.net, self.weight_ns)


def build_nets(instance: Instance, block: Ints, paid: Ints | None = None) -> Nets:
    """Nets of an instance whose op i belongs to block ``block[i]``."""
    # Blocks are 0..b-1, each with an op. `paid` (t, payers) is what each tensor costs each payer;
    # by default its host time on each device that is no host. Nets that cost no payer anything are
    # left out. O(p log p + e K) for p pins.
    arrays = instance.arrays
    index, num_blocks = arrays.index, int(block.max()) + 1
    paid = np.where(arrays.is_host, 0, arrays.host_ns) if paid is None else paid
    tensor = np.concatenate([np.arange(len(index.tensor_producer)), index.tensor])
    where = np.concatenate([block[index.tensor_producer], block[index.consumer]])
    worth = paid.max(axis=1, initial=0)[tensor] > 0
    tensor, pin = np.divmod(
        np.unique(tensor[worth] * num_blocks + where[worth]), num_blocks
    )  # ascending by tensor, then by block
    return join_nets(tensor, pin, paid, num_blocks)


def join_nets(owner: Ints, pin: Ints, weight_ns: Ints, num_blocks: int) -> Nets:
    """The nets of two pins or more, those with the same pins as one whose weight is the sum."""
    # `owner` and `pin` ascend; ``weight_ns[owner]`` are the weights.
    several = (np.bincount(owner) > 1)[owner]
    pin = pin[several]
    own, start, sizes = np.unique(owner[several], return_index=True, return_counts=True)
    spans = zip(start.tolist(), sizes.tolist(), strict=True)
    number = np.array(numbered(pin[at : at + size].tobytes() for at, size in spans), np.int64)
    weights = sum_by(number, weight_ns[own], int(number.max(initial=-1)) + 1)
    is_first = np.zeros(len(own), np.bool_)
    is_first[np.unique(number, return_index=True)[1]] = True
    return index_nets(sizes[is_first], pin[np.repeat(is_first, sizes)], weights, num_blocks)


def index_nets(sizes: Ints, pin: Ints, weight_ns: Ints, num_blocks: int) -> Nets:
    """Nets with these numbers of pins, one after the other, (e,) and (p,)."""
    net_ptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    block_ptr, at = group_by(pin, num_blocks)
    nets = Nets(net_ptr, pin, block_ptr, np.repeat(np.arange(len(sizes)), sizes)[at], weight_ns)
    freeze(nets)
    return nets


def stage_blocks(instance: Instance) -> Ints | None:
    """Block of each op, (n,), or None if a backward op feeds a forward one."""
    # Stages never get smaller along an edge between forward ops, nor larger along one between
    # backward ops. So colocation groups are nodes, edges between forward ops are arcs, those
    # between backward ops reversed arcs, and strongly connected components are blocks. They are
    # numbered topologically, by their first ops as far as that leaves a choice. Exchanges of a
    # shared weight's gradients (`Arrays.exchanged`) are no arcs.
    arrays, index = instance.arrays, instance.arrays.index
    if (arrays.backward[index.producer] & ~arrays.backward[index.consumer]).any():
        return None
    tail, head = arrays.group[stage_arcs(instance)]
    tail, head = distinct(tail, head, arrays.num_groups)
    component = components(tail, head, arrays.num_groups)
    _, first, component = np.unique(component, return_index=True, return_inverse=True)
    tail, head = distinct(component[tail], component[head], len(first))
    start, arc = group_by(tail, len(first))
    waiting = np.bincount(head, minlength=len(first)).tolist()
    ready = [(int(op), node) for node, op in enumerate(first) if not waiting[node]]
    heapify(ready)
    number = np.zeros(len(first), np.int64)
    for at in range(len(first)):
        _, node = heappop(ready)
        number[node] = at
        for later in head[arc[start[node] : start[node + 1]]].tolist():
            waiting[later] -= 1
            if not waiting[later]:
                heappush(ready, (int(first[later]), later))
    return np.asarray(number[component[arrays.group]], np.int64)


def stage_arcs(instance: Instance) -> Ints:
    """Pairs of ops of one pass whose stages never get smaller from first to second, (2, e)."""
    # Edges between forward ops, then reversed edges between backward ops, exchanges left out.
    backward, index = instance.arrays.backward, instance.arrays.index
    bind = ~instance.arrays.exchanged
    a, b = index.producer[bind], index.consumer[bind]
    forth, back = (
        (backward[a] == backward[b]) & (backward[a] == of_pass) for of_pass in (False, True)
    )
    ends = np.append(a[forth], b[back]), np.append(b[forth], a[back])
    return np.asarray(np.stack(ends), np.int64)


def gradient_tie(instance: Instance) -> str | None:
    """Why there are fewer blocks than devices where gradients run with the layers, as a text."""
    # It names an edge from backward op to backward op that leads the way of a forward edge between
    # the same layers. None where there are blocks enough, or no such edge.
    block = stage_blocks(instance)
    number = 0 if block is None else int(block.max()) + 1
    if block is None or number >= instance.num_devices:
        return None
    group, arcs, ops = instance.arrays.group, stage_arcs(instance), instance.graph.ops
    against = instance.arrays.backward[arcs[0]]
    forward = {(int(a), int(b)) for a, b in group[arcs[:, ~against]].T}
    for y, x in arcs[:, against].T.tolist():
        if group[x] != group[y] and (int(group[x]), int(group[y])) in forward:
            return (
                f"{number} of its parts may be a stage, as gradients go to earlier stages, but"
                f" {ops[x].name!r} feeds {ops[y].name!r} of a later layer; if the edges of the"
                " backward pass are stated the wrong way round, reverse them"
            )
    return None
