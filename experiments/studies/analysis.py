"""Runs as DataFrames, and what they say: gap tables, summaries, comparisons, causes, regressions.

Every function takes a frame with the columns of `runs.COLUMNS` and returns a new one. Rows of a
study are never pooled over unequal sets: means are over the rows that all methods have, and the
number of rows that are left out stands beside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from placegap.experiments.studies.runs import ROW, frame_of, load_rows

if TYPE_CHECKING:
    import pandas as pd

WITHIN = {"within_1": 0.01, "within_10": 0.1}
"""Columns of a summary: plans whose gap is at most this."""

CAUSES = {
    "bound_quality": "best bound / best plan",
    "ccr": "CCR",
    "num_ops": "ops",
    "memory_pressure": "bytes of all ops / memory",
}
"""What `explain` sets beside a gap."""

DRAWS, CONFIDENCE = 9999, 0.95
"""Bootstrap samples of a geometric mean: with more, the interval's second digit does not move."""


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
        best plan of a row are those of all that is loaded.

    Raises
    ------
    InputError
        If a file cannot be read, or holds no runs.

    Examples
    --------
    >>> runs = load_runs("experiments/notebooks/quickstart.csv")  # doctest: +SKIP
    >>> runs.groupby("method")["gap"].mean()  # doctest: +SKIP
    """
    return frame_of(load_rows(*paths))


def gap_table(
    runs: pd.DataFrame,
    rows: Sequence[str] = ("table", "instance", "cluster"),
    columns: str = "label",
    values: str = "gap",
) -> pd.DataFrame:
    """The gap of every method on every row; NaN without a plan or a bound.

    Parameters
    ----------
    runs
        As `load_runs` returns them.
    rows, columns, values
        Columns of `runs`: what a row is, what stands side by side, and what a cell holds.

    Raises
    ------
    ValueError
        If two runs have the same cell: name one more column, such as ``seed`` or ``study``.

    Examples
    --------
    >>> import pandas as pd
    >>> runs = pd.DataFrame({"instance": ["a", "a"], "label": ["x", "y"], "gap": [0.0, 0.5]})
    >>> gap_table(runs, rows=["instance"]).loc["a"].to_dict()
    {'x': 0.0, 'y': 0.5}
    """
    key = [*rows, columns]
    twice = runs.loc[runs.duplicated(key), key]
    if len(twice):
        raise ValueError(f"two runs in one cell, {twice.iloc[0].to_dict()}: add a column to rows")
    found = runs.set_index(key)[values].unstack(columns)
    order = runs[list(rows)].drop_duplicates().itertuples(index=False, name=None)
    at = [one if len(rows) > 1 else one[0] for one in order]
    return found.reindex(index=at, columns=list(dict.fromkeys(runs[columns])))


def summary(runs: pd.DataFrame, by: Sequence[str] = ("table", "label")) -> pd.DataFrame:
    """How good each method is: a line per method.

    Parameters
    ----------
    runs
        As `load_runs` returns them.
    by
        The last column names what is compared, the ones before it split the runs into groups.

    Returns
    -------
    DataFrame
        ``rows`` of the group, ``plans``, ``optimal``, ``within_1`` and ``within_10`` (gaps of at
        most 1 and 10 %) count over all rows. ``mean``, ``median`` and ``worst`` gap and
        ``seconds`` (mean time of a run) are over the rows where every method of the group has a
        gap, but for methods that have none at all; ``left_out`` is the number of other rows.

    Examples
    --------
    >>> import pandas as pd
    >>> from placegap.experiments import COLUMNS
    >>> some = {"table": "t", "instance": ["a", "a", "b"], "label": ["x", "y", "x"]}
    >>> runs = pd.DataFrame({**some, "value_ns": [4, 8, 5], "gap": [0.0, 0.5, 0.2]})
    >>> found = summary(runs.reindex(columns=list(COLUMNS)))
    >>> found.loc[("t", "x"), ["rows", "plans", "mean", "left_out"]].to_dict()
    {'rows': 2.0, 'plans': 2.0, 'mean': 0.0, 'left_out': 1.0}
    """
    import pandas as pd

    *groups, what = [by] if isinstance(by, str) else by
    lines = {}
    split = runs.groupby(groups, sort=False) if groups else [((), runs)]
    for name, group in split:
        gaps = wide(group, what, "gap")
        times = wide(group.assign(time=_time_s(group)), what, "time")
        values = wide(group, what, "value_ns")
        known = gaps.dropna(axis="columns", how="all")
        common = gaps.loc[known.notna().all(axis="columns")]
        for label in gaps:
            mine = common[label]
            lines[(*name, label)] = {
                "rows": len(gaps),
                "plans": values[label].notna().sum(),
                "optimal": (gaps[label] == 0).sum(),
                **{column: (gaps[label] <= most).sum() for column, most in WITHIN.items()},
                "mean": mine.mean(),
                "median": mine.median(),
                "worst": mine.max(),
                "seconds": times[label][common.index].mean(),
                "left_out": len(gaps) - len(common),
            }
    index = pd.MultiIndex.from_tuples(lines, names=[*groups, what])
    found = pd.DataFrame(list(lines.values()), index=index)
    return found if groups else found.set_axis(index.get_level_values(0))


def _time_s(runs: pd.DataFrame) -> pd.Series[float]:
    return runs["solve_s"].astype(float) + runs["build_s"].astype(float).fillna(0.0)


def wide(runs: pd.DataFrame, what: str, values: str) -> pd.DataFrame:
    """A row per row of a study, a column per method."""
    rows = [name for name in ROW if name in runs and runs[name].notna().any()]
    return gap_table(runs, rows, what, values).astype(float)


def compare(runs: pd.DataFrame, a: str, b: str) -> pd.DataFrame:
    """Whether method `a` is better than method `b`, over the rows where both have a plan.

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

    Examples
    --------
    >>> import pandas as pd
    >>> some = {"table": "t", "instance": ["i", "i", "j", "j"], "label": ["x", "y", "x", "y"]}
    >>> found = compare(pd.DataFrame({**some, "value_ns": [1, 2, 2, 4]}), "x", "y").loc["t"]
    >>> found[["wins", "losses", "ratio", "p"]].to_dict()
    {'wins': 2.0, 'losses': 0.0, 'ratio': 0.5, 'p': 0.5}
    """
    import numpy as np
    import pandas as pd
    from scipy.stats import binomtest

    lines = {}
    for table, group in runs.groupby("table", sort=False):
        values = wide(group, "label", "value_ns").reindex(columns=[a, b])
        pairs = values[(values > 0).all(axis="columns")]
        log = np.log((pairs[a] / pairs[b]).to_numpy())
        wins, losses = int((log < 0).sum()), int((log > 0).sum())
        rng = np.random.default_rng(0)
        means = rng.choice(log, (DRAWS, len(log))).mean(axis=1) if len(log) else [np.nan]
        tail = (1 - CONFIDENCE) / 2
        low, high = np.exp(np.quantile(means, [tail, 1 - tail]))
        lines[table] = {
            "wins": wins,
            "ties": len(log) - wins - losses,
            "losses": losses,
            "left_out": len(values) - len(log),
            "ratio": np.exp(log.mean()) if len(log) else np.nan,
            "low": low,
            "high": high,
            "p": binomtest(wins, wins + losses).pvalue if wins + losses else 1.0,
        }
    return pd.DataFrame.from_dict(lines, orient="index").rename_axis("table")


def profile(runs: pd.DataFrame, of: str = "gap") -> pd.DataFrame:
    """The performance profile: which share of the rows each method solves to within x.

    Parameters
    ----------
    runs
        As `load_runs` returns them; rows where no method has a figure do not count.
    of
        ``gap``: x is the gap to the best bound. ``lost``: x is the gap to the best plan.

    Returns
    -------
    DataFrame
        Indexed by x, a column per method, the largest share within 10 % first. A row without a plan
        is within no x.

    Examples
    --------
    >>> import pandas as pd
    >>> some = {"instance": ["i", "i", "j", "j"], "label": ["x", "y", "x", "y"]}
    >>> found = profile(pd.DataFrame({**some, "gap": [0.0, 0.1, 0.2, None]}))
    >>> found.loc[0.1].to_dict()
    {'x': 0.5, 'y': 0.5}
    """
    import numpy as np
    import pandas as pd

    gaps = wide(runs, "label", of).dropna(how="all")
    at = np.unique(np.append(gaps.stack().dropna(), [0.0, 1.0]))
    shares = pd.DataFrame({label: [(gaps[label] <= x).mean() for x in at] for label in gaps}, at)
    order = pd.DataFrame({"share": (gaps <= WITHIN["within_10"]).mean(), "mean": -gaps.mean()})
    best = order.fillna(-1.0).sort_values(["share", "mean"], ascending=False, kind="stable")
    return shares.rename_axis(of)[list(best.index)]


def explain(runs: pd.DataFrame, by: str = "table") -> pd.DataFrame:
    """What goes along with a gap: rank correlations (Spearman), over all runs of a group.

    Parameters
    ----------
    runs
        As `load_runs` returns them.
    by
        Column that splits the runs: ``table``, or ``label`` for each method by itself.

    Returns
    -------
    DataFrame
        A line per group, a column per property (`CAUSES`), and the number of ``runs``. 1: the
        larger the one, the larger the other; NaN where one of both never changes. Few instances are
        few points, and their properties go together: it is a hint for the next study.

    Examples
    --------
    >>> import pandas as pd
    >>> some = {"table": "t", "best_value_ns": 10, "best_bound_ns": [10, 9, 8], "ccr": 1.0}
    >>> more = {"gap": [0.0, 0.1, 0.4], "num_ops": [5, 6, 7], "memory_pressure": [3, 1, 2]}
    >>> explain(pd.DataFrame({**some, **more})).loc["t"].to_dict()
    {'bound_quality': -1.0, 'ccr': nan, 'num_ops': 1.0, 'memory_pressure': -0.5, 'runs': 3.0}
    """
    import numpy as np
    import pandas as pd

    known = runs.dropna(subset="gap")
    quality = known["best_bound_ns"].astype(float) / known["best_value_ns"].astype(float)
    known = known.assign(bound_quality=quality)
    lines = {}
    for name, group in known.groupby(by, sort=False):
        ranks = group[[*CAUSES, "gap"]].astype(float).rank()
        with np.errstate(invalid="ignore", divide="ignore"):
            found = ranks[list(CAUSES)].corrwith(ranks["gap"])
        lines[name] = {**found, "runs": len(group)}
    return pd.DataFrame.from_dict(lines, orient="index").rename_axis(by)


def regressions(old: pd.DataFrame, new: pd.DataFrame, tolerance: float = 0.01) -> pd.DataFrame:
    """The runs that became worse: for the CI of a placer.

    Parameters
    ----------
    old, new
        Runs before and after a change. Rows of the same table, instance, cluster, seed and label
        are compared; what only one of them has does not count.
    tolerance
        By how much of the old value the new one may be larger.

    Returns
    -------
    DataFrame
        The rows that are worse, with ``old_ns``, ``new_ns`` and their ``ratio``, the largest first.
        A plan that is not found any more has the ratio infinity.

    Examples
    --------
    >>> import pandas as pd
    >>> some = {"table": "t", "instance": ["i", "j"], "cluster": "c", "seed": 0, "label": "x"}
    >>> old = pd.DataFrame({**some, "value_ns": [100, 100]})
    >>> found = regressions(old, pd.DataFrame({**some, "value_ns": [102, 100]}))
    >>> found[["instance", "ratio"]].values.tolist()
    [['i', 1.02]]
    """
    key = ["table", "instance", "cluster", "seed", "label"]
    both = old[[*key, "value_ns"]].merge(new[[*key, "value_ns"]], on=key, validate="one_to_one")
    both = both.rename(columns={"value_ns_x": "old_ns", "value_ns_y": "new_ns"})
    both["ratio"] = (both["new_ns"].astype(float) / both["old_ns"].astype(float)).fillna(
        float("inf")
    )
    worse = both[both["old_ns"].notna() & (both["ratio"] > 1 + tolerance)]
    return worse.sort_values("ratio", ascending=False, kind="stable", ignore_index=True)
