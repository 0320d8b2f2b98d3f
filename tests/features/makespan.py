"""Instances of a few ops, one per rule of the makespan, with the optimum derived by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from placegap.instances import Cluster, Device, Edge, Graph, Instance, Link, Makespan, Op, Semantics

BYTES_PER_NS = 10**9


@dataclass(frozen=True)
class Feature:
    """A named instance, and its optimal makespan per "channels transfers"."""

    name: str
    instance: Instance
    optimum: Mapping[str, int]

    def cases(self) -> list[tuple[Semantics, int]]:
        pairs = [(label.split(), value) for label, value in self.optimum.items()]
        return [
            (Makespan(channels=channels, transfers=transfers), value)
            for (channels, transfers), value in pairs  # type: ignore[misc]
        ]


def all_lines(per_edge: dict[str, int], per_tensor: dict[str, int] | None = None) -> dict[str, int]:
    """Optimum per line, from values per channel model; tensors as edges unless stated."""
    return {f"{channels} per_edge": value for channels, value in per_edge.items()} | {
        f"{channels} per_tensor": value for channels, value in (per_tensor or per_edge).items()
    }


def same(value: int) -> dict[str, int]:
    return dict.fromkeys(("free", "link", "port", "half_duplex"), value)


def pinned(name: str, device: int, time_ns: int, **fields: object) -> Op:
    """An op that runs on one device only."""
    return Op(name=name, time_ns={f"kind{device}": time_ns}, **fields)  # type: ignore[arg-type]


def anywhere(name: str, time_ns: int, **fields: object) -> Op:
    times = {f"kind{k}": time_ns for k in range(3)}
    return Op(name=name, time_ns=times, **fields)  # type: ignore[arg-type]


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
    return Instance(
        name=name,
        graph=Graph(
            name=name,
            ops=tuple(ops),
            edges=tuple(
                Edge(producer=a, consumer=b, bytes=size, tensor=tensor) for a, b, size in edges
            ),
        ),
        cluster=Cluster(
            name="cluster",
            devices=tuple(
                Device(name=f"d{k}", kind=f"kind{k}", memory_bytes=memory_bytes)
                for k in range(devices)
            ),
            links=tuple(
                Link(
                    source=f"d{a}",
                    target=f"d{b}",
                    bandwidth_bytes_per_s=BYTES_PER_NS,
                    latency_ns=latency_ns,
                )
                for a in range(devices)
                for b in range(devices)
                if a != b
            ),
        ),
    )


FEATURES = [
    Feature(
        # s until 2, then 3 ns to each of two devices: at once, both end at 2 + 3 + 1; one after
        # the other, the second arrives at 8.
        "a port sends one transfer at a time",
        instance(
            "send",
            [pinned("s", 0, 2), pinned("a", 1, 1), pinned("b", 2, 1)],
            [("s", "a", 3), ("s", "b", 3)],
            devices=3,
        ),
        all_lines({"free": 6, "link": 6, "port": 9, "half_duplex": 9}),
    ),
    Feature(
        # The mirror image: two inputs from two devices arrive at 2 + 3, or at 5 and 8.
        "a port receives one transfer at a time",
        instance(
            "receive",
            [pinned("a", 0, 2), pinned("b", 1, 2), pinned("c", 2, 1)],
            [("a", "c", 3), ("b", "c", 3)],
            devices=3,
        ),
        all_lines({"free": 6, "link": 6, "port": 9, "half_duplex": 9}),
    ),
    Feature(
        # a1 0-1, a2 1-2; at once: a2 arrives at 6, b2 ends at 7; in turn: 1-5 and 5-9, end at 10.
        "a link carries one transfer at a time",
        instance(
            "link",
            [pinned("a1", 0, 1), pinned("a2", 0, 1), pinned("b1", 1, 1), pinned("b2", 1, 1)],
            [("a1", "b1", 4), ("a2", "b2", 4)],
        ),
        all_lines({"free": 7, "link": 10, "port": 10, "half_duplex": 10}),
    ),
    Feature(
        # One transfer each way, both ready at 1: side by side until 5, or 1-5 and 5-9.
        "a half-duplex port does not send while it receives",
        instance(
            "half-duplex",
            [pinned("a", 0, 1), pinned("b", 1, 1), pinned("c", 1, 1), pinned("e", 0, 1)],
            [("a", "b", 4), ("c", "e", 4)],
        ),
        all_lines({"free": 6, "link": 6, "port": 6, "half_duplex": 10}),
    ),
    Feature(
        # p until 1. Sent once, the tensor arrives at 5 and q, r end at 7; sent twice over one
        # channel, it arrives at 5 and 9, so that r ends at 10; over free channels, at 5 twice.
        "a tensor goes once to each device",
        instance(
            "shared-tensor",
            [pinned("p", 0, 1), pinned("q", 1, 1), pinned("r", 1, 1)],
            [("p", "q", 4), ("p", "r", 4)],
            tensor="out",
        ),
        all_lines({"free": 7, "link": 10, "port": 10, "half_duplex": 10}, same(7)),
    ),
    Feature(
        # z takes no time, but needs its device: before the long op, at 2 (p 0-1, transfer 1-2), so
        # that it runs 2-12; after it, w would end at 10 + 3 + 1. Within it, w would end at 6.
        "a zero-time op waits for its device",
        instance(
            "zero-op",
            [pinned("p", 1, 1), pinned("z", 0, 0), pinned("w", 1, 1), pinned("long", 0, 10)],
            [("p", "z", 1), ("z", "w", 3)],
        ),
        all_lines(same(12)),
    ),
    Feature(
        # p 0-1, then p2 1-2. The empty tensor of p2 goes first, at 2, and the large one 2-12: q
        # ends at 17, q2 at 14. Large first, 1-11: q2 runs 11-23. If the empty one needed no
        # channel, q could run 11-16.
        "an empty transfer waits for its channel",
        instance(
            "zero-transfer",
            [pinned("p", 0, 1), pinned("p2", 0, 1), pinned("q", 2, 5), pinned("q2", 1, 12)],
            [("p", "p2", 0), ("p", "q", 10), ("p2", "q2", 0)],
            devices=3,
        ),
        all_lines({"free": 16, "link": 16, "port": 17, "half_duplex": 17}),
    ),
    Feature(
        # Everything takes no time at all: p on one device, q on the other, an empty tensor.
        "the makespan may be zero",
        instance("zero", [pinned("p", 0, 0), pinned("q", 1, 0)], [("p", "q", 0)]),
        all_lines(same(0)),
    ),
    Feature(
        # 3 + 3 bytes do not fit into 4: the ops are on two devices, 5 + 2 + 5.
        "memory separates ops",
        instance(
            "memory",
            [anywhere("a", 5, resident_bytes=3), anywhere("b", 5, resident_bytes=3)],
            [("a", "b", 2)],
            memory_bytes=4,
        ),
        all_lines(same(12)),
    ),
    Feature(
        # Exactly full devices are allowed: together 5 + 5, without the transfer of 2.
        "memory may be full",
        instance(
            "full-memory",
            [anywhere("a", 5, resident_bytes=3), anywhere("b", 5, resident_bytes=3)],
            [("a", "b", 2)],
            memory_bytes=6,
        ),
        all_lines(same(10)),
    ),
    Feature(
        # Independent ops of one group share a device: 5 + 5, not 5.
        "colocated ops are together",
        instance(
            "colocation",
            [anywhere("a", 5, colocation="pair"), anywhere("b", 5, colocation="pair")],
            [],
        ),
        all_lines(same(10)),
    ),
    Feature(
        # The group can only be where both run: on d0, 5 + 5, though b takes 1 on d1.
        "a group is where all its ops run",
        instance(
            "colocation-support",
            [
                pinned("a", 0, 5, colocation="pair"),
                Op(name="b", time_ns={"kind0": 5, "kind1": 1}, colocation="pair"),
            ],
            [],
        ),
        all_lines(same(10)),
    ),
    Feature(
        # a runs on d0 only, b on d1 only: 2 + 3 + 4.
        "an unsupported device is not used",
        instance("unsupported", [pinned("a", 0, 2), pinned("b", 1, 4)], [("a", "b", 3)]),
        all_lines(same(9)),
    ),
    Feature(
        # 2, then latency 7 + 3 bytes, then 4.
        "a transfer takes the latency and its bytes",
        instance("latency", [pinned("a", 0, 2), pinned("b", 1, 4)], [("a", "b", 3)], latency_ns=7),
        all_lines(same(16)),
    ),
    Feature(
        # a 0-2, its transfer 2-5 while c runs on the same device 2-7, b 5-6.
        "a device computes while it sends",
        instance(
            "overlap", [pinned("a", 0, 2), pinned("b", 1, 1), pinned("c", 0, 5)], [("a", "b", 3)]
        ),
        all_lines(same(7)),
    ),
    Feature(
        # b on d0 costs 9, on d1 a transfer of 3 and 4: 2 + 3 + 4 against 2 + 9.
        "a transfer that pays is made",
        instance(
            "pays",
            [pinned("a", 0, 2), Op(name="b", time_ns={"kind0": 9, "kind1": 4})],
            [("a", "b", 3)],
        ),
        all_lines(same(9)),
    ),
    Feature(
        # The urgent input first: p 0-1 sends to q (8 ns of work) 1-4, then to r 4-7: q ends at 12,
        # r at 8. The other way round q ends at 15.
        "the order of transfers is chosen",
        instance(
            "transfer-order",
            [pinned("p", 0, 1), pinned("r", 2, 1), pinned("q", 1, 8)],
            [("p", "r", 3), ("p", "q", 3)],
            devices=3,
        ),
        all_lines(same(12)),
    ),
]
