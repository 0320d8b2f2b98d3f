"""The best line that a tool can say (`exporters.lines`), and a bound of all that it can.

A line's value is made of slots: each takes its ops' time on its device, more where the slot before
is on another one or its experts are on the host. Labels go along the slots: the value so far, the
bytes on the device at hand and on the host, by which devices were used and which one is at hand.
Devices that are alike count as one. A label that is nowhere better than another one of its state is
left out; the least at the end is the optimum of the class.

- **makespan**: between two cuts (`problem.sections.cuts`) time does not depend on what is before.
  The referee's own clock says how long it is, in a few plans that have each device after each other
  one. This is exact if what is between two cuts is of two slots.
- **max_load**: the work of a device, and for each tensor across its border the time there. It is
  exact if tensors go to neighbouring slots alone.

Bytes are those of `relax_memory`, so that under the rule `peak` the labels' optimum is a bound. A
line that does not fit at its peak is looked for again with less room.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, combinations_with_replacement, islice, pairwise, product
from typing import NamedTuple

import numpy as np

from placegap.instances.exporters.lines import (
    LayerLine,
    LayerSlots,
    LineClass,
    alike_devices,
    filling_bytes,
    gpus_and_host,
    slots_of,
)
from placegap.instances.exporters.modules import layer_list, num_experts
from placegap.instances.exporters.read_lines import read_line
from placegap.instances.kernels.array_types import Flags, Ints
from placegap.instances.problem import Instance, Makespan, MaxLoad, Plan, Semantics
from placegap.instances.problem.additive_memory import relax_memory
from placegap.instances.problem.integers import NO_WAY
from placegap.instances.problem.sections import cuts
from placegap.instances.reading.errors import InputError
from placegap.instances.referee.evaluate import evaluate
from placegap.instances.referee.simulate import simulate
from placegap.solvers.core.result import Bound

ORIGIN = "lines of layers"
"""Origin of its bounds."""

MOST_STATES = 500
"""Ways to have used devices: 64 of six different cards take 2 s for a makespan of 64 layers, and 10
s for a load, on one core of ours. Beyond, devices are taken in the cluster's order, and nothing is
proven."""

MOST_LABELS = 300
"""Labels of a state; beyond, those of least value are kept, and nothing is proven. Two cards, a
host and 46 layers with experts need 40 for a makespan, and more than these for a load."""

HALVINGS, MOST_AIMS = 8, 30
"""Aims for a load that halve what is open, and all of them. After these halvings one to six more
prove the optimum."""

MOST_ROOM_TRIES, MOST_SIMPLE = 20, 500
"""Times that room is taken away for what is live at the peak, and lines of few devices that are
tried if no line fits then, or none has plans of the rules' class: on 1,258 ops 8 CPU s for a
makespan, and 2 for a load."""

TOTAL, LOAD, HELD, HOST_HELD, HOST_LOAD = range(5)
"""Columns of labels: the sum of times, or the heaviest load of devices that are done; load and
bytes of the device at hand; bytes and load of the host."""


class BestLine(NamedTuple):
    """A line, its plan and value, and what no line of its class is below, if anything is proven."""

    line: LayerLine
    plan: Plan
    value_ns: int
    bound: Bound | None


class _Costs(NamedTuple):
    """Of S slots on devices of C classes, in ns; `NO_WAY` where a slot cannot be.

    The last axis: experts with the rest, or on the host.
    """

    #: (S, C, 2): a slot on the device of the one before it.
    stay: Ints
    #: (S, C, C, 2): one on a device of the second class, after one of the first.
    enter: Ints
    #: (S, C): what the device before it has to do more then.
    left: Ints
    #: (S,): what the host has to do for experts of the slot.
    host: Ints
    is_exact: bool


_Key = tuple[tuple[int, ...], int]
"""How many devices of each class were used, and the class of the one at hand."""


class _Step(NamedTuple):
    """Labels of a state, whose successor each is, and whether its slot's experts are away."""

    labels: Ints
    before: tuple[_Key, ...]
    source: Ints
    row: Ints
    away: Flags


