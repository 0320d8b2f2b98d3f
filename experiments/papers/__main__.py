"""``python -m placegap.experiments.papers``: keep results, make their pages, explain inversions.

Run it from the root of the repository. ``--record`` takes the logs of studies that have run, writes
their results into experiments/papers/*/results/ and makes the pages; with ``--smoke`` those of the
smallest forms. ``--pages`` makes the pages anew from the results that are kept. ``--inversions``
prints every ranking that turns round, with its cause. Names of studies' files limit all of them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from placegap.experiments.research.papers import (
    PAPERS,
    all_studies,
    inversions,
    lines_of,
    page,
    results_file,
)
from placegap.experiments.studies.gaps import NOT_RUN
from placegap.experiments.studies.published import load_published
from placegap.experiments.studies.report import write_file
from placegap.experiments.studies.run import logged_cells
from placegap.instances.reading.errors import InputError

FOLDER, DOCS = Path("experiments/papers"), Path("docs/papers")


def record(path: Path, *, smoke: bool) -> str:
    """Keep the results of a study that has run; a sentence on what was written."""
    study, cells = logged_cells(path, smoke=smoke)
    if study.published is None:
        raise InputError("names no tables of a paper (published)", path)
    tables = load_published(path.parent / study.published.file, study.published.tables)
    lines = list(lines_of(study.name, cells, tables))
    write_file(results_file(path), ("\n".join(lines) + "\n").encode())
    missing = sum(cell.status == NOT_RUN for cell in cells)
    left = f"; {missing} cells have not run" if missing else ""
    return f"{results_file(path)}: {len(cells) - missing} cells{left}"


def main(arguments: Sequence[str]) -> None:
    """Do what the options ask for."""
    parser = argparse.ArgumentParser(prog="python -m placegap.experiments.papers")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--record", action="store_true", help="keep the results of logs, make pages")
    what.add_argument("--pages", action="store_true", help="make the pages from what is kept")
    what.add_argument("--inversions", action="store_true", help="print inversions and causes")
    parser.add_argument("--smoke", action="store_true", help="the logs of the smallest forms")
    parser.add_argument("studies", nargs="*", type=Path, metavar="STUDY.yaml")
    asked = parser.parse_args(arguments)
    studies = asked.studies or all_studies(FOLDER)
    try:
        if asked.inversions:
            for title, found in inversions(studies):
                pair = f"{found.faster} before {found.slower} in the paper"
                print(f"{title}: {found.row}: {pair}: {found.why}")
            return
        for path in studies if asked.record else ():
            print(record(path, smoke=asked.smoke))
        for name in PAPERS:
            write_file(DOCS / f"{name}.md", page(FOLDER / name).encode())
            print(DOCS / f"{name}.md")
    except InputError as error:
        sys.exit(f"placegap: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
