"""Small random models of numbered layers, in the corners that lines of tools have.

Layers of one to four ops, some with experts; ops outside of all modules, skips, tied weights,
groups of ops, zero times and bytes; up to four cards, of kinds that lack ops, and up to two hosts.
"""

import random
from itertools import pairwise, permutations
from typing import Any

from draws.draw import instance_of
from pydantic import ValidationError

from placegap.instances import (
    Device,
    Edge,
    Instance,
    Link,
    Makespan,
    MatrixProduct,
    MaxLoad,
    Op,
    Semantics,
)

EXPERTS = 3
"""Of each layer that has any."""

GATE = MatrixProduct(m=1, n=EXPERTS, k=8, dtype="float32")


def line_model(seed: int, *, has_experts: bool = False) -> tuple[Instance, Semantics]:
    """The first valid instance that a seed draws, and rules."""
    rng = random.Random(f"lines-{seed}")
    while True:
        memory: Any = rng.choice(["sum", "sum", "peak"])
        channels: Any = rng.choice(["free", "link", "port", "half_duplex"])
        transfers: Any = rng.choice(["per_edge", "per_tensor"])
        plans: Any = rng.choice(["any", "chain"])
        load: Any = rng.choice(["add", "add", "overlap"])
        rules: Semantics = MaxLoad(plans=plans, load=load, memory=memory)
        if rng.random() < 0.5:
            rules = Makespan(channels=channels, transfers=transfers, memory=memory)
        try:
            drawn = _Drawn(rng, has_experts=has_experts, is_peak=memory == "peak")
            return instance_of(f"lines-{seed}", *drawn.parts()), rules
        except ValidationError:  # devices without a path, or a group that no kind runs
            continue


