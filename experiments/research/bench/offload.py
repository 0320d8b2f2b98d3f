"""Decode steps that do not fit the GPUs: what stays, what goes to the host, and what is proven.

One token of a transformer reads every weight once, and of experts those that it is routed to, so an
op takes its bytes divided by its device's bandwidth. The models below are described by their sizes.
``python -m placegap.experiments.research.bench.offload`` prints the table, and so does the whole
benchmark; ``.. bench.offload op memory-knapsack`` prints what one method does with some cases.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from placegap.instances.problem import Cluster, Device, Edge, Graph, Instance, Link, Makespan, Op
from placegap.instances.problem.integers import NS_PER_S, ceil_div
from placegap.solvers import run_method
from placegap.solvers.core.method import Task
from placegap.solvers.core.registry import find_method, why_not

GB, GIB = 10**9, 2**30

LAUNCH_NS = 5_000  # added to each op


class Card(NamedTuple):
    """A kind of device: bytes read in a second, and bytes that are free for weights and cache."""

    bandwidth_bytes_per_s: int
    memory_bytes: int
    is_host: bool = False


class Wire(NamedTuple):
    """What joins all devices."""

    bandwidth_bytes_per_s: int
    latency_ns: int


PCIE4, ETHERNET_10G = Wire(25 * GB, 10_000), Wire(1_250_000_000, 50_000)

DDR4 = Card(45 * GB, 64 * GIB, is_host=True)
DDR5 = Card(80 * GB, 512 * GIB, is_host=True)


def cluster_of(name: str, cards: tuple[Card, ...], wire: Wire) -> Cluster:
    """All cards, each joined to each by the wire."""
    devices = tuple(
        Device(
            name=f"{'host' if card.is_host else 'gpu'}{k}",
            kind=f"read-{card.bandwidth_bytes_per_s // GB}",
            memory_bytes=card.memory_bytes,
            is_host=card.is_host,
        )
        for k, card in enumerate(cards)
    )
    links = tuple(
        Link(
            source=a.name,
            target=b.name,
            bandwidth_bytes_per_s=wire.bandwidth_bytes_per_s,
            latency_ns=wire.latency_ns,
        )
        for a in devices
        for b in devices
        if a is not b
    )
    return Cluster(name=name, devices=devices, links=links)


@dataclass(frozen=True)
class Decoder:
    """A transformer's sizes, and the context that its cache holds."""

    name: str
    #: layers, hidden, kv_width, ffn, vocabulary: `kv_width` is that of keys, and of values; `ffn`
    #: that of one expert.
    layers: int
    hidden: int
    kv_width: int
    ffn: int
    vocabulary: int
    #: experts, routed: 1 and 1 is a dense model.
    experts: int = 1
    routed: int = 1
    bits: float = 16.0  # of a weight, scales included
    tied: bool = False  # whether embeddings and head are one tensor, which both hold on one device
    context: int = 4096  # tokens whose keys and values are read, 16 bits each

    def weight_bytes(self, rows: int, columns: int) -> int:
        """Of a matrix."""
        return int(rows * columns * self.bits / 8)


MODELS = (
    Decoder("dense-7b-fp16", 32, 4096, 4096, 11008, 32000),
    Decoder("dense-8b-q4", 32, 4096, 1024, 14336, 128256, bits=4.85),
    Decoder("dense-3b-tied-fp16", 28, 3072, 1024, 8192, 128256, tied=True),
    Decoder("dense-70b-q4", 80, 8192, 1024, 28672, 128256, bits=4.85),
    Decoder("moe-8x7b-fp16", 32, 4096, 1024, 14336, 32000, 8, 2),
    Decoder("moe-8x7b-q4", 32, 4096, 1024, 14336, 32000, 8, 2, bits=4.85),
    Decoder("moe-235b-q4", 94, 4096, 512, 1536, 151936, 128, 8, bits=4.85),
)


