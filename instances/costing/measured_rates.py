"""What products, memory-bound kernels and all-reduces of a device take: measured, or by rule.

A table has measured times of products over their rooflines, on a grid of m, n, k. Between its
points the logarithm of that ratio is linear in the logarithms of m, n, k; outside the value at the
edge holds. All-reduces are interpolated in logarithms of bytes and time; beyond the last size time
grows with bytes. Kernels that only move memory, of a card with a table or without, reach
`BANDWIDTH_PERCENT` of the memory's bandwidth, and each takes `KERNEL_NS` besides.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product as corners
from typing import Literal, NamedTuple

import numpy as np

from placegap.instances.costing.catalogue import BANDWIDTH_PERCENT, COMPUTE_PERCENT, KERNEL_NS
from placegap.instances.kernels.array_types import Floats
from placegap.instances.problem.integers import NS_PER_S
from placegap.instances.reading.input_files import data_path

# Device kinds of the catalogue that have a table, and its file.
TABLES = {"A100-40GB": "a100", "A100-80GB": "a100", "H100-80GB": "h100"}
ITEM_BYTES = 2  # of a number of a product, in half precision
# All-reduces without a table: what one takes whatever its size, and the share of the link that a
# ring reaches. Measured on A100 with 300 GB/s of NVLink: 40 to 50 us, and 193 to 222 GB/s.
RULE_LATENCY_NS, RULE_BUS_PERCENT = 45_000, 70


class Product(NamedTuple):
    """A matrix product, (m, k) by (k, n), and the dimension that t devices divide."""

    m: int
    n: int
    k: int
    divided: int

    def on(self, t: int) -> tuple[int, int, int]:
        """The sizes of the part of one of t devices."""
        m, n, k = (
            -(-size // t) if at == self.divided else size for at, size in enumerate(self[:3])
        )
        return m, n, k

    def backward(self) -> tuple[Product, Product]:
        """The gradients of the input, and of the weights."""
        m, n, k, divided = self
        return (Product(m, k, n, (0, 2, 1)[divided]), Product(n, k, m, (2, 0, 1)[divided]))


Divided = Literal["whole", "stream", "tensor"]


class MovedBytes(NamedTuple):
    """A kernel that only moves bytes: all of them on each of t devices, or a share."""

    # The ``stream`` is divided under sequence parallelism alone.
    bytes: int
    divided: Divided = "whole"


class LayerWork(NamedTuple):
    """Products and kernels that run one after the other."""

    products: tuple[Product, ...] = ()
    kernels: tuple[MovedBytes, ...] = ()


@dataclass(frozen=True, eq=False)
class KernelRates:
    """What products, kernels and all-reduces of a device take: a table, or a rule."""

    source: str
    flops_per_s: int
    bytes_per_s: int
    axes: tuple[Floats, Floats, Floats]  # logarithms of the sizes m, n, k
    log_ratio: Floats  # (M, N, K): Logarithms of measured time over roofline
    all_reduce: Mapping[int, Floats]  # by number of devices: logs of bytes and of ns, (2, sizes)
    link_bytes_per_s: int = 1  # of a link inside of a server, for all-reduces that are not measured

    def product_ns(self, m: int, n: int, k: int) -> float:
        """Time of a product of (m, k) by (k, n)."""
        at = [float(np.log(size)) for size in (m, n, k)]
        ratio = float(np.exp(interpolated(self.axes, self.log_ratio, at)))
        return roof_ns(m, n, k, self.flops_per_s, self.bytes_per_s) * ratio

    def kernel_ns(self, size_bytes: float) -> float:
        """Time of a kernel that moves these bytes."""
        return KERNEL_NS + self.moved_ns(size_bytes)

    def moved_ns(self, size_bytes: float) -> float:
        """Time of these bytes in a kernel that is counted elsewhere."""
        return size_bytes * NS_PER_S * 100 / (BANDWIDTH_PERCENT * self.bytes_per_s)

    def work_ns(self, work: LayerWork, t: int, *, sequence: bool) -> float:
        """Time of the part of one of t devices."""
        apart = {"whole": 1, "stream": t if sequence else 1, "tensor": t}
        own = sum(self.product_ns(*product.on(t)) for product in work.products)
        return own + sum(self.kernel_ns(size / apart[by]) for size, by in work.kernels)

    def all_reduce_ns(self, size_bytes: float, count: int) -> float:
        """Time of an all-reduce of these bytes over `count` devices."""
        if count == 1 or not size_bytes:
            return 0.0
        table = self.all_reduce.get(count)
        if table is None:
            sent = 2 * (count - 1) / count * size_bytes * NS_PER_S
            return RULE_LATENCY_NS + sent * 100 / (RULE_BUS_PERCENT * self.link_bytes_per_s)
        at = np.log(size_bytes)
        beyond = max(0.0, float(at - table[0, -1]))
        return float(np.exp(np.interp(at, table[0], table[1]) + beyond))


def roof_ns(m: int, n: int, k: int, flops_per_s: int, bytes_per_s: int) -> float:
    """The roofline of a product in half precision."""
    moved = ITEM_BYTES * (m * k + k * n + m * n)
    return max(2 * m * n * k / flops_per_s, moved / bytes_per_s) * NS_PER_S


def interpolated(axes: Sequence[Floats], value: Floats, at: Sequence[float]) -> float:
    """Multilinear between the points of a grid; at its edge beyond."""
    # Eight terms of a product in place of scipy's interpolator, which takes 0.4 s to load.
    where = []
    for axis, x in zip(axes, at, strict=True):
        if len(axis) == 1:
            where.append((0, 0.0))
            continue
        low = min(max(int(np.searchsorted(axis, x)) - 1, 0), len(axis) - 2)
        part = (x - axis[low]) / (axis[low + 1] - axis[low])
        where.append((low, min(max(float(part), 0.0), 1.0)))
    total = 0.0
    for corner in corners((0, 1), repeat=len(axes)):
        share = 1.0
        for side, (_, part) in zip(corner, where, strict=True):
            share *= part if side else 1 - part
        if share:
            point = tuple(low + side for side, (low, _) in zip(corner, where, strict=True))
            total += share * float(value[point])
    return total


def by_rule(flops_per_s: int, bytes_per_s: int, link_bytes_per_s: int) -> KernelRates:
    """Products at the share of the peak that large ones reach, of a device without a table."""
    none = np.zeros(1)
    ratio = np.full((1, 1, 1), np.log(100 / COMPUTE_PERCENT))
    source = f"products at {COMPUTE_PERCENT} % of the peak, as no table has it"
    return KernelRates(source, flops_per_s, bytes_per_s, (none,) * 3, ratio, {}, link_bytes_per_s)


@cache
def measured_table(kind: str) -> KernelRates | None:
    """The table of a device kind that ships with the package; None where there is none."""
    if kind not in TABLES:
        return None
    raw = json.loads(data_path(f"measured/{TABLES[kind]}.json").read_text())
    m, n, k = (np.log(np.array(raw[name], np.float64)) for name in "mnk")
    permille = np.array(raw["permille_of_roofline"], np.float64)
    return KernelRates(
        source=f"measured products and all-reduces of {raw['source'].partition(' (')[0]}",
        flops_per_s=raw["peak_flops_per_s"],
        bytes_per_s=raw["memory_bytes_per_s"],
        axes=(m, n, k),
        log_ratio=np.log(permille / 1000).reshape(len(m), len(n), len(k)),
        all_reduce={
            int(count): np.log(np.array(rows, np.float64).T)
            for count, rows in raw["collectives_bytes_ns"]["all_reduce"].items()
        },
    )
