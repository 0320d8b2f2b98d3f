"""Summaries, comparisons, profiles, causes and regressions of frames made by hand."""

import math
from typing import Any

import pandas as pd
import pytest

from placegap.experiments import (
    COLUMNS,
    compare,
    explain,
    gap_table,
    plot_compare,
    plot_explain,
    plot_gap_table,
    plot_profile,
    plot_regressions,
    plot_summary,
    profile,
    regressions,
    summary,
)
from placegap.experiments.show.drawing import png


def frame(*lines: tuple[Any, ...], table: str = "t") -> pd.DataFrame:
    """Runs of (instance, label, value, bound, best value) in ns, on one cluster, of 2 s each."""
    rows = [
        {
            "table": table,
            "instance": instance,
            "cluster": "c",
            "instance_hash": instance,
            "seed": 0,
            "label": label,
            "value_ns": value,
            "best_bound_ns": bound,
            "best_value_ns": best,
            "gap": None if not value else (value - bound) / value,
            "lost": None if not value else (value - best) / value,
            "build_s": 0.5,
            "solve_s": 1.5,
            "num_ops": {"a": 10, "b": 20, "c": 30, "d": 40}[instance],
            "ccr": {"a": 4.0, "b": 3.0, "c": 2.0, "d": 1.0}[instance],
            "memory_pressure": 0.5,
        }
        for instance, label, value, bound, best in lines
    ]
    return pd.DataFrame(rows).reindex(columns=list(COLUMNS))


RUNS = frame(
    ("a", "x", 100, 100, 100),
    ("a", "y", 200, 100, 100),
    ("b", "x", 100, 80, 100),
    ("b", "y", 100, 80, 100),
    ("c", "x", 200, 100, 100),
    ("c", "y", 100, 100, 100),
    ("d", "x", 400, 300, 400),
    ("d", "y", None, 300, 400),
)
"""Gaps of x: 0, 0.2, 0.5, 0.25; of y: 0.5, 0.2, 0, and no plan on d."""


def test_a_summary_has_means_over_the_rows_that_all_methods_have() -> None:
    found = summary(RUNS).loc["t"]
    x, y = found.loc["x"], found.loc["y"]
    # d is left out, for y has no plan there
    assert (x["rows"], x["plans"], x["left_out"]) == (4, 4, 1)
    assert (y["rows"], y["plans"], y["left_out"]) == (4, 3, 1)
    assert x["mean"] == y["mean"] == pytest.approx(0.7 / 3)
    assert (x["median"], x["worst"], y["worst"]) == (0.2, 0.5, 0.5)
    assert x["seconds"] == y["seconds"] == 2.0
    # counts are over all rows
    assert (x["optimal"], x["within_1"], x["within_10"]) == (1, 1, 1)
    late = RUNS.assign(over_limit_s=RUNS["over_limit_s"].where(RUNS["instance"] != "a", 46.1))
    assert summary(late[late["label"] == "x"], "label")["over_limit"].tolist() == [1]
    assert found["over_limit"].tolist() == [0, 0]
    # methods stand in the order of the runs
    assert list(summary(RUNS.replace({"label": {"x": "z"}}), "label").index) == ["z", "y"]


def test_a_method_without_any_gap_leaves_no_row_out() -> None:
    none = RUNS[RUNS["label"] == "y"].assign(label="z", value_ns=None, gap=None)
    found = summary(pd.concat([RUNS[RUNS["label"] == "x"], none])).loc["t"]
    assert list(found["left_out"]) == [0, 0]
    assert list(found["plans"]) == [4, 0]
    assert math.isnan(found.loc["z", "mean"])


def test_methods_of_tables_without_a_common_row_have_no_mean() -> None:
    apart = pd.concat([RUNS[RUNS["label"] == "x"], RUNS[RUNS["label"] == "y"].assign(table="u")])
    found = summary(apart, by="label")
    assert list(found["left_out"]) == [8, 8]
    assert found["mean"].isna().all()


def test_a_gap_table_keeps_the_order_and_refuses_two_runs_in_a_cell() -> None:
    table = gap_table(RUNS, rows=["instance"])
    assert list(table.columns) == ["x", "y"]
    assert table["x"].tolist() == [0.0, 0.2, 0.5, 0.25]
    assert math.isnan(table.loc["d", "y"])
    with pytest.raises(ValueError, match="to rows"):
        gap_table(pd.concat([RUNS, RUNS]))
    twice = pd.concat([RUNS, RUNS.assign(seed=1)])
    with pytest.raises(ValueError, match="to rows"):
        gap_table(twice, rows=["instance"])
    assert gap_table(twice).index.names == ["table", "instance", "cluster", "seed"]
    assert gap_table(RUNS.assign(seed=range(len(RUNS)))).index.names[-1] == "cluster"


