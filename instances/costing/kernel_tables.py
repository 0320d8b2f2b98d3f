"""Measured times of kernels on cards: the tables of aiconfigurator-core, and between their rows.

A row's latency over its roofline is a ratio. Its logarithm is linear in the logarithms of the sizes
on the grid that the rows make, and outside the value at the edge holds. A time is the roofline of
the kernel times the ratio at its sizes, so that a kernel that a row states takes the row's time,
whatever the rates of the card are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from placegap.instances.costing.catalogue import catalogue
from placegap.instances.costing.measured_rates import interpolated
from placegap.instances.kernels.array_types import Floats
from placegap.instances.problem.cluster import DeviceSpec
from placegap.instances.problem.integers import NS_PER_MS, NS_PER_S
from placegap.instances.problem.op_kernel import (
    AttentionKernel,
    ExpertsKernel,
    MatrixProduct,
    OpKernel,
)
from placegap.instances.reading.errors import InputError, MissingExtra

# Device kinds of the catalogue that have tables, and what these call them. Boards for PCIe have
# none: their power limits are lower.
SYSTEMS = {
    "A100-40GB": "a100_sxm",
    "A100-80GB": "a100_sxm",
    "H100-80GB": "h100_sxm",
    "H200": "h200_sxm",
    "B200": "b200_sxm",
    "GB200": "gb200",
    "B300": "b300_sxm",
    "GB300": "gb300",
    "L40S": "l40s",
    "RTX-PRO-6000": "rtx_pro_6000_server",
    "Arc-Pro-B60": "b60",
}

MEASURED_ON = {"a100_sxm": "A100-80GB"}  # the card measured, where several have its tables

EXTRA = "measured costs need an extra: pip install 'placegap[measured]'"

REINSTALL = "install aiconfigurator-core anew"

SUPPLEMENT = "1.3.0rc23"  # a version of TensorRT-LLM with the experts of one model alone

_ATTENTION = ("attn_dtype", "batch_size", "num_heads", "head_dim", "isl", "latency")

COLUMNS = {
    "gemm_perf": ("gemm_dtype", "m", "n", "k", "latency"),
    "context_attention_perf": (*_ATTENTION, "kv_cache_dtype", "num_key_value_heads"),
    "generation_attention_perf": (*_ATTENTION, "kv_cache_dtype", "num_key_value_heads", "step"),
    "encoder_attention_perf": _ATTENTION,
    "moe_perf": (
        *("moe_dtype", "distribution", "moe_tp_size", "moe_ep_size", "num_tokens", "hidden_size"),
        *("inter_size", "topk", "num_experts", "latency"),
    ),
}
"""What is read of a table."""

# Columns of few different texts.
TEXTS = ("gemm_dtype", "attn_dtype", "kv_cache_dtype", "moe_dtype", "distribution")
WINDOW = "window_size"  # a column that tables of products, A100, encoders lack: 0, no window
# Number types of kernels, and what tables call them; half precisions take the same time.
TABLE_TYPES = {"bfloat16": "bfloat16", "float16": "bfloat16", "float8": "fp8"}

ITEM_BYTES = {"bfloat16": 2, "fp8": 1}

Columns = Mapping[str, Any]  # a table: arrays of its rows by column


@dataclass(frozen=True, eq=False)
class RatioGrid:
    """Logarithms of measured time over roofline, by logarithms of sizes."""

    axes: tuple[Floats, ...]
    log_ratio: Floats

    @classmethod
    def of(cls, sizes: list[Floats], ratio: Floats) -> RatioGrid:
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


class Attention(NamedTuple):
    """Sizes of attention, or arrays of them; a window of 0 is none."""

    batch: Any
    heads: Any
    kv_heads: Any
    head_size: Any
    new_tokens: Any
    held_tokens: Any
    window: Any

    @classmethod
    def of(cls, rows: Columns) -> Attention:
        """The rows of a table."""
        heads, kv_heads = rows["num_heads"], rows["num_key_value_heads"]
        batch, step, window = rows["batch_size"], rows.get("step", 0), rows[WINDOW]
        return cls(batch, heads, kv_heads, rows["head_dim"], rows["isl"], step, window)

    @property
    def limit(self) -> Any:
        """The most tokens that each one sees."""
        return np.where(self.window, self.window, self.held_tokens + self.new_tokens)

    def pairs(self, phase: str) -> Any:
        """How often a token of a sequence sees one."""
        if phase == "encoder":
            return self.new_tokens * np.minimum(self.new_tokens, self.limit)
        free = np.clip(self.limit - self.held_tokens, 0, self.new_tokens)
        early = free * self.held_tokens + free * (free + 1) / 2
        return early + (self.new_tokens - free) * self.limit

    def roof_ns(self, spec: DeviceSpec, phase: str, dtype: str, cache: str) -> Any:
        """Two products of all pairs; queries and results, and each key and value that is seen."""
        flops = 4 * self.batch * self.heads * self.head_size * self.pairs(phase)
        seen = self.new_tokens + np.minimum(self.held_tokens, self.limit - 1)
        rows = 2 * 2 * self.heads * self.new_tokens + 2 * ITEM_BYTES[cache] * self.kv_heads * seen
        return _roof_ns(spec, dtype, flops, self.batch * self.head_size * rows)


@dataclass(frozen=True, eq=False)
class KernelTables:
    """The tables of a card: what kernels take on it."""

    source: str
    spec: DeviceSpec
    measured_spec: DeviceSpec  # the card that was measured
    table: Callable[[str], Columns | None]  # a table by its name; None where the card has none

    def time_ns(self, kernel: OpKernel) -> float | None:
        """What a kernel takes; None where no table has one like it. Of experts, all of a layer."""
        return _time_ns(self, kernel)

    def grid(self, rows: Columns, axes: Sequence[str], roof_ns: Any) -> RatioGrid:
        """Of rows with these rooflines on the card that was measured."""
        return RatioGrid.of([rows[name] for name in axes], rows["latency"] * NS_PER_MS / roof_ns)


@cache
def _time_ns(tables: KernelTables, kernel: OpKernel) -> float | None:
    dtype = TABLE_TYPES.get(kernel.dtype.partition("_")[0])
    if dtype is None:
        return None
    if isinstance(kernel, MatrixProduct):
        return _product_ns(tables, kernel, dtype)
    if isinstance(kernel, AttentionKernel):
        return _attention_ns(tables, kernel, dtype)
    return _experts_ns(tables, kernel, dtype)


def _product_ns(tables: KernelTables, kernel: MatrixProduct, dtype: str) -> float | None:
    """A batch has the ratio of as many rows. What is smaller than the table's takes as long."""
    # A batch of such small ones (a depthwise convolution) is no product of the table.
    grid = _product_grid(tables, dtype)
    if grid is None:
        return None
    least_n, least_k = (round(np.exp(axis[0])) for axis in grid.axes[1:])
    m, n, k, batch = kernel.m, max(kernel.n, least_n), max(kernel.k, least_k), kernel.batch
    if batch > 1 and (n, k) != (kernel.n, kernel.k):
        return None
    roof = product_roof_ns(tables.spec, dtype, m, n, k, batch)
    return float(roof) * grid.ratio(batch * m, n, k)


