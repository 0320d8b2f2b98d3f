"""Gap tables: what every method reached, against the best bound that is valid for it.

A bound holds for the class of plans it was proven for and for the classes nested in it (chain in
convex in any). So a row's best bound is the largest among all methods' bounds whose class contains
the class of the table, over all tables of the study that ask for the same instance and the same
objective. A chain bound never meets a plan that need not be a chain. A recorded bound of the row's
instance (`Cell.recorded`) counts where it is higher than all of them.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from placegap.experiments.studies.log import Record
from placegap.experiments.studies.plan import Cell
from placegap.instances.problem import PLAN_CLASSES, PlanClass, plan_class, with_plans
from placegap.solvers.core.result import RECORDED, Bound, relative_gap

NOT_RUN = "not_run"
NOT_APPLICABLE = "not_applicable"
NOT_INSTALLED = "not_installed"
OVERFILLED_NS, OVERFILLS_BYTES = "overfilled_ns", "overfills_bytes"
"""Details of a run whose plan breaks the rule of memory alone: its time, and by how much."""

FAILURES = ("error", "timeout", "crashed", "disagreement")


@dataclass(frozen=True)
class GapCell:
    """A cell of a gap table.

    `bound_ns` is the method's own bound, `best_bound_ns` the best that is valid for the table's
    class of plans, and `gap` is measured against the latter. `rests_on` and `best_rests_on` say
    what the two rest on (`solvers.core.result`). `time_s` is build plus solve time;
    loading modules and kernels (`setup_s`) is no part of it.
    """

    cell: Cell
    status: str
    value_ns: int | None = None
    bound_ns: int | None = None
    bound_class: PlanClass | None = None
    best_bound_ns: int | None = None
    best_bound_by: str = ""
    bound_origin: str = ""
    rests_on: str = ""
    best_rests_on: str = ""
    faults: tuple[str, ...] = ()
    gap: float | None = None
    build_s: float | None = None
    solve_s: float | None = None
    setup_s: float | None = None
    message: str = ""
    made_by: str = ""
    time_limit_s: float | None = None
    details: Mapping[str, int | float | str] = field(default_factory=dict)

    @property
    def time_s(self) -> float | None:
        """Build and solve time together."""
        return None if self.solve_s is None else self.solve_s + (self.build_s or 0.0)

    @property
    def is_optimal(self) -> bool:
        """Whether the value meets the best bound."""
        return self.value_ns is not None and self.value_ns == self.best_bound_ns

    @property
    def is_recorded(self) -> bool:
        """Whether the best bound is one that no run of the study proved."""
        return self.best_bound_by.startswith(RECORDED)


@dataclass(frozen=True)
class MethodSummary:
    """One column of a table, summed up over the rows where it has a gap."""

    table: str
    label: str
    num_plans: int
    num_gaps: int
    mean_gap: float | None
    median_gap: float | None
    num_optimal: int
    num_proved: int
    total_s: float


def gap_cells(cells: Iterable[Cell], records: Mapping[str, Record]) -> list[GapCell]:
    """Join cells with the log's records and measure every gap.

    Cells whose run is not in the log yet are "not_run".
    """
    cells = list(cells)
    best: dict[tuple[str, str, PlanClass], Bound] = {}
    for cell in cells:
        for record, by in _bounds(cell, records):
            for plans in _nested_in(record["bound_class"]):
                where = (*_problem(cell), plans)
                found = Bound(record["bound_ns"], by, record.get("rests_on", ""))
                if where not in best or found.rank() > best[where].rank():
                    best[where] = found
    for cell in cells:
        for bound in cell.recorded:
            for plans in _nested_in(bound.plan_class or plan_class(cell.semantics)):
                where = (*_problem(cell), plans)
                if where not in best or bound.ns > best[where].ns:
                    best[where] = bound
    return [_gap_cell(cell, records, best) for cell in cells]


def _bounds(cell: Cell, records: Mapping[str, Record]) -> Iterable[tuple[Record, str]]:
    record = records.get(cell.run.key) if cell.run is not None else None
    if record is not None and record.get("bound_ns") is not None:
        yield record, cell.label


def _gap_cell(
    cell: Cell, records: Mapping[str, Record], best: Mapping[tuple[str, str, PlanClass], Bound]
) -> GapCell:
    where = (*_problem(cell), plan_class(cell.semantics))
    bound_ns, by, basis, _ = best.get(where, (None, "", "", None))
    empty = GapCell(cell, NOT_RUN, best_bound_ns=bound_ns, best_bound_by=by, best_rests_on=basis)
    if cell.run is None:
        status = NOT_INSTALLED if cell.is_missing else NOT_APPLICABLE
        return replace(empty, status=status, message=cell.reason)
    record = records.get(cell.run.key)
    if record is None:
        return empty
    value_ns = record.get("value_ns")
    return replace(
        empty,
        status=record["status"],
        value_ns=value_ns,
        bound_ns=record.get("bound_ns"),
        bound_class=record.get("bound_class"),
        bound_origin=record.get("bound_origin", ""),
        rests_on=record.get("rests_on", ""),
        faults=tuple(record.get("faults", ())),
        gap=relative_gap(value_ns, bound_ns),
        build_s=record.get("build_s"),
        solve_s=record.get("solve_s"),
        setup_s=record.get("setup_s"),
        message=record.get("message", ""),
        made_by=record.get("made_by", ""),
        time_limit_s=cell.run.time_limit_s,
        details=record.get("details", {}),
    )


def _problem(cell: Cell) -> tuple[str, str]:
    """The instance, and all of the semantics but the class of plans."""
    return cell.instance_hash, with_plans(cell.semantics, "any").label


def _nested_in(plan_class: PlanClass) -> tuple[PlanClass, ...]:
    return PLAN_CLASSES[: PLAN_CLASSES.index(plan_class) + 1]


def disagreements(cells: Sequence[GapCell]) -> list[str]:
    """Every contradiction between methods, as a sentence; there must be none.

    A bound above a value of its class, a proof of infeasibility beside a plan, or what the referee
    objected to in a single run.
    """
    found = [f"{_where(cell)}: {cell.message}" for cell in cells if cell.status == "disagreement"]
    for cell in cells:
        value_ns, bound_ns = cell.value_ns, cell.best_bound_ns
        if value_ns is not None and bound_ns is not None and value_ns < bound_ns:
            found.append(
                f"{_where(cell)}: value {value_ns} ns is below the bound"
                f" {bound_ns} ns of {cell.best_bound_by}"
            )
    for proof in (cell for cell in cells if cell.status == "infeasible"):
        for cell in cells:
            same = _problem(cell.cell) == _problem(proof.cell)
            nested = plan_class(cell.cell.semantics) in _nested_in(plan_class(proof.cell.semantics))
            if same and nested and cell.value_ns is not None:
                found.append(
                    f"{_where(cell)}: has a plan of {cell.value_ns} ns where"
                    f" {proof.cell.label} proved that there is none"
                )
    return found


def _where(cell: GapCell) -> str:
    place = cell.cell
    return f"table {place.table!r}, {place.instance} on {place.cluster}, {place.label}"


def summarize(cells: Sequence[GapCell]) -> list[MethodSummary]:
    """Mean and median gap and number of optima of every method of every table, in order."""
    columns: dict[tuple[str, str], list[GapCell]] = {}
    for cell in cells:
        columns.setdefault((cell.cell.table, cell.cell.label), []).append(cell)
    return [_summary(table, label, column) for (table, label), column in columns.items()]


def _summary(table: str, label: str, column: Sequence[GapCell]) -> MethodSummary:
    gaps = [cell.gap for cell in column if cell.gap is not None]
    return MethodSummary(
        table=table,
        label=label,
        num_plans=sum(cell.value_ns is not None for cell in column),
        num_gaps=len(gaps),
        mean_gap=statistics.fmean(gaps) if gaps else None,
        median_gap=statistics.median(gaps) if gaps else None,
        num_optimal=sum(cell.is_optimal for cell in column),
        num_proved=sum(cell.status == "optimal" for cell in column),
        total_s=sum(cell.time_s or 0.0 for cell in column),
    )
