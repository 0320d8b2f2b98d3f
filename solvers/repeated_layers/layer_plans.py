"""Plans of repeated layers: each class of sections is searched once, and its orders are stacked."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Floats, Ints
from placegap.instances.problem import Instance, Makespan, Plan, Transfer
from placegap.instances.problem.integers import NEVER, NO_LIMIT
from placegap.instances.referee.channels import plan_from_times
from placegap.solvers.core.clock import now_s, stop_requested
from placegap.solvers.local_search.cooling import CoolingSteps, Pace
from placegap.solvers.repeated_layers.layer_bound import LayerProof, best_prices, ns_on, window_ns
from placegap.solvers.repeated_layers.layer_search import LayerWalk, anneal_layer, walk_of
from placegap.solvers.repeated_layers.sections import FREE, Bottlenecks, LayerSection, LayerSections

RESERVE = 0.01  # share of each device's memory that is left to tensors, by the rule `peak`
SLOWEST = 1.5  # devices so many times as slow as the fastest one may have the first bottlenecks
# Parts of the sections' other ops that may have room beside their bottlenecks.
PARTS = (1.0, 0.75, 0.5, 0.25, 0.0)
LOOK_BACK = (0, 16)  # places before a full device's end at which the next one may begin

# The runs of a class, one after the other: what a ns of load costs beside the makespan, in parts of
# the bound's prices, which are 1 together, and of equal prices; and the first temperature, in
# sections' times. None is the best one everywhere: at as many moves, prices of loads bring a wide
# section of GPT-3-330M from 0.748 to 0.735 ms.
RUNS = (
    (1.0, 1.0, 0.008),
    (3.0, 0.0, 0.008),
    (0.0, 1.0, 0.008),
    (0.0, 0.0, 0.008),
    (3.0, 0.0, 0.02),
    (1.0, 1.0, 0.015),
)
COLD = 1e-4  # the last temperature
# Moves of a run for each free op, and numbers of runs: many short runs find more than a long one.
MOVES_PER_OP, LEAST_RUNS, MOST_RUNS = 400, 3, 24
TRIAL = 200  # moves by which the time of one is measured
ENDLESS_MOVES = 10**9  # of a run that ends with its time


class LayerEffort(NamedTuple):
    """What a search may spend: seconds, and moves where their number decides."""

    seconds: float | None
    moves: int | None

    def part(self, share: float) -> LayerEffort:
        """A share of it."""
        return LayerEffort(
            None if self.seconds is None else share * self.seconds,
            None if self.moves is None else ceil(share * self.moves),
        )


@dataclass
class LayerClass:
    """The sections of one class, and their search."""

    walk: LayerWalk
    #: ops, edges, numbers: Of each section: its ops and edges, and its number.
    ops: list[Ints] = field(default_factory=list)
    edges: list[Ints] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)


class Layout(NamedTuple):
    """Where bottlenecks run."""

    device: Ints  # (n,) int64, of bottlenecks
    part: float  # of the other ops of a section that has room beside its bottleneck


def state_bytes(instance: Instance, semantics: Makespan) -> Ints:
    """What each op occupies all the time; that several ops share one state is left out."""
    if semantics.memory_rule == "sum":
        return instance.arrays.resident_bytes
    return instance.memory_arrays.state_bytes


def room_bytes(instance: Instance, semantics: Makespan, reserve: Ints) -> Ints:
    """What ops may occupy of each device, less a reserve for tensors."""
    memory = instance.arrays.memory_bytes
    if semantics.memory_rule == "sum":
        return memory
    kept = np.where(memory >= NO_LIMIT, memory, (memory * (1 - RESERVE)).astype(np.int64))
    room: Ints = np.maximum(kept - reserve, 0)
    return room


def layouts(
    instance: Instance, bottlenecks: Bottlenecks, proof: LayerProof, held: Ints, room: Ints
) -> dict[tuple[int, int], Layout]:
    """Layouts worth trying, by the first device and their rank: the most room is first."""
    # The first device is the fastest for the bottlenecks, or another kind that is nearly as fast:
    # between servers the sections in between may run better there. For each number of devices, the
    # largest part of `PARTS`.
    time_ns = _times_of(instance, bottlenecks)
    found: dict[tuple[int, int], Layout] = {}
    alike = set[tuple[int, int]]()
    for first in np.argsort(time_ns, kind="stable").tolist():
        kind = int(time_ns[first]), int(room[first])
        if time_ns[first] > SLOWEST * time_ns.min():
            break
        if kind not in alike:
            alike.add(kind)
            best: dict[int, Layout] = {}
            for part in PARTS:
                given = instance, bottlenecks, proof, held, room, part, first
                likely = [
                    (ns_on(proof, layout.device[bottlenecks.ops]), look_back, layout)
                    for look_back in LOOK_BACK
                    if (layout := _layout(*given, look_back)) is not None
                ]
                if likely:
                    layout = min(likely)[-1]
                    best.setdefault(len(np.unique(layout.device[bottlenecks.ops])), layout)
            found.update({(first, rank): layout for rank, layout in enumerate(best.values())})
    return found


def _times_of(instance: Instance, bottlenecks: Bottlenecks) -> Ints:
    """How long all bottlenecks take on each device; `NEVER` where one of them cannot run."""
    able = instance.arrays.able[bottlenecks.ops].all(axis=0)
    total = instance.arrays.time_ns[bottlenecks.ops].sum(axis=0)
    times: Ints = np.where(able, total, NEVER)
    return times


def _layout(
    instance: Instance,
    bottlenecks: Bottlenecks,
    proof: LayerProof,
    held: Ints,
    room: Ints,
    part: float,
    first: int,
    look_back: int,
) -> Layout | None:
    """The first device until it is full, then others, the fastest first; None without room."""
    # Each device has a contiguous part, so that few tensors change devices, and the device changes
    # between neighbouring bottlenecks: a tensor that many ops of a section read would be sent to
    # each of them (per_edge). Of the last few places the one counts where the change costs least:
    # behind an op whose tensor is small.
    ops, num = bottlenecks.ops, bottlenecks.num_sections
    time_ns = _times_of(instance, bottlenecks)
    # of equally fast devices the one with most room comes first
    order = sorted(range(len(room)), key=lambda d: (d != first, int(time_ns[d]), -int(room[d]), d))
    order = [d for d in order if time_ns[d] < NEVER]
    inner = np.zeros(num, np.int64)
    np.add.at(inner, bottlenecks.section, np.where(bottlenecks.pinned, 0, held))
    num_free = np.bincount(bottlenecks.section[~bottlenecks.pinned], minlength=num)
    begins = np.array([s for s in range(len(ops)) if s == 0 or num_free[s] == 0])
    need = np.add.reduceat(held[ops] + part * inner[:-1], begins)
    device, left, at, first_cut = np.zeros(len(begins), np.int64), room.astype(float), 0, 1
    for t in range(len(begins)):
        while at + 1 < len(order) and left[order[at]] < need[t]:
            a, b = order[at], order[at + 1]
            cuts = np.arange(min(t, max(first_cut, t - look_back)), t + 1)
            moved = np.append(need[cuts[0] : t][::-1].cumsum()[::-1], 0.0)
            cuts, moved = (row[moved + need[t] <= max(need[t], left[b])] for row in (cuts, moved))
            best = int(_cut_ns(proof, begins[cuts], a, b).argmin()) if cuts[0] > 0 else -1
            device[cuts[best] : t] = b
            left[a], left[b] = left[a] + moved[best], left[b] - moved[best]
            at, first_cut = at + 1, int(cuts[best]) + 1
        device[t] = order[at]
        left[order[at]] -= need[t]
    at_op = np.zeros(instance.num_ops, np.int64)
    at_op[ops] = np.repeat(device, np.diff([*begins, len(ops)]))
    return None if (left < 0).any() else Layout(at_op, part)


def _cut_ns(proof: LayerProof, cuts: Ints, a: int, b: int) -> Ints:
    """What it costs to change from a to b in front of each of some bottlenecks, by the bound."""
    # beside a constant: those before a cut run on a, the others, up to the last cut, on b
    which, time_ns = proof.windows.which, proof.windows.time_ns
    kinds = [which[s - 1] for s in range(int(cuts[0]), int(cuts[-1]) + 1)]
    stay = {w: [window_ns(proof, w, d, d) for d in (a, b)] for w in sorted(set(kinds))}
    cut = {w: window_ns(proof, w, a, b) for w in sorted({which[s - 1] for s in cuts.tolist()})}
    own = np.array([stay[w] for w in kinds]) + time_ns[cuts[0] : cuts[-1] + 1, [a, b]]
    ahead = np.append(0, (own[:, 0] - own[:, 1]).cumsum())[cuts - cuts[0]]
    changed = np.array([cut[which[s - 1]] - stay[which[s - 1]][1] for s in cuts.tolist()])
    cut_ns: Ints = ahead + changed
    return cut_ns


class LayerPlanner:
    """The search of an instance's sections, one class after the other, for one layout."""

    def __init__(
        self,
        instance: Instance,
        semantics: Makespan,
        bottlenecks: Bottlenecks,
        proof: LayerProof,
        layout: Layout,
        room: Ints,
    ) -> None:
        self.instance, self.semantics, self.bottlenecks = instance, semantics, bottlenecks
        self.windows, self.prices, self.part = proof.windows, dict(proof.prices), layout.part
        #: The classes of an earlier planner, whose best states are known.
        self.earlier: Mapping[Hashable, LayerClass] = {}
        self.classes: dict[Hashable, LayerClass] = {}
        self.is_stopped, self.moves = False, 0
        # The device of each colocation group: that of its first bottleneck; others are free yet.
        held, ops, self.group = (
            state_bytes(instance, semantics),
            bottlenecks.ops,
            instance.arrays.group,
        )
        self.at = np.full(instance.arrays.num_groups, FREE)
        self.at[self.group[ops[::-1]]] = layout.device[ops[::-1]]
        self.sections = LayerSections(instance, bottlenecks, held)
        # What bottlenecks, and the parts of other ops that may be beside them, leave of each
        # device.
        spent = np.zeros(len(room))
        np.add.at(spent, self.at[self.group[ops]], held[ops].astype(float))
        self.inner_bytes = max(1, int(held.sum() - spent.sum()))
        homes = np.array([self._home(s) for s in range(bottlenecks.num_sections)])
        inner = np.where(bottlenecks.pinned, 0, held)
        np.add.at(spent, homes[bottlenecks.section], self.part * inner)
        self.room = np.maximum(room - spent, 0.0)

    def run(self, effort: LayerEffort, seed: int) -> Plan:
        """The plan of the best sections that it finds."""
        # A class for which nothing fits keeps its first state: the referee refuses the plan.
        began, rng, k = now_s(), np.random.default_rng(seed), self.instance.num_devices
        shares, kind = self._shares()
        seen = dict[Hashable, int]()
        for s in range(self.bottlenecks.num_sections):
            section = self.sections.make(s, self.at)
            signature = section.signature
            if signature not in self.classes:
                walk = self._walk(section, self._home(s))
                self.classes[signature] = LayerClass(walk)
                if section.num_free > 1:
                    # a class by structure may fall apart by the devices of earlier ops
                    seen[kind[s]] = seen.get(kind[s], 0) + 1
                    part = effort.part(shares.get(kind[s], 0.0) / 2 ** (seen[kind[s]] - 1))
                    if effort.seconds is not None and part.seconds is not None:
                        left_s = max(0.0, effort.seconds - (now_s() - began))
                        part = LayerEffort(min(part.seconds, left_s), part.moves)
                    self._anneal(walk, rng, s, part)
            found = self.classes[signature]
            found.ops.append(section.ops)
            found.edges.append(section.edges)
            found.numbers.append(s)
            self.at[self.group[section.ops]] = found.walk.state.best_at[k:]
        classes, num = [*self.classes.values()], self.bottlenecks.num_sections
        return stacked(self.instance, self.semantics, classes, num)

    def _shares(self) -> tuple[dict[Hashable, float], list[Hashable]]:
        """Parts of the effort by number x serial time, as if all were on bottlenecks' devices."""
        # And the class of each section by that.
        at, shares, kind = self.at.copy(), dict[Hashable, float](), list[Hashable]()
        for s in range(self.bottlenecks.num_sections):
            home = self._home(s)
            section = self.sections.make(s, at)
            free = section.ops[section.device[self.instance.num_devices :] == FREE]
            at[self.group[free]] = home
            kind.append(section.signature)
            time_ns = float(np.maximum(section.time_ns[:, home], 0).sum()) * (section.num_free > 1)
            shares[section.signature] = shares.get(section.signature, 0.0) + time_ns
        total_ns = sum(shares.values()) or 1.0
        return {key: time_ns / total_ns for key, time_ns in shares.items()}, kind

    def _walk(self, section: LayerSection, home: int) -> LayerWalk:
        """A new walk that knows the best state of an earlier planner."""
        own = int(section.state_bytes[section.device == FREE].sum())
        room = np.minimum(1.0, self.room / self.inner_bytes) * own
        room[home] += self.part * own
        whole = np.ceil(room).astype(np.int64)
        walk = walk_of(self.instance, self.semantics, section, home, whole)
        if section.signature in self.earlier:
            first = walk.state.at.copy(), walk.state.shift.copy()
            known = self.earlier[section.signature].walk.state
            walk.restart(known.best_at, known.best_shift)
            walk.restart(*first)
        return walk

    def _home(self, s: int) -> int:
        """The device where a section ends."""
        ops = self.bottlenecks.ops
        return int(self.at[self.group[ops[min(s, len(ops) - 1)]]])

    def _anneal(
        self, walk: LayerWalk, rng: np.random.Generator, s: int, effort: LayerEffort
    ) -> None:
        """Search one class, unless a stop was requested; what it has found stays."""
        if self.is_stopped:
            return
        try:
            for chunk in anneal(walk, rng, self._prices(s), effort):
                self.moves += chunk
            self.is_stopped = stop_requested()
        except KeyboardInterrupt:
            self.is_stopped = True

    def _prices(self, s: int) -> Floats:
        """Prices of the window's bound, or equal ones; 1 together."""
        num_machines = self.windows.num_machines
        price = np.ones(num_machines)
        if 0 < s < self.bottlenecks.num_sections - 1:
            which = self.windows.which[s - 1]
            window = self.windows.kinds[which]
            a, b = self._home(s - 1), self._home(s)
            if (which, a, b) not in self.prices:
                found = best_prices(window, self.windows.channel, num_machines, a, b)
                self.prices[which, a, b] = found
            if self.prices[which, a, b].any():
                price = self.prices[which, a, b].astype(np.float64)
        price /= price.sum()
        return price


