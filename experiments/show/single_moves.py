"""What to change next: the single moves of an op, a group or a layer that gain most.

Each is judged by the referee as a plan of its own. A plan that states orders keeps those of its
devices, with the moved ops at the places where they began; orders of channels are left to the
referee's rule, as there are other transfers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from placegap.instances.problem import (
    Evaluation,
    Instance,
    LatencySubgraphs,
    PipelineIteration,
    Plan,
    Schedule,
    Semantics,
)
from placegap.instances.problem.modules import layer_of
from placegap.instances.reading.errors import InputError
from placegap.instances.referee.evaluate import feasible_value

MOST_WORK = 600_000
"""Ops and edges that the referee may look at, over all moves: a few seconds."""

FEWEST, MOST = 40, 2000
"""Moves that are tried at least and at most."""


class SingleMove(NamedTuple):
    """Some ops to another device, and what the plan is worth then.

    `what` names the op, group or layer. `gain_ns` None: the plan at hand breaks a rule, and this
    one breaks none.
    """

    what: str
    num_ops: int
    source: int
    target: int
    value_ns: int
    gain_ns: int | None
    plan: Plan


class Tried(NamedTuple):
    """The best moves first, and how many of all there are were tried."""

    moves: tuple[SingleMove, ...]
    tried: int
    all: int


class _Unit(NamedTuple):
    what: str
    ops: tuple[int, ...]


def single_moves(
    instance: Instance, plan: Plan, semantics: Semantics, verdict: Evaluation, count: int = 5
) -> Tried:
    """The best moves of what lies on one device; at most one for each unit.

    A unit is a colocation group, an op without one, or a layer that is on one device. Where there
    are more moves than `MOST`, or the graph is large, those come first that touch a border, or the
    device with the most to do.
    """
    if verdict.value_ns is None:
        return Tried((), 0, 0)
    units = _ranked(instance, plan, verdict)
    options = [
        (unit, k)
        for unit in units
        for k in range(instance.num_devices)
        if k != plan.placement[unit.ops[0]][0]
    ]
    size = instance.num_parts
    if isinstance(semantics, PipelineIteration):
        size += instance.num_devices * semantics.microbatches * 20  # events are slow
    budget = max(FEWEST, min(MOST, MOST_WORK // size))
    best: dict[str, SingleMove] = {}
    tried = 0
    for unit, k in options:
        if tried >= budget:
            break
        tried += 1
        for changed in _changed(instance, plan, semantics, verdict.schedule, unit, k):
            value_ns = _value_ns(instance, changed, semantics)
            if value_ns is None:
                continue
            gain = verdict.value_ns - value_ns if verdict.feasible else None
            if gain is not None and gain <= 0:
                continue
            known = best.get(unit.what)
            if known is None or value_ns < known.value_ns:
                home = plan.placement[unit.ops[0]][0]
                best[unit.what] = SingleMove(
                    unit.what, len(unit.ops), home, k, value_ns, gain, changed
                )
    moves = sorted(best.values(), key=lambda move: (move.value_ns, move.num_ops, move.what))
    return Tried(tuple(moves[:count]), tried, len(options))


def _value_ns(instance: Instance, plan: Plan, semantics: Semantics) -> int | None:
    """The value of a plan that breaks no rule."""
    try:
        return feasible_value(instance, plan, semantics)
    except InputError:
        return None


def _ranked(instance: Instance, plan: Plan, verdict: Evaluation) -> list[_Unit]:
    """Units on one device: those with edges to other devices first, then the busiest device's."""
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
    load = [use.load_ns for use in verdict.uses]

    def first(unit: _Unit) -> tuple[bool, int, int]:
        inside = not border.intersection(unit.ops)
        time_ns = sum(int(instance.arrays.time_ns[i, device[i]]) for i in unit.ops)
        return inside, -load[int(device[unit.ops[0]])], -time_ns

    return sorted(alone, key=first)


def _changed(
    instance: Instance,
    plan: Plan,
    semantics: Semantics,
    schedule: Schedule | None,
    unit: _Unit,
    target: int,
) -> Iterator[Plan]:
    """Plans with a unit on another device: one for each stage or call that it may join there."""
    moved = set(unit.ops)
    placement = tuple((target,) if i in moved else on for i, on in enumerate(plan.placement))
    if isinstance(semantics, PipelineIteration) and plan.stage is not None:
        for s in sorted(
            {s for s, on in zip(plan.stage, plan.placement, strict=True) if on == (target,)}
        ):
            stage = tuple(s if i in moved else at for i, at in enumerate(plan.stage))
            yield Plan(placement, stage=stage)
        return
    if isinstance(semantics, LatencySubgraphs) and plan.call is not None:
        calls = {c for c, on in zip(plan.call, plan.placement, strict=True) if on == (target,)}
        for c in sorted(calls | {0}):
            call = tuple(c if i in moved else at for i, at in enumerate(plan.call))
            yield Plan(placement, call=call)
        return
    if plan.device_order is None or schedule is None:
        yield replace(plan, placement=placement, device_order=None, channel_order=None)
        return
    start = schedule.start_ns.tolist()
    order = [
        None if kept is None else [i for i in kept if i not in moved] for kept in plan.device_order
    ]
    joined = order[target]
    if joined is not None:
        position = instance.arrays.index.topological_position.tolist()
        for i in sorted(moved, key=lambda i: (start[i], position[i])):
            at = next((n for n, j in enumerate(joined) if start[j] > start[i]), len(joined))
            joined.insert(at, i)
    kept_order = tuple(None if each is None else tuple(each) for each in order)
    yield replace(plan, placement=placement, device_order=kept_order, channel_order=None)
    yield Plan(placement)
