"""Runs as DataFrames, and what they say: gap tables, summaries, comparisons, causes, regressions.

Every function takes a frame with the columns of `runs.COLUMNS` and returns a new one. The unit of
all statistics is a row: a problem of a table, without its seeds, whose runs are averaged first
(`over_seeds`). Means are over the rows that all methods have, and the number of rows that are left
out stands beside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placegap.experiments.studies.runs import (
    COLUMNS,
    NOT_APPLICABLE,
    NOT_INSTALLED,
    NOT_RUN,
    PROBLEM,
    frame_of,
    load_rows,
    rows_of,
)
from placegap.instances.reading.errors import InputError
from placegap.solvers.core.result import relative_gap

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

WITHIN = {"within_1": 0.01, "within_10": 0.1}  # columns of a summary: plans with at most this gap
# Further columns of a gap table's rows, each only if some runs still have the same cell.
FURTHER = ("study", "seed", "memory_share", "num_ops", "instance_hash")
AVERAGED = ("value_ns", "gap", "lost", "solve_s")  # columns of a run that depend on its seed

# What `explain` sets beside a gap.
CAUSES = {
    "bound_quality": "best bound / best plan",
    "ccr": "CCR",
    "num_ops": "ops",
    "memory_pressure": "bytes of all ops / memory",
}

# Bootstrap samples of a geometric mean: with more, the interval's second digit does not move.
DRAWS, CONFIDENCE = 9999, 0.95
POINTS = 61  # times of `anytime`: twelve in each factor of ten between 1 ms and 100 s


def load_runs(*paths: str | Path) -> pd.DataFrame:
    """Runs of one or several studies, as one frame.

    Parameters
    ----------
    *paths
        Files (``runs.csv``, the log ``runs.jsonl``, committed results), folders of such files, or
        patterns such as ``results/*/runs.csv``.

    Returns
    -------
    DataFrame
        A row per run, with the columns of ``placegap.experiments.COLUMNS``. The best bound and the
        best plan of a row are taken over all loaded runs.

    Raises
    ------
    InputError
        If a file cannot be read, has a line that is no run, or holds no runs. Of a log, a last line
        that was cut off while it was written is left out with a warning.

    Examples
    --------
    >>> load_runs("results/quickstart", "results/*/runs.csv")  # doctest: +SKIP
    """
    return frame_of(load_rows(*paths))


def example_runs() -> pd.DataFrame:
    """Methods x and y on instances i, j and k, where y has no plan on k: for examples.

    Examples
    --------
    >>> example_runs()[["instance", "label", "value_ns", "best_bound_ns"]].values.tolist()[2:4]
    [['j', 'x', 5, 4], ['j', 'y', 8, 4]]
    """
    import pandas as pd

    runs = pd.DataFrame({"instance": list("iijjkk"), "label": ["x", "y"] * 3})
    runs["value_ns"] = pd.array([2, 4, 5, 8, 10, None], dtype="Int64")
    runs["best_bound_ns"], runs["best_value_ns"] = [2, 2, 4, 4, 10, 10], [2, 2, 5, 5, 10, 10]
    runs["num_ops"], runs["ccr"] = [7, 7, 9, 9, 8, 8], 1.0
    value = runs["value_ns"].astype(float)
    runs["gap"], runs["lost"] = 1 - runs["best_bound_ns"] / value, 1 - runs["best_value_ns"] / value
    return runs.assign(table="t", cluster="c", seed=0).reindex(columns=list(COLUMNS))


def gap_table(
    runs: pd.DataFrame,
    rows: Sequence[str] | None = None,
    columns: str = "label",
    values: str = "gap",
) -> pd.DataFrame:
    """The gap of every run, with a column per method; NaN without a plan or a bound.

    Parameters
    ----------
    runs
        As `load_runs` returns them.
    rows, columns, values
        Columns of `runs` for the rows, the columns and the cells. Rows are by default table,
        instance and cluster, and whatever else distinguishes runs (`FURTHER`), such as the seed.

    Raises
    ------
    ValueError
        If two runs fall into one cell: name one more column, such as ``seed`` or ``study``.

    Examples
    --------
    >>> gap_table(example_runs(), rows=["instance"]).loc["j"].round(3).to_dict()
    {'x': 0.2, 'y': 0.5}
    """
    key = [columns, *(rows or ("table", "instance", "cluster"))]
    for name in () if rows else FURTHER:
        if runs[name].nunique() > 1 and runs.duplicated(key).any():
            key.append(name)
    _refuse_twice(runs, key)
    found = runs.set_index(key)[values].unstack(columns)
    at = runs.drop_duplicates(key[1:]).set_index(key[1:]).index
    return found.reindex(index=at, columns=list(dict.fromkeys(runs[columns])))


def _refuse_twice(runs: pd.DataFrame, key: list[str]) -> None:
    twice = runs.loc[runs.duplicated(key), key]
    if len(twice):
        raise ValueError(f"two runs in one cell, {twice.iloc[0].to_dict()}: add a column to rows")


def over_seeds(
    runs: pd.DataFrame, what: str = "label", means: Sequence[str] = AVERAGED
) -> pd.DataFrame:
    """The runs with one line per row and method: the means over its seeds, NaN if one has none."""
    key = [name for name in (*PROBLEM, what) if runs[name].notna().any()]
    _refuse_twice(runs, [*key, "seed"])
    numbers = runs.astype(dict.fromkeys(means, float))
    groups = numbers.groupby(key, sort=False, dropna=False)[list(means)]
    found = groups.mean().where(groups.count().eq(groups.size(), axis="index"))
    return runs.drop_duplicates(key).assign(**{name: found[name].to_numpy() for name in means})


def summary(runs: pd.DataFrame, by: Sequence[str] = ("table", "label")) -> pd.DataFrame:
    """Statistics of each method: a line per method.

    Parameters
    ----------
    runs
        As `load_runs` returns them.
    by
        The last column is compared; the ones before it split the runs into groups.

    Returns
    -------
    DataFrame
        ``rows`` of the group, ``plans``, ``optimal``, ``within_1`` and ``within_10`` (gaps of at
        most 1 and 10 %) count over all rows. ``mean``, ``median`` and ``worst`` gap and
        ``seconds`` (mean time of a run) are over the rows where every method of the group has a
        gap, ignoring methods that never have one; ``left_out`` is the number of other rows, and
        ``over_limit`` that of runs that ended 1 s and 10 % after their limit.
        A row's gap is the mean over its seeds; without a plan for one of them it has no plan.

    Examples
    --------
    >>> found = summary(example_runs()).loc["t", ["rows", "plans", "worst", "left_out"]]
    >>> found.round(3).values.tolist()
    [[3.0, 3.0, 0.2, 1.0], [3.0, 2.0, 0.5, 1.0]]
    """
    import pandas as pd

    *groups, what = [by] if isinstance(by, str) else by
    parts = {}
    time_s = runs["solve_s"].astype(float) + runs["build_s"].astype(float).fillna(0.0)
    runs = runs.assign(solve_s=time_s)
    for name, some in runs.groupby(groups, sort=False) if groups else [((), runs)]:
        group = over_seeds(some, what)
        gaps = wide(group, what, "gap")
        known = gaps.dropna(axis="columns", how="all")
        late = some["over_limit_s"].notna().groupby(some[what]).sum().reindex(gaps.columns)
        common = gaps.loc[known.notna().all(axis="columns")]
        parts[name] = pd.DataFrame(
            {
                "rows": len(gaps),
                "plans": wide(group, what, "value_ns").notna().sum(),
                "optimal": (gaps == 0).sum(),
                **{column: (gaps <= most).sum() for column, most in WITHIN.items()},
                "mean": common.mean(),
                "median": common.median(),
                "worst": common.max(),
                "seconds": wide(group, what, "solve_s").loc[common.index].mean(),
                "left_out": len(gaps) - len(common),
                "over_limit": late,
            }
        )
    return pd.concat(parts, names=groups) if groups else parts[()]


def wide(runs: pd.DataFrame, what: str, values: str) -> pd.DataFrame:
    """A row per row of a study, a column per method, of what `over_seeds` returns."""
    rows = [name for name in PROBLEM if runs[name].notna().any()]
    return gap_table(runs, rows, what, values).astype(float)


def as_costs(runs: pd.DataFrame, *columns: str) -> pd.DataFrame:
    """The runs with tokens of ``max_context``, of which more is better, below 0."""
    counts = runs["semantics"].astype(str).str.startswith("max_context")
    return runs.assign(**{name: runs[name].mask(counts, -runs[name]) for name in columns})


def ratios(over: pd.Series[float], under: pd.Series[float]) -> pd.Series[float]:
    """Value over value, or the inverse where values are below 0 (`as_costs`): more is worse."""
    inverted = (over < 0) | (under < 0)
    return (over / under).mask(inverted, (under / over).abs()).mask(over == under, 1.0)


def compare(runs: pd.DataFrame, a: str, b: str) -> pd.DataFrame:
    """Compare method `a` with method `b` over the rows where both have a plan.

    Parameters
    ----------
    runs
        As `load_runs` returns them.
    a, b
        Labels of two methods.

    Returns
    -------
    DataFrame
        A line per table. ``wins`` are the rows where `a` has the smaller value; ``ties`` and
        ``losses`` likewise, and ``left_out`` the rows where one of them has no plan. ``ratio`` is
        the geometric mean of value of `a` over value of `b`, ``low`` and ``high`` its 95 %
        bootstrap interval (with a fixed seed), and ``p`` the two-sided sign test without ties.
        Values are means over a row's seeds, and none where a seed has no plan. Under
        ``max_context`` more is better: the ratio is that of `b` over `a`.

    Examples
    --------
    >>> compare(example_runs(), "x", "y").loc["t", ["wins", "left_out", "ratio", "p"]].round(3)
    wins        2.000
    left_out    1.000
    ratio       0.559
    p           0.500
    Name: t, dtype: float64
    """
    import numpy as np
    import pandas as pd
    from scipy.stats import binomtest

    lines = {}
    tail = (1 - CONFIDENCE) / 2
    for table, group in over_seeds(as_costs(runs, "value_ns")).groupby("table", sort=False):
        values = wide(group, "label", "value_ns").reindex(columns=[*dict.fromkeys([a, b])])
        pairs = values.dropna()
        over = ratios(pairs[a], pairs[b]).to_numpy()
        wins, losses = int((over < 1).sum()), int((over > 1).sum())
        line: dict[str, Any] = {"wins": wins, "ties": len(over) - wins - losses, "losses": losses}
        line["left_out"] = len(values) - len(over)
        log = np.log(over[(over > 0) & np.isfinite(over)])  # not where just one value is 0
        if len(log):
            means = np.random.default_rng(0).choice(log, (DRAWS, len(log))).mean(axis=1)
            known = [log.mean(), *np.quantile(means, [tail, 1 - tail])]
            line |= dict(zip(("ratio", "low", "high"), np.exp(known), strict=True))
            line["p"] = binomtest(wins, wins + losses).pvalue if wins + losses else 1.0
        lines[table] = line
    columns = ["wins", "ties", "losses", "left_out", "ratio", "low", "high", "p"]
    found = pd.DataFrame.from_dict(lines, orient="index")
    return found.reindex(columns=columns).rename_axis("table")


def profile(runs: pd.DataFrame, of: str = "gap") -> pd.DataFrame:
    """The performance profile: the share of rows that each method solves to within x.

    Parameters
    ----------
    runs
        As `load_runs` returns them; rows where no method has a gap do not count.
    of
        ``gap``: x is the gap to the best bound. ``lost``: x is the gap to the best plan.

    Returns
    -------
    DataFrame
        Indexed by x, a column per method, the largest share within 10 % first. A row's gap is the
        mean over its seeds; a row without a plan for one of them is not within any x.

    Examples
    --------
    >>> profile(example_runs()).loc[0.5].round(3).to_dict()
    {'x': 1.0, 'y': 0.667}
    """
    import numpy as np
    import pandas as pd

    gaps = wide(over_seeds(runs), "label", of).dropna(how="all")
    at = np.unique([0.0, *gaps.stack().dropna(), 1.0])
    within = {label: np.searchsorted(gaps[label].sort_values(), at, "right") for label in gaps}
    shares = pd.DataFrame(within, at) / len(gaps)
    order = pd.DataFrame({"share": (gaps <= WITHIN["within_10"]).mean(), "mean": -gaps.mean()})
    best = order.fillna(-1.0).sort_values(["share", "mean"], ascending=False, kind="stable")
    return shares.rename_axis(of)[list(best.index)]


def explain(runs: pd.DataFrame, by: str = "table") -> pd.DataFrame:
    """Rank correlations (Spearman) of the gap with properties of the instances of a group.

    Parameters
    ----------
    runs
        As `load_runs` returns them.
    by
        Column that splits the runs: ``table``, or ``label`` for each method by itself.

    Returns
    -------
    DataFrame
        A line per group, a column per property (`CAUSES`), and the number of ``runs``, where the
        seeds of a row and a method are one run with their mean gap. 1 means that both grow
        together; NaN that one of them is constant. With few instances, whose properties are
        correlated, it is only a hint for the next study.

    Examples
    --------
    >>> explain(example_runs(), by="label").loc["x", ["num_ops", "ccr"]].round(3).to_dict()
    {'num_ops': 0.866, 'ccr': nan}
    """
    import numpy as np
    import pandas as pd

    known = with_quality(over_seeds(runs)).dropna(subset="gap")
    lines = {}
    for name, group in known.groupby(by, sort=False):
        ranks = group[[*CAUSES, "gap"]].astype(float).rank()
        with np.errstate(invalid="ignore", divide="ignore"):
            found = ranks[list(CAUSES)].corrwith(ranks["gap"])
        lines[name] = {**found, "runs": len(group)}
    return pd.DataFrame.from_dict(lines, orient="index").rename_axis(by)


def with_quality(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs with the best bound over the best plan: 1 is a proof."""
    costs = as_costs(runs, "best_bound_ns", "best_value_ns")
    bound, value = costs["best_bound_ns"].astype(float), costs["best_value_ns"].astype(float)
    return runs.assign(bound_quality=ratios(bound, value))


