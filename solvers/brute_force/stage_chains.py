"""Every way to share devices out to stages, for replicas and for two levels of communication.

Written from the definitions, in plain Python and Python integers, by ops, edges and links: it
shares no count of loads with the referee.

Every chain of stages of pipeline_iteration, judged by the second referee.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, permutations

from placegap.instances.problem.instance import Edge, Instance
from placegap.instances.problem.integers import NS_PER_S, ceil_div
from placegap.instances.problem.links import widest_paths
from placegap.instances.problem.plan import Plan
from placegap.instances.problem.semantics import (
    LoadSemantics,
    PipelineIteration,
    has_replicas,
    has_two_levels,
)
from placegap.instances.recheck.facts import Facts
from placegap.instances.recheck.iteration import is_exchange
from placegap.instances.recheck.recheck import recheck

MOST_STAGED_OPS = 7
MOST_STAGED_DEVICES = 4

Places = tuple[tuple[int, ...], ...]


def best_stages(instance: Instance, semantics: LoadSemantics) -> tuple[int, Plan] | None:
    """Least max_load in ns and a plan that has it, or None if no plan is feasible.

    Examples
    --------
    43 ns of work on two equal devices, each of which takes every other sample:

    >>> from placegap.instances import MaxLoad, example
    >>> best_stages(example(), MaxLoad(replicas=True))[0]
    22
    """
    judge = _Judge(instance, semantics)
    best = None
    for places in judge.placements():
        if judge.fits(places) and judge.is_of_class(places):
            value = judge.value(places)
            if best is None or value < best[0]:
                best = value, Plan(places)
    return best


class _Judge:
    """The rules, read off the instance's parts."""

    def __init__(self, instance: Instance, semantics: LoadSemantics) -> None:
        self.semantics = semantics
        self.ops, self.devices = instance.graph.ops, instance.cluster.devices
        where = instance.graph.op_index
        self.edges = [(where[e.producer], where[e.consumer], e) for e in instance.graph.edges]
        self.paths = widest_paths(instance.cluster)
        self.step = instance.memory_arrays.step.tolist()
        self.num_devices = len(self.devices)
        everywhere = range(self.num_devices)
        self.cost = {
            (n, k): self._border_ns(edge, [k], self._others(k))
            for n, (_, _, edge) in enumerate(self.edges)
            for k in everywhere
        }
        sizes = range(1, self.num_devices + 1 if has_replicas(semantics) else 2)
        self.stages = [
            s for r in sizes for s in combinations(everywhere, r) if all(map(self._alike, s, s[1:]))
        ]

    def _others(self, k: int) -> list[int]:
        """The devices that a tensor at k's border comes from or goes to."""
        near = range(self.num_devices)
        two = has_two_levels(self.semantics)
        mine = self.devices[k].server
        return [j for j in near if j != k and (not two or self.devices[j].server == mine)]

    def _border_ns(self, edge: Edge, here: list[int], there: list[int]) -> int:
        if len(here) == 1 and edge.host_time_ns is not None:
            return edge.host_time_ns
        pairs = [(a, b) for a in here for b in there] + [(b, a) for a in here for b in there]
        return min((self._move_ns(edge, *pair) for pair in pairs), default=0)

    def _move_ns(self, edge: Edge, a: int, b: int) -> int:
        if edge.transfer_ns is not None:
            return edge.transfer_ns[a][b]
        width, latency = self.paths[a, b]
        return latency + ceil_div(edge.bytes * NS_PER_S, width)

    def _alike(self, a: int, b: int) -> bool:
        one, other = self.devices[a], self.devices[b]
        return (
            all(op.time_ns.get(one.kind) == op.time_ns.get(other.kind) for op in self.ops)
            and (one.memory_bytes, one.is_host) == (other.memory_bytes, other.is_host)
            and (not has_two_levels(self.semantics) or one.server == other.server)
            and (
                one.is_host
                or all(self.cost[n, a] == self.cost[n, b] for n in range(len(self.edges)))
            )
        )

    def placements(self) -> Iterator[Places]:
        """Every op in a stage, groups together, stages the same or disjoint."""
        chosen: list[tuple[int, ...]] = []

        def extend() -> Iterator[Places]:
            if len(chosen) == len(self.ops):
                yield tuple(chosen)
                return
            group = self.ops[len(chosen)].colocation
            homes = [
                s
                for s, op in zip(chosen, self.ops, strict=False)
                if group and op.colocation == group
            ]
            for stage in self.stages:
                apart = all(stage == s or not set(stage) & set(s) for s in chosen)
                if apart and all(stage == s for s in homes):
                    chosen.append(stage)
                    yield from extend()
                    chosen.pop()

        return extend()

    def fits(self, places: Places) -> bool:
        """Every op runs where it is, memory suffices, weights can be summed."""
        for k, device in enumerate(self.devices):
            held = [op for op, on in zip(self.ops, places, strict=True) if k in on]
            if any(device.kind not in op.time_ns for op in held):
                return False
            if device.memory_bytes is not None and device.memory_bytes < self._held(places, k):
                return False
        return all(
            self._bandwidth(on) is not None or not op.parameter_bytes
            for op, on in zip(self.ops, places, strict=True)
            if len(on) > 1
        )

    def _held(self, places: Places, k: int) -> int:
        """Bytes that a device holds: resident ones, or those of its fullest step."""
        here = [i for i, on in enumerate(places) if k in on]
        if self.semantics.memory == "sum":
            return sum(self.ops[i].resident_bytes for i in here)
        shared: dict[str, int] = {}
        state = 0
        for op in (self.ops[i] for i in here):
            state += op.parameter_bytes if op.state_bytes is None else op.state_bytes
            shared.update(op.shared_state)
        uses: dict[object, list[int]] = {}  # steps here that write or read a tensor
        size: dict[object, int] = {}
        for n, (a, b, edge) in enumerate(self.edges):
            tensor = (n,) if edge.tensor is None else (a, edge.tensor)
            size[tensor] = edge.bytes
            uses.setdefault(tensor, []).extend(self.step[i] for i in (a, b) if i in here)
        most = 0
        for i in here:
            live = [t for t, at in uses.items() if at and min(at) <= self.step[i] <= max(at)]
            most = max(most, self.ops[i].workspace_bytes + sum(size[t] for t in live))
        return state + sum(shared.values()) + most

    def is_of_class(self, places: Places) -> bool:
        """Stages, and servers, are convex or form a chain."""
        servers = tuple((self.devices[on[0]].server,) for on in places)
        regions = [places, servers] if has_two_levels(self.semantics) else [places]
        if self.semantics.plans == "any":
            return True
        return all(self._in_order(tuple(map(str, region))) for region in regions)

    def _in_order(self, region: tuple[str, ...]) -> bool:
        """No path of arcs between ops leaves a region and returns; for chains, of regions."""
        chain = self.semantics.plans == "chain"
        with_forward = {op.colocation for op in self.ops if not op.backward}
        node: list[object] = [region[i] if chain else i for i in range(len(region))]
        arcs: set[tuple[object, object]] = set()
        for a, b, _ in self.edges:
            both = self.ops[a].backward + self.ops[b].backward
            orphan = any(
                op.colocation is None or op.colocation not in with_forward
                for op in (self.ops[a], self.ops[b])
            )
            if both == 0:
                arcs.add((node[a], node[b]))
            elif both == 2 and orphan and chain:
                arcs.add((node[b], node[a]))
        reach = {arc for arc in arcs if arc[0] != arc[1]}
        for via in node:
            reach |= {(a, b) for a, c in reach if c == via for d, b in reach if d == via}
        if chain:
            return all(a != b for a, b in reach)
        return not any(
            region[a] == region[c] != region[b]
            for a, b in reach
            for d, c in reach
            if b == d and isinstance(a, int) and isinstance(b, int) and isinstance(c, int)
        )

    def value(self, places: Places) -> int:
        """The heaviest device or server."""
        loads = [self._stage_load(places, stage) for stage in set(places)]
        if has_two_levels(self.semantics):
            loads += [self._server_load(places, v) for v in {d.server for d in self.devices}]
        return max(loads)

    def _stage_load(self, places: Places, stage: tuple[int, ...]) -> int:
        first, r = self.devices[stage[0]], len(stage)
        held = [op for op, on in zip(self.ops, places, strict=True) if on == stage]
        compute = sum(op.time_ns[first.kind] for op in held)
        crossing = self._crossing([on == stage for on in places])
        moved = 0 if first.is_host else sum(self.cost[n, stage[0]] for n in crossing)
        load = compute + moved if self.semantics.load == "add" else max(compute, moved)
        if r == 1:
            return load
        weights, width = sum(op.parameter_bytes for op in held), self._bandwidth(stage) or 1
        return ceil_div(load, r) + ceil_div(2 * (r - 1) * weights * NS_PER_S, r * width)

    def _server_load(self, places: Places, server: str | None) -> int:
        inside = [k for k, device in enumerate(self.devices) if device.server == server]
        outside = [k for k in range(self.num_devices) if k not in inside]
        crossing = self._crossing([on[0] in inside for on in places])
        return sum(
            min(
                self._move_ns(self.edges[n][2], *pair)
                for a in inside
                for b in outside
                for pair in ((a, b), (b, a))
            )
            for n in crossing
        )

    def _crossing(self, inside: list[bool]) -> list[int]:
        """One edge of each tensor that enters or leaves; edges of a tensor share its name."""
        first: dict[object, int] = {}
        for n, (a, b, edge) in enumerate(self.edges):
            if inside[a] != inside[b]:
                first.setdefault((a, edge.tensor) if edge.tensor is not None else (n,), n)
        return list(first.values())

    def _bandwidth(self, stage: tuple[int, ...]) -> int | None:
        pairs = [(a, b) for a in stage for b in stage if a != b]
        if not all(pair in self.paths for pair in pairs):
            return None
        return min((self.paths[pair][0] for pair in pairs), default=None)