@cache
def _product_grid(tables: KernelTables, dtype: str) -> RatioGrid | None:
    rows = _where(tables.table("gemm_perf"), gemm_dtype=dtype)
    if rows is None:
        return None
    roof = product_roof_ns(tables.measured_spec, dtype, rows["m"], rows["n"], rows["k"])
    return tables.grid(rows, ("m", "n", "k"), roof)


def _attention_ns(tables: KernelTables, kernel: AttentionKernel, dtype: str) -> float | None:
    """A window, or held tokens of a prompt, that no row has: the ratio at as many pairs."""
    phase, cache_dtype = kernel.phase, TABLE_TYPES.get(kernel.cache_dtype.partition("_")[0])
    if cache_dtype is None or (phase == "generation" and kernel.new_tokens > 1):
        return None
    shape = (kernel.heads, kernel.kv_heads, kernel.head_size)
    for window in dict.fromkeys((kernel.window or 0, 0)):
        found = _attention_grid(tables, phase, (dtype, cache_dtype), window, shape)
        if found is not None:
            break
    else:
        return None
    own = Attention(kernel.batch, *shape, kernel.new_tokens, kernel.held_tokens, kernel.window or 0)
    tokens = own.new_tokens + own.held_tokens
    if phase == "generation" and not window:
        tokens = own.pairs(phase)
    elif phase == "context" and not window:
        tokens = (np.sqrt(1 + 8 * own.pairs(phase)) - 1) / 2
    grid, kv_heads, least_ns = found
    roof = own.roof_ns(tables.spec, phase, dtype, cache_dtype)
    return max(least_ns, float(roof) * grid.ratio(own.batch * own.kv_heads / kv_heads, tokens))


