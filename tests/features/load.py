"""Instances of a few ops, one per rule of max-load and of latency, the optimum derived by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from features.makespan import anywhere, instance, pinned

from placegap.instances import Instance, LatencySubgraphs, Op, Semantics
from placegap.instances.problem import parse_semantics


@dataclass(frozen=True)
class LoadFeature:
    """A named instance, and its optimum under some semantics; None where no plan is feasible."""

    name: str
    instance: Instance
    optimum: Mapping[Semantics, int | None]


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


def with_devices(instance: Instance, **fields: tuple[object, ...]) -> Instance:
    """The instance with fields of its devices replaced, one value per device."""
    devices = tuple(
        device.model_copy(update={name: values[k] for name, values in fields.items()})
        for k, device in enumerate(instance.cluster.devices)
    )
    cluster = instance.cluster.model_copy(update={"devices": devices})
    return instance.model_copy(update={"cluster": cluster})


def with_host(instance: Instance) -> Instance:
    """Device 1 is a host."""
    return with_devices(instance, is_host=(False, True, False)[: instance.num_devices])


TURN = instance(
    "turn",
    [pinned("a", 0, 2), pinned("b", 1, 3), pinned("c", 0, 2, backward=True)],
    [("a", "b", 1), ("b", "c", 1)],
)

LOAD_FEATURES = [
    LoadFeature(
        # d0: 5 + 3 out, d1: 4 + 3 in; with overlap the larger of compute and communication
        "a device pays for what leaves and enters",
        instance("pays", [pinned("a", 0, 5), pinned("b", 1, 4)], [("a", "b", 3)]),
        every_class(8) | {load(rule="overlap"): 5, load("chain", "overlap"): 5},
    ),
    LoadFeature(
        # d0: 1 + 6 and d1: 1 + 6, so that overlap still is the transfer
        "with overlap the transfer may be the load",
        instance("transfer", [pinned("a", 0, 1), pinned("b", 1, 1)], [("a", "b", 6)]),
        every_class(7) | {load(rule="overlap"): 6, load("convex", "overlap"): 6},
    ),
    LoadFeature(
        # one tensor of 4: d0 2 + 4, d1 (1 + 1) + 4
        "a tensor is paid once per device",
        instance(
            "once",
            [pinned("p", 0, 2), pinned("q", 1, 1), pinned("r", 1, 1)],
            [("p", "q", 4), ("p", "r", 4)],
            tensor="out",
        ),
        every_class(6),
    ),
    LoadFeature(
        # two tensors of 4: d0 2 + 8, d1 (1 + 1) + 8
        "two tensors are paid twice",
        instance(
            "twice",
            [pinned("p", 0, 2), pinned("q", 1, 1), pinned("r", 1, 1)],
            [("p", "q", 4), ("p", "r", 4)],
        ),
        every_class(10),
    ),
    LoadFeature(
        # the accelerator: 5 + 3; the host: 7, and nothing for the transfer
        "a host pays no communication",
        with_host(instance("host", [pinned("a", 0, 5), pinned("b", 1, 7)], [("a", "b", 3)])),
        every_class(8) | {load(rule="overlap"): 7},
    ),
    LoadFeature(
        # 3 + 3 bytes do not fit into 4: apart, 5 + 20 each; together it would be 10
        "memory separates ops",
        instance(
            "memory",
            [anywhere("a", 5, resident_bytes=3), anywhere("b", 5, resident_bytes=3)],
            [("a", "b", 20)],
            memory_bytes=4,
        ),
        every_class(25),
    ),
    LoadFeature(
        # nothing holds an op of 5 bytes
        "an op may fit nowhere",
        instance("nowhere", [anywhere("a", 5, resident_bytes=5)], [], memory_bytes=4),
        classes(any=None, convex=None, chain=None),
    ),
    LoadFeature(
        # together 5 + 5, though apart they would take 5
        "colocated ops are together",
        instance(
            "colocation",
            [anywhere("a", 5, colocation="pair"), anywhere("b", 5, colocation="pair")],
            [],
        ),
        every_class(10),
    ),
    LoadFeature(
        # d0 is left and entered again: 2 + 2 compute, 1 out, 1 in; no such plan is convex
        "contiguity forbids to come back",
        instance(
            "return",
            [pinned("a", 0, 2), pinned("b", 1, 3), pinned("c", 0, 2)],
            [("a", "b", 1), ("b", "c", 1)],
        ),
        classes(any=6, convex=None, chain=None),
    ),
    LoadFeature(
        # a path leads from d0 to d1 and another from d1 to d0: each device is convex, the two form
        # no chain; each has 2 ops of 2, 1 out, 1 in
        "a chain has no cycle of devices",
        instance(
            "crossing",
            [pinned("a", 0, 2), pinned("b", 1, 2), pinned("c", 1, 2), pinned("e", 0, 2)],
            [("a", "b", 1), ("c", "e", 1)],
        ),
        classes(any=6, convex=6, chain=None),
    ),
    LoadFeature(
        # only c, a backward op, is behind the way back: d0 2 + 2 + 1 + 1. Forward loads: d0 2, and
        # 1 for each of the tensors of a and b, both made by forward ops; d1 3 + 1 + 1 = 5.
        # Backward load: d0 2. Sum of the maxima: 5 + 2.
        "backward ops may come back, and have a load of their own",
        TURN,
        every_class(6)
        | {
            parse_semantics({"objective": "max_load_fwd_bwd", "plans": plans}): 7
            for plans in ("any", "convex", "chain")
        },
    ),
    LoadFeature(
        # alone 6; on both devices ceil(6 / 2) + 2 (2 - 1) 2 bytes / (2 * 1 byte per ns) = 3 + 2
        "a stage may be replicated",
        with_devices(
            instance("replicas", [Op(name="a", time_ns={"kind0": 6}, parameter_bytes=2)], []),
            kind=("kind0", "kind0"),
        ),
        {load(): 6, load("chain"): 6, load(replicas=True): 5, load("chain", replicas=True): 5},
    ),
    LoadFeature(
        # 7 bytes between servers: each device is alone in its own and pays nothing, the servers 7
        "servers pay for what crosses between them",
        with_devices(
            instance("servers", [pinned("a", 0, 5), pinned("b", 1, 4)], [("a", "b", 7)]),
            server=("s0", "s1"),
        ),
        {load(): 12, load(levels=2): 7, load("chain", levels=2): 7},
    ),
    LoadFeature(
        # within one server it is as with one level, and nothing crosses its border
        "devices of one server pay as without servers",
        with_devices(
            instance("server", [pinned("a", 0, 5), pinned("b", 1, 4)], [("a", "b", 7)]),
            server=("s", "s"),
        ),
        {load(): 12, load(levels=2): 12, load("convex", levels=2): 12},
    ),
    LoadFeature(
        # host until 2; the call brings 4 in, runs 3, takes 5 out, until 14; host until 15
        "a call brings in, runs and takes out",
        with_host(
            instance(
                "call",
                [pinned("a", 1, 2), pinned("b", 0, 3), pinned("c", 1, 1)],
                [("a", "b", 4), ("b", "c", 5)],
            )
        ),
        latency(15, 15),
    ),
    LoadFeature(
        # one call would wait for itself; two: 3 + 2 out, host until 6, 2 in + 3
        "an accelerator calls again after a host",
        with_host(
            instance(
                "again",
                [pinned("a", 0, 3), pinned("b", 1, 1), pinned("c", 0, 3)],
                [("a", "b", 2), ("b", "c", 2)],
            )
        ),
        latency(None, 11),
    ),
    LoadFeature(
        # one call waits for both until 7, then 1 + 1 in, 1 + 1: 11; two: the first is over at 4,
        # the second 7 + 1 + 1
        "a call waits for all its inputs",
        with_host(
            instance(
                "waits",
                [pinned("a", 1, 2), pinned("b", 1, 7), pinned("x", 0, 1), pinned("y", 0, 1)],
                [("a", "x", 1), ("b", "y", 1)],
            )
        ),
        latency(11, 9),
    ),
    LoadFeature(
        # both at once on one host: 5
        "hosts run everything at once",
        with_host(instance("parallel", [pinned("a", 1, 5), pinned("b", 1, 5)], [])),
        latency(5, 5),
    ),
    LoadFeature(
        # 3 bytes each: two accelerators hold one op each over all their calls: 5 + 2 out, 2 in + 5
        "memory counts over all calls",
        instance(
            "calls-memory",
            [anywhere("a", 5, resident_bytes=3), anywhere("b", 5, resident_bytes=3)],
            [("a", "b", 2)],
            memory_bytes=4,
        ),
        latency(14, 14),
    ),
]
