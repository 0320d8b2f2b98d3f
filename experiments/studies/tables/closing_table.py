"""How far plans and bounds are apart in each table of a finished study, and who vouches for it.

``python -m placegap.experiments.studies.tables.closing_table STUDY.yaml [--certify SECONDS]`` reads
the study's log, and runs nothing. A gap is (value - bound) / value; bound / value is a geometric
mean. *proof* counts the bounds that our own code computes; the others are a solver's word. With
``--certify``, each bound is certified anew for so many seconds, and the last column is the mean
share of it that the stand-alone checker proves.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from placegap.experiments.running.sources import load_source
from placegap.experiments.show.figures import format_gap
from placegap.experiments.show.rendering import output
from placegap.experiments.studies.gaps import GapCell
from placegap.experiments.studies.run import logged_cells
from placegap.solvers.bounds.certificates.write import certify
from placegap.solvers.core.trust import PROOF

HEADS = ("table", "method", "plans", "of", "mean gap", "worst", "bound / value", "optimal", "proof")


def closing_row(cells: Sequence[GapCell]) -> tuple[str, ...]:
    """One line for the cells of a method in a table, without names."""
    gaps = [cell.gap for cell in cells if cell.gap is not None]
    ratios = [
        cell.best_bound_ns / cell.value_ns
        for cell in cells
        if cell.value_ns and cell.best_bound_ns is not None
    ]
    geometric = statistics.geometric_mean(ratios) if ratios and min(ratios) > 0 else None
    return (
        str(sum(cell.value_ns is not None for cell in cells)),
        str(len(cells)),
        format_gap(statistics.fmean(gaps)) if gaps else "none",
        format_gap(max(gaps)) if gaps else "none",
        "none" if geometric is None else f"{geometric:.3f}",
        str(sum(cell.is_optimal for cell in cells)),
        str(sum(cell.best_rests_on == PROOF for cell in cells)),
    )


def certified_share(cell: GapCell, time_limit_s: float) -> float | None:
    """Of the best bound, the share that a certificate proves; None without run or bound."""
    if cell.cell.run is None or not cell.best_bound_ns:
        return None
    instance = load_source(cell.cell.run.source)
    found = certify(instance, cell.cell.semantics, time_limit_s, cell.best_bound_ns)
    return 0.0 if found is None else min(1.0, found.bound_ns / cell.best_bound_ns)


def main(arguments: Sequence[str]) -> None:
    """Print the table, and what made the runs."""
    path = Path(arguments[0])
    limit_s = float(arguments[arguments.index("--certify") + 1]) if "--certify" in arguments else 0
    _, cells = logged_cells(path)
    grid = Table(*HEADS, *["certified"] * bool(limit_s))
    for name in dict.fromkeys((cell.cell.table, cell.cell.label) for cell in cells):
        mine = [cell for cell in cells if (cell.cell.table, cell.cell.label) == name]
        row = [*name, *closing_row(mine)]
        if limit_s:
            shares = [certified_share(cell, limit_s) for cell in mine]
            known = [share for share in shares if share is not None]
            row.append(f"{100 * statistics.fmean(known):.1f} %" if known else "none")
        grid.add_row(*row)
    output().print(grid)
    for maker in dict.fromkeys(cell.made_by for cell in cells if cell.made_by):
        output().print(f"made by {maker}", markup=False, soft_wrap=True)


if __name__ == "__main__":
    main(sys.argv[1:])
