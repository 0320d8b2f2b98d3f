"""What every optimization model of a study cost: its size, its build time, its own bound."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from placegap.experiments.show.figures import common_unit, format_gap, format_in, format_s
from placegap.experiments.studies.gaps import GapCell
from placegap.solvers.core.result import relative_gap

MODEL_HEAD = (
    "instance",
    "cluster",
    "model",
    "rows",
    "columns",
    "build",
    "solve",
    "value",
    "bound",
    "own gap",
)


def model_rows(cells: Sequence[GapCell]) -> list[tuple[str, ...]]:
    """One line per run that says how many rows its model has, in the order of `MODEL_HEAD`.

    `cells` are those of one table. Value and bound are the run's own, in the table's unit; its gap
    is measured against its own bound, as if no other method had run.
    """
    size = common_unit(cell.value_ns for cell in cells if cell.value_ns is not None)[1]
    return [_row(cell, size) for cell in cells if "rows" in cell.details]


def _row(cell: GapCell, size: int) -> tuple[str, ...]:
    gap = relative_gap(cell.value_ns, cell.bound_ns)
    return (
        cell.cell.instance,
        cell.cell.cluster,
        cell.cell.label,
        str(cell.details["rows"]),
        str(cell.details.get("columns", "-")),
        _text(cell.build_s, format_s),
        _text(cell.solve_s, format_s),
        *("-" if ns is None else format_in(ns, size) for ns in (cell.value_ns, cell.bound_ns)),
        _text(gap, format_gap),
    )


def _text(figure: float | None, form: Callable[[float], str]) -> str:
    return "-" if figure is None else form(figure)
