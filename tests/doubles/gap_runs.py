"""Rows of gap tables, from runs made by hand."""

from __future__ import annotations

from typing import Any

from placegap.experiments.running.sources import Source
from placegap.experiments.studies.plan import Cell, Run
from placegap.experiments.studies.runs import RunRow, run_rows
from placegap.instances import MaxLoad, Semantics

Results = dict[tuple[str, str, str], dict[str, Any] | str]
"""(table, instance, method) -> the log's record, or why the method does not apply."""


def load(plans: str) -> Semantics:
    return MaxLoad(plans=plans)  # type: ignore[arg-type]


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
    cells, records = [], {}
    for (table, instance, method), result in results.items():
        rules, why = semantics[table], result if isinstance(result, str) else ""
        run = None
        if not isinstance(result, str):
            run = Run(Source(instance), instance, rules, method, {}, 0, 1.0, 0.0, {})
            if result:
                records[run.key] = result
        sizes = (instance, "pair", instance, 4, 3, 2)
        cells.append(Cell(table, rules, *sizes, method, method, {}, 0, run, why))
    return run_rows("small", cells, records)
