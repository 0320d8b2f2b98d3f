"""Nested layers: a chain through a training step meets every layer forward and then backward.

*Chain.* It is one of `sections.intervals`: gates g[0], ..., g[m], and a section from each gate to
the next; the last gate is a section of its own. A pair (i, j) of gates is a *frame*, if no
colocation group has ops both in the sections outside, before g[i] or from g[j] on, and in those
inside. Frames, each inside the one before it, cut the chain into *layers*: the sections from one
frame to the next, on the way forward and on the way back. The groups of a layer are on no other
sections: so layers may be placed one after the other, outermost first (`layers_bound`). What is
inside the last frame may be one more layer, which has no way back.

*Relaxation.* An *option* puts some groups of a layer on devices: every op of these is there, and
every other op anywhere. It has the least times through the layer's sections, forward and back
(`work_windows`), and the work on each device. Groups that it does not place count nowhere, nor does
their work. Every plan has one option in each layer, and its sections take no less than that option
says. What is apart pays for transfers, so few options take little time: these place all groups, and
the others only some of them (`_Placing`). Smaller layers have fewer groups: so a chain of short
sections proves more, even where a long one counts more ops.

A gate is often a small tensor, as the scale of a normalization, beside a large one that leads past
it. At such a gate a chain would change devices for next to nothing. So sections that an edge skips
become one, if something between its ends is sent sooner than the edge is.

*Equal layers* share one table. Work counts in whole steps of a grid, rounded down for each group,
so that equal layers add the same number of steps.

*Example.* Three layers: f0, f1, f2, loss, b2, b1, b0 are a row, and gradients w0, w1, w2 follow b0,
b1, b2; each is in the group of its number. The gates are the row and w0. The frames (0, 8), (1, 6),
(2, 5), (3, 3) cut off the sections f0 and b0, w0; f1 and b1; f2 and loss, b2. With two devices each
layer has two options, and w1 and w2 are work that is on no section.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, permutations, product
from math import perm, prod
from typing import NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Flags, Ints
from placegap.instances.kernels.kernel import kernel
from placegap.instances.problem import Instance, Makespan
from placegap.instances.problem.device_classes import first_identical
from placegap.instances.problem.integers import NO_WAY
from placegap.instances.problem.sections import Interval, Section, choose_chain, interval
from placegap.solvers.bounds.work_windows import (
    ChannelTable,
    SectionEdges,
    WorkWindows,
    chain_arcs,
    channel_table,
    paths_through,
    port_gap,
    raise_by_all,
    section_edges,
)

# With fewer layers, or where a smaller share of the work is in groups that come back, there is
# nothing to be gained.
FEWEST_LAYERS, LEAST_SHARE = 2, 0.2
WIDE = 0.5  # of the way from the turn to the ends; no layer has groups that are on more of it
MOST_INNER, MOST_JOINED = 40, 8  # ops of an interval; ops of sections that become one, entry aside


class NestedLayer(NamedTuple):
    """The sections of the way forward and of the way back, and groups that are on no others."""

    forward: range
    backward: range
    groups: tuple[int, ...]


class NestedLayers(NamedTuple):
    """Layers, outermost first, and what is between the last frame's gates."""

    gates: Ints  # (m + 1,) int64
    layers: tuple[NestedLayer, ...]  # groups with the most work come first
    core: range  # sections inside the last frame, none where they are a layer
    last_gate: Ints  # (n,): the last gate that is an op itself or precedes it; -1 if none does


def nested_layers(
    instance: Instance, chain: Sequence[Section], time: Ints, *, with_core: bool = False
) -> NestedLayers | None:
    """The layers of a chain; None if no layer comes back. O(n + m)."""
    # Each section begins with the op that ends the one before it. `with_core` makes what is inside
    # the last frame a layer: it adds options, and the bytes that they hold.
    ends = [(part.entry, part.exit) for part in chain]
    if len(chain) <= FEWEST_LAYERS or any(u is None or v is None for u, v in ends):
        return None
    gates = np.array([ends[0][0], *(v for _, v in ends)], np.int64)
    group, num_groups = instance.arrays.group, int(instance.arrays.group.max()) + 1
    # the section of each op, -1 beside the chain; a gate is in the section that it begins
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
    met = met.without(_wide(group[on], at[on], turn, num_groups, num_sections), num_sections)
    frames = _frames(met, turn, num_sections)
    if len(frames) <= FEWEST_LAYERS:
        return None
    layers = []
    by_work = np.argsort(-work, kind="stable")
    # between two frames: sections from `begin` to i, and on the way back from j to `end`
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

    def without(self, groups: Flags, num_sections: int) -> _Met:
        """As if some groups had no ops on the chain."""
        first, back = (np.where(groups, num_sections, part) for part in (self.first, self.back))
        last, end = (np.where(groups, -1, part) for part in (self.last, self.end))
        return _Met(first, last, back, end, self.on & ~groups)


