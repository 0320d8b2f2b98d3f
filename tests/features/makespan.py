"""Instances of a few ops, one per rule of the makespan, with the optimum derived by hand."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from draws import draw

from placegap.instances import Edge, Instance, Makespan, Op, Semantics


@dataclass(frozen=True)
class Feature:
    """A named instance, and its optimum under some semantics; None where no plan is feasible."""

    name: str
    instance: Instance
    optimum: Mapping[Semantics, Any]

    def cases(self) -> list[tuple[Semantics, Any]]:
        return list(self.optimum.items())


def pinned(name: str, device: int, time_ns: int, **fields: Any) -> Op:
    """An op that runs on one device only."""
    return Op(name=name, time_ns={f"kind{device}": time_ns}, **fields)


def anywhere(name: str, time_ns: int, **fields: Any) -> Op:
    return Op(name=name, time_ns={f"kind{k}": time_ns for k in range(3)}, **fields)


def instance(
    name: str,
    ops: list[Op],
    edges: list[tuple[str, str, int]],
    *,
    devices: int = 2,
    memory_bytes: int | None = None,
    latency_ns: int = 0,
    tensor: str | None = None,
) -> Instance:
    """Edges (producer, consumer, ns): a byte takes a nanosecond on every link."""
    return draw.instance_of(
        name,
        ops,
        [Edge(producer=a, consumer=b, bytes=size, tensor=tensor) for a, b, size in edges],
        draw.devices([f"kind{k}" for k in range(devices)], lambda k: memory_bytes),
        draw.links(devices, lambda a, b: (10**9, latency_ns)),
    )


def ops_of(text: str, **fields: Any) -> list[Op]:
    """Ops "name device:ns ..., ..."; each of three devices runs an op "name *:ns"."""
    found = []
    for name, *times in map(str.split, text.split(", ")):
        if times[0].startswith("*:"):
            found.append(anywhere(name, int(times[0][2:]), **fields))
        else:
            pairs = (time.split(":") for time in times)
            time_ns = {f"kind{device}": int(ns) for device, ns in pairs}
            found.append(Op(name=name, time_ns=time_ns, **fields))
    return found


def edges_of(text: str) -> list[tuple[str, str, int]]:
    """Edges "producer consumer ns, ..."."""
    return [(a, b, int(ns)) for a, b, ns in map(str.split, filter(None, text.split(", ")))]


def _feature(
    name: str,
    ops: list[Op],
    edges: str,
    per_edge: int | tuple[int, int, int, int],
    per_tensor: int | None = None,
    **fields: Any,
) -> Feature:
    """The optima are those of free channels, links, ports and half-duplex ports."""
    known: dict[Semantics, int] = {}
    for at, channels in enumerate(("free", "link", "port", "half_duplex")):
        value = per_edge if isinstance(per_edge, int) else per_edge[at]
        known[Makespan(channels=channels, transfers="per_edge")] = value  # type: ignore[arg-type]
        value = value if per_tensor is None else per_tensor
        known[Makespan(channels=channels, transfers="per_tensor")] = value  # type: ignore[arg-type]
    return Feature(name, instance(name, ops, edges_of(edges), **fields), known)


FEATURES = [
    # s until 2, then 3 ns to each of two devices: at once, both end at 2 + 3 + 1; one after the
    # other, the second arrives at 8.
    _feature(
        "a port sends one transfer at a time",
        ops_of("s 0:2, a 1:1, b 2:1"),
        "s a 3, s b 3",
        (6, 6, 9, 9),
        devices=3,
    ),
    # The mirror image: two inputs from two devices arrive at 2 + 3, or at 5 and 8.
    _feature(
        "a port receives one transfer at a time",
        ops_of("a 0:2, b 1:2, c 2:1"),
        "a c 3, b c 3",
        (6, 6, 9, 9),
        devices=3,
    ),
    # a1 0-1, a2 1-2; at once: a2 arrives at 6, b2 ends at 7; in turn: 1-5 and 5-9, end at 10.
    _feature(
        "a link carries one transfer at a time",
        ops_of("a1 0:1, a2 0:1, b1 1:1, b2 1:1"),
        "a1 b1 4, a2 b2 4",
        (7, 10, 10, 10),
    ),
    # One transfer each way, both ready at 1: side by side until 5, or 1-5 and 5-9.
    _feature(
        "a half-duplex port does not send while it receives",
        ops_of("a 0:1, b 1:1, c 1:1, e 0:1"),
        "a b 4, c e 4",
        (6, 6, 6, 10),
    ),
    # p until 1. Sent once, the tensor arrives at 5 and q, r end at 7; sent twice over one channel,
    # it arrives at 5 and 9, so that r ends at 10; over free channels, at 5 twice.
    _feature(
        "a tensor goes once to each device",
        ops_of("p 0:1, q 1:1, r 1:1"),
        "p q 4, p r 4",
        (7, 10, 10, 10),
        7,
        tensor="out",
    ),
    # z takes no time, but needs its device: before the long op, at 2 (p 0-1, transfer 1-2), so that
    # it runs 2-12; after it, w would end at 10 + 3 + 1. Within it, w would end at 6.
    _feature(
        "a zero-time op waits for its device",
        ops_of("p 1:1, z 0:0, w 1:1, long 0:10"),
        "p z 1, z w 3",
        12,
    ),
    # p 0-1, then p2 1-2. The empty tensor of p2 goes first, at 2, and the large one 2-12: q ends at
    # 17, q2 at 14. Large first, 1-11: q2 runs 11-23. If the empty one needed no channel, q could
    # run 11-16.
    _feature(
        "an empty transfer waits for its channel",
        ops_of("p 0:1, p2 0:1, q 2:5, q2 1:12"),
        "p p2 0, p q 10, p2 q2 0",
        (16, 16, 17, 17),
        devices=3,
    ),
    # Everything takes no time at all: p on one device, q on the other, an empty tensor.
    _feature("the makespan may be zero", ops_of("p 0:0, q 1:0"), "p q 0", 0),
    # 3 + 3 bytes do not fit into 4: the ops are on two devices, 5 + 2 + 5.
    _feature(
        "memory separates ops",
        ops_of("a *:5, b *:5", resident_bytes=3),
        "a b 2",
        12,
        memory_bytes=4,
    ),
    # Exactly full devices are allowed: together 5 + 5, without the transfer of 2.
    _feature(
        "memory may be full", ops_of("a *:5, b *:5", resident_bytes=3), "a b 2", 10, memory_bytes=6
    ),
    # Independent ops of one group share a device: 5 + 5, not 5.
    _feature("colocated ops are together", ops_of("a *:5, b *:5", colocation="pair"), "", 10),
    # The group can only be where both run: on d0, 5 + 5, though b takes 1 on d1.
    _feature(
        "a group is where all its ops run", ops_of("a 0:5, b 0:5 1:1", colocation="pair"), "", 10
    ),
    # a runs on d0 only, b on d1 only: 2 + 3 + 4.
    _feature("an unsupported device is not used", ops_of("a 0:2, b 1:4"), "a b 3", 9),
    # 2, then latency 7 + 3 bytes, then 4.
    _feature(
        "a transfer takes the latency and its bytes",
        ops_of("a 0:2, b 1:4"),
        "a b 3",
        16,
        latency_ns=7,
    ),
    # a 0-2, its transfer 2-5 while c runs on the same device 2-7, b 5-6.
    _feature("a device computes while it sends", ops_of("a 0:2, b 1:1, c 0:5"), "a b 3", 7),
    # b on d0 costs 9, on d1 a transfer of 3 and 4: 2 + 3 + 4 against 2 + 9.
    _feature("a transfer that pays is made", ops_of("a 0:2, b 0:9 1:4"), "a b 3", 9),
    # The urgent input first: p 0-1 sends to q (8 ns of work) 1-4, then to r 4-7: q ends at 12, r at
    # 8. The other way round q ends at 15.
    _feature(
        "the order of transfers is chosen",
        ops_of("p 0:1, r 2:1, q 1:8"),
        "p r 3, p q 3",
        12,
        devices=3,
    ),
]
