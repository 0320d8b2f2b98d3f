"""``python -m placegap.experiments.research.papers``: how the papers' tables come out again.

Run it in a checkout, from its root. It prints one table of all papers from the kept results.
``--pages`` makes the pages of docs/papers/, and puts the table into experiments/papers/README.md.
``--record`` keeps the results of studies that have run, from their logs; with ``--smoke`` those of
their smallest forms; STUDY.yaml names some of them. ``--pairs`` writes every pair of methods that
counts, with its verdict, into experiments/papers/*/pairs.csv.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path

from placegap.experiments.research.graph_figures import figure_of
from placegap.experiments.research.paper_comparison import FIGURES, FiguresOf, load_kept, runs_of
from placegap.experiments.research.paper_page import page
from placegap.experiments.research.paper_score import Pair, PaperScore, score
from placegap.experiments.research.published import load_paper
from placegap.experiments.research.record import logged_rows
from placegap.experiments.show.rendering import markdown_grid, output, plain_table
from placegap.experiments.studies.runs import NOT_RUN, RunRow, write_rows
from placegap.instances.files.output_files import write_text
from placegap.instances.reading.errors import InputError
from placegap.solvers.core.registry import STAND_INS, use_module

# Folder of a paper -> its name.
PAPERS = {
    "tarnawski": "Tarnawski et al.",
    "moirai": "Moirai",
    "celeritas": "Celeritas",
    "fd-dps": "FD-DPS",
}

ROOT = Path(__file__).resolve().parents[2]
FOLDER, DOCS = ROOT / "experiments" / "papers", ROOT / "docs" / "papers"
NO_STUDIES = ("published.yaml", "scoring.yaml")

LONGEST_MESSAGE = 160  # characters of a run's message that are kept in the repository

SCOREBOARD = re.compile(r"(?<=<!-- scoreboard -->\n).*?(?=<!-- end of scoreboard -->)", re.DOTALL)


def studies_of(folder: Path) -> list[Path]:
    """The studies of a paper's folder."""
    return [path for path in sorted(folder.glob("*.yaml")) if path.name not in NO_STUDIES]


def scores(papers: Path) -> list[PaperScore]:
    """How every paper comes out."""
    return [score(title, papers / name) for name, title in PAPERS.items()]


def scoreboard(found: Sequence[PaperScore]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The head and the rows of the one table of all papers."""
    lines = [each.line() for each in found]
    rows = [(measure, *(line[measure] for line in lines)) for measure in lines[0]]
    return ("measure", *(each.name for each in found)), rows


def with_scoreboard(readme: str, found: Sequence[PaperScore]) -> str:
    """The text of experiments/papers/README.md with the table of today."""
    table = "\n".join(("", *markdown_grid(*scoreboard(found)), "", ""))
    return SCOREBOARD.sub(lambda _: table, readme)


def pairs_csv(pairs: Sequence[Pair]) -> str:
    text = io.StringIO()
    rows = csv.DictWriter(text, [each.name for each in fields(Pair)], lineterminator="\n")
    rows.writeheader()
    for pair in pairs:
        ratios = {"paper_ratio": f"{pair.paper_ratio:.4g}", "ours_ratio": f"{pair.ours_ratio:.4g}"}
        rows.writerow({**asdict(pair), **ratios})
    return text.getvalue()


def kept_rows(rows: Sequence[RunRow]) -> list[RunRow]:
    """The rows that have run, as far as they are kept."""
    return [
        replace(row, message=row.message[:LONGEST_MESSAGE], params="")
        for row in rows
        if row.status != NOT_RUN
    ]


def figures_of(folder: Path, study: str, rows: Sequence[RunRow]) -> FiguresOf:
    """The figures of graphs that the paper's tables take from a study."""
    found: FiguresOf = {}
    for table in load_paper(folder)[0].tables:
        for row in table.rows:
            for column in table.columns:
                if column.figure is None:
                    continue
                runs = runs_of(row, {study: rows}, *table.place_of(column))
                source = next((run.run.source for run in runs if run.run is not None), None)
                if source is not None:
                    name = column.figure if row.op is None else f"{column.figure} of {row.op}"
                    mine = found.setdefault(table.name, {}).setdefault(row.name, {})
                    try:
                        mine[column.figure] = figure_of(source, name)
                    except KeyError:
                        raise InputError(f"{table.name}: {row.name} has no {name!r}") from None
    return found


def record(path: Path, *, smoke: bool) -> str:
    """Keep the results of a study that has run; a sentence on what was written."""
    rows = logged_rows(path, smoke=smoke)[1]
    kept, folder = kept_rows(rows), path.parent
    (folder / "results").mkdir(exist_ok=True)
    file = folder / "results" / f"{path.stem}.csv"
    write_rows(kept, file)
    figures = {**load_kept(folder).figures}
    for table, of_rows in figures_of(folder, path.stem, rows).items():
        figures[table] = {**figures.get(table, {}), **of_rows}
    if figures:
        text = json.dumps(figures, indent=1, sort_keys=True)
        write_text(text + "\n", folder / "results" / FIGURES)
    left = f"; {len(rows) - len(kept)} cells have not run" if len(kept) < len(rows) else ""
    return f"{file}: {len(kept)} cells{left}"


def main(arguments: Sequence[str]) -> None:
    """Do what the options state."""
    parser = argparse.ArgumentParser(prog="python -m placegap.experiments.research.papers")
    parser.add_argument("--record", action="store_true", help="keep the results of logs")
    parser.add_argument("--smoke", action="store_true", help="those of the smallest forms")
    parser.add_argument("--pages", action="store_true", help="make the pages from what is kept")
    parser.add_argument("--pairs", action="store_true", help="write every pair into pairs.csv")
    parser.add_argument("studies", nargs="*", type=Path, metavar="STUDY.yaml")
    options = parser.parse_args(arguments)
    try:
        if options.record:
            use_module(STAND_INS)
            every = [path for name in PAPERS for path in studies_of(FOLDER / name)]
            for path in options.studies or every:
                try:
                    print(record(path, smoke=options.smoke))
                except InputError as error:  # others may have run
                    if options.studies:
                        raise
                    print(f"not kept: {error}")
        found = scores(FOLDER)
        for name, each in zip(PAPERS, found, strict=True):
            if options.pages:
                write_text(page(each, name), DOCS / f"{name}.md")
            if options.pairs:
                write_text(pairs_csv(each.pairs), FOLDER / name / "pairs.csv")
        if options.pages:
            readme = FOLDER / "README.md"
            write_text(with_scoreboard(readme.read_text(encoding="utf-8"), found), readme)
        output().print(plain_table(None, *scoreboard(found)))
    except InputError as error:
        print(f"placegap: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main(sys.argv[1:])
