"""Tokens per second through machines that hold ranges of layers: what each passes, and the cut."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from placegap.experiments.show.figures import format_gap, format_value, memory_of
from placegap.experiments.show.memory_levels import levels_of
from placegap.experiments.show.objectives.base import Homes, Judged, Parts, Row, Words, shares
from placegap.experiments.show.place_report import unused
from placegap.experiments.show.timeline import Bar, Timeline
from placegap.instances.objectives.flow.referee import (
    LargestFlow,
    largest_flow,
    problem_of,
    ranges_of,
)
from placegap.instances.problem import Evaluation, Instance, ServingFlow
from placegap.instances.problem.flow_problem import SINK, SOURCE, UNITS, FlowProblem, Range, Ranges

if TYPE_CHECKING:
    from placegap.solvers.core.result import Result

Node = tuple[int, int]  # the way into a machine, 0, or out of it, 1

HEAD = ("device", "kind", "layers", "tokens/s", "at most", "busy", "memory")
MOST_NAMED = 5  # full machines and links


class Serving(NamedTuple):
    """The ranges of a plan and a largest flow of them."""

    problem: FlowProblem
    ranges: Ranges
    flow: LargestFlow
    number: Mapping[str, int]  # of machines, by name

    @classmethod
    def of(cls, case: Judged[ServingFlow]) -> Serving:
        """Those of a plan that has a value."""
        problem = problem_of(case.instance, case.semantics)
        ranges = ranges_of(case.instance, case.plan)
        number = {machine.name: i for i, machine in enumerate(problem.machines)}
        return cls(problem, ranges, largest_flow(problem, ranges), number)

    def held(self, device: str) -> Range | None:
        """What a device holds."""
        i = self.number.get(device)
        return None if i is None else self.ranges[i]

    def passes(self, device: str) -> tuple[int, int]:
        """What flows through a device, and what could."""
        i = self.number.get(device)
        held = None if i is None else self.ranges[i]
        if i is None or held is None:
            return 0, 0
        return self.flow.through(i), self.problem.throughput(i, held.layers)


def in_order(case: Judged[ServingFlow], serving: Serving) -> list[int]:
    """Devices by the first layer that they hold; those that hold none are last."""
    devices = case.instance.cluster.devices
    held = [serving.held(device.name) for device in devices]
    last = serving.problem.num_layers
    return sorted(range(len(devices)), key=lambda k: (held[k] or Range(last, 0), k))


def parts(case: Judged[ServingFlow]) -> Parts:
    """Layers from left to right, a row per machine, and the cut that limits the flow."""
    instance, serving = case.instance, Serving.of(case)
    order = in_order(case, serving)
    specs = [instance.cluster.devices[k] for k in order]
    uses = [case.verdict.uses[k] for k in order]
    names, layers = [spec.name for spec in specs], serving.problem.num_layers
    bars = []
    for row, spec in enumerate(specs):
        held, (now, most) = serving.held(spec.name), serving.passes(spec.name)
        if held is not None:
            text = f"{now / UNITS:,.0f} of {most / UNITS:,.0f}"
            name = f"layers {span(held)}: {text} tokens/s"
            bars.append(Bar(row, False, held.start, held.end, name, spec.kind, text=text))
    meaning = "layers that each machine holds, with the tokens per second that it passes"
    _, rows = table(case)
    return Parts(
        devices=shares(names, specs, uses, [use.load_ns for use in uses], 10**9, ()),
        homes=Homes(
            head=HEAD,
            rows=rows,
            compared=(0, 2, 3, 5),
            objects=machine_objects(case, serving),
            of_op=[order.index(on[0]) for on in case.plan.placement],
            names=[
                ", ".join(instance.cluster.devices[k].name for k in on)
                for on in case.plan.placement
            ],
            op_ns=instance.arrays.time_ns[range(instance.num_ops), case.plan.devices].tolist(),
        ),
        drawn=Timeline(tuple(names), tuple(bars), (), layers, meaning, unit="layers"),
        memory=levels_of([use.memory_bytes for use in uses], ()),
        why=list(cut_sentences(serving)),
    )


def span(held: Range) -> str:
    """The layers of a range, both ends included."""
    return str(held.start) if held.layers == 1 else f"{held.start}-{held.end - 1}"


def table(case: Judged[ServingFlow]) -> tuple[Row, list[Row]]:
    """One row per machine: its layers, what it passes and could pass."""
    serving, rows = Serving.of(case), list[Row]()
    for k in in_order(case, serving):
        spec, use = case.instance.cluster.devices[k], case.verdict.uses[k]
        held, (now, most) = serving.held(spec.name), serving.passes(spec.name)
        memory = memory_of(use.memory_bytes, spec.memory_bytes)
        what = ("-", "-", "-", "-")
        if held is not None:
            figures = (f"{now / UNITS:,.1f}", f"{most / UNITS:,.1f}")
            what = (span(held), *figures, format_gap(now / most))
        rows.append((spec.name, spec.kind, *what, memory))
    return HEAD, rows


def machine_objects(case: Judged[ServingFlow], serving: Serving) -> list[dict[str, Any]]:
    """What ``--json`` prints of each machine: ranges, rates, and where its tokens go."""
    names = [machine.name for machine in serving.problem.machines]
    found = []
    for k in in_order(case, serving):
        spec, use = case.instance.cluster.devices[k], case.verdict.uses[k]
        held, (now, most) = serving.held(spec.name), serving.passes(spec.name)
        i = serving.number.get(spec.name)
        out = {
            "sink" if b == SINK else names[b]: rate / UNITS
            for (a, b), rate in serving.flow.links.items()
            if a == i
        }
        found.append(
            {
                "name": spec.name,
                "kind": spec.kind,
                "start": None if held is None else held.start,
                "layers": 0 if held is None else held.layers,
                "tokens_per_s": now / UNITS,
                "most_tokens_per_s": most / UNITS,
                "to": out,
                "memory_bytes": use.memory_bytes,
            }
        )
    return found


def cut_sentences(serving: Serving) -> Iterator[str]:
    """The machines and links that no further token gets past."""
    problem, ranges, flow = serving.problem, serving.ranges, serving.flow
    sent, room = Counter[tuple[Node, Node]](), dict[tuple[Node, Node], int]()
    for i, held in enumerate(ranges):
        if held is not None:
            room[(i, 0), (i, 1)] = problem.throughput(i, held.layers)
            sent[(i, 0), (i, 1)] = flow.through(i)
    for (a, b), rate in problem.links.items():
        if problem.joins(a, b, ranges):
            room[(a, 1), (b, 0)] = rate
            sent[(a, 1), (b, 0)] = flow.links.get((a, b), 0)
    near: dict[Node, list[Node]] = {}
    for (start, end), rate in room.items():
        if sent[start, end] < rate:
            near.setdefault(start, []).append(end)
        if sent[start, end]:
            near.setdefault(end, []).append(start)
    seen, waiting = {(SOURCE, 1)}, deque([(SOURCE, 1)])
    while waiting:
        for node in near.get(waiting.popleft(), ()):
            if node not in seen:
                seen.add(node)
                waiting.append(node)
    cut = [arc for arc in room if arc[0] in seen and arc[1] not in seen]
    names = [*(machine.name for machine in problem.machines), "source", "sink"]  # SOURCE is -2
    full = [arc for arc in cut if arc[0][0] == arc[1][0]]
    links = [arc for arc in cut if arc[0][0] != arc[1][0]]
    for what, arcs in (("machines", full), ("links", links)):
        if arcs:
            ends = [" to ".join(dict.fromkeys(names[i] for i, _ in arc)) for arc in arcs]
            total = format_value(sum(room[arc] for arc in arcs), "microtokens_per_s")
            yield f"Full {what}: {_listed(ends)}; together {total}."
    if not cut:
        yield "No path leads from the source to the sink."


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def idle(instance: Instance, result: Result, verdict: Evaluation) -> str:
    """More devices would have to pass more."""
    found = "no plan" if result.status == "optimal" else "no plan that was found"
    return f"{unused(verdict)}: {found} passes more tokens with more devices"


def more(result: Result) -> dict[str, Any]:
    """Value and bound in tokens per second."""
    value, bound = result.value, result.bound_value
    return {
        "tokens_per_s": None if value is None else value / UNITS,
        "tokens_per_s_bound": None if bound is None else bound / UNITS,
    }


WORDS = Words(parts, idle=idle, table=table, more=more)
