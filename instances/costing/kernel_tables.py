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
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from placegap.instances.costing.costing import catalogue
from placegap.instances.costing.measured_rates import interpolated
from placegap.instances.kernels.array_types import Floats
from placegap.instances.problem.cluster import DeviceSpec
from placegap.instances.problem.integers import NS_PER_S
from placegap.instances.problem.op_kernel import (
    AttentionKernel,
    ExpertsKernel,
    MatrixProduct,
    OpKernel,
)
from placegap.instances.reading.errors import InputError, MissingExtra

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
"""Device kinds of the catalogue that have tables, and what these call them. Boards for PCIe have
none: their power limits are lower."""

MEASURED_ON = {"a100_sxm": "A100-80GB"}
"""The card that was measured, where several kinds have a system's tables."""

FRAMEWORKS = ("sglang", "trtllm", "vllm")

EXTRA = "measured costs need an extra: pip install 'placegap[measured]'"

REINSTALL = "install aiconfigurator-core anew"

SUPPLEMENT = "1.3.0rc23"
"""A version of TensorRT-LLM with the experts of one model alone."""

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

TEXTS = ("gemm_dtype", "attn_dtype", "kv_cache_dtype", "moe_dtype", "distribution")
"""Columns of few different texts."""

WINDOW = "window_size"
"""A column that tables of products, of A100 and of encoders lack: 0, for no window."""

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


