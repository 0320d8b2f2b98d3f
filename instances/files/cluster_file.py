"""Clusters from YAML or JSON files, by path or by the name of one that ships with the package.

A cluster file has a name, devices and links::

    name: two-hosts
    devices:
      - {name: cpu, kind: Xeon-5220, is_host: true}  # one device; its memory from the catalogue
      - {name: gpu, count: 2, kind: T4}              # gpu0 and gpu1
      - {name: old, kind: RTX3090, reserved_bytes: 2e9, launch_overhead_ns: 9000}  # corrected
      - {names: [x, y], memory_bytes: 24e9, peak_flops_per_s: 3e13, bandwidth_bytes_per_s: 9e11}
      - {names: [u, v], kind: mine, memory_bytes: null}  # no limit; times of ops are measured
      - {names: [a, b], kind: P4, server: left}      # in one machine, for --levels 2
    links:                                           # each with a bandwidth and a latency (or 0)
      - {all_to_all: all, bandwidth_bytes_per_s: 15_750_000_000, latency_ns: 10_000}

A link entry states one of: ``source`` and ``target`` (one way), ``between: [a, b]`` (both ways),
``all_to_all: [a, b, c]`` or ``all`` (every ordered pair), or ``matrix_bytes_per_s``, the bandwidth
by sender and then by receiver. ``measured: true`` stands in place of bandwidth and latency, between
equal cards of a server: both are fitted to measured transfers (`measured_links`). Pairs without a
link go along the widest path. Quantities are integers: 25_000_000_000, 25e9 or 2.5e10.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress, permutations
from math import prod
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from placegap.instances.costing.catalogue import StatedSpec, as_host, catalogue, load_catalogue
from placegap.instances.costing.measured_links import MEASURED_LINKS, measured_link
from placegap.instances.files.cluster_text import (
    OTHER_KINDS,
    cluster_content,
    is_cluster_text,
    listed_devices,
)
from placegap.instances.files.document import read_json
from placegap.instances.problem import (
    Cluster,
    Device,
    DeviceSpec,
    Flag,
    InstancePart,
    Link,
    Name,
    PeakRates,
    Provenance,
    Rate,
    Size,
    free_bytes,
)
from placegap.instances.problem.links import Group, Links
from placegap.instances.reading.errors import (
    SIGNS,
    InputError,
    from_validation_error,
    instead_of,
    near_names,
    plain_name,
)
from placegap.instances.reading.input_files import MAX_DEVICES, data_path, refuse_other
from placegap.instances.reading.yaml_file import read_yaml


class DeviceEntry(InstancePart):
    """One device, ``count`` devices numbered from 0, or the devices in ``names``.

    What it states stands before what its kind says; without a kind it is one of its own.
    """

    kind: Name = ""
    name: Name | None = None
    count: Annotated[int, Field(strict=True, ge=1, le=1024)] | None = None
    names: Annotated[tuple[Name, ...], Field(min_length=1)] | None = None
    memory_bytes: Size | None = None
    reserved_bytes: Size = 0
    peak_flops_per_s: PeakRates | None = None
    bandwidth_bytes_per_s: Rate | None = None
    launch_overhead_ns: Size | None = None
    is_host: Flag | None = None
    server: Name | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.name is None) == (self.names is None):
            raise ValueError("give either name or names")
        if self.count is not None and self.names is not None:
            raise ValueError("count goes with name, not with names")
        return self

    @property
    def size(self) -> int:
        """How many devices the entry stands for."""
        return self.count or len(self.names or (self.name,))

    @property
    def own_kind(self) -> str:
        """Its kind, or the name by which it is one of its own."""
        return self.kind or self.name or (self.names or ("",))[0]

    def spec(self, known: Mapping[str, DeviceSpec]) -> DeviceSpec | None:
        """What is known of its devices, None where no op is costed on them."""
        rates = {
            name: value
            for name in ("peak_flops_per_s", "bandwidth_bytes_per_s", "launch_overhead_ns")
            if (value := getattr(self, name)) is not None
        }
        own = rates | {
            name: getattr(self, name)
            for name in ("memory_bytes", "reserved_bytes")
            if name in self.model_fields_set
        }
        base = known.get(self.kind)
        if base is not None:
            if self.is_host and base is not catalogue().get(self.kind):
                base = as_host(base)
            if rates:
                own["source"] = f"{', '.join(rates)}: {STATED}; else {base.source}"
            return base.model_copy(update=own) if own else base
        if "memory_bytes" in own and not rates and self.kind:
            return None
        hint = instead_of(self.own_kind, sorted(known), "placegap instances") if self.kind else ""
        what = f"kind {self.kind!r} is not in the catalogue{hint}" if self.kind else "has no kind"
        needed = ("peak_flops_per_s", "bandwidth_bytes_per_s", "memory_bytes")
        missing = [name for name in needed if name not in own]
        if len(missing) == len(needed):
            raise ValueError(
                f"{what} (to use it all the same, state its {', '.join(needed)}; or memory_bytes"
                " alone, null for no limit, and measure its ops: --times FILE)"
            )
        if missing:
            raise ValueError(f"{what}; state its {' and '.join(missing)}, too")
        spec = DeviceSpec.model_validate({"source": STATED, **own})
        return as_host(spec) if self.is_host else spec

    def is_open(self, known: Mapping[str, DeviceSpec]) -> bool:
        """Whether neither it nor its kind states what of the memory is taken."""
        kind = known.get(self.kind)
        of_kind = set[str]() if kind is None else kind.model_fields_set
        return "reserved_bytes" not in self.model_fields_set | of_kind

    def devices(self, spec: DeviceSpec | None) -> Iterator[Device]:
        """The devices of this entry, in order."""
        memory = (
            free_bytes(self.memory_bytes, self.reserved_bytes) if spec is None else spec.free_bytes
        )
        is_host = self.is_host if self.is_host is not None else spec is not None and spec.is_cpu
        names = self.names or (
            (f"{self.name}{number}" for number in range(self.count))
            if self.count is not None
            else (str(self.name),)
        )
        for name in names:
            yield Device(
                name=name,
                kind=self.own_kind,
                memory_bytes=memory,
                is_host=is_host,
                server=self.server,
            )


STATED = "stated in the cluster file"


class LinkEntry(InstancePart):
    """Links of one kind: see the module's docstring."""

    source: Name | None = None
    target: Name | None = None
    between: tuple[Name, Name] | None = None
    all_to_all: Literal["all"] | tuple[Name, ...] | None = None
    matrix_bytes_per_s: dict[Name, dict[Name, Rate]] | None = None
    bandwidth_bytes_per_s: Rate | None = None
    latency_ns: Size = 0
    measured: Flag = False

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.source is None) != (self.target is None):
            raise ValueError("source and target go together")
        ways = (self.source, self.between, self.all_to_all, self.matrix_bytes_per_s)
        if sum(way is not None for way in ways) != 1:
            raise ValueError(
                "give one of source and target, between, all_to_all, matrix_bytes_per_s"
            )
        stated = ("bandwidth_bytes_per_s", "latency_ns", "matrix_bytes_per_s")
        if self.measured and self.model_fields_set.intersection(stated):
            raise ValueError(f"measured replaces {', '.join(stated)}; leave one out")
        without = self.matrix_bytes_per_s is not None or self.measured
        if (self.bandwidth_bytes_per_s is None) != without:
            raise ValueError(
                "bandwidth_bytes_per_s is needed, except beside matrix_bytes_per_s or measured"
            )
        return self

    def ends(self, everyone: Iterable[str]) -> tuple[str, ...]:
        """The devices that it names, but for those of a matrix."""
        if self.all_to_all is not None:
            return tuple(everyone) if self.all_to_all == "all" else self.all_to_all
        return self.between or (self.source or "", self.target or "")

    def kind(self, places: Mapping[str, tuple[str, str]]) -> str:
        """The one kind of its ends, by kinds and servers of devices."""
        alike = {places.get(end, ("", "no device")): end for end in self.ends(places)}
        if len(alike) != 1 or ("", "no device") in alike:
            found = ", ".join(f"{end} ({' '.join(place).strip()})" for place, end in alike.items())
            raise ValueError(f"measured links join equal cards of one server, not {found}")
        return next(iter(alike))[0]

    def links(self, everyone: tuple[str, ...]) -> Iterator[Link | Group]:
        """The links of this entry, in order; those of ``all_to_all`` stay a group."""
        if self.all_to_all is not None:
            assert self.bandwidth_bytes_per_s is not None  # validated
            yield Group(self.ends(everyone), self.bandwidth_bytes_per_s, self.latency_ns)
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
    kinds: dict[Name, StatedSpec] = Field(default_factory=dict)
    provenance: Provenance = Provenance()

    def cluster(self, added: Mapping[str, DeviceSpec] | None = None) -> Cluster:
        """The cluster that the file describes, with these kinds beside the catalogue's."""
        known = {**catalogue(), **(added or {}), **self.kinds}
        devices, kinds = self._devices(known)
        names = tuple(device.name for device in devices)
        entries, noted = self._links(devices)
        found = [
            (number, link) for number, each in enumerate(entries) for link in each.links(names)
        ]
        links = Links(link for _, link in found)
        if len(set(names)) == len(names):  # else the cluster names the device that appears twice
            links.check(names, [number for number, _ in found])
        cluster = Cluster(
            name=self.name, devices=devices, links=links, provenance=noted, kinds=kinds
        )
        is_open = [entry.is_open(known) for entry in self.devices for _ in range(entry.size)]
        return cluster.with_open_memory(compress(names, is_open))

    def _devices(
        self, known: Mapping[str, DeviceSpec]
    ) -> tuple[tuple[Device, ...], dict[str, DeviceSpec]]:
        """All devices, and the kinds among theirs whose rates are not the catalogue's."""
        devices, rates = list[Device](), dict[str, tuple[int, DeviceSpec]]()
        for number, entry in enumerate(self.devices):
            place = f"devices[{number}] {entry.name or entry.own_kind!r}"
            try:
                spec = entry.spec(known)
                devices += entry.devices(spec)
            except ValidationError as error:
                raise ValueError(f"{place}: {from_validation_error(error)}") from None
            except ValueError as error:
                raise ValueError(f"{place}: {error}") from None
            if spec is not None:
                own = _without_memory(spec)
                first, other = rates.setdefault(entry.own_kind, (number, own))
                if own != other:
                    raise ValueError(
                        f"{place}: its kind {entry.own_kind!r} has other rates in"
                        f" devices[{first}]; give one of them a kind of another name"
                    )
        shipped = catalogue()
        kinds = {
            kind: spec
            for kind, (_, spec) in rates.items()
            if kind not in shipped or spec != _without_memory(shipped[kind])
        }
        return tuple(devices), kinds

    def _links(self, devices: Sequence[Device]) -> tuple[list[LinkEntry], Provenance]:
        """The entries with two numbers each, and the provenance with what was fitted."""
        entries, notes = list[LinkEntry](), dict[str, None]()
        places = {device.name: (device.kind, device.server or "") for device in devices}
        for number, entry in enumerate(self.links):
            if entry.measured:
                try:
                    rate, latency, note = measured_link(entry.kind(places))
                except ValueError as error:
                    raise ValueError(f"links[{number}]: {error}") from None
                notes[note] = None
                two = {"bandwidth_bytes_per_s": rate, "latency_ns": latency, "measured": False}
                entry = entry.model_copy(update=two)
            entries.append(entry)
        if not notes:
            return entries, self.provenance
        joined = "; ".join(notes)
        return entries, self.provenance.noting(joined, {MEASURED_LINKS: joined})

    @model_validator(mode="after")
    def _check(self) -> Self:
        MAX_DEVICES.check(sum(entry.size for entry in self.devices), "devices: the file")
        return self


