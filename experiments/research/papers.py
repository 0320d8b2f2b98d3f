"""``python -m placegap.experiments.research.papers``: results of papers' studies, and their pages.

Run it from the root of the repository. ``--record`` takes the logs of studies that have run, writes
their results into experiments/papers/*/results/ and makes the pages of docs/papers/; with
``--smoke`` those of the smallest forms. ``--pages`` makes the pages anew from the results that are
kept. ``--inversions`` prints every reversed ranking, with its cause. Names of studies'
files limit all of them. Without an option it prints per paper what agrees, ties and turns, in the
regimes of `regimes.yaml` where there are some, and for each turned pair the cause that was tested.

What is kept is a CSV file of runs (`studies.runs`), and the figures of graphs that a paper's tables
ask for, in one file of each paper.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from pathlib import Path

from placegap.experiments.research.paper_comparison import (
    MOST_WORDS,
    ComparedTable,
    Figures,
    compare,
    live_figure,
)
from placegap.experiments.research.paper_table import Inversion, markdown, rank
from placegap.experiments.research.published import PublishedTable, load_published
from placegap.experiments.research.record import logged_rows
from placegap.experiments.research.regimes import (
    REGIMES,
    Regime,
    Score,
    Stated,
    compared_regime,
    load_regimes,
    score,
    told_score,
)
from placegap.experiments.studies.config import load_study
from placegap.experiments.studies.report import made_by
from placegap.experiments.studies.runs import NOT_RUN, RunRow, load_rows, write_rows
from placegap.instances.files.output_files import write_text
from placegap.instances.reading.errors import InputError

FIGURES = "figures.json"

FiguresOf = dict[str, dict[str, dict[str, float]]]
"""Instance, cluster and name of a figure -> the figure of its graph."""


@dataclass(frozen=True)
class Recorded:
    """The kept runs of a study, and the figures of their graphs."""

    rows: tuple[RunRow, ...]
    figures: FiguresOf

    def figure(self, row: RunRow, name: str) -> float:
        """A figure of a row's graph, as it was when the study ran."""
        try:
            return self.figures[row.instance][row.cluster][name]
        except KeyError:
            raise InputError(
                f"{row.study} has no figure {name!r} of {row.instance}: record it anew"
            ) from None


def kept_rows(rows: Sequence[RunRow]) -> list[RunRow]:
    """The rows that have run, as far as they are kept."""
    return [
        replace(row, message=_kept_message(row.message), params="")
        for row in rows
        if row.status != NOT_RUN
    ]


def _kept_message(message: str) -> str:
    """As much of a message as is kept; that time ended the run comes first where it were lost."""
    ended = [told for told in message.split("; ") if "time limit" in told]
    if ended and ended[0] not in message[:MOST_WORDS]:
        message = f"{ended[0]}; {message}"
    return message[:MOST_WORDS]


def figures_of(rows: Sequence[RunRow], tables: Sequence[PublishedTable]) -> FiguresOf:
    """The figures of graphs that the tables of the paper ask for."""
    seen: FiguresOf = {}

    def figure(row: RunRow, name: str) -> float:
        found = live_figure(row, name)
        seen.setdefault(row.instance, {}).setdefault(row.cluster, {})[name] = found
        return found

    for table in tables:
        compare(table, rows, figure)
    return seen


def load_recorded(path: Path) -> Recorded:
    """A file of results, and its figures in the file of its folder."""
    figures = load_figures(path.parent).get(path.stem, {})
    return Recorded(tuple(load_rows(path)), figures)


def load_figures(folder: Path) -> dict[str, FiguresOf]:
    """The figures of graphs that a paper's studies kept, by study."""
    path = folder / FIGURES
    found: dict[str, FiguresOf] = json.loads(path.read_text()) if path.exists() else {}
    return found


PAPERS = {
    "tarnawski": "Tarnawski et al.",
    "moirai": "Moirai",
    "celeritas": "Celeritas",
    "fd-dps": "FD-DPS",
}
"""Folder of a paper -> its name."""

