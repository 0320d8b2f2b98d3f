"""The best plan that a tool's options can express (`exporters.lines`), and a bound on all of them.

A line is one slot after another, and each slot (a layer, the embeddings, the head) is on a device.
Its value is a sum or a maximum over slots: the time of its ops on its device, and more if the slot
before is on another device or its experts are on the host. A label-setting DP runs along the slots.
State: the number of devices of each class used so far (equal devices are one class), and the class
of the last one. Label: the value so far, and the bytes on the last device and on the host. A label
that another one of its state is at most in every column is dropped, as whatever follows adds the
same to both. The least at the end is the optimum of the class of lines.

- **makespan**: between two cuts (`problem.sections.cuts`) time does not depend on what was before.
  It is read from the referee's clock, in a few plans in which each class of devices follows each
  other one. This is exact if the ops between two cuts are of two slots.
- **max_load**: the work of a device, and for each tensor across its border the time there. This is
  exact if tensors go to neighbouring slots only.

Bytes are those of `relax_memory`, so that under the rule `peak` the labels' optimum is a bound. If
the line found does not fit at its peak, the search is repeated with less room.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import (
    combinations,
    combinations_with_replacement,
    islice,
    pairwise,
    product,
    takewhile,
)
from math import inf
from time import monotonic
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
from placegap.instances.objectives.makespan.simulate import simulate
from placegap.instances.problem import Instance, Makespan, Plan, Semantics
from placegap.instances.problem.additive_memory import relax_memory
from placegap.instances.problem.graph_index import sum_by
from placegap.instances.problem.integers import NO_WAY
from placegap.instances.problem.sections import cuts
from placegap.instances.reading.errors import InputError
from placegap.instances.referee.evaluate import evaluate
from placegap.solvers.core.result import Bound

ORIGIN = "lines of layers"  # origin of its bounds

# Most vectors of used devices: the 64 of six different cards take 2 s for a makespan of 64 layers,
# and 10 s for a load, on one core. With more, devices are taken in the cluster's order, and nothing
# is proven.
MOST_STATES = 500
# Most labels of a state; with more, those of least value are kept, and nothing is proven. Two
# cards, a host and 46 layers with experts need 40 for a makespan, and more than 300 for a load.
MOST_LABELS = 300
# Number of limits on a load that halve what is open, and of all limits. After 8 halvings one to six
# more prove the optimum.
HALVINGS, MOST_AIMS = 8, 30

# Number of times that room is reduced by what is missing at the peak, and of lines of few devices
# that are tried if still no line fits, or none has plans of the semantics' class: on 1,258 ops 8
# CPU s for a makespan, and 2 for a load.
MOST_ROOM_TRIES, MOST_SIMPLE = 20, 500
# Lines whose load is up to this much above the least count as ties: measured times vary by more,
# and a longer context needs room. The number of halvings of the room that all cards keep.
TIE, ROOM_HALVINGS = 0.005, 12
# Columns of labels: the sum of times, or the heaviest load of finished devices; load and bytes of
# the last device; bytes and load of the host.
TOTAL, LOAD, HELD, HOST_HELD, HOST_LOAD = range(5)


class BestLine(NamedTuple):
    """A line, its plan and value, and a bound on all lines of its class, if one is proven."""

    line: LayerLine
    plan: Plan
    value_ns: int
    bound: Bound | None


class _Costs(NamedTuple):
    """Times of S slots on devices of C classes, in ns; `NO_WAY` where a slot cannot be."""

    # The last axis: experts with the rest of the slot, or on the host.

    stay: Ints  # (S, C, 2): A slot on the same device as the one before it
    enter: Ints  # (S, C, C, 2): A slot on a device of the second class, after one on the first
    left: Ints  # (S, C): What this adds to the load of the device before it
    host: Ints  # (S,): Load of the host for the experts of the slot
    is_exact: bool


# A state: number of used devices of each class, and the class of the last one.
_Key = tuple[tuple[int, ...], int]


class _Step(NamedTuple):
    """Labels of a state, the label before each, and whether its slot's experts are on the host."""

    labels: Ints
    before: tuple[_Key, ...]
    source: Ints
    row: Ints
    away: Flags


