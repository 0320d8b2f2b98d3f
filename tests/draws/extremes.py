"""Tiny random instances whose numbers are 0, 10^15, and all between them, side by side."""

import random
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

from draws.corners import odd_instance
from draws.hybrid import hybrid_instance, hybrid_semantics
from draws.peak import add_state, with_peak
from draws.pipelines import pipeline_instance
from draws.plans import ITERATIONS, LATENCY, STAGES
from pydantic import BaseModel, ValidationError
from references.brute_force import FWD_BWD_SEMANTICS, MAKESPAN_SEMANTICS, MAX_LOAD_SEMANTICS

from placegap.instances import (
    Cache,
    Cluster,
    Device,
    Edge,
    Graph,
    InputError,
    Instance,
    Link,
    MaxContext,
    Mode,
    Op,
    Semantics,
)
from placegap.instances.problem import Objective

MOST = 10**15
"""Nanoseconds of an op or a latency, and bytes of a tensor, an op or a device: 11 days, 1 PB."""

SCALES = (1, 10**6, 10**9, MOST)
"""What the largest time and the largest size of an instance are about."""

WIDTHS = (1, 999, 10**6 + 1, 10**9, MOST)
"""Bytes per second of a link."""

RULES: dict[Objective, Sequence[Semantics]] = {
    "makespan": MAKESPAN_SEMANTICS,
    "max_load": (*MAX_LOAD_SEMANTICS, *STAGES),
    "max_load_fwd_bwd": FWD_BWD_SEMANTICS,
    "latency_subgraphs": LATENCY,
    "pipeline_iteration": ITERATIONS,
    "max_context": tuple(
        MaxContext(plans=plans, load=load, at_most_ns=most)
        for plans in ("any", "convex", "chain")
        for load in ("add", "overlap")
        for most in (None, MOST, 0)
    ),
}


def extreme_tasks(
    seed: int, objectives: Sequence[Objective]
) -> Iterator[tuple[Instance, Semantics]]:
    """Without end, but what the door refuses; some lack what their semantics needs."""
    rng = random.Random(f"extreme-{seed}-{objectives}")
    for number in count(100_000 * seed):
        objective = rng.choice(objectives)
        if objective == "hybrid_pipeline":
            plain, semantics = hybrid_instance(rng, 4, 4), hybrid_semantics(rng)
        else:
            semantics = rng.choice(RULES[objective])
            layers = 0.7 if objective == "pipeline_iteration" else 0.4
            plain = odd_instance(number, largest=6)
            if rng.random() < layers:
                weights = rng.random() < 0.5
                plain = pipeline_instance(number, most_layers=4, most_devices=3, weights=weights)
            if rng.random() < 0.4:
                plain = add_state(plain, number)
            if "memory" in type(semantics).model_fields and rng.random() < 0.3:
                semantics = with_peak(semantics)
        found = stretched(plain, number, caches=objective == "max_context")
        if found is not None:
            yield found, semantics


def stretched(instance: Instance, seed: int, *, caches: bool = False) -> Instance | None:
    """The instance with times, sizes, memory and links far apart; None where sums are refused."""
    draw = _Draw(random.Random(f"stretched-{seed}-{instance.name}"), instance, caches=caches)
    graph, cluster = instance.graph, instance.cluster
    name = f"{instance.name}-{seed}-stretched"
    ops, edges = tuple(map(draw.op, graph.ops, count())), draw.edges(graph.edges)
    links = tuple(map(draw.link, cluster.links))
    devices = tuple(map(draw.device, cluster.devices))
    try:
        return Instance(
            name=name,
            graph=Graph(name=graph.name, ops=ops, edges=edges),
            cluster=Cluster(name=cluster.name, devices=devices, links=links),
        )
    except (ValidationError, InputError):
        return None


class _Draw:
    """What stretches one instance; half of them keep alike what is alike."""

    def __init__(self, rng: random.Random, instance: Instance, *, caches: bool) -> None:
        ops, edges = instance.graph.ops, instance.graph.edges
        self.rng, self.caches = rng, caches
        self.alike = rng.random() < 0.5 or any(op.modes for op in ops)
        longest = max((time for op in ops for time in op.time_ns.values()), default=0)
        largest = max([op.resident_bytes for op in ops] + [edge.bytes for edge in edges])
        self.time_ns = max(1, rng.choice(SCALES) // max(1, longest))
        self.bytes = max(1, rng.choice(SCALES) // max(1, largest))
        self.width, self.latency = rng.choice(WIDTHS), rng.choice((0, 0, *SCALES))
        self.no_room = rng.random() < 0.05

    def number(self, value: int, factor: int) -> int:
        """The number times the factor, or another one."""
        if self.rng.random() < 0.8:
            return min(MOST, value * factor)
        return self.rng.choice([0, 1, MOST, int(10 ** self.rng.uniform(0, 15))])

    def fields(self, part: BaseModel) -> dict[str, Any]:
        """Times and bytes of an op, a mode or an edge."""
        found: dict[str, Any] = {}
        for name, value in part:
            if value is None:
                continue
            if name == "time_ns":
                found[name] = {kind: self.number(t, self.time_ns) for kind, t in value.items()}
            elif name == "host_time_ns":
                found[name] = self.number(value, self.time_ns)
            elif name == "transfer_ns":
                found[name] = tuple(
                    tuple(self.number(t, self.time_ns) for t in row) for row in value
                )
            elif name in ("enter_bytes", "leave_bytes", "shared_state"):
                found[name] = {key: min(MOST, size * self.bytes) for key, size in value.items()}
            elif name.endswith("bytes"):
                found[name] = self.number(value, self.bytes)
        return found

    def op(self, op: Op, number: int) -> Op:
        """The op, as a layer of its own; perhaps with a cache."""
        modes = tuple(map(self.mode, op.modes))
        update = self.fields(op) | {"modes": modes, "module": f"layers.{number}"}
        if self.caches and self.rng.random() < 0.6:
            size = max(1, self.number(1, self.bytes))
            update["caches"] = (Cache(token_bytes=size, most_tokens=self.rng.choice([None, 9])),)
        return op.model_copy(update=update)

    def mode(self, mode: Mode) -> Mode:
        """The mode; what replicas share stays a part of the state."""
        parts = ("state_bytes", "sharded_bytes", "gradient_bytes")
        scaled = {name: getattr(mode, name) * self.bytes for name in parts}
        return mode.model_copy(update=self.fields(mode) | scaled)

    def edges(self, edges: Sequence[Edge]) -> tuple[Edge, ...]:
        """The edges; those of one tensor stay alike."""
        of_tensor: dict[tuple[str, str], dict[str, Any]] = {}
        made = []
        for edge in edges:
            update = self.fields(edge)
            if edge.tensor is not None:
                update = of_tensor.setdefault((edge.producer, edge.tensor), update)
            made.append(edge.model_copy(update=update))
        return tuple(made)

    def device(self, device: Device) -> Device:
        """The device; it may have no room at all."""
        limit = device.memory_bytes
        if self.no_room:
            limit = 0
        elif not self.alike and self.rng.random() < 0.3:
            limit = self.rng.choice((0, 1, MOST, None))
        elif limit is not None:
            limit = min(MOST, limit * self.bytes)
        return device.model_copy(update={"memory_bytes": limit})

    def link(self, link: Link) -> Link:
        width, latency = self.width, self.latency
        if not self.alike:
            width = self.rng.choice([*WIDTHS, width, width])
            latency = self.rng.choice([0, latency])
        return link.model_copy(update={"bandwidth_bytes_per_s": width, "latency_ns": latency})
