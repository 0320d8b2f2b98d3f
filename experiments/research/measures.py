"""What the pages say of committed results: losses and rankings, as frames of plain numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from placegap.experiments.studies.analysis import summary

if TYPE_CHECKING:
    import pandas as pd

WHERE = ["instance", "cluster"]


def ranked(runs: pd.DataFrame) -> pd.DataFrame:
    """The summary of all methods, the most rows within 10 % first, then the least mean gap."""
    found = summary(runs, "label").sort_index()
    return found.sort_values(["within_10", "mean"], ascending=[False, True], kind="stable")


def with_looser_bounds(runs: pd.DataFrame) -> pd.DataFrame:
    """Runs of `memory` with the best bound of all that have as much memory or more."""
    # A plan that fits into less memory fits into more, so a bound for more memory holds for less.
    loose = runs.sort_values("memory_share", ascending=False, kind="stable")
    best = loose.groupby("instance")["best_bound_ns"].cummax().reindex(runs.index)
    gap = 1 - best.astype(float) / runs["value_ns"].astype(float)
    return runs.assign(best_bound_ns=best, gap=gap)


def blind_rows(runs: pd.DataFrame) -> pd.DataFrame:
    """Methods that plan for free channels, under ports (`congestion`): a line for each."""
    # ``promised`` is the value under ports over that for free channels, minus one, ``aware`` over
    # the plan that the method makes for ports; ``alike`` counts the ``plans`` that are worth the
    # same.
    blind, aware = (
        runs[runs["table"] == table].set_index([*WHERE, "method"]) for table in ("blind", "aware")
    )
    both = blind.assign(aware_ns=aware["value_ns"])
    both = both.dropna(subset=["value_ns", "promised_ns", "aware_ns"])
    both["promised"] = (both["value_ns"] / both["promised_ns"] - 1).astype(float)
    both["aware"] = (both["value_ns"] / both["aware_ns"] - 1).astype(float)
    both["alike"] = both["value_ns"] == both["aware_ns"]
    return both.groupby("method", sort=False).agg(
        plans=("value_ns", "size"),
        promised=("promised", "mean"),
        promised_worst=("promised", "max"),
        gap=("gap", "mean"),
        alike=("alike", "sum"),
        aware=("aware", "mean"),
        aware_worst=("aware", "max"),
    )


RIGHT = "off by 0 %"  # the table of `sensitivity` whose costs are true


def losses_by_error(runs: pd.DataFrame) -> pd.DataFrame:
    """Mean and worst loss by method and table: plans of wrong costs over those of true ones."""
    right = runs[runs["table"] == RIGHT][[*WHERE, "method", "value_ns"]]
    both = runs[runs["table"] != RIGHT].merge(right, on=[*WHERE, "method"], suffixes=("", "_true"))
    loss = (both["value_ns"] / both["value_ns_true"] - 1).astype(float).round(9)
    return loss.groupby([both["method"], both["table"]], sort=False).agg(["mean", "max"])


class OrderCount(NamedTuple):
    """Pairs of methods that one judge ranks, and what another one says of them."""

    same: int
    ties: int
    turned: int

    @property
    def num_pairs(self) -> int:
        return sum(self)


def compare_orders(
    runs: pd.DataFrame, by: Sequence[str], true: str, other: str, least: float = 0.0
) -> OrderCount:
    """Count how often two columns rank a pair of methods alike."""
    # Pairs stand in the same place `by`, and their `true` values differ by more than the share
    # `least`.
    known = runs[[*by, "method", true, other]].dropna()
    pairs = known.merge(known, on=list(by), suffixes=("", "_2"))
    pairs = pairs[pairs[f"{true}_2"] > pairs[true] * (1 + least)]
    over = pairs[f"{other}_2"] - pairs[other]
    return OrderCount(int((over > 0).sum()), int((over == 0).sum()), int((over < 0).sum()))


def orders_under_ports(runs: pd.DataFrame) -> OrderCount:
    """What free channels rank, under ports: blind plans of `congestion`."""
    return compare_orders(runs[runs["table"] == "blind"], WHERE, "promised_ns", "value_ns")


def orders_by_error(runs: pd.DataFrame, least: float = 0.0) -> dict[str, OrderCount]:
    """What true costs rank, by the values that placers compute from wrong costs, by table."""
    right = runs[runs["table"] == RIGHT][[*WHERE, "method", "promised_ns"]]
    both = runs.merge(right, on=[*WHERE, "method"], suffixes=("", "_true"))
    return {
        str(table): compare_orders(
            group, [*WHERE, "seed"], "promised_ns_true", "promised_ns", least
        )
        for table, group in both.groupby("table", sort=False)
        if table != RIGHT
    }