@cache
def _attention_grid(
    tables: KernelTables,
    phase: str,
    dtypes: tuple[str, str],
    window: int,
    shape: tuple[int, int, int],
) -> tuple[RatioGrid, float, float] | None:
    """The ratios of the next shape, its number of heads of keys, and its least time in ns."""
    # None where no size of heads is as small or none as large. The next head size comes first, then
    # the next number of heads that share keys. Keys of other heads are as those of other sequences:
    # on the tables themselves, twice the heads take what twice the batch takes (median error on
    # H100 3 %).
    name = f"{phase}_attention_perf"
    own_cache = {} if phase == "encoder" else {"kv_cache_dtype": dtypes[1]}
    rows = _where(tables.table(name), attn_dtype=dtypes[0], window_size=window, **own_cache)
    heads, kv_heads, head_size = shape
    if rows is None or not rows["head_dim"].min() <= head_size <= rows["head_dim"].max():
        return None
    names = ("head_dim", "num_heads", "num_key_value_heads")
    sizes, all_heads, all_kv_heads = found = np.unique([rows[n] for n in names], axis=1)
    far = (
        _distance(all_kv_heads, kv_heads),
        _distance(all_heads / all_kv_heads, heads / kv_heads),
        _distance(sizes, head_size),
    )
    near = found[:, np.lexsort(far)[0]]
    rows = _where(rows, **dict(zip(names, near, strict=True))) or rows
    measured = Attention.of(rows)
    tokens = measured.new_tokens + measured.held_tokens
    roof = measured.roof_ns(tables.measured_spec, phase, *dtypes)
    grid = tables.grid({**rows, "tokens": tokens}, ("batch_size", "tokens"), roof)
    return grid, float(near[2]), rows["latency"].min() * NS_PER_MS


def _experts_ns(tables: KernelTables, kernel: ExpertsKernel, dtype: str) -> float | None:
    """Those of the next sizes, each at most twice or half; of tokens that choose evenly."""
    # A100 and B60 were measured with uneven choices alone: the least uneven stand for even ones.
    rows = _where(tables.table("moe_perf"), moe_dtype=dtype, moe_tp_size=1, moe_ep_size=1)
    if rows is None:
        return None
    # the first by name: balanced, power_law_1.01, ...
    rows = _where(rows, distribution=min(rows["distribution"])) or rows
    names = ("hidden_size", "inter_size", "topk", "num_experts")
    sizes = (kernel.hidden, kernel.inner, kernel.chosen, kernel.experts)
    shapes = np.unique([rows[name] for name in names], axis=1)
    far = np.array([_distance(of, size) for of, size in zip(shapes, sizes, strict=True)])
    far = np.where((far <= np.log(2) + 1e-9).all(0), far.sum(0), np.inf)
    if np.isinf(far).all():
        return None
    near = shapes[:, far.argmin()]
    rows = _where(rows, **dict(zip(names, near, strict=True))) or rows

    def roof_ns(spec: DeviceSpec, tokens: Any, sizes: Iterable[Any], matrices: int) -> Any:
        hidden, inner, chosen, experts = sizes
        # expected, where all are chosen with equal chances
        used = experts * (1 - (1 - chosen / experts) ** tokens)
        flops = 2 * matrices * tokens * chosen * hidden * inner
        moved = ITEM_BYTES[dtype] * matrices * hidden * inner * used + 2 * 2 * tokens * hidden
        return _roof_ns(spec, dtype, flops, moved)

    of_rows = tables.measured_spec, rows["num_tokens"], near
    roof = roof_ns(*of_rows, kernel.matrices if (near == sizes).all() else 3)
    # no table says which experts have no gate: with one, two fifths of Nemotron's rows are faster
    # than their roofline (quantiles of 0.99 at most; of others 1.1 at least)
    if np.quantile(rows["latency"] * NS_PER_MS / roof, 0.4) < 1:
        roof = roof_ns(*of_rows, 2)
    own_ns = float(roof_ns(tables.spec, kernel.tokens, sizes, kernel.matrices))
    return own_ns * tables.grid(rows, ("num_tokens",), roof).ratio(kernel.tokens)


