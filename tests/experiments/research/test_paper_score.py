"""Pairs of a paper's methods: which count, and when a reversed one is explained."""

from collections.abc import Hashable

import pytest
from doubles.gap_runs import ANY, Results, cells_of, plan

from placegap.experiments.research.paper_comparison import KeptResults, compare
from placegap.experiments.research.paper_score import Effect, Pair, PaperScore, effect_of, pairs_of
from placegap.experiments.research.published import Cause, Paper, PublishedTable, Scoring
from placegap.experiments.studies.runs import RunRow

S = 10**9

TABLE = PublishedTable.model_validate(
    {
        "name": "one",
        "title": "One",
        "source": "table 1",
        "unit": "s",
        "results": ["study"],
        "tables": ["regime"],
        "columns": [{"name": name, "method": name.lower()} for name in "ABC"],
        "rows": [{"name": "Net", "instance": "net", "cells": [1, 2, "OOM"]}],
    }
)
FREED = Cause(changes="free transfers", results=("study",), tables=("freed",))
LATER = Cause(changes="later", results=("study",), tables=("later",))


def study(values: dict[str, tuple[int, int]], bound_s: float | None = None) -> KeptResults:
    """What a and b take in some tables, in seconds, and a bound of a's problem; c has no plan."""
    rows: list[RunRow] = []
    for table, times in values.items():  # one by one, for their runs have the same keys
        bound = None if bound_s is None else int(bound_s * S)
        runs: Results = {
            (table, "net", "a"): plan(times[0] * S, bound=bound, plan_class="any"),
            (table, "net", "b"): plan(times[1] * S),
            (table, "net", "c"): {"status": "no_plan", "message": ""},
        }
        rows += cells_of(runs, {table: ANY})
    return KeptResults({"study": rows}, {})


def pairs(kept: KeptResults, *causes: Cause, table: PublishedTable = TABLE) -> list[Pair]:
    return list(pairs_of(compare(table, kept), causes, kept, set()))


def test_only_pairs_with_two_published_times_that_differ_count() -> None:
    (pair,) = pairs(study({"regime": (3, 4)}))  # nothing with C, which is out of memory
    assert (pair.faster, pair.slower, pair.verdict) == ("A", "B", "agrees")
    assert (pair.paper_ratio, pair.ours_ratio) == (2.0, 4 / 3)
    assert [p.verdict for p in pairs(study({"regime": (3, 3)}))] == ["tie"]
    rows = [{"name": "Net", "instance": "net", "cells": [2, 2, 2]}]
    same = PublishedTable.model_validate({**TABLE.model_dump(), "rows": rows})
    assert pairs(study({"regime": (3, 4)}), table=same) == []


def test_the_gap_of_the_best_plan_is_a_share_of_its_own_value() -> None:
    kept = study({"regime": (3, 4)}, bound_s=2)
    paper = Paper(paper="one2020", text="t", tables=(TABLE,))
    found = PaperScore("p", paper, Scoring(reproduced="all"), (compare(TABLE, kept),), ())
    # the best plan takes 3 s, and the bound is 2; the last run takes 4
    assert found.best_gaps == [pytest.approx(1 / 3)]


def test_a_pair_with_a_fitted_column_and_one_that_stood_in_another_table_do_not_count() -> None:
    kept, counted = study({"regime": (3, 4)}), set[Hashable]()
    columns = [{"name": name, "method": name.lower(), "fitted": name == "A"} for name in "ABC"]
    fitted = PublishedTable.model_validate({**TABLE.model_dump(), "columns": columns})
    assert pairs(kept, table=fitted) == []
    again = TABLE.model_copy(update={"name": "again"})
    found = [list(pairs_of(compare(t, kept), (), kept, counted)) for t in (TABLE, again)]
    assert [len(of) for of in found] == [1, 0]


def test_a_pair_whose_changes_were_tested_in_vain_is_unexplained() -> None:
    # the paper has A before B, and here B is before A: with free transfers and later, too
    kept = study({"regime": (5, 4), "freed": (6, 3), "later": (4, 4)})
    (pair,) = pairs(kept, FREED, LATER)
    assert (pair.verdict, pair.why) == ("unexplained", "")


def test_the_first_change_that_brings_the_papers_order_back_explains_a_pair() -> None:
    kept = study({"regime": (5, 4), "freed": (6, 3), "later": (1, 2)})
    (pair,) = pairs(kept, FREED, LATER)
    assert (pair.verdict, pair.why) == ("explained", "later")
    elsewhere = LATER.model_copy(update={"of": ("two",)})
    assert [p.verdict for p in pairs(kept, FREED, elsewhere)] == ["unexplained"]


def test_a_pair_is_untested_where_a_change_was_not_tried_on_both_methods() -> None:
    kept = study({"regime": (5, 4), "later": (1, 2)})
    rows = [row for row in kept.rows["study"] if (row.table, row.method) != ("later", "b")]
    assert [p.verdict for p in pairs(KeptResults({"study": rows}, {}), LATER)] == ["untested"]


