"""Benchmarks of the ideal DP: how it grows over synthetic families of graphs.

Chains side by side and blocks of branches in a row, with as many ideals as the name says, on K
accelerators and hosts ten times slower; times and tensors are lognormal (sigma 1), and the mean
transfer takes a given share of the mean op. Each row is one run in a fresh process, so that its
peak memory, Python's own included, is its own.
"""

from __future__ import annotations

import multiprocessing
import random
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from placegap.experiments.bench_process import cpu_s, peak_bytes
from placegap.instances.generate import generate
from placegap.instances.model import Cluster, Device, Graph, Instance, Link
from placegap.instances.semantics import Semantics
from placegap.solvers import solve

CHAIN = Semantics(objective="max_load", plans="chain")
BANDWIDTH = 10**10
"""That of the graphs' reference, so that the ratio of communication is what was asked for."""

SIGMA = 1.0


@dataclass(frozen=True)
class Case:
    """A graph and its devices.

    Attributes
    ----------
    family, params
        Of `generate`.
    accelerators, hosts : int
    ratio : float
        Mean transfer time divided by the mean time of an op.
    """

    family: str
    params: tuple[tuple[str, int], ...]
    accelerators: int
    hosts: int
    ratio: float
    seed: int = 0

    @property
    def name(self) -> str:
        """All of it, in a few words."""
        sizes = "x".join(str(size) for _, size in self.params)
        return f"{self.family} {sizes} K={self.accelerators} C={self.hosts} cc={self.ratio:g}"


@dataclass(frozen=True)
class Row:
    """What a run found: ns, CPU and wall seconds of the solve, bytes of its whole process."""

    name: str
    ideals: int | None
    kept_ideals: int | None
    value_ns: int | None
    bound_ns: int | None
    status: str
    cpu_s: float
    wall_s: float
    peak_bytes: int


def cases(*, large: bool = False) -> Iterator[Case]:
    """Growth in ideals and in devices; `large` adds ten million ideals."""
    five, six = (("chains", 5), ("length", 9)), (("chains", 6), ("length", 9))
    two, three = (("chains", 2), ("length", 999)), (("chains", 3), ("length", 99))
    short = (("blocks", 10), ("branches", 4), ("length", 9))
    long = (("blocks", 10), ("branches", 4), ("length", 17))
    chains, blocks = "parallel-chains", "blocks"
    for family, params in (
        (chains, five), (blocks, short), (blocks, long), (chains, two), (chains, three),
        (chains, six),
    ):  # fmt: skip
        for ratio in (0.1, 1.0):
            yield Case(family, params, 8, 1, ratio)
    for accelerators in (2, 8, 32):
        for ratio in (0.1, 1.0):
            yield Case(chains, three, accelerators, 0, ratio)
            yield Case(blocks, short, accelerators, 0, ratio)
    if large:
        yield Case(chains, (("chains", 3), ("length", 215)), 8, 1, 0.1)


def ideal_rows(*, large: bool = False, only: str = "", time_limit_s: float = 300) -> Iterator[Row]:
    """Run the cases whose name contains `only`, one after the other."""
    for case in cases(large=large):
        if only not in case.name:
            continue
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(max_workers=1, mp_context=spawn) as pool:
            yield pool.submit(measure, case, time_limit_s).result()


def measure(case: Case, time_limit_s: float) -> Row:
    """Solve one case in this process, after a small one that loads the kernels."""
    for small in (("chains", 3), ("length", 3)), (("chains", 5), ("length", 4)):
        solve(instance(Case("parallel-chains", small, 2, 1, 1.0)), CHAIN, "ideal-dp")
    asked = instance(case)
    cpu, wall = cpu_s(), time.perf_counter()
    found = solve(asked, CHAIN, "ideal-dp", {"max_ideals": 10**8}, time_limit_s=time_limit_s)
    cpu, wall = cpu_s() - cpu, time.perf_counter() - wall
    counts = {key: value for key, value in found.details.items() if isinstance(value, int)}
    return Row(
        case.name, counts.get("ideals"), counts.get("kept_ideals"), found.value_ns,
        found.bound_ns, found.status, cpu, wall, peak_bytes(),
    )  # fmt: skip


def instance(case: Case) -> Instance:
    """The graph of a case on its devices, which are all linked to each other.

    Examples
    --------
    >>> made = instance(Case("parallel-chains", (("chains", 2), ("length", 3)), 2, 1, 0.1))
    >>> made.num_ops, [device.name for device in made.cluster.devices]
    (6, ['gpu0', 'gpu1', 'cpu0'])
    """
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
