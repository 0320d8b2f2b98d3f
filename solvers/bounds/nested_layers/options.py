"""What a layer takes, forward and back, and the work that it leaves on each device.

An *option* puts the largest groups of a layer on devices. Its sections then take at least what
`interval_arcs` proves with these groups in their places, and all others anywhere. Work counts in
whole steps of a grid, rounded down for each group, so that sums of layers that are alike are alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from placegap.formulations.shared.windows import NEVER
from placegap.instances.problem.graph_index import Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.semantics import Makespan
from placegap.instances.structure.intervals import Interval
from placegap.instances.structure.sections import Section
from placegap.solvers.bounds.interval_arcs import interval_arcs
from placegap.solvers.bounds.nested_layers.layers import NestedLayer, NestedLayers
from placegap.solvers.bounds.nested_layers.ports import channel_table, port_gap, section_edges
from placegap.solvers.bounds.work_windows import WorkWindows

MOST_OPTIONS, MOST_WORK = 256, 300_000_000
"""Of one layer, and edges of all layers' options times devices cubed, about two seconds' worth; the
groups with the least work are anywhere."""

FEWEST_STEPS, MOST_STEPS, TRIALS = 10_000, 40_000, 60
"""Of the grid, for all work of a device; and so many widths are tried for the one that loses
least."""


class LayerOptions(NamedTuple):
    """The options of one layer.

    Attributes
    ----------
    forward_ns, back_ns : (p, K, K) int64
        From the start of the outer gate to that of the inner one, and of the inner one to that of
        the outer one, by the devices of both; `NEVER` where an option has one elsewhere.
    work : (p, K) int64
        Of what the groups do after the core's first gate, on each device, in steps of the grid.
    ready : (p, K) int64
        The part of it that follows the layer's inner gate on the way back.
    groups : tuple of int
    devices : (p, groups) int64
        Where each option has them.
    """

    forward_ns: Ints
    back_ns: Ints
    work: Ints
    ready: Ints
    groups: tuple[int, ...]
    devices: Ints


Way = tuple[Ints, Ints, tuple[int, ...]]
"""Forward and back, and the devices of the groups."""


class LayerTable(NamedTuple):
    """All that is known of layers, outermost first.

    Attributes
    ----------
    options : list of LayerOptions
    step_ns : (K,) int64
        Of the grid.
    unready_ns : list of (K,) int64
        The part of it, of groups further out, that need not be after the layer's inner gate on the
        way back; at most. One row more: of all groups, what need not be after the core's last gate.
    left_ns : list of (K,) int64
        What follows the start of that gate at least, by its device.
    head_ns : list of (K,) int64
        When the inner gate of the way forward starts at the earliest.
    gate_ns : list of (K,) int64
        What that gate of the way back takes; one row more, of the core's first gate.
    outer_ns : tuple of (K,) and (K,) int64
        The same of the outermost gates.
    core_ns : (K, K) int64
        From the start of the core's first gate to that of its last one.
    """

    options: list[LayerOptions]
    step_ns: Ints
    unready_ns: list[Ints]
    left_ns: list[Ints]
    head_ns: list[Ints]
    gate_ns: list[Ints]
    outer_ns: tuple[Ints, Ints]
    core_ns: Ints


def layer_table(
    instance: Instance,
    semantics: Makespan,
    chain: Sequence[Section],
    nested: NestedLayers,
    windows: WorkWindows,
    stop: Callable[[], bool],
) -> LayerTable | None:
    """Options of all layers, and what surrounds them; None if it is stopped."""
    time, gates = windows.time_ns, nested.gates
    ops_of = _members(instance.arrays.group)
    after = nested.last_gate >= nested.core.start
    tables = _Tables(instance, semantics, chain, windows)
    steps = _grid([ops[after[ops]] for ops in ops_of], time)
    table = LayerTable(
        [], steps, [], [], [], [], (_heads(windows, gates[0]), _tails(windows, gates[-1])),
        tables.through(time, nested.core),
    )  # fmt: skip
    outside = list[Ints]()
    width = int(windows.weights.sum())
    share = MOST_WORK // (len(nested.layers) * time.shape[1] ** 3)
    for layer in nested.layers:
        if stop():
            return None
        inner = layer.backward.start
        unready = _unready(outside, nested.last_gate, inner, time)
        sections = [s for s in (*layer.forward, *layer.backward) if s < len(chain)]
        edges = sum(len(chain[s].edges) for s in sections)
        chosen = _largest(layer.groups, time.shape[1], share // max(1, edges))
        members = [ops_of[g] for g in chosen]
        behind = [ops[after[ops]] for ops in members]
        found = _options(layer, tables, time.copy(), members, behind, nested.last_gate, steps)
        found = found._replace(groups=tuple(chosen))
        outside += behind
        outside = [ops for ops in outside if (nested.last_gate[ops] < inner).any()]
        mass = int(windows.mass[nested.last_gate >= inner].sum())
        left = np.maximum(_tails(windows, gates[inner]), -(-mass // width))
        table.options.append(found)
        table.unready_ns.append(unready)
        table.left_ns.append(left)
        table.gate_ns.append(time[gates[inner]])
        table.head_ns.append(_heads(windows, gates[layer.forward.stop]))
    table.unready_ns.append(_unready(outside, nested.last_gate, nested.core.stop, time))
    table.gate_ns.append(time[gates[nested.core.start]])
    return table


def _unready(late: list[Ints], last_gate: Ints, gate: int, time: Ints) -> Ints:
    """What ops take on each device that a gate does not precede."""
    every = np.concatenate([np.zeros(0, np.int64), *late])
    rows = time[every[last_gate[every] < gate]]
    return np.asarray(np.where(rows < NEVER, rows, 0).sum(axis=0))


def _heads(windows: WorkWindows, gate: int) -> Ints:
    return np.asarray(np.minimum(windows.head_ns[gate], NEVER))


def _tails(windows: WorkWindows, gate: int) -> Ints:
    return np.asarray(np.minimum(windows.tail_ns[gate] + windows.time_ns[gate], NEVER))


def _members(group: Ints) -> list[Ints]:
    order = np.argsort(group, kind="stable")
    return np.split(order, np.cumsum(np.bincount(group))[:-1])


class _Tables:
    """Least times through sections, with some groups on given devices."""

    def __init__(
        self,
        instance: Instance,
        semantics: Makespan,
        chain: Sequence[Section],
        windows: WorkWindows,
    ) -> None:
        self.instance, self.windows = instance, windows
        self.parts = [Interval(int(s.ops[0]), int(s.ops[-1]), s.ops[1:-1]) for s in chain]
        self.edges = [section_edges(instance, part, semantics) for part in chain]
        self.last = self.parts[-1].exit
        self.channel = channel_table(semantics, instance.num_devices)

    def through(self, time: Ints, sections: range) -> Ints:
        """From the start of the first one's entry to that of the last one's exit, (K, K)."""
        num_devices = time.shape[1]
        least = np.where(np.eye(num_devices, dtype=np.bool_), 0, NEVER)
        inner = sections[: len(sections) - (sections.stop > len(self.parts))]
        parts = [self.parts[s] for s in inner]
        arcs = interval_arcs(self.instance, parts, time, self.windows.mass, self.windows.weights)
        pointer = np.cumsum([0, *(len(part.inner) for part in parts)])
        known = len(arcs.head_ns) == pointer[-1] and arcs.head_ns.shape[1:] == (num_devices,) * 2
        for r, (s, part) in enumerate(zip(inner, parts, strict=True)):
            enter, leave = time[part.entry][:, None], time[part.exit][None, :]
            gap = arcs.gap_ns[r] if r < len(arcs.gap_ns) else np.zeros_like(least)
            if known and len(part.inner):
                rows = slice(pointer[r], pointer[r + 1])
                gap = port_gap(gap, time[list(part.inner)], arcs.head_ns[rows], arcs.tail_ns[rows],
                               *self.edges[s], *self.channel)  # fmt: skip
            table = np.where(leave < NEVER, np.minimum(enter + gap, NEVER), NEVER)
            least = np.minimum((least[:, :, None] + table[None]).min(axis=1), NEVER)
        if len(inner) < len(sections):  # the last gate, which must be where it is
            least = np.where(time[self.last] < NEVER, least, NEVER)
        return least


def _largest(groups: Sequence[int], num_devices: int, most: int) -> Sequence[int]:
    """The first groups, as many as there may be options for."""
    count = 0
    while count < len(groups) and num_devices ** (count + 1) <= min(MOST_OPTIONS, most):
        count += 1
    return groups[:count]


def _options(
    layer: NestedLayer, tables: _Tables, time: Ints, members: list[Ints], late: list[Ints],
    last_gate: Ints, steps: Ints,
) -> LayerOptions:  # fmt: skip
    """The options of a layer, without those that another one is no worse than.

    Groups have their `members`, and those of them that follow the core: `late`. Of `time` their
    rows are changed.
    """
    num_devices = time.shape[1]
    own = [time[ops] for ops in members]
    runs = [np.flatnonzero((rows < NEVER).all(axis=0)).tolist() for rows in own]
    work, ready = np.zeros((2, len(members), num_devices), np.int64)
    for x, ops in enumerate(late):
        known = np.where(time[ops] < NEVER, time[ops], 0)
        work[x] = known.sum(axis=0) // steps
        ready[x] = known[last_gate[ops] >= layer.backward.start].sum(axis=0) // steps
    rows: dict[tuple[int, ...], list[Way]] = {}
    for devices in product(*runs):
        left = np.zeros((2, num_devices), np.int64)
        for x, d in enumerate(devices):
            left[0, d] += work[x, d]
            left[1, d] += ready[x, d]
            time[members[x]] = NEVER
            time[members[x], d] = own[x][:, d]
        ways = tables.through(time, layer.forward), tables.through(time, layer.backward), devices
        rows.setdefault(tuple(left.ravel().tolist()), []).append(ways)
    keys, forward, back = list[tuple[int, ...]](), list[Ints](), list[Ints]()
    where = list[tuple[int, ...]]()
    for key, ways_of in rows.items():
        for there, home, at in _no_worse(ways_of):
            keys.append(key)
            forward.append(there)
            back.append(home)
            where.append(at)
    loads = np.array(keys, np.int64).reshape(-1, 2, num_devices)
    shape = (-1, num_devices, num_devices)
    there, home = (np.array(ways, np.int64).reshape(shape) for ways in (forward, back))
    held = np.array(where, np.int64).reshape(len(where), len(members))
    return LayerOptions(there, home, loads[:, 0], loads[:, 1], (), held)


def _no_worse(ways: list[Way]) -> Iterator[Way]:
    """Those that no other one is everywhere at most as long as; of equal ones the first."""
    flat = [np.concatenate([there.ravel(), home.ravel()]) for there, home, _ in ways]
    for x, row in enumerate(flat):
        less = (bool((other <= row).all()) and (y < x or bool((other < row).any()))
                for y, other in enumerate(flat) if y != x)  # fmt: skip
        if not any(less):
            yield ways[x]


def _grid(members: list[Ints], time: Ints) -> Ints:
    """Widths of the grid, one for each device: of some, the one that loses least in rounding."""
    known = np.where(time < NEVER, time, 0)
    work = np.array([known[ops].sum(axis=0) for ops in members if len(ops)], np.int64)
    steps = np.ones(time.shape[1], np.int64)
    for d in range(time.shape[1] if len(work) else 0):
        total = int(work[:, d].sum())
        widths = np.unique(np.linspace(max(1, total // MOST_STEPS), max(1, total // FEWEST_STEPS),
                                       TRIALS).astype(np.int64))  # fmt: skip
        lost = [(int((work[:, d] % width).sum()), -int(width)) for width in widths]
        steps[d] = -min(lost)[1] if total else 1
    return steps
