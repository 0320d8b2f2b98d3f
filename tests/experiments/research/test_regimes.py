"""Papers' tables in their regimes: which runs stand there, what counts, and why pairs turn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from doubles.gap_runs import ANY, Results, cells_of, plan

from placegap.experiments.research.paper_comparison import Figures, compare, live_figure
from placegap.experiments.research.paper_table import markdown
from placegap.experiments.research.papers import FOLDER, PAPERS, kept_cells, regimes_of
from placegap.experiments.research.published import PublishedTable
from placegap.experiments.research.regimes import (
    CauseRuns,
    Cells,
    Change,
    Regime,
    compared_regime,
    score,
    told_score,
)
from placegap.experiments.studies.runs import RunRow

ROOT = Path(__file__).resolve().parents[3]
S = 10**9

TABLE = PublishedTable.model_validate(
    {
        "name": "one",
        "title": "One",
        "source": "table 1",
        "unit": "s",
        "columns": [{"name": name, "method": name.lower()} for name in "ABC"],
        "rows": [{"name": "Net", "instance": "net", "cells": [1, 2, "OOM"]}],
        "claims": [{"name": "twice", "source": "text", "slower": "B", "faster": "A", "ratio": 2.0}],
    }
)


def study(values: dict[str, tuple[int, int, int]]) -> Cells:
    """A study of tables: what a, b and c take there, in seconds."""
    cells: list[RunRow] = []
    for table, times in values.items():  # one by one, for their runs have the same keys
        runs = {(table, "net", m): plan(t * S) for m, t in zip("abc", times, strict=True)}
        cells += cells_of(dict(runs), {table: ANY})

    def of(name: str) -> tuple[Sequence[RunRow], Figures]:
        assert name == "study"
        return cells, live_figure

    return of


def in_table(name: str) -> CauseRuns:
    return CauseRuns(results="study", run=(name,))


def test_the_first_change_under_which_the_papers_order_comes_back_is_the_cause() -> None:
    # the paper has A, B, C. Here B is before A; with `other` too, with `freed` no more.
    cells = study({"regime": (5, 4, 9), "other": (6, 3, 9), "freed": (3, 4, 9), "later": (1, 2, 9)})
    compared = compare(in_table("regime").of(TABLE), *cells("study"))
    causes = [
        Change(kind="units", changes="other units", runs=in_table("other")),
        Change(kind="contention", changes="free transfers", runs=in_table("freed")),
        Change(kind="costs", changes="later", runs=in_table("later")),
    ]
    found = score(compared, causes, cells)
    assert (found.agree, found.ties, found.num_pairs) == (2, 0, 3)
    (turned,) = found.turned
    assert turned.cause == causes[1]
    assert turned.in_vain == ("other units",)
    assert turned.told == "free transfers turns it back, 3 s before 4 s"


def test_a_column_may_have_its_runs_in_a_study_beside() -> None:
    first, trained = study({"regime": (5, 4, 9)}), study({"an hour": (3, 8, 8)})
    runs = CauseRuns(
        results="study", beside=("learned",), run=("regime",), of_column={"A": ("an hour",)}
    )
    cells = runs.cells(lambda name: trained("study") if name == "learned" else first(name))
    (row,) = compare(runs.of(TABLE), *cells).rows
    assert [cell.ours_ns for cell in row.cells] == [3 * S, 4 * S, 9 * S]


@pytest.mark.parametrize(("least_s", "shown"), [(2.1, True), (1.9, False)])
def test_a_bound_that_leaves_no_room_for_the_papers_ratio_is_a_cause(
    least_s: float, shown: bool
) -> None:
    # the paper has B take twice as long as A, here A takes 5 s and B 4: only below 2 s were there
    # room for a plan that is twice as fast as B's
    cells = study({"regime": (5, 4, 9)})
    proof = Change(kind="costs", changes="B has more to do there", least="bounds")

    def of(name: str) -> tuple[Sequence[RunRow], Figures]:
        return ((), lambda run, figure: least_s) if name == "bounds" else cells(name)

    (turned,) = score(compare(in_table("regime").of(TABLE), *cells("study")), [proof], of).turned
    assert turned.cause == (proof if shown else None)
    assert shown == ("no plan takes less than 2.1 s and B takes 4 s, 1.9 times" in turned.told)


def overfilled(effort: tuple[str, ...]) -> tuple[str, list[str]]:
    """The table, and its score's lines, where A's plan overfills a device by 3 GB."""
    details = {"overfilled_ns": 2 * S, "overfills_bytes": 3 * 10**9}
    results: Results = {
        ("t", "net", "a"): {"status": "no_plan", "message": "memory", "details": details},
        ("t", "net", "b"): plan(4 * S),
    }
    cells = cells_of(results, {"t": ANY})
    runs = CauseRuns(results="study", run=("t",), best_effort=effort)
    compared = compare(runs.of(TABLE), cells)
    found = score(compared, [], lambda name: (cells, live_figure))
    return markdown(compared), list(told_score(found, []))


def test_a_plan_of_best_effort_has_its_time_and_says_by_how_much_it_overfills() -> None:
    table, lines = overfilled(("A",))
    assert "2 (overfills by 3 GB; paper 1)" in table
    assert len(lines) == 1


def all_regimes() -> list[tuple[str, Regime]]:
    return [(name, regime) for name in PAPERS for regime in regimes_of(ROOT / FOLDER / name)]


def test_every_turned_pair_of_a_regime_has_been_tested_and_its_runs_exist() -> None:
    for name, regime in all_regimes():
        folder = ROOT / FOLDER / name
        cells = kept_cells(folder)
        compared = compared_regime(regime, folder, cells)
        assert compared.rows, regime.name
        for turned in score(compared, regime.causes, cells, regime.ahead).turned:
            assert turned.told != "not tested", (name, regime.table, turned.pair)


def test_every_cell_that_the_paper_ran_has_a_plan_or_a_contradiction() -> None:
    for name, regime in all_regimes():
        if regime.is_main:
            folder = ROOT / FOLDER / name
            cells = kept_cells(folder)
            found = score(compared_regime(regime, folder, cells), (), cells, regime.ahead)
            known = {(misfit.row, misfit.column) for misfit in regime.misfits}
            assert set(found.misfits) <= known, (name, regime.table)
