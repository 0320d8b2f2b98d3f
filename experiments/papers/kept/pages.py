"""The pages of docs/papers/: every table of a paper, made from the results in the repository."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

from placegap.experiments.research.papers import Recorded, read_recorded
from placegap.experiments.studies.config import load_study
from placegap.experiments.studies.paper_comparison import ComparedTable, compare
from placegap.experiments.studies.paper_table import Inversion, markdown, rank
from placegap.experiments.studies.published import load_published

PAPERS = {
    "tarnawski": "Tarnawski et al.",
    "moirai": "Moirai",
    "celeritas": "Celeritas",
    "fd-dps": "FD-DPS",
}
"""Folder of a paper -> its name."""

SMOKE = "-smoke"


def studies_of(folder: Path) -> list[Path]:
    """The studies of a paper's folder."""
    return [path for path in sorted(folder.glob("*.yaml")) if path.name != "published.yaml"]


def results_file(study: Path) -> Path:
    """Where the results of a study are kept.

    Examples
    --------
    >>> results_file(Path("papers/moirai/latency.yaml")).as_posix()
    'papers/moirai/results/latency.jsonl'
    """
    return study.parent / "results" / f"{study.stem}.jsonl"


def compared_tables(study: Path, recorded: Recorded) -> list[ComparedTable]:
    """The paper's tables of a study beside the results that are kept."""
    published = load_study(study).published
    assert published is not None  # every study of a paper has some
    tables = load_published(study.parent / published.file, published.tables)
    return [compare(table, recorded.cells, recorded.figure) for table in tables]


def page(folder: Path) -> str:
    """The page of a paper, from all files of results in its folder.

    Parameters
    ----------
    folder : Path
        A folder of `experiments/papers/`, with studies, published.yaml and results.
    """
    lines = [
        f"# {PAPERS[folder.name]}: the tables again",
        "",
        "This page is made by `python -m placegap.experiments.papers --pages` from the results in"
        f" `experiments/papers/{folder.name}/results/`. A cell has our figure, its gap to the best"
        " proven bound, and the paper's figure. All times of plans are those of the referee's"
        " clock, in a simulation; nothing was run on GPUs.",
        "",
    ]
    for study in studies_of(folder):
        file = results_file(study)
        if file.exists():
            lines += _of_study(study, read_recorded(file))
    return "\n".join(lines).rstrip() + "\n"


def _of_study(study: Path, recorded: Recorded) -> Iterator[str]:
    command = f"placegap study experiments/papers/{study.parent.name}/{study.name}"
    small = recorded.study.endswith(SMOKE)
    yield f"**`{command}{' --smoke' if small else ''}`**"
    if small:
        yield "- the study's smallest form, with few rows and few seconds per run."
    yield ""
    yield from (f"Made by {maker}." for maker in recorded.made_by)
    yield ""
    for compared in compared_tables(study, recorded):
        if compared.rows:
            yield markdown(compared)


def inversions(studies: Sequence[Path]) -> Iterator[tuple[str, Inversion]]:
    """Every pair that the paper and the kept results rank the other way round, with its table."""
    for study in studies:
        if results_file(study).exists():
            for compared in compared_tables(study, read_recorded(results_file(study))):
                if compared.table.quantity in ("value", "measuring"):
                    for found in rank(compared).inversions:
                        yield compared.table.title, found


def all_studies(papers: Path) -> list[Path]:
    """The studies of all papers."""
    return list(chain.from_iterable(studies_of(papers / name) for name in PAPERS))
