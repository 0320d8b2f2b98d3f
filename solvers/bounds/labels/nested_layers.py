"""Nested layers: a chain through a training step meets every layer forward and then backward.

The chain is one of `sections.intervals`: gates g[0], ..., g[m], and a section from each gate to
the next; the last gate is a section of its own. A pair (i, j) of gates is a *frame*, if no
colocation group has ops both in the sections outside, before g[i] or from g[j] on, and in those
inside. Frames, each inside the one before it, cut the chain into *layers*: the sections from one
frame to the next, on the way forward and on the way back. Its groups are on no other sections: so
layers may be placed one after the other, outermost first. What is inside the last frame may be one
more layer, which has no way back.

The chain has short sections, and none that a more expensive tensor skips (`layer_chains`). Groups
that no option places are nowhere, with their work. So a chain with short sections proves more, even
where a long one counts more ops: its layers are smaller.

A gate is often a small tensor, as the scale of a normalization, beside a large one that leads past
it. At such a gate a chain would change devices for next to nothing. So sections that an edge skips
become one, if something between its ends is sent sooner than the edge is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Flags, Ints
from placegap.instances.problem import Instance
from placegap.instances.problem.sections import Interval, Section, choose_chain, interval

FEWEST_LAYERS, LEAST_SHARE = 2, 0.2
"""With fewer layers, or where the groups of a smaller share of the work come back, there is
nothing to be gained."""

MOST_INNER, MOST_JOINED = 40, 8
"""Ops of an interval, and ops of sections that become one, its entry aside."""


class NestedLayer(NamedTuple):
    """The sections of the way forward and of the way back, and groups that are on no others."""

    forward: range
    backward: range
    groups: tuple[int, ...]


class NestedLayers(NamedTuple):
    """Layers, outermost first, and what is between the last frame's gates."""

    #: (m + 1,) int64
    gates: Ints
    #: Groups with the most work come first.
    layers: tuple[NestedLayer, ...]
    #: Sections inside the last frame, none where they are a layer.
    core: range
    #: (n,) int64: The last gate that is an op itself or precedes it; -1 if none does.
    last_gate: Ints


def nested_layers(
    instance: Instance, chain: Sequence[Section], time: Ints, *, with_core: bool = False
) -> NestedLayers | None:
    """The layers of a chain; None where nothing is met twice. O(n + m).

    Each section begins with the op that ends the one before it. `with_core` makes what is inside
    the last frame a layer: it adds options, and the bytes that they hold.
    """
    ends = [(part.entry, part.exit) for part in chain]
    if len(chain) <= FEWEST_LAYERS or any(u is None or v is None for u, v in ends):
        return None
    gates = np.array([ends[0][0], *(v for _, v in ends)], np.int64)
    group, num_groups = instance.arrays.group, int(instance.arrays.group.max()) + 1
    at = np.full(instance.num_ops, -1)
    for s, part in enumerate(chain):
        at[list(part.ops[:-1])] = s
    at[gates[-1]] = len(chain)
    num_sections = len(chain) + 1
    on = np.flatnonzero(at >= 0)
    work = np.zeros(num_groups, np.int64)
    np.add.at(work, group, time.min(axis=1))
    turn, share = _turn(group[on], at[on], work, num_sections)
    if share < LEAST_SHARE:
        return None
    met = _met(group[on], at[on], turn, num_groups, num_sections)
    frames = _frames(met, turn, num_sections)
    if len(frames) <= FEWEST_LAYERS:
        return None
    layers = []
    by_work = np.argsort(-work, kind="stable")
    for (begin, end), (i, j) in pairwise(frames):
        there = (met.first >= begin) & (met.last < i)
        here = met.on & there & (met.back >= j) & (met.end < end)
        mine = tuple(by_work[here[by_work]].tolist())
        layers.append(NestedLayer(range(begin, i), range(j, end), mine))
    core = range(*frames[-1])
    here = met.on & (met.first >= core.start) & (met.back >= core.start) & (met.end < core.stop)
    if with_core and here.any():
        mine = tuple(by_work[here[by_work]].tolist())
        core = range(core.stop, core.stop)
        layers.append(NestedLayer(range(*frames[-1]), core, mine))
    return NestedLayers(gates, tuple(layers), core, _last_gate(instance, gates))


class _Met(NamedTuple):
    """First and last section of each group before the turn, and after it; whether it has any."""

    first: Ints
    last: Ints
    back: Ints
    end: Ints
    on: Flags


def _turn(group: Ints, at: Ints, work: Ints, num_sections: int) -> tuple[int, float]:
    """The section that most work is met on both sides of, and the share of that work."""
    first, last = np.full(len(work), num_sections), np.full(len(work), -1)
    np.minimum.at(first, group, at)
    np.maximum.at(last, group, at)
    twice = np.flatnonzero(last > first)
    change = np.zeros(num_sections + 1, np.int64)
    np.add.at(change, first[twice] + 1, work[twice])
    np.add.at(change, last[twice] + 1, -work[twice])
    across = np.cumsum(change)
    turn = int(across.argmax())
    return turn, float(across[turn]) / max(1, int(work.sum()))


