"""Optimal values, each computed once per session, and the standard draws they are of."""

import random
from collections.abc import Iterator
from functools import cache
from itertools import count, cycle, islice

from draws import draw
from draws.tiny import tiny_instance

from placegap.instances import (
    Instance,
    LatencySubgraphs,
    Makespan,
    MaxLoad,
    MaxLoadFwdBwd,
    Semantics,
)
from placegap.solvers import Task, brute_force
from placegap.solvers.core.method import Params

MAKESPAN_SEMANTICS = tuple(
    Makespan(channels=channels, transfers=transfers)
    for channels in ("free", "link", "port", "half_duplex")
    for transfers in ("per_edge", "per_tensor")
)
MAX_LOAD_SEMANTICS = tuple(
    MaxLoad(plans=plans, load=load)
    for plans in ("any", "convex", "chain")
    for load in ("add", "overlap")
)
FWD_BWD_SEMANTICS = tuple(
    MaxLoadFwdBwd(plans=plans, load=load)
    for plans in ("any", "convex", "chain")
    for load in ("add", "overlap")
)
STAGE_SEMANTICS = tuple(
    MaxLoad(plans=plans, load=load, replicas=replicas, levels=levels)
    for plans, load in (("any", "add"), ("convex", "overlap"), ("chain", "add"))
    for replicas, levels in ((True, 1), (False, 2), (True, 2))
)
LATENCY_SEMANTICS = tuple(LatencySubgraphs(subgraphs=q) for q in (1, 2))
INFEASIBLE_DRAWS = 5
"""How many of the draws have no feasible plan."""


def oracle(instance: Instance, semantics: Semantics) -> int | None:
    """Optimal value in ns, None if no plan is feasible."""
    key = instance.content_hash, semantics
    if key not in _VALUES:
        task = Task(instance, semantics)
        reason = brute_force.applies(task, Params())
        assert reason is None, reason
        _VALUES[key] = brute_force.run(task, Params()).claim
    return _VALUES[key]


_VALUES: dict[tuple[str, Semantics], int | None] = {}


def scattered_instance(seed: int, *, num_ops: int, num_devices: int, max_edges: int) -> Instance:
    """A random instance whose ops must be spread, so that its channels are busy."""
    rng = random.Random(f"scattered-{seed}-{num_ops}-{num_devices}-{max_edges}")
    kinds = [f"gpu{k}" for k in range(num_devices)]
    ops = draw.ops(num_ops, lambda: draw.times(rng, kinds, lambda: rng.randrange(6), chance=0.35))
    sources = sorted(rng.sample(range(num_ops - 2), min(num_ops - 2, rng.choice([2, 3]))))
    pairs = draw.some(rng, draw.pairs(rng, sources, num_ops, 0.8), max_edges)
    size = [rng.randrange(10) for _ in ops]
    shares = [rng.random() < 0.7 for _ in ops]
    edges = draw.edges(pairs, size, shares, lambda: rng.randrange(10))
    links = draw.links(num_devices, lambda a, b: (10**9, rng.choice([0, 1])))
    return draw.instance_of(f"scattered-{seed}", ops, edges, draw.devices(kinds), links)


@cache
def makespan_draws() -> tuple[Instance, ...]:
    """110 random instances of 4 to 6 ops, 2 or 3 devices, at most 6 edges; 5 are infeasible."""
    return mostly_feasible(more_makespan(0), 110, MAKESPAN_SEMANTICS[0])


def more_makespan(first_seed: int) -> Iterator[Instance]:
    """Instances like those of `makespan_draws`, without end."""
    sizes = cycle(((4, 2, 5), (5, 2, 6), (4, 3, 5), (5, 3, 5), (6, 2, 6), (6, 3, 5)))
    return (
        draw(seed, num_ops=n, num_devices=k, max_edges=m)
        for seed, (n, k, m) in zip(count(first_seed), sizes, strict=False)
        for draw in (tiny_instance, scattered_instance)
    )


