"""Between any two devices: their link, else the widest path over several."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from placegap.instances.problem.array_types import Flags, Ints
from placegap.instances.problem.links import Group
from placegap.instances.reading.errors import ClusterError
from placegap.instances.reading.input_files import MAX_DEVICE_PAIRS

if TYPE_CHECKING:
    from placegap.instances.problem.instance import Cluster

UNREACHED = np.uint64(2**62 + 1)
"""More than any sum of latencies that can be stated; two of them fit 64 bits without a sign."""

Widths = Ints
Latencies = NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class Paths(Mapping[tuple[int, int], tuple[int, int]]):
    """Bandwidth and latency of ordered device pairs, as a table of few kinds of paths.

    Attributes
    ----------
    number : (K, K) int32
        Kind of the path of each pair; -1 where no path leads.
    kinds : list of (int, int)
        Bandwidth (bytes/s) and latency (ns) of each kind.
    """

    number: NDArray[np.int32]
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


def widest_paths(cluster: Cluster) -> Paths:
    """Bandwidth (bytes/s) and latency (ns) of every ordered device pair that a path joins.

    A pair with a link uses it. Another pair uses the widest path (Moirai, section III-A): the
    largest bottleneck bandwidth and, among paths of that bandwidth, the least sum of latencies.

    Examples
    --------
    >>> from placegap.instances.problem.instance import Cluster, Device, Link
    >>> devices = tuple(Device(name=x, kind="gpu") for x in "abc")
    >>> links = (Link(source="a", target="b", bandwidth_bytes_per_s=9, latency_ns=1),
    ...          Link(source="b", target="c", bandwidth_bytes_per_s=5, latency_ns=2))
    >>> widest_paths(Cluster(name="line", devices=devices, links=links))[0, 2]
    (5, 3)
    """
    number, place = _direct(cluster)
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


def _direct(cluster: Cluster) -> tuple[NDArray[np.int32], dict[tuple[int, int], int]]:
    """Kind of the link of each pair, -1 where there is none, and the numbers of the kinds."""
    where, size = cluster.device_index, len(cluster.devices)
    if size * size > MAX_DEVICE_PAIRS.most():
        raise ClusterError(MAX_DEVICE_PAIRS.sentence(f"devices: {size} make {size * size} pairs"))
    number = np.full((size, size), -1, np.int32)
    place: dict[tuple[int, int], int] = {}
    for entry in cluster.all_links.entries:
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
    """Devices by the number of pairs that they join: hubs last, so that tables fill up late.

    Floyd and Warshall's algorithm may take them in any order.
    """
    joined = linked.sum(axis=0, dtype=np.int64) * linked.sum(axis=1, dtype=np.int64)
    order: list[int] = np.argsort(joined, kind="stable").tolist()
    return order