def _turn(group: Ints, at: Ints, work: Ints, num_sections: int) -> tuple[int, float]:
    """The section with the most work of groups on both sides of it, and the share of that work."""
    # a sweep: the work of a group is across all sections after its first one, up to its last one
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


def _wide(group: Ints, at: Ints, turn: int, num_groups: int, num_sections: int) -> Flags:
    """Groups both near the turn and far from it, such as an embedding that is the head, too."""
    # They would leave no frame: such a group is in no layer, and its ops may be anywhere.
    away = np.where(at < turn, (turn - at) / max(1, turn), (at - turn) / (num_sections - turn))
    nearest, furthest = np.full(num_groups, 1.0), np.zeros(num_groups)
    np.minimum.at(nearest, group, away)
    np.maximum.at(furthest, group, away)
    return np.asarray(furthest - nearest > WIDE)


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
    """Frames from the outermost to the turn, each inside the one before it; O(m + g)."""
    # A frame (i, j): groups that begin before i have ended by i (not split[i]) and come back from j
    # on (j <= highest[i]); groups that begin later have ended before j (j > lowest[i]). Groups of
    # the way back alone are on one side of j (whole[j] = j).
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
    # The largest j for each i: frames further in must have a smaller one, so this leaves the most
    # frames, and the smallest layers.
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
    """As `NestedLayers.last_gate`."""
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
    """A chain of short sections; then one of all, if some interval is longer."""
    short = [one for one in candidates if len(one[2]) <= MOST_INNER]
    yield joined_where_cheap(instance, choose_chain(instance, short))
    if len(short) < len(candidates):
        yield joined_where_cheap(instance, choose_chain(instance, candidates))


def joined_where_cheap(instance: Instance, chain: Sequence[Section]) -> tuple[Section, ...]:
    """The chain, with sections joined that an edge skips if a cheaper edge leaves one of them."""
    # O(m log m + edges that skip * sections that they skip).
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
    # short skips first, as sections are joined only up to a number of ops
    one = np.zeros(len(chain), np.bool_)  # whether a section and the next one are one
    for e in skips[np.argsort((end - begin)[skips], kind="stable")].tolist():
        i, j = int(begin[e]), int(end[e])
        if least[i : j + 1].min() < send[e]:
            _join(one, size, i, j)
    return _sections(instance, chain, one)


def without_weak_end(
    instance: Instance, chain: Sequence[Section], windows: WorkWindows
) -> tuple[Section, ...]:
    """The chain without last sections that take less time than the tail of their entry proves."""
    # A chain may end with the update of a tied weight. If all copies are updated on one device, the
    # tail of the gradient counts all of them, and the last section one.
    end = len(chain)
    while end > 1:
        parts, _, tables = chain_arcs(instance, chain[end - 1 : end], windows)
        if not parts:
            break
        through = (tables[0] + windows.tail_ns[parts[0].exit]).min(axis=1)
        if (windows.tail_ns[parts[0].entry] <= through).any():
            break
        end -= 1
    return tuple(chain[:end])


def _places(instance: Instance, chain: Sequence[Section]) -> tuple[Ints, Ints]:
    """The sections in which edges out of each op begin, and edges into it end; -1: none."""
    first, last = np.full((2, instance.num_ops), -1)
    for s, part in enumerate(chain):
        first[list(part.ops[:-1])] = s
        last[list(part.ops[1:])] = s
    return first, last


def _join(one: Flags, size: Ints, i: int, j: int) -> None:
    """Make the sections i to j one, with those already joined to them, if they have few ops."""
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


