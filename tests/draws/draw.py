"""The steps that every generator of random instances takes; what it draws, each says itself.

Ops are named op0, op1, ... and devices d0, d1, ...; edges go from lower to higher numbers.
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise, permutations
from typing import Any, Literal, TypeVar

from placegap.instances import Cluster, Device, Edge, Graph, Instance, Link, Op

Pair = tuple[int, int]
Part = TypeVar("Part", Op, Device)


def instance_of(
    name: str,
    ops: Iterable[Op],
    edges: Iterable[Edge],
    devices: Iterable[Device],
    links: Iterable[Link] = (),
) -> Instance:
    """Ops and edges on a cluster; all three have one name."""
    return Instance(
        name=name,
        graph=Graph(name=name, ops=tuple(ops), edges=tuple(edges)),
        cluster=Cluster(name=name, devices=tuple(devices), links=tuple(links)),
    )


def changed(instance: Instance, **parts: Iterable[Any]) -> Instance:
    """The instance with other ops, edges, devices or links."""
    graph, cluster = (
        {name: getattr(one, name) for name in type(one).model_fields}
        for one in (instance.graph, instance.cluster)
    )
    for name, part in parts.items():
        (graph if name in graph else cluster)[name] = tuple(part)
    return Instance(name=instance.name, graph=Graph(**graph), cluster=Cluster(**cluster))


def with_memory(instance: Instance, *memory_bytes: int | None) -> Instance:
    """The instance with so many bytes of each device, or of all alike."""
    devices = instance.cluster.devices
    each = memory_bytes if len(memory_bytes) > 1 else memory_bytes * len(devices)
    fitted = [
        device.model_copy(update={"memory_bytes": size})
        for device, size in zip(devices, each, strict=True)
    ]
    return changed(instance, devices=fitted)


def row(ops: Sequence[Op], devices: Sequence[Device], **edge: int) -> Instance:
    """Each op sends to the next, and between any two devices a byte takes a ns."""
    ends = [{"producer": a.name, "consumer": b.name} for a, b in pairwise(ops)]
    edges = [Edge.model_validate({**pair, **edge}) for pair in ends]
    return instance_of("row", ops, edges, devices, fast_links(devices))


def fast_links(devices: Iterable[Device]) -> list[Link]:
    """From each device to each other; a byte takes a ns."""
    pairs = permutations([device.name for device in devices], 2)
    return [Link(source=a, target=b, bandwidth_bytes_per_s=10**9) for a, b in pairs]


def with_ops(instance: Instance, **columns: Iterable[object]) -> Instance:
    """The instance with other values of fields of its ops, in their order."""
    ops = _changed(instance.graph.ops, columns)
    return instance.with_graph(instance.graph.model_copy(update={"ops": ops}))


def with_devices(instance: Instance, **columns: Iterable[object]) -> Instance:
    """The instance with other values of fields of its devices, in their order."""
    devices = _changed(instance.cluster.devices, columns)
    cluster = instance.cluster.model_copy(update={"devices": devices})
    return instance.model_copy(update={"cluster": cluster})


def _changed(parts: Sequence[Part], columns: Mapping[str, Iterable[object]]) -> tuple[Part, ...]:
    rows = zip(*columns.values(), strict=True)
    return tuple(
        part.model_copy(update=dict(zip(columns, row, strict=True)))
        for part, row in zip(parts, rows, strict=True)
    )


def times(
    rng: random.Random,
    kinds: Sequence[str],
    time_ns: Callable[[], int],
    *,
    chance: float,
    always: str | None = None,
) -> dict[str, int]:
    """A time on one kind, which runs the op in any case, and by chance on each other."""
    always = rng.choice(kinds) if always is None else always
    return {kind: time_ns() for kind in kinds if kind == always or rng.random() < chance}


def op(
    i: int, time_ns: dict[str, int], size: int = 0, group: str | None = None, **fields: Any
) -> Op:
    return Op(name=f"op{i}", time_ns=time_ns, resident_bytes=size, colocation=group, **fields)


def ops(
    count: int, time_ns: Callable[[], dict[str, int]], size: Callable[[], int] = lambda: 0
) -> list[Op]:
    """Op by op, its times and then its bytes are drawn."""
    return [op(i, time_ns(), size()) for i in range(count)]


def pairs(rng: random.Random, sources: Iterable[int], num_ops: int, chance: float) -> list[Pair]:
    """By chance, each pair of a source and an op after it."""
    return [(a, b) for a in sources for b in range(a + 1, num_ops) if rng.random() < chance]


def some(rng: random.Random, chosen: Sequence[Pair], most: int) -> list[Pair]:
    """At most so many of the pairs, sorted."""
    return sorted(rng.sample(chosen, min(most, len(chosen))))


def edges(
    joined: Iterable[Pair],
    size: Sequence[int],
    one_tensor: Sequence[bool],
    own: Callable[[], int],
    measure: Literal["bytes", "host_time_ns"] = "bytes",
) -> list[Edge]:
    """An edge per pair: producers of one tensor send that, others draw a size for each edge."""
    return [
        Edge.model_validate(
            {
                "producer": f"op{a}",
                "consumer": f"op{b}",
                measure: size[a] if one_tensor[a] else own(),
                "tensor": "out" if one_tensor[a] else None,
            }
        )
        for a, b in joined
    ]


def links(count: int, width_and_latency: Callable[[int, int], tuple[int, int]]) -> list[Link]:
    """A link from each device to each other."""
    return [
        Link(source=f"d{a}", target=f"d{b}", bandwidth_bytes_per_s=width, latency_ns=latency)
        for a, b in permutations(range(count), 2)
        for width, latency in [width_and_latency(a, b)]
    ]


def devices(
    kinds: Sequence[str],
    memory_bytes: Callable[[int], int | None] = lambda k: None,
    *,
    hosts: int = 0,
) -> list[Device]:
    """A device of each kind in turn; the first ones are hosts, which have no limit of memory."""
    return [
        Device(
            name=f"d{k}",
            kind=kind,
            is_host=k < hosts,
            memory_bytes=None if k < hosts else memory_bytes(k),
        )
        for k, kind in enumerate(kinds)
    ]


def hosts_by_kind(kinds: Sequence[str], memory_bytes: Sequence[int | None]) -> list[Device]:
    """A device of each kind in turn; those of kind cpu are hosts, which have no limit of memory."""
    return [
        Device(name=f"d{k}", kind=kind, is_host=True)
        if kind == "cpu"
        else Device(name=f"d{k}", kind=kind, memory_bytes=memory_bytes[k])
        for k, kind in enumerate(kinds)
    ]


def together(
    ops: Sequence[Op], chosen: Iterable[int], kinds: Iterable[str], group: str
) -> list[Op]:
    """The ops with the chosen ones in one colocation group, where some kind runs them all."""
    members = sorted(chosen)
    if not any(all(kind in ops[i].time_ns for i in members) for kind in kinds):
        return list(ops)
    return [
        op.model_copy(update={"colocation": group}) if i in members else op
        for i, op in enumerate(ops)
    ]


def share_of(ops: Iterable[Op], numerator: int, denominator: int) -> int:
    """Bytes of all ops times a fraction, rounded up."""
    return -(-sum(op.resident_bytes for op in ops) * numerator // denominator)


def cluster_of(*kinds: str) -> Cluster:
    """A device of each kind, without links."""
    devices = tuple(Device(name=f"d{k}", kind=kind) for k, kind in enumerate(kinds))
    return Cluster(name="c", devices=devices)