def _distance(sizes: Floats, size: float) -> Floats:
    """Of logarithms; rounded, so that as far up as down is a tie."""
    return np.asarray(np.round(np.abs(np.log(sizes / size)), 9), np.float64)


def product_roof_ns(spec: DeviceSpec, dtype: str, m: Any, n: Any, k: Any, batch: int = 1) -> Any:
    """Two factors of the type, and a result of two bytes a number."""
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
    """The tables of a device kind of the catalogue, None where it has none."""
    # Of each table the newest version is taken, of vLLM unless a framework is named.
    framework = framework or "vllm"
    if kind not in SYSTEMS:
        return None
    package = find_spec("aiconfigurator_core")
    try:
        version = metadata.version("aiconfigurator-core")
        import_module("pyarrow.parquet")
    except ImportError:
        raise MissingExtra(EXTRA) from None
    if package is None or not package.submodule_search_locations:
        raise MissingExtra(EXTRA)
    folder = Path(package.submodule_search_locations[0], "systems", "data", SYSTEMS[kind])
    if not folder.is_dir():
        raise InputError(f"is missing; {REINSTALL}", folder)
    products = _newest(folder, framework, "gemm_perf")
    if products is None:
        return None
    return KernelTables(
        f"aiconfigurator-core {version}, {framework} {products.parent.name}",
        catalogue()[kind],
        catalogue()[MEASURED_ON.get(SYSTEMS[kind], kind)],
        cache(lambda name: _read(_newest(folder, framework, name), name)),
    )


def _newest(folder: Path, framework: str, name: str) -> Path | None:
    """The file of the newest version of a table."""
    found = [
        ([int(number) for number in re.findall(r"\d+", path.parent.name)], path)
        for path in folder.glob(f"*/{framework}/*/{name}.parquet")
        if path.parent.name != SUPPLEMENT
    ]
    return max(found)[1] if found else None


def _read(path: Path | None, name: str) -> Columns | None:
    """The columns that are looked at, of the rows that state a time."""
    if path is None:
        return None
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    wanted, table = COLUMNS[name], {}
    try:
        with ParquetFile(path, read_dictionary=[n for n in wanted if n in TEXTS]) as file:
            there = set(file.schema_arrow.names)
            rows = file.read([*wanted, WINDOW]).combine_chunks()
        if missing := sorted(set(wanted) - there):
            raise ValueError(f"no column {missing[0]}")
        for column_name in rows.column_names:
            column = rows.column(column_name).chunk(0)
            # from_dlpack: pyarrow's own to_numpy loads pandas, 0.4 s
            if column_name in TEXTS:
                texts = np.array(column.dictionary.to_pylist())
                table[column_name] = texts[np.from_dlpack(column.indices)]
            else:
                table[column_name] = np.from_dlpack(column).astype(np.float64)
    except (OSError, ValueError, TypeError, LookupError, AttributeError, ArrowException) as error:
        raise InputError(f"cannot be read ({error}); {REINSTALL}", path) from None
    table.setdefault(WINDOW, np.zeros(len(rows)))
    if "num_heads" in table:
        table.setdefault("num_key_value_heads", table["num_heads"])  # of encoders
    stated = table["latency"] > 0
    return {name: column[stated] for name, column in table.items()}
