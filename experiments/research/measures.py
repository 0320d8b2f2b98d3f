"""What the pages say of committed results: gaps, losses, rankings, as plain numbers."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from placegap.experiments.studies.log import Record
from placegap.solvers.core.result import relative_gap


def gaps_of(rows: Sequence[Record]) -> dict[str, list[float | None]]:
    """Gap to the row's bound, by method, row by row; None without a plan. Rows need a bound."""
    bounded = [row for row in rows if row["bound_ns"] is not None]
    labels = dict.fromkeys(label for row in bounded for label in row["runs"])
    return {
        label: [
            relative_gap(row["runs"].get(label, {}).get("value_ns"), row["bound_ns"])
            for row in bounded
        ]
        for label in labels
    }


def share_within(gaps: Sequence[float | None], most: float) -> float:
    """Share of rows whose gap is at most a limit; a row without a plan is in none."""
    return sum(gap is not None and gap <= most for gap in gaps) / len(gaps) if gaps else 0.0


def by_share(gaps: Mapping[str, Sequence[float | None]], most: float = 0.1) -> list[str]:
    """Methods, the largest share of rows within `most` first, then the least mean gap."""

    def order(label: str) -> tuple[float, float, str]:
        known = [gap for gap in gaps[label] if gap is not None]
        return -share_within(gaps[label], most), statistics.fmean(known) if known else 1.0, label

    return sorted(gaps, key=order)


def with_looser_bounds(rows: Sequence[Record]) -> list[Record]:
    """Rows of `memory` with the best bound of all that have as much memory or more.

    A plan that fits into less memory fits into more, so a bound for more memory holds for less.
    """
    return [
        {
            **row,
            "bound_ns": max(
                (
                    other["bound_ns"]
                    for other in rows
                    if other["instance"] == row["instance"]
                    and other["memory_share"] >= row["memory_share"]
                    and other["bound_ns"] is not None
                ),
                default=None,
            ),
        }
        for row in rows
    ]


def bounds_by_size(records: Sequence[Record]) -> dict[int, int]:
    """The best bound of each size of `scaling`, in ns: what any method proved, or a cheap one."""
    best: dict[int, int] = {}
    for record in records:
        for bound_ns in (record.get("bound_ns"), record.get("cheap_bound_ns")):
            if bound_ns is not None:
                size = record["num_ops"]
                best[size] = max(best.get(size, 0), bound_ns)
    return best


class Loss(NamedTuple):
    """Mean and largest ratio over 1 of what is compared, and how many pairs there are."""

    mean: float
    worst: float
    num_pairs: int


def loss_of(pairs: Iterable[tuple[int | None, int | None]]) -> Loss | None:
    """How far the first values are above the second ones; None without a pair of values."""
    over = [first / second - 1 for first, second in pairs if first is not None and second]
    if not over:
        return None
    return Loss(round(statistics.fmean(over), 9), round(max(over), 9), len(over))


class BlindRow(NamedTuple):
    """A method that plans for free channels, under ports (`congestion`).

    `promised` is its value under ports against that for free channels, `aware` against the plan
    that it makes for ports; `num_alike` counts the instances where both plans are worth the same,
    and `gap` is the mean one to the best bound under ports.
    """

    method: str
    promised: Loss
    aware: Loss
    num_alike: int
    gap: float


def blind_rows(records: Sequence[Record]) -> list[BlindRow]:
    """One row per method; the best bound of a graph and cluster is that of all their records."""
    best: dict[tuple[str, str], int] = {}
    for record in records:
        where = (record["instance"], record["cluster"])
        best[where] = max(best.get(where, 0), record["bound_ns"] or 0)
    found = []
    for method in dict.fromkeys(record["method"] for record in records):
        known = (r for r in records if r["method"] == method)
        mine = [r for r in known if r["blind_port_ns"] and r["aware_ns"]]
        promised = loss_of((r["blind_port_ns"], r["blind_free_ns"]) for r in mine)
        aware = loss_of((r["blind_port_ns"], r["aware_ns"]) for r in mine)
        if promised is not None and aware is not None:
            alike = sum(r["blind_port_ns"] == r["aware_ns"] for r in mine)
            gaps = (1 - best[r["instance"], r["cluster"]] / r["blind_port_ns"] for r in mine)
            found.append(BlindRow(method, promised, aware, alike, statistics.fmean(gaps)))
    return found


def losses_by_error(records: Sequence[Record]) -> dict[tuple[str, float], Loss]:
    """By method and error: plans of wrong costs against plans of true ones, on true costs."""
    right = {_place(r): r["true_ns"] for r in records if r["off"] == 0}
    found = {}
    for method, off in dict.fromkeys((r["method"], r["off"]) for r in records if r["off"]):
        mine = (r for r in records if (r["method"], r["off"]) == (method, off))
        loss = loss_of((r["true_ns"], right.get(_place(r))) for r in mine)
        if loss is not None:
            found[method, off] = loss
    return found


def _place(record: Record) -> tuple[str, str, str]:
    return record["instance"], record["cluster"], record["method"]


class OrderCount(NamedTuple):
    """Pairs of methods that one judge ranks, and what another one says of them."""

    same: int
    ties: int
    turned: int

    @property
    def num_pairs(self) -> int:
        """All pairs."""
        return sum(self)


def compare_orders(
    judged: Iterable[tuple[Mapping[str, int], Mapping[str, int]]], least: float = 0.0
) -> OrderCount:
    """Count how often two judges rank a pair of methods alike.

    Each item has the values of methods on one instance, by both. Pairs count whose first values
    differ by more than the share `least`.
    """
    count = [0, 0, 0]
    for true, other in judged:
        both = [method for method in true if method in other]
        for first, second in combinations(both, 2):
            fast, slow = sorted((first, second), key=lambda method: true[method])
            if true[slow] > true[fast] * (1 + least):
                sign = (other[slow] > other[fast]) - (other[slow] < other[fast])
                count[1 - sign] += 1
    return OrderCount(*count)


def orders_under_ports(records: Sequence[Record]) -> OrderCount:
    """What free channels rank, under ports: blind plans of `congestion`."""
    free: dict[tuple[str, str], dict[str, int]] = {}
    port: dict[tuple[str, str], dict[str, int]] = {}
    for r in records:
        if r["blind_port_ns"] and r["blind_free_ns"]:
            where = (r["instance"], r["cluster"])
            free.setdefault(where, {})[r["method"]] = r["blind_free_ns"]
            port.setdefault(where, {})[r["method"]] = r["blind_port_ns"]
    return compare_orders((free[where], port[where]) for where in free)


def orders_by_error(records: Sequence[Record], least: float = 0.0) -> dict[float, OrderCount]:
    """What true costs rank, by the values that placers compute from wrong costs."""
    draws: dict[tuple[float, str, str, int], dict[str, int]] = {}
    for r in records:
        if r["believed_ns"] is not None:
            where = (r["off"], r["instance"], r["cluster"], r["seed"] if r["off"] else 0)
            draws.setdefault(where, {})[r["method"]] = r["believed_ns"]
    return {
        error: compare_orders(
            (
                (draws.get((0.0, instance, cluster, 0), {}), believed)
                for (off, instance, cluster, _), believed in draws.items()
                if off == error
            ),
            least,
        )
        for error in sorted({off for off, *_ in draws if off})
    }
