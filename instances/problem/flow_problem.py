"""What serving_flow reads: layers in a row, machines that hold ranges of them, and links.

Rates are integers, in millionths of a token per second, each rounded down once when it is read:
maximum flows and cuts are exact. The error is below a millionth per link or machine of a cut.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Ints
from placegap.instances.problem.arrays import Arrays
from placegap.instances.problem.cluster import Cluster
from placegap.instances.problem.graph import Graph
from placegap.instances.problem.integers import NO_LIMIT, NS_PER_S, UNSUPPORTED

UNITS = 1_000_000
"""Integer rates per token per second: 610.3515625 tokens/s are 610351562."""

MOST_RATE = 10**9 * UNITS
"""What passes where nothing limits it; no rate is larger."""

SOURCE, SINK = -2, -1
"""The ends of all paths, where machines are numbered from 0; valid indices of `rates`, too."""


class Machine(NamedTuple):
    """A machine; those of one kind have one table of throughputs."""

    name: str
    kind: str


class Range(NamedTuple):
    """The layers ``start <= layer < start + layers`` that a machine holds, counted from 0."""

    start: int
    layers: int

    @property
    def end(self) -> int:
        """The first layer behind the range."""
        return self.start + self.layers


Ranges = tuple[Range | None, ...]
"""A plan: what each machine holds; None: nothing."""


@dataclass(frozen=True)
class FlowProblem:
    """Layers, machines and links of a serving cluster, with rates in `UNITS`.

    Examples
    --------
    >>> machines = (Machine("a", "gpu"), Machine("b", "gpu"))
    >>> links = {(SOURCE, 0): 90, (0, 1): 40, (1, SINK): 90}
    >>> problem = FlowProblem(3, machines, {"gpu": (100, 60)}, links)
    >>> problem.throughput(0, 2), problem.most_layers(0), problem.rates[0, 1].item()
    (60, 2, 40)
    """

    num_layers: int
    machines: tuple[Machine, ...]
    tables: Mapping[str, tuple[int, ...]]
    """By kind: what a machine that holds h layers passes, at h - 1; it holds no more than that."""
    links: Mapping[tuple[int, int], int]
    """What passes from one machine to another, from `SOURCE` and to `SINK`; others do not exist."""
    partial: bool = False
    """Whether a token may enter a machine within its range (partial inference)."""

    def most_layers(self, machine: int) -> int:
        """How many layers a machine may hold."""
        return min(self.num_layers, len(self.tables[self.machines[machine].kind]))

    def throughput(self, machine: int, layers: int) -> int:
        """What a machine passes that holds some layers."""
        return self.tables[self.machines[machine].kind][layers - 1]

    @property
    def num_machines(self) -> int:
        """Number of machines."""
        return len(self.machines)

    @property
    def work_bound(self) -> int:
        """The layer-tokens that all machines pass at most, over the layers: Helix's own bound."""
        work = {
            kind: max((h * rate for h, rate in enumerate(table[: self.num_layers], 1)), default=0)
            for kind, table in self.tables.items()
        }
        return sum(work[machine.kind] for machine in self.machines) // self.num_layers

    @cached_property
    def of_kind(self) -> dict[str, tuple[int, ...]]:
        """The machines of each kind, in the order of first appearance."""
        found: dict[str, list[int]] = {}
        for number, machine in enumerate(self.machines):
            found.setdefault(machine.kind, []).append(number)
        return {kind: tuple(numbers) for kind, numbers in found.items()}

    @cached_property
    def rates(self) -> Ints:
        """Rates of links from row to column, (n + 2, n + 2); 0 without a link."""
        # the last two rows are those of SOURCE and SINK, which count from the end
        size = self.num_machines + 2
        rates = np.zeros((size, size), np.int64)
        for (a, b), rate in self.links.items():
            rates[a, b] = rate
        return rates

    def joins(self, a: int, b: int, ranges: Ranges) -> bool:
        """Whether tokens may go from a to b, each a machine, `SOURCE` or `SINK`."""
        # b then serves the layers from the end of a's range to the end of its own
        before, after = (ranges[a] if a >= 0 else None), (ranges[b] if b >= 0 else None)
        if (a >= 0 and before is None) or (b >= 0 and after is None) or (a, b) not in self.links:
            return False
        end = 0 if before is None else before.end
        if after is None:
            return end == self.num_layers
        return after.start <= end < after.end if self.partial else after.start == end


def layers_of(graph: Graph, arrays: Arrays) -> list[list[int]]:
    """The ops of each layer, layers in their order: colocation groups, or single ops."""
    ops: dict[int, list[int]] = {}
    for i in graph.index.topological_order.tolist():
        ops.setdefault(int(arrays.group[i]), []).append(i)
    order = TopologicalSorter(dict.fromkeys(ops, ()))
    tails, heads = arrays.group[graph.index.producer], arrays.group[graph.index.consumer]
    for a, b in zip(tails.tolist(), heads.tolist(), strict=True):
        if a != b:
            order.add(b, a)
    try:
        return [ops[group] for group in order.static_order()]
    except CycleError:
        return list(ops.values())  # no row, as `why_no_row` says


