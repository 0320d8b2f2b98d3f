"""Devices, what is known of their kinds, and the cluster that links them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
from pydantic import (
    BeforeValidator,
    Field,
    GetPydanticSchema,
    SerializerFunctionWrapHandler,
    ValidatorFunctionWrapHandler,
    WrapSerializer,
    WrapValidator,
    model_validator,
)

from placegap.instances.kernels.array_types import Ints
from placegap.instances.problem.graph_index import numbered
from placegap.instances.problem.links import Group, Link, Links, Paths, widest_paths
from placegap.instances.problem.part import (
    Count,
    Flag,
    InstancePart,
    Name,
    Provenance,
    Rate,
    Size,
    twice,
)
from placegap.instances.reading.errors import instead_of
from placegap.instances.reading.input_files import MAX_DEVICES


class Device(InstancePart):
    """A device that runs one op at a time.

    `kind` is a label that only ops' times refer to; `memory_bytes` None means
    no limit; an `is_host` device pays no communication in max_load. `server` names the machine
    that the device is in, and is used only for two levels of communication (`loads`).
    """

    name: Name
    kind: Name
    memory_bytes: Count | None = None
    is_host: Flag = False
    server: Name | None = None


# Number types that a device may state a rate of.
NUMBER_TYPES = ("float64", "float32", "float16", "bfloat16", "float8", "float4", "int8", "int4")


def _by_dtype(value: Any) -> Any:
    """One number is the rate of float32, and of all types that have no rate of their own."""
    if not isinstance(value, Mapping):
        return {"float32": value}
    for name in value:
        if name not in NUMBER_TYPES:
            hint = instead_of(str(name), NUMBER_TYPES)
            raise ValueError(f"there is no number type {name!r}{hint}")
    return value


PeakRates = Annotated[dict[Name, Rate], Field(min_length=1), BeforeValidator(_by_dtype)]


class DeviceSpec(InstancePart):
    """What is known of a device kind: an entry of the catalogue, or of a file's own kinds."""

    #: Peak rate of matrix products by number type ("float16"), dense; one number is that of
    #: "float32", outside tensor cores.
    peak_flops_per_s: PeakRates
    #: Bandwidth of the device's memory.
    bandwidth_bytes_per_s: Rate
    #: Its capacity, None for no limit.
    memory_bytes: Size | None
    #: What of it is taken by others (a desktop, a context).
    reserved_bytes: Size = 0
    #: Time that every op takes on top of its roofline; an assumption, not a datasheet's value.
    launch_overhead_ns: Size = 5_000
    #: What NVLink moves out of the device, and into it at the same time; None where it has none.
    nvlink_bytes_per_s: Rate | None = None
    #: Kinds of ops that it cannot run, as NPUs.
    lacks: tuple[Name, ...] = ()
    #: Whose constants calibrated costs take (`fits` of the catalogue); None: those of other kinds.
    costed_as: Name | None = None
    #: Datasheet, and the board it describes.
    source: str = ""
    #: Whether it is a CPU, and no rank of frameworks whose ranks are GPUs.
    is_cpu: Flag = False

    def peak(self, dtype: str | None) -> int:
        """Peak rate of matrix products of a number type, in FLOP/s; None stands for float32.

        Types of 8 bits count as one ("float8_e4m3fn"). A type without a rate runs at that of
        float32, and where that is not stated either, at the least of all.
        """
        rates = self.peak_flops_per_s
        rate = rates.get((dtype or "float32").partition("_")[0]) or rates.get("float32")
        return rate or min(rates.values())

    @property
    def free_bytes(self) -> int | None:
        """Memory that ops may fill, None for no limit."""
        return free_bytes(self.memory_bytes, self.reserved_bytes)

    @model_validator(mode="after")
    def _check(self) -> Self:
        _ = self.free_bytes
        return self


def free_bytes(memory_bytes: int | None, reserved_bytes: int) -> int | None:
    """What ops may fill of a memory, None for no limit."""
    if not reserved_bytes:
        return memory_bytes
    if memory_bytes is None:
        raise ValueError("reserved_bytes is a part of memory_bytes; state that, too")
    if reserved_bytes > memory_bytes:
        raise ValueError(
            f"reserved_bytes, {reserved_bytes}, is more than the memory has, {memory_bytes}"
        )
    return memory_bytes - reserved_bytes


def _as_links(value: Any, handler: ValidatorFunctionWrapHandler) -> Links:
    return value if isinstance(value, Links) else Links(handler(value))