# Options of one layer; and edges of all layers' options times devices cubed, seconds at most. Of
# Swin-T's step 1,024 options prove 5.67 ms, and 4,096 prove 5.75.
MOST_OPTIONS, MOST_WORK = 4_096, 3_000_000_000
MOST_PLACED = 64  # groups of a layer
BATCH = 4  # ways to place groups that are timed together, the cheapest ones of all
FREE = -1  # the device of a group that may be anywhere
# Cells of the times of all options of a layer; and options of equal work that each is compared with
# at most.
MOST_CELLS, MOST_COMPARED = 20_000_000, 256
MOST_ALIKE = 15  # devices whose names are one number: K to the power of K is below 2**62
# Steps of the grid for all work of a device; and widths of a step that are tried.
FEWEST_STEPS, MOST_STEPS, TRIALS = 10_000, 40_000, 60


class LayerOptions(NamedTuple):
    #: forward_ns, back_ns: (p, K, K) int64: Times from the start of the outer gate to that of the
    #: inner one, and from the inner one to the outer one, by the devices of both; `NO_WAY` where an
    #: option has a gate elsewhere.
    forward_ns: Ints
    back_ns: Ints
    #: (p, K) int64: Work of the groups after the core's first gate, on each device, in steps of the
    #: grid.
    work: Ints
    ready: Ints  # (p, K) int64: The part of it that follows the layer's inner gate on the way back
    held_bytes: Ints  # (p, K): bytes of the groups on each device; (p, 0) without binding memory
    paid_ns: Ints  # (p,) int64: The price of these bytes
    devices: Ints  # (p, groups) int64: Where each option has the groups; `FREE`: anywhere

    def only(self, rows: Ints) -> LayerOptions:
        """Some of the options."""
        return LayerOptions(*(part[rows] for part in self))


class LayerTable(NamedTuple):
    """Layers and what surrounds them, outermost first."""

    options: list[LayerOptions]  # equal layers share an object
    groups: list[tuple[int, ...]]  # the groups that each layer's options place
    step_ns: Ints  # (K,) int64: Width of the grid
    #: (K,) int64: Work of groups further out that need not be after the layer's inner gate on the
    #: way back, at most. One row more: work of all groups that need not be after the core's last
    #: gate.
    unready_ns: list[Ints]
    left_ns: list[Ints]  # (K,): the least time from that gate's start to the end, by its device
    head_ns: list[Ints]  # (K,) int64: The earliest start of the inner gate of the way forward
    #: (K,) int64: The time of that gate of the way back; one row more: of the core's first gate.
    gate_ns: list[Ints]
    outer_ns: tuple[Ints, Ints]  # heads and tails of the outermost gates
    core_ns: Ints  # (K, K) int64: From the start of the core's first gate to that of its last one
    room_bytes: Ints  # (K,) int64: Room of the devices; (0,) where memory does not bind
    kind: Ints  # (K,) int64: Identical devices have the same one
    price: Ints  # (K,): Price of a byte there, in ns times 2**shift; (0,) where bytes cost nothing
    shift: int = 0
    worth_ns: int = 0  # the price of all room, less that of the groups that no option places


