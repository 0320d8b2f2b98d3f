"""Small random instances of windows between bottlenecks, and stacks of equal layers."""

import random
from collections.abc import Iterator
from itertools import count

from draws import draw

from placegap.instances import Edge, Instance, Op

TIMES, BYTES = (0, 1, 3, 5, 8, 13, 20), (0, 1, 2, 4, 9)
MOST_OPS, MOST_EDGES = 8, 10


def windows(first_seed: int) -> Iterator[Instance]:
    """Instances of one to three windows with parallel branches, without end."""
    for seed in count(first_seed):
        instance = _windows(random.Random(f"windows-{seed}"), f"windows-{seed}")
        if instance is not None:
            yield instance


class _Graph:
    """Ops and edges as they are drawn."""

    def __init__(self, rng: random.Random, kinds: list[str]) -> None:
        self.rng, self.kinds = rng, kinds
        self.ops: list[Op] = []
        self.edges: list[Edge] = []

    def times(self) -> dict[str, int]:
        return {kind: self.rng.choice(TIMES) for kind in sorted(set(self.kinds))}

    def op(self, times: dict[str, int] | None = None) -> str:
        """A new op; now and then one that some kind does not run."""
        own = times or self.times()
        if times is None and len(own) > 1 and self.rng.random() < 0.1:
            own = dict([*own.items()][1:])
        self.ops.append(draw.op(len(self.ops), own))
        return self.ops[-1].name

    def edge(self, a: str, b: str, size: int, tensor: str | None = None) -> None:
        self.edges.append(Edge(producer=a, consumer=b, bytes=size, tensor=tensor))

    def reaches(self, a: str, b: str) -> bool:
        return a == b or any(self.reaches(e.consumer, b) for e in self.edges if e.producer == a)


