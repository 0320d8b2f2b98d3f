"""Costing: FLOPs and bytes moved become times on the device kinds of a cluster, by the catalogue.

The time of an op is the launch overhead plus its roofline, the larger of FLOPs / peak rate and
bytes moved / memory bandwidth, rounded up once to whole nanoseconds. An op that computes nothing
and moves nothing is a view (Reshape, Identity): no kernel is launched, and it takes 0 ns.

That is ``roofline``: each op is a kernel, and rates are datasheets'. Under ``calibrated`` costs the
ops that run as one kernel (`launch_of`) are launched once, move what goes in and out of it, and
share its time in proportion to the bytes that they move by themselves; rates are those that kernels
reach. Under ``measured`` costs a kernel that a table of measured ones has takes what it took there,
and the others what they take under calibrated costs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from placegap.instances.costing.catalogue import (
    BANDWIDTH_PERCENT,
    COMPUTE_PERCENT,
    KERNEL_NS,
    catalogue,
    fit_of,
    launch_ns_of,
    specs_of,
)
from placegap.instances.costing.launches import bytes_inside, launch_of
from placegap.instances.costing.weight_formats import BLOCK_CACHE_PERCENT, slower_cache
from placegap.instances.problem import Cluster, DeviceSpec, ExpertsKernel, Graph, Op
from placegap.instances.problem.integers import NS_PER_S, ceil_div
from placegap.instances.reading.errors import (
    InputError,
    as_input_error,
    instead_of,
    paused_collector,
)

if TYPE_CHECKING:
    from placegap.instances.costing.kernel_tables import KernelTables

COSTS = "costs"  # provenance: how ops without times are costed; by default calibrated

KINDS_OF_COSTS = ("calibrated", "roofline", "measured")

FRAMEWORKS = ("sglang", "trtllm", "vllm")  # whose measured kernels there are tables of
# Parameter of the provenance: for how much of the time on each kind costs are measured.
MEASURED_SHARE = "costs.measured_share"
# Parameter of the provenance: kinds on which less than `LEAST_SHARE` of the time is measured.
MOSTLY_MODELLED = "costs.mostly_modelled"
LEAST_SHARE = 0.5  # with a smaller share of measured time a warning is printed


def roofline_ns(
    flops: int,
    bytes_moved: int,
    spec: DeviceSpec,
    compute_percent: int = 100,
    bandwidth_percent: int = 100,
    dtype: str | None = None,
) -> int:
    """Time of an op on a device, in ns: the larger of computing and moving, and the launch.

    Percentages are shares of the rates that are reached; the peak is that of `dtype` (float32).
    1 GFLOP at 8.1 TFLOP/s takes 123.5 us, 16 MB at 320 GB/s 50 us, and the launch of a kernel 5 us:

    >>> roofline_ns(10**9, 16_000_000, catalogue()["T4"])
    128457
    """
    if not flops and not bytes_moved:
        return 0
    compute_ns = ceil_div(flops * NS_PER_S * 100, spec.peak(dtype) * compute_percent)
    memory_ns = ceil_div(
        bytes_moved * NS_PER_S * 100, spec.bandwidth_bytes_per_s * bandwidth_percent
    )
    return spec.launch_overhead_ns + max(compute_ns, memory_ns)


def cost_graph(
    graph: Graph,
    cluster: Cluster,
    *,
    costs: str = "roofline",
    compute_percent: int = 100,
    bandwidth_percent: int = 100,
) -> Graph:
    """The graph with a time for every device kind of the cluster whose rates are known.

    Under costs "roofline" each op is a separate kernel. The peak rate is that of the op's number
    type (`Op.dtype`). Stated times are kept. Ops that state neither FLOPs nor bytes moved get no
    time; if an op states only one of them, the other counts as 0. The rates used are noted in the
    provenance. If nothing is to be added, the same graph is returned.

    Parameters
    ----------
    graph : Graph
    cluster : Cluster
    costs : str
        "roofline", "calibrated", "measured" or "measured:FRAMEWORK", as of ``--costs``.
    compute_percent, bandwidth_percent : int
        Share of the peak rate and of the bandwidth that is reached, at least 1; for "roofline"
        only.

    Raises
    ------
    InputError
        If a percentage is not positive, the times sum to more than 2**62 ns, or the graph has
        times that were costed for a kind at other rates.

    Notes
    -----
    O(ops x kinds).

    Examples
    --------
    >>> from placegap.instances.problem import Device
    >>> graph = Graph(name="one", ops=(Op(name="a", flops=10**9, bytes_moved=16_000_000),))
    >>> cost_graph(graph, Cluster(name="c", devices=(Device(name="d", kind="T4"),))).ops[0].time_ns
    {'T4': 128457}
    """
    if compute_percent < 1 or bandwidth_percent < 1:
        raise InputError("costing: compute_percent and bandwidth_percent must be at least 1")
    if costs != "roofline":
        return costed(with_costs(graph, costs), cluster)
    specs = specs_of(cluster)
    _refuse_other_rates(graph, specs)
    percent = {"compute_percent": compute_percent, "bandwidth_percent": bandwidth_percent}
    with paused_collector():
        ops, added = _cost_ops(graph.ops, specs, **percent)
        if not added:
            return graph
        used = {kind: specs[kind] for kind in sorted(added)}
        dtypes = sorted({op.dtype for op in graph.ops if op.dtype is not None and op.flops})
        provenance = graph.provenance.noting(
            f"times on {', '.join(used)} are roofline estimates", _parameters(used, percent, dtypes)
        )
        with as_input_error(source=graph.name):
            return graph.model_copy(update={"ops": tuple(ops), "provenance": provenance})


def check_costs(costs: str) -> None:
    """Refuse what is no name of costs."""
    kind, colon, framework = costs.partition(":")
    if kind in KINDS_OF_COSTS and (not colon or (kind == "measured" and framework in FRAMEWORKS)):
        return
    hint = instead_of(costs, KINDS_OF_COSTS)
    raise InputError(
        f"there are no costs {costs!r}{hint}; of measured ones a framework may be named"
        f" (measured:vllm), of {', '.join(FRAMEWORKS)}"
    )


def with_costs(graph: Graph, costs: str) -> Graph:
    """The graph, noting how its ops without times are costed."""
    check_costs(costs)
    noted = {**graph.provenance.parameters, COSTS: costs}
    provenance = graph.provenance.model_copy(update={"parameters": noted})
    return graph.model_copy(update={"provenance": provenance})


def is_measured(graph: Graph) -> bool:
    """Whether times come from tables of measured kernels, where those have them."""
    return str(graph.provenance.parameters.get(COSTS)).partition(":")[0] == "measured"


def costed(graph: Graph, cluster: Cluster) -> Graph:
    """The graph with a time for every device kind of the cluster whose rates are known."""
    # It has them by the costs that its provenance names.
    costs = str(graph.provenance.parameters.get(COSTS, "calibrated"))
    if costs == "roofline":
        return cost_graph(graph, cluster)
    specs = specs_of(cluster)
    _refuse_other_rates(graph, specs)
    if not any(op.flops is not None or op.bytes_moved is not None for op in graph.ops):
        return graph
    with paused_collector():
        found, before = cost_kernels(graph, specs), graph.provenance.parameters.get(MEASURED_SHARE)
        if not found.added:
            if not is_measured(graph) or before is not None:
                return graph
            words = "as the model brings them: none is looked up"
            provenance = graph.provenance.noting("all times stay", {MEASURED_SHARE: words})
            return graph.model_copy(update={"provenance": provenance})
        used = {kind: specs[kind] for kind in sorted(found.added)}
        dtypes = sorted({op.dtype for op in graph.ops if op.dtype is not None and op.flops})
        noted = _parameters(used, {"compute_percent": COMPUTE_PERCENT}, dtypes)
        for kind, spec in used.items():
            reached = _reached(spec, has_table=kind in found.tables)
            noted[f"costing.{kind}.kernel_ns"], noted[f"costing.{kind}.bandwidth_percent"] = reached
        said = f"calibrated estimates (kernels: {found.kernels})"
        if is_measured(graph):
            noted[MEASURED_SHARE] = f"{before}; {found.shares}" if before else found.shares
            few = [kind for kind in found.measured if found.share(kind) < LEAST_SHARE]
            if few:
                noted[MOSTLY_MODELLED] = ", ".join(few)
            said = f"{found.shares}; others are {said}"
        provenance = graph.provenance.noting(
            f"times on {', '.join(used)} are {said}", {COSTS: costs, **noted}
        )
        with as_input_error(source=graph.name):
            return graph.model_copy(update={"ops": tuple(found.ops), "provenance": provenance})


class CostedKernels(NamedTuple):
    """What `cost_kernels` found."""

    ops: list[Op]
    added: set[str]  # kinds that some op got a time for
    kernels: int  # how many kernels there are
    measured: dict[str, set[int]]  # by added kind: the ops whose time a table has, and the tables
    tables: dict[str, KernelTables]

    def share(self, kind: str) -> float:
        """The share of the time on a kind that is measured."""
        times = [op.time_ns.get(kind, 0) for op in self.ops]
        return sum(times[i] for i in self.measured[kind]) / max(1, sum(times))

    @property
    def shares(self) -> str:
        """For how much of the time on each kind costs are measured, and by which tables."""
        said, source = list[str](), ""
        for kind, table in self.tables.items():
            by = "" if table.source == source else f" ({table.source})"
            said.append(
                f"{100 * self.share(kind):.0f} %{'' if said else ' of the time'} on {kind}{by}"
            )
            source = table.source
        others = [kind for kind in self.measured if kind not in self.tables]
        return f"measured for {', '.join([*said, *(f'none on {kind}' for kind in others)])}"


def _tables(graph: Graph, specs: Mapping[str, DeviceSpec]) -> dict[str, KernelTables]:
    """The tables of kinds that have some; InputError if nothing could be looked up."""
    if not is_measured(graph):
        return {}
    from placegap.instances.costing.kernel_tables import SYSTEMS, kernel_tables

    costs = str(graph.provenance.parameters[COSTS])
    known = catalogue()
    found = {
        kind: kernel_tables(kind, costs.partition(":")[2] or None)
        for kind, spec in specs.items()
        if kind in known and _rates(spec) == _rates(known[kind])  # no card of the user's own
    }
    tables = {kind: each for kind, each in found.items() if each is not None}
    if not tables:
        others = ", ".join(kind for kind in SYSTEMS if kind not in specs)
        raise InputError(
            f"{costs} costs exist only for {others}, not for {', '.join(specs) or 'these devices'}"
            f" at these rates; choose --costs calibrated",
            graph.name,
        )
    if all(op.kernel is None for op in graph.ops):
        raise InputError(
            "no op names its kernel, so no table applies; read the model again (hf:, py:, ONNX), or"
            " choose --costs calibrated",
            graph.name,
        )
    return tables


def cost_kernels(graph: Graph, specs: Mapping[str, DeviceSpec]) -> CostedKernels:
    """The ops with their shares of their kernels' times, and which of them tables have."""
    tables = _tables(graph, specs)
    noted = graph.provenance.parameters
    kinds = {kind for op in graph.ops for kind in op.time_ns}
    launch = launch_of(graph, {kind for kind in kinds if f"costing.{kind}.source" in noted})
    ops, index = list(graph.ops), graph.index
    first = index.tensor_first_edge.tolist()
    saved = bytes_inside(index, np.array([graph.edges[e].bytes for e in first], np.int64), launch)
    members: dict[int, list[int]] = {}
    for i, number in enumerate(launch.tolist()):
        members.setdefault(number, []).append(i)
    reached = {kind: _reached(spec, has_table=kind in tables) for kind, spec in specs.items()}
    slower = slower_cache(noted.get("kv_dtype") if noted.get("decode") else None)
    added, kernels = set[str](), 0
    measured: dict[str, set[int]] = {kind: set() for kind in specs}
    for number, own in members.items():
        parts = [ops[i] for i in own]
        runs = {kind for kind, spec in specs.items() if _runs(spec, parts)}
        missing = runs - parts[0].time_ns.keys()
        if not missing or all(op.flops is None and op.bytes_moved is None for op in parts):
            continue
        flops = sum(op.flops or 0 for op in parts)
        shares = [op.bytes_moved or 0 for op in parts]
        moved = max(sum(shares) - int(saved[number]), bool(sum(shares)))
        dtype = max(parts, key=lambda op: op.flops or 0).dtype
        kernels += bool(flops or moved)
        added |= missing
        group = parts[0].colocation or (f"kernel of {parts[0].name}" if len(own) > 1 else None)
        held = sum(cache.held_bytes(cache.tokens) for op in parts for cache in op.caches)
        split = {}
        for kind, spec in specs.items():
            more = max(0, int(held * (slower * reached[kind][1] / BLOCK_CACHE_PERCENT - 1)))
            time_ns = _kernel_ns(flops, moved + more, spec, dtype, reached[kind])
            split[kind] = _split(time_ns, shares)
        if len(own) == 1 and parts[0].kernel is not None:
            for kind in missing & tables.keys():
                table_ns = _measured_ns(parts[0], tables[kind])
                if table_ns is not None:
                    split[kind] = [table_ns]
                    measured[kind].add(own[0])
        for at, (i, op) in enumerate(zip(own, parts, strict=True)):
            times = {kind: parts_ns[at] for kind, parts_ns in split.items() if kind in runs}
            ops[i] = op.model_copy(update={"time_ns": {**times, **op.time_ns}, "colocation": group})
    open_tables = {kind: table for kind, table in tables.items() if kind in added}
    open_kinds = {kind: ops_of for kind, ops_of in measured.items() if kind in added}
    if open_tables and not any(open_kinds.values()):
        types = sorted({op.kernel.dtype for op in graph.ops if op.kernel is not None})
        raise InputError(
            f"no table covers its kernels, which compute in {', '.join(types)}; trace it with"
            " --dtype bfloat16, or choose --costs calibrated",
            graph.name,
        )
    return CostedKernels(ops, added, kernels, open_kinds, open_tables)


