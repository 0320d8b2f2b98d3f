"""A value holds for wider classes of plans, a bound for narrower ones."""

from dataclasses import replace
from pathlib import Path

import pytest

from placegap.experiments.research.record_best import main, record_best, what_it_proves
from placegap.experiments.studies.runs import RunRow, semantics_columns
from placegap.instances.corpus.corpus import load_best_known, load_corpus
from placegap.instances.files.cluster_file import load_cluster
from placegap.instances.problem import BestKnown, MaxLoad, PlanClass


def record(plans: PlanClass, value: int | None, bound: int | None) -> RunRow:
    rules = semantics_columns(MaxLoad(plans=plans))
    known = RunRow(value_ns=value, bound_ns=bound, bound_class=plans)
    return replace(known, method=f"method-{plans}", **rules)


def proved(run: RunRow) -> dict[str, tuple[int | None, int | None]]:
    return {b.semantics.plans: (b.value_ns, b.bound_ns) for b in what_it_proves(run)}


def test_a_chain_optimum_is_a_value_for_all_plans_but_no_bound() -> None:
    assert proved(record("chain", 7, 7)) == {"chain": (7, 7), "convex": (7, None), "any": (7, None)}


def test_a_bound_for_any_plan_holds_for_chains_too() -> None:
    assert proved(record("any", 6, 5)) == {"chain": (None, 5), "convex": (None, 5), "any": (6, 5)}


def test_the_portfolio_raises_what_is_behind_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "best.json"
    instance = load_corpus("squeezenet").instance(load_cluster("fd-dps-8xP100"))
    for plans, value, bound in (("any", 9**9, 1), ("chain", 9**9, 9**9)):
        rules = MaxLoad(plans=plans)  # type: ignore[arg-type]
        record_best(
            instance,
            BestKnown(semantics=rules, value_ns=value, bound_ns=bound, bound_origin="old"),
            target,
        )
    assert main(["--portfolio", "1", str(target)]) == 0
    assert "max_load any add: 1 -> " in capsys.readouterr().out
    found = {e.semantics.plans: (e.bound_ns or 0, e.bound_origin) for e in load_best_known(target)}
    # no device does the longest op in less, and the sum of all work is more
    longest = max(min(op.time_ns.values()) for op in instance.graph.ops)
    assert longest <= found["any"][0] < 9**9
    assert found["convex"] == found["any"]  # a bound holds for fewer plans, too
    assert found["chain"] == (9**9, "old")  # it is proven
