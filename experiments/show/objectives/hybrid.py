"""A batch of a hybrid pipeline: what each of its stages does in it, holds, and hands over.

Stages take the place of devices in tables, charts and pages, as all devices of a stage do the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from placegap.experiments.show.figures import format_gap, format_ns, memory_of
from placegap.experiments.show.memory_levels import levels_of
from placegap.experiments.show.objectives.base import (
    DeviceShare,
    Homes,
    Judged,
    Parts,
    Row,
    Words,
    most_expensive,
    shares,
)
from placegap.experiments.show.place_report import unused
from placegap.experiments.show.timeline import NO_OP, Bar, Crossing, Timeline, labels_of, pieces
from placegap.instances.objectives.hybrid.referee import (
    HybridStage,
    hybrid_stages,
    least_bandwidth,
    stage_modes,
)
from placegap.instances.problem import DeviceUse, Evaluation, HybridPipeline, Instance, Mode, Plan
from placegap.instances.problem.integers import NS_PER_S, ceil_div, format_bytes

if TYPE_CHECKING:
    from placegap.experiments.show.objectives.base import Moves
    from placegap.solvers.core.result import Result

MOST_MOVES = 1000  # changes of one layer that the referee judges: a few seconds for 200 layers


class StageApart(NamedTuple):
    """A stage, the mode of each of its ops, and the parts of what each of its devices holds."""

    # `held_bytes` are those of all microbatches in flight, `state_bytes` without what is divided
    # among the replicas.
    stage: HybridStage
    modes: tuple[Mode, ...]
    state_bytes: int
    held_bytes: int
    workspace_bytes: int
    use: DeviceUse  # what the referee counts of one of its devices, and the limit of its memory
    limit_bytes: int | None

    @property
    def degrees(self) -> str:
        """Replicas and tensor degree: ``8 x 2``."""
        return f"{self.stage.replicas} x {self.stage.tensor}"


def stages_apart(case: Judged[HybridPipeline]) -> tuple[StageApart, ...]:
    """The stages of a hybrid plan that has a value."""
    instance, found = case.instance, list[StageApart]()
    for stage in hybrid_stages(instance, case.plan, case.semantics):
        modes = tuple(stage_modes(instance, case.plan, stage))
        held = sum(mode.held_bytes for mode in modes) * stage.in_flight
        scratch = max(mode.workspace_bytes for mode in modes)
        use = case.verdict.uses[stage.devices[0]]
        limit = instance.cluster.devices[stage.devices[0]].memory_bytes
        state = use.memory_bytes - held - scratch
        found.append(StageApart(stage, modes, state, held, scratch, use, limit))
    return tuple(found)


def parts(case: Judged[HybridPipeline]) -> Parts:
    """Bars of stages in a batch, and what the longest is made of."""
    instance, rules, stages = case.instance, case.semantics, stages_apart(case)
    crossed = _crossings(instance, rules, stages)
    names = [f"stage {s} ({each.degrees})" for s, each in enumerate(stages)]
    specs = [instance.cluster.devices[each.stage.devices[0]] for each in stages]
    uses = [each.use for each in stages]
    apart = shares(names, specs, uses, [use.load_ns for use in uses], case.value_ns, crossed)
    meaning = "what each device of a stage does for one batch of a full pipeline; the longest row"
    meaning += " counts" + ", and what fills and drains the pipeline" * rules.bubble
    bars = tuple(_bars(instance, rules, stages, crossed))
    return Parts(
        devices=apart,
        homes=_homes(case, stages, apart),
        drawn=Timeline(tuple(names), bars, (), case.value_ns, meaning),
        memory=levels_of([use.memory_bytes for use in uses], ()),
        crossings=most_expensive(crossed),
        why=_longest_stage(case, stages),
        where="longest stage",
        moments="all the time",
        held="state, microbatches in flight and workspace",
        tried="changes of one layer were tried: another mode, or the stage next to its own",
    )


def _homes(
    case: Judged[HybridPipeline], stages: Sequence[StageApart], apart: Sequence[DeviceShare]
) -> Homes:
    plan, kind = case.plan, case.instance.cluster.devices[0].kind
    assert plan.stage is not None
    mode_of = {i: m for each in stages for i, m in zip(each.stage.ops, each.modes, strict=True)}
    head, rows = table(case)
    return Homes(
        noun="stage",
        head=head,
        rows=rows,
        compared=(0, 1, 2, 6, 8),
        objects=[
            {
                **share._asdict(),
                "replicas": each.stage.replicas,
                "tensor": each.stage.tensor,
                "in_flight": each.stage.in_flight,
                "modes": Counter(mode.name for mode in each.modes),
                "state_bytes": each.state_bytes,
                "held_bytes": each.held_bytes,
                "workspace_bytes": each.workspace_bytes,
            }
            for each, share in zip(stages, apart, strict=True)
        ],
        of_op=list(plan.stage),
        names=[
            f"stage {s} ({stages[s].degrees}, {mode_of[i].name})" for i, s in enumerate(plan.stage)
        ],
        op_ns=[mode_of[i].time_ns[kind] for i in range(case.instance.num_ops)],
    )


def table(case: Judged[HybridPipeline]) -> tuple[Row, list[Row]]:
    """One row per stage: times per batch, and memory of each device."""
    rows = []
    for s, each in enumerate(stages_apart(case)):
        use = each.use
        memory = memory_of(use.memory_bytes, each.limit_bytes)
        times = (use.compute_ns, use.in_ns + use.out_ns, use.load_ns)
        row = (str(s), str(use.num_ops), each.degrees, _mode_counts(case.instance, each))
        flight = str(each.stage.in_flight)
        rows.append((*row, *(format_ns(time) for time in times), flight, memory))
    head = ("stage", "layers", "d x t", "modes", "compute", "borders", "time", "in flight")
    return (*head, "memory"), rows


def _mode_counts(instance: Instance, each: StageApart) -> str:
    """How many ops run in each mode, of those that have several: ``3 keep, 1 recompute``."""
    pairs = zip(each.stage.ops, each.modes, strict=True)
    count = Counter(mode.name for i, mode in pairs if len(instance.graph.ops[i].ways) > 1)
    return ", ".join(f"{number} {name}" for name, number in sorted(count.items())) or "-"


def _bubble_words(verdict: Evaluation) -> str:
    """The longest stage's part of a batch, and what fills and drains the pipeline."""
    # Both together, as the modes of a stage hold forward and backward pass in one time.
    steady = max(use.load_ns for use in verdict.uses)
    more = (verdict.value or steady) - steady
    share = more / max(1, verdict.value or 0)
    return f"{format_ns(steady)} steady, {format_ns(more)} ({format_gap(share)}) to fill and drain"


