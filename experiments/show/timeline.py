"""What every device does when, as bars: the one picture of a plan that charts and pages draw.

- makespan: the simulated schedule; latency_subgraphs: calls of accelerators, and ops of hosts.
- pipeline_iteration: every event of the iteration.
- max_load, max_load_fwd_bwd: the load of each device on one sample of a full pipeline: what comes
  in, its ops one after another, what goes out. The longest row is the value. No device waits for
  another within a sample, as each works on another one.

`crossings` are what the borders of devices cost. `blocks` are bars merged to few, so that thousands
of ops can be read, and `scopes_of` labels ops by their names where none names a module.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from placegap.instances.objectives.iteration.referee import simulate_iteration
from placegap.instances.problem import (
    AllLoads,
    Evaluation,
    Graph,
    Instance,
    LatencySubgraphs,
    Makespan,
    MaxLoadFwdBwd,
    PipelineIteration,
    Plan,
    Schedule,
    Semantics,
)
from placegap.instances.problem.integers import ceil_div
from placegap.instances.problem.modules import layer_of
from placegap.instances.referee.loads import border_costs

NO_OP = -1


class Bar(NamedTuple):
    """Something that lasts."""

    #: A device, or a server after them.
    row: int
    #: Whether it is communication.
    is_move: bool
    start_ns: int
    end_ns: int
    #: name, label: What it is, and what it belongs to: a layer, a kind of ops, a stage.
    name: str
    label: str
    #: `NO_OP` where it is no single op.
    op: int = NO_OP
    #: What to write into it, where there is room; neighbours of one label and text are one block.
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


class Crossing(NamedTuple):
    """A tensor that leaves its device."""

    #: tensor, producer, source: The tensor, the op that makes it, and the device of that op.
    tensor: int
    producer: int
    source: int
    #: One op on each device that gets it: the first in topological order.
    readers: tuple[int, ...]
    #: The devices that get it.
    targets: tuple[int, ...]
    bytes: int
    #: source_ns, target_ns: What the borders of devices are charged; a transfer is charged to its
    #: target.
    source_ns: int
    target_ns: tuple[int, ...]

    @property
    def time_ns(self) -> int:
        """All that the crossing takes."""
        return self.source_ns + sum(self.target_ns)


def crossings(instance: Instance, plan: Plan, semantics: Semantics) -> list[Crossing]:
    """All crossings of a plan, by tensor; those of replicated stages at their first devices.

    Under makespan, and pipeline_iteration with links that send, a crossing is one transfer: from
    device to device. Under the other rules it is one tensor, which the borders of its devices are
    charged for, each once. What pipeline_iteration does not count (`Arrays.exchanged`) is left out.
    """
    arrays, index, device = instance.arrays, instance.arrays.index, plan.devices
    is_sent = isinstance(semantics, Makespan) or (
        isinstance(semantics, PipelineIteration) and semantics.sending == "overlap"
    )
    per_edge = isinstance(semantics, Makespan) and semantics.transfers == "per_edge"
    cost = np.where(arrays.is_host, 0, border_costs(instance, semantics))
    found = []
    position = index.topological_position
    sent = np.ones(len(index.producer), np.bool_)
    if isinstance(semantics, PipelineIteration):
        sent = ~instance.arrays.exchanged
    for u, producer in enumerate(index.tensor_producer.tolist()):
        edges = index.tensor_edge[index.tensor_ptr[u] : index.tensor_ptr[u + 1]]
        edges = edges[sent[edges]]
        home, size = int(device[producer]), instance.graph.edges[index.tensor_first_edge[u]].bytes
        readers = sorted(index.consumer[edges].tolist(), key=lambda i: int(position[i]))
        away = [i for i in readers if device[i] != home]
        if not per_edge:
            away = [next(i for i in away if device[i] == k) for k in _homes(device, away)]
        if not away:
            continue
        targets = [int(device[i]) for i in away]
        if is_sent:
            times = arrays.transfer_ns[u, arrays.link_class[home, targets]].tolist()
            found += [
                Crossing(u, producer, home, (i,), (k,), size, 0, (time_ns,))
                for i, k, time_ns in zip(away, targets, times, strict=True)
            ]
            continue
        found.append(
            Crossing(
                u,
                producer,
                home,
                tuple(away),
                tuple(targets),
                size,
                int(cost[u, home]),
                tuple(cost[u, targets].tolist()),
            )
        )
    return found


def _homes(device: np.ndarray, ops: Sequence[int]) -> list[int]:
    return list(dict.fromkeys(int(device[i]) for i in ops))


def bytes_moved(found: Sequence[Crossing], num_devices: int) -> tuple[list[int], list[int]]:
    """Bytes that come into and go out of each device."""
    into, out = [0] * num_devices, [0] * num_devices
    for each in found:
        out[each.source] += each.bytes
        for k in each.targets:
            into[k] += each.bytes
    return into, out


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
    """The bars of a plan that has a value."""
    assert verdict.value_ns is not None
    rows = [spec.name for spec in instance.cluster.devices]
    labels = labels_of(instance.graph)
    by_layer = any(layer_of(instance.graph))
    moves: tuple[Move, ...] = ()
    if isinstance(semantics, PipelineIteration):
        bars, moves = _iteration(instance, plan, semantics)
        meaning, by_layer = "one iteration; a bar is the work of a stage on a microbatch", False
    elif isinstance(semantics, AllLoads):
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
    """The layer of each op, else its module; its kind where no op has a module."""
    layers = layer_of(graph)
    if not any(layers):
        return tuple(op.kind for op in graph.ops)
    return tuple(layer or op.module or op.kind for layer, op in zip(layers, graph.ops, strict=True))


def short_label(label: str) -> str:
    """The end of a module's path that tells it apart."""
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
            name = f"{event.part} of stage {event.stage}{event.turn}"
            bars.append(
                Bar(
                    home[event.stage],
                    False,
                    start,
                    end,
                    name,
                    event.part,
                    NO_OP,
                    "" if event.update else str(event.microbatch),
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
    semantics: AllLoads,
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
    """How long each device runs ops, with what overlaps counted once."""
    busy, until = np.zeros(num_devices, np.int64), np.zeros(num_devices, np.int64)
    for bar in sorted(bar for bar in drawn.bars if not bar.is_move and bar.row < num_devices):
        begin = max(bar.start_ns, int(until[bar.row]))
        if bar.end_ns > begin:
            busy[bar.row] += bar.end_ns - begin
            until[bar.row] = bar.end_ns
    return [int(each) for each in busy]


class Block(NamedTuple):
    """Bars of one row that are drawn as one; other fields are `Bar`'s.

    `num_bars` says how many they are, and `filled_ns` how long they last in sum.
    """

    row: int
    is_move: bool
    start_ns: int
    end_ns: int
    name: str
    label: str
    text: str
    num_bars: int
    filled_ns: int

    @property
    def fill(self) -> float:
        """The share of the block in which something runs."""
        return min(1.0, self.filled_ns / max(1, self.end_ns - self.start_ns))


def blocks(drawn: Timeline, least_ns: int, longest_ns: int | None = None) -> list[Block]:
    """Bars as blocks: neighbours of one label and text, and what is shorter than `least_ns`.

    A gap that is longer than `least_ns` ends a block, and so do other bars in a row once they are
    longer than a quarter of it. A block is called after its longest bar's label. So no row has more
    than about five blocks for each `least_ns`, beside long bars. With `longest_ns` no block of
    several bars is longer than that.
    """
    found: list[Block] = []
    longest: list[int] = []
    others: list[int] = []  # how long bars of another label have lasted since one of the block's
    ends: list[tuple[str, str]] = []
    last: dict[tuple[int, bool], int] = {}
    for bar in sorted(drawn.bars, key=lambda bar: (bar.start_ns, bar.end_ns, bar.row, bar.name)):
        at = last.get((bar.row, bar.is_move))
        block = None if at is None else found[at]
        same = block is not None and (block.label, block.text) == (bar.label, bar.text)
        if (
            block is not None
            and at is not None
            and bar.start_ns - block.end_ns <= least_ns
            and (longest_ns is None or bar.end_ns - block.start_ns <= longest_ns)
            and (
                same
                or max(bar.end_ns, block.end_ns) - block.start_ns <= least_ns
                or others[at] + bar.time_ns <= least_ns // 4
            )
        ):
            others[at] = 0 if same else others[at] + bar.time_ns
            ends[at] = ends[at][0], bar.name
            longer = bar.time_ns > longest[at]
            longest[at] = max(longest[at], bar.time_ns)
            found[at] = block._replace(
                end_ns=max(block.end_ns, bar.end_ns),
                num_bars=block.num_bars + 1,
                filled_ns=block.filled_ns + bar.time_ns,
                name=f"{ends[at][0]} to {bar.name}",
                label=bar.label if longer else block.label,
                text=bar.text if longer else block.text,
            )
            continue
        last[bar.row, bar.is_move] = len(found)
        longest.append(bar.time_ns)
        others.append(0)
        ends.append((bar.name, bar.name))
        found.append(
            Block(
                bar.row,
                bar.is_move,
                bar.start_ns,
                bar.end_ns,
                bar.name,
                bar.label,
                bar.text,
                1,
                bar.time_ns,
            )
        )
    return found


MOST_SCOPES = 200
"""With more, colours can no longer be told apart."""


def scopes_of(names: Sequence[str]) -> tuple[str, ...] | None:
    """A scope of each op, in all no more than `MOST_SCOPES`; None without scopes.

    Frameworks write out modules in names: ``block1/unit_2/conv1/Conv2D``. The scope with the most
    ops is divided first.
    """
    paths = [name.split("/")[:-1] for name in names]
    if not any(paths):
        return None
    within: dict[tuple[str, ...], list[int]] = {(): [i for i, path in enumerate(paths) if path]}
    waiting: list[tuple[int, tuple[str, ...]]] = [(-len(names), ())]
    while waiting:
        scope = heapq.heappop(waiting)[1]
        parts: dict[tuple[str, ...], list[int]] = {}
        for i in within[scope]:
            parts.setdefault(tuple(paths[i][: len(scope) + 1]), []).append(i)
        if scope and len(within) - 1 + len(parts) > MOST_SCOPES:
            break
        del within[scope]
        within.update(parts)
        for part, inside in parts.items():
            if part != scope:
                heapq.heappush(waiting, (-len(inside), part))
    found = list(names)
    for scope, inside in within.items():
        for i in inside:
            found[i] = "/".join(scope)
    return tuple(found)


def by_scope(drawn: Timeline, names: Sequence[str]) -> Timeline:
    """The timeline with scopes as labels of single ops; itself where it has layers or no scopes."""
    scopes = None if drawn.by_layer else scopes_of(names)
    if scopes is None:
        return drawn
    bars = tuple(
        bar
        if bar.op < 0 or bar.is_move
        else bar._replace(label=scopes[bar.op], text=short_label(scopes[bar.op].replace("/", ".")))
        for bar in drawn.bars
    )
    return Timeline(drawn.rows, bars, drawn.moves, drawn.end_ns, drawn.meaning, by_layer=True)
