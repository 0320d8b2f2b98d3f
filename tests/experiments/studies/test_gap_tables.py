"""Gap tables on terminals of several widths."""

from __future__ import annotations

import io

from doubles.gap_runs import CHAIN, Results, cells_of, plan
from rich.console import Console

from placegap.experiments.studies.gap_tables import gap_tables, lay_out

RESULTS: Results = {
    ("chains", "net", "dp"): plan(2_000_000, 2_000_000),
    ("chains", "net", "placer"): plan(2_500_000),
    ("chains", "net", "broken"): {"status": "crashed", "message": "died | badly"},
    ("chains", "net", "small-only"): "at most 8 ops, not 22",
    ("chains", "big", "dp"): plan(40_000_000, 30_000_000),
    ("chains", "big", "placer"): {"status": "no_plan", "message": "memory"},
    ("chains", "big", "broken"): {},
    ("chains", "big", "small-only"): "at most 8 ops, not 66",
}


def test_a_narrow_terminal_gets_several_tables_and_no_column_is_lost() -> None:
    (table,) = lay_out(cells_of(RESULTS, {"chains": CHAIN}))
    for width, parts in ((120, 1), (40, 2)):
        console = Console(width=width, file=io.StringIO(), record=True)
        grids = list(gap_tables(table, width))
        for grid in grids:
            console.print(grid)
        text = console.export_text()
        assert len(grids) >= parts
        assert all(name in text for name in ("dp", "placer", "broken", "small-only"))
        assert max(map(len, text.splitlines())) <= width