def test_a_change_says_nothing_about_the_columns_that_it_is_apart_from() -> None:
    kept = study({"regime": (5, 4), "later": (1, 2)})
    apart = LATER.model_copy(update={"apart_from": ("B",)})
    assert [p.verdict for p in pairs(kept, apart)] == ["unexplained"]


def test_methods_that_a_change_does_not_alter_keep_their_runs() -> None:
    # B's program alone takes 6 s with the change, and A takes 5 s as before
    kept = study({"regime": (5, 4), "later": (1, 6)})
    rows = [row for row in kept.rows["study"] if (row.table, row.method) != ("later", "a")]
    altered = LATER.model_copy(update={"alters": ("B",)})
    assert [p.verdict for p in pairs(KeptResults({"study": rows}, {}), altered)] == ["explained"]


def test_a_change_that_turns_as_many_pairs_of_a_row_wrong_as_right_explains_none() -> None:
    # In the paper A takes 1 s, B 2 and C 3. Here B is before A, and both are before C: two of three
    # pairs are right. The change turns A and B right, and A and C wrong.
    rows = [{"name": "Net", "instance": "net", "cells": [1, 2, 3]}]
    table = PublishedTable.model_validate({**TABLE.model_dump(), "rows": rows})

    def verdicts(later: tuple[int, int, int]) -> list[str]:
        times = {"regime": (5, 4, 6), "later": later}
        cells = []
        for name, of in times.items():
            runs: Results = {
                (name, "net", method): plan(time * S)
                for method, time in zip("abc", of, strict=True)
            }
            cells += cells_of(runs, {name: ANY})
        found = pairs(KeptResults({"study": cells}, {}), LATER, table=table)
        return [pair.verdict for pair in found]

    assert verdicts((2, 3, 1)) == ["unexplained", "agrees", "agrees"]  # right A-B; wrong A-C, B-C
    assert verdicts((2, 4, 2)) == ["unexplained", "agrees", "agrees"]
    assert verdicts((2, 3, 4)) == ["explained", "agrees", "agrees"]


def test_a_method_without_a_plan_here_is_counted_apart() -> None:
    # the paper has times of all three, and here C has no plan
    rows = [{"name": "Net", "instance": "net", "cells": [1, 2, 3]}]
    table = PublishedTable.model_validate({**TABLE.model_dump(), "rows": rows})
    found = pairs(study({"regime": (3, 4)}), table=table)
    assert [pair.verdict for pair in found] == ["agrees", "no plan here", "no plan here"]


def test_another_clock_of_the_same_plans_may_explain_a_pair() -> None:
    def verdict(a_ns: int, b_ns: int) -> str:
        runs: Results = {
            ("regime", "net", "a"): {**plan(5 * S), "details": {"free_channels_ns": a_ns}},
            ("regime", "net", "b"): {**plan(4 * S), "details": {"free_channels_ns": b_ns}},
        }
        kept = KeptResults({"study": cells_of(runs, {"regime": ANY})}, {})
        return pairs(kept, Cause(changes="free", clock="free_channels_ns"))[0].verdict

    assert verdict(1 * S, 2 * S) == "explained"
    assert verdict(2 * S, 2 * S) == "unexplained"


@pytest.mark.parametrize(
    ("bound_s", "verdict"), [(2.1, "ratio out of reach"), (1.9, "unexplained")]
)
def test_a_bound_that_leaves_no_room_for_the_papers_ratio_puts_it_out_of_reach(
    bound_s: float, verdict: str
) -> None:
    # the paper has B take twice as long as A, here A takes 5 s and B 4: only below 2 s were there
    # room for a plan that is twice as fast as B's
    assert [p.verdict for p in pairs(study({"regime": (5, 4)}, bound_s))] == [verdict]


def test_cells_out_of_memory_count_in_both_directions() -> None:
    # the paper has A and B with times and C without; so has ours, or else B has no plan
    def matches(kept: KeptResults) -> list[bool]:
        return [paper == ours for _, paper, ours in compare(TABLE, kept).published]

    assert matches(study({"regime": (5, 4)})) == [True, True, True]
    runs: Results = {("regime", "net", "b"): {"status": "infeasible", "message": ""}}
    assert matches(KeptResults({"study": cells_of(runs, {"regime": ANY})}, {})) == [False]


def test_the_effect_of_a_change_counts_pairs_that_it_turns_right_and_wrong() -> None:
    # the paper has A before B; B is before A here, and A before B later
    kept = study({"regime": (5, 4), "later": (1, 2)})
    assert effect_of(LATER, [compare(TABLE, kept)], kept) == Effect("later", 1, 1, 0)
    # A is before B here, and behind it later
    kept = study({"regime": (3, 4), "later": (2, 1)})
    assert effect_of(LATER, [compare(TABLE, kept)], kept) == Effect("later", 1, 0, 1)
    elsewhere = LATER.model_copy(update={"of": ("two",)})
    assert effect_of(elsewhere, [compare(TABLE, kept)], kept) == Effect("later", 0, 0, 0)