MOST_PLANS = 2**13
"""Each takes about a millisecond."""


def count_chains(instance: Instance, semantics: PipelineIteration) -> int:
    """How many ways there are to give groups a stage and stages a device, chain or not."""
    total, ways = 0, 1
    for p in range(1, instance.num_devices + 1):
        ways *= instance.num_devices + 1 - p
        total += int(ways * (p * semantics.stages_per_device) ** instance.arrays.num_groups)
        if total > MOST_PLANS:
            break
    return total


def best_chain(instance: Instance, semantics: PipelineIteration) -> tuple[int, Plan] | None:
    """Least time of an iteration in ns and its plan, or None if no plan is feasible.

    Examples
    --------
    Ops 1 and 3 take 15 ns, their messages 1 + 10, and ops 2 and 4 take 28 ns for each of two
    microbatches; one device takes 43 ns for each.

    >>> from placegap.instances import example
    >>> best_chain(example(), PipelineIteration(microbatches=2))[0]
    82
    """
    best = None
    for plan in chains(instance, semantics):
        verdict = recheck(instance, plan, semantics)
        value_ns = verdict.value_ns if verdict.feasible else None
        if value_ns is not None and (best is None or value_ns < best[0]):
            best = value_ns, plan
    return best


def chains(instance: Instance, semantics: PipelineIteration) -> Iterator[Plan]:
    """Every chain of stages on every choice of devices, whether it fits or not."""
    group = instance.arrays.group.tolist()
    for p in range(1, instance.num_devices + 1):
        count = p * semantics.stages_per_device
        for chosen in _stages_of_groups(instance, count):
            stage = tuple(chosen[g] for g in group)
            for devices in permutations(range(instance.num_devices), p):
                yield Plan(tuple((devices[s % p],) for s in stage), stage=stage)


def _stages_of_groups(instance: Instance, count: int) -> Iterator[list[int]]:
    """Stage of each colocation group, none of them empty, none fed by a later one."""
    ops, number, num_groups = (
        instance.graph.ops,
        instance.graph.op_index,
        instance.arrays.num_groups,
    )
    group = instance.arrays.group.tolist()
    before: list[list[tuple[int, bool]]] = [[] for _ in range(num_groups)]
    facts = Facts(instance)
    for edge in instance.graph.edges:
        a, b = number[edge.producer], number[edge.consumer]
        if ops[a].backward == ops[b].backward and not is_exchange(facts, a, b):
            early, late = (b, a) if ops[a].backward else (a, b)
            before[max(group[a], group[b])].append(
                (min(group[a], group[b]), group[early] <= group[late])
            )
    chosen = [0] * num_groups

    def extend(g: int) -> Iterator[list[int]]:
        if g == num_groups:
            if len(set(chosen)) == count:
                yield list(chosen)
            return
        for s in range(count):
            if all(
                h == g or (chosen[h] <= s if lower_first else chosen[h] >= s)
                for h, lower_first in before[g]
            ):
                chosen[g] = s
                yield from extend(g + 1)

    yield from extend(0)