def _windows(rng: random.Random, name: str) -> Instance | None:
    """Chains, trees or other branches, often equal ones; None if the draw is too large."""
    num_devices = rng.choice([2, 2, 3])
    differ = rng.random() < 0.6
    kinds = [f"gpu{k}" if differ else "gpu" for k in range(num_devices)]
    graph, room = _Graph(rng, kinds), rng.choice([6, 7])
    fork = graph.op()
    side = graph.op() if rng.random() < 0.15 else None
    hanging: list[str] = []
    while len(graph.ops) < room - 1:
        left = room - len(graph.ops) - 1
        size = min(rng.choice([1, 2, 2, 3]), left)
        number = min(rng.choice([1, 2, 2, 3]), max(1, left // size))
        names, ends = _branches(graph, fork, size, number)
        join = graph.op()
        for end, sent in ends:
            graph.edge(end, join, sent)
        if rng.random() < 0.2:
            graph.edge(fork, join, rng.choice([1, 5]))
        if side is not None:  # a side input, as of a mask
            graph.edge(side, rng.choice([names[0], join]), 3)
            side = None
        if rng.random() < 0.25 and len(graph.ops) < MOST_OPS:  # an end beside the main way
            hanging.append(graph.op())
            graph.edge(rng.choice([fork, names[0], join]), hanging[-1], rng.choice([0, 2, 5]))
        fork = join
    for end in hanging:  # which may come back to it
        if rng.random() < 0.4 and not graph.reaches(fork, end):
            graph.edge(end, fork, rng.choice([1, 4]))
    if len(graph.edges) > MOST_EDGES or len(graph.ops) > MOST_OPS or side is not None:
        return None
    rate = [rng.choice([10**9, 5 * 10**8, 2 * 10**9]) for _ in range(9)]
    links = draw.links(num_devices, lambda a, b: (rate[3 * a + b], rng.choice([0, 0, 1, 3])))
    return draw.instance_of(name, graph.ops, graph.edges, draw.devices(kinds), links)


def _branches(
    graph: _Graph, fork: str, size: int, number: int
) -> tuple[list[str], list[tuple[str, int]]]:
    """Branches behind a fork: the ops of the last one, and the ends of all with their bytes."""
    rng, ends, names = graph.rng, list[tuple[str, int]](), list[str]()
    shape, are_equal = rng.choice(["chain", "tree", "fan"]), rng.random() < 0.7
    tensor = "shared" if rng.random() < 0.3 else None
    times = [graph.times() for _ in range(size)]
    sent = [rng.choice(BYTES) for _ in range(MOST_OPS)]
    for _ in range(number):
        if not are_equal:
            times = [graph.times() for _ in range(size)]
        names = [graph.op(each) for each in times]
        first = names[:-1] if shape == "tree" and size > 1 else names[:1]
        for name in first:
            graph.edge(fork, name, sent[0], tensor)
        for i in range(1, size):
            if shape == "chain":
                graph.edge(names[i - 1], names[i], sent[i])
            elif shape == "tree":
                graph.edge(names[i - 1], names[-1], sent[i])
            else:
                graph.edge(names[0], names[i], sent[1], tensor and "inner")
        last = names[1:] if shape == "fan" and size > 1 else names[-1:]
        ends += [(name, sent[-1]) for name in last]
    return names, ends


def stack(
    layers: int, branches: int, *, op_ns: int = 10, sent: int = 1, devices: int = 2, size: int = 0
) -> Instance:
    """Layers between joins of 1 ns, each with branches of one op: op0, l0b0, l0b1, ..., op1, ..."""
    times = {"gpu": 1}, {"gpu": op_ns}
    ops, edges = _stacked(layers, branches, *times, (sent, sent), size)
    links = draw.links(devices, lambda a, b: (10**9, 0))
    return draw.instance_of("stack", ops, edges, draw.devices(["gpu"] * devices), links)


def _stacked(
    layers: int,
    branches: int,
    join_ns: dict[str, int],
    op_ns: dict[str, int],
    sent: tuple[int, int],
    size: int = 0,
) -> tuple[list[Op], list[Edge]]:
    ops, edges = [draw.op(0, join_ns)], list[Edge]()
    for layer in range(layers):
        names = [f"l{layer}b{b}" for b in range(branches)]
        ops += [Op(name=name, time_ns=op_ns, resident_bytes=size) for name in names]
        ops.append(draw.op(layer + 1, join_ns))
        for name in names:
            edges.append(Edge(producer=f"op{layer}", consumer=name, bytes=sent[0]))
            edges.append(Edge(producer=name, consumer=f"op{layer + 1}", bytes=sent[1]))
    return ops, edges


def stacks(first_seed: int) -> Iterator[Instance]:
    """Instances of two equal layers with two branches, without end; some with a tensor that skips,
    a side input, or ops that stay together.
    """
    return (_stack(random.Random(f"stacks-{seed}"), f"stacks-{seed}") for seed in count(first_seed))


def _stack(rng: random.Random, name: str) -> Instance:
    num_devices = rng.choice([2, 2, 3])
    kinds = [f"gpu{rng.choice([0, k])}" for k in range(num_devices)]
    times = [{kind: rng.choice(TIMES) for kind in sorted(set(kinds))} for _ in range(2)]
    sent = rng.choice(BYTES), rng.choice(BYTES)
    ops, edges = _stacked(2, 2, times[0], times[1], sent)
    extra = rng.choice(["", "skip", "side", "together"])
    if extra == "skip":
        edges.append(Edge(producer="l0b0", consumer="l1b1", bytes=rng.choice(BYTES)))
    elif extra == "side":
        ops.append(Op(name="side", time_ns=times[1]))
        edges.append(Edge(producer="side", consumer="l1b0", bytes=rng.choice(BYTES)))
    elif extra == "together":
        pair = rng.sample(range(len(ops)), 2)
        ops = draw.together(ops, pair, kinds, "group")
    links = draw.links(num_devices, lambda a, b: (10**9, rng.choice([0, 0, 2])))
    return draw.instance_of(name, ops, edges, draw.devices(kinds), links)