class _Drawn:
    """Ops and edges of a model, and a cluster for it."""

    def __init__(self, rng: random.Random, *, has_experts: bool, is_peak: bool) -> None:
        self.rng, self.sparse, self.is_peak, pick = rng, has_experts, is_peak, rng.choice
        self.kinds = pick([["a"], ["a"], ["a", "b"], ["a", "b", "c"]])
        self.longest, self.unit = pick([1, 9, 9, 50]), pick([1, 1, 2**23])
        self.lacking, self.idle = pick([0, 0, 0.05, 0.2]), pick([0, 0, 0, 0.5])
        self.grouped, self.named = pick([0, 0, 0, 0.15]), pick([0, 0.5, 1])
        self.lasting = pick([(0,), (0, 0, 1, 3), (0, 0, 0, 20 if is_peak else 2)])
        self.ops, self.edges, self.size = list[Op](), list[Edge](), dict[str, int]()

    def add(self, name: str, module: str | None, large: int = 1, **fields: Any) -> str:
        rng, unit, idle = self.rng, self.unit, self.rng.random() < self.idle
        able = [k for k in (*self.kinds, "cpu") if rng.random() >= self.lacking] or ["a"]
        times = {k: 0 if idle else rng.randint(0, self.longest) for k in able}
        times |= {"cpu": 3 * times["cpu"]} if "cpu" in times else {}
        state = 0 if idle else unit * large * rng.randint(0, 4)
        fields |= {"state_bytes": state, "parameter_bytes": state}
        fields["resident_bytes"] = state + unit * rng.choice(self.lasting)
        fields["workspace_bytes"] = unit * rng.choice([0, 0, 0, 2])
        fields["colocation"] = rng.choice("xy") if rng.random() < self.grouped else None
        self.ops.append(Op(name=name, module=module, time_ns=times, **fields))
        return name

    def feed(self, a: str, b: str) -> str:
        size = self.size.setdefault(a, self.rng.randint(0, self.longest))
        tensor = "y" if self.rng.random() < self.named else None
        self.edges.append(Edge(producer=a, consumer=b, bytes=size, tensor=tensor))
        return b

    def layer(self, n: int, path: str, before: str, parts: list[str]) -> str:
        """Adds a layer; its last op."""
        for part in parts:
            inner = f"mlp.{part}" if part in ("gate", "experts") else part
            large = self.rng.choice([1, 5, 9]) if part == "experts" else 1
            module = path if len(parts) == 1 else f"{path}.{inner}"
            self.add(f"{part}{n}", module, large, kernel=GATE if part == "gate" else None)
        for a, b in pairwise([before, *(f"{part}{n}" for part in parts)]):
            self.feed(a, b)
        for part in ("experts", "mlp"):
            if "gate" in parts and self.rng.random() < 0.7:
                self.feed(f"attn{n}", f"{part}{n}")
        return f"{parts[-1]}{n}"

    def parts(self) -> tuple[list[Op], list[Edge], list[Device], list[Link]]:
        rng, num = self.rng, self.rng.choice([1, 2, 2, 3, 3, 4, 5])
        owner, is_sparse = rng.choice(["m.", "model.", ""]), self.sparse or rng.random() < 0.5
        outer, stray, skips = (
            owner[:-1] or None,
            rng.choice([0, 0, 0, 0.5]),
            rng.choice([0, 0, 0.3]),
        )
        tied = rng.choice([{}, {}, {}, {"shared_state": {"table": self.unit * 3}}])
        before = self.add("embed", f"{owner}embed_tokens", **tied)
        masks = [self.add("mask", outer)] if rng.random() < stray else []
        for n in range(num):
            parts = rng.choice([["attn"], ["attn", "mlp"]])
            if is_sparse and (self.sparse or rng.random() < 0.8):
                parts = ["attn", "gate", "experts", "mlp"]
            last = self.layer(n, f"{owner}layers.{n}", before, parts)
            for mask in masks:
                self.feed(mask, f"attn{n}")
            if rng.random() < stray:  # a sum that the model itself makes
                last = self.feed(last, self.add(f"add{n}", outer))
            if n and rng.random() < skips:
                self.feed(rng.choice(["embed", "attn0"]), last)
            before = last
        if rng.random() < 0.7:
            before = self.feed(before, self.add("norm", f"{owner}norm"))
        self.feed(before, self.add("lm_head", f"{owner}lm_head", **tied))
        devices = self.devices(4 if num < 3 else 3 if num < 4 and not is_sparse else 2)
        return self.ops, self.measured(len(devices)), devices, self.links(devices)

    def devices(self, most: int) -> list[Device]:
        rng, tight, alike = self.rng, self.rng.random(), self.rng.random() < 0.4
        total = sum(op.resident_bytes for op in self.ops)
        if self.is_peak and rng.random() < 0.7:
            total = sum(op.state_bytes or 0 for op in self.ops) + 4 * self.unit
        if rng.random() < 0.15:  # experts that fit no card
            total = sum(op.resident_bytes for op in self.ops if "experts" not in op.name)
        rooms = [rng.randint(total // (5 if tight < 0.6 else 2), total) for _ in range(9)]
        room = [
            None if tight < 0.3 or rng.random() < 0.1 else rooms[0 if alike else k]
            for k in range(9)
        ]
        cards = rng.randint(1, most) * (rng.random() > 0.02)
        own = [
            Device(name=f"g{k}", kind=rng.choice(self.kinds), memory_bytes=room[k])
            for k in range(cards)
        ]
        for k in range(rng.choice([0, 1, 1, 1, 2]) or not cards):
            kind, is_host = rng.choice([*[("cpu", True)] * 13, *[("cpu", False)] * 6, ("a", True)])
            free = rng.choice([None, room[-1 - k]])
            own.append(Device(name=f"h{k}", kind=kind, memory_bytes=free, is_host=is_host))
        return rng.sample(own, len(own)) if rng.random() < 0.2 else own

    def measured(self, count: int) -> list[Edge]:
        """The edges, in some models with times of their own in place of bytes."""
        rng, what, times = self.rng, self.rng.random(), dict[str, dict[str, Any]]()
        for edge in self.edges if what < 0.2 else []:
            matrix = [[rng.randint(0, 9) * (a != b) for b in range(count)] for a in range(count)]
            stated = {"transfer_ns": matrix} if what < 0.05 else {"host_time_ns": rng.randint(0, 9)}
            times.setdefault(edge.producer, stated)
        rows = (edge.model_dump() | times.get(edge.producer, {}) for edge in self.edges)
        return [Edge.model_validate(row) for row in rows]

    def links(self, devices: list[Device]) -> list[Link]:
        rng, missing, unlike = self.rng, self.rng.choice([0, 0, 0.2]), self.rng.choice([1, 3])
        found = list[Link]()
        for a, b in permutations(devices, 2):
            if rng.random() >= missing:
                width, wait = 10**9 // rng.randint(1, unlike), rng.choice([0, 0, 2]) * (unlike > 1)
                ends = {"source": a.name, "target": b.name}
                found.append(Link(**ends, bandwidth_bytes_per_s=width, latency_ns=wait))
        return found