def test_a_comparison_is_paired() -> None:
    found = compare(RUNS, "x", "y").loc["t"]
    # a: 1/2; b: equal; c: 2; d is left out
    assert (found.wins, found.ties, found.losses, found.left_out) == (1, 1, 1, 1)
    assert found.ratio == pytest.approx(1.0)
    assert found.low < 1 < found.high
    assert found.p == 1.0  # one of two
    better = compare(
        RUNS.assign(value_ns=RUNS["value_ns"].where(RUNS["label"] == "y", 50)), "x", "y"
    )
    # 1/4, 1/2, 1/2: (1/16) ** (1/3); three wins of three: twice 1/8
    assert better.loc["t", "ratio"] == pytest.approx((1 / 16) ** (1 / 3))
    assert better.loc["t", "p"] == pytest.approx(0.25)
    pd.testing.assert_frame_equal(compare(RUNS, "x", "y"), compare(RUNS, "x", "y"))  # its seed
    assert compare(RUNS, "x", "x").loc["t", ["ties", "ratio", "p"]].tolist() == [4, 1, 1]


def test_a_profile_is_the_share_of_rows_within_x() -> None:
    found = profile(RUNS)
    # both have one of four rows within 10 %; the mean gap of y is smaller, 0.7 / 3
    assert list(found.columns) == ["y", "x"]
    assert found["x"].loc[[0.0, 0.2, 0.25, 0.5]].tolist() == [0.25, 0.5, 0.75, 1.0]
    assert found["y"].iloc[-1] == 0.75  # it has no plan on one of four
    # lost: x 0, 0, 0.5, 0; y 0.5, 0, 0
    assert profile(RUNS, of="lost").loc[0.0].to_dict() == {"x": 0.75, "y": 0.5}


def test_causes_are_rank_correlations() -> None:
    found = explain(RUNS[RUNS["label"] == "x"]).loc["t"]
    # gaps of x by rank: 1, 2, 4, 3; of ops 1, 2, 3, 4: 1 - 6 * (1 + 1) / (4 * 15) = 0.8
    assert found.num_ops == pytest.approx(0.8)
    assert found.ccr == pytest.approx(-0.8)
    assert math.isnan(found.memory_pressure)  # it never changes
    assert found.runs == 4


def test_a_regression_is_exactly_the_row_that_became_worse() -> None:
    new = RUNS.copy()
    new.loc[2, "value_ns"] = 103
    new.loc[4, "value_ns"] = 201  # within the tolerance of 1 %
    new.loc[5, "value_ns"] = 50
    worse = regressions(RUNS, new)
    assert worse[["instance", "label", "old_ns", "new_ns"]].values.tolist() == [
        ["b", "x", 100, 103]
    ]
    new.loc[6, "value_ns"] = None
    worse = regressions(RUNS, new)
    assert worse["ratio"].tolist() == [math.inf, 1.03]
    assert len(regressions(RUNS, new[:2])) == 0  # what did not run again is not worse
    other = new.assign(instance_hash="of changed content")
    assert len(regressions(RUNS, other)) == 0
    assert len(regressions(pd.concat([RUNS, other]), pd.concat([new, other]))) == 2


def both_seeds(runs: pd.DataFrame) -> pd.DataFrame:
    return pd.concat([runs, runs.assign(seed=1)])


def test_seeds_of_a_problem_are_averaged_before_anything_is_counted() -> None:
    # methods that draw nothing: a second seed changes no statistic
    twice = both_seeds(RUNS)
    pd.testing.assert_frame_equal(summary(twice), summary(RUNS))
    pd.testing.assert_frame_equal(compare(twice, "x", "y"), compare(RUNS, "x", "y"))
    pd.testing.assert_frame_equal(profile(twice), profile(RUNS))
    pd.testing.assert_frame_equal(explain(twice), explain(RUNS))
    assert len(plot_compare(twice, "x", "y").lines[0].get_ydata()) == 3
    assert len(plot_explain(twice, "num_ops").lines[0].get_xdata()) == 7
    with pytest.raises(ValueError, match="in one cell"):
        summary(pd.concat([RUNS, RUNS]))


