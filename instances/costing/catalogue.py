"""The device catalogue: peak FLOP/s, bandwidth and memory of known device kinds, with sources."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from pydantic import Field, TypeAdapter, ValidationError

from placegap.instances.problem.instance import Count, Device, Flag, InstancePart, Name, Positive
from placegap.instances.reading.errors import InputError, from_validation_error, instead_of
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
    try:
        return TypeAdapter(dict[Name, DeviceSpec]).validate_python(raw)
    except ValidationError as error:
        raise from_validation_error(error, raw, path) from None


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
