"""Random instances that the ideal DP takes; what a chain costs, no code shared with the solver."""

import random
from functools import cache
from itertools import pairwise

from draws import draw

from placegap.instances import Device, Edge, Instance


def chain_instance(seed: int, *, most_ops: int = 7) -> Instance:
    """1 to `most_ops` ops on 0 to 3 equal accelerators and 0 to 2 equal hosts."""
    rng = random.Random(f"chain-{seed}-{most_ops}")
    n, accelerators = rng.randrange(1, most_ops + 1), rng.randrange(4)
    hosts = rng.randrange(0 if accelerators else 1, 3)
    kinds = ["gpu"] * (accelerators > 0) + ["cpu"] * (hosts > 0)
    first_backward = n - n // 2 if rng.random() < 0.4 else n
    groups = _groups(rng, n)
    for_group = {name: rng.choice(kinds) for name in sorted({g for g in groups if g})}
    ops = []
    for i in range(n):
        always = for_group.get(groups[i] or "", rng.choice(kinds))
        time_ns = draw.times(
            rng,
            kinds,
            lambda: rng.choice([0, 0, 0, *range(1, 10)]) * rng.choice([1, 1, 3]),
            chance=0.85,
            always=always,
        )
        size, backward = rng.choice([0, 0, 1, 2, 3]), i >= first_backward
        ops.append(draw.op(i, time_ns, size, groups[i], backward=backward))
    edges, dearest, density = [], rng.choice([5, 15, 100]), rng.choice([0.15, 0.3, 0.5])
    for a in range(n):
        shared, cost = rng.random() < 0.6, rng.randrange(dearest)
        edges += [
            Edge(
                producer=f"op{a}",
                consumer=f"op{b}",
                tensor="out" if shared else None,
                host_time_ns=cost if shared else rng.randrange(dearest),
            )
            for b in range(a + 1, n)
            if rng.random() < density
        ]
    total = sum(op.resident_bytes for op in ops)
    share = draw.share_of(ops, rng.choice([5, 7, 9]), 5 * max(1, accelerators))
    memory = rng.choice([None, None, None, share])
    host_memory = rng.choice([None, None, None, total // 2])
    devices = _devices(accelerators, memory, hosts, host_memory)
    rng.shuffle(devices)
    return draw.instance_of(f"chain-{seed}", ops, edges, devices)


def wide_instance(seed: int, *, detours: bool = True) -> Instance:
    """A random instance of 66 to 120 blocks, more than a word has bits, but few ideals."""
    rng = random.Random(f"wide-{seed}")
    n, accelerators = rng.randrange(66, 121), rng.randrange(1, 4)
    hosts = rng.randrange(3)
    layers, left = [], list(range(n))
    rng.shuffle(left)
    while left:
        width = min(len(left), rng.choice([1] * 25 + [2, 3]) if detours else 1)
        layers.append([left.pop() for _ in range(width)])
    pairs = {(a, b) for one, two in pairwise(layers) for a in one for b in two}
    place = {i: at for at, layer in enumerate(layers) for i in layer}
    for _ in range(n // 3):
        a, b = rng.sample(range(n), 2)
        if place[a] != place[b]:
            pairs.add((a, b) if place[a] < place[b] else (b, a))
    dearest = rng.choice([2, 10, 50])
    cost = [rng.randrange(dearest) for _ in range(n)]
    ops = draw.ops(
        n,
        lambda: {"gpu": rng.randrange(1, 30), "cpu": rng.randrange(1, 100)},
        lambda: rng.randrange(5),
    )
    edges = draw.edges(sorted(pairs), cost, [True] * n, int, "host_time_ns")
    total = sum(op.resident_bytes for op in ops)
    memory = rng.choice([None, total * 5 // (4 * accelerators)])
    devices = _devices(accelerators, memory, hosts)
    return draw.instance_of(f"wide-{seed}", ops, edges, devices)


def idle_instance(seed: int, *, most_ops: int = 7, most_hosts: int = 8) -> Instance:
    """A random instance most of whose ops take no time and hold 1e9 to 1e12 bytes."""
    rng = random.Random(f"idle-{seed}-{most_ops}")
    n, accelerators = rng.randrange(2, most_ops + 1), rng.randrange(4)
    hosts = rng.choice([0, 1, 2, rng.randrange(most_hosts + 1)])
    hosts = max(hosts, accelerators == 0)
    kinds = ["gpu"] * (accelerators > 0) + ["cpu"] * (hosts > 0)
    first_backward = n - n // 3 if rng.random() < 0.3 else n
    groups = _groups(rng, n) if rng.random() < 0.5 else [None] * n
    ops = []
    for i in range(n):
        idle = rng.random() < 0.6
        refused = rng.random() < 0.1 and groups[i] is None
        able = [rng.choice(kinds)] if refused else kinds
        times = {k: 0 if idle else rng.randrange(1, 10) * rng.choice([1, 3]) for k in able}
        size = rng.choice([0, rng.randrange(1, 10), rng.randrange(10**9, 10**12)])
        ops.append(draw.op(i, times, size, groups[i], backward=i >= first_backward))
    dearest, degree = rng.choice([2, 5, 30]), rng.choice([0.6, 1.0, 1.6])
    cost = [rng.randrange(dearest) for _ in range(n)]
    pairs = draw.pairs(rng, range(n), n, degree * 2 / n)
    edges = draw.edges(pairs, cost, [True] * n, int, "host_time_ns")
    sizes = [op.resident_bytes for op in ops]
    some = sum(rng.sample(sizes, rng.randrange(1, n + 1)))
    memory = rng.choice([None, some, some, max(some - 1, 0), sum(sizes) * 2 // 3])
    host_memory = rng.choice([None, None, some, sum(sizes) // 2])
    devices = _devices(accelerators, memory, hosts, host_memory)
    return draw.instance_of(f"idle-{seed}", ops, edges, devices)


def best_chain(instance: Instance, *, overlap: bool = False) -> int | None:
    """Least max_load of all chains of ideals x devices, None if no chain fits."""
    cost = _Cost(instance, overlap)
    devices, arcs = cost.devices, cost.arcs

    @cache
    def best(rest: int, free: tuple[int, ...]) -> int | None:
        if not rest:
            return 0
        found, taken = None, rest
        while taken:
            left = rest & ~taken
            if not any(left >> a & 1 and taken >> b & 1 for a, b in arcs):
                for kind in range(len(devices)):
                    load = cost.load(taken, kind) if free[kind] else None
                    if load is None or (found is not None and load >= found):
                        continue
                    after = tuple(f - (j == kind) for j, f in enumerate(free))
                    others = best(left, after)
                    if others is not None and (found is None or max(load, others) < found):
                        found = max(load, others)
            taken = (taken - 1) & rest
        return found

    return best((1 << cost.num_classes) - 1, tuple(number for _, number in devices))


def best_chain_of_ideals(instance: Instance) -> int | None:
    """The same by the plain recurrence over all pairs of ideals: for many ops, but few ideals."""
    cost = _Cost(instance, overlap=False)
    ideals = sorted(all_ideals(cost.num_classes, cost.arcs), key=lambda ideal: ideal.bit_count())
    value: dict[tuple[int, ...], dict[int, int]] = {}
    limits = tuple(number for _, number in cost.devices)
    for used in sorted(_tuples(limits), key=sum):
        here = {0: 0} if sum(used) == 0 else {}
        for kind in range(len(limits)):
            before = value.get(tuple(u - (j == kind) for j, u in enumerate(used)), {})
            for ideal in ideals:
                for smaller, load_before in before.items():
                    if smaller & ~ideal:
                        continue
                    load = cost.load(ideal & ~smaller, kind)
                    if load is not None:
                        here[ideal] = min(here.get(ideal, 10**18), max(load, load_before))
        value[used] = here
    return value[limits].get((1 << cost.num_classes) - 1)


def all_ideals(num_nodes: int, arcs: set[tuple[int, int]]) -> set[int]:
    """Every set of nodes, as bits, that contains the predecessors of its members."""
    before = [sum(1 << a for a, b in arcs if b == v) for v in range(num_nodes)]
    found, fresh = {0}, [0]
    while fresh:
        ideal = fresh.pop()
        for v in range(num_nodes):
            larger = ideal | 1 << v
            if larger != ideal and not before[v] & ~ideal and larger not in found:
                found.add(larger)
                fresh.append(larger)
    return found


class _Cost:
    """Loads of sets of colour classes (bits) on kinds of devices."""

    def __init__(self, instance: Instance, overlap: bool) -> None:
        self.ops, self.edges, self.overlap = instance.graph.ops, instance.graph.edges, overlap
        number: dict[str, int] = {}
        self.class_of = [
            number.setdefault(op.colocation or op.name, len(number)) for op in self.ops
        ]
        self.num_classes = len(number)
        kinds: dict[str, list[Device]] = {}
        for device in instance.cluster.devices:
            kinds.setdefault(device.kind, []).append(device)
        self.devices = [(alike[0], len(alike)) for alike in kinds.values()]
        self.ends = [
            (instance.graph.op_index[edge.producer], instance.graph.op_index[edge.consumer])
            for edge in self.edges
        ]
        self.arcs = self._arcs()
        self.load = cache(self._load)

    def _arcs(self) -> set[tuple[int, int]]:
        orphans = set(self.class_of) - {
            c for c, op in zip(self.class_of, self.ops, strict=True) if not op.backward
        }
        arcs = set()
        for a, b in self.ends:
            tail, head = self.class_of[a], self.class_of[b]
            if not self.ops[a].backward and not self.ops[b].backward:
                arcs.add((tail, head))
            if self.ops[a].backward and self.ops[b].backward and {tail, head} & orphans:
                arcs.add((head, tail))
        return arcs

    def _load(self, classes: int, kind: int) -> int | None:
        """Load of one device, None if it cannot run or hold them all."""
        device = self.devices[kind][0]
        inside = [bool(classes >> c & 1) for c in self.class_of]
        mine = [op for op, here in zip(self.ops, inside, strict=True) if here]
        if any(device.kind not in op.time_ns for op in mine):
            return None
        memory = device.memory_bytes
        if memory is not None and sum(op.resident_bytes for op in mine) > memory:
            return None
        compute = sum(op.time_ns[device.kind] for op in mine)
        if device.is_host:
            return compute
        crossing = {
            (a, edge.tensor or number): edge.host_time_ns or 0
            for number, (edge, (a, b)) in enumerate(zip(self.edges, self.ends, strict=True))
            if inside[a] != inside[b]
        }
        moved = sum(crossing.values())
        return max(compute, moved) if self.overlap else compute + moved


def _groups(rng: random.Random, n: int) -> list[str | None]:
    groups: list[str | None] = [None] * n
    if n > 2 and rng.random() < 0.5:
        for name in ("a", "b")[: rng.randrange(1, 3)]:
            for i in rng.sample(range(n), rng.choice([2, 2, 3])):
                groups[i] = groups[i] or name
    return groups


def _tuples(limits: tuple[int, ...]) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = [()]
    for limit in limits:
        found = [(*head, k) for head in found for k in range(limit + 1)]
    return found


def _devices(
    accelerators: int, memory: int | None, hosts: int, host_memory: int | None = None
) -> list[Device]:
    return [Device(name=f"g{k}", kind="gpu", memory_bytes=memory) for k in range(accelerators)] + [
        Device(name=f"c{k}", kind="cpu", memory_bytes=host_memory, is_host=True)
        for k in range(hosts)
    ]
