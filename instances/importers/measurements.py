"""Measurement tables, straight lines through them, and how far estimates are from measurements.

There are three kinds of CSV files, each with a header, separated by commas, columns in any order:

- ops: ``op,device,batch,time_ns,memory_bytes``; `device` is a device kind of the cluster. Instead
  of ``time_ns`` the column may be ``time_us``, ``time_ms`` or ``time_s``.
- links: ``source,target,bytes,time_ns`` (or another unit); the two are names of devices.
- tensors: ``producer,consumer,batch,bytes``; the two are names of ops that an edge joins.

Times and sizes are decimal numbers, not negative (means of several runs need not be whole). A row
may be repeated: the iterations of one measurement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from placegap.instances.kernels.array_types import Flags, Floats, Ints
from placegap.instances.problem import Cluster, Link
from placegap.instances.problem.integers import LARGEST_SUM, NS_PER_S
from placegap.instances.problem.links import Links
from placegap.instances.reading.errors import InputError
from placegap.instances.reading.input_files import (
    LARGEST,
    MAX_LINKS,
    TIME_COLUMNS,
    csv_rows,
    find_columns,
    number_of,
    plain_number,
)


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of measurements: what was measured, at which size, and figures."""

    #: Op and device kind; or source and target; or producer and consumer; one per row.
    keys: tuple[tuple[str, str], ...]
    size: Ints  # (r,) int64: Batch, or bytes on a link
    figures: Mapping[str, Floats]  # (r,) float64: ``time_ns``, ``memory_bytes``, ``bytes``
    place: tuple[str, ...]  # ``file: row 7`` of each row, for messages

    def rows(self, chosen: Flags) -> Table:
        at = np.flatnonzero(chosen).tolist()
        return Table(
            tuple(self.keys[r] for r in at),
            self.size[at],
            {name: figures[at] for name, figures in self.figures.items()},
            tuple(self.place[r] for r in at),
        )


def load_ops(paths: Sequence[str | Path]) -> Table:
    """Measurements of ops from one or several files."""
    tables = [_read(path, ("op", "device"), "batch", ("time", "memory_bytes")) for path in paths]
    return _joined(tables)


def load_links(path: str | Path) -> Table:
    """Measurements of transfers between devices; errors as of `load_ops`."""
    return _read(path, ("source", "target"), "bytes", ("time",))


def load_tensors(path: str | Path) -> Table:
    """Sizes of the tensors between ops; errors as of `load_ops`."""
    return _read(path, ("producer", "consumer"), "batch", ("bytes",))


def _joined(tables: Sequence[Table]) -> Table:
    if not tables:
        raise InputError("give at least one file of measurements")
    return Table(
        tuple(key for table in tables for key in table.keys),
        np.concatenate([table.size for table in tables]),
        {
            name: np.concatenate([table.figures[name] for table in tables])
            for name in tables[0].figures
        },
        tuple(place for table in tables for place in table.place),
    )


def _read(path: str | Path, names: tuple[str, str], size: str, figures: tuple[str, ...]) -> Table:
    rows = csv_rows(path)
    line, head = next(rows)
    columns = find_columns(path, line, head, (*names, size, *figures))
    keys: list[tuple[str, str]] = []
    sizes: list[int] = []
    values: dict[str, list[float]] = {_figure(name): [] for name in figures}
    places: list[str] = []
    for line, cells in rows:
        place = f"{path}: row {line}"
        first, second = (cells[columns[name]].strip() for name in names)
        for name, text in zip(names, (first, second), strict=True):
            if not text:
                raise InputError(f"{name} is empty; name it", place)
        keys.append((first, second))
        sizes.append(_whole(cells[columns[size]], size, place))
        for name in figures:
            column = head[columns[name]].strip()
            number = number_of(cells[columns[name]], column, place)
            values[_figure(name)].append(number * TIME_COLUMNS.get(column, 1.0))
        places.append(place)
    if not keys:
        raise InputError("has a header but no rows; add the measurements", path)
    return Table(
        tuple(keys),
        np.array(sizes, np.int64),
        {name: np.array(column, np.float64) for name, column in values.items()},
        tuple(places),
    )


def _figure(name: str) -> str:
    return "time_ns" if name == "time" else name


def _whole(text: str, column: str, place: str) -> int:
    least = 1 if column == "batch" else 0
    try:
        value = int(plain_number(text))
    except ValueError:
        raise InputError(f"{column} must be a whole number (got {text[:40]!r})", place) from None
    if not least <= value <= LARGEST:
        raise InputError(f"{column} must be from {least} to 2**53 (got {text[:40]!r})", place)
    return value


Doubt = Literal["single", "falling", "two", "poor", "negative"]

# Doubts about an estimate, and what is done about them.
DOUBTS: dict[Doubt, str] = {
    "single": "measured at one size only: this value is taken, nothing is extrapolated",
    "falling": "falls as the size grows: the largest measured value is taken, not the line",
    "two": "measured at two sizes only: nothing shows whether a line fits",
    "poor": "a line fits badly (R2)",
    "negative": "the line is below zero there: 0 is taken",
}

MIN_R2 = 0.9  # below this a fit is called poor


