"""Random instances for latency_subgraphs, and their optimal values by brute force."""

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import count, cycle

from draws import draw
from draws.tiny import tiny_instance
from features.makespan import edges_of
from references.brute_force import mostly_feasible

from placegap.instances import Edge, Instance, LatencySubgraphs, Op, Plan, Semantics
from placegap.instances.oracle.placements import best_calls

ONCE, TWICE = (LatencySubgraphs(subgraphs=q) for q in (1, 2))
LATENCY_SEMANTICS = (ONCE, TWICE)
SIZES = ((4, 2, 0), (5, 2, 1), (5, 3, 1), (4, 3, 2), (5, 3, 0), (6, 2, 1))
"""Ops, devices, hosts among them; with backward ops where the number is even."""


def by_hand(
    ops: Iterable[Op],
    edges: str = "",
    kinds: Sequence[str] = ("gpu", "gpu"),
    room: int | None = None,
) -> Instance:
    """Edges "producer consumer ns, ..." in host time; devices of kind cpu are hosts."""
    joined = [Edge(producer=a, consumer=b, host_time_ns=ns) for a, b, ns in edges_of(edges)]
    devices = draw.hosts_by_kind(kinds, [room] * len(kinds))
    return draw.instance_of("by hand", ops, joined, devices)


@cache
def latency_draws(number: int = 48) -> tuple[Instance, ...]:
    """Random instances: zero times, memory pressure, colocation, hosts or none, equal devices."""
    drawn = (
        tiny_instance(seed, num_ops=n, num_devices=k, hosts=hosts, backward=n % 2 == 0)
        for seed, (n, k, hosts) in zip(count(), cycle(SIZES), strict=False)
    )
    return mostly_feasible(drawn, number, ONCE, most=3)


def optimum(instance: Instance, semantics: Semantics) -> int | None:
    """Optimal latency in ns, None if no plan is feasible."""
    best = best_plan(instance, semantics)
    return None if best is None else best[0]


def best_plan(instance: Instance, semantics: Semantics) -> tuple[int, Plan] | None:
    """Optimal latency and a plan that has it."""
    key = instance.content_hash, semantics
    if key not in _BEST:
        _BEST[key] = best_calls(instance, semantics)
    return _BEST[key]


_BEST: dict[tuple[str, Semantics], tuple[int, Plan] | None] = {}
