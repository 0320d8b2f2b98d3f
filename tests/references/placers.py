"""List schedulers by their definitions, in plain Python: (device, start, end) per op, or None."""

from collections.abc import Callable, Sequence
from fractions import Fraction

from draws import draw
from draws.tiny import tiny_instance
from references.brute_force import scattered_instance

from placegap.instances import Device, Edge, Instance, Op, Plan

Number = int | Fraction
Times = tuple[list[int], list[int], list[int]]


class Facts:
    """An instance as dictionaries and functions."""

    def __init__(self, instance: Instance) -> None:
        arrays, graph = instance.arrays, instance.graph
        where = graph.op_index
        self.n, self.num_devices = instance.num_ops, instance.num_devices
        self.topological = arrays.index.topological_order.tolist()
        self.position = arrays.index.topological_position.tolist()
        self.time = [
            {
                k: op.time_ns[device.kind]
                for k, device in enumerate(instance.cluster.devices)
                if device.kind in op.time_ns
            }
            for op in graph.ops
        ]
        tensors = arrays.index.tensor.tolist()
        moves = [
            (where[edge.producer], where[edge.consumer], tensor)
            for edge, tensor in zip(graph.edges, tensors, strict=True)
        ]
        self.inputs = [[(a, u) for a, b, u in moves if b == i] for i in range(self.n)]
        self.outputs = [[(b, u) for a, b, u in moves if a == i] for i in range(self.n)]
        self._transfer, self._link_class = arrays.transfer_ns, arrays.link_class
        names = [op.name if op.colocation is None else op.colocation for op in graph.ops]
        self.group = [
            [
                j
                for j in range(self.n)
                if names[j] == names[i] and (i == j or graph.ops[i].colocation is not None)
            ]
            for i in range(self.n)
        ]
        self.memory = [d.memory_bytes for d in instance.cluster.devices]
        self.bytes = [op.resident_bytes for op in graph.ops]

    def transfer(self, tensor: int, a: int, b: int) -> int:
        """Transfer time of a tensor from device a to device b."""
        return 0 if a == b else int(self._transfer[tensor, self._link_class[a, b]])

    def mean_time(self, i: int) -> Fraction:
        """Over the devices that run op i."""
        return Fraction(sum(self.time[i].values()), len(self.time[i]))

    def mean_transfer(self, tensor: int) -> Fraction:
        """Over all ordered pairs of different devices."""
        k = self.num_devices
        pairs = [(a, b) for a in range(k) for b in range(k) if a != b]
        total = sum(self.transfer(tensor, a, b) for a, b in pairs)
        return Fraction(total, max(1, len(pairs)))

    def admitting(self, i: int, device: Sequence[int | None]) -> list[int]:
        """Devices that may take op i, given the devices of the ops placed so far."""
        homes = {device[j] for j in self.group[i]} - {None}
        if homes:
            return [k for k in homes if k is not None]
        taken = [0] * self.num_devices
        for j in range(self.n):
            members = [device[m] for m in self.group[j] if device[m] is not None]
            if members and members[0] is not None:
                taken[members[0]] += self.bytes[j]
        needed = sum(self.bytes[j] for j in self.group[i])
        return [
            k
            for k in range(self.num_devices)
            if all(k in self.time[j] for j in self.group[i])
            and (self.memory[k] is None or taken[k] + needed <= self.memory[k])
        ]


def upward_ranks(facts: Facts, *, with_transfers: bool = True) -> list[Fraction]:
    """HEFT's upward ranks, or static levels."""
    rank = [Fraction(0)] * facts.n
    for i in reversed(facts.topological):
        tails = [
            rank[j] + (facts.mean_transfer(u) if with_transfers else 0) for j, u in facts.outputs[i]
        ]
        rank[i] = facts.mean_time(i) + max(tails, default=Fraction(0))
    return rank


def optimistic_costs(facts: Facts) -> list[list[Fraction]]:
    """PEFT's table."""
    table = [[Fraction(0)] * facts.num_devices for _ in range(facts.n)]
    for i in reversed(facts.topological):
        for k in range(facts.num_devices):
            table[i][k] = max(
                (
                    min(
                        table[j][w] + time + (facts.mean_transfer(u) if w != k else 0)
                        for w, time in facts.time[j].items()
                    )
                    for j, u in facts.outputs[i]
                ),
                default=Fraction(0),
            )
    return table


def heft(instance: Instance) -> Times | None:
    """HEFT."""
    facts = Facts(instance)
    return _insertion(facts, upward_ranks(facts), lambda i, k: 0)


def peft(instance: Instance) -> Times | None:
    """PEFT."""
    facts = Facts(instance)
    table = optimistic_costs(facts)
    rank = [sum((table[i][k] for k in t), Fraction(0)) / len(t) for i, t in enumerate(facts.time)]
    return _insertion(facts, rank, lambda i, k: table[i][k])


