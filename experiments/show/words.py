"""A plan in words and tables, for the terminal and for the page; and how two plans differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, zip_longest
from typing import Any

import numpy as np
from rich.console import Console
from scipy.optimize import linear_sum_assignment

from placegap.experiments.show.anatomy import MOST_CROSSINGS, Anatomy
from placegap.experiments.show.critical_path import PathPart
from placegap.experiments.show.figures import format_gap, format_ns, format_value, memory_name
from placegap.experiments.show.hybrid_stages import (
    STAGE_HEAD,
    bubble_words,
    memory_parts,
    stage_rows,
)
from placegap.experiments.show.place_report import claim_objects, claim_words, gap_words
from placegap.experiments.show.rendering import plain_table, print_line
from placegap.experiments.show.timeline import labels_of
from placegap.instances.problem import (
    AllLoads,
    HybridPipeline,
    Instance,
    MaxContext,
    MaxLoadFwdBwd,
    PipelineIteration,
    Plan,
)
from placegap.instances.problem.integers import format_bytes
from placegap.instances.problem.modules import Granularity
from placegap.instances.reading.errors import shorten
from placegap.solvers.core.registry import METHODS
from placegap.solvers.core.result import relative_gap
from placegap.solvers.solving.known_bounds import Claim

MOST_STEPS = 14
"""Steps of the critical path that are printed; the middle of a longer one is left out."""

LONGEST_NAME = 48
"""Characters of a name in a sentence."""

DEVICE_HEAD = ("device", "kind", "ops", "busy", "idle", "in", "out")
Rows = list[tuple[str, ...]]
CROSSING_HEAD = ("tensor of", "from", "to", "bytes", "time")
MOVE_HEAD = ("move", "from", "to", "value then", "gain")


def device_rows(found: Anatomy) -> tuple[tuple[str, ...], Rows]:
    """A head, and one row per device, or per stage of a hybrid plan."""
    if found.stages:
        return STAGE_HEAD, stage_rows(found.instance, found.plan, found.verdict, found.stages)
    return (*DEVICE_HEAD, memory_name(found.semantics)), [
        (
            each.name,
            each.kind,
            str(each.num_ops),
            format_gap(each.busy),
            format_gap(max(0.0, each.idle)),
            format_bytes(each.in_bytes),
            format_bytes(each.out_bytes),
            _memory(each.memory_bytes, each.limit_bytes),
        )
        for each in found.devices
    ]


def _memory(used: int, limit: int | None) -> str:
    return format_bytes(used) + ("" if limit is None else f" of {format_bytes(limit)}")


def crossing_rows(found: Anatomy) -> list[tuple[str, ...]]:
    """The longest transfers, under `CROSSING_HEAD`."""
    names = found.homes
    return [
        (
            _name(found.instance.graph.ops[each.producer].name),
            names[each.source],
            ", ".join(names[k] for k in each.targets),
            format_bytes(each.bytes),
            format_ns(each.time_ns),
        )
        for each in found.crossings[:MOST_CROSSINGS]
    ]


def move_rows(found: Anatomy) -> list[tuple[str, ...]]:
    """The best single moves, under `MOVE_HEAD`."""
    names = found.homes
    return [
        (
            _name(move.what) + (f" ({move.num_ops} ops)" if move.num_ops > 1 else ""),
            names[move.source],
            names[move.target],
            format_ns(move.value_ns),
            "becomes feasible"
            if move.gain_ns is None
            else f"{format_ns(move.gain_ns)} ({format_gap(move.gain_ns / found.value_ns)})",
        )
        for move in found.next_moves.moves
    ]


def move_sentence(found: Anatomy) -> str:
    """What was tried, and with what success."""
    tried, total = found.next_moves.tried, found.next_moves.all
    of = f"All {tried}" if tried == total else f"{tried} of {total}"
    unit = "an op, group or layer" if found.kept == "op" else WHOLES[found.kept]
    what = f"{of} single moves of {unit} to another device were tried"
    if found.stages:
        what = f"{of} changes of one layer were tried: another mode, or the stage next to its own"
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
    return f"{format_value(found.bound.ns, found.semantics)} ({basis}{among})"


def anatomy_gap(found: Anatomy) -> str:
    """The gap of a plan."""
    return gap_words(found.gap, found.value_ns, found.bound if found.verdict.feasible else None)


def claim_sentences(found: Anatomy) -> list[str]:
    """What files claim, and what a bound means for the gap until a method proves it."""
    return [claim_words(claim, found.semantics) + _if_true(found, claim) for claim in found.claims]


def _if_true(found: Anatomy, claim: Claim) -> str:
    is_about = claim.about is found.instance or (claim.about is not None and found.kept != "op")
    is_more = found.bound is None or found.bound.ns < claim.ns <= found.value_ns
    prover = next((name for name in (claim.origin, found.method) if name in METHODS), None)
    can_check = claim.is_bound and prover is not None and found.verdict.feasible
    if not (is_about and is_more and can_check):
        return ""
    gap = relative_gap(found.value_ns, claim.ns) or 0
    return f": a gap of {format_gap(gap)}, once --method {prover} proves it"


def path_sentences(found: Anatomy) -> list[str]:
    """Why the plan takes so long: the critical path step by step, or the heaviest device."""
    if isinstance(found.semantics, AllLoads):
        return _heaviest(found)
    if found.stages:
        return _longest_stage(found)
    path, names = found.path, found.homes
    total = max(1, found.value_ns)
    run = sum(link.end_ns - link.start_ns for link in path if link.target < 0)
    sent = sum(link.end_ns - link.start_ns for link in path if link.target >= 0)
    turns = sum(link.why == "turn" for link in path)
    what = "stages" if isinstance(found.semantics, PipelineIteration) else "ops"
    first = (
        f"The critical path takes {format_ns(run + sent)}: {format_ns(run)}"
        f" ({format_gap(run / total)}) for {what}, {format_ns(sent)} ({format_gap(sent / total)})"
        " for transfers."
    )
    if turns:
        first += f" {turns} of its {len(path)} parts waited for a device or a channel."
    steps = [_step(group, names) for group in _stretches(path)]
    if len(steps) > MOST_STEPS:
        half = MOST_STEPS // 2
        left_out = f"... {len(steps) - 2 * half} more steps ..."
        steps = [*steps[:half], left_out, *steps[-half:]]
    return [first, *steps]


def _stretches(path: Sequence[PathPart]) -> list[list[PathPart]]:
    """Neighbours that run on one device, and transfers one by one."""
    numbered = list(enumerate(path))
    stretches = groupby(numbered, lambda at: (at[1].device, -1 if at[1].target < 0 else at[0]))
    return [[link for _, link in stretch] for _, stretch in stretches]


def _step(group: Sequence[PathPart], names: Sequence[str]) -> str:
    first, last = group[0], group[-1]
    took = format_ns(last.end_ns - first.start_ns)
    turn = ", after a wait" if first.why == "turn" else ""
    if first.target >= 0:
        size = (
            f"The {format_bytes(first.bytes)} of {_name(first.name)}"
            if first.bytes
            else (_name(first.name)[:1].upper() + _name(first.name)[1:])
        )
        verb = "go" if first.bytes else "goes"
        return f"{size} {verb} from {names[first.device]} to {names[first.target]} ({took}{turn})."
    if len(group) == 1:
        return f"{names[first.device]} runs {_name(first.name)} ({took}{turn})."
    waits = sum(link.why == "turn" for link in group[1:])
    queue = f", {waits} of them delayed because the device was busy" if waits else ""
    return (
        f"{names[first.device]} runs {len(group)} in a row, {_name(first.name)} to"
        f" {_name(last.name)} ({took}{turn}{queue})."
    )


def _heaviest(found: Anatomy) -> list[str]:
    """Which device, or server, decides the value, and what its load is made of."""
    uses, value, lines = found.verdict.uses, found.value_ns, list[str]()
    if isinstance(found.semantics, MaxContext):
        value = max(use.load_ns for use in uses)
        full = min(uses, key=lambda use: use.tokens or 0)
        least = format_value(-(full.tokens or 0), found.semantics)
        lines.append(
            f"{full.device} fills up first: with {least} it holds"
            f" {format_bytes(full.memory_bytes)}."
        )
    if isinstance(found.semantics, MaxLoadFwdBwd):
        lines.append(
            "The value is the heaviest forward load of any device plus the heaviest backward load."
        )
    ranked = sorted(uses, key=lambda use: -use.load_ns)
    top = ranked[0]
    share = value if value else 1
    server = max(found.verdict.servers, key=lambda use: use.load_ns, default=None)
    if server is not None and server.load_ns > top.load_ns:
        lines.append(
            f"The border of server {server.server} sets the value: {format_ns(server.load_ns)}"
            " for transfers across it."
        )
    lines.append(
        f"{top.device} has the largest load, {format_ns(top.load_ns)} per sample:"
        f" {format_ns(top.compute_ns)} of ops, {format_ns(top.in_ns)} of incoming and"
        f" {format_ns(top.out_ns)} of outgoing transfers."
    )
    heavy: dict[str, int] = {}
    home = found.instance.cluster.device_index[top.device]
    for bar in found.drawn.bars:
        if bar.row == home and not bar.is_move:
            heavy[bar.label] = heavy.get(bar.label, 0) + bar.time_ns
    dear = sorted(heavy.items(), key=lambda item: (-item[1], item[0]))[:4]
    if dear:
        listed = ", ".join(f"{_name(name)} {format_ns(time)}" for name, time in dear)
        lines.append(f"Most of it is {listed}.")
    if len(ranked) > 1 and ranked[1].load_ns:
        second = ranked[1]
        less = (top.load_ns - second.load_ns) / share
        lines.append(
            f"Next is {second.device} with {format_ns(second.load_ns)},"
            f" {format_gap(less)} of the value less."
        )
    return lines


def _longest_stage(found: Anatomy) -> list[str]:
    """Which stage decides, what its time and memory are made of, and why its layers recompute."""
    assert isinstance(found.semantics, HybridPipeline)
    uses = [found.verdict.uses[each.stage.devices[0]] for each in found.stages]
    ranked = sorted(range(len(uses)), key=lambda s: -uses[s].load_ns)
    top, kind = ranked[0], found.instance.cluster.devices[0].kind
    use, each, turns = uses[top], found.stages[top], found.semantics.microbatches
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
        ways = [m for m in found.instance.graph.ops[i].ways if m.tensor == mode.tensor]
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
    lines.append(f"Each of its devices holds {memory_parts(each)}.")
    if len(ranked) > 1:
        next_ns, last = uses[ranked[1]].load_ns, ranked[-1]
        less = format_gap((use.load_ns - next_ns) / max(1, use.load_ns))
        lines.append(
            f"Next is stage {ranked[1]} with {format_ns(next_ns)}, {less} less; stage {last} has"
            f" the least, {format_ns(uses[last].load_ns)}."
        )
    if found.semantics.bubble:
        lines.append(f"A batch is {bubble_words(found.verdict)}.")
    spare = sum(not use.num_ops for use in found.verdict.uses)
    if spare:
        lines.append(f"{spare} of {found.instance.num_devices} devices are not used.")
    return lines


def print_anatomy(console: Console, found: Anatomy) -> None:
    """Everything, on the terminal."""
    by = f", {found.method}" if found.method else ""
    console.print(f"{found.instance.name}: {found.semantics.label}{by}", markup=False)
    console.print(plain_table(None, *device_rows(found)))
    for use in found.verdict.servers:
        console.print(f"server {use.server}: {format_ns(use.load_ns)}", markup=False)
    verdict = found.verdict
    console.print(f"value   {format_value(found.value_ns, found.semantics)}")
    console.print(f"bound   {bound_sentence(found)}", markup=False)
    console.print(f"gap     {anatomy_gap(found)}", markup=False)
    for sentence in claim_sentences(found):
        console.print(f"claimed {sentence}", markup=False)
    if not verdict.feasible:
        console.print("The plan is infeasible:")
        for violation in verdict.violations:
            print_line(f"- {violation}")
    is_context = isinstance(found.semantics, MaxContext)
    title = "What limits the tokens" if is_context else "What limits the value"
    console.print()
    console.print(title, style="bold")
    for line in path_sentences(found):
        print_line(f"- {line}")
    per = ", per microbatch" if isinstance(found.semantics, PipelineIteration) else ""
    if found.crossings:
        count = min(len(found.crossings), MOST_CROSSINGS)
        title = f"The longest {count} of {len(found.crossings)} transfers{per}"
        console.print()
        console.print(title, style="bold")
        console.print(plain_table(None, CROSSING_HEAD, crossing_rows(found)))
    if found.next_moves.all:
        console.print()
        console.print("What to change next", style="bold")
        print_line(move_sentence(found))
        if found.next_moves.moves:
            console.print(plain_table(None, MOVE_HEAD, move_rows(found)))


def _name(name: str) -> str:
    return shorten(name, LONGEST_NAME)


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
    """Ops whose devices differ, by their layer (or kind) and devices; the longest first."""
    labels = labels_of(instance.graph)
    found: dict[tuple[str, str, str], list[int]] = {}
    for i, (a, b) in enumerate(
        zip(_places(instance, first), _places(instance, second), strict=True)
    ):
        if a != b:
            found.setdefault((labels[i], a, b), []).append(i)
    moved = [
        Moved(
            *key,
            tuple(instance.graph.ops[i].name for i in ops),
            sum(_time_ns(instance, second, i) for i in ops),
        )
        for key, ops in found.items()
    ]
    return sorted(moved, key=lambda each: (-each.time_ns, each.label, each.source, each.target))


def _places(instance: Instance, plan: Plan) -> list[str]:
    """Where each op runs: its devices, or stage, d x t and mode of a hybrid plan."""
    names = [spec.name for spec in instance.cluster.devices]
    if plan.tensor is None or plan.stage is None or plan.mode is None:
        return [", ".join(names[k] for k in on) for on in plan.placement]
    return [
        f"stage {s} ({len(on) // plan.tensor[s]} x {plan.tensor[s]}, {mode})"
        for on, s, mode in zip(plan.placement, plan.stage, plan.mode, strict=True)
    ]


def _time_ns(instance: Instance, plan: Plan, i: int) -> int:
    """What an op takes where a plan has it, in its mode."""
    if plan.mode is None or plan.tensor is None or plan.stage is None:
        return int(instance.arrays.time_ns[i, plan.placement[i][0]])
    kind, t = instance.cluster.devices[0].kind, plan.tensor[plan.stage[i]]
    ways = instance.graph.ops[i].ways
    return next(m.time_ns[kind] for m in ways if (m.name, m.tensor) == (plan.mode[i], t))


def renamed_devices(instance: Instance, first: Plan, second: Plan) -> tuple[int, list[str]]:
    """How many ops stay apart if like devices of the second plan swap names, and which do.

    Devices are like if they are of one kind, server and memory; their links are not looked at.
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
    apart = sum(len(each.ops) for each in moved)
    if not first.stages:
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
                "rests_on": "" if each.bound is None else each.bound.basis,
                "gap": each.gap,
                "claims": claim_objects(each.claims),
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
    if isinstance(found.semantics, AllLoads | HybridPipeline):
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
    shown = [format_value(each, first.semantics) for each in value]
    rows.append(("value", *shown, _change(*map(abs, value))))
    rows.append(("gap", *map(anatomy_gap, (first, second)), ""))
    is_load = isinstance(first.semantics, AllLoads | HybridPipeline)
    where = "heaviest device" if is_load else "critical path"
    if first.stages:
        where = "longest stage"
    for what, key in (("ops", "ops_ns"), ("transfers", "transfers_ns")):
        pair = [part[key] for part in parts]
        rows.append((f"{where}: {what}", *map(format_ns, pair), _change(*pair)))
    if not is_load:
        waits = [part["waits"] for part in parts]
        rows.append((f"{where}: waits for a resource", *map(str, waits), ""))
    moved_bytes = [sum(d.out_bytes for d in each.devices) for each in (first, second)]
    rows.append(("bytes between devices", *map(format_bytes, moved_bytes), _change(*moved_bytes)))
    used = [sum(d.num_ops > 0 for d in each.verdict.uses) for each in (first, second)]
    rows.append(("devices used", *map(str, used), ""))
    feasible = ["yes" if each.verdict.feasible else "no" for each in (first, second)]
    rows.append(("feasible", *feasible, ""))
    titles = [shorten(name, 30) for name in names]
    console.print(plain_table(None, ("", *titles, "change"), rows))
    for sentence in dict.fromkeys(map(bound_sentence, (first, second))):
        console.print(f"bound   {sentence}", markup=False)
    for sentence in (claim_words(claim, first.semantics) for claim in first.claims):
        console.print(f"claimed {sentence}", markup=False)
    for name, each in zip(titles, (first, second), strict=True):
        for violation in each.verdict.violations:
            print_line(f"{name} is infeasible: {violation}")
    _print_homes(console, first, second)
    _print_moved(console, first, second)