class Attention(NamedTuple):
    """Sizes of attention, or arrays of them; a window of 0 is none."""

    batch: Any
    heads: Any
    kv_heads: Any
    head_size: Any
    new_tokens: Any
    held_tokens: Any
    window: Any

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
    #: The card that was measured.
    measured_spec: DeviceSpec
    #: A table by its name; None where the card has none.
    table: Callable[[str], Columns | None]
    _times: dict[OpKernel, float | None] = field(default_factory=dict)
    _grids: dict[tuple[object, ...], Grid] = field(default_factory=dict)

    def time_ns(self, kernel: OpKernel) -> float | None:
        """What a kernel takes; None where no table has one like it. Of experts, all of a layer."""
        if kernel not in self._times:
            if isinstance(kernel, MatrixProduct):
                self._times[kernel] = self._product_ns(kernel)
            elif isinstance(kernel, AttentionKernel):
                self._times[kernel] = self._attention_ns(kernel)
            else:
                self._times[kernel] = self._experts_ns(kernel)
        return self._times[kernel]

    def _product_ns(self, kernel: MatrixProduct) -> float | None:
        """A batch has the ratio of as many rows."""
        dtype = _table_type(kernel.dtype)
        rows = _where(self.table("gemm_perf"), gemm_dtype=dtype)
        if rows is None or dtype is None:
            return None
        m, n, k, batch = kernel.m, kernel.n, kernel.k, kernel.batch
        grid = self._grid(
            ("gemm_perf", dtype),
            rows,
            ("m", "n", "k"),
            lambda: _product_roof_ns(self.measured_spec, dtype, rows["m"], rows["n"], rows["k"]),
        )
        roof = _product_roof_ns(self.spec, dtype, m, n, k, batch)
        return float(roof) * grid.ratio(batch * m, n, k)

    def _attention_ns(self, kernel: AttentionKernel) -> float | None:
        """A shape that is not measured has the ratio of the next: of the next head size, then of
        the next number of heads that share keys. Keys of other heads are those of other sequences:
        twice the heads take what twice the batch takes (median error on H100 3 %).

        A window, or held tokens of a prompt, that no row has: the ratio at as many pairs.
        """
        phase, name = kernel.phase, f"{kernel.phase}_attention_perf"
        dtype, cache = _table_type(kernel.dtype), _table_type(kernel.cache_dtype)
        if dtype is None or cache is None or (phase == "generation" and kernel.new_tokens > 1):
            return None
        table = self.table(name)
        of_type = {"attn_dtype": dtype} | ({} if phase == "encoder" else {"kv_cache_dtype": cache})
        for window in dict.fromkeys((kernel.window or 0, 0)):
            rows = _where(table, **of_type, window_size=window)
            if rows is not None and (
                rows["head_dim"].min() <= kernel.head_size <= rows["head_dim"].max()
            ):
                break
        else:
            return None
        own = Attention(
            kernel.batch,
            kernel.heads,
            kernel.kv_heads,
            kernel.head_size,
            kernel.new_tokens,
            kernel.held_tokens,
            kernel.window or 0,
        )
        shapes = np.unique(
            [rows["num_heads"], rows["num_key_value_heads"], rows["head_dim"]], axis=1
        )
        heads, kv_heads, head_size = shapes
        near = np.lexsort(
            (
                _distance(kv_heads, own.kv_heads),
                _distance(heads / kv_heads, own.heads / own.kv_heads),
                _distance(head_size, own.head_size),
            )
        )[0]
        heads, kv_heads, head_size = shapes[:, near]
        rows = _where(rows, num_heads=heads, num_key_value_heads=kv_heads, head_dim=head_size)
        assert rows is not None  # the shape is one of theirs
        measured = Attention(
            rows["batch_size"],
            heads,
            kv_heads,
            head_size,
            rows["isl"],
            rows["step"] if phase == "generation" else 0.0,
            window,
        )
        grid = self._grid(
            (name, dtype, cache, window, heads, kv_heads, head_size),
            {**rows, "tokens": measured.new_tokens + measured.held_tokens},
            ("batch_size", "tokens"),
            lambda: measured.roof_ns(self.measured_spec, phase, dtype, cache),
        )
        tokens = own.new_tokens + own.held_tokens
        if phase == "generation" and not window:
            tokens = own.pairs(phase)
        elif phase == "context" and not window:
            tokens = (np.sqrt(1 + 8 * own.pairs(phase)) - 1) / 2
        roof = own.roof_ns(self.spec, phase, dtype, cache)
        return float(roof) * grid.ratio(own.batch * own.kv_heads / kv_heads, tokens)

    def _experts_ns(self, kernel: ExpertsKernel) -> float | None:
        """Those of the next sizes, each at most twice or half; of tokens that choose evenly.

        A100 and B60 were measured with uneven choices alone: the least uneven stands for even ones.
        """
        dtype = _table_type(kernel.dtype)
        rows = _where(self.table("moe_perf"), moe_dtype=dtype, moe_tp_size=1, moe_ep_size=1)
        if rows is None or dtype is None:
            return None
        rows = _where(rows, distribution=min(rows["distribution"]))
        assert rows is not None  # some row has the least name: balanced, power_law_1.01, ...
        names = ("hidden_size", "inter_size", "topk", "num_experts")
        sizes = (kernel.hidden, kernel.inner, kernel.chosen, kernel.experts)
        shapes = np.unique([rows[name] for name in names], axis=1)
        far = np.array([_distance(shapes[i], size) for i, size in enumerate(sizes)])
        far = np.where((far <= np.log(2) + 1e-9).all(0), far.sum(0), np.inf)
        if np.isinf(far).all():
            return None
        shape = tuple(shapes[:, far.argmin()])
        rows = _where(rows, **dict(zip(names, shape, strict=True)))
        assert rows is not None  # the shape is one of theirs

        def roof_ns(spec: DeviceSpec, tokens: Any, *sizes: Any) -> Any:
            hidden, inner, chosen, experts = sizes
            # expected, where all are chosen with equal chances
            used = experts * (1 - (1 - chosen / experts) ** tokens)
            flops = 2 * kernel.matrices * tokens * chosen * hidden * inner
            weights = ITEM_BYTES[dtype] * kernel.matrices * hidden * inner * used
            return _roof_ns(spec, dtype, flops, weights + 2 * 2 * tokens * hidden)

        grid = self._grid(
            ("moe_perf", dtype, kernel.matrices, *shape),
            rows,
            ("num_tokens",),
            lambda: roof_ns(self.measured_spec, rows["num_tokens"], *shape),
        )
        return float(roof_ns(self.spec, kernel.tokens, *sizes)) * grid.ratio(kernel.tokens)

    def _grid(
        self,
        key: tuple[object, ...],
        rows: Columns,
        axes: tuple[str, ...],
        roof_ns: Callable[[], Any],
    ) -> Grid:
        if key not in self._grids:
            ratio = rows["latency"] * NS_PER_MS / roof_ns()
            self._grids[key] = Grid.of([rows[name] for name in axes], ratio)
        return self._grids[key]


def _table_type(dtype: str) -> str | None:
    return TABLE_TYPES.get(dtype.partition("_")[0])


def _distance(sizes: Floats, size: float) -> Floats:
    """Of logarithms; rounded, so that as far up as down is a tie."""
    return np.asarray(np.round(np.abs(np.log(sizes / size)), 9), np.float64)


def _product_roof_ns(spec: DeviceSpec, dtype: str, m: Any, n: Any, k: Any, batch: int = 1) -> Any:
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
    found = (path for path in folder.glob(f"*/{framework}/*/{name}.parquet") if _is_whole(path))
    return max(found, key=lambda path: _numbers(path.parent.name), default=None)


def _is_whole(path: Path) -> bool:
    return path.parent.name != SUPPLEMENT


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


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
