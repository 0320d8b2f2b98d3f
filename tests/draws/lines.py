"""Small random models of numbered layers, some with experts, on different cards and a host."""

import random
from itertools import pairwise, permutations

from draws.draw import instance_of

from placegap.instances import Cluster, Device, Edge, Graph, Instance, Link, Op

MIB32 = 2**25
"""Any op is larger than what exllama's shares are rounded by."""

GIB = 2**30


def home_model(
    *, gpus: int = 1, experts: bool = False, unlike: bool = False, closed: bool = False
) -> Instance:
    """An embedding, four layers and a head of 1 GiB each; with experts, of 2 GiB, half of them
    experts. A GPU takes 1 us for an op, and the host 3. Unlike GPUs differ in memory. Where layers
    are closed, an op without time and bytes ends each.
    """
    parts = ["attn", *["mlp.experts"] * experts, *["mlp"] * closed]
    names = ["embed", *(f"layers.{n}.{part}" for n in range(4) for part in parts), "head"]
    time_ns = {"gpu": 1000, "cpu": 3000}
    ops = tuple(
        Op(name=x, module=x, time_ns={"gpu": 0, "cpu": 0})
        if x.endswith("mlp")
        else Op(name=x, module=x, time_ns=time_ns, resident_bytes=GIB)
        for x in names
    )
    cards = (
        Device(name=f"g{k}", kind="gpu", memory_bytes=6 * GIB + k * unlike) for k in range(gpus)
    )
    devices = (*cards, Device(name="host", kind="cpu", memory_bytes=64 * GIB, is_host=True))
    links = tuple(
        Link(source=a.name, target=b.name, bandwidth_bytes_per_s=10**9)
        for a, b in permutations(devices, 2)
    )
    edges = tuple(Edge(producer=a, consumer=b) for a, b in pairwise(names))
    cluster = Cluster(name="home", devices=devices, links=links)
    return Instance(name="m", graph=Graph(name="m", ops=ops, edges=edges), cluster=cluster)


def layer_model(seed: int) -> Instance:
    """Two to four layers between an embedding and a head, on up to three cards and a host.

    Two in three have experts beside a shared one. Memory is tight for most.
    """
    draw = random.Random(seed)
    kinds = ("a", "b", "cpu")
    num, has_experts = draw.randint(2, 4), draw.random() < 2 / 3
    parts = [("embed", "embed")]
    for n in range(num):
        own = (
            ["attn", "mlp.gate", "mlp.experts", "mlp.shared", "mlp"]
            if has_experts
            else ["attn", "mlp"]
        )
        parts += [(f"{n}.{part}", f"layers.{n}.{part}") for part in own]
    parts += [("norm", "norm"), ("head", "head")]
    ops = [
        Op(
            name=name,
            module=module,
            time_ns={kind: draw.randint(0, 9) * (4 if kind == "cpu" else 1) for kind in kinds},
            resident_bytes=(size := MIB32 * draw.randint(1, 4)),
            parameter_bytes=size,
            workspace_bytes=MIB32 * draw.randint(0, 1),
        )
        for name, module in parts
    ]
    edges = list[Edge]()

    def feed(a: str, b: str) -> None:
        edges.append(Edge(producer=a, consumer=b, bytes=draw.randint(0, 3)))

    before = "embed"
    for n in range(num):
        feed(before, f"{n}.attn")
        if has_experts:
            for a, b in (("attn", "mlp.gate"), ("mlp.gate", "mlp.experts"), ("attn", "mlp.shared")):
                feed(f"{n}.{a}", f"{n}.{b}")
            for a in ("mlp.experts", "mlp.shared"):
                feed(f"{n}.{a}", f"{n}.mlp")
        else:
            feed(f"{n}.attn", f"{n}.mlp")
        before = f"{n}.mlp"
    for a, b in pairwise([before, "norm", "head"]):
        feed(a, b)
    total = sum(op.resident_bytes for op in ops)
    cards = [
        Device(name=f"g{k}", kind=draw.choice("ab"), memory_bytes=draw.randint(total // 4, total))
        for k in range(draw.randint(1, 3))
    ]
    hosts = [
        Device(name="host", kind="cpu", memory_bytes=draw.randint(total // 3, total), is_host=True)
    ]
    devices = cards + hosts[: draw.randint(0, 4)]
    links = [
        Link(source=one.name, target=other.name, bandwidth_bytes_per_s=10**9 // draw.randint(1, 3))
        for one, other in permutations(devices, 2)
    ]
    return instance_of("layers", ops, edges, devices, links)
