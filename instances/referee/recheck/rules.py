"""The second referee's rules about where ops are: shape, fields, memory, colocation, classes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from placegap.instances.problem.plan import Plan, Violation
from placegap.instances.problem.semantics import (
    Semantics,
    has_replicas,
    has_two_levels,
    memory_rule,
    plan_class,
)
from placegap.instances.recheck.facts import Facts, cycle_free


def wrong_shape(facts: Facts, plan: Plan, semantics: Semantics) -> Violation | None:
    """Why the plan does not put every op on a device that runs it."""
    if len(plan.placement) != len(facts.ops):
        return Violation("shape", f"{len(plan.placement)} of {len(facts.ops)} ops are placed")
    for op, on in zip(facts.ops, plan.placement, strict=True):
        if not on or (len(on) > 1 and not has_replicas(semantics)):
            return Violation("shape", f"op {op.name!r} is on {len(on)} devices", op=op.name)
        if any(k < 0 or k >= len(facts.devices) for k in on):
            return Violation("shape", f"op {op.name!r} is on no known device", op=op.name)
        if list(on) != sorted(set(on)):
            return Violation("shape", f"the devices of op {op.name!r} do not ascend", op=op.name)
    for i, op in enumerate(facts.ops):
        device = facts.devices[plan.placement[i][0]]
        if device.kind not in op.time_ns:
            return Violation(
                "shape",
                f"op {op.name!r} has no time on {device.name!r}",
                op=op.name,
                device=device.name,
            )
    return None


def foreign_fields(plan: Plan, semantics: Semantics) -> Iterator[Violation]:
    """Fields that mean nothing under the semantics."""
    given = {
        "stage": plan.stage is not None and semantics.objective != "pipeline_iteration",
        "call": plan.call is not None and semantics.objective != "latency_subgraphs",
        "device_order": plan.device_order is not None and semantics.objective != "makespan",
        "channel_order": (
            plan.channel_order is not None
            if semantics.objective != "makespan"
            else bool(plan.channel_order) and semantics.channels == "free"
        ),
    }
    for name, is_foreign in given.items():
        if is_foreign:
            yield Violation("fields", f"{name} means nothing under {semantics.label}")


def broken_rules(facts: Facts, plan: Plan, semantics: Semantics) -> Iterator[Violation]:
    """Memory by the rule `sum`, colocation, and the class of plans, of devices and of servers."""
    home = [on[0] for on in plan.placement]
    iteration = semantics.objective == "pipeline_iteration"
    if memory_rule(semantics) == "sum" and not iteration:
        yield from sum_rule(facts, plan)
    groups: dict[str, list[int]] = {}
    for i, op in enumerate(facts.ops):
        if op.colocation is not None:
            groups.setdefault(op.colocation, []).append(i)
    for group, members in groups.items():
        places = {home[i] for i in members}
        pooled = semantics.objective == "latency_subgraphs" and all(
            facts.devices[k].is_host for k in places
        )
        if len(places) > 1 and not pooled:
            yield Violation("colocation", f"group {group!r} is on {len(places)} devices")
    if iteration:
        return  # its stages have rules of their own
    yield from class_rules(facts, semantics, home, "device")
    if has_two_levels(semantics):
        yield from class_rules(facts, semantics, [facts.server[k] for k in home], "server")


def sum_rule(facts: Facts, plan: Plan) -> Iterator[Violation]:
    """Devices whose ops have more resident bytes than fit."""
    for k, device in enumerate(facts.devices):
        held = sum(
            op.resident_bytes for op, on in zip(facts.ops, plan.placement, strict=True) if k in on
        )
        if device.memory_bytes is not None and held > device.memory_bytes:
            yield Violation(
                "memory",
                f"{device.name!r} holds {held} bytes of {device.memory_bytes}",
                device=device.name,
            )


def class_rules(
    facts: Facts, semantics: Semantics, region: Sequence[int], noun: str
) -> Iterator[Violation]:
    """Whether regions are convex, or form a chain."""
    if plan_class(semantics) == "convex":
        for r in sorted(set(region)):
            if _comes_back(facts, region, r):
                yield Violation("convex", f"a path leaves {noun} {r} and comes back")
    elif plan_class(semantics) == "chain" and not cycle_free(
        max(region) + 1,
        {(region[a], region[b]) for a, b in _chain_arcs(facts) if region[a] != region[b]},
    ):
        yield Violation("chain", f"the {noun}s feed each other in a cycle")


def _comes_back(facts: Facts, region: Sequence[int], r: int) -> bool:
    """Whether a path over forward ops leaves region r and comes back: search from its border."""
    backward = [op.backward for op in facts.ops]
    stack = [
        b
        for a, b, _ in facts.ends
        if region[a] == r != region[b] and not backward[a] and not backward[b]
    ]
    seen = set(stack)
    while stack:
        for b, _ in facts.succ[stack.pop()]:
            if backward[b] or b in seen:
                continue
            if region[b] == r:
                return True
            seen.add(b)
            stack.append(b)
    return False


def _chain_arcs(facts: Facts) -> Iterator[tuple[int, int]]:
    """Edges between forward ops, and those between backward ops without forward kin, reversed."""
    kin = [i if op.colocation is None else op.colocation for i, op in enumerate(facts.ops)]
    led = {kin[i] for i, op in enumerate(facts.ops) if not op.backward}
    for a, b, _ in facts.ends:
        if not facts.ops[a].backward and not facts.ops[b].backward:
            yield a, b
        elif facts.ops[a].backward and facts.ops[b].backward and not led >= {kin[a], kin[b]}:
            yield b, a