def best_line(
    instance: Instance, semantics: Semantics, kind: LineClass, limit_s: float = inf
) -> BestLine | None:
    """The best line of a class; None if none was found that fits.

    After `limit_s` seconds nothing more is tried: the bound is what is proven by then.
    """
    layer_list(instance)  # raises an error for a model without layers
    if not kind.has_host and not gpus_and_host(instance.cluster)[0]:
        return None
    try:
        search = _Search(instance, semantics, kind)
        search.end_s = monotonic() + limit_s
    except InputError:  # no device runs all ops of a layer
        return None
    room, bound = search.room.copy(), None
    best: BestLine | None = None
    line: LayerLine | None = None
    # Labels count bytes by `relax_memory`, so a line may lack room at its peak. Taking that much
    # room away excludes it, but perhaps others that fit: so only the first value is a bound.
    for _ in range(MOST_ROOM_TRIES):
        found = search.least(room)
        if found is None or (best is None and line is not None and search.is_late()):
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
        in_time = takewhile(lambda _: not search.is_late(), tried)
        fitting = [each for each in in_time if each is not None]
        best = min(fitting, key=lambda each: each.value_ns, default=None)
    return None if best is None else best._replace(bound=bound)


def free_bytes(instance: Instance, plan: Plan, semantics: Semantics) -> int:
    """Bytes that the fullest of the GPUs that a plan uses has free at its peak."""
    uses, gpus = evaluate(instance, plan, semantics).uses, gpus_and_host(instance.cluster)[0]
    room, used = instance.arrays.memory_bytes, {k for on in plan.placement for k in on}
    return min((int(room[k]) - uses[k].memory_bytes for k in gpus if k in used), default=0)


def roomiest_line(
    instance: Instance, semantics: Semantics, kind: LineClass, best: BestLine
) -> BestLine:
    """The line whose fullest GPU has most bytes free, of those up to `TIE` above a line."""
    search, most_ns = _Search(instance, semantics, kind), int(best.value_ns * (1 + TIE))
    on_gpu = np.arange(len(search.room)) != search.of_host
    low = free_bytes(instance, best.plan, semantics)
    high = int(search.room[on_gpu].max())
    for _ in range(ROOM_HALVINGS):
        kept = (low + high) // 2
        found = search._within(search.room - kept * on_gpu, most_ns)
        judged = None if found is None else search.judged(found[1])[0]
        free = -1 if judged is None else free_bytes(instance, judged.plan, semantics)
        if judged is None or judged.value_ns > most_ns or free <= low:
            high = kept
        else:
            best, low = judged._replace(bound=best.bound), free
    return best