def _print_homes(console: Console, first: Anatomy, second: Anatomy) -> None:
    """Devices, or stages, side by side."""
    head: tuple[str, ...] = ("device", "ops", "busy", memory_name(first.semantics))
    if first.stages:
        head = ("stage", "layers", "d x t", "time", "memory")
    columns = []
    for found in (first, second):
        rows: Rows = []
        for at, share in enumerate(found.devices):
            held = format_bytes(share.memory_bytes)
            row: tuple[str, ...] = (share.name, str(share.num_ops), format_gap(share.busy), held)
            if found.stages:
                load_ns = found.verdict.uses[found.stages[at].stage.devices[0]].load_ns
                row = (str(at), row[1], found.stages[at].degrees, format_ns(load_ns), held)
            rows.append(row)
        columns.append(rows)
    nothing = ("-",) * len(head)
    both = []
    for a, b in zip_longest(*columns, fillvalue=nothing):
        pairs = zip(a[1:], b[1:], strict=True)
        both.append((max(a[0], b[0]), *(f"{x} / {y}" for x, y in pairs)))
    console.print(plain_table(None, head, both))


def _print_moved(console: Console, first: Anatomy, second: Anatomy) -> None:
    moved = moved_ops(first.instance, first.plan, second.plan)
    count = sum(len(each.ops) for each in moved)
    if not count:
        same = first.plan == second.plan
        what = "orders, stages or calls"
        if first.stages:
            what = "names of devices"
        print_line(
            f"All ops are on the same {'stages' if first.stages else 'devices'}"
            + ("." if same else f"; other parts differ: {what}.")
        )
        return
    line = f"{count} of {first.instance.num_ops} ops"
    if first.stages:
        line += " are in other stages or modes"
    else:
        line += " are on other devices"
        apart, swaps = renamed_devices(first.instance, first.plan, second.plan)
        if apart < count:
            line += f"; {apart} if equal devices are renamed ({', '.join(swaps)})"
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
