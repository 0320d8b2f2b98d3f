"""What every device does when, as bars: the one picture of a plan that charts and pages draw.

`crossings` are what the borders of devices cost. `blocks` are bars merged to few, so that thousands
of ops can be read, and `scopes_of` labels ops by their names where none names a module.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from placegap.experiments.show.figures import format_ns
from placegap.instances.problem import Graph, Instance, Plan, Schedule, Semantics
from placegap.instances.problem.modules import layer_of
from placegap.instances.referee.loads import border_costs

NO_OP = -1


class Bar(NamedTuple):
    """Something that lasts."""

    row: int  # a device, or a server after them
    is_move: bool  # whether it is communication
    start_ns: int
    end_ns: int
    #: name, label: What it is, and what it belongs to: a layer, a kind of ops, a stage.
    name: str
    label: str
    op: int = NO_OP  # `NO_OP` where it is no single op
    text: str = ""  # what to write into it, if there is room; equal neighbours are one block

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
    readers: tuple[int, ...]  # one op on each device that gets it: the first in topological order
    targets: tuple[int, ...]  # the devices that get it
    bytes: int
    #: source_ns, target_ns: What the borders of devices are charged; a transfer is charged to its
    #: target.
    source_ns: int
    target_ns: tuple[int, ...]

    @property
    def time_ns(self) -> int:
        """All that the crossing takes."""
        return self.source_ns + sum(self.target_ns)


def crossings(
    instance: Instance,
    plan: Plan,
    semantics: Semantics,
    *,
    is_sent: bool,
    ignored: np.ndarray | None = None,
) -> list[Crossing]:
    """All crossings of a plan, by tensor; those of replicated stages at their first devices."""
    # One that `is_sent` is a transfer, from device to device. Otherwise it is one tensor, which the
    # borders of its devices are charged for, each once. `ignored` edges cost nothing.
    arrays, index, device = instance.arrays, instance.arrays.index, plan.devices
    cost = np.where(arrays.is_host, 0, border_costs(instance, semantics))
    found = []
    position = index.topological_position
    for u, producer in enumerate(index.tensor_producer.tolist()):
        edges = index.tensor_edge[index.tensor_ptr[u] : index.tensor_ptr[u + 1]]
        edges = edges if ignored is None else edges[~ignored[edges]]
        home, size = int(device[producer]), instance.graph.edges[index.tensor_first_edge[u]].bytes
        readers = sorted(index.consumer[edges].tolist(), key=lambda i: int(position[i]))
        away = [i for i in readers if device[i] != home]
        if not semantics.per_edge:
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
        ends = tuple(away), tuple(targets)
        charged = int(cost[u, home]), tuple(cost[u, targets].tolist())
        found.append(Crossing(u, producer, home, *ends, size, *charged))
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
    """Rows of bars, arrows between them, and what they mean."""

    # `by_layer` says whether labels are layers; else they are kinds of ops, or stages.
    rows: tuple[str, ...]
    bars: tuple[Bar, ...]
    moves: tuple[Move, ...]
    end_ns: int
    meaning: str
    by_layer: bool = False
    unit: str = "ns"  # of what bars last

    def text(self, amount: int) -> str:
        """How long something lasts."""
        return format_ns(amount) if self.unit == "ns" else f"{amount} {self.unit}"


def timeline(
    instance: Instance,
    bars: Iterable[Bar],
    meaning: str,
    moves: Sequence[Move] = (),
    servers: Sequence[str] = (),
) -> Timeline:
    """The bars of devices, and of servers after them, with the layers of ops as their texts."""
    rows = [spec.name for spec in instance.cluster.devices]
    by_layer = any(layer_of(instance.graph))
    drawn = tuple(
        bar._replace(text=short_label(bar.label)) if by_layer and not bar.is_move else bar
        for bar in bars
    )
    return Timeline((*rows, *servers), drawn, tuple(moves), last_end(drawn), meaning, by_layer)


def last_end(bars: Iterable[Bar]) -> int:
    return max((bar.end_ns for bar in bars), default=0)


def label_ranks(drawn: Timeline, position: Sequence[int]) -> dict[str, int]:
    """Labels in the order of the model: of the first of their ops, of those without by its bar."""
    first = dict[str, int]()
    for at, bar in enumerate(drawn.bars):
        if not bar.is_move:
            when = len(position) + at if bar.op == NO_OP else position[bar.op]
            first[bar.label] = min(when, first.get(bar.label, when))
    return {label: n for n, label in enumerate(sorted(first, key=lambda label: first[label]))}


def labels_of(graph: Graph) -> tuple[str, ...]:
    """The layer of each op, else its module; its kind where no op has a module."""
    layers = layer_of(graph)
    if not any(layers):
        return tuple(op.kind for op in graph.ops)
    return tuple(layer or op.module or op.kind for layer, op in zip(layers, graph.ops, strict=True))


def short_label(label: str) -> str:
    """The end of a module's path that identifies it."""
    parts = label.split(".")
    return ".".join(parts[-2:]) if parts[-1].isdecimal() else parts[-1]