@dataclass(frozen=True, eq=False)
class Lines:
    """Least-squares lines y = slope (x - mean_x) + mean_y of g groups of points."""

    #: points, sizes: (g,) int64: Points and different x of each group; at least one.
    points: Ints
    sizes: Ints
    #: mean_x, mean_y, slope, r2, largest_y: (g,) float64: `slope` is 0 where there is one x only;
    #: `r2` is 1 where a horizontal line leaves no error.
    mean_x: Floats
    mean_y: Floats
    slope: Floats
    r2: Floats
    largest_y: Floats

    @property
    def intercept(self) -> Floats:
        """Value of each line at 0."""
        return self.mean_y - self.slope * self.mean_x

    def estimate(self, x: float, min_r2: float = MIN_R2) -> tuple[Floats, list[tuple[int, Doubt]]]:
        """Value of each group at x, and the doubts about it as (group, doubt)."""
        # A line with three sizes or more is an estimate as it is, also a poor one. Neither a
        # falling line nor a single size is extrapolated (`DOUBTS`).
        value = self.mean_y + self.slope * (x - self.mean_x)
        falling = self.slope < 0
        value[falling] = self.largest_y[falling]
        negative = value < 0
        value[negative] = 0.0
        tests: dict[Doubt, Flags] = {
            "single": self.sizes == 1,
            "falling": falling,
            "two": self.sizes == 2,
            "poor": (self.sizes > 2) & ~falling & (self.r2 < min_r2),
            "negative": negative,
        }
        doubts = [
            (group, doubt)
            for doubt, found in tests.items()
            for group in np.flatnonzero(found).tolist()
        ]
        return value, doubts


def fit_lines(group: Ints, x: Ints, y: Floats, num_groups: int) -> Lines:
    """Fit a line to the points of each group, by least squares."""
    # Ordinary linear regression with one variable; sums about the means, so that exact lines
    # through whole numbers give whole numbers back. O(p log p) for p points. Groups are numbered
    # from 0, and every group has a point.
    points = np.bincount(group, minlength=num_groups)
    order = np.lexsort((x, group))
    new = np.ones(len(x), np.bool_)
    new[1:] = (np.diff(group[order]) != 0) | (np.diff(x[order]) != 0)
    sizes = np.bincount(group[order][new], minlength=num_groups)
    mean_x = np.bincount(group, x, num_groups) / points
    mean_y = np.bincount(group, y, num_groups) / points
    dx, dy = x - mean_x[group], y - mean_y[group]
    var_x = np.bincount(group, dx * dx, num_groups)
    var_y = np.bincount(group, dy * dy, num_groups)
    spread = sizes > 1
    slope = np.zeros(num_groups)
    np.divide(np.bincount(group, dx * dy, num_groups), var_x, out=slope, where=spread)
    error = dy - slope[group] * dx
    left = np.zeros(num_groups)  # share of the variance that the line leaves
    np.divide(np.bincount(group, error * error, num_groups), var_y, out=left, where=var_y > 0)
    largest_y = np.full(num_groups, -np.inf)
    np.maximum.at(largest_y, group, y)
    return Lines(points, sizes, mean_x, mean_y, slope, 1 - left, largest_y)


NO_LINE = "no rising line: the rate of its largest size is taken, without latency"

NEGATIVE_LATENCY = "the line begins below zero: latency 0 is taken"


@dataclass(frozen=True)
class LinkFit:
    """A link, the line behind it, and doubts about it."""

    # `bandwidth_bytes_per_s` is 1 / k and `latency_ns` is b, both rounded half to even.
    source: str
    target: str
    bandwidth_bytes_per_s: int
    latency_ns: int
    r2: float
    points: int
    doubts: tuple[str, ...]


def fit_links(table: Table, cluster: Cluster, min_r2: float = MIN_R2) -> tuple[LinkFit, ...]:
    """A line per measured pair, in the order of the first rows."""
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
    provenance = cluster.provenance.noting(f"{len(fits)} links from measured transfers")
    return cluster.model_copy(
        update={
            "name": f"{cluster.name}-measured",
            "links": Links({**own, **fitted}.values()),
            "provenance": provenance,
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


EXACT = 0.005  # up to this relative deviation an estimate counts as exact: it rounds to 0 %

LEVELS = (0.05, 0.1, 0.2, 0.3, 0.5)


@dataclass(frozen=True, eq=False)
class Deviations:
    """Relative deviations of estimates from what was measured, ascending (Celeritas, 6.3)."""

    #: (c,) float64: Of all items with a measured value above 0, and 0 for those where both are 0.
    relative: Floats
    undefined: int  # items estimated above 0 but measured as 0; they have no relative deviation

    @property
    def mean(self) -> float | None:
        """The mean, as in Table 5 of the paper; None without items."""
        return float(self.relative.mean()) if len(self.relative) else None

    def share_within(self, level: float) -> float | None:
        """The distribution function: share of items that deviate by at most `level`."""
        if not len(self.relative):
            return None
        within = np.searchsorted(self.relative, level * (1 + 1e-12), side="right")
        return float(within / len(self.relative))

    def quantile(self, share: float) -> float | None:
        """The least deviation that at least this share of the items does not exceed."""
        if not len(self.relative):
            return None
        return float(self.relative[max(0, int(np.ceil(share * len(self.relative))) - 1)])

    def summary(self) -> dict[str, float | int | None]:
        """Figures of the report: number of items, mean, median, 90 % quantile, distribution."""
        return {
            "compared": len(self.relative),
            "undefined": self.undefined,
            "mean": self.mean,
            "median": self.quantile(0.5),
            "quantile_90": self.quantile(0.9),
            "exact": self.share_within(EXACT),
            **{f"within_{100 * level:g}_percent": self.share_within(level) for level in LEVELS},
        }


def deviations(estimated: Floats, measured: Floats) -> Deviations:
    """Compare estimates with measurements, item by item."""
    defined = (measured > 0) | (estimated == 0)
    distance = np.abs(estimated - measured)[defined]
    base = np.where(measured > 0, measured, 1.0)[defined]
    return Deviations(np.sort(distance / base), int((~defined).sum()))
