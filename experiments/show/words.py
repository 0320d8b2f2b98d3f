"""A plan in words and tables, for the terminal and for the page; and how two plans differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product, zip_longest
from typing import Any

import numpy as np
from rich.console import Console
from scipy.optimize import linear_sum_assignment

from placegap.experiments.show.anatomy import MOST_CROSSINGS, Anatomy
from placegap.experiments.show.critical_path import short_name
from placegap.experiments.show.figures import format_gap, format_ns, format_value
from placegap.experiments.show.place_report import claim_objects, claim_words, gap_words
from placegap.experiments.show.rendering import plain_table, print_line
from placegap.experiments.show.timeline import labels_of
from placegap.instances.problem import Instance, Plan
from placegap.instances.problem.integers import format_bytes
from placegap.instances.problem.modules import Granularity
from placegap.instances.reading.errors import shorten
from placegap.solvers.core.registry import METHODS
from placegap.solvers.core.result import relative_gap
from placegap.solvers.solving.known_bounds import Claim

CROSSING_HEAD = ("tensor of", "from", "to", "bytes", "time")
MOVE_HEAD = ("move", "from", "to", "value then", "gain")


def crossing_rows(found: Anatomy) -> list[tuple[str, ...]]:
    """The longest transfers, under `CROSSING_HEAD`."""
    names = found.names
    return [
        (
            short_name(found.instance.graph.ops[each.producer].name),
            names[each.source],
            ", ".join(names[k] for k in each.targets),
            format_bytes(each.bytes),
            format_ns(each.time_ns),
        )
        for each in found.crossings[:MOST_CROSSINGS]
    ]


def move_rows(found: Anatomy) -> list[tuple[str, ...]]:
    """The best single moves, under `MOVE_HEAD`."""
    names, unit = found.names, found.semantics.unit
    return [
        (
            short_name(move.what) + (f" ({move.num_ops} ops)" if move.num_ops > 1 else ""),
            names[move.source],
            names[move.target],
            format_value(move.value, unit),
            "becomes feasible"
            if move.gain is None
            else f"{format_value(move.gain, unit)} ({format_gap(move.gain / found.value)})",
        )
        for move in found.next_moves.moves
    ]


def move_sentence(found: Anatomy) -> str:
    """What was tried, and with what success."""
    tried, total = found.next_moves.tried, found.next_moves.all
    of = f"All {tried}" if tried == total else f"{tried} of {total}"
    unit = "an op, group or layer" if found.kept == "op" else WHOLES[found.kept]
    what = f"{of} {found.tried or f'single moves of {unit} to another device were tried'}"
    if found.next_moves.moves:
        return f"{what}; the best are listed"
    if not found.verdict.feasible:
        return f"{what}; none is feasible"
    optimal = f"the plan is proven optimal under {found.semantics.label}" if found.gap == 0 else ""
    if found.kept != "op":
        among = f"{optimal} among plans of {WHOLES[found.kept]}; " if optimal else ""
        return f"{what}; none improves it; {among}'placegap place --granularity op' splits them"
    return f"{what}; none improves it" + (f" ({optimal})" if optimal else "")


WHOLES: Mapping[Granularity, str] = {
    "layer": "whole layers",
    "experts": "whole layers and experts",
    "module": "whole modules",
}


def bound_sentence(found: Anatomy) -> str:
    """The bound, and what it rests on."""
    from placegap.solvers.core.result import RECORDED, describe_basis

    if found.bound is None:
        return "none"
    basis = describe_basis(found.bound.origin, found.bound.basis)
    is_of_ops = found.kept == "op" or found.bound.origin.startswith(RECORDED)
    among = "" if is_of_ops else f"; among plans of {WHOLES[found.kept]}"
    return f"{format_value(found.bound.value, found.semantics.unit)} ({basis}{among})"


def anatomy_gap(found: Anatomy) -> str:
    """The gap of a plan."""
    return gap_words(found.gap, found.value, found.bound if found.verdict.feasible else None)


def claim_sentences(found: Anatomy) -> list[str]:
    """What files claim, and what a bound means for the gap until a method proves it."""
    return [claim_words(claim, found.semantics) + _if_true(found, claim) for claim in found.claims]


def _if_true(found: Anatomy, claim: Claim) -> str:
    is_about = claim.about is found.instance or (claim.about is not None and found.kept != "op")
    cost = found.semantics.cost
    least = None if found.bound is None else cost(found.bound.value)
    is_more = least is None or least < cost(claim.value) <= cost(found.value)
    prover = next((name for name in (claim.origin, found.method) if name in METHODS), None)
    can_check = claim.is_bound and prover is not None and found.verdict.feasible
    if not (is_about and is_more and can_check):
        return ""
    gap = relative_gap(found.value, claim.value) or 0
    return f": a gap of {format_gap(gap)}, once --method {prover} proves it"


def print_anatomy(console: Console, found: Anatomy) -> None:
    """Everything, on the terminal."""
    by = f", {found.method}" if found.method else ""
    console.print(f"{found.instance.name}: {found.semantics.label}{by}")
    console.print(plain_table(None, found.homes.head, found.homes.rows))
    for use in found.verdict.servers:
        console.print(f"server {use.server}: {format_ns(use.load_ns)}")
    verdict = found.verdict
    console.print(f"value   {format_value(found.value, found.semantics.unit)}")
    console.print(f"bound   {bound_sentence(found)}")
    console.print(f"gap     {anatomy_gap(found)}")
    for sentence in claim_sentences(found):
        console.print(f"claimed {sentence}")
    if not verdict.feasible:
        console.print("The plan is infeasible:")
        for violation in verdict.violations:
            print_line(f"- {violation}")
    what = "tokens" if found.semantics.unit == "tokens" else "value"
    if found.why:
        console.print()
        console.print(f"What limits the {what}", style="bold")
    for line in found.why:
        print_line(f"- {line}")
    if found.crossings:
        count = min(len(found.crossings), MOST_CROSSINGS)
        title = f"The longest {count} of {len(found.crossings)} transfers{found.per}"
        console.print()
        console.print(title, style="bold")
        console.print(plain_table(None, CROSSING_HEAD, crossing_rows(found)))
    if found.next_moves.all:
        console.print()
        console.print("What to change next", style="bold")
        print_line(move_sentence(found))
        if found.next_moves.moves:
            console.print(plain_table(None, MOVE_HEAD, move_rows(found)))


MOST_GROUPS = 10  # lines of ops that moved


@dataclass(frozen=True)
class Moved:
    """Ops of one label that went from some devices to others."""

    label: str
    source: str
    target: str
    ops: tuple[str, ...]
    time_ns: int


def moved_ops(first: Anatomy, second: Anatomy) -> list[Moved]:
    """Ops whose homes differ, by their layer (or kind) and homes; the longest first."""
    graph, found = first.instance.graph, dict[tuple[str, str, str], list[int]]()
    names = zip(labels_of(graph), first.homes.names, second.homes.names, strict=True)
    for i, (label, a, b) in enumerate(names):
        if a != b:
            found.setdefault((label, a, b), []).append(i)
    moved = [
        Moved(*key, tuple(graph.ops[i].name for i in ops), sum(second.homes.op_ns[i] for i in ops))
        for key, ops in found.items()
    ]
    return sorted(moved, key=lambda each: (-each.time_ns, each.label, each.source, each.target))


def renamed_devices(instance: Instance, first: Plan, second: Plan) -> tuple[int, list[str]]:
    """How many ops stay apart if like devices of the second plan swap names, and which do."""
    # Devices are like if they are of one kind, server and memory; their links are not looked at.
    devices, count = instance.cluster.devices, instance.num_devices
    common = np.zeros((count, count))
    np.add.at(common, (second.devices, first.devices), 1)
    traits = [(each.kind, each.server, each.memory_bytes, each.is_host) for each in devices]
    for a, b in product(range(count), repeat=2):
        if traits[a] != traits[b]:
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
    moved = moved_ops(first, second)
    apart = sum(len(each.ops) for each in moved)
    if first.homes.noun == "device":
        apart, _ = renamed_devices(first.instance, first.plan, second.plan)
    return {
        "instance": first.instance.name,
        "semantics": first.semantics.model_dump(mode="json"),
        "plans": [
            {
                "method": each.method,
                each.semantics.key("value"): each.value,
                "feasible": each.verdict.feasible,
                each.semantics.key("bound"): None if each.bound is None else each.bound.value,
                "bound_origin": "" if each.bound is None else each.bound.origin,
                "rests_on": "" if each.bound is None else each.bound.basis,
                "gap": each.gap,
                "claims": claim_objects(each.claims, each.semantics),
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
    """Where the value goes: ops and transfers, of the critical path or of the heaviest device."""
    if not found.is_timed:
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
    console.print(f"{first.instance.name}: {first.semantics.label}")
    rows = list[tuple[str, ...]]()
    parts = time_parts(first), time_parts(second)
    value = [each.value for each in (first, second)]
    rows.append(("made by", *(each.method or "-" for each in (first, second)), ""))
    shown = [format_value(each, first.semantics.unit) for each in value]
    rows.append(("value", *shown, _change(*map(abs, value))))
    rows.append(("gap", *map(anatomy_gap, (first, second)), ""))
    for what, key in (("ops", "ops_ns"), ("transfers", "transfers_ns")):
        pair = [part[key] for part in parts]
        rows.append((f"{first.where}: {what}", *map(format_ns, pair), _change(*pair)))
    if first.is_timed:
        waits = [part["waits"] for part in parts]
        rows.append((f"{first.where}: waits for a resource", *map(str, waits), ""))
    moved_bytes = [sum(d.out_bytes for d in each.devices) for each in (first, second)]
    rows.append(("bytes between devices", *map(format_bytes, moved_bytes), _change(*moved_bytes)))
    used = [sum(d.num_ops > 0 for d in each.verdict.uses) for each in (first, second)]
    rows.append(("devices used", *map(str, used), ""))
    feasible = ["yes" if each.verdict.feasible else "no" for each in (first, second)]
    rows.append(("feasible", *feasible, ""))
    titles = [shorten(name, 30) for name in names]
    console.print(plain_table(None, ("", *titles, "change"), rows))
    for sentence in dict.fromkeys(map(bound_sentence, (first, second))):
        console.print(f"bound   {sentence}")
    for sentence in (claim_words(claim, first.semantics) for claim in first.claims):
        console.print(f"claimed {sentence}")
    for name, each in zip(titles, (first, second), strict=True):
        for violation in each.verdict.violations:
            print_line(f"{name} is infeasible: {violation}")
    _print_homes(console, first, second)
    _print_moved(console, first, second)


def _print_homes(console: Console, first: Anatomy, second: Anatomy) -> None:
    """Devices, or stages, side by side."""
    columns = first.homes.compared
    nothing = ("-",) * len(first.homes.head)
    both = []
    for a, b in zip_longest(first.homes.rows, second.homes.rows, fillvalue=nothing):
        pairs = ((a[n].partition(" of ")[0], b[n].partition(" of ")[0]) for n in columns[1:])
        both.append((max(a[0], b[0]), *map(" / ".join, pairs)))
    console.print(plain_table(None, [first.homes.head[n] for n in columns], both))


def _print_moved(console: Console, first: Anatomy, second: Anatomy) -> None:
    moved, noun = moved_ops(first, second), first.homes.noun
    count = sum(len(each.ops) for each in moved)
    if not count:
        parts = "orders, stages or calls" if noun == "device" else "names of devices"
        same = first.plan == second.plan
        line = f"All ops are on the same {noun}s"
        print_line(f"{line}." if same else f"{line}; other parts differ: {parts}.")
        return
    line = f"{count} of {first.instance.num_ops} ops are"
    if noun == "device":
        line += " on other devices"
        apart, swaps = renamed_devices(first.instance, first.plan, second.plan)
        if apart < count:
            line += f"; {apart} if equal devices are renamed ({', '.join(swaps)})"
    else:
        line += " in other stages or modes"
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