def op_bars(instance: Instance, schedule: Schedule) -> Iterator[Bar]:
    labels = labels_of(instance.graph)
    columns = (schedule.device, schedule.start_ns, schedule.end_ns)
    times = zip(*(column.tolist() for column in columns), strict=True)
    for i, (k, start, end) in enumerate(times):
        yield Bar(k, False, start, end, instance.graph.ops[i].name, labels[i], i)


def move_bars(moves: Iterable[Move]) -> Iterator[Bar]:
    """Transfers in the rows of both of their ends."""
    for move in moves:
        for k in (move.source, move.target):
            yield Bar(k, True, move.start_ns, move.end_ns, move.name, "communication")


# Name, label, time and op of something that a device does; a transfer has no op (`NO_OP`).
Piece = tuple[str, str, int, int]


def pieces(
    instance: Instance, found: Iterable[Crossing], k: int, work: Iterable[Piece]
) -> Iterator[Piece]:
    """What a device does one after another: what comes in, its work, and what goes out."""
    ops, found = instance.graph.ops, list(found)
    for each in found:
        for target, time_ns in zip(each.targets, each.target_ns, strict=True):
            if target == k:
                yield f"{ops[each.producer].name} comes in", "communication", time_ns, NO_OP
    yield from work
    for each in found:
        if each.source == k:
            yield f"{ops[each.producer].name} goes out", "communication", each.source_ns, NO_OP


def busy_times(drawn: Timeline, num_devices: int) -> list[int]:
    """How long each device runs ops, with what overlaps counted once."""
    busy, until = np.zeros(num_devices, np.int64), np.zeros(num_devices, np.int64)
    for bar in sorted(bar for bar in drawn.bars if not bar.is_move and bar.row < num_devices):
        begin = max(bar.start_ns, int(until[bar.row]))
        if bar.end_ns > begin:
            busy[bar.row] += bar.end_ns - begin
            until[bar.row] = bar.end_ns
    return [int(each) for each in busy]


class Block(NamedTuple):
    """Bars of one row that are drawn as one; other fields are `Bar`'s."""

    # `num_bars` says how many they are, and `filled_ns` how long they last in sum.
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
    """Bars as blocks: neighbours of one label and text, and what is shorter than `least_ns`."""
    # A gap that is longer than `least_ns` ends a block, and so do other bars in a row once they are
    # longer than a quarter of it. A block is called after its longest bar's label. So no row has
    # more than about five blocks for each `least_ns`, beside long bars. With `longest_ns` no block
    # of several bars is longer than that.
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
        found.append(Block(*bar[:6], bar.text, 1, bar.time_ns))
    return found


MOST_SCOPES = 200  # with more, colours can no longer be distinguished


def scopes_of(names: Sequence[str]) -> tuple[str, ...] | None:
    """A scope of each op, in all no more than `MOST_SCOPES`; None without scopes."""
    # Frameworks write out modules in names: ``block1/unit_2/conv1/Conv2D``. The scope with the most
    # ops is divided first.
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