def best_line(instance: Instance, semantics: Semantics, kind: LineClass) -> BestLine | None:
    """The best line of a class; None where none was found that fits."""
    layer_list(instance)  # refused, if it has none
    if not kind.has_host and not gpus_and_host(instance.cluster)[0]:
        return None
    try:
        search = _Search(instance, semantics, kind)
    except InputError:  # no device runs all ops of a layer
        return None
    room, bound = search.room.copy(), None
    best: BestLine | None = None
    line: LayerLine | None = None
    for _ in range(MOST_ROOM_TRIES):
        found = search.least(room)
        if found is None:
            break
        value, line = found
        if bound is None and search.costs.is_exact and not search.is_cut:
            bound = Bound(value, ORIGIN)
        best, over = search.judged(line)
        if best is not None or not over.any():
            break
        room -= over
    if best is None and line is not None:
        tried = (search.judged(other)[0] for other in islice(search.simple_lines(), MOST_SIMPLE))
        fitting = [each for each in tried if each is not None]
        best = min(fitting, key=lambda each: each.value_ns, default=None)
    return None if best is None else best._replace(bound=bound)


class _Search:
    """The slots of an instance, what they take where, and the labels along them."""

    def __init__(self, instance: Instance, semantics: Semantics, kind: LineClass) -> None:
        self.instance, self.semantics, self.kind = instance, semantics, kind
        self.slots = slots_of(instance)
        floor = relax_memory(_grouped(instance, self.slots), semantics)[0]
        gpus, host = gpus_and_host(instance.cluster)
        self.host = host if kind.has_host else None
        alike = ([k for k in own if k in gpus] for own in alike_devices(instance))
        classes = [own for own in alike if own]
        self.all_orders = bool(np.prod([len(own) + 1.0 for own in classes]) <= MOST_STATES)
        if not self.all_orders:
            classes = sorted([k] for own in classes for k in own)
        self.classes = [*classes, *([] if self.host is None else [[self.host]])]
        self.of_host = -1 if self.host is None else len(classes)
        self.first = [own[0] for own in self.classes]
        self.num = len(layer_list(instance)) + 2
        self.is_sum = "device_order" in semantics.plan_fields  # a pass, and no loads
        can_part = kind.experts_apart and self.host is not None and semantics.plan_class == "any"
        self.parts = np.zeros(self.num, np.bool_)
        self.parts[self.slots.slot[self.slots.expert]] = can_part
        size = floor.arrays.resident_bytes
        self.can = self._possible(floor)
        self.may_begin = np.ones(self.num, np.bool_)  # a device
        if kind.fills:
            self.may_begin = filling_bytes(instance) > 0
        elif kind.has_host and self.host is None:  # embeddings are with the first layer
            self.may_begin[1] = False
        self.expert_bytes = self.sums(size, self.slots.expert)
        self.bytes = self.sums(size, ~self.slots.expert) + self.expert_bytes
        self.room = instance.arrays.memory_bytes[self.first].copy()
        self.host_binds = self.host is not None and int(size.sum()) > self.room[self.of_host]
        self.costs = _by_clock(self) or _by_loads(self)
        self.is_cut = not self.all_orders

    def _possible(self, floor: Instance) -> Flags:
        """Whether a slot can be on a class of devices, with its experts and without: (S, C, 2)."""
        able = np.where(floor.arrays.possible[:, self.first], 0, 1)
        is_expert = self.slots.expert & self.parts[self.slots.slot]
        rest, experts = self.sums(able, ~is_expert) == 0, self.sums(able, is_expert) == 0
        on_host = experts[:, [self.of_host]] & self.parts[:, None]
        on_host = on_host & (np.arange(len(self.first)) != self.of_host)
        return np.stack([rest & experts, rest & on_host], axis=2)

    def sums(self, of_op: Ints, chosen: Flags) -> Ints:
        """Sums over the ops of each slot."""
        found = np.zeros((self.num, *of_op.shape[1:]), np.int64)
        np.add.at(found, self.slots.slot[chosen], of_op[chosen])
        return found

    def least(self, room: Ints) -> tuple[int, LayerLine] | None:
        """A line of the least value by the costs, and what no line is below.

        Labels of loads do not compete in the loads of devices that are done, which are within an
        aim: halving comes near to the least that a line reaches, and then one less is the aim.
        """
        best = self._within(room, NO_WAY - 1)
        if best is None or self.is_sum:
            return best
        low, high = 0, best[0] - 1  # a line is known above `high`, and none below `low`
        for step in range(MOST_AIMS):
            if low > high:
                break
            aim = (low + high) // 2 if step < HALVINGS else high
            found = self._within(room, aim)
            if found is None:
                low = aim + 1
            else:
                best, high = found, found[0] - 1
        return low if low <= high else best[0], best[1]

    def _within(self, room: Ints, aim: int) -> tuple[int, LayerLine] | None:
        """The line of the least label that no more than an aim, and its value."""
        steps = list[dict[_Key, _Step]]()
        states: dict[_Key, Ints] = {((0,) * len(self.classes), -1): np.zeros((1, 5), np.int64)}
        for s in range(self.num):
            grown: dict[_Key, list[tuple[_Key, Ints, Ints, bool]]] = {}
            for key, labels in states.items():
                for other in self._next(key, s):
                    for away in (False, True) if self.parts[s] else (False,):
                        new = self._grown(labels, key, other, s, away)
                        fits = new[:, HELD] <= room[other[1]]
                        if self.host is not None:
                            fits &= new[:, HOST_HELD] <= room[self.of_host]
                        fits &= self._value(new) <= aim
                        if fits.any():
                            part = key, new[fits], np.flatnonzero(fits), away
                            grown.setdefault(other, []).append(part)
            steps.append({key: self._merged(parts) for key, parts in grown.items()})
            states = {key: step.labels for key, step in steps[-1].items()}
        if not states:
            return None
        key = min(states, key=lambda key: int(self._value(states[key]).min()))
        row = int(self._value(states[key]).argmin())
        value = int(self._value(states[key])[row])
        home, away_from = list[int](), list[int]()
        for s in range(self.num - 1, -1, -1):
            step, (used, at) = steps[s][key], key
            home.append(self.classes[at][used[at] - 1])  # alike ones in their order
            if step.away[row]:
                away_from.append(s - 1)
            key, row = step.before[int(step.source[row])], int(step.row[row])
        return value, LayerLine(tuple(home[::-1]), tuple(away_from[::-1]))

    def _merged(self, parts: list[tuple[_Key, Ints, Ints, bool]]) -> _Step:
        """The labels of a state, but for those that are nowhere better than another one."""
        labels = np.concatenate([part[1] for part in parts])
        count = [len(part[1]) for part in parts]
        source = np.repeat(np.arange(len(parts)), count)
        row = np.concatenate([part[2] for part in parts])
        away = np.repeat(np.array([part[3] for part in parts], np.bool_), count)
        kept = np.lexsort((labels[:, HELD], self._value(labels)))[: 4 * MOST_LABELS]
        front = kept[_undominated(labels[kept, 0 if self.is_sum else 1 :])]
        self.is_cut |= len(kept) < len(labels) or len(front) > MOST_LABELS
        kept = front[:MOST_LABELS]
        return _Step(labels[kept], tuple(p[0] for p in parts), source[kept], row[kept], away[kept])

    def _next(self, key: _Key, s: int) -> Iterator[_Key]:
        """Where a slot may be after one in a state."""
        used, at = key
        if s:
            yield key
        elif self.host is not None:
            yield (*used[:-1], 1), self.of_host
            return
        gpus = sum(used) - (self.host is not None)
        if (s and not self.may_begin[s]) or gpus == self.kind.most_gpus:
            return
        for c, own in enumerate(self.classes):
            is_later = self.all_orders or at in (-1, self.of_host) or c > at
            if c != self.of_host and used[c] < len(own) and is_later:
                yield (*used[:c], used[c] + 1, *used[c + 1 :]), c

    def _grown(self, labels: Ints, key: _Key, other: _Key, s: int, away: bool) -> Ints:
        """Labels with one slot more."""
        costs, new, at, to = self.costs, labels.copy(), key[1], other[1]
        is_host, is_new = to == self.of_host, key != other
        time = costs.enter[s, at, to, int(away)] if is_new and s else costs.stay[s, to, int(away)]
        if is_new and s:
            new[:, HOST_LOAD if at == self.of_host else LOAD] += costs.left[s, at]
            new[:, TOTAL] = np.maximum(new[:, TOTAL], new[:, LOAD])
            new[:, [LOAD, HELD]] = 0
        new[:, TOTAL if self.is_sum else HOST_LOAD if is_host else LOAD] += time
        parted = self.expert_bytes[s] if away else 0
        new[:, HOST_HELD if is_host else HELD] += self.bytes[s] - parted
        new[:, HOST_HELD] += parted
        new[:, HOST_LOAD] += costs.host[s] if away else 0
        if not self.host_binds:
            new[:, HOST_HELD] = 0
        return new

    def _value(self, labels: Ints) -> Ints:
        found: Ints = labels[:, [TOTAL, LOAD, HOST_LOAD]].max(axis=1)
        return found

    def simple_lines(self) -> Iterator[LayerLine]:
        """All lines, those of few devices first; experts with their layers, or all on the host."""
        gpus = [own for c, own in enumerate(self.classes) if c != self.of_host]
        first = [] if self.host is None else [self.host]
        most = min(sum(map(len, gpus)), self.kind.most_gpus or self.num)
        for count in range(1 - len(first), most + 1):
            for chosen in product(range(len(gpus)), repeat=count):
                if any(chosen.count(c) > len(gpus[c]) for c in chosen):
                    continue
                order = [gpus[c][chosen[:at].count(c)] for at, c in enumerate(chosen)]
                for cut in combinations(range(1, self.num), len(first) + count - 1):
                    if not self.may_begin[list(cut)].all():
                        continue
                    ends = pairwise([0, *cut, self.num])
                    runs = zip([*first, *order], ends, strict=True)
                    home = tuple(k for k, (a, b) in runs for _ in range(a, b))
                    away = [
                        s - 1 for s in np.flatnonzero(self.parts).tolist() if home[s] != self.host
                    ]
                    yield LayerLine(home)
                    if away:
                        yield LayerLine(home, tuple(away))

    def judged(self, line: LayerLine) -> tuple[BestLine | None, Ints]:
        """A line as the referee sees it, if it is feasible; what each class lacks in bytes."""
        plan = self.slots.plan(line, self.host)
        verdict = evaluate(self.instance, plan, self.semantics)
        over = np.zeros(len(self.classes), np.int64)
        if verdict.uses:
            held = np.array([use.memory_bytes for use in verdict.uses])
            lack = (held - self.instance.arrays.memory_bytes).clip(0)
            over[:] = [lack[own].max() for own in self.classes]
        if verdict.feasible and verdict.value_ns is not None:
            return BestLine(line, plan, verdict.value_ns, None), over
        return None, over


