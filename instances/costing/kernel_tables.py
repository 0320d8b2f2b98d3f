"""Measured times of kernels on cards: the tables of aiconfigurator-core, and between their rows.

A row's latency over its roofline is a ratio. Its logarithm is linear in the logarithms of the sizes
on the grid that the rows make, and outside the value at the edge holds. A time is the roofline of
the kernel times the ratio at its sizes, so that a kernel that a row states takes the row's time,
whatever the rates of the card are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from placegap.instances.costing.costing import catalogue
from placegap.instances.costing.measured_rates import interpolated
from placegap.instances.kernels.array_types import Floats
from placegap.instances.problem.cluster import DeviceSpec
from placegap.instances.problem.integers import NS_PER_S
from placegap.instances.problem.op_kernel import MatrixProduct, OpKernel
from placegap.instances.reading.errors import InputError

SYSTEMS = {
    "A100-40GB": "a100_sxm",
    "A100-80GB": "a100_sxm",
    "H100-80GB": "h100_sxm",
    "H200": "h200_sxm",
    "B200": "b200_sxm",
    "L40S": "l40s",
}
"""Device kinds of the catalogue that have tables, and what these call them. Boards for PCIe have
none: their power limits are lower."""

MEASURED_ON = {"a100_sxm": "A100-80GB"}
"""The card that was measured, where several kinds have a system's tables."""

FRAMEWORKS = ("sglang", "trtllm", "vllm")

EXTRA = "measured costs need an extra: pip install 'placegap[measured]'"

NS_PER_MS = 1_000_000

TABLE_TYPES = {"bfloat16": "bfloat16", "float16": "bfloat16", "float8": "fp8"}
"""Number types of kernels, and what tables call them; half precisions take the same time."""

ITEM_BYTES = {"bfloat16": 2, "fp8": 1}

Columns = Mapping[str, Any]
"""A table: arrays of its rows by column."""


@dataclass(frozen=True, eq=False)
class Grid:
    """Logarithms of measured time over roofline, by logarithms of sizes."""

    axes: tuple[Floats, ...]
    log_ratio: Floats

    @classmethod
    def of(cls, sizes: list[Floats], ratio: Floats) -> Grid:
        """The grid of scattered rows; of rows of the same sizes the fastest counts."""
        found = [np.unique(size, return_inverse=True) for size in sizes]
        value = np.full([len(axis) for axis, _ in found], np.inf)
        np.minimum.at(value, tuple(at for _, at in found), np.log(ratio))
        return cls(tuple(np.log(axis) for axis, _ in found), _filled(value))

    def ratio(self, *sizes: float) -> float:
        """Measured time over roofline."""
        return float(np.exp(interpolated(self.axes, self.log_ratio, [*np.log(sizes)])))


def _filled(value: Floats) -> Floats:
    """Points without a row (inf) get the mean of the neighbours that have a value, in turn."""
    while np.isinf(value).any():
        padded = np.pad(value, 1, constant_values=np.inf)
        near = [
            np.roll(padded, shift, axis)[(slice(1, -1),) * value.ndim]
            for axis in range(value.ndim)
            for shift in (1, -1)
        ]
        known = np.isfinite(near)
        total, count = np.where(known, near, 0.0).sum(0), known.sum(0)
        value = np.where(np.isinf(value) & (count > 0), total / np.maximum(count, 1), value)
    return value


@dataclass(frozen=True, eq=False)
class KernelTables:
    """The tables of a card: what kernels take on it."""

    source: str
    spec: DeviceSpec
    #: The card that was measured.
    measured_spec: DeviceSpec
    #: A table by family and name; None where the card has none.
    table: Callable[[str, str], Columns | None]
    _times: dict[OpKernel, float | None] = field(default_factory=dict)
    _grids: dict[tuple[object, ...], Grid | None] = field(default_factory=dict)

    def time_ns(self, kernel: OpKernel) -> float | None:
        """What a kernel takes; None where no table has one like it."""
        if kernel not in self._times:
            self._times[kernel] = self._time_ns(kernel)
        return self._times[kernel]

    def _time_ns(self, kernel: OpKernel) -> float | None:
        if isinstance(kernel, MatrixProduct):
            return self._product_ns(kernel)
        return None

    def _product_ns(self, kernel: MatrixProduct) -> float | None:
        dtype = TABLE_TYPES.get(kernel.dtype.partition("_")[0])
        grid = self._product_grid(dtype) if dtype else None
        if grid is None or dtype is None:
            return None
        m, n, k, batch = kernel.m, kernel.n, kernel.k, kernel.batch
        roof = _product_roof_ns(self.spec, dtype, m, n, k, batch)
        return float(roof) * grid.ratio(batch * m, n, k)

    def _product_grid(self, dtype: str) -> Grid | None:
        key = ("gemm", dtype)
        if key not in self._grids:
            rows = _where(self.table("gemm", "gemm_perf"), gemm_dtype=dtype)
            self._grids[key] = rows and Grid.of(
                [rows["m"], rows["n"], rows["k"]],
                rows["latency"]
                * NS_PER_MS
                / _product_roof_ns(self.measured_spec, dtype, rows["m"], rows["n"], rows["k"], 1),
            )
        return self._grids[key]


