"""Costing: FLOPs and bytes moved become times on the device kinds of a cluster.

The time of an op is the launch overhead plus its roofline, the larger of FLOPs / peak rate and
bytes moved / memory bandwidth, rounded up once to whole nanoseconds. An op that computes nothing
and moves nothing is a view (Reshape, Identity): no kernel is launched, and it takes 0 ns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pydantic import ValidationError

from placegap.instances.io.costing import DeviceSpec, catalogue
from placegap.instances.problem.instance import Cluster, Graph, Op, Provenance
from placegap.instances.problem.integers import NS_PER_S, ceil_div
from placegap.instances.reading.errors import InputError, from_validation_error, paused_collector


def roofline_ns(
    flops: int,
    bytes_moved: int,
    spec: DeviceSpec,
    compute_percent: int = 100,
    bandwidth_percent: int = 100,
    dtype: str | None = None,
) -> int:
    """Time of an op on a device, in ns.

    Parameters
    ----------
    flops, bytes_moved : int
        Floating-point operations, and bytes read from and written to device memory.
    spec : DeviceSpec
    compute_percent, bandwidth_percent : int
        Share of the peak rate and of the bandwidth that is reached.
    dtype : str, optional
        Number type that it computes in, whose peak rate counts; None stands for float32.

    Examples
    --------
    1 GFLOP at 8.1 TFLOP/s takes 123.5 us, 16 MB at 320 GB/s take 50 us; 5 us to launch the kernel:

    >>> roofline_ns(10**9, 16_000_000, catalogue()["T4"])
    128457
    >>> roofline_ns(0, 0, catalogue()["T4"])
    0
    """
    if not flops and not bytes_moved:
        return 0
    compute_ns = ceil_div(flops * NS_PER_S * 100, spec.peak(dtype) * compute_percent)
    memory_ns = ceil_div(
        bytes_moved * NS_PER_S * 100, spec.bandwidth_bytes_per_s * bandwidth_percent
    )
    return spec.launch_overhead_ns + max(compute_ns, memory_ns)


def cost_graph(
    graph: Graph, cluster: Cluster, *, compute_percent: int = 100, bandwidth_percent: int = 100
) -> Graph:
    """The graph with a time for every device kind of the cluster that the catalogue knows.

    The peak rate is that of the op's number type (`Op.dtype`). Times that the ops bring are kept;
    ops that state neither FLOPs nor bytes moved are left alone, and of an op that states one of
    them the other counts as 0. What was used is written into the provenance. The same graph comes
    back where nothing is to be added.

    Parameters
    ----------
    graph : Graph
    cluster : Cluster
    compute_percent, bandwidth_percent : int
        Share of the peak rate and of the bandwidth that is reached, at least 1.

    Raises
    ------
    InputError
        If a percentage is not positive or the times sum to more than 2**62 ns.

    Notes
    -----
    O(ops x kinds).

    Examples
    --------
    >>> from placegap.instances.problem.instance import Device
    >>> graph = Graph(name="one", ops=(Op(name="a", flops=10**9, bytes_moved=16_000_000),))
    >>> cost_graph(graph, Cluster(name="c", devices=(Device(name="d", kind="T4"),))).ops[0].time_ns
    {'T4': 128457}
    """
    if compute_percent < 1 or bandwidth_percent < 1:
        raise InputError("costing: compute_percent and bandwidth_percent must be at least 1")
    specs = {
        kind: catalogue()[kind]
        for kind in sorted({device.kind for device in cluster.devices})
        if kind in catalogue()
    }
    percent = {"compute_percent": compute_percent, "bandwidth_percent": bandwidth_percent}
    with paused_collector():
        ops, added = _cost_ops(graph.ops, specs, **percent)
        if not added:
            return graph
        used = {kind: specs[kind] for kind in sorted(added)}
        dtypes = sorted({op.dtype for op in graph.ops if op.dtype is not None and op.flops})
        provenance = graph.provenance
        provenance = Provenance(
            source=provenance.source,
            licence=provenance.licence,
            changes=(*provenance.changes, f"times on {', '.join(used)} are roofline estimates"),
            parameters={**provenance.parameters, **_parameters(used, percent, dtypes)},
        )
        try:
            return graph.model_copy(update={"ops": tuple(ops), "provenance": provenance})
        except ValidationError as error:
            raise from_validation_error(error, source=graph.name) from None


def _cost_ops(
    ops: Iterable[Op], specs: Mapping[str, DeviceSpec], compute_percent: int, bandwidth_percent: int
) -> tuple[list[Op], set[str]]:
    """The ops with their new times, and the kinds that some op got a time for."""
    known: dict[tuple[int, int, str | None], dict[str, int]] = {}
    added: set[str] = set()
    costed = []
    for op in ops:
        missing = specs.keys() - op.time_ns.keys()
        if missing and (op.flops is not None or op.bytes_moved is not None):
            work = (op.flops or 0, op.bytes_moved or 0, op.dtype)
            if work not in known:
                known[work] = {
                    kind: roofline_ns(*work[:2], spec, compute_percent, bandwidth_percent, op.dtype)
                    for kind, spec in specs.items()
                }
            added |= missing
            op = op.model_copy(update={"time_ns": {**known[work], **op.time_ns}})
        costed.append(op)
    return costed, added


def _parameters(
    specs: Mapping[str, DeviceSpec], percent: Mapping[str, int], dtypes: Sequence[str]
) -> dict[str, str | int | float | bool | None]:
    """What the times were made from, as it stands in the provenance."""
    left_out = {"memory_bytes", "peak_by_dtype", "is_cpu"}
    return {
        f"costing.{kind}.{name}": value
        for kind, spec in specs.items()
        for name, value in {
            **spec.model_dump(exclude=left_out),
            **{f"peak_flops_per_s.{dtype}": spec.peak(dtype) for dtype in dtypes},
            **percent,
        }.items()
    }
