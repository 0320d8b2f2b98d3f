"""Costing: FLOPs and bytes moved become times on the device kinds of a cluster, by the catalogue.

The time of an op is the launch overhead plus its roofline, the larger of FLOPs / peak rate and
bytes moved / memory bandwidth, rounded up once to whole nanoseconds. An op that computes nothing
and moves nothing is a view (Reshape, Identity): no kernel is launched, and it takes 0 ns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from pydantic import Field, TypeAdapter

from placegap.instances.problem.instance import (
    Cluster,
    Count,
    Device,
    Flag,
    Graph,
    InstancePart,
    Name,
    Op,
    Positive,
)
from placegap.instances.problem.integers import NS_PER_S, ceil_div
from placegap.instances.reading.errors import (
    InputError,
    as_input_error,
    instead_of,
    paused_collector,
)
from placegap.instances.reading.input_files import data_path
from placegap.instances.reading.yaml_file import read_yaml


class DeviceSpec(InstancePart):
    """What is known of a device kind.

    Attributes
    ----------
    peak_flops_per_s : int
        Peak rate in fp32, dense, outside tensor cores.
    bandwidth_bytes_per_s : int
        Bandwidth of the device's memory.
    memory_bytes : int
        Its capacity; GB of the source read as 10**9 bytes.
    peak_by_dtype : dict of str to int
        Peak rates in FLOP/s of other number types ("float16"), dense, of matrix products: in tensor
        cores where the device has them. A type that is not named runs at the rate of fp32.
    launch_overhead_ns : int
        Time that every op takes on top of its roofline; an assumption, not a datasheet's value.
    source : str
        Datasheet, and the board it describes.
    is_cpu : bool
        Whether it is a CPU, and no rank of frameworks whose ranks are GPUs.
    """

    peak_flops_per_s: Positive
    bandwidth_bytes_per_s: Positive
    memory_bytes: Positive
    launch_overhead_ns: Count
    source: Name
    peak_by_dtype: dict[Name, Positive] = Field(default_factory=dict)
    is_cpu: Flag = False

    def peak(self, dtype: str | None) -> int:
        """Peak rate of matrix products of a number type, in FLOP/s; None stands for float32.

        Examples
        --------
        >>> device_spec("T4").peak("float16") // device_spec("T4").peak(None)
        8
        """
        return self.peak_by_dtype.get(dtype or "float32", self.peak_flops_per_s)


@cache
def catalogue() -> dict[str, DeviceSpec]:
    """The catalogue that ships with the package, by device kind.

    Examples
    --------
    >>> catalogue()["T4"].peak_flops_per_s
    8100000000000
    """
    return read_catalogue(data_path("devices.yaml"))


def read_catalogue(path: str | Path) -> dict[str, DeviceSpec]:
    """Read a catalogue file: a mapping from device kind to the fields of `DeviceSpec`.

    Raises
    ------
    InputError
        One line that names the file, the kind and the field.
    """
    raw = read_yaml(path)
    with as_input_error(raw, path):
        return TypeAdapter(dict[Name, DeviceSpec]).validate_python(raw)


def device_spec(kind: str) -> DeviceSpec:
    """The catalogue's entry for a kind; an unknown kind is an InputError that offers others."""
    spec = catalogue().get(kind)
    if spec is None:
        hint = instead_of(kind, sorted(catalogue()), "placegap instances")
        raise InputError(f"device kind {kind!r} is not in the catalogue{hint}")
    return spec


def is_cpu(device: Device) -> bool:
    """Whether a device is a host, or of a kind that is a CPU ("cpu" is what `profile` calls one).

    Examples
    --------
    >>> [is_cpu(Device(name="d", kind=kind)) for kind in ("T4", "Xeon-5220", "cpu")]
    [False, True, True]
    """
    spec = catalogue().get(device.kind)
    return device.is_host or device.kind == "cpu" or (spec is not None and spec.is_cpu)


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
        provenance = graph.provenance.noting(
            f"times on {', '.join(used)} are roofline estimates",
            _parameters(used, percent, dtypes),
        )
        with as_input_error(source=graph.name):
            return graph.model_copy(update={"ops": tuple(ops), "provenance": provenance})


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
