"""A hybrid plan taken apart: what each of its stages does in a batch, holds, and hands over.

Stages take the place of devices in tables, charts and pages, as all devices of a stage do the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from placegap.experiments.show.figures import format_gap, format_ns
from placegap.experiments.show.single_moves import SingleMove, Tried
from placegap.experiments.show.timeline import NO_OP, Bar, Crossing, labels_of
from placegap.instances.objectives.hybrid.referee import (
    HybridStage,
    hybrid_stages,
    least_bandwidth,
    stage_modes,
)
from placegap.instances.problem import Evaluation, HybridPipeline, Instance, Mode, Plan
from placegap.instances.problem.integers import NS_PER_S, ceil_div, format_bytes
from placegap.instances.referee.evaluate import evaluate

MOST_MOVES = 1000
"""Changes of one layer that the referee judges: a few seconds for 200 layers."""


class StageApart(NamedTuple):
    """A stage, the mode of each of its ops, and the parts of what each of its devices holds.

    `held_bytes` are those of all microbatches in flight, `state_bytes` without what is divided
    among the replicas.
    """

    stage: HybridStage
    modes: tuple[Mode, ...]
    state_bytes: int
    held_bytes: int
    workspace_bytes: int

    @property
    def degrees(self) -> str:
        """Replicas and tensor degree: ``8 x 2``."""
        return f"{self.stage.replicas} x {self.stage.tensor}"


def stages_apart(
    instance: Instance, plan: Plan, semantics: HybridPipeline, verdict: Evaluation
) -> tuple[StageApart, ...]:
    """The stages of a hybrid plan that has a value."""
    found = []
    for stage in hybrid_stages(instance, plan, semantics):
        modes = tuple(stage_modes(instance, plan, stage))
        held = sum(mode.held_bytes for mode in modes) * stage.in_flight
        scratch = max(mode.workspace_bytes for mode in modes)
        total = verdict.uses[stage.devices[0]].memory_bytes
        found.append(StageApart(stage, modes, total - held - scratch, held, scratch))
    return tuple(found)


def mode_counts(instance: Instance, plan: Plan, ops: tuple[int, ...]) -> str:
    """How many ops run in each mode, of those that have several: ``3 keep, 1 recompute``."""
    assert plan.mode is not None
    count = Counter(plan.mode[i] for i in ops if len(instance.graph.ops[i].ways) > 1)
    return ", ".join(f"{number} {name}" for name, number in sorted(count.items())) or "-"


STAGE_HEAD = (
    "stage",
    "layers",
    "d x t",
    "modes",
    "compute",
    "borders",
    "time",
    "in flight",
    "memory",
)


def stage_rows(
    instance: Instance, plan: Plan, verdict: Evaluation, stages: tuple[StageApart, ...]
) -> list[tuple[str, ...]]:
    """One row per stage, under `STAGE_HEAD`: times per batch, and memory of each device."""
    rows = []
    for s, each in enumerate(stages):
        use = verdict.uses[each.stage.devices[0]]
        limit = instance.cluster.devices[each.stage.devices[0]].memory_bytes
        memory = format_bytes(use.memory_bytes)
        memory += "" if limit is None else f" of {format_bytes(limit)}"
        times = (use.compute_ns, use.in_ns + use.out_ns, use.load_ns)
        row = (str(s), str(use.num_ops), each.degrees, mode_counts(instance, plan, each.stage.ops))
        flight = str(each.stage.in_flight)
        rows.append((*row, *(format_ns(time) for time in times), flight, memory))
    return rows


def bubble_words(verdict: Evaluation) -> str:
    """The longest stage's part of a batch, and what fills and drains the pipeline.

    Both together, as the modes of a stage hold forward and backward pass in one time.
    """
    steady = max(use.load_ns for use in verdict.uses)
    more = (verdict.value_ns or steady) - steady
    share = more / max(1, verdict.value_ns or 0)
    return f"{format_ns(steady)} steady, {format_ns(more)} ({format_gap(share)}) to fill and drain"


def memory_parts(each: StageApart) -> str:
    """What a device of a stage holds, in words."""
    flight = each.stage.in_flight
    parts = [
        f"{format_bytes(each.state_bytes)} of state",
        f"{format_bytes(each.held_bytes)} of {flight} microbatch{'es' if flight > 1 else ''} in"
        " flight",
    ]
    if each.workspace_bytes:
        parts.append(f"{format_bytes(each.workspace_bytes)} of workspace")
    return ", ".join(parts)


def stage_crossings(
    instance: Instance, semantics: HybridPipeline, stages: tuple[StageApart, ...]
) -> list[Crossing]:
    """The edges between stages: what each end is charged per batch, forward and backward."""
    rate, home = least_bandwidth(instance), dict[int, tuple[int, Mode]]()
    for s, each in enumerate(stages):
        home.update((i, (s, mode)) for i, mode in zip(each.stage.ops, each.modes, strict=True))
    found = []
    for e, edge in enumerate(instance.graph.edges):
        a, b = (instance.graph.op_index[end] for end in (edge.producer, edge.consumer))
        (source, sender), (target, reader) = home[a], home[b]
        if source == target:
            continue
        more = (sender.leave_bytes.get(edge.consumer, 0), reader.enter_bytes.get(edge.producer, 0))
        out, into = (
            ceil_div(
                NS_PER_S * 2 * semantics.microbatches * (edge.bytes + size),
                rate * stages[s].stage.replicas,
            )
            for s, size in zip((source, target), more, strict=True)
        )
        found.append(Crossing(e, a, source, (b,), (target,), edge.bytes, out, (into,)))
    return found


def stage_bars(
    instance: Instance,
    semantics: HybridPipeline,
    verdict: Evaluation,
    stages: tuple[StageApart, ...],
    found: list[Crossing],
) -> Iterator[Bar]:
    """What each stage does in a batch: what comes in, its ops, what goes out, and the gradients.

    Borders are a little shorter than charged one by one, as the referee rounds their sum once.
    """
    labels, kind = labels_of(instance.graph), instance.cluster.devices[0].kind
    position, ops = instance.arrays.index.topological_position, instance.graph.ops
    for s, each in enumerate(stages):
        moment, turns = 0, semantics.microbatches // each.stage.replicas
        use = verdict.uses[each.stage.devices[0]]
        pieces: list[tuple[bool, str, str, int, int]] = [
            (True, f"{ops[c.producer].name} comes in", "communication", c.target_ns[0], NO_OP)
            for c in found
            if c.targets == (s,)
        ]
        pairs = sorted(
            zip(each.stage.ops, each.modes, strict=True), key=lambda pair: int(position[pair[0]])
        )
        for i, mode in pairs:
            label = mode.name if len(ops[i].ways) > 1 else labels[i]
            pieces.append((False, ops[i].name, label, turns * mode.time_ns[kind], i))
        pieces += [
            (True, f"{ops[c.producer].name} goes out", "communication", c.source_ns, NO_OP)
            for c in found
            if c.source == s
        ]
        for is_move, name, label, time_ns, op in pieces:
            end = min(moment + time_ns, use.load_ns)
            yield Bar(s, is_move, moment, end, name, label, op)
            moment = end
        if moment < use.load_ns and each.stage.replicas > 1:
            name = "sum of the gradients over the replicas"
            yield Bar(s, True, moment, use.load_ns, name, "communication")


def stage_moves(
    instance: Instance, plan: Plan, semantics: HybridPipeline, verdict: Evaluation, count: int
) -> Tried:
    """The best changes of one layer: another mode, or the stage before or after it."""
    assert plan.stage is not None
    assert plan.mode is not None
    assert plan.tensor is not None
    stages, modes, place = plan.stage, plan.mode, dict(zip(plan.stage, plan.placement, strict=True))
    layers: dict[int, list[int]] = {}
    for i, group in enumerate(instance.arrays.group.tolist()):
        layers.setdefault(group, []).append(i)
    options = []
    for members in layers.values():
        first = members[0]
        op, home = instance.graph.ops[first], stages[first]
        for s in (home, home - 1, home + 1):
            for mode in op.ways if s in place else ():
                if mode.tensor == plan.tensor[s] and (s, mode.name) != (home, modes[first]):
                    options.append((members, s, mode.name))
    heaviest = max(place, key=lambda s: (verdict.uses[place[s][0]].load_ns, -s))
    options.sort(key=lambda option: heaviest not in (option[1], stages[option[0][0]]))
    best: dict[int, SingleMove] = {}
    for members, s, name in options[:MOST_MOVES]:
        inside, home = set(members), stages[members[0]]
        changed = replace(
            plan,
            placement=tuple(place[s] if i in inside else on for i, on in enumerate(plan.placement)),
            stage=tuple(s if i in inside else at for i, at in enumerate(stages)),
            mode=tuple(name if i in inside else own for i, own in enumerate(modes)),
        )
        judged = evaluate(instance, changed, semantics)
        if not judged.feasible or judged.value_ns is None or verdict.value_ns is None:
            continue
        gain = verdict.value_ns - judged.value_ns if verdict.feasible else None
        known = best.get(members[0])
        if (gain is not None and gain <= 0) or (known and known.value_ns <= judged.value_ns):
            continue
        op = instance.graph.ops[members[0]]
        what = f"{op.colocation or op.name}: {name}"
        best[members[0]] = SingleMove(what, len(members), home, s, judged.value_ns, gain, changed)
    moves = sorted(best.values(), key=lambda move: (move.value_ns, move.num_ops, move.what))
    return Tried(tuple(moves[:count]), min(MOST_MOVES, len(options)), len(options))