def _runs(spec: DeviceSpec, ops: Iterable[Op]) -> bool:
    """Whether a kind of devices runs all of some ops."""
    return not spec.lacks or all(op.kind not in spec.lacks for op in ops)


def _measured_ns(op: Op, table: KernelTables) -> int | None:
    """Time of an op by a table; of experts, the op's share of their FLOPs."""
    kernel = op.kernel
    whole_ns = None if kernel is None else table.time_ns(kernel)
    if whole_ns is None:
        return None
    share = 1.0
    if isinstance(kernel, ExpertsKernel):
        share = (op.flops or 0) / kernel.flops
    return max(1, round(whole_ns * share))


def kernel_ns(flops: int, bytes_moved: int, spec: DeviceSpec, dtype: str | None = None) -> int:
    """Time of a kernel on a device under calibrated costs, in ns."""
    return _kernel_ns(flops, bytes_moved, spec, dtype, _reached(spec, has_table=False))


def _kernel_ns(
    flops: int, bytes_moved: int, spec: DeviceSpec, dtype: str | None, reached: tuple[int, int]
) -> int:
    launch_ns, percent = reached
    time_ns = roofline_ns(flops, bytes_moved, spec, COMPUTE_PERCENT, percent, dtype)
    return time_ns and time_ns - spec.launch_overhead_ns + launch_ns


