"""Rows of gap tables, from runs made by hand."""

from dataclasses import replace
from typing import Any

from placegap.experiments.running.sources import Source
from placegap.experiments.studies.runs import (
    NOT_APPLICABLE,
    Run,
    RunRow,
    row_of,
    run_rows,
    semantics_columns,
)
from placegap.instances import MaxLoad, Semantics
from placegap.instances.problem import PlanClass

Results = dict[tuple[str, str, str], dict[str, Any] | str]
"""(table, instance, method) -> the log's record, or why the method does not apply."""


def load(plans: PlanClass) -> Semantics:
    return MaxLoad(plans=plans)


CHAIN, CONVEX, ANY = load("chain"), load("convex"), load("any")


def plan(value: int, bound: int | None = None, plan_class: str = "chain") -> dict[str, Any]:
    status = "optimal" if bound == value else "feasible"
    return {
        "status": status,
        "value_ns": value,
        "bound_ns": bound,
        "bound_class": plan_class,
        "build_s": 0.25,
        "solve_s": 1.0,
        "message": "",
    }


def cells_of(results: Results, semantics: dict[str, Semantics]) -> list[RunRow]:
    """Rows as a study makes them."""
    planned, records = [], {}
    for (table, instance, method), result in results.items():
        rules = semantics[table]
        place = {"study": "small", "table": table, "instance": instance, "cluster": "pair"}
        known = {"instance_hash": instance, "method": method, "label": method, "seed": 0}
        row = row_of({**place, **known, **semantics_columns(rules)})
        if isinstance(result, str):
            planned.append(replace(row, status=NOT_APPLICABLE, message=result))
            continue
        run = Run(Source(instance), instance, rules, method, {}, 0, 1.0, 0.0, {})
        planned.append(replace(row, run=run))
        if result:
            records[run.key] = result
    return run_rows(planned, records)