def layer_table(
    instance: Instance,
    semantics: Makespan,
    chain: Sequence[Section],
    nested: NestedLayers,
    windows: WorkWindows,
    stop: Callable[[], bool],
) -> LayerTable | None:
    """Options of all layers, and what surrounds them; None if it is stopped."""
    # *Late* ops come after the core's first gate, through which the chain must pass: they are the
    # work that can be left when the chain comes out. Earlier ops are in the heads.
    time, gates = windows.time_ns, nested.gates
    num_devices = time.shape[1]
    ops_of = _members(instance.arrays.group)
    after = nested.last_gate >= nested.core.start
    times = SectionTimes(instance, semantics, chain, windows)
    none, nowhere = np.zeros((1, 0), np.int64), np.zeros(0, np.int64)
    is_tight = not instance.arrays.memory_is_slack
    table = LayerTable(
        [],
        [],
        _grid([ops[after[ops]] for ops in ops_of], time),
        [],
        [],
        [],
        [],
        (_heads(windows, gates[0]), _tails(windows, gates[-1])),
        times.through(nested.core, (), none)[0],
        # a copy, which may be written to, as `nowhere`: one kernel for both
        instance.arrays.memory_bytes.copy() if is_tight else nowhere,
        _kinds(instance),
        nowhere,
    )
    # groups of all layers first: how many of them are placed depends on how many layers differ
    facts = [
        _facts(instance, layer, nested.last_gate, times, ops_of, after, table)
        for layer in nested.layers
    ]
    # equal layers share options, so the work is divided by the number of different layers
    share = MOST_WORK // (len({fact.key for fact in facts}) * num_devices**3)
    outside = list[Ints]()
    width = int(windows.weights.sum())
    known: dict[object, tuple[list[int], LayerOptions]] = {}
    pulls = _pulls(instance)
    for layer, fact in zip(nested.layers, facts, strict=True):
        if stop():
            return None
        inner = layer.backward.start
        unready = _unready(outside, nested.last_gate, inner, time)
        if fact.key not in known:
            edges = times.num_edges((*layer.forward, *layer.backward))
            given = min(MOST_OPTIONS, share // max(1, edges), MOST_CELLS // num_devices**2)
            placing = _Placing(layer, times, fact, table.kind)
            likely = [*range(len(fact.groups))] if is_tight else _by_pull(fact.groups, pulls)
            order, devices = placing.rows(likely[:MOST_PLACED], given)
            rooms = len(table.room_bytes)
            known[fact.key] = order, _options(layer, times, fact, order, devices, rooms)
        order, options = known[fact.key]
        # late ops of the groups placed so far that this gate does not precede: a gate further in
        # precedes all that this one does, so the others need not be looked at again
        groups = tuple(fact.groups[x] for x in order)
        late = [ops_of[g][after[ops_of[g]]] for g in groups]
        outside = [ops for ops in outside + late if (nested.last_gate[ops] < inner).any()]
        # all ops that the gate precedes, spread over all devices at best, however they are placed
        mass = int(windows.mass[nested.last_gate >= inner].sum())
        left = np.maximum(_tails(windows, gates[inner]), -(-mass // width))
        table.options.append(options)
        table.groups.append(groups)
        table.unready_ns.append(unready)
        table.left_ns.append(left)
        table.gate_ns.append(time[gates[inner]])
        table.head_ns.append(_heads(windows, gates[layer.forward.stop]))
    # one row more for the gates of the core, which close the labels (`least_within`)
    table.unready_ns.append(_unready(outside, nested.last_gate, nested.core.stop, time))
    table.gate_ns.append(time[gates[nested.core.start]])
    return table


class PlacedSection(NamedTuple):
    """A section with an entry, s inner ops and an exit, as a kernel reads it."""

    #: enter_ns, leave_ns: (K,) int64: Times of the ends; `NO_WAY` where they cannot be.
    enter_ns: Ints
    leave_ns: Ints
    own_ns: Ints  # (s, K) int64: Times of the inner ops
    mass: int  # mass of the inner ops together, as in `work_windows`
    edges: SectionEdges  # by consumers in topological order
    group: Ints  # (s + 2,) int64: Colocation groups of the entry, the inner ops and the exit

    def key(self, names: dict[int, int]) -> tuple[object, ...]:
        """Equal for sections that take the same times; groups are numbered by `names`."""
        named = tuple(names.get(g, -1) for g in self.group.tolist())
        parts = (self.enter_ns, self.leave_ns, self.own_ns, *self.edges)
        return (named, self.mass, *(part.tobytes() for part in parts))


class SectionTimes:
    """Least times through the sections of a chain, with some groups on given devices."""

    def __init__(
        self,
        instance: Instance,
        semantics: Makespan,
        chain: Sequence[Section],
        windows: WorkWindows,
    ) -> None:
        self.time, self.weights = windows.time_ns, windows.weights
        self.parts = [_placed(instance, semantics, part, windows) for part in chain]
        self.last = chain[-1].ops[-1]
        self.last_group = int(instance.arrays.group[self.last])
        self.channels = channel_table(semantics, instance.num_devices)

    def num_edges(self, sections: Sequence[int]) -> int:
        """The number of edges of all these sections."""
        return sum(len(self.parts[s].edges.producer) for s in sections if s < len(self.parts))

    def key(self, sections: range, names: dict[int, int]) -> tuple[object, ...]:
        """Equal for ranges of sections that take the same times."""
        inner = [self.parts[s].key(names) for s in sections if s < len(self.parts)]
        if sections.stop > len(self.parts):
            inner.append((names.get(self.last_group, -1), self.time[self.last].tobytes()))
        return (*inner, sections.stop > len(self.parts))

    def through(self, sections: range, groups: Sequence[int], devices: Ints) -> Ints:
        """Time from the start of the first section's entry to that of the last exit, (p, K, K)."""
        # It is by the devices of both ends, `NO_WAY` where they cannot be, for the p rows of
        # `devices`: ways to place the groups. The section one behind the last is the chain's last
        # op.
        # a shortest path over the devices of the gates: sections follow each other, so least times
        # of each add up for every choice of devices in between
        num_devices = self.time.shape[1]
        stay = np.where(np.eye(num_devices, dtype=np.bool_), 0, NO_WAY)
        least = np.repeat(stay[None], len(devices), axis=0)
        place = {g: x for x, g in enumerate(groups)}
        for s in sections:
            if s == len(self.parts):  # the last op, which must be where it is
                table, at = self._last_one(place.get(self.last_group, -1), devices)
            else:
                table, at = self._one(self.parts[s], s + 1 == sections.stop, place, devices)
            least = _joined(least, table, at)
        return least

    def _one(
        self, part: PlacedSection, is_last: bool, place: dict[int, int], devices: Ints
    ) -> tuple[Ints, Ints]:
        """A table for each way to place the section's own groups, and the table of each row."""
        # The last exit is the gate of the next layer, whose options decide on it. Many rows differ
        # in groups that are not on this section: one table serves them all.
        named = np.array([place.get(g, -1) for g in part.group.tolist()], np.int64)
        if is_last:
            named[-1] = -1
        mine = np.unique(named[named >= 0])
        rows, at = np.unique(devices[:, mine], axis=0, return_inverse=True)
        column = np.searchsorted(mine, named)
        column[named < 0] = -1
        tables = _tables(np.ascontiguousarray(rows), column, part, self.weights, self.channels)
        return tables, at.reshape(-1)

    def _last_one(self, column: int, devices: Ints) -> tuple[Ints, Ints]:
        num_devices = self.time.shape[1]
        can = self.time[self.last] < NO_WAY
        tables = np.full((num_devices + 1, num_devices, num_devices), NO_WAY)
        for d in np.flatnonzero(can).tolist():
            tables[d, d, d] = tables[-1, d, d] = 0
        free = np.full(len(devices), num_devices)
        return tables, free if column < 0 else devices[:, column]


def ways_to_place(allowed: Sequence[Sequence[int]]) -> Ints:
    """All ways to choose one device for each group, a row for each."""
    rows = list(product(*allowed))
    return np.array(rows, np.int64).reshape(len(rows), len(allowed))


def _placed(
    instance: Instance, semantics: Makespan, part: Section, windows: WorkWindows
) -> PlacedSection:
    inner = np.array(part.ops[1:-1], np.int64)
    edges = section_edges(instance, part, semantics)
    order = np.argsort(edges.consumer, kind="stable")
    return PlacedSection(
        windows.time_ns[part.ops[0]],
        windows.time_ns[part.ops[-1]],
        windows.time_ns[inner],
        int(windows.mass[inner].sum()),
        SectionEdges(*(np.ascontiguousarray(column[order]) for column in edges)),
        instance.arrays.group[list(part.ops)],
    )


@kernel
def _joined(least: Ints, table: Ints, at: Ints) -> Ints:
    """Least times so far plus those through the next section, over the devices of its entry."""
    num_devices = least.shape[1]
    found = np.full(least.shape, NO_WAY)
    for p in range(len(least)):
        for a in range(num_devices):
            for c in range(num_devices):
                if least[p, a, c] >= NO_WAY:
                    continue
                for b in range(num_devices):
                    way = least[p, a, c] + table[at[p], c, b]
                    found[p, a, b] = min(found[p, a, b], way)
    return found


@kernel
def _tables(
    devices: Ints, column: Ints, part: PlacedSection, weights: Ints, channels: ChannelTable
) -> Ints:
    """Time from the start of the entry to that of the exit, (p, K, K), with the groups placed."""
    # `column` has the position of the group of the entry, each inner op and the exit; -1: anywhere.
    # An op of a placed group cannot be on any other device: with its times there at `NO_WAY`, the
    # kernels of `work_windows` serve sections with placed groups as they are.
    size, num_devices = part.own_ns.shape
    edges = part.edges
    found = np.full((len(devices), num_devices, num_devices), NO_WAY)
    every = np.empty((size + 2, num_devices), np.int64)
    for p in range(len(devices)):
        every[0], every[1 : size + 1], every[size + 1] = part.enter_ns, part.own_ns, part.leave_ns
        is_free = False  # whether some inner op is in no placed group
        for x in range(size + 2):
            on = FREE if column[x] < 0 else devices[p, column[x]]
            for d in range(num_devices):
                if on not in (FREE, d):
                    every[x, d] = NO_WAY
            is_free = is_free or (on == FREE and 0 < x <= size)
        own = every[1 : size + 1]
        gap, head, tail = paths_through(
            every[0], own, every[size + 1], edges.producer, edges.consumer, edges.move_ns
        )
        # where all inner ops have a device, `port_gap` counts their work there
        if is_free:
            raise_by_all(gap, own, head, tail, part.mass, weights)
        if size > 0:
            gap = port_gap(gap, own, head, tail, edges, channels)
        for a in range(num_devices):
            for b in range(num_devices):
                if gap[a, b] < NO_WAY:
                    found[p, a, b] = min(NO_WAY, every[0, a] + gap[a, b])
    return found


def _kinds(instance: Instance) -> Ints:
    """The first identical device of each; where there are many devices, each is its own."""
    few = instance.num_devices <= MOST_ALIKE
    return first_identical(instance) if few else np.arange(instance.num_devices)


def _unready(late: list[Ints], last_gate: Ints, gate: int, time: Ints) -> Ints:
    """The time on each device of ops that a gate does not precede."""
    every = np.concatenate([np.zeros(0, np.int64), *late])
    rows = time[every[last_gate[every] < gate]]
    return np.asarray(np.where(rows < NO_WAY, rows, 0).sum(axis=0))


def _heads(windows: WorkWindows, gate: int) -> Ints:
    return np.asarray(np.minimum(windows.head_ns[gate], NO_WAY))


def _tails(windows: WorkWindows, gate: int) -> Ints:
    return np.asarray(np.minimum(windows.tail_ns[gate] + windows.time_ns[gate], NO_WAY))


def _members(group: Ints) -> list[Ints]:
    order = np.argsort(group, kind="stable")
    return np.split(order, np.cumsum(np.bincount(group))[:-1])


class _Facts(NamedTuple):
    """Groups of a layer, the most important first, and a key, the same for equal layers."""

    groups: tuple[int, ...]
    allowed: tuple[tuple[int, ...], ...]
    work: Ints
    ready: Ints
    held_bytes: Ints
    key: tuple[object, ...]


def _facts(
    instance: Instance,
    layer: NestedLayer,
    last_gate: Ints,
    times: SectionTimes,
    ops_of: list[Ints],
    after: Flags,
    table: LayerTable,
) -> _Facts:
    """The groups of a layer by work, or where memory binds by shares of work and memory."""
    # Only the first groups are placed (`_most_groups`), so their order decides how much is proven.
    time, is_tight = times.time, len(table.room_bytes) > 0
    groups, size = layer.groups, instance.arrays.group_bytes
    if is_tight:
        least = [int(time[ops_of[g]].min(axis=1).sum()) for g in groups]
        whole = int(time.min(axis=1).sum()), int(size.sum())
        worth = [
            -ns / max(1, whole[0]) - int(size[g]) / max(1, whole[1])
            for g, ns in zip(groups, least, strict=True)
        ]
        groups = tuple(groups[x] for x in np.argsort(worth, kind="stable").tolist())
    allowed = list[tuple[int, ...]]()
    work, ready = np.zeros((2, len(groups), time.shape[1]), np.int64)
    for x, g in enumerate(groups):
        ops = ops_of[g]
        allowed.append(tuple(np.flatnonzero((time[ops] < NO_WAY).all(axis=0)).tolist()))
        # rounded down per group, so that equal groups of two layers have equal steps
        ops = ops[after[ops]]
        known = np.where(time[ops] < NO_WAY, time[ops], 0)
        work[x] = known.sum(axis=0) // table.step_ns
        ready[x] = known[last_gate[ops] >= layer.backward.start].sum(axis=0) // table.step_ns
    held = size[list(groups)] if is_tight else np.zeros(0, np.int64)
    names = {g: x for x, g in enumerate(groups)}
    key = (
        times.key(layer.forward, names),
        times.key(layer.backward, names),
        tuple(allowed),
        work.tobytes(),
        ready.tobytes(),
        held.tobytes(),
    )
    return _Facts(groups, tuple(allowed), work, ready, held, key)


def _pulls(instance: Instance) -> list[dict[int, int]]:
    """Of each group those that it exchanges tensors with, and how long their transfers take."""
    arrays, index = instance.arrays, instance.arrays.index
    apart = ~np.eye(instance.num_devices, dtype=np.bool_)
    takes = arrays.transfer_ns[:, arrays.link_class][:, apart].min(axis=1)[index.tensor]
    found: list[dict[int, int]] = [{} for _ in range(arrays.num_groups)]
    ends = arrays.group[index.producer], arrays.group[index.consumer]
    for g, h, ns in zip(*(part.tolist() for part in ends), takes.tolist(), strict=True):
        if g != h:
            found[g][h] = found[h][g] = found[g].get(h, 0) + ns
    return found


def _by_pull(groups: Sequence[int], pulls: list[dict[int, int]]) -> list[int]:
    """Places of the groups: the first one, and then what is most expensive to send elsewhere."""
    place = {g: x for x, g in enumerate(groups)}
    pull, order, left = [0] * len(groups), list[int](), set(range(len(groups)))
    while left and len(order) < MOST_PLACED:
        best = min(left, key=lambda x: (-pull[x], x))
        order.append(best)
        left.remove(best)
        for h, ns in pulls[groups[best]].items():
            if h in place:
                pull[place[h]] = max(pull[place[h]], ns)
    return order


class _Placing:
    """Ways to place the groups of a layer, the most likely ones in detail."""

    def __init__(self, layer: NestedLayer, times: SectionTimes, fact: _Facts, kind: Ints) -> None:
        self.layer, self.times, self.fact = layer, times, fact
        self.alike = [np.flatnonzero(kind == d).tolist() for d in np.unique(kind)]

    def rows(self, order: list[int], most: int) -> tuple[list[int], Ints]:
        """The groups that are placed, and at most so many ways to place them, (p, groups)."""
        # A tree: children place one more group. The ways that take the least time get children
        # first, as long as there is room for all of them; else the rest of a way's groups is
        # anywhere. Identical devices are numbered as they appear, and get all names in the end.
        ways, done, total = [(0, tuple[int, ...]())], list[tuple[int, ...]](), 1
        while ways:
            ways.sort()
            grown = list[tuple[int, ...]]()
            for _, way in ways[:BATCH]:
                children = list[tuple[int, ...]]()
                if len(way) < len(order):
                    allowed = self.fact.allowed[order[len(way)]]
                    children = [(*way, d) for d in self._devices(way, allowed)]
                more = sum(map(self._num_names, children)) - self._num_names(way)
                if children and total + more <= most:
                    total += more
                    grown += children
                else:
                    done.append(way)
            ways = ways[BATCH:] + self._timed(grown, order)
        width = max(map(len, done), default=0)
        named = [name for way in done for name in self._names(way, width)]
        return order[:width], np.array(named, np.int64).reshape(len(named), width)

    def _timed(
        self, ways: list[tuple[int, ...]], order: list[int]
    ) -> list[tuple[int, tuple[int, ...]]]:
        """The ways that are possible at all, and the least time that the chain takes with them."""
        width = max(map(len, ways), default=0)
        devices = np.array([[*way, *[FREE] * (width - len(way))] for way in ways], np.int64)
        groups = [self.fact.groups[x] for x in order[:width]]
        least = np.zeros(len(ways), np.int64)
        for sections in (self.layer.forward, self.layer.backward):
            if ways:
                least += self.times.through(sections, groups, devices).min(axis=(1, 2))
        return [(ns, way) for ns, way in zip(least.tolist(), ways, strict=True) if ns < NO_WAY]

    def _devices(self, way: tuple[int, ...], allowed: tuple[int, ...]) -> list[int]:
        """Devices of the next group: of identical ones that are empty yet, the first."""
        found = list[int]()
        for devices in self.alike:
            empty = [d for d in devices if d not in way]
            found += [d for d in devices if d in way or d in empty[:1]]
        return [d for d in found if d in allowed]

    def _num_names(self, way: tuple[int, ...]) -> int:
        """The number of `_names`."""
        used = set(way)
        return prod(perm(len(devices), len(used & set(devices))) for devices in self.alike)

    def _names(self, way: tuple[int, ...], width: int) -> Iterator[list[int]]:
        """All ways that differ in names of identical devices alone, filled up with `FREE`."""
        used = [[d for d in devices if d in way] for devices in self.alike]
        free = [FREE] * (width - len(way))
        names = [permutations(devices, len(u)) for devices, u in zip(self.alike, used, strict=True)]
        old = [d for devices in used for d in devices]
        for each in product(*names):
            name = dict(zip(old, (d for devices in each for d in devices), strict=True))
            yield [*(name[d] for d in way), *free]


def _options(
    layer: NestedLayer,
    times: SectionTimes,
    fact: _Facts,
    order: list[int],
    devices: Ints,
    num_rooms: int,
) -> LayerOptions:
    """The options of a layer, without those that another one is no worse than."""
    num_devices = times.time.shape[1]
    groups = [fact.groups[x] for x in order]
    work, ready = np.zeros((2, len(devices), num_devices), np.int64)
    held = np.zeros((len(devices), num_rooms), np.int64)
    for column, x in enumerate(order):
        for d in range(num_devices):
            on = devices[:, column] == d
            work[on, d] += fact.work[x, d]
            ready[on, d] += fact.ready[x, d]
            if num_rooms:
                held[on, d] += fact.held_bytes[x]
    every = LayerOptions(
        times.through(layer.forward, groups, devices),
        times.through(layer.backward, groups, devices),
        work,
        ready,
        held,
        np.zeros(len(devices), np.int64),
        devices,
    )
    # An option can replace another one in every label if work and bytes are equal and no time is
    # longer. Less work would do as well, but to find that compares all pairs of options.
    same = np.concatenate([work, ready, held], axis=1)
    ways = np.concatenate(
        [part.reshape(len(devices), num_devices**2) for part in every[:2]], axis=1
    )
    _, key = np.unique(same, axis=0, return_inverse=True)
    by_key = np.argsort(key.reshape(-1), kind="stable")
    return every.only(np.sort(by_key[_no_worse(key.reshape(-1)[by_key], ways[by_key])]))


@kernel
def _no_worse(key: Ints, ways: Ints) -> Ints:
    """Rows, by key, that no other row of their key dominates; the first one if several tie."""
    # compared with the first rows of the key only: the rest would be quadratic, and a dominated row
    # that stays does no harm
    kept, count, begin, end = np.empty(len(key), np.int64), 0, 0, 0
    for x in range(len(key)):
        if x == end:
            begin = x
            while end < len(key) and key[end] == key[begin]:
                end += 1
        is_worse = (ways[x] >= NO_WAY).all()
        for y in range(begin, min(end, begin + MOST_COMPARED)):
            if is_worse or y == x:
                continue
            is_less = y < x
            is_worse = True
            for z in range(ways.shape[1]):
                is_less = is_less or ways[y, z] < ways[x, z]
                if ways[y, z] > ways[x, z]:
                    is_worse = False
                    break
            is_worse = is_worse and is_less
        if not is_worse:
            kept[count] = x
            count += 1
    return kept[:count]


def _grid(members: list[Ints], time: Ints) -> Ints:
    """Widths of the grid, one for each device: the one of those tried that rounds off least."""
    # Coarse steps make more labels equal, fine ones lose less work. Equal layers have the same
    # work, which some width nearly divides; among equal losses the widest step counts.
    known = np.where(time < NO_WAY, time, 0)
    work = np.array([known[ops].sum(axis=0) for ops in members if len(ops)], np.int64)
    steps = np.ones(time.shape[1], np.int64)
    for d in range(time.shape[1] if len(work) else 0):
        total = int(work[:, d].sum())
        widths = np.unique(
            np.linspace(max(1, total // MOST_STEPS), max(1, total // FEWEST_STEPS), TRIALS).astype(
                np.int64
            )
        )
        lost = [(int((work[:, d] % width).sum()), -int(width)) for width in widths]
        steps[d] = -min(lost)[1] if total else 1
    return steps
