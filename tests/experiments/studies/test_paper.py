"""What a paper prints of runs: tests over several methods, LaTeX, figures of a column, time."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from placegap.experiments import (
    COLUMNS,
    anytime,
    plot_anytime,
    plot_compare,
    plot_profile,
    plot_summary,
    rank_test,
    save_figure,
    to_latex,
)
from placegap.experiments.studies.paper import tex
from placegap.experiments.studies.run import Anytime
from placegap.experiments.studies.runs import RunRow, with_best
from placegap.solvers.core.progress import Progress

RULES = '{"objective":"makespan"}'


def runs(values: dict[str, list[int | None]], **more: Any) -> pd.DataFrame:
    """A run per method and problem; no plan is better than 100 ns."""
    lines = [
        {"instance": f"net_{at}", "instance_hash": str(at), "label": label, "value_ns": value}
        for label, mine in values.items()
        for at, value in enumerate(mine)
    ]
    found = pd.DataFrame(lines).assign(
        study="s", table="one_pass", cluster="c", seed=0, semantics="makespan", rules=RULES
    )
    found = found.assign(best_bound_ns=100, solve_s=0.25, build_s=0.0, time_limit_s=2.0)
    found["gap"] = 1 - 100 / found["value_ns"].astype(float)
    return found.assign(**more).reindex(columns=list(COLUMNS))


def always(problems: int, *percents: int) -> pd.DataFrame:
    """Methods a, b, .. that are always in this order."""
    return runs(
        {x: [p + at for at in range(problems)] for x, p in zip("abcd", percents, strict=False)}
    )


def test_holm_corrects_one_test_for_each_other_method() -> None:
    found = rank_test(always(8, 100, 200, 300, 400))
    assert found.loc["one_pass", "rank"].tolist() == [1, 2, 3, 4]
    # all eight differ in one direction, 2 / 2**8, three times
    assert found["p"].tolist() == [1.0, *[pytest.approx(3 / 128)] * 3]
    assert found["tied"].tolist() == [True, False, False, False]
    # chi2 of ranks that never change: n (k - 1)
    assert found.attrs["text"] == (
        "one_pass: over 8 problems the ranks of 4 methods differ (Friedman: chi2(3) = 24.0,"
        " p = 2.5e-05); a has the best mean rank (1.00). By Wilcoxon's signed-rank tests with"
        " Holm's correction at 5 % it is better than b (p = 0.023), c (p = 0.023), d (p = 0.023)."
    )


def test_nemenyis_critical_difference() -> None:
    # Demsar 2006: of 4 methods on 14 problems, 2.569 sqrt(4 * 5 / (6 * 14)) = 1.25
    found = rank_test(always(14, 100, 200, 300, 400), "nemenyi")
    assert found["tied"].tolist() == [True, True, False, False]
    assert "no difference is shown to b" in found.attrs["text"]
    assert "it is better than c" in found.attrs["text"]


def test_more_seeds_are_no_more_problems() -> None:
    one = always(8, 100, 200, 300)
    two = pd.concat([one, one.assign(seed=1)])
    pd.testing.assert_frame_equal(rank_test(one), rank_test(two))
    once = pd.concat([one, one[one["label"] != "a"].assign(seed=1)])  # a draws no numbers
    pd.testing.assert_frame_equal(rank_test(one), rank_test(once))
    assert "8 problems x 2 seeds (once: a)" in to_latex(once)


def test_equal_methods_and_problems_without_a_plan() -> None:
    same = rank_test(runs({x: [100, 120] for x in "abc"}))
    assert same["tied"].all()
    assert "do not differ significantly" in same.attrs["text"]
    some = rank_test(runs({"a": [100, None, 100], "b": [120, 130, 110]}))
    assert some["problems"].tolist() == [2, 2]
    none = rank_test(runs({"a": [100], "b": [None]}))
    assert "not two methods" in none.attrs["text"]


def test_a_table_in_latex() -> None:
    slow = always(8, 100, 101, 400)
    slow["over_limit_s"] = (46.1 * (slow["label"] == "c") * (slow["instance"] == "net_0")).replace(
        0, None
    )
    lines = to_latex(slow.assign(label=slow["label"] + "_m")).splitlines()
    assert lines[0] == r"\begin{table}"
    assert lines[-1] == r"\end{table}"
    assert lines[2] == (
        r"\caption{one\_pass (makespan): gaps to the best bound known, 8 rows; best figures in"
        r" bold; time limit 2.0 s; c\_m exceeded it in 1 run.}"
    )
    assert lines[3:6] == [r"\label{tab:one_pass}", r"\begin{tabular}{lrrrrrrr}", r"\toprule"]
    # gaps of a: at / (100 + at) for at = 0..7, in percent 0, 0.99, 1.96, 2.91, 3.85, 4.76, 5.66
    # and 6.54; their sum is 26.67
    assert lines[9] == (
        r"a\_m & 8 of 8 & \textbf{3.33} & \textbf{3.38} & \textbf{6.54} & 1 & 2 & 0.25 \\"
    )
    rows = to_latex(slow, rows=True).splitlines()
    assert rows[9] == r"net\_0 & c & 100 & \textbf{0.00} & 0.99 & 75.00 \\"
    assert rows[17].startswith("mean & ")


def test_ties_with_the_best_are_marked_where_a_test_can_tell() -> None:
    # b is better on 4 of 8 problems, c never
    mixed = {"a": [100, 110] * 4, "b": [110, 100] * 4, "c": [400] * 8}
    text = to_latex(runs(mixed))
    assert r"a$^\dagger$ &" in text
    assert r"b$^\dagger$ &" in text
    assert "\nc &" in text
    assert "a dagger marks" in text
    assert "dagger" not in to_latex(runs({x: mine[:3] for x, mine in mixed.items()}))


def test_no_sign_of_a_name_is_a_command_of_latex() -> None:
    assert tex(r"a_b {50%} \x^2 <1 & $#~") == (
        r"a\_b \{50\%\} \textbackslash{}x\textasciicircum{}2 $<$1 \& \$\#\textasciitilde{}"
    )


@pytest.mark.parametrize("plot", [plot_profile, plot_summary, plot_anytime])
def test_a_figure_is_as_wide_as_a_column_and_embeds_its_fonts(plot: Any, tmp_path: Path) -> None:
    axis = plot(always(4, 100, 110, 300))
    content = save_figure(axis, tmp_path / "figure.pdf").read_bytes()
    assert b"/MediaBox [ 0 0 237.6 " in content  # 3.3 inches of 72 points
    assert b"/FontFile2" in content
    assert b"/Type3" not in content
    assert {text.get_fontsize() for text in axis.get_xticklabels()} == {7}
    assert content == save_figure(plot(always(4, 100, 110, 300)), tmp_path / "b.pdf").read_bytes()


def test_a_figure_has_its_legend_below(tmp_path: Path) -> None:
    axis = plot_compare(always(4, 100, 110), "a", "b")
    assert save_figure(axis, tmp_path / "x.png", width_in=7).read_bytes()[:4] == b"\x89PNG"
    (legend,) = axis.figure.legends
    assert len(legend.get_texts()) == 1
    assert axis.get_legend() is None


def run(value: int, told: str, **more: Any) -> RunRow:
    return RunRow(
        *("s", "t", "net", "c", "h"), 0, rules=RULES, value_ns=value, solve_s=2.0, anytime=told,
        label="m", **more,
    )  # fmt: skip


def test_plans_on_the_way_are_never_better_than_the_plan_that_was_judged() -> None:
    assert run(100, "0.1:300 0.5:120").found == [(0.1, 300), (0.5, 120), (2.0, 100)]
    assert run(100, "0.1:300 0.5:100").found == [(0.1, 300), (0.5, 100)]
    assert run(100, "0.1:300 0.5:90").found == [(0.1, 300), (2.0, 100)]
    assert run(100, "").found == [(2.0, 100)]


def test_the_time_to_the_target_is_that_of_a_plan_within_1_percent_of_the_best() -> None:
    found = with_best([run(1000, "0.1:3000 0.5:1010 0.9:1000"), run(2000, "0.1:2500")])
    assert [row.target_s for row in found] == [0.5, None]  # (1010 - 1000) / 1010 < 1 %


def test_curves_are_means_over_problems_of_what_is_lost_so_far() -> None:
    one = runs({"a": [100, 100], "b": [200, None]}, best_value_ns=100)
    one["anytime"] = ["0.01:400", "", "", ""]
    curves = anytime(one)
    at = [curves.index.get_indexer([s], method="bfill")[0] for s in (0.0, 0.01, 0.25)]
    # a: no plan, then 75 % lost on one problem of two, then the best plans; b: 50 % on one
    assert curves["a"].iloc[at].tolist() == [1.0, 0.875, 0.0]
    assert curves["b"].iloc[at].tolist() == [1.0, 1.0, 0.75]


def test_a_listener_keeps_few_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, *(1 + at / 100 for at in range(100))])
    monkeypatch.setattr("placegap.experiments.studies.run.now_s", lambda: next(now))
    monkeypatch.setattr("placegap.experiments.studies.run.loading_s", lambda: 0.0)
    listener = Anytime()
    for at in range(100):
        listener(Progress(1000 - at))
    listener(Progress(901))  # only its bound is new
    points = listener.text.split()
    assert points[0] == "1.000:1000"
    assert points[-1] == "1.990:901"
    assert len(points) <= 18  # two of each tenth, from 1 to 2 s: 2 log 2 / log 1.1