def _written_out(links: Links, handler: SerializerFunctionWrapHandler) -> Any:
    return handler(tuple(links))


# Links of a cluster: stated one by one in a document, held as `Links`, with groups if given so.
AllLinks = Annotated[
    Sequence[Link],
    GetPydanticSchema(lambda _source, handler: handler(tuple[Link, ...])),
    WrapValidator(_as_links),
    WrapSerializer(_written_out),
]


class Cluster(InstancePart):
    """Devices and the links between them.

    A pair without a link uses the widest multi-hop path (Moirai, section III-A). `kinds` has the
    rates of device kinds that differ from the catalogue's or are not in it; only costing uses them.

    Examples
    --------
    >>> gpus = (Device(name="g0", kind="gpu"), Device(name="g1", kind="gpu"))
    >>> Cluster(name="pair", devices=gpus).device_index["g1"]
    1
    """

    name: Name
    devices: Annotated[tuple[Device, ...], Field(min_length=1)]
    links: AllLinks = Field(default=(), validate_default=True)
    provenance: Provenance = Provenance()
    kinds: dict[Name, DeviceSpec] = Field(default_factory=dict)

    @cached_property
    def device_index(self) -> dict[str, int]:
        """Position of each device by name."""
        return {device.name: k for k, device in enumerate(self.devices)}

    @model_validator(mode="after")
    def _check_references(self) -> Self:
        MAX_DEVICES.check(len(self.devices), "the cluster")
        if len(self.device_index) < len(self.devices):
            raise ValueError(f"devices: {twice(d.name for d in self.devices)!r} appears twice")
        for number, device in enumerate(self.devices):
            if " -> " in device.name:  # how links are named in files and messages
                raise ValueError(f"devices[{number}] {device.name!r}: a name must not hold ' -> '")
        self.all_links.check(self.device_index)
        return self

    @property
    def all_links(self) -> Links:
        """The links; groups are stored as groups."""
        assert isinstance(self.links, Links)  # validated
        return self.links

    @cached_property
    def server_numbers(self) -> tuple[tuple[str, ...], Ints]:
        """Names of the V servers, in the order of their first devices, and each device's, (K,)."""
        servers = [device.server or "" for device in self.devices]
        return tuple(dict.fromkeys(servers)), np.array(numbered(servers), np.int64)

    @cached_property
    def widest_paths(self) -> Paths:
        """Bandwidth (bytes/s) and latency (ns) of every ordered device pair that a path joins."""
        return widest_paths(list(self.device_index), self.all_links)

    @cached_property
    def least_bandwidth_bytes_per_s(self) -> int | None:
        """Bandwidth of the narrowest path between two devices; None for a single device."""
        # a pair with a link uses it, and no path is narrower than all of its links
        widths = [
            entry.bandwidth_bytes_per_s
            for entry in self.all_links.entries
            if not isinstance(entry, Group) or len(entry.devices) > 1
        ]
        return min(widths, default=None)

    @cached_property
    def open_memory(self) -> frozenset[str] | None:
        """Names of devices whose free memory is not stated; None if not noted."""
        return None

    def with_open_memory(self, names: Iterable[str]) -> Cluster:
        """Note the names of `open_memory`, and return the cluster."""
        self.__dict__["open_memory"] = frozenset(names)  # like `source`: no part of its value
        return self

    @cached_property
    def source(self) -> str:
        """The name used in messages: the file of the cluster, else its own name."""
        return f"cluster {self.name!r}"

    def read_from(self, path: str | Path) -> Cluster:
        """Note the file that messages about the cluster name, and return the cluster."""
        self.__dict__["source"] = str(path)  # like a cached property: no part of its value
        return self


def slowed(cluster: Cluster, factor: float) -> Cluster:
    """The cluster whose transfers all take `factor` times as long: latencies and bandwidths."""
    # Its name stays. Bandwidths round down to a byte per second and latencies to a nanosecond.
    exact = Fraction(str(factor))  # what was written, not its binary neighbour

    def slower(link: Link) -> Link:
        rate = max(1, int(link.bandwidth_bytes_per_s / exact))
        latency_ns = int(link.latency_ns * exact)
        return link.model_copy(update={"bandwidth_bytes_per_s": rate, "latency_ns": latency_ns})

    return cluster.model_copy(update={"links": tuple(map(slower, cluster.links))})