def regressions(old: pd.DataFrame, new: pd.DataFrame, tolerance: float = 0.01) -> pd.DataFrame:
    """The rows where a method became worse: for the CI of a placer.

    Parameters
    ----------
    old, new
        Runs before and after a change. Those of one label on one row of one table are compared, by
        their mean over common seeds. Runs in only one of them are ignored, and so are instances
        whose content has changed.
    tolerance
        Relative increase of the value that is allowed; old over new tokens in ``max_context``.

    Returns
    -------
    DataFrame
        The rows that are worse, with ``old_ns``, ``new_ns`` and their ``ratio``, the largest first.
        If no plan is found any more for one of the seeds, the ratio is infinite.

    Examples
    --------
    >>> old = example_runs()
    >>> new = old.assign(value_ns=old["value_ns"].replace(8, 12))
    >>> regressions(old, new)[["instance", "label", "ratio"]].values.tolist()
    [['j', 'y', 1.5]]
    """
    if not tolerance >= 0:
        raise InputError(f"tolerance must be at least 0 (got {tolerance})")
    key = [*PROBLEM[1:], "label"]
    old, new = as_costs(old, "value_ns"), as_costs(new, "value_ns")
    both = old.rename(columns={"value_ns": "old_ns"}).merge(
        new.rename(columns={"value_ns": "new_ns"})[[*key, "seed", "new_ns"]],
        on=[*key, "seed"],
        validate="one_to_one",
    )
    both = over_seeds(both, means=("old_ns", "new_ns"))[[*key, "old_ns", "new_ns"]]
    both["ratio"] = ratios(both["new_ns"], both["old_ns"]).fillna(float("inf"))
    both[["old_ns", "new_ns"]] = both[["old_ns", "new_ns"]].abs()
    worse = both[both["old_ns"].notna() & (both["ratio"] > 1 + tolerance)]
    return worse.sort_values("ratio", ascending=False, kind="stable", ignore_index=True)