def _insertion(
    facts: Facts, rank: Sequence[Fraction], lookahead: Callable[[int, int], Number]
) -> Times | None:
    device: list[int | None] = [None] * facts.n
    start, end = [0] * facts.n, [0] * facts.n
    for _ in range(facts.n):
        ready = [
            i
            for i in range(facts.n)
            if device[i] is None and all(device[j] is not None for j, _ in facts.inputs[i])
        ]
        i = min(ready, key=lambda i: (-rank[i], facts.position[i]))
        options = []
        for k in sorted(facts.admitting(i, device)):
            arrival = max(
                (end[j] + facts.transfer(u, device[j], k) for j, u in facts.inputs[i]), default=0
            )
            slots = sorted((start[j], end[j]) for j in range(facts.n) if device[j] == k)
            begin = _first_gap(slots, arrival, facts.time[i][k])
            options.append((begin + facts.time[i][k] + lookahead(i, k), k, begin))
        if not options:
            return None
        _, device[i], start[i] = min(options)
        end[i] = start[i] + facts.time[i][device[i]]
    return device, start, end


def _first_gap(slots: list[tuple[int, int]], arrival: int, duration: int) -> int:
    gap = 0
    for begin, finish in slots:
        if max(gap, arrival) + duration <= begin:
            break
        gap = finish
    return max(gap, arrival)


def etf(instance: Instance) -> Times | None:
    """ETF."""
    facts = Facts(instance)
    level = upward_ranks(facts, with_transfers=False)
    preference = [(-level[i], facts.position[i]) for i in range(facts.n)]
    return _earliest_start(facts, preference, booked=False)


def m_etf(instance: Instance) -> Times | None:
    """m-ETF."""
    facts = Facts(instance)
    return _earliest_start(facts, facts.position, booked=True)


def _earliest_start(facts: Facts, preference: Sequence[object], *, booked: bool) -> Times | None:
    device: list[int | None] = [None] * facts.n
    start, end = [0] * facts.n, [0] * facts.n
    free_at, clock = [0] * facts.num_devices, [0] * facts.num_devices
    sent: dict[tuple[int, int], int] = {}

    def deliver(i: int, k: int) -> tuple[int, list[int], dict[tuple[int, int], int]]:
        """Arrival of the inputs of op i on device k, clocks and deliveries then."""
        after, there = list(clock), dict(sent)
        arrivals = [0]
        for j, u in facts.inputs[i]:
            source, duration = device[j], facts.transfer(u, device[j], k)
            if source == k or not booked:
                arrivals.append(end[j] + duration)
                continue
            if (u, k) not in there:
                send = max(end[j], after[source])
                after[source] = send + duration
                receive = max(send, after[k])
                after[k] = receive + duration
                there[u, k] = receive + duration
            arrivals.append(there[u, k])
        return max(arrivals), after, there

    for _ in range(facts.n):
        options = [
            (max(free_at[k], deliver(i, k)[0]), preference[i], k, i)
            for i in range(facts.n)
            if device[i] is None and all(device[j] is not None for j, _ in facts.inputs[i])
            for k in facts.admitting(i, device)
        ]
        if not options:
            return None
        begin, _, k, i = min(options)
        _, clock, sent = deliver(i, k)
        device[i], start[i] = k, begin
        end[i] = free_at[k] = begin + facts.time[i][k]
    return device, start, end


def plan_of(instance: Instance, times: Times) -> Plan:
    """The plan of what a reference found: ops by (start, end, topological position)."""
    device, start, end = times
    position = instance.arrays.index.topological_position.tolist()
    orders = [
        sorted(
            (i for i in range(instance.num_ops) if device[i] == k),
            key=lambda i: (start[i], end[i], position[i]),
        )
        for k in range(instance.num_devices)
    ]
    return Plan.on(device, orders)


def pressed_instance(seed: int, *, num_ops: int = 30, num_devices: int = 3) -> Instance:
    """A random instance whose memory limits leave 0 to 30 % more room than its ops need."""
    drawn = tiny_instance(seed, num_ops=num_ops, num_devices=num_devices, density=3.5 / num_ops)
    limit = draw.share_of(drawn.graph.ops, 10 + seed % 4, 10 * num_devices)
    return draw.with_memory(drawn, limit).model_copy(update={"name": f"pressed-{seed}"})


def busy_instance(seed: int, *, num_ops: int, num_devices: int) -> Instance:
    """Few producers, many consumers that run on few devices: transfers decide."""
    return scattered_instance(seed, num_ops=num_ops, num_devices=num_devices, max_edges=60)


def table_instance(times: Sequence[Sequence[int | None]], edges: str) -> Instance:
    """An instance as papers print it: a row of times per task T1, T2, ...; edges "1-2 18, ...".

    Transfers take the edge's cost between any two processors; one without a time runs no such task.
    """
    names = [f"p{k}" for k in range(1, len(times[0]) + 1)]
    ops = [
        Op(name=f"T{i}", time_ns={p: t for p, t in zip(names, row, strict=True) if t is not None})
        for i, row in enumerate(times, start=1)
    ]
    rows = [edge.replace("-", " ").split() for edge in edges.split(", ")] if edges else []
    joined = [Edge(producer=f"T{a}", consumer=f"T{b}", bytes=int(cost)) for a, b, cost in rows]
    devices = [Device(name=p, kind=p) for p in names]
    return draw.instance_of("table", ops, joined, devices, draw.fast_links(devices))


def with_room(instance: Instance, times: int) -> Instance:
    """The instance on devices of so many times the memory."""
    return draw.with_memory(
        instance, *(times * (device.memory_bytes or 0) for device in instance.cluster.devices)
    )