def _without_memory(spec: DeviceSpec) -> DeviceSpec:
    """A kind's rates; each device states its own memory."""
    return spec.model_copy(update={"memory_bytes": None, "reserved_bytes": 0})


def cluster_names() -> tuple[str, ...]:
    """Names of the clusters that ship with the package, sorted.

    Examples
    --------
    >>> "moirai-inter-server" in cluster_names()
    True
    """
    return tuple(sorted(path.stem for path in data_path("clusters").glob("*.yaml")))


def full_name(name: str, added: Mapping[str, DeviceSpec] | None = None) -> str:
    """The shipped cluster whose name alone ends so, or alone contains it; else the name itself."""
    # Case and dashes do not count. Devices, such as ``8xH100``, only become the one cluster of just
    # these devices whose name begins so: the link is all that it adds.
    names, wanted = cluster_names(), plain_name(name)
    if name in names:
        return name
    listed = listed_devices(name, (*catalogue(), *(added or ())))
    if listed is not None:
        found = _of_just(*listed, begin=wanted)
        return found[0] if len(found) == 1 else name
    ends = [each for each in names if wanted in _parts(each, ends=True)]
    inside = [each for each in names if wanted in _parts(each, ends=False)]
    return next((found[0] for found in (ends, inside) if len(found) == 1), name)