SMOKE = "-smoke"

NO_STUDIES = ("published.yaml", REGIMES)


def studies_of(folder: Path) -> list[Path]:
    """The studies of a paper's folder."""
    return [path for path in sorted(folder.glob("*.yaml")) if path.name not in NO_STUDIES]


def results_file(study: Path) -> Path:
    """Where the results of a study are kept."""
    return study.parent / "results" / f"{study.stem}.csv"


def compared_tables(study: Path, recorded: Recorded) -> list[ComparedTable]:
    """The paper's tables of a study beside the results that are kept; regimes have their own."""
    published = load_study(study).published
    if published is None:
        return []
    tables = load_published(study.parent / published.file, published.tables)
    return [compare(table, recorded.rows, recorded.figure) for table in tables]


def page(folder: Path) -> str:
    """The page of a paper, from its folder of `experiments/papers/`."""
    lines = [
        f"# {PAPERS[folder.name]}: the tables again",
        "",
        "This page is made by `python -m placegap.experiments.research.papers --pages` from the"
        f" results in `experiments/papers/{folder.name}/results/`. A cell has our figure, its gap"
        " to the best proven bound, and the paper's figure. All times of plans are those of the"
        " referee's clock, in a simulation; nothing was run on GPUs.",
        "",
    ]
    for study in studies_of(folder):
        file = results_file(study)
        if file.exists():
            lines += _of_study(study, load_recorded(file))
    for regime in regimes_of(folder):
        lines += _of_regime(regime, folder)
    lines += ["## All together", "", f"{list(scores(folder))[-1]}.", ""]
    lines += _told_list("Left out", load_regimes(folder).left_out)
    return "\n".join(lines).rstrip() + "\n"


def _of_study(study: Path, recorded: Recorded) -> Iterator[str]:
    command = f"placegap study experiments/papers/{study.parent.name}/{study.name}"
    small = recorded.rows[0].study.endswith(SMOKE)
    yield f"**`{command}{' --smoke' if small else ''}`**"
    if small:
        yield "- the study's smallest form, with few rows and few seconds per run."
    yield ""
    yield from (f"Made by {maker}." for maker in made_by(recorded.rows))
    yield ""
    for compared in compared_tables(study, recorded):
        if compared.rows:
            yield markdown(compared)


def regimes_of(folder: Path) -> list[Regime]:
    """The regimes of a paper whose studies have results."""
    known = load_regimes(folder).regimes
    return [regime for regime in known if results_file(folder / f"{regime.results}.yaml").exists()]


def _of_regime(regime: Regime, folder: Path) -> Iterator[str]:
    if regime.run:  # else the table stands above, with the same runs
        yield markdown(compared_regime(regime, folder, kept_cells(folder)))
    for name, sentences in (
        ("The paper states", regime.states),
        ("Its figures imply", regime.implies),
        ("Assumed", regime.assumes),
        ("Tried besides", regime.tried),
    ):
        yield from _told_list(name, sentences)
    first, *rest = told_score(score_of(regime, folder), regime.misfits)
    yield f"{first}."
    yield ""
    yield from (f"- {line}" for line in rest)
    yield ""


def _told_list(name: str, sentences: Sequence[Stated]) -> Iterator[str]:
    if sentences:
        told = (
            f"{said.what} (line {said.lines})" if said.lines else said.what for said in sentences
        )
        yield from (f"{name}:", "", *(f"- {sentence}" for sentence in told), "")


def kept_cells(folder: Path) -> Callable[[str], tuple[Sequence[RunRow], Figures]]:
    """The kept cells and figures of a paper's studies, by their names; none of what did not run."""

    @cache
    def cells(study: str) -> tuple[Sequence[RunRow], Figures]:
        if not results_file(folder / f"{study}.yaml").exists():
            return (), live_figure
        recorded = load_recorded(results_file(folder / f"{study}.yaml"))
        return recorded.rows, recorded.figure

    return cells


