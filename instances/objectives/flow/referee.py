"""The rules of serving_flow: the largest flow through the machines of a plan, in integers.

Op by op a plan says which devices hold it; all ops of a layer have the same ones. With the range
[s, s + h) of each machine and its throughput c(h), the flow network has

- an arc of capacity c(h) through each machine;
- the link from the source to a machine if s = 0, and from a machine to the sink if s + h = L;
- the link from machine i to j if s_j = s_i + h_i or, under partial inference, if
  s_j <= s_i + h_i < s_j + h_j: then j runs the rest of its layers.

Source: Mei et al., Helix, ASPLOS 2025, section 4. Rates are integers in millionths of a token per
second, rounded down when they are read, and flows are sums of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from placegap.instances.problem import DeviceUse, Evaluation, Instance, Plan, ServingFlow, Violation
from placegap.instances.problem.flow_problem import (
    SINK,
    SOURCE,
    FlowProblem,
    Range,
    Ranges,
    layers_of,
)
from placegap.instances.problem.integers import NS_PER_S
from placegap.instances.referee.rules import PlanError, check_shape, foreign_fields


class LargestFlow(NamedTuple):
    """A largest flow: its value, and what passes over each link that carries something."""

    value: int
    links: Mapping[tuple[int, int], int]

    def through(self, machine: int) -> int:
        """What passes through a machine."""
        return sum(rate for (a, _), rate in self.links.items() if a == machine)


def problem_of(instance: Instance, rules: ServingFlow) -> FlowProblem:
    """What an instance says of machines, layers and links, under some rules."""
    found = instance.flow_problem
    return replace(found, partial=True) if rules.partial_inference else found


def evaluate(instance: Instance, plan: Plan, rules: ServingFlow) -> Evaluation:
    """The largest flow of a plan, and what each device does of it.

    `DeviceUse.load_ns` is how long a device runs in a second.
    """
    check_shape(instance, plan, replicas=True)
    found = tuple(foreign_fields(plan, rules))
    if found:
        return Evaluation(None, found, unit=rules.unit)
    problem = problem_of(instance, rules)
    ranges = ranges_of(instance, plan)
    broken = tuple(_broken(problem, ranges))
    flow = LargestFlow(0, {}) if broken else largest_flow(problem, ranges)
    number = {machine.name: i for i, machine in enumerate(problem.machines)}
    uses = []
    for k, device in enumerate(instance.cluster.devices):
        ops = [op for op, on in zip(instance.graph.ops, plan.placement, strict=True) if k in on]
        i = number.get(device.name)
        held = None if i is None else ranges[i]
        busy_ns = 0
        if i is not None and held is not None and not broken:
            busy_ns = flow.through(i) * NS_PER_S // problem.throughput(i, held.layers)
        memory = sum(op.resident_bytes for op in ops)
        uses.append(DeviceUse(device.name, len(ops), busy_ns, 0, 0, memory, busy_ns))
    return Evaluation(None if broken else flow.value, broken, tuple(uses), unit=rules.unit)


def ranges_of(instance: Instance, plan: Plan) -> Ranges:
    """What each machine holds, or a PlanError where that is no range."""
    graph, devices = instance.graph, instance.cluster.devices
    layers = layers_of(graph, instance.arrays)
    number = {machine.name: i for i, machine in enumerate(instance.flow_problem.machines)}
    held: dict[int, list[int]] = {}
    for at, own in enumerate(layers):
        on = plan.placement[own[0]]
        for i in own:
            if plan.placement[i] != on:
                a, b = (graph.ops[j].name for j in (own[0], i))
                raise PlanError(f"ops {a!r} and {b!r} of one layer are on different devices")
        for k in on:
            if devices[k].name not in number:
                raise PlanError(f"device {devices[k].name!r} can hold no layer")
            held.setdefault(number[devices[k].name], []).append(at)
    found: list[Range | None] = [None] * len(number)
    for i, own in held.items():
        found[i] = Range(own[0], len(own))
        if own[-1] - own[0] >= len(own):
            name = instance.flow_problem.machines[i].name
            raise PlanError(f"device {name!r} holds layers that do not follow each other")
    return tuple(found)


def plan_of(instance: Instance, ranges: Ranges) -> Plan | None:
    """The plan with these ranges; None where a layer is held by no machine, and nothing flows."""
    devices = [instance.cluster.device_index[m.name] for m in instance.flow_problem.machines]
    layers = layers_of(instance.graph, instance.arrays)
    placement: list[tuple[int, ...]] = [()] * instance.num_ops
    for at, own in enumerate(layers):
        on = sorted(
            device
            for device, held in zip(devices, ranges, strict=True)
            if held is not None and held.start <= at < held.end
        )
        if not on:
            return None
        for i in own:
            placement[i] = tuple(on)
    return Plan(tuple(placement))


def _broken(problem: FlowProblem, ranges: Ranges) -> list[Violation]:
    """Machines that hold more layers than they have a throughput for."""
    found = []
    for i, held in enumerate(ranges):
        if held is not None and held.layers > problem.most_layers(i):
            name, most = problem.machines[i].name, problem.most_layers(i)
            said = f"{name!r} holds {held.layers} layers, of at most {most}"
            found.append(Violation("memory", said, device=name))
    return found


def largest_flow(problem: FlowProblem, ranges: Ranges) -> LargestFlow:
    """A largest flow of ranges that each fit their machine."""
    import networkx as nx  # loaded when used: a tenth of a second

    network: nx.DiGraph[tuple[int, int]] = nx.DiGraph()
    first, last = (SOURCE, 1), (SINK, 0)
    network.add_nodes_from((first, last))
    for i, held in enumerate(ranges):
        if held is not None:
            network.add_edge((i, 0), (i, 1), capacity=problem.throughput(i, held.layers))
    for (a, b), rate in problem.links.items():
        if problem.joins(a, b, ranges):
            network.add_edge((a, 1), (b, 0), capacity=rate)
    value, flows = nx.maximum_flow(network, first, last)
    links = {
        (a, b): rate
        for (a, side), out in flows.items()
        if side == 1
        for (b, _), rate in out.items()
        if rate
    }
    return LargestFlow(int(value), links)