def _product_roof_ns(spec: DeviceSpec, dtype: str, m: Any, n: Any, k: Any, batch: int) -> Any:
    moved = batch * (ITEM_BYTES[dtype] * (m * k + k * n) + 2 * m * n)
    return _roof_ns(spec, dtype, 2 * batch * m * n * k, moved)


def _roof_ns(spec: DeviceSpec, dtype: str, flops: Any, moved: Any) -> Any:
    peak = spec.peak("float8" if dtype == "fp8" else dtype)
    return np.maximum(flops / peak, moved / spec.bandwidth_bytes_per_s) * NS_PER_S


def _where(table: Columns | None, **equal: object) -> Columns | None:
    """The rows that have these values; None where there are none."""
    if table is None:
        return None
    chosen = np.logical_and.reduce([table[name] == value for name, value in equal.items()])
    return {name: column[chosen] for name, column in table.items()} if chosen.any() else None


@cache
def kernel_tables(kind: str, framework: str | None = None) -> KernelTables | None:
    """The tables of a device kind of the catalogue, None where it has none.

    Of each table the newest version is taken, of vLLM unless a framework is named.
    """
    framework = framework or "vllm"
    if framework not in FRAMEWORKS:
        raise InputError(
            f"no tables of measured kernels are of {framework!r}; there are {', '.join(FRAMEWORKS)}"
        )
    if kind not in SYSTEMS:
        return None
    package = find_spec("aiconfigurator_core")
    if package is None or not package.submodule_search_locations or not find_spec("pyarrow"):
        raise InputError(EXTRA)
    system = SYSTEMS[kind]
    folder = Path(package.submodule_search_locations[0], "systems", "data", system)
    newest = _newest(folder, "gemm", framework, "gemm_perf")
    if newest is None:
        return None
    return KernelTables(
        f"aiconfigurator-core {metadata.version('aiconfigurator-core')},"
        f" {framework} {newest.parent.name}",
        catalogue()[kind],
        catalogue()[MEASURED_ON.get(system, kind)],
        lambda family, name: read_table(_newest(folder, family, framework, name)),
    )


def _newest(folder: Path, family: str, framework: str, name: str) -> Path | None:
    """The file of the newest version of a table that is no supplement: less than half as large."""
    found = sorted(
        (folder / family / framework).glob(f"*/{name}.parquet"),
        key=lambda path: [int(number) for number in re.findall(r"\d+", path.parent.name)],
    )
    largest = max((path.stat().st_size for path in found), default=0)
    return next((path for path in reversed(found) if 2 * path.stat().st_size >= largest), None)


COLUMNS = {"gemm_perf": ("gemm_dtype", "m", "n", "k", "latency")}


@cache
def read_table(path: Path | None) -> Columns | None:
    """The columns of a Parquet file that are looked at, of its rows that state a time."""
    if path is None:
        return None
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    names = COLUMNS[path.stem]
    try:
        with ParquetFile(path, read_dictionary=[n for n in names if n.endswith("dtype")]) as file:
            missing = sorted(set(names) - set(file.schema_arrow.names))
            if missing:
                raise InputError(f"lacks column {missing[0]}; reinstall aiconfigurator-core", path)
            rows = file.read(names).combine_chunks()
        table = {}
        for name in names:
            column = rows.column(name).chunk(0)
            # from_dlpack: pyarrow's own to_numpy loads pandas, 0.4 s
            if hasattr(column, "dictionary"):
                texts = np.array(column.dictionary.to_pylist())
                table[name] = texts[np.from_dlpack(column.indices)]
            else:
                table[name] = np.from_dlpack(column).astype(np.float64)
    except (OSError, ValueError, TypeError, IndexError, ArrowException) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"cannot be read ({error}); reinstall aiconfigurator-core", path) from None
    stated = table["latency"] > 0
    return {name: column[stated] for name, column in table.items()}