def _undominated(labels: Ints) -> Ints:
    """Rows that no other row is below or equal to in all columns, of equal ones the first."""
    columns = labels[:, (labels != labels[0]).any(axis=0)]
    if not columns.shape[1]:
        return np.zeros(1, np.int64)
    order = np.lexsort(columns.T[::-1])
    columns = columns[order]
    if columns.shape[1] <= 2:
        last = columns[:, -1]
        lowest = np.concatenate([[NO_WAY], np.minimum.accumulate(last)[:-1]])
        found: Ints = order[last < lowest]
        return found
    left, kept = np.arange(len(columns)), list[int]()
    while len(left):
        first = left[0]
        kept.append(int(first))
        left = left[(columns[left] < columns[first]).any(axis=1)]
    return order[kept]


def _grouped(instance: Instance, slots: LayerSlots) -> Instance:
    """The instance with the ops of a slot, but for its experts, as one group, and these as one."""
    parts = zip(instance.graph.ops, slots.slot.tolist(), slots.expert.tolist(), strict=True)
    ops = tuple(
        op.model_copy(update={"colocation": f"{slot}{'e' if expert else ''}"})
        for op, slot, expert in parts
    )
    return instance.with_graph(instance.graph.model_copy(update={"ops": ops}))


def _with_limits(search: _Search, costs: _Costs) -> _Costs:
    """The costs with `NO_WAY` where a slot or its experts cannot be."""
    stay, enter = np.where(search.can, costs.stay, NO_WAY), costs.enter
    return costs._replace(stay=stay, enter=np.where(search.can[:, None], enter, NO_WAY))