def decode_step(model: Decoder, cluster: Cluster, granularity: str = "op") -> Instance:
    """One token through a model on a cluster whose kinds are named ``read-GB/s``."""
    # With granularity "layer", the ops of a layer stay together.
    speeds = {kind: int(kind.removeprefix("read-")) * GB for kind in _kinds(cluster)}
    ops, edges = list[Op](), list[Edge]()
    width = 2 * model.hidden

    def add(name: str, reads: int, holds: int, *before: str, layer: str) -> str:
        ops.append(
            Op(
                name=name,
                time_ns={
                    kind: LAUNCH_NS + ceil_div(reads * NS_PER_S, speed)
                    for kind, speed in speeds.items()
                },
                resident_bytes=holds,
                parameter_bytes=holds,
                colocation=layer if granularity == "layer" else _tied(model, name),
                module=layer,
            )
        )
        edges.extend(
            Edge(producer=each, consumer=name, bytes=width, tensor=f"{each}.out") for each in before
        )
        return name

    head = model.weight_bytes(model.vocabulary, model.hidden)
    layer = "model.embed_tokens" if not (model.tied and granularity == "layer") else "lm_head"
    x = add("embed", width, 0 if model.tied else head, layer=layer)
    cache = 2 * 2 * model.kv_width * model.context
    square = model.weight_bytes(model.hidden, model.hidden)
    kv = model.weight_bytes(model.hidden, model.kv_width)
    wide = model.weight_bytes(model.hidden, model.ffn)
    for number in range(model.layers):
        layer = f"model.layers.{number}"

        def own(name: str, reads: int, holds: int, *before: str, at: str = layer) -> str:
            return add(f"{at}.{name}", reads, holds, *before, layer=at)

        norm = own("norm1", width, width, x)
        heads = [own(n, size, size, norm) for n, size in (("q", square), ("k", kv), ("v", kv))]
        attention = own("o", square, square, own("attention", cache, cache, *heads))
        x = own("add1", 2 * width, 0, x, attention)
        norm = own("norm2", width, width, x)
        if model.experts == 1:
            gate, up = (own(n, wide, wide, norm) for n in ("gate", "up"))
            done = [own("down", wide, wide, own("act", width, 0, gate, up))]
        else:
            router = own("router", 0, model.hidden * model.experts * 2, norm)
            reads = 3 * wide * model.routed // model.experts
            done = [own(f"e{j}", reads, 3 * wide, router) for j in range(model.experts)]
        x = own("add2", 2 * width, 0, x, *done)
    norm = add("norm", width, width, x, layer="model.norm")
    add("lm_head", head, head, norm, layer="lm_head")
    graph = Graph(name=f"{model.name}-{granularity}", ops=tuple(ops), edges=tuple(edges))
    return Instance(name=f"{graph.name}@{cluster.name}", graph=graph, cluster=cluster)


def _kinds(cluster: Cluster) -> list[str]:
    return list(dict.fromkeys(device.kind for device in cluster.devices))


def _tied(model: Decoder, name: str) -> str | None:
    return "tied" if model.tied and name in ("embed", "lm_head") else None


# Devices, and what joins them.
CARDS: dict[str, tuple[tuple[Card, ...], Wire]] = {
    "8 GB + DDR4": ((Card(272 * GB, 7 * GIB), DDR4), PCIE4),
    "24 GB + DDR5": ((Card(936 * GB, 23 * GIB), DDR5), PCIE4),
    "24 + 12 GB + DDR5": ((Card(936 * GB, 23 * GIB), Card(360 * GB, 11 * GIB), DDR5), PCIE4),
    "2 x 32 GB + DDR5": ((Card(900 * GB, 31 * GIB), Card(900 * GB, 31 * GIB), DDR5), PCIE4),
    "24 GB, 64 GB over 10 Gbit": (
        (Card(936 * GB, 23 * GIB), Card(400 * GB, 64 * GIB)),
        ETHERNET_10G,
    ),
}

# Models and cards; those that fit the GPUs are left out.
CASES = (
    ("dense-7b-fp16", "8 GB + DDR4"),
    ("dense-3b-tied-fp16", "8 GB + DDR4"),
    ("dense-8b-q4", "8 GB + DDR4"),
    ("dense-70b-q4", "24 + 12 GB + DDR5"),
    ("dense-70b-q4", "24 GB, 64 GB over 10 Gbit"),
    ("moe-8x7b-q4", "24 GB + DDR5"),
    ("moe-8x7b-fp16", "2 x 32 GB + DDR5"),
    ("moe-235b-q4", "2 x 32 GB + DDR5"),
)

BASELINES = ("exo", "llama-cpp", "vllm-even", "sglang-even")

LIMIT_S = 20.0


def print_offload(only: str = "", method: str = "auto") -> None:
    """Print value, bound, gap and seconds of the cases whose names contain `only`."""
    # Also by how much the splits of serving tools are slower.
    models, semantics = {model.name: model for model in MODELS}, Makespan()
    chosen = find_method(method)
    heads = ("decode step", "value, ms", "bound, ms", "gap", "seconds", *BASELINES)
    number = 0
    for (name, cards), granularity in product(CASES, ("layer", "op")):
        if only not in f"offload {name}, {cards}, {granularity}":
            continue
        number += 1
        if number == 1:
            print(f"\n| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
        instance = decode_step(models[name], cluster_of(cards, *CARDS[cards]), granularity)
        began = time.perf_counter()
        if why_not(chosen, Task(instance, semantics), chosen.params()) is not None:
            continue  # with room for all on one device there is no knapsack
        found = run_method(instance, semantics, method, time_limit_s=LIMIT_S)
        seconds = time.perf_counter() - began
        gap = "unknown" if found.gap is None else f"{100 * found.gap:.2f} %"
        gap = "proven" if found.status == "optimal" else gap
        ours, lost = found.value_ns, list[str]()
        for tool in BASELINES:
            theirs = run_method(instance, semantics, tool).value_ns
            if theirs is None or not ours:
                lost.append("does not fit")
            else:
                lost.append(f"+{100 * (theirs / ours - 1):.0f} %")
        figures = [
            "none" if ns is None else f"{ns / 1e6:.2f}" for ns in (found.value_ns, found.bound_ns)
        ]
        cells = (f"{name}, {cards}, {granularity}", *figures, gap, f"{seconds:.1f}", *lost)
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    print_offload(*sys.argv[1:3])
