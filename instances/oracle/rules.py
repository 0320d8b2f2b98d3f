"""The second referee's rules that hold whatever the value is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from placegap.instances.oracle.facts import Facts, cycle_free
from placegap.instances.problem import Evaluation, Op, Plan, Semantics, Violation


class OrderError(ValueError):
    """Orders (of ops, transfers or calls) that cannot be obeyed."""


class WrongShape(ValueError):
    """A plan that does not put every op on a device that runs it; with the violation."""


def wrong_shape(facts: Facts, plan: Plan, semantics: Semantics) -> Violation | None:
    """Why the plan does not put every op on a device that runs it."""
    if len(plan.placement) != len(facts.ops):
        return Violation("shape", f"{len(plan.placement)} of {len(facts.ops)} ops are placed")
    for op, on in zip(facts.ops, plan.placement, strict=True):
        if not on or (len(on) > 1 and not semantics.has_replicas):
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


def _resident(op: Op) -> int:
    return op.resident_bytes


def placed_rules(
    facts: Facts, plan: Plan, semantics: Semantics, bytes_of: Callable[[Op], int] = _resident
) -> list[Violation]:
    """Fields, memory by the rule `sum`, colocation, and the class of plans."""
    # Raises WrongShape where the plan does not put every op on a device that runs it.
    wrong = wrong_shape(facts, plan, semantics)
    if wrong is not None:
        raise WrongShape(wrong)
    found = [*foreign_fields(plan, semantics)]
    home = [on[0] for on in plan.placement]
    if semantics.memory_rule == "sum" and not semantics.has_stages:
        found += sum_rule(facts, plan, bytes_of)
    groups: dict[str, list[int]] = {}
    for i, op in enumerate(facts.ops):
        if op.colocation is not None:
            groups.setdefault(op.colocation, []).append(i)
    for group, members in groups.items():
        places = {home[i] for i in members}
        pooled = semantics.pools_hosts and all(facts.devices[k].is_host for k in places)
        if len(places) > 1 and not pooled:
            found.append(Violation("colocation", f"group {group!r} is on {len(places)} devices"))
    if semantics.has_stages:
        return found  # its stages have rules of their own
    found += class_rules(facts, semantics, home, "device")
    if semantics.has_two_levels:
        found += class_rules(facts, semantics, [facts.server[k] for k in home], "server")
    return found


def foreign_fields(plan: Plan, semantics: Semantics) -> Iterator[Violation]:
    """Fields that mean nothing under the semantics."""
    for name, value in vars(plan).items():
        if name != "placement" and value is not None and name not in semantics.plan_fields:
            yield Violation("fields", f"{name} means nothing under {semantics.label}")


def judged(found: list[Violation], value: Callable[[], int]) -> Evaluation:
    """A verdict with a value, which may add to what is found, where the plan has one."""
    if any(violation.rule in ("fields", "replicas") for violation in found):
        return Evaluation(None, tuple(found))
    try:
        worth = value()
    except OrderError as error:
        return Evaluation(None, (*found, Violation("order", str(error))))
    return Evaluation(worth, tuple(found))


def sum_rule(
    facts: Facts, plan: Plan, bytes_of: Callable[[Op], int] = _resident
) -> Iterator[Violation]:
    """Devices whose ops have more bytes than fit: resident ones, or others."""
    for k, device in enumerate(facts.devices):
        held = sum(
            bytes_of(op) for op, on in zip(facts.ops, plan.placement, strict=True) if k in on
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
    if semantics.plan_class == "convex":
        for r in sorted(set(region)):
            if _comes_back(facts, region, r):
                yield Violation("convex", f"a path leaves {noun} {r} and comes back")
    elif semantics.plan_class == "chain" and not cycle_free(
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