def _by_clock(search: _Search) -> _Costs | None:
    """What the referee's clock says, from cut to cut; None where that is not exact."""
    instance, slots, semantics = search.instance, search.slots, search.semantics
    if not isinstance(semantics, Makespan):
        return None
    at = np.array(cuts(instance), np.int64)
    position = instance.arrays.index.topological_position
    part = np.searchsorted(position[at], position)  # the ops after a cut, up to the next one
    of_part = np.full(len(at) + 1, -1)
    np.maximum.at(of_part, part, slots.slot)
    np.maximum.at(of_part, np.arange(1, len(at) + 1), slots.slot[at])  # it waits for that cut
    lag, begins = of_part[part] - slots.slot, of_part[1:] - slots.slot[at]
    experts = slots.expert & search.parts[slots.slot]
    if max(lag.max(), begins.max(initial=0)) > 1 or lag[experts].any() or begins[experts[at]].any():
        return None
    can, num, first = search.can, search.num, search.first
    if not can.any(axis=(1, 2)).all():
        return None
    stay = np.full((num, len(first), 2), NO_WAY)
    enter = np.full((num, len(first), len(first), 2), NO_WAY)

    def clock(turns: list[tuple[int, int]], away: bool) -> Ints:
        """The time of each slot where they take turns on two devices, of a class each.

        A slot that cannot be there is elsewhere: its own time is then not used.
        """
        home, apart = list[int](), list[int]()
        for s in range(num):
            c, k = turns[s % 2]
            if not can[s, c].any():
                c = int(can[s].any(axis=1).argmax())
                k = first[c]
            home.append(k)
            if can[s, c, 1] and (away or not can[s, c, 0]):
                apart.append(s - 1)
        line = LayerLine(tuple(home), tuple(apart))
        schedule = simulate(instance, slots.plan(line, search.host), semantics)
        ends = np.concatenate([[0], schedule.end_ns[at], [schedule.makespan_ns]])
        found = np.zeros(num, np.int64)
        np.add.at(found, of_part, np.diff(ends))
        return found

    for away in (False, True) if search.parts.any() else (False,):
        for c, d in combinations_with_replacement(range(len(first)), 2):
            one, other = (c, first[c]), (d, search.classes[d][-1] if c == d else first[d])
            if c == d:
                stay[:, c, int(away)] = clock([one, one], away)
            if one == other:
                continue
            for turns in ([one, other], [other, one]):
                time = clock(turns, away)
                for s in range(1, num):
                    enter[s, turns[s % 2 - 1][0], turns[s % 2][0], int(away)] = time[s]
    nothing = np.zeros((num, len(first)), np.int64)
    return _with_limits(search, _Costs(stay, enter, nothing, nothing[:, 0], is_exact=True))


