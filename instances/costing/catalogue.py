"""What is known of device kinds: the catalogue, and the rates that kernels reach on them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, TypeAdapter

from placegap.instances.problem import Cluster, Device, DeviceSpec, Name
from placegap.instances.reading.errors import as_input_error
from placegap.instances.reading.input_files import data_path
from placegap.instances.reading.yaml_file import read_yaml

# What large products reach of the peak: the median of measured ones of 2,048 rows and more on an
# A100, 1 / 1.26. H100, H200 and RTX PRO 6000 reach 76, L40S 60.
COMPUTE_PERCENT = 79

# What kernels of cards and of hosts reach of the memory's bandwidth. With `THREADS_NS` they are
# figures of a coarse grid that bring twelve reported token rates close
# (`experiments.research.speeds`).
BANDWIDTH_PERCENT, HOST_BANDWIDTH_PERCENT = 80, 70
# What a kernel that no table has takes beside its bytes where other kernels are measured:
# ``mem_empirical_constant_latency`` of aiconfigurator-core 0.12.0. Tables leave out the launch.
KERNEL_NS = 3_000
THREADS_NS = 30_000  # what a host takes more for each kernel, to wake its threads and join them
HOST_OVERHEAD_NS = 1_000  # launch overhead of a host that states none; the catalogue's for all CPUs


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
    return load_catalogue(data_path("devices.yaml"))


def load_catalogue(path: str | Path) -> dict[str, DeviceSpec]:
    """Read a catalogue file: a mapping from device kind to the fields of `DeviceSpec`."""
    # ``is_host`` may stand for ``is_cpu``.
    raw = read_yaml(path)
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
