"""Small random models of numbered layers, in the corners that lines of tools have.

Layers of one to four ops, some with experts; ops outside of all modules, skips, tied weights,
groups of ops, zero times and bytes; up to four cards, of kinds that lack ops, and up to two hosts.
"""

from __future__ import annotations

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


def line_model(seed: int, *, has_experts: bool = False) -> tuple[Instance, Semantics]:
    """The first valid instance that a seed draws, and rules."""
    rng = random.Random(f"lines-{seed}")
    while True:
        try:
            return _Drawn(rng).instance(f"lines-{seed}", has_experts), _rules(rng)
        except ValidationError:  # devices without a path, or a group that no kind runs
            continue


def _rules(rng: random.Random) -> Semantics:
    memory: Any = rng.choice(["sum", "sum", "peak"])
    channels: Any = rng.choice(["free", "link", "port", "half_duplex"])
    transfers: Any = rng.choice(["per_edge", "per_tensor"])
    plans: Any = rng.choice(["any", "chain"])
    load: Any = rng.choice(["add", "add", "overlap"])
    if rng.random() < 0.5:
        return Makespan(channels=channels, transfers=transfers, memory=memory)
    return MaxLoad(plans=plans, load=load, memory=memory)


class _Drawn:
    """Ops and edges of a model, and a cluster for it."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, pick = rng, rng.choice
        self.kinds = pick([["a"], ["a"], ["a", "b"], ["a", "b", "c"]])
        self.longest, self.unit = pick([1, 9, 9, 50]), pick([1, 1, 2**23])
        self.lacking, self.idle = pick([0, 0, 0.05, 0.2]), pick([0, 0, 0, 0.5])
        self.grouped, self.named = pick([0, 0, 0, 0.15]), pick([0, 0.5, 1])
        self.lasting = pick([(0,), (0, 0, 1, 3)])
        self.ops, self.edges, self.size = list[Op](), list[Edge](), dict[str, int]()

    def add(self, name: str, module: str | None, large: int = 1, **fields: Any) -> str:
        rng, unit, idle = self.rng, self.unit, self.rng.random() < self.idle
        able = [k for k in (*self.kinds, "cpu") if rng.random() >= self.lacking] or ["a"]
        times = {
            k: 0 if idle else rng.randint(0, self.longest) * (1 + 2 * (k == "cpu")) for k in able
        }
        state = 0 if idle else unit * large * rng.randint(0, 4)
        sizes = {"resident_bytes": state + unit * rng.choice(self.lasting)}
        sizes |= {"state_bytes": state, "parameter_bytes": state}
        sizes["workspace_bytes"] = unit * rng.choice([0, 0, 0, 2])
        group = rng.choice("xy") if rng.random() < self.grouped else None
        fields |= {"name": name, "module": module, "time_ns": times, "colocation": group}
        self.ops.append(Op(**fields, **sizes))
        return name

    def feed(self, a: str, b: str) -> None:
        size = self.size.setdefault(a, self.rng.randint(0, self.longest))
        tensor = "y" if self.rng.random() < self.named else None
        self.edges.append(Edge(producer=a, consumer=b, bytes=size, tensor=tensor))

    def layer(self, n: int, path: str, before: str, has_experts: bool) -> tuple[str, str]:
        """Its first op and its last one."""
        shape = (
            self.rng.choice(["attn", "attn mlp"]) if not has_experts else "attn gate experts mlp"
        )
        product = MatrixProduct(m=1, n=EXPERTS, k=8, dtype="float32")
        for part in (parts := shape.split()):
            inner = f"mlp.{part}" if part in ("gate", "experts") else part
            large = self.rng.choice([1, 5]) if part == "experts" else 1
            module = path if len(parts) == 1 else f"{path}.{inner}"
            self.add(f"{part}{n}", module, large, kernel=product if part == "gate" else None)
        self.feed(before, f"attn{n}")
        for a, b in pairwise(parts):
            self.feed(f"{a}{n}", f"{b}{n}")
        if has_experts:
            self.feed(f"attn{n}", f"experts{n}")
        if has_experts and self.rng.random() < 0.5:
            self.feed(f"attn{n}", f"mlp{n}")
        return f"attn{n}", f"{parts[-1]}{n}"

    def instance(self, name: str, has_experts: bool) -> Instance:
        rng, num = self.rng, self.rng.choice([1, 2, 2, 3, 3, 4, 5])
        owner, is_sparse = rng.choice(["m.", "model.", ""]), has_experts or rng.random() < 0.5
        outer, stray = owner.removesuffix(".") or None, rng.choice([0, 0, 0, 0.5])
        skips, tied = rng.choice([0, 0, 0.3]), {"table": self.unit * rng.choice([0, 0, 0, 3])}
        shared = {"shared_state": tied} if tied["table"] else {}
        before = self.add("embed", f"{owner}embed_tokens", **shared)
        masks = [self.add("mask", outer)] if rng.random() < stray else []
        for n in range(num):
            experts = is_sparse and (has_experts or rng.random() < 0.8)
            first, last = self.layer(n, f"{owner}layers.{n}", before, experts)
            for mask in masks:
                self.feed(mask, first)
            if rng.random() < stray:  # a sum that the model itself makes
                self.feed(last, last := self.add(f"add{n}", outer))
            if n and rng.random() < skips:
                self.feed(rng.choice(["embed", "attn0"]), last)
            before = last
        for end in rng.choice([["norm", "lm_head"], ["lm_head"], ["norm", "lm_head"]]):
            self.feed(
                before,
                before := self.add(end, f"{owner}{end}", **(shared if end == "lm_head" else {})),
            )
        devices = self.devices(num, is_sparse)
        edges = self.measured(len(devices))
        return instance_of(name, self.ops, edges, devices, self.links(devices))

    def devices(self, num: int, has_experts: bool) -> list[Device]:
        rng, total = self.rng, sum(op.resident_bytes for op in self.ops)
        most = 4 if num < 3 else 3 if num < 4 and not has_experts else 2
        cards, hosts, tight = rng.randint(1, most), rng.choice([0, 0, 1, 1, 1, 2]), rng.random()

        def room() -> int | None:
            if tight < 0.3 or rng.random() < 0.1:
                return None
            return rng.randint(total // (5 if tight < 0.6 else 2), total)

        alike = room()
        same = rng.random() < 0.4
        own = [
            Device(
                name=f"g{k}", kind=rng.choice(self.kinds), memory_bytes=alike if same else room()
            )
            for k in range(cards * (rng.random() > 0.02))
        ]
        own += [
            Device(
                name=f"h{k}",
                kind=kind,
                memory_bytes=room(),
                is_host=kind != "cpu" or rng.random() < 0.7,
            )
            for k in range(hosts or not own)
            for kind in rng.choices(["cpu", "a"], [19, 1])
        ]
        if rng.random() < 0.2:
            rng.shuffle(own)
        return own

    def measured(self, count: int) -> list[Edge]:
        """The edges, in some models with times in place of bytes."""
        rng, what = self.rng, self.rng.random()
        if what > 0.2:
            return self.edges
        times: dict[str, Any] = {}
        for edge in self.edges:
            matrix = [[rng.randint(0, 9) * (a != b) for b in range(count)] for a in range(count)]
            stated = {"transfer_ns": matrix} if what < 0.05 else {"host_time_ns": rng.randint(0, 9)}
            times.setdefault(edge.producer, stated)
        return [
            Edge(**edge.model_dump(exclude=set(times[edge.producer])), **times[edge.producer])
            for edge in self.edges
        ]

    def links(self, devices: list[Device]) -> list[Link]:
        rng, missing, unlike = self.rng, self.rng.choice([0, 0, 0.2]), self.rng.choice([1, 3])
        return [
            Link(
                source=a.name,
                target=b.name,
                bandwidth_bytes_per_s=10**9 // rng.randint(1, unlike),
                latency_ns=rng.choice([0, 0, 2]) * (unlike > 1),
            )
            for a, b in permutations(devices, 2)
            if rng.random() >= missing
        ]
