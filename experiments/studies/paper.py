"""Runs as papers print them: LaTeX tables, and tests over several methods."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

from placegap.experiments.show.figures import common_unit, counted, format_in, format_s
from placegap.experiments.studies.analysis import as_costs, over_seeds, ratios, summary, wide
from placegap.experiments.studies.report import common_rows, made_by, shown
from placegap.experiments.studies.runs import rows_of
from placegap.instances.reading.errors import MissingExtra

if TYPE_CHECKING:
    import pandas as pd

ALPHA = 0.05  # level of the tests; that of 95 % intervals

HEAD = (
    *(("method", ""), ("plans", ""), ("mean", r"(\%)"), ("median", r"(\%)")),
    *(("worst", r"(\%)"), ("optimal", ""), (r"$\leq 1\,\%$", ""), ("time", "(s)")),
)
ESCAPES = {char: rf"\{char}" for char in "&%$#_{}"} | {"<": "$<$", ">": "$>$"}
ESCAPES |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}


def rank_test(runs: pd.DataFrame, correction: Literal["holm", "nemenyi"] = "holm") -> pd.DataFrame:
    """Compare all methods of each table at once: Friedman's test, then each against the best one.

    Parameters
    ----------
    runs
        As `load_runs` returns them. Seeds of a problem are averaged first; problems where a method
        has no plan are left out, and so are methods without any plan.
    correction
        ``holm``: Wilcoxon's signed-rank tests of the values' ratios, corrected by Holm.
        ``nemenyi``: Nemenyi's test of the mean ranks.

    Returns
    -------
    DataFrame
        Indexed by table and label, the best mean rank first: ``problems``, ``rank``, ``p`` (the
        corrected probability of a difference by chance) and ``tied``: no difference to the best
        method is shown at 5 %. ``.attrs["text"]`` has a sentence per table, ready to print.

    Raises
    ------
    MissingExtra
        If SciPy is not installed.

    Notes
    -----
    Demšar, "Statistical comparisons of classifiers over multiple data sets" (JMLR 7, 2006).

    Examples
    --------
    >>> from placegap.experiments import example_runs
    >>> rank_test(example_runs())[["problems", "rank", "p"]].values.tolist()
    [[2.0, 1.0, 1.0], [2.0, 2.0, 0.5]]
    """
    import pandas as pd

    parts, texts = {}, []
    for table, group in over_seeds(as_costs(runs, "value_ns")).groupby("table", sort=False):
        values = wide(group, "label", "value_ns").dropna(axis="columns", how="all").dropna()
        found = _ranked(values, correction)
        parts[table] = found
        texts.append(f"{table}: {_sentence(found, values, correction)}" if len(found) else "")
    tests = pd.concat(parts, names=["table", "label"])
    tests.attrs["text"] = "\n".join(filter(None, texts))
    return tests


def _ranked(values: pd.DataFrame, correction: str) -> pd.DataFrame:
    """A line per method of one table; `values` has a column for each."""
    import numpy as np
    import pandas as pd

    stats = _stats()
    ranks = values.rank(axis="columns").mean().sort_values(kind="stable")
    found = pd.DataFrame({"problems": len(values), "rank": ranks, "p": 1.0})
    if len(values) and len(ranks) > 1:
        best, others, n = ranks.index[0], ranks.index[1:], len(ranks)
        if correction == "nemenyi":
            scale = np.sqrt(n * (n + 1) / (12 * len(values)))
            found.loc[others, "p"] = [
                float(stats.studentized_range.sf((ranks[label] - ranks[best]) / scale, n, np.inf))
                for label in others
            ]
        else:
            raw = pd.Series({x: _wilcoxon(values[x], values[best]) for x in others}).sort_values()
            steps = (raw * np.arange(n - 1, 0, -1)).cummax().clip(upper=1.0)
            found.loc[steps.index, "p"] = steps
    friedman = _friedman(values)[1]
    return found.assign(tied=(found["p"] >= ALPHA) | (friedman >= ALPHA))


def _wilcoxon(values: pd.Series[float], best: pd.Series[float]) -> float:
    import numpy as np

    with np.errstate(divide="ignore"):
        differences = np.log(ratios(values, best).to_numpy())
    differs = bool(np.any(differences))
    return float(_stats().wilcoxon(differences, zero_method="zsplit").pvalue) if differs else 1.0


def _friedman(values: pd.DataFrame) -> tuple[float, float]:
    """Statistic and probability; two methods have no test beyond that of the pair."""
    if len(values) == 0 or values.shape[1] < 3:
        return 0.0, 0.0
    if (values.nunique(axis="columns") == 1).all():
        return 0.0, 1.0
    found = _stats().friedmanchisquare(*(values[name] for name in values))
    return float(found.statistic), float(found.pvalue)


def _stats() -> Any:
    try:
        from scipy import stats
    except ImportError:
        raise MissingExtra("tests over several methods need SciPy: pip install scipy") from None
    return stats


def _sentence(found: pd.DataFrame, values: pd.DataFrame, correction: str) -> str:
    """What a test says, as a paper prints it."""
    (best, *others), n = map(str, found.index), len(values)
    over = counted(n, "problem")
    if not n or not others:
        return f"there are not two methods with plans of common problems ({over})"
    statistic, p = _friedman(values)
    words = f"over {over} the ranks of {len(found)} methods "
    if len(found) > 2:
        differ = "differ" if p < ALPHA else "do not differ significantly"
        words += f"{differ} (Friedman: chi2({len(found) - 1}) = {statistic:.1f}, p = {p:.2g})"
        if p >= ALPHA:
            return f"{words}."
        words += "; "
    else:
        words = f"over {over} "
    words += f"{best} has the best mean rank ({found['rank'].iloc[0]:.2f})"
    tests = {"holm": "Wilcoxon's signed-rank tests with Holm's correction"}
    words += f". By {tests.get(correction, 'the Nemenyi test')} at 5 % "
    listed = {
        tied: ", ".join(f"{x} (p = {line.p:.2g})" for x, line in mine.iterrows())
        for tied, mine in found.iloc[1:].groupby("tied")
    }
    starts = {False: "it is better than", True: "no difference is shown to"}
    parts = [f"{starts[tied]} {listed[tied]}" for tied in starts if tied in listed]
    return f"{words}{'; '.join(parts)}."


def to_latex(runs: pd.DataFrame, *, rows: bool = False) -> str:
    r"""The tables of a study in LaTeX, for the package ``booktabs``.

    Parameters
    ----------
    runs
        As `load_runs` returns them.
    rows
        Whether there is a line per problem, with the gaps of all methods in percent; by default
        there is a line per method (`summary`).

    Returns
    -------
    str
        A ``table`` for each table of the study. The best figures are bold, and a dagger marks
        methods that are tied with the best one (`rank_test`). The caption states the rules, the
        limits, the versions, and which runs exceeded their limit.

    Examples
    --------
    >>> from placegap.experiments import example_runs
    >>> print(to_latex(example_runs()).splitlines()[9])
    x & 3 of 3 & \textbf{10.00} & \textbf{10.00} & \textbf{20.00} & 2 & 2 & - \\
    """
    tables = [table for _, table in runs.groupby("table", sort=False)]
    return "\n\n".join("\n".join(_latex(table, rows=rows)) for table in tables) + "\n"


def _latex(runs: pd.DataFrame, *, rows: bool) -> Iterator[str]:
    """The lines of one table."""
    tests = rank_test(runs).droplevel("table")
    # the least p of a signed-rank test of so many problems, times the pairs
    can_differ = 2.0 ** (1 - tests["problems"].max()) * (len(tests) - 1) < ALPHA
    tied = [label for label in tests.index[tests["tied"]] if can_differ and tests["tied"].sum() > 1]
    differences = (
        "a dagger marks methods without a shown difference to the best one" if tied else ""
    )
    if not can_differ and len(tests) > 1:
        differences = "too few problems to show a difference to the best one"
    marks = {str(label): r"$^\dagger$" * (label in tied) for label in dict.fromkeys(runs["label"])}
    names = {label: tex(label) + mark for label, mark in marks.items()}
    head, body = _gap_lines(runs, names) if rows else _summary_lines(runs, names)
    slug = re.sub(r"\W+", "-", str(runs["table"].iloc[0])).strip("-")
    yield from (r"\begin{table}", r"\centering", rf"\caption{{{_caption(runs, differences)}}}")
    yield from (rf"\label{{tab:{slug}}}", rf"\begin{{tabular}}{{l{'r' * (len(head[0]) - 1)}}}")
    yield r"\toprule"
    yield from (" & ".join(line) + r" \\" for line in head)
    yield r"\midrule"
    yield from (" & ".join(line) + r" \\" for line in body)
    yield from (r"\bottomrule", r"\end{tabular}", r"\end{table}")


Lines = list[Sequence[str]]


def _summary_lines(runs: pd.DataFrame, names: dict[str, str]) -> tuple[Lines, Lines]:
    found = summary(runs, "label")
    best = found[["mean", "median", "worst"]].min()
    body: Lines = []
    for label, line in found.iterrows():
        cells = [_percent(line[name], best[name]) for name in best.index]
        counts = [f"{line[name]:g}" for name in ("optimal", "within_1")]
        seconds = shown(line["seconds"], "{:.3g}".format)
        plans = f"{line['plans']:g} of {line['rows']:g}"
        body.append((names[str(label)], plans, *cells, *counts, seconds))
    return [[one for one, _ in HEAD], [unit for _, unit in HEAD]], body


def _gap_lines(runs: pd.DataFrame, names: dict[str, str]) -> tuple[Lines, Lines]:
    import pandas as pd

    runs = over_seeds(runs)
    gaps = wide(runs, "label", "gap").reindex(columns=list(names))
    first = runs.drop_duplicates([name for name in gaps.index.names if name])
    unit, size = common_unit(first["best_bound_ns"].dropna().astype(int), _unit(runs))
    body: Lines = []
    for (_, one), (_, line) in zip(first.iterrows(), gaps.iterrows(), strict=True):
        text = "--" if pd.isna(one["best_bound_ns"]) else format_in(int(one["best_bound_ns"]), size)
        cells = (_percent(line[label], line.min()) for label in names)
        body.append((tex(one["instance"]), tex(one["cluster"]), text, *cells))
    means = gaps.dropna().mean()
    body.append(("mean", "", "", *(_percent(means[label], means.min()) for label in names)))
    units = ["", "", f"({unit})", *([r"(\%)"] * len(names))]
    return [["instance", "cluster", "best bound", *names.values()], units], body


def _unit(runs: pd.DataFrame) -> Literal["ns", "tokens"]:
    return "tokens" if str(runs["semantics"].iloc[0]).startswith("max_context") else "ns"


def _percent(gap: float, best: float) -> str:
    """A gap in percent, bold if it is the best one."""
    if math.isnan(gap):
        return "--"
    text = f"{100 * gap:.2f}" if gap == 0 or gap >= 5e-5 else "<0.01"
    return rf"\textbf{{{tex(text)}}}" if gap == best else tex(text)


def _caption(runs: pd.DataFrame, differences: str) -> str:
    late = runs[runs["over_limit_s"].notna()].groupby("label", sort=False).size()
    limits = runs["time_limit_s"].dropna().unique()
    semantics = next(iter(runs["semantics"].dropna()), "")
    said = [
        f"{runs['table'].iloc[0]}{f' ({semantics})' if semantics else ''}: gaps to the best bound"
        f" known, {common_rows(runs)}",
        "best figures in bold",
    ]
    said += [differences] * bool(differences)
    said += [f"time limit {', '.join(format_s(x) for x in sorted(limits))}"] * bool(len(limits))
    said += [f"{label} exceeded it in {counted(int(n), 'run')}" for label, n in late.items()]
    made = [f"Made by {one}." for one in made_by(rows_of(runs))]
    return tex(" ".join(["; ".join(said) + ".", *made]))


def tex(text: object) -> str:
    r"""A text with the signs that LaTeX reads as commands escaped.

    Examples
    --------
    >>> tex("m-sct, group_bytes=5%")
    'm-sct, group\\_bytes=5\\%'
    """
    return "".join(ESCAPES.get(char, char) for char in str(text))
