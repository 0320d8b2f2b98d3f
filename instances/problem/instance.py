"""The instance: a graph to place on a cluster.

Every class of a problem is frozen and validated once, when it is made; nothing downstream checks
again. Times are integer nanoseconds, sizes integer bytes, bandwidths bytes per second.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Self

from pydantic import model_validator

from placegap.instances.problem.arrays import Arrays, MemoryArrays, derive_arrays, derive_memory
from placegap.instances.problem.cluster import Cluster, Device
from placegap.instances.problem.flow_problem import FlowProblem, derive_problem
from placegap.instances.problem.graph import Graph
from placegap.instances.problem.links import Group
from placegap.instances.problem.part import Count, InstancePart, Name
from placegap.instances.problem.semantics import StatedSemantics
from placegap.instances.reading.errors import ClusterError, as_input_error
from placegap.instances.reading.printable import printable


class BestKnown(InstancePart):
    """The best value and bound under one semantics, and their stated proofs.

    `bound_origin` names the method behind the bound, `rests_on` the solver if placegap has
    not proved it. Records of the corpus are trusted; in any other file they are claims.
    """

    semantics: StatedSemantics
    value_ns: Count | None = None
    bound_ns: Count | None = None
    value_origin: str = ""
    bound_origin: str = ""
    rests_on: str = ""


class Instance(InstancePart):
    """A graph to place on a cluster.

    Examples
    --------
    >>> from placegap.instances import example
    >>> instance = example()
    >>> instance.num_ops, instance.num_devices
    (4, 2)
    >>> instance.arrays.time_ns[0].tolist()
    [5, 5]
    >>> print(instance)
    diamond: 4 ops, 4 edges, 2 devices
    op   gpu_ns  resident_bytes  feeds (bytes)
    op1       5               0  op2 (1), op3 (20)
    op2      20               0  op4 (1)
    op3      10               0  op4 (10)
    op4       8               0
    2 gpu: gpu0, gpu1; no memory limit
    2 links: 1000000000 bytes/s
    """

    name: Name
    graph: Graph
    cluster: Cluster
    #: The semantics the source states its numbers under, if it does.
    semantics: StatedSemantics | None = None
    #: What the source claims.
    best_known: tuple[BestKnown, ...] = ()

    def __str__(self) -> str:
        """A table of at most ten lines: what it is, some ops, devices and links."""
        return "\n".join(map(printable, _table(self)))

    def __repr__(self) -> str:
        return (
            f"<Instance {self.name!r}: {self.num_ops} ops, {len(self.graph.edges)} edges,"
            f" {self.num_devices} devices>"
        )

    def with_graph(self, graph: Graph, name: str | None = None) -> Instance:
        """The instance with another graph on the same cluster, without best-known values."""
        update = {"graph": graph, "best_known": (), "name": name or self.name}
        with as_input_error(source=self.name):  # of groups whose ops no device runs together
            return self.model_copy(update=update)

    @property
    def num_ops(self) -> int:
        """Number of ops."""
        return len(self.graph.ops)

    @property
    def num_parts(self) -> int:
        """Number of ops and edges."""
        return len(self.graph.ops) + len(self.graph.edges)

    @property
    def num_devices(self) -> int:
        """Number of devices."""
        return len(self.cluster.devices)

    @cached_property
    def arrays(self) -> Arrays:
        """Integer arrays for the kernels, built once."""
        return derive_arrays(self.graph, self.cluster)

    @cached_property
    def memory_arrays(self) -> MemoryArrays:
        """Integer arrays for the memory rule `peak`, built once."""
        return derive_memory(self.graph, self.arrays.backward)

    @cached_property
    def flow_problem(self) -> FlowProblem:
        """What serving_flow reads of it, derived once."""
        return derive_problem(self.graph, self.cluster, self.arrays)

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 of everything that affects values: ops, edges, devices and links."""
        digest = hashlib.sha256()
        for text in _hashed_text(self.graph, self.cluster):
            digest.update(text.encode())
        return digest.hexdigest()

    @model_validator(mode="after")
    def _check_references(self) -> Self:
        kinds = frozenset(device.kind for device in self.cluster.devices)
        groups: dict[str, frozenset[str]] = {}
        for number, op in enumerate(self.graph.ops):
            supported = kinds.intersection(op.time_ns)
            if not supported:
                self._check_kinds(kinds)
                raise ValueError(
                    f"ops[{number}] {op.name!r}: has no time for any device kind of the cluster"
                    f" ({', '.join(sorted(kinds))}); add one to its time_ns"
                )
            if op.colocation is not None:
                together = groups.get(op.colocation, kinds) & supported
                if not together:
                    raise ValueError(
                        f"ops[{number}] {op.name!r}: no device kind runs all ops of its"
                        f" colocation group {op.colocation!r}; add times of one kind to all of them"
                    )
                groups[op.colocation] = together
        _ = self.arrays  # unreachable pairs, matrices of the wrong shape, sums that overflow
        return self

    def _check_kinds(self, kinds: frozenset[str]) -> None:
        """The cluster is at fault if no op at all has a time on it."""
        known = sorted({kind for op in self.graph.ops for kind in op.time_ns})
        if kinds.intersection(known) or not (known or any(op.flops for op in self.graph.ops)):
            return
        mend = (
            f"name kinds that it has times for ({', '.join(known[:9])})"
            if known
            else ("name kinds of the catalogue, by which it is costed")
        )
        raise ClusterError(
            f"devices: no op of {self.graph.name!r} has a time for any of the device kinds"
            f" ({', '.join(sorted(kinds))}); {mend}, or add times to the model"
        )


