"""The links of a cluster, one by one and in groups that join every pair, and the widest paths over
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations
from typing import overload

import numpy as np
from numpy.typing import NDArray

from placegap.instances.kernels.array_types import Flags, Ints
from placegap.instances.problem.part import Count, InstancePart, Name, Positive
from placegap.instances.reading.errors import ClusterError, instead_of
from placegap.instances.reading.input_files import MAX_DEVICE_PAIRS, MAX_LINK_GROUPS, MAX_LINKS


class Link(InstancePart):
    """A one-way link between two devices: a transfer takes latency + ceil(bytes / bandwidth)."""

    source: Name
    target: Name
    bandwidth_bytes_per_s: Positive
    latency_ns: Count = 0


@dataclass(frozen=True)
class Group:
    """A link between every ordered pair of some devices, all alike, not stored one by one."""

    devices: tuple[str, ...]
    bandwidth_bytes_per_s: int
    latency_ns: int = 0


class Links(Sequence[Link]):
    """All links of a cluster, in order; those of a group are made when they are read."""

    def __init__(self, entries: Iterable[Link | Group] = ()) -> None:
        self.entries = tuple(entries)

    def __len__(self) -> int:
        """Number of ordered pairs that have a link."""
        return self.num_single + sum(len(g.devices) * (len(g.devices) - 1) for g in self.groups)

    def __iter__(self) -> Iterator[Link]:
        """All links, entry by entry."""
        for entry in self.entries:
            if isinstance(entry, Link):
                yield entry
                continue
            for source, target in permutations(entry.devices, 2):
                yield Link.model_construct(
                    {"source", "target", "bandwidth_bytes_per_s"}
                    | ({"latency_ns"} if entry.latency_ns else set()),
                    source=source,
                    target=target,
                    bandwidth_bytes_per_s=entry.bandwidth_bytes_per_s,
                    latency_ns=entry.latency_ns,
                )

    @overload
    def __getitem__(self, at: int) -> Link: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Link, ...]: ...
    def __getitem__(self, at: int | slice) -> Link | tuple[Link, ...]:
        """Links by number; for reading them all, iterate."""
        return tuple(self)[at]

    def __eq__(self, other: object) -> bool:
        """Whether both hold the same links in the same order, grouped or not."""
        if isinstance(other, Links) and self.entries == other.entries:
            return True
        if not isinstance(other, Links | tuple) or len(self) != len(other):
            return False
        return all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """The entries, groups unwritten."""
        return f"Links({self.entries!r})"

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        return tuple(entry for entry in self.entries if isinstance(entry, Group))

    @property
    def num_single(self) -> int:
        """Number of links that are stated one by one."""
        return len(self.entries) - len(self.groups)

    @cached_property
    def _single(self) -> dict[tuple[str, str], Link]:
        return {(x.source, x.target): x for x in self.entries if not isinstance(x, Group)}

    @cached_property
    def _groups_of(self) -> dict[str, frozenset[int]]:
        found: dict[str, list[int]] = {}
        for number, group in enumerate(self.groups):
            for device in group.devices:
                found.setdefault(device, []).append(number)
        return {device: frozenset(numbers) for device, numbers in found.items()}

    def find(self, source: str, target: str) -> tuple[int, int] | None:
        """Bandwidth and latency of the link of a pair, None where it has none."""
        link: Link | Group | None = self._single.get((source, target))
        if link is None and source != target:
            none: frozenset[int] = frozenset()
            shared = self._groups_of.get(source, none) & self._groups_of.get(target, none)
            link = self.groups[min(shared)] if shared else None
        return None if link is None else (link.bandwidth_bytes_per_s, link.latency_ns)

    def renamed(self, names: dict[str, str]) -> Links:
        """The same links between devices of other names."""
        return Links(
            Link(
                source=names[entry.source],
                target=names[entry.target],
                bandwidth_bytes_per_s=entry.bandwidth_bytes_per_s,
                latency_ns=entry.latency_ns,
            )
            if not isinstance(entry, Group)
            else Group(
                tuple(names[device] for device in entry.devices),
                entry.bandwidth_bytes_per_s,
                entry.latency_ns,
            )
            for entry in self.entries
        )

    def check(self, known: Iterable[str], numbers: Sequence[int] | None = None) -> None:
        """Unknown ends, a device with itself and pairs that appear twice are ValueErrors."""
        # `numbers` are those of the entries in the file, where they differ.
        MAX_LINKS.check(self.num_single, "links: the cluster")
        MAX_LINK_GROUPS.check(len(self.groups), "links: the cluster")
        devices = set(known)
        pairs: set[tuple[str, str]] = set()
        groups_of: dict[str, list[int]] = {}
        for number, entry in zip(numbers or range(len(self.entries)), self.entries, strict=True):
            ends = entry.devices if isinstance(entry, Group) else (entry.source, entry.target)
            for end in ends:
                if end not in devices:
                    hint = instead_of(end, sorted(devices))
                    raise ValueError(f"links[{number}]: there is no device {end!r}{hint}")
            if len(set(ends)) < len(ends):
                twice = next(end for end in ends if ends.count(end) > 1)
                raise ValueError(f"links[{number}]: joins {twice!r} with itself")
            again = _again(entry, pairs, groups_of)
            if again is not None:
                raise ValueError(f"links[{number}]: {again[0]!r} -> {again[1]!r} appears twice")
            if isinstance(entry, Group):
                for end in ends:
                    groups_of.setdefault(end, []).append(number)
            else:
                pairs.add((entry.source, entry.target))


def _again(
    entry: Link | Group, pairs: set[tuple[str, str]], groups_of: dict[str, list[int]]
) -> tuple[str, str] | None:
    """A pair of the entry that an earlier entry has joined."""
    if not isinstance(entry, Group):
        pair = entry.source, entry.target
        joined = set(groups_of.get(pair[0], ())) & set(groups_of.get(pair[1], ()))
        return pair if pair in pairs or joined else None
    met: dict[int, str] = {}
    for device in entry.devices:  # two groups may share one device, not two
        for other in groups_of.get(device, ()):
            if other in met:
                return met[other], device
            met[other] = device
    inside = set(entry.devices)
    if len(inside) * (len(inside) - 1) < len(pairs):
        return next((pair for pair in permutations(entry.devices, 2) if pair in pairs), None)
    return min((pair for pair in pairs if inside.issuperset(pair)), default=None)


def all_joined(names: Sequence[str], links: Links) -> bool:
    """Whether a path leads from every device to every other; O(devices + links)."""
    entries, first = links.entries, names[0]
    for forth in (True, False):
        near: dict[str, list[tuple[str, ...]]] = {}
        for entry in entries:
            if isinstance(entry, Group):
                for name in entry.devices:
                    near.setdefault(name, []).append(entry.devices)
            else:
                a, b = (entry.source, entry.target) if forth else (entry.target, entry.source)
                near.setdefault(a, []).append((b,))
        seen, waiting, done = {first}, [first], set[int]()
        while waiting:
            for ends in near.get(waiting.pop(), ()):
                if id(ends) not in done:
                    done.add(id(ends))
                    waiting += [name for name in ends if name not in seen]
                    seen.update(ends)
        if len(seen) < len(names):
            return False
    return True


# More than any sum of latencies that can be stated; two of them fit 64 bits without a sign.
UNREACHED = np.uint64(2**62 + 1)

Widths = Ints
Latencies = NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class Paths(Mapping[tuple[int, int], tuple[int, int]]):
    """Bandwidth and latency of ordered device pairs, as a table of few kinds of paths."""

    #: (K, K) int32: Kind of the path of each pair; -1 where no path leads.
    number: NDArray[np.int32]
    #: (int, int): Bandwidth (bytes/s) and latency (ns) of each kind.
    kinds: list[tuple[int, int]]

    def __getitem__(self, pair: tuple[int, int]) -> tuple[int, int]:
        """Bandwidth and latency of a pair."""
        found = int(self.number[pair])
        if found < 0:
            raise KeyError(pair)
        return self.kinds[found]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """The pairs that a path joins."""
        for a, b in np.argwhere(self.number >= 0):
            yield int(a), int(b)

    def __len__(self) -> int:
        """How many pairs a path joins."""
        return int((self.number >= 0).sum())


def widest_paths(names: Sequence[str], links: Links) -> Paths:
    """Bandwidth (bytes/s) and latency (ns) of every ordered device pair that a path joins."""
    # A pair with a link uses it. Another pair uses the widest path (Moirai, section III-A): the
    # largest bottleneck bandwidth and, among paths of that bandwidth, the least sum of latencies.
    number, place = _direct(names, links)
    kinds = list(place)
    missing = (number < 0) & ~np.eye(len(number), dtype=np.bool_)
    if kinds and missing.any():
        width = np.array([*(kind[0] for kind in kinds), 0], np.int64)[number]
        latency = np.array([*(kind[1] for kind in kinds), UNREACHED], np.uint64)[number]
        bottleneck = _bottlenecks(width)
        for bandwidth in np.unique(bottleneck[missing & (bottleneck > 0)]).tolist():
            least = _least_sums(np.where(width >= bandwidth, latency, UNREACHED))
            for a, b in np.argwhere(missing & (bottleneck == bandwidth) & (least < UNREACHED)):
                kind = bandwidth, int(least[a, b])
                number[a, b] = place.setdefault(kind, len(place))
    return Paths(number, list(place))


def _direct(
    names: Sequence[str], links: Links
) -> tuple[NDArray[np.int32], dict[tuple[int, int], int]]:
    """Kind of the link of each pair, -1 where there is none, and the numbers of the kinds."""
    where, size = {name: k for k, name in enumerate(names)}, len(names)
    if size * size > MAX_DEVICE_PAIRS.most():
        raise ClusterError(MAX_DEVICE_PAIRS.sentence(f"devices: {size} make {size * size} pairs"))
    number = np.full((size, size), -1, np.int32)
    place: dict[tuple[int, int], int] = {}
    for entry in links.entries:
        kind = entry.bandwidth_bytes_per_s, entry.latency_ns
        at = place.setdefault(kind, len(place))
        if isinstance(entry, Group):
            members = [where[device] for device in entry.devices]
            number[np.ix_(members, members)] = np.where(
                np.eye(len(members), dtype=np.bool_), number[np.ix_(members, members)], at
            )
        else:
            number[where[entry.source], where[entry.target]] = at
    return number, place


def _bottlenecks(width: Widths) -> Widths:
    """Largest bottleneck bandwidth of a path between each pair, 0 where none leads."""
    best = width.copy()
    for k in _pivots(best > 0):
        into, out = np.flatnonzero(best[:, k]), np.flatnonzero(best[k])
        block = np.ix_(into, out)
        best[block] = np.maximum(best[block], np.minimum(best[into, k][:, None], best[k, out]))
    return best


def _least_sums(latency: Latencies) -> Latencies:
    """Least sum of latencies of a path between each pair, `UNREACHED` where none leads."""
    best = latency.copy()
    for k in _pivots(best < UNREACHED):
        into, out = np.flatnonzero(best[:, k] < UNREACHED), np.flatnonzero(best[k] < UNREACHED)
        block = np.ix_(into, out)
        sums = np.minimum(best[into, k][:, None] + best[k, out], UNREACHED)
        best[block] = np.minimum(best[block], sums)
    return best


def _pivots(linked: Flags) -> list[int]:
    """Devices by the number of pairs that they join: hubs last, so that tables fill up late."""
    # Floyd and Warshall's algorithm may take them in any order.
    joined = linked.sum(axis=0, dtype=np.int64) * linked.sum(axis=1, dtype=np.int64)
    order: list[int] = np.argsort(joined, kind="stable").tolist()
    return order