@cache
def max_load_draws() -> tuple[Instance, ...]:
    """110 random instances of 5 to 8 ops, 2 or 3 devices, some with a host and backward ops."""
    return mostly_feasible(more_max_load(0), 110, MAX_LOAD_SEMANTICS[0])


def more_max_load(first_seed: int) -> Iterator[Instance]:
    """Instances like those of `max_load_draws`, without end."""
    sizes = ((5, 2, 0, False), (6, 3, 1, True), (7, 3, 0, False), (6, 2, 0, True), (8, 3, 1, False))
    return (
        tiny_instance(seed, num_ops=n, num_devices=k, hosts=hosts, backward=backward)
        for seed, (n, k, hosts, backward) in zip(count(first_seed), cycle(sizes), strict=False)
    )


@cache
def stage_draws() -> tuple[Instance, ...]:
    """100 random instances of 3 to 5 ops on 3 devices in two servers, ops with parameters."""
    return tuple(islice(more_stages(1000), 100))


def more_stages(first_seed: int) -> Iterator[Instance]:
    """Instances like those of `stage_draws`, without end."""
    sizes = ((3, 0, False), (4, 1, False), (5, 0, True), (4, 0, True), (5, 0, False))
    return (
        _in_servers(
            tiny_instance(seed, num_ops=n, num_devices=3, hosts=hosts, backward=backward), seed
        )
        for seed, (n, hosts, backward) in zip(count(first_seed), cycle(sizes), strict=False)
    )


def _in_servers(instance: Instance, seed: int) -> Instance:
    """Devices 1 and 2 in one server, made alike for even seeds; parameters for all ops."""
    rng = random.Random(f"servers-{seed}")
    ops = tuple(
        op.model_copy(update={"parameter_bytes": rng.randrange(4)}) for op in instance.graph.ops
    )
    first, second, third = instance.cluster.devices
    if seed % 2 == 0:
        third = second.model_copy(update={"name": third.name})
        ops = tuple(
            op.model_copy(update={"time_ns": {**op.time_ns, second.kind: rng.randrange(10)}})
            for op in ops
        )
    devices = tuple(
        device.model_copy(update={"server": server})
        for device, server in zip((first, second, third), ("s0", "s1", "s1"), strict=True)
    )
    links = instance.cluster.links
    if seed % 2 == 0:
        links = tuple(draw.links(3, lambda a, b: (10**9, 0)))
    return draw.instance_of(f"servers-{seed}", ops, instance.graph.edges, devices, links)


@cache
def latency_draws() -> tuple[Instance, ...]:
    """110 random instances of 3 to 5 ops, 2 or 3 devices, with and without a host."""
    return mostly_feasible(more_latency(2000), 110, LATENCY_SEMANTICS[0])


def more_latency(first_seed: int) -> Iterator[Instance]:
    """Instances like those of `latency_draws`, without end."""
    sizes = ((3, 2, 1), (4, 2, 1), (5, 3, 1), (4, 2, 0), (5, 2, 1), (4, 3, 1), (4, 2, 2), (5, 2, 0))
    return (
        tiny_instance(seed, num_ops=n, num_devices=k, hosts=hosts)
        for seed, (n, k, hosts) in zip(count(first_seed), cycle(sizes), strict=False)
    )


def mostly_feasible(
    candidates: Iterator[Instance], number: int, rules: Semantics, most: int = INFEASIBLE_DRAWS
) -> tuple[Instance, ...]:
    """The first candidates, without those that are infeasible after so many."""
    drawn: list[Instance] = []
    infeasible = 0
    while len(drawn) < number:
        instance = next(candidates)
        is_infeasible = oracle(instance, rules) is None
        infeasible += is_infeasible
        if infeasible <= most or not is_infeasible:
            drawn.append(instance)
    return tuple(drawn)
