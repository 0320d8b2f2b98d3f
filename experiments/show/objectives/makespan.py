"""One pass under makespan: ops and transfers when they run, and the chain that ends last."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from placegap.experiments.show.critical_path import PathPart, Reason, path_sentences, walk
from placegap.experiments.show.objectives.base import Judged, Parts, Words, device_parts
from placegap.experiments.show.place_report import EXACT, THROUGHPUT, is_heuristic, unused
from placegap.experiments.show.timeline import Move, crossings, move_bars, op_bars, timeline
from placegap.instances.costing.catalogue import is_cpu
from placegap.instances.problem import Evaluation, Instance, Makespan, Plan, Schedule
from placegap.instances.referee.channels import NO_CHANNEL, channels_of

if TYPE_CHECKING:
    from placegap.experiments.show.objectives.base import Moves
    from placegap.solvers.core.result import Result


def parts(case: Judged[Makespan]) -> Parts:
    """Bars of ops and of transfers, which are arrows, too."""
    instance, rules, schedule = case.instance, case.semantics, case.verdict.schedule
    assert schedule is not None
    moves = transfers(instance, schedule, rules)
    path = critical_path(instance, schedule, rules, moves)
    drawn = timeline(instance, (*op_bars(instance, schedule), *move_bars(moves)), "one pass", moves)
    crossed = crossings(instance, case.plan, rules, is_sent=True)
    return timed_parts(case, path, drawn=drawn, crossed=crossed)


def transfers(instance: Instance, schedule: Schedule, rules: Makespan) -> list[Move]:
    moved, index = schedule.transfers, instance.arrays.index
    ends = (moved.source, moved.destination, moved.start_ns, moved.end_ns)
    columns = (moved.item, moved.producer, *ends)
    found = []
    for item, producer, a, b, start, end in zip(*(c.tolist() for c in columns), strict=True):
        edge = instance.graph.edges[item if rules.per_edge else index.tensor_first_edge[item]]
        name = instance.graph.ops[producer].name
        name += f" to {edge.consumer}" if rules.per_edge else ""
        found.append(Move(a, b, start, end, name, edge.bytes))
    return found


def critical_path(
    instance: Instance, schedule: Schedule, rules: Makespan, moves: list[Move]
) -> tuple[PathPart, ...]:
    """The chain that ends last: each part waits for its data, or for a device or channel."""
    index, graph, n = instance.arrays.index, instance.graph, instance.num_ops
    device = schedule.device.tolist()
    things: dict[Hashable, PathPart] = {}
    ending: dict[tuple[int, int], list[int]] = {}  # ops by device and end
    for i, (start, end) in enumerate(
        zip(schedule.start_ns.tolist(), schedule.end_ns.tolist(), strict=True)
    ):
        things[i] = PathPart(graph.ops[i].name, device[i], start, end, "start", i)
        ending.setdefault((device[i], end), []).append(i)
    producer, channel_end = schedule.transfers.producer.tolist(), dict[tuple[int, int], list[int]]()
    carrier: dict[tuple[int, int], int] = {}
    channels = []
    for row, (item, move) in enumerate(zip(schedule.transfers.item.tolist(), moves, strict=True)):
        a, b, start, end, name, size = move
        things[n + row] = PathPart(name, a, start, end, "start", producer[row], b, size)
        carrier[item, b] = row
        used = channels_of(rules.channels, instance.num_devices, a, b)
        channels.append([c for c in used if c != NO_CHANNEL])
        for channel in channels[-1]:
            channel_end.setdefault((channel, end), []).append(row)

    def waits(key: Hashable) -> Iterable[tuple[Hashable, Reason]]:
        assert isinstance(key, int)
        start = things[key].start_ns
        if key >= n:
            yield producer[key - n], "data"
            for channel in channels[key - n]:
                for row in channel_end.get((channel, start), ()):
                    yield n + row, "turn"
            return
        for e in index.pred_edge[index.pred_ptr[key] : index.pred_ptr[key + 1]].tolist():
            before = int(index.producer[e])
            if device[before] == device[key]:
                yield before, "data"
            else:
                item = e if rules.per_edge else int(index.tensor[e])
                yield n + carrier[item, device[key]], "data"
        for other in ending.get((device[key], start), ()):
            yield other, "turn"

    return walk(things, waits)


def timed_parts(
    case: Judged[Any], path: tuple[PathPart, ...], what: str = "ops", **more: Any
) -> Parts:
    """Parts of a plan whose value is the end of a schedule."""
    names = [spec.name for spec in case.instance.cluster.devices]
    why = path_sentences(path, names, case.value_ns, what)
    more |= {"is_timed": True, "where": "critical path", "moments": "over time"}
    return device_parts(case, path=path, why=why, **more)


def moves(case: Judged[Makespan]) -> Moves:
    """Ops to another device, and there in the place where they began, or where the rules say."""
    from placegap.experiments.show.single_moves import moved_placement, moves_of_ops

    plan, schedule = case.plan, case.verdict.schedule
    position = case.instance.arrays.index.topological_position.tolist()

    def changed(ops: tuple[int, ...], target: int) -> Iterator[Plan]:
        moved, placement = set(ops), moved_placement(plan, ops, target)
        if plan.device_order is None or schedule is None:
            yield replace(plan, placement=placement, device_order=None, channel_order=None)
            return
        start = schedule.start_ns.tolist()
        order = [
            None if kept is None else [i for i in kept if i not in moved]
            for kept in plan.device_order
        ]
        joined = order[target]
        if joined is not None:
            for i in sorted(ops, key=lambda i: (start[i], position[i])):
                at = next((n for n, j in enumerate(joined) if start[j] > start[i]), len(joined))
                joined.insert(at, i)
        kept_order = tuple(None if each is None else tuple(each) for each in order)
        yield replace(plan, placement=placement, device_order=kept_order, channel_order=None)
        yield Plan(placement)

    return moves_of_ops(case, changed)


def idle(instance: Instance, result: Result, verdict: Evaluation) -> str:
    """Makespan and latency: the end of one pass."""
    used = [use.device for use in verdict.uses if use.num_ops]
    proven = result.status == "optimal"
    if len(used) == 1 and proven and result.value:
        from placegap.solvers.bounds.cheap_bounds import path_ns  # loads a solver

        share = path_ns(instance, transfers=False) / result.value
        return (
            f"{used[0]} alone is optimal for one pass. {share:.0%} of its time is one path of ops,"
            " each of which waits for the one before. The rest would gain less from another device"
            f" than its transfers cost. {THROUGHPUT}"
        )
    what = unused(verdict)
    if len(used) == 1:
        alone = f"{used[0]} alone"
        what = f"{alone} is optimal for one pass" if proven else f"the plan uses {alone}"
    exact = f"{EXACT}. " if not proven and is_heuristic(result.method) else ""
    return (
        f"{what}. Only ops that can run side by side gain from another device, and each transfer"
        f" costs time. {exact}{THROUGHPUT}"
    )


def whole_layers(instance: Instance, result: Result) -> tuple[str, ...]:
    """A decode step on several cards: what its optimum leaves out."""
    cluster, known = instance.cluster, instance.graph.provenance.parameters
    cards = sum(not is_cpu(device, cluster) for device in cluster.devices)
    if result.status != "optimal":
        return ()
    if not known.get("decode") or cards < 2:
        return ()
    what = "layer or op" if result.instance_hash == instance.content_hash else "layer"
    return (f"optimal with each {what} on one card; --tensor-split also shares layers",)


WORDS = Words(parts, moves, idle, optimum=whole_layers)