def _met(group: Ints, at: Ints, turn: int, num_groups: int, num_sections: int) -> _Met:
    first, last = np.full(num_groups, num_sections), np.full(num_groups, -1)
    back, end = np.full(num_groups, num_sections), np.full(num_groups, -1)
    before = at < turn
    np.minimum.at(first, group[before], at[before])
    np.maximum.at(last, group[before], at[before])
    np.minimum.at(back, group[~before], at[~before])
    np.maximum.at(end, group[~before], at[~before])
    return _Met(first, last, back, end, (last >= 0) | (end >= 0))


def _frames(met: _Met, turn: int, num_sections: int) -> list[tuple[int, int]]:
    """Pairs of gates, from the outermost to the turn, that no group is on both sides of; O(m + g).

    Groups that begin before i must have no section from i on, and come back from j on only; all
    others must have ended by j. Groups of the way back alone may be on either side of j.
    """
    there = met.last >= 0
    split = _inside(met.first[there], met.last[there], num_sections)
    alone = met.on & ~there
    split_back = _inside(met.back[alone], met.end[alone], num_sections)
    lowest, highest = np.full(num_sections + 1, -1), np.full(num_sections + 1, num_sections)
    np.maximum.at(lowest, met.first[there], met.end[there])
    np.minimum.at(highest, met.first[there] + 1, met.back[there])
    lowest = np.maximum.accumulate(lowest[::-1])[::-1]  # of groups that begin at i or later
    highest = np.minimum.accumulate(highest)  # of groups that begin before i
    whole = np.maximum.accumulate(np.where(split_back, -1, np.arange(num_sections + 1)))
    frames, j = [(0, num_sections)], num_sections
    for i in range(1, turn + 1):
        k = int(whole[min(j, highest[i], num_sections - 1)])
        if not split[i] and k > lowest[i] and k >= turn:
            frames.append((i, k))
            j = k
    return frames


def _inside(first: Ints, last: Ints, num_sections: int) -> Flags:
    """Gates that some group has sections on both sides of."""
    change = np.zeros(num_sections + 2, np.int64)
    np.add.at(change, first + 1, 1)
    np.add.at(change, last + 1, -1)
    return np.cumsum(change)[: num_sections + 1] > 0


def _last_gate(instance: Instance, gates: Ints) -> Ints:
    index = instance.arrays.index
    found = np.full(instance.num_ops, -1)
    found[gates] = np.arange(len(gates))
    for v in index.topological_order.tolist():
        before = index.producer[index.pred_edge[index.pred_ptr[v] : index.pred_ptr[v + 1]]]
        found[v] = max(found[v], found[before].max(initial=-1))
    return found


def layer_chains(
    instance: Instance, candidates: Sequence[Interval]
) -> Iterator[tuple[Section, ...]]:
    """A chain of short sections, and, where some interval is longer, one of any."""
    short = [one for one in candidates if len(one[2]) <= MOST_INNER]
    yield joined_where_cheap(instance, choose_chain(instance, short))
    if len(short) < len(candidates):
        yield joined_where_cheap(instance, choose_chain(instance, candidates))


def joined_where_cheap(instance: Instance, chain: Sequence[Section]) -> tuple[Section, ...]:
    """The chain, with sections made one that an edge skips and that something passes sooner.

    O(m log m + edges that skip * sections that they skip).
    """
    if instance.num_devices < 2 or len(chain) < 2:
        return tuple(chain)
    arrays, index = instance.arrays, instance.arrays.index
    apart = ~np.eye(instance.num_devices, dtype=np.bool_)
    send = arrays.transfer_ns[:, arrays.link_class][:, apart].min(axis=1)[index.tensor]
    least = np.array([send[list(part.edges)].min() for part in chain], np.int64)
    first, last = _places(instance, chain)
    begin, end = first[index.producer], last[index.consumer]
    skips = np.flatnonzero((begin >= 0) & (end > begin) & (end < begin + MOST_JOINED))
    size = np.array([len(part.ops) - 1 for part in chain], np.int64)
    one = np.zeros(len(chain), np.bool_)  # whether a section and the next one are one
    for e in skips[np.argsort((end - begin)[skips], kind="stable")].tolist():
        i, j = int(begin[e]), int(end[e])
        if least[i : j + 1].min() < send[e]:
            _join(one, size, i, j)
    return _sections(instance, chain, one)


def _places(instance: Instance, chain: Sequence[Section]) -> tuple[Ints, Ints]:
    """The section that edges out of each op begin in, and that edges into it end in; -1: none."""
    first, last = np.full((2, instance.num_ops), -1)
    for s, part in enumerate(chain):
        first[list(part.ops[:-1])] = s
        last[list(part.ops[1:])] = s
    return first, last


def _join(one: Flags, size: Ints, i: int, j: int) -> None:
    """Make the sections i to j one, with those that they are one with, if these are few ops."""
    low, high = i, j
    while low > 0 and one[low - 1]:
        low -= 1
    while high < len(one) - 1 and one[high]:
        high += 1
    if size[low : high + 1].sum() <= MOST_JOINED:
        one[i:j] = True


def _sections(instance: Instance, chain: Sequence[Section], one: Flags) -> tuple[Section, ...]:
    found, begin = list[Section](), 0
    for end, part in enumerate(chain):
        if one[end]:
            continue
        entry, leave = chain[begin].entry, part.exit
        if begin < end and entry is not None and leave is not None:
            inner = [op for each in chain[begin : end + 1] for op in each.ops[1:]][:-1]
            part = interval(instance, inner, entry, leave)
        found.append(part)
        begin = end + 1
    return tuple(found)