def anneal(
    walk: LayerWalk, rng: np.random.Generator, price: Floats, effort: LayerEffort
) -> Iterator[int]:
    """Coolings by `RUNS`, each from the state at the start; yields numbers of moves."""
    began, first = now_s(), (walk.state.at.copy(), walk.state.shift.copy())
    serial_ns, equal = float(walk.state.value[0]), 1.0 / len(price)
    pace = Pace(None if effort.seconds is None else began + effort.seconds)

    def cool(moves: int, run: int, *, fits: bool) -> Iterator[int]:
        by_price, by_load, hot = RUNS[run % len(RUNS)]
        walk.work.rate[:] = by_price * price + by_load * equal
        walk.restart(*first)

        def some(steps: CoolingSteps) -> None:
            anneal_layer(walk.machines, walk.moves, walk.state, walk.work, rng, steps)

        return pace.cool(some, moves, hot * serial_ns, COLD / hot, fits=fits)

    each = MOVES_PER_OP * walk.section.num_free
    if effort.moves is not None:
        runs = min(effort.moves, _num_runs(effort.moves / each))
        for run in range(runs):
            yield from cool(effort.moves // runs, run, fits=False)
    elif effort.seconds is not None:
        yield from cool(TRIAL, 0, fits=False)
        if pace.spent_s > 0:
            runs = _num_runs(effort.seconds * pace.moves / pace.spent_s / each)
            for run in range(runs):
                pace.deadline = began + effort.seconds * (run + 1) / runs
                yield from cool(ENDLESS_MOVES, run, fits=True)


def _num_runs(wanted: float) -> int:
    return max(LEAST_RUNS, min(MOST_RUNS, round(wanted)))


def stacked(
    instance: Instance, semantics: Makespan, classes: Sequence[LayerClass], num_sections: int
) -> Plan:
    """The best states of all classes in a row, as a plan with the orders of all items."""
    n, k = instance.num_ops, instance.num_devices
    device, start, end = np.zeros((3, n), np.int64)
    length = np.zeros(num_sections, np.int64)
    for found in classes:
        length[found.numbers] = found.walk.best_ns()
    began = np.concatenate([[0], np.cumsum(length)])
    rows: list[tuple[int, int, Transfer]] = []
    for found in classes:
        found.walk.best_ns()
        work, at = found.walk.work, found.walk.state.best_at
        items = np.flatnonzero(work.start[len(at) :] >= 0).tolist()
        for number, ops, edges in zip(found.numbers, found.ops, found.edges, strict=True):
            device[ops] = at[k:]
            start[ops] = work.start[k : len(at)] + began[number]
            end[ops] = work.end[k : len(at)] + began[number]
            sent = _transfers(instance, semantics, found.walk, items, edges)
            for item, transfer in zip(items, sent, strict=True):
                times = work.start[len(at) + item], work.end[len(at) + item]
                rows.append((*(int(began[number] + ns) for ns in times), transfer))  # type: ignore[arg-type]
    first: dict[Transfer, tuple[int, int]] = {}
    for begin, last, transfer in sorted(rows):
        first.setdefault(transfer, (begin, last))  # per_tensor: an earlier section may send it
    spans = list(zip(start.tolist(), end.tolist(), strict=True))
    listed = ((transfer, *span) for transfer, span in first.items())
    return plan_from_times(instance, semantics, device.tolist(), spans, listed)


def _transfers(
    instance: Instance, semantics: Makespan, walk: LayerWalk, items: Sequence[int], edges: Ints
) -> Iterator[Transfer]:
    """What the items of a section's schedule move, for a section with these edges."""
    section, k = walk.section, instance.num_devices
    if semantics.transfers == "per_edge":
        for item in items:
            yield Transfer(int(edges[item]), int(walk.state.best_at[section.consumer[item]]))
    else:
        _, edge_of = np.unique(section.tensor, return_index=True)
        for item in items:
            tensor, to = divmod(item, k)
            yield Transfer(int(instance.arrays.index.tensor[edges[edge_of[tensor]]]), to)
