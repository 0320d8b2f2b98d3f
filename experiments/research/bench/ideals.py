"""Benchmarks of the ideal DP: how it grows over synthetic families of graphs, and ops of no time.

Chains side by side and blocks of branches in a row, with as many ideals as the name says, on K
accelerators and hosts ten times slower; times and tensors are lognormal (sigma 1), and the mean
transfer takes a given share of the mean op.

Then graphs like dnn-partitioning's (`partitioning_like`), whose zero-time ops hold bytes: on six
accelerators and a host without limits, and on five and eight hosts with memory that binds.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from placegap.experiments.research.bench.measuring import ExactRow, apart, measure
from placegap.experiments.research.workloads.partitioning_like import (
    KINDS,
    on_devices,
    partitioning_graph,
)
from placegap.instances.corpus.generate import generate
from placegap.instances.problem import Cluster, Device, Graph, Instance, Link, MaxLoad

CHAIN = MaxLoad(plans="chain")
BANDWIDTH = 10**10
"""That of the graphs' reference, so that the ratio of communication is the requested one."""

SIGMA = 1.0

TIME_LIMIT_S = 300.0
LIKE_LIMIT_S = 60.0


@dataclass(frozen=True)
class IdealCase:
    """A graph and its devices."""

    #: family, params: Of `generate`.
    family: str
    params: tuple[tuple[str, int], ...]
    accelerators: int
    hosts: int
    #: Mean transfer time divided by the mean time of an op.
    ratio: float
    seed: int = 0

    @property
    def name(self) -> str:
        """All of it, in a few words."""
        sizes = "x".join(str(size) for _, size in self.params)
        return (
            f"ideal-dp {self.family} {sizes} K={self.accelerators} C={self.hosts} cc={self.ratio:g}"
        )


def cases(*, large: bool = False) -> Iterator[IdealCase]:
    """Growth in ideals and in devices; `large` adds ten million ideals."""
    five, six = (("chains", 5), ("length", 9)), (("chains", 6), ("length", 9))
    two, three = (("chains", 2), ("length", 999)), (("chains", 3), ("length", 99))
    short = (("blocks", 10), ("branches", 4), ("length", 9))
    long = (("blocks", 10), ("branches", 4), ("length", 17))
    chains, blocks = "parallel-chains", "blocks"
    for family, params in (
        (chains, five),
        (blocks, short),
        (blocks, long),
        (chains, two),
        (chains, three),
        (chains, six),
    ):
        for ratio in (0.1, 1.0):
            yield IdealCase(family, params, 8, 1, ratio)
    for accelerators in (2, 8, 32):
        for ratio in (0.1, 1.0):
            yield IdealCase(chains, three, accelerators, 0, ratio)
            yield IdealCase(blocks, short, accelerators, 0, ratio)
    if large:
        yield IdealCase(chains, (("chains", 3), ("length", 215)), 8, 1, 0.1)


@dataclass(frozen=True)
class Like:
    """A graph like dnn-partitioning's and its devices."""

    #: Of `partitioning_like.KINDS`.
    family: str
    #: training, apart: With a backward pass; with weights as ops of their own.
    training: bool
    apart: bool
    #: Memory binds, with eight hosts; else all fits, with one.
    tight: bool

    @property
    def name(self) -> str:
        """All of it, in a few words."""
        words = ["ideal-dp like", self.family]
        words += ["training"] * self.training + ["weights apart"] * self.apart
        return " ".join([*words, "8 hosts, tight" if self.tight else "1 host"])


def like_cases() -> Iterator[Like]:
    """All families, as inference and as training graphs."""
    for tight in (False, True):
        for family in KINDS:
            for training in (False, True):
                for apart_ in (False, True):
                    yield Like(family, training, apart_, tight)


def ideal_rows(*, large: bool = False, only: str = "") -> Iterator[ExactRow]:
    """Run the cases whose name contains `only`, one after the other."""
    yield from apart((case for case in cases(large=large) if only in case.name), run)
    yield from apart((case for case in like_cases() if only in case.name), run)


def run(case: IdealCase | Like) -> ExactRow:
    """Solve one case in this process."""
    params: dict[str, object] = {"max_ideals": 10**8}
    made = instance(case) if isinstance(case, IdealCase) else like_instance(case)
    limit_s = TIME_LIMIT_S if isinstance(case, IdealCase) else LIKE_LIMIT_S
    return measure(case.name, made, CHAIN, "ideal-dp", params, limit_s, shown=2)


def like_instance(case: Like) -> Instance:
    """The graph of a case on its devices."""
    graph = partitioning_graph(case.family, training=case.training, apart=case.apart)
    if case.tight:
        return on_devices(graph, 5, 8, memory_share=1.5)
    return on_devices(graph, 6, 1)


def instance(case: IdealCase) -> Instance:
    """The graph of a case on its devices, which are all linked to each other."""
    params = {**dict(case.params), "communication_ratio": case.ratio}
    graph = _lognormal(generate(case.family, params, case.seed), case.seed)
    devices = [Device(name=f"gpu{k}", kind="gpu") for k in range(case.accelerators)]
    devices += [Device(name=f"cpu{k}", kind="cpu", is_host=True) for k in range(case.hosts)]
    links = [
        Link(source=a.name, target=b.name, bandwidth_bytes_per_s=BANDWIDTH)
        for a in devices
        for b in devices
        if a is not b
    ]
    cluster = Cluster(name="all-to-all", devices=tuple(devices), links=tuple(links))
    return Instance(name=case.name, graph=graph, cluster=cluster)


def _lognormal(graph: Graph, seed: int) -> Graph:
    """The graph with lognormal factors of mean 1 on ops' times and on tensors' bytes."""
    rng = random.Random(f"lognormal {seed}")

    def factor() -> float:
        return rng.lognormvariate(-(SIGMA**2) / 2, SIGMA)

    ops = []
    for op in graph.ops:
        by = factor()
        times = {kind: round(t * by) for kind, t in op.time_ns.items() if t is not None}
        ops.append(op.model_copy(update={"time_ns": times}))
    sizes = {op.name: factor() for op in graph.ops}
    edges = tuple(
        edge.model_copy(update={"bytes": round(edge.bytes * sizes[edge.producer])})
        for edge in graph.edges
        if edge.bytes is not None
    )
    return graph.model_copy(update={"ops": tuple(ops), "edges": edges})
