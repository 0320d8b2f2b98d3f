"""What is known of device kinds: the catalogue, and the rates that kernels reach on them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter

from placegap.instances.problem import Cluster, Device, DeviceSpec, Name, Size
from placegap.instances.reading.errors import InputError, as_input_error, instead_of
from placegap.instances.reading.input_files import data_path
from placegap.instances.reading.yaml_file import read_yaml

# What large products reach of the peak: the median of measured ones of 2,048 rows and more on an
# A100, 1 / 1.26. H100, H200 and RTX PRO 6000 reach 76, L40S 60.
COMPUTE_PERCENT = 79

BANDWIDTH_PERCENT = 80  # what kernels reach of the memory's bandwidth beside measured ones
# What a kernel that no table has takes beside its bytes where other kernels are measured:
# ``mem_empirical_constant_latency`` of aiconfigurator-core 0.12.0. Tables leave out the launch.
KERNEL_NS = 3_000
HOST_OVERHEAD_NS = 1_000  # launch overhead of a host that states none; the catalogue's for all CPUs


class Fit(BaseModel):
    """What kernels take under calibrated costs on some kinds of devices, and what says so."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    #: Time of a kernel beside its bytes. A card takes it in place of its launch overhead, unless
    #: that is stated; a host in addition, to wake its threads and join them.
    launch_ns: Size
    bandwidth_percent: Annotated[int, Field(ge=1, le=100)]
    fitted_to: str
    #: By how much predictions differ from what they were fitted to, on the geometric mean.
    factor: float
    cards: tuple[Name, ...] = ()  # kinds of devices that were measured
    models: tuple[Name, ...] = ()  # kinds of models that were run on them (`kind_of_model`)


def fit_of(spec: DeviceSpec) -> Fit:
    """The constants that calibrated costs take for a kind of devices."""
    name = spec.costed_as or ("server-host" if spec.is_cpu else "others")
    if name not in fits():
        hint = instead_of(name, fits())
        raise InputError(f"costed_as: there are no constants {name!r}{hint}")
    return fits()[name]


def launch_ns_of(spec: DeviceSpec) -> int:
    """What a kernel takes beside its bytes on a kind of devices under calibrated costs."""
    stated_ns = spec.launch_overhead_ns
    if spec.is_cpu:
        return stated_ns + fit_of(spec).launch_ns
    is_open = stated_ns == DeviceSpec.model_fields["launch_overhead_ns"].default
    return fit_of(spec).launch_ns if is_open else stated_ns


def _as_spec(raw: Any) -> Any:
    """A kind of a file with the fields of `DeviceSpec`: one of hosts is a CPU."""
    if not isinstance(raw, dict):
        return raw
    fields = {"is_cpu" if name == "is_host" else name: value for name, value in raw.items()}
    if len(fields) < len(raw):
        raise ValueError("is_cpu and is_host say the same; leave out is_cpu")
    overhead = {"launch_overhead_ns": HOST_OVERHEAD_NS} if fields.get("is_cpu") is True else {}
    return overhead | fields


# A kind as a file states it; ``is_host`` says that its devices are hosts.
StatedSpec = Annotated[DeviceSpec, BeforeValidator(_as_spec)]


def as_host(spec: DeviceSpec) -> DeviceSpec:
    """A kind as a CPU; a launch overhead that it states stays."""
    is_open = "launch_overhead_ns" not in spec.model_fields_set
    overhead = {"launch_overhead_ns": HOST_OVERHEAD_NS} if is_open else {}
    return spec.model_copy(update={"is_cpu": True, **overhead})


@cache
def catalogue() -> dict[str, DeviceSpec]:
    """The catalogue that ships with the package, by device kind."""
    return _shipped()[0]


@cache
def fits() -> dict[str, Fit]:
    """The constants of calibrated costs, by the names that kinds have for them (`costed_as`)."""
    return _shipped()[1]


@cache
def _shipped() -> tuple[dict[str, DeviceSpec], dict[str, Fit]]:
    path = data_path("devices.yaml")
    kinds = read_yaml(path)
    found = kinds.pop("fits")
    return _kinds(kinds, path), TypeAdapter(dict[Name, Fit]).validate_python(found)


def load_catalogue(path: str | Path) -> dict[str, DeviceSpec]:
    """Read a catalogue file: a mapping from device kind to the fields of `DeviceSpec`."""
    # ``is_host`` may stand for ``is_cpu``.
    return _kinds(read_yaml(path), path)


def _kinds(raw: Any, path: str | Path) -> dict[str, DeviceSpec]:
    with as_input_error(raw, path):
        return TypeAdapter(dict[Name, StatedSpec]).validate_python(raw)


def specs_of(cluster: Cluster) -> dict[str, DeviceSpec]:
    """What is known of the cluster's device kinds: by the cluster itself, else by the catalogue."""
    known = {**catalogue(), **cluster.kinds}
    kinds = sorted({device.kind for device in cluster.devices})
    return {kind: known[kind] for kind in kinds if kind in known}


def is_cpu(device: Device, cluster: Cluster) -> bool:
    """Whether a device is a host, or of a CPU kind ("cpu" is what `profile` calls one)."""
    spec = cluster.kinds.get(device.kind) or catalogue().get(device.kind)
    return device.is_host or device.kind == "cpu" or (spec is not None and spec.is_cpu)
