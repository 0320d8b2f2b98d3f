"""How far times between the rows of measured tables are off: rows are held out and estimated.

Every second inner plane of a table is held out, of columns n and then k of products, of tokens of
attention; and a tenth of all pairs (n, k). Beside the error of what is left stand those of the
roofline plus 5 us, and of the mean efficiency of the six nearest rows.
``python -m placegap.experiments.research.bench.kernel_tables`` prints the table.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np

from placegap.instances.costing.kernel_tables import (
    MEASURED_ON,
    SYSTEMS,
    Attention,
    Columns,
    KernelTables,
    kernel_tables,
    product_roof_ns,
)
from placegap.instances.kernels.array_types import Flags, Floats, Ints
from placegap.instances.problem.integers import NS_PER_MS
from placegap.instances.problem.op_kernel import AttentionKernel, MatrixProduct, OpKernel
from placegap.instances.reading.errors import MissingExtra

HEADS = ("card", "held out", "rows", "between rows", "roofline + 5 us", "six nearest")

LAUNCH_NS = 5_000

Phase = Literal["context", "generation"]


def print_held_out(only: str = "") -> None:
    """Print median errors of the tables of the cards whose rows' names contain `only`."""
    number = 0
    for kind in dict.fromkeys(MEASURED_ON.get(SYSTEMS[kind], kind) for kind in SYSTEMS):
        if only not in f"kernel tables {kind}":
            continue
        try:
            tables = kernel_tables(kind)
        except MissingExtra as error:
            print(f"\nkernel tables are left out: {error}")
            return
        for held_out, cells in _errors(tables) if tables else ():
            number += 1
            if number == 1:
                print(f"\n| {' | '.join(HEADS)} |\n|{'---|' * len(HEADS)}")
            print(f"| {' | '.join((kind, held_out, *cells))} |", flush=True)


def _errors(tables: KernelTables) -> Iterator[tuple[str, tuple[str, ...]]]:
    """What is held out, and the cells of its row."""
    rows = _rows(tables, "gemm_perf", gemm_dtype="bfloat16")
    roofs = product_roof_ns(tables.measured_spec, "bfloat16", *(rows[size] for size in "mnk"))
    pairs, pair = np.unique([rows["n"], rows["k"]], axis=1, return_inverse=True)
    tenth = np.random.default_rng(0).permutation(pairs.shape[1]) < pairs.shape[1] // 10
    for name, held in (
        ("products, planes of n", _planes(rows["n"])),
        ("products, planes of k", _planes(rows["k"])),
        ("products, pairs (n, k)", tenth[pair.ravel()]),
    ):
        held_out = HeldOut(tables, "gemm_perf", rows, held, roofs)
        yield name, (*held_out.cells(partial(_product, rows)), held_out.six_nearest())
    phases: tuple[Phase, ...] = ("context", "generation")
    for phase in phases:
        table = f"{phase}_attention_perf"
        rows = _rows(tables, table, kv_cache_dtype="bfloat16", window_size=0, head_dim=128)
        sizes = Attention.of(rows)
        roofs = sizes.roof_ns(tables.measured_spec, phase, "bfloat16", "bfloat16")
        held = _planes(rows["isl" if phase == "context" else "step"])
        held_out = HeldOut(tables, table, rows, held, roofs)
        yield f"{phase}, planes of tokens", (*held_out.cells(partial(_attention, phase, sizes)), "")


def _product(rows: Columns, row: int) -> MatrixProduct:
    m, n, k = (int(rows[size][row]) for size in "mnk")
    return MatrixProduct(m=m, n=n, k=k, dtype="bfloat16")


def _attention(phase: Phase, sizes: Attention, row: int) -> AttentionKernel:
    stated = {
        name: int(size[row]) if isinstance(size, np.ndarray) else size
        for name, size in sizes._asdict().items()
        if name != "window"
    }
    types = {"phase": phase, "dtype": "bfloat16", "cache_dtype": "bfloat16"}
    return AttentionKernel.model_validate({**stated, **types})


def _rows(tables: KernelTables, name: str, **equal: object) -> Columns:
    table = tables.table(name)
    assert table is not None  # all of these cards have products and attention
    chosen = np.logical_and.reduce([table[column] == value for column, value in equal.items()])
    return {column: values[chosen] for column, values in table.items()}


def _planes(sizes: Floats) -> Flags:
    """The rows of every second inner size."""
    return np.isin(sizes, np.unique(sizes)[1:-1:2])


@dataclass(frozen=True)
class HeldOut:
    """Rows of a table of which some are held out, and their rooflines."""

    tables: KernelTables
    name: str
    rows: Columns
    held: Flags
    roofs: Floats

    def cells(self, kernel: Callable[[int], OpKernel]) -> tuple[str, ...]:
        """How many rows, what the others say of them, and what the roofline and a launch say."""
        kept = {column: values[~self.held] for column, values in self.rows.items()}
        left = replace(self.tables, table={self.name: kept}.get)
        chosen = np.flatnonzero(self.held)
        found = np.array([left.time_ns(kernel(row)) for row in chosen.tolist()], np.float64)
        naive = self.roofs[chosen] + LAUNCH_NS
        return str(len(chosen)), self._error(found, chosen), self._error(naive, chosen)

    def six_nearest(self) -> str:
        """What the mean efficiency of six rows says of some, by logarithms of sizes."""
        efficiency = self.roofs / (self.rows["latency"] * NS_PER_MS)
        at = np.log([self.rows[size] for size in "mnk"])
        chosen = np.flatnonzero(self.held)
        chosen = chosen[:: max(1, len(chosen) // 400)]
        found = []
        for row in chosen:
            far = ((at[:, ~self.held] - at[:, [row]]) ** 2).sum(0)
            near = efficiency[~self.held][np.argpartition(far, 6)[:6]]
            found.append(self.roofs[row] / near.mean())
        return self._error(np.array(found), chosen)

    def _error(self, found: Floats, chosen: Ints) -> str:
        """Median and 90 % of what is off."""
        off = 100 * np.abs(found / (self.rows["latency"][chosen] * NS_PER_MS) - 1)
        return f"{np.median(off):.1f} % ({np.quantile(off, 0.9):.0f} %)"


if __name__ == "__main__":
    print_held_out(*sys.argv[1:2])