def score_of(regime: Regime, folder: Path) -> Score:
    """How a regime's table agrees with the paper's, and the causes of what does not."""
    cells = kept_cells(folder)
    return score(compared_regime(regime, folder, cells), regime.causes, cells, regime.ahead)


RANKED = ("value", "measuring")


def scores(folder: Path) -> Iterator[str]:
    """What a paper's tables agree on: those of its regimes, and beside them all others."""
    regimes, cells = regimes_of(folder), kept_cells(folder)
    main: list[Score] = []
    for regime in regimes:
        found = score_of(regime, folder)
        main += [found] if regime.is_main else []
        yield from told_score(found, regime.misfits)
    covered = {regime.table for regime in regimes if regime.is_main}
    covered.update(load_regimes(folder).beside)
    for study in studies_of(folder):
        if not results_file(study).exists():
            continue
        for compared in compared_tables(study, load_recorded(results_file(study))):
            if compared.table.quantity in RANKED and rank(compared).num_pairs:
                found = score(compared, (), cells)
                beside = compared.table.name in covered
                main += [] if beside else [found]
                yield f"{found.title}{', beside the regime' if beside else ''}: {found.line}"
    timed = [sum(found.timed[at] for found in main if found.timed is not None) for at in (0, 1)]
    turned = [pair for found in main for pair in found.turned]
    yield (
        f"{PAPERS[folder.name]}: {sum(found.agree for found in main)} of"
        f" {sum(found.num_pairs for found in main)} pairs agree"
        f"{f', with two published times {timed[0]} of {timed[1]}' if timed[1] else ''};"
        f" {sum(found.ties for found in main)} tie, {len(turned)} turn,"
        f" {sum(pair.cause is None for pair in turned)} of them without a cause"
    )


def inversions(studies: Sequence[Path]) -> Iterator[tuple[str, Inversion]]:
    """Every pair that the paper and the kept results rank the other way round, with its table."""
    for study in studies:
        if results_file(study).exists():
            for compared in compared_tables(study, load_recorded(results_file(study))):
                if compared.table.quantity in ("value", "measuring"):
                    for found in rank(compared).inversions:
                        yield compared.table.title, found


def all_studies(papers: Path) -> list[Path]:
    """The studies of all papers."""
    return list(chain.from_iterable(studies_of(papers / name) for name in PAPERS))


FOLDER, DOCS = Path("experiments/papers"), Path("docs/papers")


def record(path: Path, *, smoke: bool) -> str:
    """Keep the results of a study that has run; a sentence on what was written."""
    study, rows = logged_rows(path, smoke=smoke)
    published = study.published
    tables = (
        [] if published is None else load_published(path.parent / published.file, published.tables)
    )
    file, kept = results_file(path), kept_rows(rows)
    file.parent.mkdir(exist_ok=True)
    write_rows(kept, file)
    figures = {**load_figures(file.parent), path.stem: figures_of(kept, tables)}
    text = json.dumps({name: of for name, of in figures.items() if of}, indent=1, sort_keys=True)
    write_text(text + "\n", file.parent / FIGURES)
    left = f"; {len(rows) - len(kept)} cells have not run" if len(kept) < len(rows) else ""
    return f"{file}: {len(kept)} cells{left}"


def main(arguments: Sequence[str]) -> None:
    """Do what the options state."""
    parser = argparse.ArgumentParser(prog="python -m placegap.experiments.research.papers")
    what = parser.add_mutually_exclusive_group()
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
        if not (asked.record or asked.pages):
            for name in PAPERS:
                if not asked.studies or any(path.parent.name == name for path in studies):
                    print(*scores(FOLDER / name), sep="\n")
                    print()
            return
        for path in studies if asked.record else ():
            print(record(path, smoke=asked.smoke))
        for name in PAPERS:
            write_text(page(FOLDER / name), DOCS / f"{name}.md")
            print(DOCS / f"{name}.md")
    except InputError as error:
        sys.exit(f"placegap: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
