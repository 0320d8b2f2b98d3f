"""Loads of one sample of a full pipeline: what comes in, ops one after another, what goes out.

The longest row is the value. No device waits for another within a sample, as each works on another
one. The backward loads of max_load_fwd_bwd begin where the last forward one ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from placegap.experiments.show.critical_path import short_name
from placegap.experiments.show.figures import format_gap, format_ns
from placegap.experiments.show.objectives.base import Judged, Parts, Words, device_parts
from placegap.experiments.show.place_report import EXACT, is_heuristic, unused
from placegap.experiments.show.timeline import (
    NO_OP,
    Bar,
    Crossing,
    crossings,
    labels_of,
    pieces,
    timeline,
)
from placegap.instances.problem import Evaluation, Instance, Loads, MaxContext, Semantics
from placegap.instances.problem.integers import ceil_div

if TYPE_CHECKING:
    from placegap.experiments.show.objectives.base import Moves
    from placegap.solvers.core.result import Result


def parts(case: Judged[Loads]) -> Parts:
    """Bars of loads, and what the largest is made of."""
    sums = "The value is the heaviest forward load of any device plus the heaviest backward load."
    return load_parts(case, [sums] * (len(case.semantics.load_passes) > 1), case.value_ns)


def load_parts(case: Judged[Loads | MaxContext], first: list[str], whole_ns: int) -> Parts:
    """Parts for any rules with loads; `first` are the first sentences of `why`."""
    instance, verdict = case.instance, case.verdict
    crossed = crossings(instance, case.plan, case.semantics, is_sent=False)
    count = instance.num_devices
    borders = [
        Bar(count + v, True, 0, use.load_ns, f"border of {use.server}", "communication")
        for v, use in enumerate(verdict.servers)
    ]
    bars = [*_bars(case, crossed), *borders]
    meaning = "what each device does for one sample of a full pipeline; the longest row counts"
    servers = [f"server {use.server}" for use in verdict.servers]
    return device_parts(
        case,
        timeline(instance, bars, meaning, servers=servers),
        crossed,
        [use.load_ns for use in verdict.uses],
        whole_ns,
        why=first + _heaviest(case, bars, whole_ns),
    )


def _bars(case: Judged[Loads | MaxContext], found: Sequence[Crossing]) -> Iterator[Bar]:
    """Rows of loads; devices that share a stage have equal rows, each bar as long as its share."""
    instance, arrays, verdict = case.instance, case.instance.arrays, case.verdict
    labels, begin = labels_of(instance.graph), 0
    order = arrays.index.topological_order.tolist()
    sharing = {on[0]: on for on in case.plan.placement}
    for which in case.semantics.load_passes or (None,):
        longest = 0
        counted = [c for c in found if which in (None, bool(arrays.backward[c.producer]))]
        for k, share in sorted(sharing.items()):
            work = (
                (instance.graph.ops[i].name, labels[i], int(arrays.time_ns[i, k]), i)
                for i in order
                if case.plan.placement[i][0] == k and which in (None, bool(arrays.backward[i]))
            )
            ends = [0, 0]  # of work, and of communication if it overlaps
            for name, label, time_ns, op in pieces(instance, counted, k, work):
                lane = int(op == NO_OP and case.semantics.load == "overlap")
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


def _heaviest(case: Judged[Loads | MaxContext], bars: Sequence[Bar], whole_ns: int) -> list[str]:
    """Which device, or server, has the largest load, and what that is made of."""
    verdict, lines = case.verdict, list[str]()
    ranked = sorted(verdict.uses, key=lambda use: -use.load_ns)
    top = ranked[0]
    server = max(verdict.servers, key=lambda use: use.load_ns, default=None)
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
    home = case.instance.cluster.device_index[top.device]
    for bar in bars:
        if bar.row == home and not bar.is_move:
            heavy[bar.label] = heavy.get(bar.label, 0) + bar.time_ns
    longest = sorted(heavy.items(), key=lambda item: (-item[1], item[0]))[:4]
    if longest:
        listed = ", ".join(f"{short_name(name)} {format_ns(time)}" for name, time in longest)
        lines.append(f"Most of it is {listed}.")
    if len(ranked) > 1 and ranked[1].load_ns:
        less = (top.load_ns - ranked[1].load_ns) / (whole_ns or 1)
        lines.append(
            f"Next is {ranked[1].device} with {format_ns(ranked[1].load_ns)},"
            f" {format_gap(less)} of the value less."
        )
    return lines


def moves(case: Judged[Any]) -> Moves:
    """Ops to another device."""
    from placegap.experiments.show.single_moves import moves_of_ops

    return moves_of_ops(case)


def idle(instance: Instance, result: Result, verdict: Evaluation) -> str:
    """The heaviest stages."""
    rules, heaviest = result.semantics, max(verdict.uses, key=lambda use: use.load_ns)
    if len(rules.load_passes) > 1:
        why = "the value is the sum of the heaviest forward and backward loads"
    elif rules.has_two_levels:
        why = "the value is the heaviest load of a device or server"
    else:
        why = f"the value is the heaviest stage, {heaviest.device}'s"
    instead = _instead(rules, heaviest.num_ops)
    if result.status == "optimal":
        why += ", and no plan has a lower one"
    elif is_heuristic(result.method):
        instead = EXACT
    else:
        why += ", and the search found no lower one"
    return f"{unused(verdict)}: {why}. {instead}"


def _instead(rules: Semantics, num_ops: int) -> str:
    if num_ops == 1:
        return "'placegap split' divides an op that is a stage of its own"
    if "replicas" in rules.rules() and not rules.has_replicas:
        return "With --replicas equal devices may share a stage"
    if rules.plan_class != "any":
        return "With --plans any a device may run any ops"
    return "'placegap split' divides heavy ops"


WORDS = Words(parts, moves, idle)
