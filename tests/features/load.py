"""Instances of a few ops, one per rule of max-load and of latency, the optimum derived by hand."""

from collections.abc import Mapping
from typing import Any

from draws import draw
from features.makespan import Feature, edges_of, instance, ops_of

from placegap.instances import LatencySubgraphs, Op, Semantics
from placegap.instances.problem import parse_semantics

Optimum = Mapping[Semantics, int | None]


def load(plans: str = "any", rule: str = "add", **fields: object) -> Semantics:
    return parse_semantics({"objective": "max_load", "plans": plans, "load": rule, **fields})


def classes(**values: int | None) -> dict[Semantics, int | None]:
    """Optimum per class of plans, loads added."""
    return {load(plans): value for plans, value in values.items()}


def every_class(value: int) -> dict[Semantics, int | None]:
    return classes(any=value, convex=value, chain=value)


def latency(*values: int | None) -> dict[Semantics, int | None]:
    """Optimum for 1, 2, ... calls per accelerator."""
    return {LatencySubgraphs(subgraphs=q): value for q, value in enumerate(values, start=1)}


def _feature(
    name: str,
    ops: list[Op],
    edges: str,
    optimum: Optimum,
    devices: Mapping[str, tuple[object, ...]] | None = None,
    **fields: Any,
) -> Feature:
    """Fields of devices have a value for each."""
    plain = instance(name, ops, edges_of(edges), **fields)
    made = [
        device.model_copy(update={name: values[k] for name, values in (devices or {}).items()})
        for k, device in enumerate(plain.cluster.devices)
    ]
    return Feature(name, draw.changed(plain, devices=made), optimum)


HOST = {"is_host": (False, True)}
"""Device 1 is a host."""


LOAD_FEATURES = [
    # d0: 5 + 3 out, d1: 4 + 3 in; with overlap the larger of compute and communication
    _feature(
        "a device pays for what leaves and enters",
        ops_of("a 0:5, b 1:4"),
        "a b 3",
        every_class(8) | {load(rule="overlap"): 5, load("chain", "overlap"): 5},
    ),
    # d0: 1 + 6 and d1: 1 + 6, so that overlap still is the transfer
    _feature(
        "with overlap the transfer may be the load",
        ops_of("a 0:1, b 1:1"),
        "a b 6",
        every_class(7) | {load(rule="overlap"): 6, load("convex", "overlap"): 6},
    ),
    # one tensor of 4: d0 2 + 4, d1 (1 + 1) + 4
    _feature(
        "a tensor is paid once per device",
        ops_of("p 0:2, q 1:1, r 1:1"),
        "p q 4, p r 4",
        every_class(6),
        tensor="out",
    ),
    # two tensors of 4: d0 2 + 8, d1 (1 + 1) + 8
    _feature(
        "two tensors are paid twice", ops_of("p 0:2, q 1:1, r 1:1"), "p q 4, p r 4", every_class(10)
    ),
    # the accelerator: 5 + 3; the host: 7, and nothing for the transfer
    _feature(
        "a host pays no communication",
        ops_of("a 0:5, b 1:7"),
        "a b 3",
        every_class(8) | {load(rule="overlap"): 7},
        HOST,
    ),
    # 3 + 3 bytes do not fit into 4: apart, 5 + 20 each; together it would be 10
    _feature(
        "memory separates ops",
        ops_of("a *:5, b *:5", resident_bytes=3),
        "a b 20",
        every_class(25),
        memory_bytes=4,
    ),
    # nothing holds an op of 5 bytes
    _feature(
        "an op may fit nowhere",
        ops_of("a *:5", resident_bytes=5),
        "",
        classes(any=None, convex=None, chain=None),
        memory_bytes=4,
    ),
    # together 5 + 5, though apart they would take 5
    _feature(
        "colocated ops are together", ops_of("a *:5, b *:5", colocation="pair"), "", every_class(10)
    ),
    # d0 is left and entered again: 2 + 2 compute, 1 out, 1 in; no such plan is convex
    _feature(
        "contiguity forbids to come back",
        ops_of("a 0:2, b 1:3, c 0:2"),
        "a b 1, b c 1",
        classes(any=6, convex=None, chain=None),
    ),
    # a path leads from d0 to d1 and another from d1 to d0: each device is convex, the two form no
    # chain; each has 2 ops of 2, 1 out, 1 in
    _feature(
        "a chain has no cycle of devices",
        ops_of("a 0:2, b 1:2, c 1:2, e 0:2"),
        "a b 1, c e 1",
        classes(any=6, convex=6, chain=None),
    ),
    # only c, a backward op, is behind the way back: d0 2 + 2 + 1 + 1. Forward loads: d0 2, and 1
    # for each of the tensors of a and b, both made by forward ops; d1 3 + 1 + 1 = 5. Backward load:
    # d0 2. Sum of the maxima: 5 + 2.
    _feature(
        "backward ops may come back, and have a load of their own",
        ops_of("a 0:2, b 1:3") + ops_of("c 0:2", backward=True),
        "a b 1, b c 1",
        every_class(6)
        | {
            parse_semantics({"objective": "max_load_fwd_bwd", "plans": plans}): 7
            for plans in ("any", "convex", "chain")
        },
    ),
    # alone 6; on both devices ceil(6 / 2) + 2 (2 - 1) 2 bytes / (2 * 1 byte per ns) = 3 + 2
    _feature(
        "a stage may be replicated",
        ops_of("a 0:6", parameter_bytes=2),
        "",
        {load(): 6, load("chain"): 6, load(replicas=True): 5, load("chain", replicas=True): 5},
        {"kind": ("kind0", "kind0")},
    ),
    # 7 bytes between servers: each device is alone in its own and pays nothing, the servers 7
    _feature(
        "servers pay for what crosses between them",
        ops_of("a 0:5, b 1:4"),
        "a b 7",
        {load(): 12, load(levels=2): 7, load("chain", levels=2): 7},
        {"server": ("s0", "s1")},
    ),
    # within one server it is as with one level, and nothing crosses its border
    _feature(
        "devices of one server pay as without servers",
        ops_of("a 0:5, b 1:4"),
        "a b 7",
        {load(): 12, load(levels=2): 12, load("convex", levels=2): 12},
        {"server": ("s", "s")},
    ),
    # host until 2; the call brings 4 in, runs 3, takes 5 out, until 14; host until 15
    _feature(
        "a call brings in, runs and takes out",
        ops_of("a 1:2, b 0:3, c 1:1"),
        "a b 4, b c 5",
        latency(15, 15),
        HOST,
    ),
    # one call would wait for itself; two: 3 + 2 out, host until 6, 2 in + 3
    _feature(
        "an accelerator calls again after a host",
        ops_of("a 0:3, b 1:1, c 0:3"),
        "a b 2, b c 2",
        latency(None, 11),
        HOST,
    ),
    # one call waits for both until 7, then 1 + 1 in, 1 + 1: 11; two: the first is over at 4, the
    # second 7 + 1 + 1
    _feature(
        "a call waits for all its inputs",
        ops_of("a 1:2, b 1:7, x 0:1, y 0:1"),
        "a x 1, b y 1",
        latency(11, 9),
        HOST,
    ),
    # both at once on one host: 5
    _feature("hosts run everything at once", ops_of("a 1:5, b 1:5"), "", latency(5, 5), HOST),
    # 3 bytes each: two accelerators hold one op each over all their calls: 5 + 2 out, 2 in + 5
    _feature(
        "memory counts over all calls",
        ops_of("a *:5, b *:5", resident_bytes=3),
        "a b 2",
        latency(14, 14),
        memory_bytes=4,
    ),
]
