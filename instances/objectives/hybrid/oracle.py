"""hybrid_pipeline once more, in fractions: time and memory of each stage, and every broken rule."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction

from placegap.instances.oracle.facts import Facts
from placegap.instances.oracle.rules import foreign_fields
from placegap.instances.problem import Evaluation, HybridPipeline, Mode, Plan, Violation
from placegap.instances.problem.links import Group

Row = dict[int, Mode]  # the ops of a stage and their modes


def recheck(facts: Facts, plan: Plan, semantics: HybridPipeline) -> Evaluation:
    """The second referee's verdict on a hybrid plan."""
    foreign = tuple(foreign_fields(plan, semantics))
    if foreign:
        return Evaluation(None, foreign)
    rows = _rows(facts, plan)
    if isinstance(rows, str):
        return Evaluation(None, (Violation("shape", rows),))
    tensor = plan.tensor or ()
    on = [plan.placement[min(row)] for row in rows]
    degree = [len(devices) // t for devices, t in zip(on, tensor, strict=True)]
    wrong = list(_degree_rules(semantics, degree, tensor))
    if wrong:
        return Evaluation(None, tuple(wrong))
    found = list(_row_rules(facts, plan, on, tensor))
    found += _mode_rules(facts, rows, semantics)
    width, times = narrowest(facts), list[int]()
    for s, row in enumerate(rows):
        in_flight = flights(degree, s, semantics)
        limit = facts.devices[0].memory_bytes
        if limit is not None and stage_memory_bytes(row, semantics, degree[s], in_flight) > limit:
            found.append(Violation("memory", f"stage {s} does not fit {limit} bytes"))
        times.append(stage_time_ns(facts, row, semantics, (degree[s], width)))
    return Evaluation(batch_ns(times, semantics, degree[0]), tuple(found))


def flights(degree: list[int], s: int, semantics: HybridPipeline) -> int:
    """Microbatches that a replica of a stage holds: as many as stages follow, if it has these."""
    follow = math.ceil(Fraction(sum(degree[s:]), degree[s]))
    return min(follow, semantics.microbatches // degree[s])


def batch_ns(times_ns: list[int], semantics: HybridPipeline, d: int) -> int:
    """A batch, of the times of its stages; the bubble has one microbatch pass all of them."""
    turns = semantics.microbatches // d
    each = [Fraction(time, turns) for time in times_ns]
    passes = sum(each) if semantics.bubble else max(each)
    return math.ceil(passes + (turns - 1) * max(each))


def _rows(facts: Facts, plan: Plan) -> list[Row] | str:
    """Ops and modes of each stage, or what is wrong with them."""
    n = len(facts.ops)
    if len(plan.placement) != n or len(plan.stage or ()) != n or len(plan.mode or ()) != n:
        return "placement, stage and mode do not name every op"
    assert plan.stage is not None
    assert plan.mode is not None
    if any(s < 0 for s in plan.stage):
        return "a stage is below 0"
    rows: list[Row] = [{} for _ in range(max(plan.stage) + 1)]
    tensor = plan.tensor
    if tensor is None or len(tensor) != len(rows) or any(t < 1 for t in tensor):
        return "tensor does not name every stage"
    for i, (s, name) in enumerate(zip(plan.stage, plan.mode, strict=True)):
        for mode in facts.ops[i].ways:
            if mode.name == name and mode.tensor == tensor[s]:
                rows[s][i] = mode
        if i not in rows[s]:
            return f"op {facts.ops[i].name!r} has no mode {name!r} for {tensor[s]} devices"
    seen: Counter[int] = Counter()
    for s, row in enumerate(rows):
        homes = {plan.placement[i] for i in row}
        if len(homes) != 1:
            return f"stage {s} is on {len(homes)} sets of devices"
        devices = homes.pop()
        if not devices or len(devices) % tensor[s]:
            return f"stage {s} has {len(devices)} devices for groups of {tensor[s]}"
        seen.update(devices)
    if any(times > 1 or not 0 <= k < len(facts.devices) for k, times in seen.items()):
        return "a device is used twice, or is not in the cluster"
    return rows


def _degree_rules(
    semantics: HybridPipeline, degree: list[int], tensor: tuple[int, ...]
) -> Iterator[Violation]:
    n = semantics.microbatches
    whole = all(Fraction(n, d).denominator == 1 for d in degree)
    same_t = semantics.degrees == "free" or len(set(tensor)) == 1
    same_d = semantics.degrees != "one" or len(set(degree)) == 1
    full = semantics.bubble or sum(degree) <= n
    if not (whole and full and same_t and same_d):
        yield Violation("degrees", f"{degree} replicas, tensor {list(tensor)}, {n} microbatches")


def _row_rules(
    facts: Facts, plan: Plan, on: list[tuple[int, ...]], tensor: tuple[int, ...]
) -> Iterator[Violation]:
    """Edges lead forward, groups of ops stay together, and groups of devices in one server."""
    stage, mode = plan.stage or (), plan.mode or ()
    if any(stage[b] < stage[a] for a, b, _ in facts.ends):
        yield Violation("chain", "an edge leads back")
    together: dict[str, set[tuple[int, str]]] = {}
    for i, op in enumerate(facts.ops):
        if op.colocation is not None:
            together.setdefault(op.colocation, set()).add((stage[i], mode[i]))
    for group, choices in together.items():
        if len(choices) > 1:
            yield Violation("colocation", f"group {group!r} has {len(choices)} stages or modes")
    for s, (devices, t) in enumerate(zip(on, tensor, strict=True)):
        groups = [devices[at : at + t] for at in range(0, len(devices), t)]
        named = facts.devices[0].server is not None
        if named and any(facts.server.count(x) % t for x in set(facts.server)):
            yield Violation("tensor", f"stage {s}: {t} do not divide a server")
        elif any(facts.server[k] != facts.server[group[0]] for group in groups for k in group):
            yield Violation("tensor", f"a group of stage {s} is in two servers")


def _mode_rules(facts: Facts, rows: list[Row], semantics: HybridPipeline) -> Iterator[Violation]:
    if semantics.recompute == "per_layer":
        return
    names = [
        {
            mode.name
            for i, mode in row.items()
            if any(o.tensor == mode.tensor and o.name != mode.name for o in facts.ops[i].ways)
        }
        for row in rows
    ]
    if semantics.recompute == "all_or_none":
        names = [{name for own in names for name in own}]
    if any(len(own) > 1 for own in names):
        yield Violation("recompute", f"more than one mode: {[sorted(own) for own in names]}")


def stage_memory_bytes(row: Row, semantics: HybridPipeline, d: int, in_flight: int) -> int:
    divided = {"none": (0, 0), "optimizer": (1, 0), "gradients": (1, 1)}[semantics.sharding]
    whole, shares = 0, Fraction(0)
    for mode in row.values():
        part = divided[0] * mode.sharded_bytes + divided[1] * mode.gradient_bytes
        whole += in_flight * mode.held_bytes + mode.state_bytes - part
        shares += Fraction(part, d)
    return whole + math.ceil(shares) + max(mode.workspace_bytes for mode in row.values())


def stage_time_ns(facts: Facts, row: Row, semantics: HybridPipeline, rates: tuple[int, int]) -> int:
    """Ns per batch, for some replicas and bytes/s; all bytes together are rounded up once."""
    d, width = rates
    kind, turns = facts.devices[0].kind, semantics.microbatches // d
    border = 0
    for edge, (a, b, _) in zip(facts.instance.graph.edges, facts.ends, strict=True):
        if a in row and b not in row:
            border += edge.bytes + row[a].leave_bytes.get(edge.consumer, 0)
        if b in row and a not in row:
            border += edge.bytes + row[b].enter_bytes.get(edge.producer, 0)
    weights = sum(mode.parameter_bytes for mode in row.values())
    seconds = (2 * turns * border + Fraction(2 * (d - 1), d) * weights) / Fraction(width)
    compute = sum(mode.time_ns[kind] for mode in row.values())
    return turns * compute + math.ceil(10**9 * seconds)


def narrowest(facts: Facts) -> int:
    """Bandwidth of the narrowest path between two devices: a link, as no path has less than all."""
    entries = facts.instance.cluster.all_links.entries
    joining = (each for each in entries if not isinstance(each, Group) or len(each.devices) > 1)
    return min((each.bandwidth_bytes_per_s for each in joining), default=1)
