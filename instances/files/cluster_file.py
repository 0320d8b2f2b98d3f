"""Clusters from YAML or JSON files, by path or by the name of one that ships with the package.

A cluster file has a name, devices and links::

    name: two-hosts
    devices:
      - {name: cpu, kind: Xeon-5220, is_host: true}  # one device; its memory from the catalogue
      - {name: gpu, count: 2, kind: T4}              # gpu0 and gpu1
      - {names: [x, y], kind: mine, memory_bytes: null}  # a kind of your own; null: no limit
      - {names: [a, b], kind: T4, server: left}      # in one machine, for --levels 2
    links:                                           # each with a bandwidth and a latency (or 0)
      - {all_to_all: all, bandwidth_bytes_per_s: 15_750_000_000, latency_ns: 10_000}

A link entry states one of: ``source`` and ``target`` (one way), ``between: [a, b]`` (both ways),
``all_to_all: [a, b, c]`` or ``all`` (every ordered pair), or ``matrix_bytes_per_s``, the bandwidth
by sender and then by receiver. Pairs without a link go along the widest path. Quantities are
integers: 25_000_000_000, 25e9 or 2.5e10.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from itertools import permutations
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from placegap.instances.io.costing import catalogue, device_spec
from placegap.instances.io.document import read_json
from placegap.instances.problem.instance import (
    Cluster,
    Count,
    Device,
    Flag,
    InstancePart,
    Link,
    Name,
    Positive,
    Provenance,
)
from placegap.instances.problem.links import Group, Links
from placegap.instances.reading.errors import InputError, from_validation_error, instead_of
from placegap.instances.reading.input_files import MAX_DEVICES, data_path, refuse_other
from placegap.instances.reading.yaml_file import read_yaml


def _exact(value: object) -> object:
    """An integer that is written with a point or an exponent, as text or as a number; else itself.

    YAML reads 25e9 as text, 2.5e+10 as a float, and so does JSON with both.

    Examples
    --------
    >>> _exact("25e9"), _exact(2.5e10), _exact("25_000_000_000"), _exact("2.55"), _exact("fast")
    (25000000000, 25000000000, 25000000000, '2.55', 'fast')
    """
    if isinstance(value, float) and value.is_integer() and abs(value) <= LARGEST_EXACT_FLOAT:
        return int(value)
    if isinstance(value, str) and len(value) <= LONGEST_NUMBER and NUMBER.fullmatch(value):
        number = Decimal(value.replace("_", ""))
        if number.adjusted() < LONGEST_NUMBER and number == number.to_integral_value():
            return int(number)
    return value


NUMBER = re.compile(r"[+-]?\d[\d_]*(\.[\d_]*)?([eE][+-]?\d{1,3})?", re.ASCII)
LONGEST_NUMBER = 40
"""Characters and digits of a quantity; the largest has 19 digits."""

LARGEST_EXACT_FLOAT = 2**53
"""Above, a float may be another integer than the one that was written."""

Size = Annotated[Count, BeforeValidator(_exact)]
Rate = Annotated[Positive, BeforeValidator(_exact)]


class DeviceEntry(InstancePart):
    """One device, ``count`` devices numbered from 0, or the devices in ``names``."""

    kind: Name
    name: Name | None = None
    count: Annotated[int, Field(strict=True, ge=1, le=1024)] | None = None
    names: Annotated[tuple[Name, ...], Field(min_length=1)] | None = None
    memory_bytes: Size | None = None
    is_host: Flag = False
    server: Name | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.name is None) == (self.names is None):
            raise ValueError("give either name or names")
        if self.count is not None and self.names is not None:
            raise ValueError("count goes with name, not with names")
        if "memory_bytes" not in self.model_fields_set and self.kind not in catalogue():
            hint = instead_of(self.kind, sorted(catalogue()), "placegap instances")
            raise ValueError(
                f"kind {self.kind!r} is not in the catalogue{hint} (to use it all the same, give"
                " its memory_bytes, null for no limit, and times of ops on it: --times FILE)"
            )
        return self

    @property
    def size(self) -> int:
        """How many devices the entry stands for."""
        return self.count or len(self.names or (self.name,))

    def devices(self) -> Iterator[Device]:
        """The devices of this entry, in order."""
        stated = "memory_bytes" in self.model_fields_set
        memory = self.memory_bytes if stated else device_spec(self.kind).memory_bytes
        names = self.names or (
            (f"{self.name}{number}" for number in range(self.count))
            if self.count is not None
            else (str(self.name),)
        )
        for name in names:
            yield Device(
                name=name,
                kind=self.kind,
                memory_bytes=memory,
                is_host=self.is_host,
                server=self.server,
            )


class LinkEntry(InstancePart):
    """Links of one kind: see the module's docstring."""

    source: Name | None = None
    target: Name | None = None
    between: tuple[Name, Name] | None = None
    all_to_all: Literal["all"] | tuple[Name, ...] | None = None
    matrix_bytes_per_s: dict[Name, dict[Name, Rate]] | None = None
    bandwidth_bytes_per_s: Rate | None = None
    latency_ns: Size = 0

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.source is None) != (self.target is None):
            raise ValueError("source and target go together")
        ways = (self.source, self.between, self.all_to_all, self.matrix_bytes_per_s)
        if sum(way is not None for way in ways) != 1:
            raise ValueError(
                "give one of source and target, between, all_to_all, matrix_bytes_per_s"
            )
        if (self.bandwidth_bytes_per_s is None) != (self.matrix_bytes_per_s is not None):
            raise ValueError("bandwidth_bytes_per_s is needed, except beside matrix_bytes_per_s")
        return self

    def links(self, everyone: tuple[str, ...]) -> Iterator[Link | Group]:
        """The links of this entry, in order; those of ``all_to_all`` stay a group."""
        if self.all_to_all is not None:
            group = everyone if self.all_to_all == "all" else self.all_to_all
            assert self.bandwidth_bytes_per_s is not None  # validated
            yield Group(group, self.bandwidth_bytes_per_s, self.latency_ns)
            return
        for source, target, bandwidth in self._pairs():
            yield Link(
                source=source,
                target=target,
                bandwidth_bytes_per_s=bandwidth,
                latency_ns=self.latency_ns,
            )

    def _pairs(self) -> Iterator[tuple[str, str, int]]:
        if self.matrix_bytes_per_s is not None:
            for source, row in self.matrix_bytes_per_s.items():
                for target, bandwidth in row.items():
                    yield source, target, bandwidth
            return
        assert self.bandwidth_bytes_per_s is not None  # validated
        if self.source is not None and self.target is not None:
            yield self.source, self.target, self.bandwidth_bytes_per_s
        for source, target in permutations(self.between or (), 2):
            yield source, target, self.bandwidth_bytes_per_s


