"""A four-op instance for docstrings and first steps."""

from __future__ import annotations

from placegap.instances.problem.cluster import Cluster, Device
from placegap.instances.problem.graph import Graph
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.links import Link
from placegap.instances.problem.op import Edge, Op
from placegap.instances.problem.part import Provenance


def example() -> Instance:
    """Zeng et al., FD-DPS, figure 3: a diamond of four ops on two equal devices.

    Ops take 5, 20, 10 and 8 ns; the transfers 1 -> 2, 1 -> 3, 2 -> 4, 3 -> 4 take 1, 20, 1, 10 ns.

    Examples
    --------
    >>> [op.name for op in example().graph.ops]
    ['op1', 'op2', 'op3', 'op4']
    """
    times = {"op1": 5, "op2": 20, "op3": 10, "op4": 8}
    edges = (("op1", "op2", 1), ("op1", "op3", 20), ("op2", "op4", 1), ("op3", "op4", 10))
    bytes_per_ns = 10**9
    return Instance(
        name="diamond",
        graph=Graph(
            name="diamond",
            ops=tuple(Op(name=name, time_ns={"gpu": time}) for name, time in times.items()),
            edges=tuple(Edge(producer=a, consumer=b, bytes=size) for a, b, size in edges),
            provenance=Provenance(source="FD-DPS (Mathematics 2022, 10, 4788), figure 3"),
        ),
        cluster=Cluster(
            name="two-gpus",
            devices=(Device(name="gpu0", kind="gpu"), Device(name="gpu1", kind="gpu")),
            links=(
                Link(source="gpu0", target="gpu1", bandwidth_bytes_per_s=bytes_per_ns),
                Link(source="gpu1", target="gpu0", bandwidth_bytes_per_s=bytes_per_ns),
            ),
        ),
    )
