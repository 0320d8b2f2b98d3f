"""docs/optima.md and docs/corpus.md print what best-known.json holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from placegap.experiments.research.tables.optima import main
from placegap.instances.corpus.corpus import NETWORK_FAMILY, corpus_names, load_best_known

DOCS = Path(__file__).parents[4] / "docs"


def test_the_page_has_the_tables_that_the_command_prints(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([]) == 0
    printed = capsys.readouterr().out.strip()
    assert printed.count("| densenet121 |") == 4  # makespans, and three classes of plans
    assert printed in (DOCS / "optima.md").read_text()


def test_the_page_of_networks_has_every_value_and_gap() -> None:
    lines = (DOCS / "corpus.md").read_text().splitlines()
    row = {cells[0]: cells for line in lines if len(cells := cells_of(line)) == 4}
    networks = corpus_names(NETWORK_FAMILY)
    for entry in load_best_known():
        if entry.graph in networks and (place := column(entry.semantics.label)) is not None:
            assert entry.value_ns is not None
            gap = 1 - (entry.bound_ns or 0) / entry.value_ns
            shown = f"{entry.value_ns / 1e6:.3f}" + (f" ({100 * gap:.2g} %)" if gap else "")
            assert row[entry.graph][place] == shown, entry.key


def cells_of(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def column(label: str) -> int | None:
    kinds = ("max_load chain", "max_load any", "makespan")
    return next((1 + at for at, kind in enumerate(kinds) if label.startswith(kind)), None)