def why_no_row(graph: Graph, layers: list[list[int]]) -> str | None:
    """Why layers do not run in a row, or None."""
    of_op = {i: number for number, own in enumerate(layers) for i in own}
    pairs = {
        (of_op[a], of_op[b])
        for a, b in zip(graph.index.producer.tolist(), graph.index.consumer.tolist(), strict=True)
    }
    for a, b in pairs:
        if a > b:
            first, second = (graph.ops[layers[k][0]].name for k in (b, a))
            return f"the layers of ops {first!r} and {second!r} feed each other"
    for number in range(1, len(layers)):
        if (number - 1, number) not in pairs:
            first, second = (graph.ops[layers[k][0]].name for k in (number - 1, number))
            return f"nothing leads from the layer of op {first!r} to that of {second!r}"
    return None


def derive_problem(graph: Graph, cluster: Cluster, arrays: Arrays) -> FlowProblem:
    """The problem of a graph of layers in a row on a cluster.

    Without stated `Graph.throughputs`, h layers take the time of the slowest h in a row, and a
    machine holds h if it has room for any h in a row.
    """
    layers = layers_of(graph, arrays)
    kinds: dict[tuple[str, int], str] = {}  # by kind and memory
    tables, machines = dict[str, tuple[int, ...]](), list[Machine]()
    for k, device in enumerate(cluster.devices):
        key = device.kind, int(arrays.memory_bytes[k])
        if key not in kinds:
            name = device.kind if device.kind not in tables else f"{device.kind} of {key[1]} bytes"
            table = graph.throughputs.get(device.kind)
            if not graph.throughputs:
                table = _table(layers, arrays, k, graph.tokens_per_pass)
            kinds[key] = name if table else ""
            if table:
                tables[name] = tuple(min(rate, MOST_RATE) for rate in table[: len(layers)])
        if kinds[key]:
            machines.append(Machine(device.name, kinds[key]))
    links = _links(graph, cluster, layers, machines)
    return FlowProblem(len(layers), tuple(machines), tables, links)


def _table(layers: list[list[int]], arrays: Arrays, k: int, tokens: int) -> tuple[int, ...]:
    """What a device passes with 1, 2, .. layers, as far as it holds them."""
    if (arrays.time_ns[:, k] == UNSUPPORTED).any():
        return ()
    time_ns = np.array([int(arrays.time_ns[own, k].sum()) for own in layers], np.int64)
    held = np.array([int(arrays.resident_bytes[own].sum()) for own in layers], np.int64)
    found = []
    for count in range(1, len(layers) + 1):
        longest, most = (_longest(values, count) for values in (time_ns, held))
        if most > arrays.memory_bytes[k] and arrays.memory_bytes[k] != NO_LIMIT:
            break
        found.append(tokens * NS_PER_S * UNITS // max(1, longest))
    return tuple(found)


def _longest(values: Ints, count: int) -> int:
    """The largest sum of some values in a row."""
    sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(values)])
    return int((sums[count:] - sums[:-count]).max())


def _links(
    graph: Graph, cluster: Cluster, layers: list[list[int]], machines: list[Machine]
) -> dict[tuple[int, int], int]:
    """Rates of the links of the cluster; a device that holds no layer is both source and sink."""
    number = {machine.name: i for i, machine in enumerate(machines)}
    ends = [device.name for device in cluster.devices if device.name not in number]
    size, tokens = _token_bytes(graph, layers), graph.tokens_per_pass
    found: dict[tuple[int, int], int] = {}
    for link in cluster.links:
        rate = link.bandwidth_bytes_per_s * tokens * UNITS // size if size else MOST_RATE
        a, b = number.get(link.source, SOURCE), number.get(link.target, SINK)
        if a != SOURCE or b != SINK:
            found[a, b] = min(found.get((a, b), 0) + rate, MOST_RATE)
    if not ends:
        for i in range(len(machines)):
            found[SOURCE, i] = found[i, SINK] = MOST_RATE
    return found


def _token_bytes(graph: Graph, layers: list[list[int]]) -> int:
    """The most bytes of a pass that cross from one layer to the next; each tensor counts once."""
    of_op = {i: number for number, own in enumerate(layers) for i in own}
    index = graph.index
    last = dict[int, tuple[int, int, int]]()  # of each tensor: first and last layer, bytes
    for e, tensor in enumerate(index.tensor.tolist()):
        a, b = of_op[int(index.producer[e])], of_op[int(index.consumer[e])]
        last[tensor] = a, max(b, last.get(tensor, (0, b, 0))[1]), graph.edges[e].bytes
    crossing = [0] * len(layers)
    for a, b, size in last.values():
        for cut in range(a, b):
            crossing[cut] += size
    return max(crossing)
