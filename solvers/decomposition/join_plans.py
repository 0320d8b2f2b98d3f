"""Plans of sections, end to end, as a plan of the whole graph."""

from __future__ import annotations

from collections.abc import Sequence

from placegap.instances.problem.instance import Instance
from placegap.instances.problem.plan import Plan, Transfer
from placegap.instances.problem.sections import Section, SectionMaker
from placegap.instances.problem.semantics import Makespan
from placegap.instances.referee.channels import plan_from_times
from placegap.instances.referee.simulate import simulate
from placegap.solvers.decomposition.arcs import Use


def join(
    instance: Instance,
    semantics: Makespan,
    maker: SectionMaker,
    path: Sequence[Use],
) -> Plan:
    """The plan that runs the plans of the sections one after the other.

    Parameters
    ----------
    instance, semantics
        The whole graph.
    maker : SectionMaker
    path : sequence of Use
        Arcs with plans, or of sections without inner ops, that make up the graph.
    """
    device = [0] * instance.num_ops
    op_times = [(0, 0)] * instance.num_ops
    moves: list[tuple[Transfer, int, int]] = []
    now = 0
    for use in path:
        arc, section = use.arc, use.section
        original = [use.names.index(k) for k in range(instance.num_devices)]
        if arc.plan is None:
            ops, transfers, length = _bare(instance, semantics, use)
        else:
            ops, transfers, length = _planned(semantics, maker, use)
            ops = [(original[k], start, end) for k, start, end in ops]
            transfers = [
                (Transfer(move.item, original[move.destination]), start, end)
                for move, start, end in transfers
            ]
        for i, (k, start, end) in zip(section.ops, ops, strict=True):
            if i != section.entry:  # it ended the section before
                device[i], op_times[i] = k, (now + start, now + end)
        items = _items(instance, semantics, section)
        moves += [
            (Transfer(items[move.item], move.destination), now + start, now + end)
            for move, start, end in transfers
        ]
        now += length
    return plan_from_times(instance, semantics, device, op_times, moves)


Timed = tuple[list[tuple[int, int, int]], list[tuple[Transfer, int, int]], int]
"""Device, start and end of each op; transfers, by items of the section, with theirs; the length."""


def _planned(semantics: Makespan, maker: SectionMaker, use: Use) -> Timed:
    arc = use.arc
    assert arc.plan is not None
    schedule = simulate(maker.make(arc.section, arc.entry, arc.leave), arc.plan, semantics)
    ops = list(
        zip(
            schedule.device.tolist(),
            schedule.start_ns.tolist(),
            schedule.end_ns.tolist(),
            strict=True,
        )
    )
    table = schedule.transfers
    columns = (table.item, table.destination, table.start_ns, table.end_ns)
    transfers = [
        (Transfer(item, to), start, end)
        for item, to, start, end in zip(*(c.tolist() for c in columns), strict=True)
    ]
    return ops, transfers, schedule.makespan_ns


def _bare(instance: Instance, semantics: Makespan, use: Use) -> Timed:
    """A section without inner ops: its transfers in turn, or at once if channels are free."""
    arrays, transfers, now = instance.arrays, list[tuple[Transfer, int, int]](), 0
    section, entry, leave = use.section, use.entry, use.leave
    free = semantics.channels == "free"
    if entry is not None and leave is not None and entry != leave:
        items = _items(instance, semantics, section)
        for local, item in enumerate(items):
            tensor = item if semantics.transfers == "per_tensor" else int(arrays.index.tensor[item])
            time = int(arrays.transfer_ns[tensor, arrays.link_class[entry, leave]])
            start = 0 if free else now
            transfers.append((Transfer(local, leave), start, start + time))
            now = max(now, start + time)
    ops = [] if entry is None else [(entry, 0, 0)]
    if leave is not None:
        assert section.exit is not None
        end = now + int(arrays.time_ns[section.exit, leave])
        ops.append((leave, now, end))
        now = end
    return ops, transfers, now


def _items(instance: Instance, semantics: Makespan, section: Section) -> list[int]:
    """What the transfers of a section's instance are in the whole: edges, or tensors."""
    if semantics.transfers == "per_edge":
        return list(section.edges)
    return list(dict.fromkeys(instance.arrays.index.tensor[list(section.edges)].tolist()))
