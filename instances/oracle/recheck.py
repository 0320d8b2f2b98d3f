"""A second referee, which shares no code with the first: feasibility and value once more.

`evaluate` computes on arrays, by kernels and by libraries for graphs. This package reads the fields
of the instance, the plan and the semantics, and derives tensors, paths, times, orders and loads
again in Python integers, by other algorithms. The two are compared on random plans; ``placegap
verify`` asks both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from placegap.instances.oracle.facts import Facts, cycle_free
from placegap.instances.oracle.hybrid import recheck_hybrid
from placegap.instances.oracle.iteration import in_flight_rule, iteration_ns, peak_rule
from placegap.instances.oracle.values import (
    OrderError,
    latency_value,
    max_load_fwd_bwd_ns,
    max_load_ns,
    planned_times,
    replica_rules,
)
from placegap.instances.problem import (
    MOST_TOKENS,
    Evaluation,
    HybridPipeline,
    Instance,
    LatencySubgraphs,
    LoadSemantics,
    Makespan,
    MaxContext,
    MaxLoad,
    MaxLoadFwdBwd,
    Op,
    PipelineIteration,
    Plan,
    Semantics,
    Violation,
)
from placegap.instances.reading.errors import InputError


def recheck(instance: Instance, plan: Plan, semantics: Semantics) -> Evaluation:
    """The second referee's verdict: the value, and every rule that the plan breaks.

    The rules have the names that `evaluate` gives them; `uses`, `schedule` and `servers` stay
    empty.

    Raises
    ------
    InputError
        If the instance lacks what the semantics needs: two levels need the servers.

    Notes
    -----
    O((n + m) (K + log n)) for K devices; a graph of 20,000 ops takes half a second.

    Examples
    --------
    >>> from placegap.instances import example
    >>> verdict = recheck(example(), Plan.on([0, 1, 0, 0]), Makespan())
    >>> verdict.value_ns, verdict.feasible
    (35, True)
    """
    _require_servers(instance, semantics)
    facts = Facts(instance)
    if isinstance(semantics, HybridPipeline):
        foreign = tuple(foreign_fields(plan, semantics))
        return Evaluation(None, foreign) if foreign else recheck_hybrid(facts, plan, semantics)
    wrong = wrong_shape(facts, plan, semantics)
    if wrong is not None:
        return Evaluation(None, (wrong,))
    found = [*foreign_fields(plan, semantics), *broken_rules(facts, plan, semantics)]
    if isinstance(semantics, LoadSemantics) and semantics.memory == "peak":
        found += peak_rule(facts, plan, semantics, None)
    if isinstance(semantics, MaxLoad) and semantics.replicas:
        found += replica_rules(facts, plan, semantics)
    if any(violation.rule in ("fields", "replicas") for violation in found):
        return Evaluation(None, tuple(found))
    try:
        match semantics:
            case Makespan():
                times = planned_times(facts, plan, semantics)
                value_ns = max(end for _, end in times.ops)
                if semantics.memory == "peak":
                    found += peak_rule(facts, plan, semantics, times)
            case MaxLoad():
                value_ns = max_load_ns(facts, plan, semantics)
            case MaxContext():
                value_ns = -context_tokens(facts, plan)
                load_ns = max_load_ns(facts, plan, semantics.loads)
                if semantics.at_most_ns is not None and load_ns > semantics.at_most_ns:
                    said = f"a device has {load_ns} ns to do, of {semantics.at_most_ns}"
                    found.append(Violation("load", said))
            case MaxLoadFwdBwd():
                value_ns = max_load_fwd_bwd_ns(facts, plan, semantics)
            case LatencySubgraphs():
                value_ns = latency_value(facts, plan, semantics)
            case PipelineIteration():
                value_ns = iteration_ns(facts, plan, semantics)
                found += in_flight_rule(facts, plan, semantics)
        return Evaluation(value_ns, tuple(found))
    except OrderError as error:
        return Evaluation(None, (*found, Violation("order", str(error))))


def _require_servers(instance: Instance, semantics: Semantics) -> None:
    if not semantics.has_two_levels:
        return
    servers = {device.server for device in instance.cluster.devices}
    if None in servers:
        raise InputError("two levels need the server of every device", instance.name)
    if len(servers) > 1 and any(
        edge.host_time_ns is not None and edge.transfer_ns is None for edge in instance.graph.edges
    ):
        raise InputError("a host time alone does not say what servers pay", instance.name)


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


def foreign_fields(plan: Plan, semantics: Semantics) -> Iterator[Violation]:
    """Fields that mean nothing under the semantics."""
    hybrid = semantics.objective == "hybrid_pipeline"
    given = {
        "stage": (
            plan.stage is not None and not hybrid and semantics.objective != "pipeline_iteration"
        ),
        "tensor": plan.tensor is not None and not hybrid,
        "mode": plan.mode is not None and not hybrid,
        "call": plan.call is not None and semantics.objective != "latency_subgraphs",
        "device_order": plan.device_order is not None and semantics.objective != "makespan",
        "channel_order": (
            plan.channel_order is not None
            if not isinstance(semantics, Makespan)
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
    if semantics.memory_rule == "sum" and not iteration:
        yield from sum_rule(facts, plan, 0 if isinstance(semantics, MaxContext) else None)
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
    if semantics.has_two_levels:
        yield from class_rules(facts, semantics, [facts.server[k] for k in home], "server")


def bytes_with(op: Op, tokens: int) -> int:
    """Resident bytes of an op whose caches hold `tokens`, window by window."""
    held = op.resident_bytes
    for cache in op.caches:
        limit = tokens if cache.most_tokens is None else cache.most_tokens
        stated = cache.tokens if cache.most_tokens is None else min(cache.tokens, limit)
        held += cache.token_bytes * (min(tokens, limit) - stated)
    return held


def context_tokens(facts: Facts, plan: Plan) -> int:
    """The most tokens that all devices have room for, by bisection; 0 where there are none."""
    fits, fails = 0, MOST_TOKENS + 1
    while fails - fits > 1:
        middle = (fits + fails) // 2
        full = next(sum_rule(facts, plan, middle), None)
        fits, fails = (middle, fails) if full is None else (fits, middle)
    return fits


def sum_rule(facts: Facts, plan: Plan, tokens: int | None = None) -> Iterator[Violation]:
    """Devices whose ops have more bytes than fit: resident ones, or those with `tokens`."""
    for k, device in enumerate(facts.devices):
        held = sum(
            op.resident_bytes if tokens is None else bytes_with(op, tokens)
            for op, on in zip(facts.ops, plan.placement, strict=True)
            if k in on
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