class _Search:
    """The slots of an instance, their costs on each class of devices, and the labels along them."""

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
        self.may_begin = np.ones(self.num, np.bool_)  # whether a slot may begin a device
        if kind.fills:
            self.may_begin = filling_bytes(instance) > 0
        elif kind.has_host and self.host is None:  # embeddings are with the first layer
            self.may_begin[1] = False
        self.expert_bytes = self.sums(size, self.slots.expert)
        self.bytes = self.sums(size, ~self.slots.expert) + self.expert_bytes
        self.room = instance.arrays.memory_bytes[self.first].copy()
        self.host_binds = self.host is not None and int(size.sum()) > self.room[self.of_host]
        self.costs = _by_clock(self) or _by_loads(self)
        self.is_cut, self.end_s = not self.all_orders, inf

    def is_late(self) -> bool:
        """Whether the time is over."""
        return monotonic() > self.end_s

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
        return sum_by(self.slots.slot[chosen], of_op[chosen], self.num)

    def least(self, room: Ints) -> tuple[int, LayerLine] | None:
        """A bound on all lines by these costs, and a line of least value (the bound, if exact)."""
        # For a sum one pass is enough. A maximum is searched by limits on it: then the loads of
        # finished devices, all within the limit, need not be compared, which leaves few labels.
        # Limits halve what is open first, and then are one below the best line.
        best = self._within(room, NO_WAY - 1)
        if best is None or self.is_sum:
            return best
        low, high = 0, best[0] - 1  # the best line is above `high`, and no line is below `low`
        for step in range(MOST_AIMS):
            if low > high or self.is_late():
                break
            aim = (low + high) // 2 if step < HALVINGS else high
            found = self._within(room, aim)
            if found is None:
                low = aim + 1
            else:
                best, high = found, found[0] - 1
        return low if low <= high else best[0], best[1]

    def _within(self, room: Ints, aim: int) -> tuple[int, LayerLine] | None:
        """The line of the least label of at most `aim`, and its value; None if there is none."""
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
        # Walk back from the least label of all states after the last slot.
        key = min(states, key=lambda key: int(self._value(states[key]).min()))
        row = int(self._value(states[key]).argmin())
        value = int(self._value(states[key])[row])
        home, away_from = list[int](), list[int]()
        for s in range(self.num - 1, -1, -1):
            step, (used, at) = steps[s][key], key
            home.append(self.classes[at][used[at] - 1])  # equal devices in the cluster's order
            if step.away[row]:
                away_from.append(s - 1)
            key, row = step.before[int(step.source[row])], int(step.row[row])
        return value, LayerLine(tuple(home[::-1]), tuple(away_from[::-1]))

    def _merged(self, parts: list[tuple[_Key, Ints, Ints, bool]]) -> _Step:
        """The undominated labels of a state."""
        # A maximum needs no TOTAL column: see `least`. Whatever is cut off here for its number
        # costs the proof (`is_cut`), not the line.
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
        """The states of a slot after one in a given state."""
        # It may stay on the last device or open another one; the host, if there is one, has the
        # first slots. If states are too many (`all_orders`), devices are opened in one order only.
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
        """Labels extended by one more slot."""
        costs, new, at, to = self.costs, labels.copy(), key[1], other[1]
        is_host, is_new = to == self.of_host, key != other
        time = costs.enter[s, at, to, int(away)] if is_new and s else costs.stay[s, to, int(away)]
        # The last device is finished: its load enters the maximum, and the columns start at 0
        # again.
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
        """A line evaluated by the referee, if it is feasible; the bytes that each class lacks."""
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
    """Rows that no other row is at most in all columns; the first one if several are equal."""
    # Columns in which all rows agree decide nothing. Sorted, a row can only be dominated by an
    # earlier one: with two columns, the least of the last column so far says by whom.
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
    """The instance with two groups for each slot: its experts, and its other ops."""
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
    """Times between cuts by the referee's clock; None where that is not exact."""
    # At a cut nothing else runs, so the time from one cut to the next depends only on the devices
    # of the slots in between and of the cut op. If these are at most two neighbouring slots, plans
    # that alternate between two devices show all of them.
    instance, slots, semantics = search.instance, search.slots, search.semantics
    if not isinstance(semantics, Makespan):
        return None
    at = np.array(cuts(instance), np.int64)
    position = instance.arrays.index.topological_position
    # Part p: the ops after cut p - 1 up to cut p. Its time belongs to its last slot; a part is also
    # of the slot of the cut that it waits for.
    part = np.searchsorted(position[at], position)
    of_part = np.full(len(at) + 1, -1)
    np.maximum.at(of_part, part, slots.slot)
    np.maximum.at(of_part, np.arange(1, len(at) + 1), slots.slot[at])
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
        """The time of each slot in a plan that alternates between two devices (class, device)."""
        # A slot that cannot be there is put elsewhere; its time is then not used.
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
        return sum_by(of_part, np.diff(ends), num)

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
    """Costs of loads: work, and for each tensor across a border the time there."""
    # A tensor is paid where a border lies between its slots, by both devices. Counted per border it
    # is exact for neighbouring slots; a tensor with several readers or far ones may count too often
    # or too rarely, so that the sums are no proof (`is_simple`).
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
    # A tensor for a single slot that is no neighbour, as of tied weights, is sent in almost any
    # line: it counts as work of its slots.
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
    rules = len(semantics.load_passes) == 1 and not (semantics.overlaps or semantics.has_two_levels)
    host = expert_work[:, of_host] + apart[:, of_host]
    stay = np.stack([work + expert_work, work + apart], axis=2)
    left = border
    if search.is_sum:
        stay[:, :, 1] += host[:, None]
        left, host = np.zeros_like(border), np.zeros_like(host)
    enter = np.repeat((stay + border[:, :, None])[:, None], len(first), axis=1)
    return _with_limits(search, _Costs(stay, enter, left, host, bool(rules and is_simple)))


def best_expert_count(instance: Instance, semantics: Semantics) -> tuple[str, int]:
    """KTransformers' option for the best number of experts of a layer on a card; its value."""
    # All numbers are tried, as the value need not fall and then rise: with all experts on the card,
    # nothing is sent to the host.
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
