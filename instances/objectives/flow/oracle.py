"""The second referee of serving_flow: a flow by shortest paths, and the cut that limits it."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Container, Iterator
from itertools import groupby, pairwise

from placegap.instances.oracle.facts import Facts
from placegap.instances.oracle.rules import WrongShape, foreign_fields
from placegap.instances.problem import Evaluation, Plan, ServingFlow, Violation

Capacities = dict[str, dict[str, int]]
MILLION, NS_PER_S = 10**6, 10**9


def recheck(facts: Facts, plan: Plan, rules: ServingFlow) -> Evaluation:
    """The capacity of the smallest cut, and every rule that the plan breaks."""
    foreign = tuple(foreign_fields(plan, rules))
    if foreign:
        return Evaluation(None, foreign, unit=rules.unit)
    row = _row(facts)
    tables = _tables(facts, row)
    held = _held(facts, plan, row, tables)
    full = []
    pipes: Capacities = {}
    for name, own in held.items():
        if len(own) > len(tables[name]):
            full.append(Violation("memory", f"{name!r} has no room for {len(own)}", device=name))
        else:
            pipes[f"into {name}"] = {f"out of {name}": tables[name][len(own) - 1]}
    if full:
        return Evaluation(None, tuple(full), unit=rules.unit)
    for a, b, rate in _links(facts, row, tables):
        if _feeds(held, a, b, len(row), partial=rules.partial_inference):
            out = pipes.setdefault(f"out of {a}", {})
            out[f"into {b}"] = min(out.get(f"into {b}", 0) + rate, 10**15)
    return Evaluation(smallest_cut(pipes, "out of ", "into "), unit=rules.unit)


def _row(facts: Facts) -> list[list[int]]:
    """The ops of each layer; a layer is behind all those that lead to it."""
    label = [op.colocation or f"\0{i}" for i, op in enumerate(facts.ops)]
    depth = dict.fromkeys(label, 0)
    arcs = {(label[a], label[b]) for a, b, _ in facts.ends if label[a] != label[b]}
    for _ in range(len(depth)):
        for a, b in arcs:
            depth[b] = max(depth[b], depth[a] + 1)
    order = sorted(range(len(label)), key=lambda i: (depth[label[i]], i))
    return [list(own) for _, own in groupby(order, key=lambda i: label[i])]


def _held(
    facts: Facts, plan: Plan, row: list[list[int]], able: Container[str]
) -> dict[str, list[int]]:
    """The layers of each device that has some."""
    if len(plan.placement) != len(facts.ops):
        raise WrongShape(Violation("shape", f"{len(plan.placement)} ops are placed"))
    held: dict[str, list[int]] = {}
    for layer, own in enumerate(row):
        homes = {plan.placement[i] for i in own}
        on = next(iter(homes))
        wrong = len(homes) > 1 or not on or list(on) != sorted(set(on))
        if wrong or not all(0 <= k < len(facts.devices) for k in on):
            said = f"layer {layer} is on no set of devices"
            raise WrongShape(Violation("shape", said))
        for k in on:
            held.setdefault(facts.devices[k].name, []).append(layer)
    for name, layers in held.items():
        if layers != list(range(layers[0], layers[-1] + 1)):
            raise WrongShape(Violation("shape", f"{name!r} holds no range"))
        if name not in able:
            raise WrongShape(Violation("shape", f"{name!r} can hold no layer"))
    return held


def _tables(facts: Facts, row: list[list[int]]) -> dict[str, list[int]]:
    """What each device passes with 1, 2, .. layers, where it can hold some."""
    graph = facts.instance.graph
    known: dict[tuple[str, int | None], list[int]] = {}
    for device in facts.devices:
        of = device.kind, device.memory_bytes
        if of not in known:
            stated = list(graph.throughputs.get(device.kind, ()))
            known[of] = stated if graph.throughputs else _from_times(facts, row, *of)
    found = {d.name: known[d.kind, d.memory_bytes][: len(row)] for d in facts.devices}
    return {name: [min(r, 10**15) for r in rates] for name, rates in found.items() if rates}


def _from_times(facts: Facts, row: list[list[int]], kind: str, room: int | None) -> list[int]:
    """What a device passes by the times of the slowest layers, as far as it holds any of them."""
    if any(kind not in op.time_ns for op in facts.ops):
        return []
    time_ns = [sum(facts.ops[i].time_ns[kind] for i in own) for own in row]
    held = [sum(facts.ops[i].resident_bytes for i in own) for own in row]
    found = list[int]()
    for count in range(1, len(row) + 1):
        windows = [slice(first, first + count) for first in range(len(row) - count + 1)]
        if room is not None and max(sum(held[window]) for window in windows) > room:
            break
        longest = max(sum(time_ns[window]) for window in windows)
        found.append(_tokens(facts) * NS_PER_S * MILLION // max(1, longest))
    return found


def _tokens(facts: Facts) -> int:
    """Tokens of a pass."""
    if facts.instance.graph.throughputs:
        return 1
    batch = facts.instance.graph.provenance.parameters.get("batch", 1)
    return batch if isinstance(batch, int) else 1


def _links(
    facts: Facts, row: list[list[int]], able: Collection[str]
) -> Iterator[tuple[str, str, int]]:
    """Ends and rate of each link; what holds no layer has the empty name."""
    layer = {i: number for number, own in enumerate(row) for i in own}
    crossing, last = [0] * len(row), [0] * len(facts.tensors)
    for _, b, tensor in facts.ends:
        last[tensor] = max(last[tensor], layer[b])
    for (a, edge), end in zip(facts.tensors, last, strict=True):
        for cut in range(layer[a], end):
            crossing[cut] += edge.bytes
    for link in facts.instance.cluster.links:
        ends_named = [end if end in able else "" for end in (link.source, link.target)]
        rate = 10**15
        if max(crossing):
            amount = link.bandwidth_bytes_per_s * _tokens(facts) * MILLION
            rate = min(rate, amount // max(crossing))
        yield ends_named[0], ends_named[1], rate
    if len(able) == len(facts.devices):
        for name in able:
            yield "", name, 10**15
            yield name, "", 10**15


def _feeds(held: dict[str, list[int]], a: str, b: str, layers: int, *, partial: bool) -> bool:
    """Whether tokens pass from one machine to the next, or between machines and the ends."""
    if (a and a not in held) or (b and b not in held) or a == b == "":
        return False
    wanted = held[a][-1] + 1 if a else 0  # the layer that comes next
    if not b:
        return wanted == layers
    return wanted in held[b] if partial else wanted == held[b][0]


def smallest_cut(pipes: Capacities, source: str, sink: str) -> int:
    """The capacity of a cut that some flow fills: no flow is larger."""
    left = {a: dict(out) for a, out in pipes.items()}
    sent = 0
    while True:
        came = {source: source}
        waiting = deque([source])
        while waiting and sink not in came:
            a = waiting.popleft()
            for b, rate in left.get(a, {}).items():
                if rate and b not in came:
                    came[b] = a
                    waiting.append(b)
        if sink not in came:
            break
        path = [sink]
        while path[-1] != source:
            path.append(came[path[-1]])
        steps = [(b, a) for a, b in pairwise(path)]
        amount = min(left[a][b] for a, b in steps)
        sent += amount
        for a, b in steps:
            left[a][b] -= amount
            back = left.setdefault(b, {})
            back[a] = back.get(a, 0) + amount
    cut = sum(
        rate for a, out in pipes.items() if a in came for b, rate in out.items() if b not in came
    )
    assert cut == sent, (cut, sent)
    return cut