def anytime(runs: pd.DataFrame) -> pd.DataFrame:
    """How good the plans of each method are over time.

    Parameters
    ----------
    runs
        As `load_runs` returns them.

    Returns
    -------
    DataFrame
        Indexed by seconds, a column per method: the mean over problems of (value - best value) /
        value of the best plan so far, 1 where there is none yet. Seeds are averaged first. The
        column ``target_s`` of the runs has the time until a plan was within 1 %.

    Examples
    --------
    >>> from placegap.experiments import example_runs
    >>> anytime(example_runs().assign(solve_s=0.5))["y"].iloc[[0, -1]].round(2).tolist()
    [1.0, 0.62]
    """
    import numpy as np
    import pandas as pd

    not_run = (NOT_APPLICABLE, NOT_INSTALLED, NOT_RUN, "bound")
    rows = [row for row in rows_of(runs) if row.status not in not_run]
    ends = [at_s for row in rows for at_s, _ in row.found] or [1.0]
    times = np.geomspace(min(1e-3, *ends), max(1e-2, *ends), POINTS)
    seeds: dict[tuple[object, ...], list[np.ndarray]] = {}
    for row in rows:
        lost = np.ones(POINTS)
        for at_s, value in row.found:
            lost[times >= at_s * (1 - 1e-12)] = relative_gap(value, row.best_value_ns) or 0.0
        seeds.setdefault((row.label, *attrgetter(*PROBLEM)(row)), []).append(lost)
    problems: dict[str, list[np.ndarray]] = {}
    for (label, *_), curves in seeds.items():
        problems.setdefault(str(label), []).append(np.mean(curves, axis=0))
    found = {label: np.mean(curves, axis=0) for label, curves in problems.items()}
    return pd.DataFrame(found, index=pd.Index(times, name="seconds"))