def _memory_parts(each: StageApart) -> str:
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


def _crossings(
    instance: Instance, semantics: HybridPipeline, stages: Sequence[StageApart]
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


def _bars(
    instance: Instance,
    semantics: HybridPipeline,
    stages: Sequence[StageApart],
    found: list[Crossing],
) -> Iterator[Bar]:
    """What each stage does in a batch: what comes in, its ops, what goes out, and the gradients."""
    # Borders are a little shorter than charged one by one, as the referee rounds their sum once.
    labels, kind = labels_of(instance.graph), instance.cluster.devices[0].kind
    position, ops = instance.arrays.index.topological_position, instance.graph.ops
    for s, each in enumerate(stages):
        moment, turns = 0, semantics.microbatches // each.stage.replicas
        pairs = zip(each.stage.ops, each.modes, strict=True)
        work = [
            (
                ops[i].name,
                mode.name if len(ops[i].ways) > 1 else labels[i],
                turns * mode.time_ns[kind],
                i,
            )
            for i, mode in sorted(pairs, key=lambda pair: int(position[pair[0]]))
        ]
        for name, label, time_ns, op in pieces(instance, found, s, work):
            end = min(moment + time_ns, each.use.load_ns)
            yield Bar(s, op == NO_OP, moment, end, name, label, op)
            moment = end
        if moment < each.use.load_ns and each.stage.replicas > 1:
            name = "sum of the gradients over the replicas"
            yield Bar(s, True, moment, each.use.load_ns, name, "communication")


def _longest_stage(case: Judged[HybridPipeline], stages: Sequence[StageApart]) -> list[str]:
    """Which stage decides, what its time and memory are made of, and why its layers recompute."""
    uses = [each.use for each in stages]
    ranked = sorted(range(len(uses)), key=lambda s: -uses[s].load_ns)
    top, kind = ranked[0], case.instance.cluster.devices[0].kind
    use, each, turns = uses[top], stages[top], case.semantics.microbatches
    sync = max(0, use.load_ns - use.compute_ns - use.in_ns - use.out_ns)
    lines = [
        f"Stage {top} takes longest, {format_ns(use.load_ns)} per batch:"
        f" {format_ns(use.compute_ns)} for the layers of {turns // each.stage.replicas}"
        f" microbatches in each of {each.stage.replicas} replicas,"
        f" {format_ns(use.in_ns)} of incoming and {format_ns(use.out_ns)} of outgoing transfers,"
        f" {format_ns(sync)} to sum gradients."
    ]
    slower, saved = 0, 0
    for i, mode in zip(each.stage.ops, each.modes, strict=True):
        ways = [m for m in case.instance.graph.ops[i].ways if m.tensor == mode.tensor]
        fastest = min(ways, key=lambda m: m.time_ns[kind])
        slower += mode.time_ns[kind] - fastest.time_ns[kind]
        saved += (fastest.held_bytes - mode.held_bytes) * each.stage.in_flight
        saved += fastest.state_bytes - mode.state_bytes
    if slower:
        share = slower * (turns // each.stage.replicas) / max(1, use.load_ns)
        lines.append(
            f"Modes that are not the fastest take {format_gap(share)} of that, and hold"
            f" {format_bytes(saved)} less on each device."
        )
    lines.append(f"Each of its devices holds {_memory_parts(each)}.")
    if len(ranked) > 1:
        next_ns, last = uses[ranked[1]].load_ns, ranked[-1]
        less = format_gap((use.load_ns - next_ns) / max(1, use.load_ns))
        lines.append(
            f"Next is stage {ranked[1]} with {format_ns(next_ns)}, {less} less; stage {last} has"
            f" the least, {format_ns(uses[last].load_ns)}."
        )
    if case.semantics.bubble:
        lines.append(f"A batch is {_bubble_words(case.verdict)}.")
    spare = sum(not use.num_ops for use in case.verdict.uses)
    if spare:
        lines.append(f"{spare} of {case.instance.num_devices} devices are not used.")
    return lines


def moves(case: Judged[HybridPipeline]) -> Moves:
    """Another mode of a layer, or the stage before or after it; the longest stage's first."""
    from placegap.experiments.show.objectives.base import Moves, Option

    instance, plan, uses = case.instance, case.plan, case.verdict.uses
    assert plan.stage is not None
    assert plan.mode is not None
    assert plan.tensor is not None
    stages, modes, place = plan.stage, plan.mode, dict(zip(plan.stage, plan.placement, strict=True))
    layers: dict[int, list[int]] = {}
    for i, group in enumerate(instance.arrays.group.tolist()):
        layers.setdefault(group, []).append(i)

    def changed(ops: tuple[int, ...], s: int, mode: str) -> Iterator[Plan]:
        inside = set(ops)
        yield replace(
            plan,
            placement=tuple(place[s] if i in inside else on for i, on in enumerate(plan.placement)),
            stage=tuple(s if i in inside else at for i, at in enumerate(stages)),
            mode=tuple(mode if i in inside else own for i, own in enumerate(modes)),
        )

    options = []
    for members in layers.values():
        first = members[0]
        op, home = instance.graph.ops[first], stages[first]
        for s in (home, home - 1, home + 1):
            for mode in op.ways if s in place else ():
                if mode.tensor == plan.tensor[s] and (s, mode.name) != (home, modes[first]):
                    ends, unit, note = (home, s), op.colocation or op.name, f": {mode.name}"
                    plans = changed(tuple(members), s, mode.name)
                    options.append(Option(unit, tuple(members), *ends, plans, note))
    heaviest = max(place, key=lambda s: (uses[place[s][0]].load_ns, -s))
    options.sort(key=lambda option: heaviest not in (option.source, option.target))
    return Moves(options, MOST_MOVES)


def idle(instance: Instance, result: Result, verdict: Evaluation) -> str:
    """More devices would not help."""
    found = "no plan is" if result.status == "optimal" else "no plan was found that is"
    return f"{unused(verdict)}: {found} faster with more devices"


def after_value(result: Result) -> str:
    """The time of a microbatch, and what fills and drains the pipeline."""
    assert result.value is not None
    assert isinstance(result.semantics, HybridPipeline)
    each = f" a batch, {format_ns(result.value // result.semantics.microbatches)} each"
    if not result.semantics.bubble or result.evaluation is None:
        return each
    return f"{each}; {_bubble_words(result.evaluation)}"


WORDS = Words(parts, moves, idle, table=table, after_value=after_value)