def _reached(spec: DeviceSpec, *, has_table: bool) -> tuple[int, int]:
    """What a kernel takes beside its bytes, in ns, and its percentage of the bandwidth."""
    # Kernels that no table has count as those do that tables were made of.
    if has_table:
        return KERNEL_NS, BANDWIDTH_PERCENT
    return launch_ns_of(spec), fit_of(spec).bandwidth_percent


def _split(time_ns: int, shares: Sequence[int]) -> list[int]:
    """A time in whole parts in proportion to shares; equal ones where all are 0."""
    ends = list(accumulate(shares if any(shares) else [1] * len(shares), initial=0))
    return [end - begin for begin, end in pairwise(time_ns * end // ends[-1] for end in ends)]


def _cost_ops(
    ops: Iterable[Op], specs: Mapping[str, DeviceSpec], compute_percent: int, bandwidth_percent: int
) -> tuple[list[Op], set[str]]:
    """The ops with their new times, and the kinds that some op got a time for."""
    known: dict[tuple[int, int, str | None], dict[str, int]] = {}
    added: set[str] = set()
    costed = []
    for op in ops:
        runs = {kind for kind, spec in specs.items() if _runs(spec, (op,))}
        missing = runs - op.time_ns.keys()
        if missing and (op.flops is not None or op.bytes_moved is not None):
            work = (op.flops or 0, op.bytes_moved or 0, op.dtype)
            if work not in known:
                known[work] = {
                    kind: roofline_ns(*work[:2], spec, compute_percent, bandwidth_percent, op.dtype)
                    for kind, spec in specs.items()
                }
            added |= missing
            times = {kind: known[work][kind] for kind in sorted(runs)}
            op = op.model_copy(update={"time_ns": {**times, **op.time_ns}})
        costed.append(op)
    return costed, added


def _parameters(
    specs: Mapping[str, DeviceSpec], percent: dict[str, int], dtypes: Sequence[str]
) -> dict[str, str | int | float | bool | None]:
    """What the times were made from, as it stands in the provenance."""
    found: dict[str, str | int | float | bool | None] = {}
    for kind, spec in specs.items():
        rates = _rates(spec) | {f"peak_flops_per_s.{dtype}": spec.peak(dtype) for dtype in dtypes}
        found |= {f"costing.{kind}.{name}": rate for name, rate in (rates | percent).items()}
        found[f"costing.{kind}.source"] = spec.source
    return found


def _rates(spec: DeviceSpec) -> dict[str, int]:
    return {
        "peak_flops_per_s": spec.peak(None),
        "bandwidth_bytes_per_s": spec.bandwidth_bytes_per_s,
        "launch_overhead_ns": spec.launch_overhead_ns,
    }


def _refuse_other_rates(graph: Graph, specs: Mapping[str, DeviceSpec]) -> None:
    """Times are kept, so that those of a kind of the same name and other rates would be wrong."""
    noted = graph.provenance.parameters
    for kind, spec in specs.items():
        for name, rate in _rates(spec).items():
            was = noted.get(f"costing.{kind}.{name}", rate)
            if was != rate:
                raise InputError(
                    f"times on {kind!r} were costed at {name} {was}, and here it has {rate}; give"
                    " the devices a kind of another name, or start from the model without times",
                    graph.name,
                )
