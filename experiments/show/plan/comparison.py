"""Two plans of one instance: what differs, which ops moved, and where the time goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console
from scipy.optimize import linear_sum_assignment

from placegap.experiments.show.anatomy import Anatomy
from placegap.experiments.show.figures import format_gap, format_ns
from placegap.experiments.show.rendering import plain_table, print_line
from placegap.experiments.show.timeline import labels_of
from placegap.experiments.show.words import bound_sentence
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import format_bytes
from placegap.instances.problem.plan import Plan
from placegap.instances.problem.semantics import LoadSemantics
from placegap.instances.reading.errors import shorten

MOST_GROUPS = 10
"""Lines of ops that moved."""


@dataclass(frozen=True)
class Moved:
    """Ops of one label that went from some devices to others."""

    label: str
    source: str
    target: str
    ops: tuple[str, ...]
    time_ns: int


def moved_ops(instance: Instance, first: Plan, second: Plan) -> list[Moved]:
    """Ops whose devices differ, by their layer (or kind) and devices; the longest first.

    Examples
    --------
    >>> from placegap.instances import example
    >>> moved = moved_ops(example(), Plan.on([0, 0, 1, 0]), Plan.on([0, 0, 0, 0]))
    >>> [(each.ops, each.source, each.target, each.time_ns) for each in moved]
    [(('op3',), 'gpu1', 'gpu0', 10)]
    """
    names = [spec.name for spec in instance.cluster.devices]
    labels = labels_of(instance.graph)
    found: dict[tuple[str, tuple[int, ...], tuple[int, ...]], list[int]] = {}
    for i, (a, b) in enumerate(zip(first.placement, second.placement, strict=True)):
        if a != b:
            found.setdefault((labels[i], a, b), []).append(i)
    moved = [
        Moved(
            label,
            ", ".join(names[k] for k in a),
            ", ".join(names[k] for k in b),
            tuple(instance.graph.ops[i].name for i in ops),
            sum(int(instance.arrays.time_ns[i, b[0]]) for i in ops),
        )
        for (label, a, b), ops in found.items()
    ]
    return sorted(moved, key=lambda each: (-each.time_ns, each.label, each.source, each.target))


def renamed_devices(instance: Instance, first: Plan, second: Plan) -> tuple[int, list[str]]:
    """How many ops stay apart if like devices of the second plan swap names, and which do.

    Devices are like if they are of one kind, server and memory; their links are not looked at.

    Examples
    --------
    >>> from placegap.instances import example
    >>> renamed_devices(example(), Plan.on([0, 0, 1, 1]), Plan.on([1, 1, 0, 0]))
    (0, ['gpu1 for gpu0', 'gpu0 for gpu1'])
    """
    devices, count = instance.cluster.devices, instance.num_devices
    common = np.zeros((count, count))
    np.add.at(common, (second.devices, first.devices), 1)
    for a, one in enumerate(devices):
        for b, other in enumerate(devices):
            if (one.kind, one.server, one.memory_bytes, one.is_host) != (
                other.kind,
                other.server,
                other.memory_bytes,
                other.is_host,
            ):
                common[a, b] = -instance.num_ops
    common += np.eye(count) / (2 * count)  # names stay where nothing is gained
    taken, given = linear_sum_assignment(common, maximize=True)
    name = dict(zip(taken.tolist(), given.tolist(), strict=True))
    used = set(second.devices.tolist())
    apart = sum(
        tuple(sorted(name[k] for k in b)) != a
        for a, b in zip(first.placement, second.placement, strict=True)
    )
    swaps = [
        f"{devices[b].name} for {devices[a].name}" for a, b in name.items() if a != b and a in used
    ]
    return apart, swaps


def comparison_object(first: Anatomy, second: Anatomy) -> dict[str, Any]:
    """What ``--json`` prints."""
    moved = moved_ops(first.instance, first.plan, second.plan)
    apart, _ = renamed_devices(first.instance, first.plan, second.plan)
    return {
        "instance": first.instance.name,
        "semantics": first.semantics.model_dump(mode="json"),
        "plans": [
            {
                "method": each.method,
                "value_ns": each.value_ns,
                "feasible": each.verdict.feasible,
                "bound_ns": None if each.bound is None else each.bound.ns,
                "bound_origin": "" if each.bound is None else each.bound.origin,
                "rests_on": "" if each.bound is None else each.bound.rests_on,
                "gap": each.gap,
                **time_parts(each),
                "devices": [share._asdict() for share in each.devices],
            }
            for each in (first, second)
        ],
        "moved_ops": sum(len(each.ops) for each in moved),
        "moved_ops_but_for_names": apart,
        "moved": [vars(each) for each in moved],
    }


def time_parts(found: Anatomy) -> dict[str, int]:
    """Where the value goes: ops and transfers, of the critical path or of the heaviest device.

    Examples
    --------
    >>> from placegap.experiments.show.anatomy import take_apart
    >>> from placegap.instances import Makespan, example
    >>> time_parts(take_apart(example(), Plan.on([0, 0, 1, 0]), Makespan()))
    {'ops_ns': 23, 'transfers_ns': 30, 'waits': 0}
    """
    if isinstance(found.semantics, LoadSemantics):
        top = max(found.verdict.uses, key=lambda use: use.load_ns)
        return {"ops_ns": top.compute_ns, "transfers_ns": top.in_ns + top.out_ns, "waits": 0}
    sent = sum(link.end_ns - link.start_ns for link in found.path if link.target >= 0)
    all_ns = sum(link.end_ns - link.start_ns for link in found.path)
    waits = sum(link.why == "turn" for link in found.path)
    return {"ops_ns": all_ns - sent, "transfers_ns": sent, "waits": waits}


def print_comparison(
    console: Console, first: Anatomy, second: Anatomy, names: Sequence[str]
) -> None:
    """Values side by side, devices side by side, and the ops that moved."""
    console.print(f"{first.instance.name}: {first.semantics.label}", markup=False)
    rows = list[tuple[str, ...]]()
    parts = time_parts(first), time_parts(second)
    value = [each.value_ns for each in (first, second)]
    rows.append(("made by", *(each.method or "-" for each in (first, second)), ""))
    rows.append(("value", *map(format_ns, value), _change(*value)))
    gaps = ["unknown" if each.gap is None else format_gap(each.gap) for each in (first, second)]
    rows.append(("gap", *gaps, ""))
    is_load = isinstance(first.semantics, LoadSemantics)
    where = "heaviest device" if is_load else "critical path"
    for what, key in (("ops", "ops_ns"), ("transfers", "transfers_ns")):
        pair = [part[key] for part in parts]
        rows.append((f"{where}: {what}", *map(format_ns, pair), _change(*pair)))
    if not is_load:
        waits = [part["waits"] for part in parts]
        rows.append((f"{where}: waits for a turn", *map(str, waits), ""))
    moved_bytes = [sum(d.out_bytes for d in each.devices) for each in (first, second)]
    rows.append(("bytes between devices", *map(format_bytes, moved_bytes), _change(*moved_bytes)))
    used = [sum(d.num_ops > 0 for d in each.devices) for each in (first, second)]
    rows.append(("devices used", *map(str, used), ""))
    feasible = ["yes" if each.verdict.feasible else "no" for each in (first, second)]
    rows.append(("feasible", *feasible, ""))
    titles = [shorten(name, 30) for name in names]
    console.print(plain_table(None, ("", *titles, "change"), rows))
    for sentence in dict.fromkeys(map(bound_sentence, (first, second))):
        console.print(f"bound   {sentence}", markup=False)
    for name, each in zip(titles, (first, second), strict=True):
        for violation in each.verdict.violations:
            print_line(f"{name} breaks a rule: {violation}")
    shares = [
        (
            a.name,
            f"{a.num_ops} / {b.num_ops}",
            f"{format_gap(a.busy)} / {format_gap(b.busy)}",
            f"{format_bytes(a.memory_bytes)} / {format_bytes(b.memory_bytes)}",
        )
        for a, b in zip(first.devices, second.devices, strict=True)
    ]
    console.print(plain_table(None, ("device", "ops", "busy", "peak memory"), shares))
    _print_moved(console, first, second)


def _print_moved(console: Console, first: Anatomy, second: Anatomy) -> None:
    moved = moved_ops(first.instance, first.plan, second.plan)
    count = sum(len(each.ops) for each in moved)
    if not count:
        same = first.plan == second.plan
        print_line(
            "All ops are on the same devices"
            + ("." if same else "; other parts differ: orders, stages or calls.")
        )
        return
    apart, swaps = renamed_devices(first.instance, first.plan, second.plan)
    line = f"{count} of {first.instance.num_ops} ops are on other devices"
    if apart < count:
        line += f"; {apart} but for the names of like devices ({', '.join(swaps)})"
    print_line(f"{line}.")
    rows = [
        (
            shorten(each.label, 40),
            str(len(each.ops)),
            each.source,
            each.target,
            format_ns(each.time_ns),
            shorten(each.ops[0], 40) + (", ..." if each.ops[1:] else ""),
        )
        for each in moved[:MOST_GROUPS]
    ]
    console.print(plain_table(None, ("moved", "ops", "from", "to", "time", "such as"), rows))
    if len(moved) > MOST_GROUPS:
        print_line(f"... and {len(moved) - MOST_GROUPS} more groups; --json lists all")


def _change(before: int, after: int) -> str:
    if before == after:
        return "the same"
    if not before:
        return "more"
    share = (after - before) / before
    return f"{'-' if share < 0 else '+'}{format_gap(abs(share))}"
