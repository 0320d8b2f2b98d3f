"""How far plans and bounds are apart in each table of a finished study, and who vouches for it.

``python -m placegap.experiments.research.certificates STUDY.yaml [--out FOLDER]
[--certify SECONDS]`` reads the study's log, and runs nothing. A gap is (value - bound) / value;
bound / value is a geometric mean. *proof* counts the bounds that our own code computes; the others
are a solver's word. With ``--certify``, each bound is certified for so many seconds, and the last
column is the mean share of it that the stand-alone checker proves. After Ctrl-C the table has what
is known, and the same command goes on where it stopped (`certified_shares`).
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.table import Table

from placegap.experiments.research.certificates import (
    Key,
    Share,
    certified_shares,
    key_of,
    known_shares,
)
from placegap.experiments.running.pool import handled, stop_status
from placegap.experiments.show.figures import format_gap
from placegap.experiments.show.rendering import output, warn
from placegap.experiments.studies.gaps import GapCell
from placegap.experiments.studies.run import logged_cells, results_folder
from placegap.instances.reading.errors import InputError
from placegap.solvers.core.result import PROOF

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


def certified_column(cells: Sequence[GapCell], known: Mapping[Key, Share]) -> str:
    """The mean certified share of the cells' bounds, and of how many where some are unknown."""
    keys = [key for cell in cells if (key := key_of(cell)) is not None]
    parts = [known[key].part for key in keys if key in known]
    if not parts:
        return "none"
    of = "" if len(parts) == len(keys) else f" ({len(parts)} of {len(keys)})"
    return f"{100 * statistics.fmean(parts):.1f} %{of}"


def main(arguments: Sequence[str]) -> int:
    """Print the table, and what made the runs; the exit status says if a signal stopped it."""
    parser = argparse.ArgumentParser(
        prog="closing_table", description="How far plans and bounds are apart."
    )
    parser.add_argument("study", type=Path)
    parser.add_argument("--out", type=Path, help="folder of the log")
    parser.add_argument("--certify", type=float, default=0.0, help="seconds for each bound")
    asked = parser.parse_args(arguments)
    try:
        study, cells = logged_cells(asked.study, asked.out)
    except InputError as error:
        warn(str(error))
        return 2
    folder, known, status = results_folder(study, asked.out), dict[Key, Share](), 0
    if asked.certify:
        known = known_shares(folder)
        try:
            with handled():
                certified_shares(cells, asked.certify, folder, known)
        except KeyboardInterrupt:
            status = stop_status()
            warn("stopped; the same command goes on from here")
    grid = Table(*HEADS, *["certified"] * bool(asked.certify))
    for name in dict.fromkeys((cell.cell.table, cell.cell.label) for cell in cells):
        mine = [cell for cell in cells if (cell.cell.table, cell.cell.label) == name]
        row = [*name, *closing_row(mine)]
        if asked.certify:
            row.append(certified_column(mine, known))
        grid.add_row(*row)
    output().print(grid)
    for maker in dict.fromkeys(cell.made_by for cell in cells if cell.made_by):
        output().print(f"made by {maker}", markup=False, soft_wrap=True)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
