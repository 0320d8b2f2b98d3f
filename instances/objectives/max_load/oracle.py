"""The second referee of loads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from placegap.instances.objectives.max_load.rules import Loads, MaxLoad
from placegap.instances.oracle.facts import Facts
from placegap.instances.oracle.memory import peak_rule
from placegap.instances.oracle.rules import judged, placed_rules
from placegap.instances.problem import Evaluation, Plan, Violation

Stages = dict[tuple[int, ...], list[int]]


def recheck(facts: Facts, plan: Plan, rules: Loads) -> Evaluation:
    """The heaviest load, and every rule that the plan breaks."""
    found = placed_rules(facts, plan, rules)
    if rules.memory == "peak":
        found += peak_rule(facts, plan, rules, None)
    if isinstance(rules, MaxLoad) and rules.replicas:
        found += replica_rules(facts, plan, rules)

    def value() -> int:
        if isinstance(rules, MaxLoad):
            return max_load_ns(facts, plan, rules)
        return max_load_fwd_bwd_ns(facts, plan, rules)

    return judged(found, value)


def max_load_fwd_bwd_ns(facts: Facts, plan: Plan, semantics: Loads) -> int:
    """The heaviest forward load plus the heaviest backward load."""
    home, devices = [on[0] for on in plan.placement], range(len(facts.devices))
    return sum(
        max(_load(facts, semantics, home, k, {which}) for k in devices) for which in (False, True)
    )


def max_load_ns(facts: Facts, plan: Plan, semantics: MaxLoad) -> int:
    """The heaviest device, stage or server."""
    home, worst = [on[0] for on in plan.placement], 0
    for devices, ops in stages_of(plan).items():
        load, r = _load(facts, semantics, home, devices[0], {False, True}), len(devices)
        if r > 1:
            load = load // r + (load % r > 0) + _sync(facts, devices, ops)
        worst = max(worst, load)
    if semantics.levels == 2:
        for v in set(facts.server):
            worst = max(worst, _server_load(facts, home, v))
    return worst


def stages_of(plan: Plan) -> Stages:
    """Ops of each stage, by its devices."""
    stages: Stages = {}
    for i, on in enumerate(plan.placement):
        stages.setdefault(on, []).append(i)
    return stages


def replica_rules(facts: Facts, plan: Plan, semantics: MaxLoad) -> Iterator[Violation]:
    """Stages are disjoint, their devices equal and, where there are weights to sum, joined."""
    stages = stages_of(plan)
    for k, device in enumerate(facts.devices):
        if sum(k in devices for devices in stages) > 1:
            yield Violation("replicas", f"{device.name!r} belongs to two stages")
    for devices, ops in stages.items():
        if any(not _alike(facts, semantics, devices[0], k) for k in devices[1:]):
            yield Violation("replicas", f"the devices {list(devices)} are not equal")
        if any(facts.ops[i].parameter_bytes for i in ops) and any(
            a != b and facts.path(a, b) is None for a in devices for b in devices
        ):
            yield Violation("replicas", f"no path joins the devices {list(devices)}")
        elif len(devices) > 1 and _sync(facts, devices, ops) > 2**61:
            yield Violation("replicas", f"the weights' sum on {list(devices)} takes over 2**61 ns")


def _sync(facts: Facts, devices: Sequence[int], ops: Sequence[int]) -> int:
    """The all-reduce of a stage's weights over its narrowest path."""
    weights, r = sum(facts.ops[i].parameter_bytes for i in ops), len(devices)
    paths = [facts.path(a, b) for a in devices for b in devices if a != b]
    widths = [path[0] for path in paths if path is not None]
    if len(widths) < len(paths):
        return 0  # without weights no path is needed
    whole, rest = divmod(2 * (r - 1) * weights * 1_000_000_000, r * min(widths))
    return whole + (rest > 0)


def _load(facts: Facts, semantics: Loads, home: Sequence[int], k: int, passes: set[bool]) -> int:
    """Load of device k: its ops' times, and each tensor that crosses its border once."""
    compute = moves = 0
    for i, op in enumerate(facts.ops):
        if home[i] == k and op.backward in passes:
            compute += op.time_ns[facts.devices[k].kind]
    if not facts.devices[k].is_host:
        crossing = {
            u
            for a, b, u in facts.ends
            if (home[a] == k) != (home[b] == k) and facts.ops[a].backward in passes
        }
        moves = sum(_border_time(facts, semantics, u, k) for u in crossing)
    return compute + moves if semantics.load == "add" else max(compute, moves)


def _border_time(facts: Facts, semantics: Loads, u: int, k: int) -> int:
    """What a tensor costs at a device's border; with two levels, within its server."""
    stated = facts.tensors[u][1].host_time_ns
    if not semantics.has_two_levels or stated is not None:
        return facts.host_time(u, k)
    beside = [j for j, server in enumerate(facts.server) if j != k and server == facts.server[k]]
    return facts.least_time(u, [k], beside)


def _server_load(facts: Facts, home: Sequence[int], v: int) -> int:
    """What crosses the border of server v."""
    inside = [k for k, server in enumerate(facts.server) if server == v]
    outside = [k for k, server in enumerate(facts.server) if server != v]
    crossing = {u for a, b, u in facts.ends if (home[a] in inside) != (home[b] in inside)}
    return sum(facts.least_time(u, inside, outside) for u in crossing)


def _alike(facts: Facts, semantics: MaxLoad, a: int, b: int) -> bool:
    one, other = facts.devices[a], facts.devices[b]
    return (
        one.memory_bytes == other.memory_bytes
        and one.is_host == other.is_host
        and (semantics.levels == 1 or one.server == other.server)
        and all(op.time_ns.get(one.kind) == op.time_ns.get(other.kind) for op in facts.ops)
        and (
            one.is_host
            or all(
                _border_time(facts, semantics, u, a) == _border_time(facts, semantics, u, b)
                for u in range(len(facts.tensors))
            )
        )
    )