class ClusterFile(InstancePart):
    """A cluster file as it is written."""

    name: Name
    devices: Annotated[tuple[DeviceEntry, ...], Field(min_length=1)]
    links: tuple[LinkEntry, ...] = ()
    provenance: Provenance = Provenance()

    def cluster(self) -> Cluster:
        """The cluster that the file describes; a bad reference is a ValueError."""
        devices = tuple(device for entry in self.devices for device in entry.devices())
        names = tuple(device.name for device in devices)
        found = [
            (number, link) for number, entry in enumerate(self.links) for link in entry.links(names)
        ]
        links = Links(link for _, link in found)
        if len(set(names)) == len(names):  # else the cluster names the device that appears twice
            links.check(names, [number for number, _ in found])
        return Cluster(name=self.name, devices=devices, links=links, provenance=self.provenance)

    @model_validator(mode="after")
    def _check(self) -> Self:
        MAX_DEVICES.check(sum(entry.size for entry in self.devices), "devices: the file")
        return self


def cluster_names() -> tuple[str, ...]:
    """Names of the clusters that ship with the package, sorted.

    Examples
    --------
    >>> "moirai-inter-server" in cluster_names()
    True
    """
    return tuple(sorted(path.stem for path in data_path("clusters").glob("*.yaml")))


def full_name(name: str) -> str:
    """The shipped cluster whose name alone ends so, or alone contains it; else the name itself.

    Examples
    --------
    >>> full_name("4xV100-pcie"), full_name("8xH100"), full_name("moirai")
    ('celeritas-4xV100-pcie', '8xH100-nvlink', 'moirai')
    """
    names = cluster_names()
    if name and name not in names:
        for found in (
            [each for each in names if each.endswith(name)],
            [each for each in names if name in each],
        ):
            if len(found) == 1:
                return found[0]
    return name


def load_cluster(name_or_path: str | Path) -> Cluster:
    """A cluster by its name or a part of it, or from a ``.yaml``, ``.yml`` or ``.json`` file.

    Raises
    ------
    InputError
        One line that names the file, the place and what is wrong there.

    Examples
    --------
    >>> cluster = load_cluster("moirai-inter-server")
    >>> [device.kind for device in cluster.devices]
    ['RTX2080Ti', 'T4', 'P4', 'RTX3060Ti']
    >>> cluster.links[0].bandwidth_bytes_per_s  # A -> B, 44.26 Gbit/s
    5532500000
    """
    if isinstance(name_or_path, str):
        name_or_path = full_name(name_or_path)
    if isinstance(name_or_path, str) and name_or_path in cluster_names():
        path = data_path("clusters", f"{name_or_path}.yaml")
    else:
        path = Path(name_or_path)
    if path.suffix in (".yaml", ".yml", ".json"):
        raw = read_json(path) if path.suffix == ".json" else read_yaml(path)
        cluster = parse_cluster(raw, path)
        shipped = isinstance(name_or_path, str) and name_or_path == cluster.name != str(path)
        return cluster.read_from(f"cluster {name_or_path}" if shipped else path)
    hint = instead_of(str(name_or_path), cluster_names(), "placegap instances")
    raise InputError(
        f"there is no cluster {str(name_or_path)!r}, nor such a .yaml or .json file{hint}"
    )


def parse_cluster(raw: Any, source: str | Path) -> Cluster:
    """Validate a parsed cluster file."""
    refuse_other(raw, "a cluster", source)
    try:
        return ClusterFile.model_validate(raw).cluster().read_from(source)
    except ValidationError as error:
        raise from_validation_error(error, raw, source) from None
    except ValueError as error:
        raise InputError(str(error), source) from None
    except RecursionError:
        raise InputError("nested too deeply", source) from None
