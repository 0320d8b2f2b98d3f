"""What every device does when, as bars: the one picture of a plan that charts and pages draw.

- makespan: the simulated schedule; latency_subgraphs: calls of accelerators, and ops of hosts.
- pipeline_iteration: every event of the iteration.
- max_load, max_load_fwd_bwd: the load of each device on one sample of a full pipeline: what comes
  in, its ops one after another, what goes out. The longest row is the value. No device waits for
  another within a sample, as each works on another one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from placegap.experiments.show.timeline import Crossing
from placegap.instances.problem.instance import Graph, Instance
from placegap.instances.problem.integers import ceil_div
from placegap.instances.problem.modules import layer_of
from placegap.instances.problem.plan import Evaluation, Plan, Schedule
from placegap.instances.problem.semantics import (
    LatencySubgraphs,
    LoadSemantics,
    Makespan,
    MaxLoadFwdBwd,
    PipelineIteration,
    Semantics,
)
from placegap.instances.referee.iteration import simulate_iteration

NO_OP = -1


class Bar(NamedTuple):
    """Something that lasts.

    Attributes
    ----------
    row : int
        A device, or a server after them.
    is_move : bool
        Whether it is communication.
    start_ns, end_ns : int
    name, label : str
        What it is, and what it belongs to: a layer, a kind of ops, a stage.
    op : int
        `NO_OP` where it is no single op.
    text : str
        What to write into it, where there is room; neighbours of one label and text are one block.
    """

    row: int
    is_move: bool
    start_ns: int
    end_ns: int
    name: str
    label: str
    op: int = NO_OP
    text: str = ""

    @property
    def time_ns(self) -> int:
        """How long it lasts."""
        return self.end_ns - self.start_ns


class Move(NamedTuple):
    """A transfer from device to device, as an arrow."""

    source: int
    target: int
    start_ns: int
    end_ns: int
    name: str
    bytes: int


@dataclass(frozen=True)
class Timeline:
    """Rows of bars, arrows between them, and what they mean.

    `by_layer` says whether labels are layers; else they are kinds of ops, or stages.
    """

    rows: tuple[str, ...]
    bars: tuple[Bar, ...]
    moves: tuple[Move, ...]
    end_ns: int
    meaning: str
    by_layer: bool = False


def timeline(
    instance: Instance,
    plan: Plan,
    semantics: Semantics,
    verdict: Evaluation,
    found: Sequence[Crossing],
) -> Timeline:
    """The bars of a plan that has a value.

    Parameters
    ----------
    instance : Instance
    plan : Plan
    semantics : Semantics
    verdict : Evaluation
        The referee's, with a value.
    found : sequence of Crossing
        From `crossings`.

    Examples
    --------
    >>> from placegap.experiments.show.timeline import crossings
    >>> from placegap.instances import evaluate, example
    >>> plan, rules = Plan.on([0, 0, 1, 0]), Makespan()
    >>> verdict = evaluate(example(), plan, rules)
    >>> drawn = timeline(example(), plan, rules, verdict, crossings(example(), plan, rules))
    >>> [(bar.name, bar.row, bar.start_ns, bar.end_ns) for bar in drawn.bars][:3]
    [('op1', 0, 0, 5), ('op2', 0, 5, 25), ('op3', 1, 25, 35)]
    """
    assert verdict.value_ns is not None
    rows = [spec.name for spec in instance.cluster.devices]
    labels = labels_of(instance.graph)
    by_layer = any(layer_of(instance.graph))
    moves: tuple[Move, ...] = ()
    if isinstance(semantics, PipelineIteration):
        bars, moves = _iteration(instance, plan, semantics)
        meaning, by_layer = "one iteration; a bar is the work of a stage on a microbatch", False
    elif isinstance(semantics, LoadSemantics):
        bars = tuple(_loads(instance, plan, semantics, verdict, found, labels))
        bars += tuple(
            Bar(len(rows) + v, True, 0, use.load_ns, f"border of {use.server}", "communication")
            for v, use in enumerate(verdict.servers)
        )
        rows += [f"server {use.server}" for use in verdict.servers]
        meaning = "what each device does for one sample of a full pipeline; the longest row counts"
    else:
        assert verdict.schedule is not None
        if isinstance(semantics, LatencySubgraphs):
            bars = tuple(_calls(instance, plan, verdict.schedule, labels))
            meaning = "one pass; an accelerator runs its calls whole, with their transfers"
        else:
            bars = tuple(_ops(instance, verdict.schedule, labels))
            moves = tuple(_transfers(instance, verdict.schedule, semantics))
            bars += tuple(
                Bar(k, True, move.start_ns, move.end_ns, move.name, "communication")
                for move in moves
                for k in (move.source, move.target)
            )
            meaning = "one pass"
    if by_layer:
        bars = tuple(
            bar if bar.is_move else bar._replace(text=short_label(bar.label)) for bar in bars
        )
    end_ns = max((bar.end_ns for bar in bars), default=0)
    return Timeline(tuple(rows), bars, moves, end_ns, meaning, by_layer)


def labels_of(graph: Graph) -> tuple[str, ...]:
    """The layer of each op, or its module where it is in none; its kind where no op has a module.

    Examples
    --------
    >>> from placegap.instances import example
    >>> labels_of(example().graph)
    ('op', 'op', 'op', 'op')
    """
    layers = layer_of(graph)
    if not any(layers):
        return tuple(op.kind for op in graph.ops)
    return tuple(layer or op.module or op.kind for layer, op in zip(layers, graph.ops, strict=True))


def short_label(label: str) -> str:
    """The end of a module's path that tells it apart.

    Examples
    --------
    >>> short_label("transformer.h.11"), short_label("lm_head")
    ('h.11', 'lm_head')
    """
    parts = label.split(".")
    return ".".join(parts[-2:]) if parts[-1].isdecimal() else parts[-1]


def _ops(instance: Instance, schedule: Schedule, labels: Sequence[str]) -> Iterator[Bar]:
    columns = (schedule.device, schedule.start_ns, schedule.end_ns)
    times = zip(*(column.tolist() for column in columns), strict=True)
    for i, (k, start, end) in enumerate(times):
        yield Bar(k, False, start, end, instance.graph.ops[i].name, labels[i], i)


def _transfers(instance: Instance, schedule: Schedule, semantics: Semantics) -> Iterator[Move]:
    moved, index = schedule.transfers, instance.arrays.index
    per_edge = isinstance(semantics, Makespan) and semantics.transfers == "per_edge"
    columns = (
        moved.item,
        moved.producer,
        moved.source,
        moved.destination,
        moved.start_ns,
        moved.end_ns,
    )
    for item, producer, a, b, start, end in zip(*(c.tolist() for c in columns), strict=True):
        edge = instance.graph.edges[item if per_edge else index.tensor_first_edge[item]]
        name = instance.graph.ops[producer].name + (f" to {edge.consumer}" if per_edge else "")
        yield Move(a, b, start, end, name, edge.bytes)


def _calls(
    instance: Instance, plan: Plan, schedule: Schedule, labels: Sequence[str]
) -> Iterator[Bar]:
    members: dict[tuple[int, int], list[int]] = {}
    for bar in _ops(instance, schedule, labels):
        if instance.arrays.is_host[bar.row]:
            yield bar
        else:
            number = 0 if plan.call is None else plan.call[bar.op]
            members.setdefault((bar.row, number), []).append(bar.op)
    for (k, number), ops in sorted(members.items()):
        span = int(schedule.start_ns[ops[0]]), int(schedule.end_ns[ops[0]])
        name = f"call {number}: {len(ops)} op{'s'[: len(ops) != 1]}"
        label = f"call {number}"
        yield Bar(k, False, *span, name, label, ops[0] if len(ops) == 1 else NO_OP, label)


def _iteration(
    instance: Instance, plan: Plan, semantics: PipelineIteration
) -> tuple[tuple[Bar, ...], tuple[Move, ...]]:
    run = simulate_iteration(instance, plan, semantics)
    home = run.stages.device.tolist()
    bars = []
    for spans in run.events:
        for event, start, end in spans:
            name = f"{event.part} of stage {event.stage}, microbatch {event.microbatch}"
            bars.append(
                Bar(
                    home[event.stage],
                    False,
                    start,
                    end,
                    name,
                    event.part,
                    NO_OP,
                    str(event.microbatch),
                )
            )
    moves = []
    for message in run.messages:
        name = f"microbatch {message.sender.microbatch} to stage {message.receiver.stage}"
        ends = home[message.sender.stage], home[message.receiver.stage]
        moves.append(Move(*ends, message.start_ns, message.end_ns, name, 0))
        bars += [
            Bar(k, True, message.start_ns, message.end_ns, name, "communication") for k in ends
        ]
    return tuple(bars), tuple(moves)


def _loads(
    instance: Instance,
    plan: Plan,
    semantics: LoadSemantics,
    verdict: Evaluation,
    found: Sequence[Crossing],
    labels: Sequence[str],
) -> Iterator[Bar]:
    """Rows of loads; the backward loads of max_load_fwd_bwd begin where the last forward one ends.

    Devices that share a stage have equal rows, each bar as long as its share.
    """
    begin = 0
    passes = (False, True) if isinstance(semantics, MaxLoadFwdBwd) else (None,)
    sharing = {on[0]: on for on in plan.placement}
    for which in passes:
        longest = 0
        for k, share in sorted(sharing.items()):
            ends = [0, 0]  # of work, and of communication if it overlaps
            for name, label, time_ns, op in _pieces(instance, plan, found, labels, k, which):
                lane = int(op == NO_OP and semantics.load == "overlap")
                start, ends[lane] = ends[lane], ends[lane] + time_ns
                span = [begin + ceil_div(t, len(share)) for t in (start, ends[lane])]
                for device in share:
                    yield Bar(device, op == NO_OP, span[0], span[1], name, label, op)
            used = ceil_div(max(ends), len(share))
            sync = verdict.uses[k].load_ns - used if len(share) > 1 else 0
            for device in share if sync > 0 else ():
                name = "all-reduce of the weights"
                yield Bar(device, True, used, used + sync, name, "communication")
            longest = max(longest, used)
        begin += longest


def _pieces(
    instance: Instance,
    plan: Plan,
    found: Sequence[Crossing],
    labels: Sequence[str],
    k: int,
    backward: bool | None,
) -> Iterator[tuple[str, str, int, int]]:
    """Name, label, time and op of all that one device does in a pass, or in both (None)."""
    arrays, ops = instance.arrays, instance.graph.ops
    counted = [each for each in found if backward in (None, bool(arrays.backward[each.producer]))]
    for each in counted:
        for target, time_ns in zip(each.targets, each.target_ns, strict=True):
            if target == k:
                name = f"{ops[each.producer].name} comes in"
                yield name, "communication", time_ns, NO_OP
    for i in arrays.index.topological_order.tolist():
        if plan.placement[i][0] == k and backward in (None, bool(arrays.backward[i])):
            yield ops[i].name, labels[i], int(arrays.time_ns[i, k]), i
    for each in counted:
        if each.source == k:
            name = f"{ops[each.producer].name} goes out"
            yield name, "communication", each.source_ns, NO_OP


def busy_ns(drawn: Timeline, num_devices: int) -> list[int]:
    """How long each device runs ops, with what overlaps counted once.

    Examples
    --------
    >>> bars = (Bar(0, False, 0, 4, "a", ""), Bar(0, False, 2, 5, "b", ""))
    >>> busy_ns(Timeline(("gpu",), bars, (), 5, ""), 1)
    [5]
    """
    busy, until = np.zeros(num_devices, np.int64), np.zeros(num_devices, np.int64)
    for bar in sorted(bar for bar in drawn.bars if not bar.is_move and bar.row < num_devices):
        begin = max(bar.start_ns, int(until[bar.row]))
        if bar.end_ns > begin:
            busy[bar.row] += bar.end_ns - begin
            until[bar.row] = bar.end_ns
    return [int(each) for each in busy]
