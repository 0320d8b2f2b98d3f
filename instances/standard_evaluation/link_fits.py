"""Links from measured transfers: t = k d + b per ordered pair of devices (Celeritas, 4.2.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from placegap.instances.io.measurements import DOUBTS, MIN_R2, Table, fit_lines
from placegap.instances.problem.array_types import Flags
from placegap.instances.problem.instance import Cluster, Link
from placegap.instances.problem.integers import LARGEST_SUM, NS_PER_S
from placegap.instances.problem.links import Links
from placegap.instances.reading.errors import InputError
from placegap.instances.reading.input_files import MAX_LINKS

NO_LINE = "no rising line: the rate of its largest size is taken, without latency"
NEGATIVE_LATENCY = "the line begins below zero: latency 0 is taken"


@dataclass(frozen=True)
class LinkFit:
    """A link, the line behind it, and what speaks against it.

    `bandwidth_bytes_per_s` is 1 / k and `latency_ns` is b, both rounded half to even.
    """

    source: str
    target: str
    bandwidth_bytes_per_s: int
    latency_ns: int
    r2: float
    points: int
    doubts: tuple[str, ...]


def fit_links(table: Table, cluster: Cluster, min_r2: float = MIN_R2) -> tuple[LinkFit, ...]:
    """A line per measured pair, in the order of the first rows.

    Raises
    ------
    InputError
        If a row names no two devices of the cluster, or a pair was measured without bytes or time.

    Examples
    --------
    10 GB/s and 5 us of latency, measured at 1 MB and 4 MB:

    >>> from placegap.instances import example
    >>> table = Table((("gpu0", "gpu1"),) * 2, np.array([10**6, 4 * 10**6]),
    ...               {"time_ns": np.array([105_000.0, 405_000.0])}, ("row 1", "row 2"))
    >>> fit = fit_links(table, example().cluster)[0]
    >>> fit.bandwidth_bytes_per_s, fit.latency_ns
    (10000000000, 5000)
    """
    _check(table, cluster)
    number: dict[tuple[str, str], int] = {}
    group = np.array([number.setdefault(key, len(number)) for key in table.keys], np.int64)
    lines = fit_lines(group, table.size, table.figures["time_ns"], len(number))
    intercept = lines.intercept
    found = []
    for (source, target), g in number.items():
        doubts: list[str] = []
        if lines.sizes[g] == 2:
            doubts.append(DOUBTS["two"])
        slope, latency = float(lines.slope[g]), float(intercept[g])
        if lines.sizes[g] == 1 or slope <= 0:
            slope, latency = _rate_of_largest(table, group == g), 0.0
            doubts.append(NO_LINE)
        elif lines.sizes[g] > 2 and lines.r2[g] < min_r2:
            doubts.append(DOUBTS["poor"])
        if latency < -0.5:
            doubts.append(NEGATIVE_LATENCY)
        bandwidth = min(LARGEST_SUM, max(1, round(NS_PER_S / slope)))
        found.append(
            LinkFit(
                source,
                target,
                bandwidth,
                max(0, round(latency)),
                float(lines.r2[g]),
                int(lines.points[g]),
                tuple(doubts),
            )
        )
    return tuple(found)


def with_links(cluster: Cluster, fits: Sequence[LinkFit]) -> tuple[Cluster, tuple[str, ...]]:
    """The cluster with the fitted links, and the names of links that kept their own figures."""
    fitted = {
        (fit.source, fit.target): Link(
            source=fit.source,
            target=fit.target,
            latency_ns=fit.latency_ns,
            bandwidth_bytes_per_s=fit.bandwidth_bytes_per_s,
        )
        for fit in fits
    }
    MAX_LINKS.check(len(cluster.links), f"cluster {cluster.name!r}, written link by link,")
    own = {(link.source, link.target): link for link in cluster.links}
    kept = tuple(f"{a} -> {b}" for a, b in own if (a, b) not in fitted)
    changes = (*cluster.provenance.changes, f"{len(fits)} links from measured transfers")
    return cluster.model_copy(
        update={
            "name": f"{cluster.name}-measured",
            "links": Links({**own, **fitted}.values()),
            "provenance": cluster.provenance.model_copy(update={"changes": changes}),
        }
    ), kept


def _check(table: Table, cluster: Cluster) -> None:
    for (source, target), place in zip(table.keys, table.place, strict=True):
        for name in (source, target):
            if name not in cluster.device_index:
                known = ", ".join(cluster.device_index)
                raise InputError(
                    f"the cluster has no device {name!r}, only {known}; correct it or drop the row",
                    place,
                )
        if source == target:
            raise InputError(f"joins {source!r} with itself; drop the row", place)


def _rate_of_largest(table: Table, rows: Flags) -> float:
    """Time per byte of the largest size that was measured, in ns."""
    of_pair = table.rows(rows)
    size, time_ns = int(of_pair.size.max()), of_pair.figures["time_ns"]
    mean = float(time_ns[of_pair.size == size].mean())
    if size == 0 or mean == 0:
        source, target = of_pair.keys[0]
        raise InputError(
            f"{source!r} -> {target!r} shows no bandwidth: measure two or more sizes above 0",
            of_pair.place[0],
        )
    return mean / size
