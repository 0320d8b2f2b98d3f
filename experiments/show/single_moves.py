"""What to change next: the changes of a plan that gain most, each judged by the referee."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from placegap.experiments.show.objectives.base import Judged, Moves, Option
from placegap.instances.problem import Plan, Semantics
from placegap.instances.problem.modules import layer_of
from placegap.instances.reading.errors import InputError
from placegap.instances.referee.evaluate import feasible_value

MOST_WORK = 600_000  # ops and edges that the referee may look at, over all moves: a few seconds
FEWEST, MOST = 40, 2000  # moves that are tried at least and at most


class SingleMove(NamedTuple):
    """Some ops to another device, and what the plan is worth then."""

    # `what` names the op, group or layer. `gain_ns` None: the plan at hand breaks a rule, and this
    # one breaks none.
    what: str
    num_ops: int
    source: int
    target: int
    value: int
    gain: int | None
    plan: Plan


class Tried(NamedTuple):
    """The best moves first, the number that was tried, and the number of all."""

    moves: tuple[SingleMove, ...]
    tried: int
    all: int


NO_MOVES = Tried((), 0, 0)


def best_moves(case: Judged[Semantics], moves: Moves, count: int) -> Tried:
    """The best options that gain; at most one for each unit."""
    best: dict[str, SingleMove] = {}
    cost = case.semantics.cost
    tried = moves.options[: moves.budget]
    for option in tried:
        for changed in option.plans:
            try:
                value = feasible_value(case.instance, changed, case.semantics)
            except InputError:
                continue
            if value is None:
                continue
            gain = cost(case.value_ns) - cost(value) if case.verdict.feasible else None
            known = best.get(option.unit)
            if (gain is not None and gain <= 0) or (known and cost(known.value) <= cost(value)):
                continue
            what, size = option.unit + option.note, len(option.ops)
            ends = option.source, option.target
            best[option.unit] = SingleMove(what, size, *ends, value, gain, changed)
    found = sorted(best.values(), key=lambda move: (cost(move.value), move.num_ops, move.what))
    return Tried(tuple(found[:count]), len(tried), len(moves.options))


# Plans with some ops on another device, by its number.
Changed = Callable[[tuple[int, ...], int], Iterable[Plan]]


def moves_of_ops(case: Judged[Semantics], changed: Changed | None = None, more: int = 0) -> Moves:
    """Moves of what lies on one device to each other one; by default orders are given up."""
    # A unit is a colocation group, an op without one, or a layer that is on one device. Where there
    # are more moves than `MOST`, or the graph is large, those come first that touch a border, or
    # the device with the most to do. `more` is what a plan costs the referee beyond ops and edges.
    plan, budget = case.plan, MOST_WORK // (case.instance.num_parts + more)

    def placed(ops: tuple[int, ...], target: int) -> Iterator[Plan]:
        placement = moved_placement(plan, ops, target)
        yield replace(plan, placement=placement, device_order=None, channel_order=None)

    options = [
        Option(unit.what, unit.ops, home, k, (changed or placed)(unit.ops, k))
        for unit in _ranked(case)
        for home in plan.placement[unit.ops[0]]
        for k in range(case.instance.num_devices)
        if k != home
    ]
    return Moves(options, max(FEWEST, min(MOST, budget)))


def moved_placement(plan: Plan, ops: tuple[int, ...], target: int) -> tuple[tuple[int, ...], ...]:
    """The placement with some ops on another device."""
    moved = set(ops)
    return tuple((target,) if i in moved else on for i, on in enumerate(plan.placement))


def into_groups(
    plan: Plan, field: Literal["stage", "call"], at_least: Iterable[int] = ()
) -> Changed:
    """What puts ops into each group that a device has: its stages or calls, by a field of plans."""
    own: tuple[int, ...] = getattr(plan, field)

    def changed(ops: tuple[int, ...], target: int) -> Iterator[Plan]:
        moved, placement = set(ops), moved_placement(plan, ops, target)
        there = {g for g, on in zip(own, plan.placement, strict=True) if on == (target,)}
        for group in sorted(there.union(at_least)):
            groups: dict[str, Any] = {
                field: tuple(group if i in moved else at for i, at in enumerate(own))
            }
            yield Plan(placement, **groups)

    return changed


class _Unit(NamedTuple):
    what: str
    ops: tuple[int, ...]


def _ranked(case: Judged[Semantics]) -> list[_Unit]:
    """Units on one device: those with edges to other devices first, then the busiest device's."""
    instance, plan = case.instance, case.plan
    groups: dict[int, list[int]] = {}
    for i, group in enumerate(instance.arrays.group.tolist()):
        groups.setdefault(group, []).append(i)
    ops = instance.graph.ops
    units = [
        _Unit(ops[members[0]].colocation or ops[members[0]].name, tuple(members))
        for members in groups.values()
    ]
    layers: dict[str, set[int]] = {}
    for i, layer in enumerate(layer_of(instance.graph)):
        if layer is not None:
            layers.setdefault(layer, set()).update(groups[int(instance.arrays.group[i])])
    known = {unit.ops for unit in units}
    for layer, inside in layers.items():
        members = tuple(sorted(inside))
        if members not in known:
            known.add(members)
            units.append(_Unit(layer, members))
    alone = [
        unit
        for unit in units
        if len({plan.placement[i] for i in unit.ops}) == 1 and len(plan.placement[unit.ops[0]]) == 1
    ]
    index, device = instance.arrays.index, plan.devices
    remote = device[index.producer] != device[index.consumer]
    border = set(index.producer[remote].tolist()) | set(index.consumer[remote].tolist())
    load = [use.load_ns for use in case.verdict.uses]

    def first(unit: _Unit) -> tuple[bool, int, int]:
        inside = not border.intersection(unit.ops)
        time_ns = sum(int(instance.arrays.time_ns[i, device[i]]) for i in unit.ops)
        return inside, -load[int(device[unit.ops[0]])], -time_ns

    return sorted(alone, key=first)