def _of_just(counts: str, kinds: Sequence[str], begin: str = "") -> list[str]:
    """The shipped clusters of as many devices, all of these kinds, whose names begin so."""
    count, found = prod(map(int, re.findall(r"\d+", counts))), list[str]()
    for name in (each for each in cluster_names() if plain_name(each).startswith(begin)):
        devices = load_cluster(name).devices
        if len(devices) == count and all(device.kind in kinds for device in devices):
            found.append(name)
    return found


def _parts(name: str, *, ends: bool) -> set[str]:
    """Runs of the words of a cluster's name, in plain letters; all of them, or those at its end."""
    # A word ends at a sign; no count is left out: the words of ``8xH100-nvlink`` are 8xH100,
    # nvlink.
    words = [word for word in re.split(f"[{SIGNS}]", name) if word]
    stops = [len(words)] if ends else range(1, len(words) + 1)
    return {plain_name("".join(words[start:stop])) for stop in stops for start in range(stop)}


def load_cluster(name_or_path: str | Path, devices: str | Path | None = None) -> Cluster:
    """Load a cluster by its name or a part of it, from a file, or from a text (`cluster_text`).

    Parameters
    ----------
    name_or_path : str or Path
        "8xH100-nvlink", a ``.yaml``, ``.yml`` or ``.json`` file, or "2xRTX3090+host, pcie4".
    devices : str or Path, optional
        A file of device kinds, which are added to the catalogue and override it.

    Raises
    ------
    InputError
        One line that names the file, the place and the error.

    Examples
    --------
    >>> cluster = load_cluster("moirai-inter-server")
    >>> [device.kind for device in cluster.devices]
    ['RTX2080Ti', 'T4', 'P4', 'RTX3060Ti']
    >>> cluster.links[0].bandwidth_bytes_per_s  # A -> B, 44.26 Gbit/s
    5532500000
    >>> [device.name for device in load_cluster("2xT4+P4, pcie3").devices]
    ['T4-0', 'T4-1', 'P4']
    """
    added = {} if devices is None else load_catalogue(devices)
    known = {**catalogue(), **added}
    if not isinstance(name_or_path, str | PathLike):
        raise InputError(f"a cluster has a name or a file, not {name_or_path!r}")
    if isinstance(name_or_path, str):
        name_or_path = full_name(name_or_path, added)
    if isinstance(name_or_path, str) and name_or_path in cluster_names():
        path = data_path("clusters", f"{name_or_path}.yaml")
    else:
        path = Path(name_or_path)
    if path.suffix in (".yaml", ".yml", ".json"):
        raw = read_json(path) if path.suffix == ".json" else read_yaml(path)
        cluster = parse_cluster(raw, path, added)
        shipped = isinstance(name_or_path, str) and name_or_path == cluster.name != str(path)
        return cluster.read_from(f"cluster {name_or_path}" if shipped else path)
    text = str(name_or_path)
    hint = instead_of(Path(text).name, cluster_names(), "placegap instances")
    if is_cluster_text(text, added):
        try:
            return parse_cluster(cluster_content(text, added), f"cluster {text!r}", added)
        except InputError as error:
            is_unknown = "no device kind" in str(error)
            listed = listed_devices(text, known)
            if listed is not None and (is_unknown or "what joins" in str(error)):
                counts, (kind, *_) = listed
                link = "pcie4" if known[kind].nvlink_bytes_per_s is None else "nvlink"
                network = ", infiniband" * (len(re.findall("[xX*]", counts)) > 1)
                names = ", or ".join([f"'{counts}{kind}, {link}{network}'", *_of_just(*listed)])
                raise InputError(f"name its link: {names}", f"cluster {text!r}") from None
            if re.search("[,+(:@]", text) or not is_unknown or "did you mean" not in hint:
                raise
    card = re.sub(r"^\s*\d+\s*[xX*]\s*", "", text)
    if kinds := near_names(card, sorted(known)):
        end = " D" if hint.endswith("?") else "; d"
        hint += f"{end}evice kinds with similar names: {', '.join(kinds)} ({OTHER_KINDS})"
    if joined := re.fullmatch(r"([^,]*\S)\s+((pcie|nvlink|ethernet|infiniband|thunder)\S*)", text):
        hint = f"; write a comma before the link: '{joined[1]}, {joined[2]}'"
    raise InputError(f"there is no cluster {text!r}, nor such a .yaml or .json file{hint}")


def parse_cluster(
    raw: Any, source: str | Path, added: Mapping[str, DeviceSpec] | None = None
) -> Cluster:
    """Validate a parsed cluster file, whose devices may be of these kinds, too."""
    refuse_other(raw, "a cluster", source)
    try:
        return ClusterFile.model_validate(raw).cluster(added).read_from(source)
    except ValidationError as error:
        raise from_validation_error(error, raw, source, ClusterFile) from None
    except ValueError as error:
        raise InputError(str(error), source) from None
    except RecursionError:
        raise InputError("nested too deeply", source) from None