MOST_OPS = 5  # ops that `print(instance)` shows: with title, heads, devices and links ten lines


def _table(instance: Instance) -> Iterator[str]:
    """Title, ops, devices of up to two kinds, and links, as lines of text."""
    graph, devices, links = instance.graph, instance.cluster.devices, instance.cluster.all_links
    yield repr(instance).strip("<>").removeprefix("Instance ").replace("'", "", 2)
    of_kind: dict[str, list[Device]] = {}
    for device in devices:
        of_kind.setdefault(device.kind, []).append(device)
    kinds = list(of_kind)[:2] if len(of_kind) < 3 else list(of_kind)[:1]
    few = len(graph.ops) <= MOST_OPS
    shown = graph.ops if few else (*graph.ops[: MOST_OPS - 2], graph.ops[-1])
    feeds: dict[str, list[str]] = {op.name: [] for op in shown}
    for edge in graph.edges:
        if edge.producer in feeds:
            feeds[edge.producer].append(f"{edge.consumer} ({edge.bytes})")
    rows = [["op", *(f"{kind}_ns" for kind in kinds), "resident_bytes", "feeds (bytes)"]]
    for op in shown:
        times = [str(op.time_ns.get(kind, "-")) for kind in kinds]
        fed = _and_more(feeds[op.name])
        rows.append([op.name, *times, str(op.resident_bytes), fed])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for number, (name, *numbers, fed) in enumerate(rows):
        if number == len(shown) and not few:
            yield f"... {len(graph.ops) - len(shown)} more ops"
        aligned = [cell.rjust(width) for cell, width in zip(numbers, widths[1:], strict=False)]
        yield "  ".join([name.ljust(widths[0]), *aligned, fed]).rstrip()
    for kind in kinds:
        own = of_kind[kind]
        limits = {device.memory_bytes for device in own if device.memory_bytes is not None}
        held = f"{' or '.join(map(str, sorted(limits)))} bytes" if limits else "no memory limit"
        more = f"; {len(of_kind) - 1} more kinds" if len(of_kind) > 2 else ""
        yield f"{len(own)} {kind}: {_and_more([device.name for device in own])}; {held}{more}"
    rates = sorted({entry.bandwidth_bytes_per_s for entry in links.entries})
    ends = dict.fromkeys([*rates[:1], *rates[-1:]])
    yield f"{len(links)} links: {' to '.join(map(str, ends))} bytes/s" if rates else "no links"


def _and_more(names: Sequence[str]) -> str:
    """The first three of a list."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _hashed_text(graph: Graph, cluster: Cluster) -> Iterator[str]:
    """Canonical JSON of devices, edges, links and ops, piece by piece: links may be many."""

    def listed(parts: Sequence[InstancePart]) -> str:
        content = [part.model_dump(exclude_defaults=True, exclude={"kernel"}) for part in parts]
        return json.dumps(content, sort_keys=True, separators=(",", ":"))

    yield f'{{"devices":{listed(cluster.devices)},"edges":{listed(graph.edges)},"links":['
    comma = ""
    for entry in cluster.all_links.entries:
        latency = f',"latency_ns":{entry.latency_ns}' if entry.latency_ns else ""
        head = f'{{"bandwidth_bytes_per_s":{entry.bandwidth_bytes_per_s}{latency},"source":'
        ends = entry.devices if isinstance(entry, Group) else (entry.source, entry.target)
        names = [json.dumps(name) for name in ends]
        for a in names if isinstance(entry, Group) else names[:1]:
            row = ",".join(f'{head}{a},"target":{b}}}' for b in names if b != a)
            if row:
                yield comma + row
                comma = ","
    tables = f',"throughputs":{json.dumps(graph.throughputs)}' if graph.throughputs else ""
    yield f'],"ops":{listed(graph.ops)}{tables}}}'