def test_a_row_has_the_mean_of_its_seeds_and_no_plan_if_one_of_them_has_none() -> None:
    drawn = both_seeds(RUNS[RUNS["label"] == "x"])
    first = (drawn["instance"] == "a") & (drawn["seed"] == 1)
    drawn = drawn.assign(
        value_ns=drawn["value_ns"].astype(float).mask(first, 400.0),
        gap=drawn["gap"].mask(first, 0.75),  # (400 - 100) / 400
    )
    runs = pd.concat([drawn, RUNS[RUNS["label"] == "y"]])
    # gaps of x on a, b, c: 0.375, 0.2, 0.5; y draws nothing, and has run once
    assert summary(runs).loc[("t", "x"), "mean"] == pytest.approx(1.075 / 3)
    found = compare(runs, "x", "y").loc["t"]
    # values of x: 250, 100, 200, those of y 200, 100, 100
    assert (found.wins, found.ties, found.losses) == (0, 1, 2)
    assert found.ratio == pytest.approx((1.25 * 2) ** (1 / 3))
    lost = [*first, *[False] * 4]
    runs = runs.assign(value_ns=runs["value_ns"].mask(lost), gap=runs["gap"].mask(lost))
    assert summary(runs).loc[("t", "x"), ["plans", "left_out"]].tolist() == [3, 2]
    assert compare(runs, "x", "y").loc["t", "left_out"] == 2
    worse = regressions(both_seeds(RUNS), runs)  # y has one seed in common
    assert worse[["instance", "label", "ratio"]].values.tolist() == [["a", "x", math.inf]]


def test_fewer_tokens_are_worse_though_their_value_is_larger() -> None:
    def tokens(x: int, y: int) -> pd.DataFrame:
        runs = frame(("a", "x", -x, -120, -100), ("a", "y", -y, -120, -100))
        return runs.assign(gap=[1 - x / 120, 1 - y / 120])

    old = tokens(100, 50)
    assert regressions(old, tokens(80, 60))[["label", "ratio"]].values.tolist() == [["x", 1.25]]
    assert regressions(old, tokens(0, 50))["ratio"].tolist() == [math.inf]
    assert compare(old, "x", "y").loc["t", ["wins", "ratio"]].tolist() == [1, 0.5]
    assert compare(tokens(100, 0), "x", "y").loc["t", ["wins", "left_out"]].tolist() == [1, 0]
    assert plot_compare(old, "x", "y").lines[0].get_ydata().tolist() == [0.5]
    # the best plan has 100 tokens of at most 120
    assert plot_explain(old, "bound_quality").lines[0].get_xdata()[0] == pytest.approx(100 / 120)


def test_a_value_of_zero_is_a_plan() -> None:
    zero = RUNS.assign(value_ns=0)
    assert len(regressions(zero, zero)) == 0
    assert compare(zero, "x", "y").loc["t", ["ties", "left_out", "ratio"]].tolist() == [4, 0, 1]


def test_every_picture_is_axes_and_the_same_for_equal_runs() -> None:
    new = RUNS.assign(value_ns=RUNS["value_ns"] * 2)

    def drawn() -> list[Any]:
        return [
            plot_summary(RUNS),
            plot_gap_table(RUNS),
            plot_compare(RUNS, "x", "y"),
            plot_profile(RUNS),
            plot_explain(RUNS, "num_ops"),
            plot_regressions(RUNS, new),
        ]

    for first, second in zip(drawn(), drawn(), strict=True):
        assert first.has_data()
        assert png(first.figure) == png(second.figure)
    labels = [text.get_text() for text in plot_regressions(RUNS, new).get_yticklabels()]
    assert labels[0] == "x on a, c"
    assert all(tick.is_integer() for tick in plot_compare(RUNS, "x", "y").get_xticks())


def test_a_notebook_shows_a_picture_that_ends_a_cell() -> None:
    from IPython.core.formatters import DisplayFormatter

    data, _ = DisplayFormatter().format(plot_profile(RUNS))
    assert data["image/png"].startswith(b"\x89PNG")


def test_runs_without_gaps_have_pictures_without_a_legend() -> None:
    none = RUNS.assign(gap=None)
    assert plot_explain(none).figure.legends == []  # type: ignore[union-attr]
    assert len(plot_explain(RUNS).figure.legends) == 1  # type: ignore[union-attr]
