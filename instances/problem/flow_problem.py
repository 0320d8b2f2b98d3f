"""What serving_flow reads: layers in a row, machines that hold ranges of them, and links.

Rates are integers, in millionths of a token per second, each rounded down once when it is read:
maximum flows and cuts are exact. The error is below a millionth per link or machine of a cut.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Ints

UNITS = 1_000_000
"""Integer rates per token per second: 610.3515625 tokens/s are 610351562."""

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