def _by_loads(search: _Search) -> _Costs:
    """Work, and for each tensor across a border the time there."""
    arrays, slots, semantics = search.instance.arrays, search.slots, search.semantics
    first, of_host, index = search.first, search.of_host, arrays.index
    time = np.maximum(arrays.time_ns[:, first], 0)
    experts = slots.expert & search.parts[slots.slot]
    work, expert_work = search.sums(time, ~experts), search.sums(time, experts)
    cost = np.where(arrays.is_host, 0, arrays.host_ns)[:, first]
    a, b = slots.slot[index.producer], slots.slot[index.consumer]
    border, apart = np.zeros_like(work), np.zeros_like(work)
    far, inner = np.abs(a - b), experts[index.producer] != experts[index.consumer]
    is_border, is_apart = far > 0, (far == 0) & inner
    # a tensor for one slot that is no neighbour, as of tied weights, is sent in almost any line
    times_sent = np.bincount(index.tensor[is_border], minlength=len(cost))
    lone = (far > 1) & (times_sent[index.tensor] == 1)
    for end in (b,) if search.is_sum else (a, b):
        np.add.at(work, end[lone], cost[index.tensor[lone]])
    is_border &= ~lone
    for chosen, found in ((is_border, border), (is_apart, apart)):
        pairs = np.unique(np.stack([index.tensor, np.maximum(a, b)])[:, chosen], axis=1)
        np.add.at(found, pairs[1], cost[pairs[0]])
        if chosen is is_border:
            several = len(np.unique(pairs[0])) < pairs.shape[1]
    ends = experts[index.producer] | experts[index.consumer]
    both = np.intersect1d(index.tensor[is_border], index.tensor[is_apart])
    is_simple = far.max(initial=0) <= 1 and not (several or len(both) or ends[is_border].any())
    rules = isinstance(semantics, MaxLoad) and semantics.load == "add" and semantics.levels == 1
    host = expert_work[:, of_host] + apart[:, of_host]
    stay = np.stack([work + expert_work, work + apart], axis=2)
    left = border
    if search.is_sum:
        stay[:, :, 1] += host[:, None]
        left, host = np.zeros_like(border), np.zeros_like(host)
    enter = np.repeat((stay + border[:, :, None])[:, None], len(first), axis=1)
    return _with_limits(search, _Costs(stay, enter, left, host, bool(rules and is_simple)))


def best_expert_count(instance: Instance, semantics: Semantics) -> tuple[str, int]:
    """KTransformers' option for the best number of experts of each layer on a card, and its value.

    All numbers are tried: with all experts on the card nothing is sent to the host, so that the
    value need not first fall and then rise.
    """
    best, why = list[tuple[int, str]](), ""
    for number in range(num_experts(instance) + 1):
        text = f"--kt-num-gpu-experts {number}"
        parted = read_line(instance, text)
        verdict = evaluate(parted.instance, parted.plan, semantics)
        if verdict.feasible and verdict.value_ns is not None:
            best.append((verdict.value_ns, text))
        else:
            why = f"{verdict.violations[0]}"
    if not best:
        raise InputError(f"no number of experts fits: {why}", "export ktransformers")
    value_ns, text = min(best, key=lambda each: each[0])
    return text, value_ns
