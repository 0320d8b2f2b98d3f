"""The papers' files: every number has a place, and every cell a run in the study that it names."""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from draws.tiny import SHARED

from placegap.experiments.research.graph_figures import FIGURES, OP_FIGURES, SPLITS
from placegap.experiments.research.papers import PAPERS
from placegap.experiments.research.published import (
    Cause,
    PublishedColumn,
    PublishedTable,
    load_paper,
    parse_cell,
)
from placegap.experiments.studies.config import Study, load_study
from placegap.instances import InputError
from placegap.instances.transforms.table import TRANSFORMS

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "experiments" / "papers"
TEXTS = SHARED / "papers"
WRITTEN = {0: "no", 1: "yes"}
GOOD = """
paper: xu2022
text: arXiv
tables:
  - name: one
    title: One
    source: table 1
    unit: s
    results: [study]
    columns: [{name: A, method: a}, {name: B}]
    rows: [{name: Net, instance: net, cells: ["1.5", 5 hrs]}]
"""


@pytest.fixture(params=PAPERS)
def folder(request: pytest.FixtureRequest) -> Path:
    return FOLDER / str(request.param)


@cache
def study_of(folder: Path, name: str) -> Study:
    return load_study(folder / f"{name}.yaml")


def test_a_papers_file_names_a_paper_of_the_references(folder: Path) -> None:
    text = (ROOT / "instances" / "data" / "references.bib").read_text()
    assert load_paper(folder)[0].paper in re.findall(r"^@\w+\{(\w+),", text, re.MULTILINE)


def test_every_row_and_every_column_has_a_run_in_the_study_that_its_table_names(
    folder: Path,
) -> None:
    for table in load_paper(folder)[0].tables:
        found = set(cells_with_runs(folder, table))
        asked = {column.name for column in table.columns if column.method or column.figure}
        assert asked == {column for _, column in found}, table.name
        rows = {row.name for row in table.rows} if asked else set()  # some tables have no cells
        assert rows == {row for row, _ in found}, table.name


def cells_with_runs(folder: Path, table: PublishedTable) -> Iterator[tuple[str, str]]:
    """Rows and columns that a study runs, or whose graph's figures it has.

    Some cells have none: an expert's split belongs to some rows, and the MILP to small graphs.
    """
    for column in table.columns:
        if column.figure is not None:
            check_figure(column.figure)
        method = (column.method or "").split()
        results, named = table.place_of(column)
        known = {
            Path(str(instance.model)).stem
            for name in results
            for entry in study_of(folder, name).tables
            if is_named(entry.name, named)
            and (not method or method[0] in {each.name for each in entry.methods})
            for instance in entry.instances
        }
        if method or column.figure:
            yield from (
                (row.name, column.name) for row in table.rows if Path(row.instance).stem in known
            )


def is_named(table: str, names: tuple[str, ...]) -> bool:
    return not names or any(fnmatchcase(table, name) for name in names)


def check_figure(name: str) -> None:
    """A figure of a graph after a transform."""
    figure, _, more = name.partition(", ")
    if figure.startswith(SPLITS) or figure in OP_FIGURES:
        assert more == "" or 0 < float(more) < 1  # the least share of an op that is split
    else:
        assert figure in FIGURES
        assert more in ("", *TRANSFORMS)


def test_a_cause_changes_one_thing_for_all_methods_alike(folder: Path) -> None:
    paper, scoring = load_paper(folder)
    for cause in scoring.causes:
        # what alters one program is a parameter of that one, and no change of the regime
        for table in paper.tables if cause.clock is None and not cause.alters else ():
            if table.is_ranked and (not cause.of or table.name in cause.of):
                (keys,) = changed_keys(folder, table, cause)  # the same ones of all methods
                assert len(keys) == 1, (table.name, cause.changes, keys)


def changed_keys(folder: Path, table: PublishedTable, cause: Cause) -> set[frozenset[str]]:
    """Settings in which runs of a cause differ from those of the table that it is about.

    A run is a method with its parameters on an instance and a cluster; both studies are read with
    all that they extend. So a cause with other parameters of a method is none.
    """
    keys = set()
    for studies, names in (table.place_of(column) for column in table.columns):
        for one, named in product(names or ("*",), cause.tables):
            regime = settings_of(folder, studies, (one,))
            changed = settings_of(folder, cause.results, (named.replace("*", one),))
            keys |= {
                frozenset(key for key in settings if settings[key] != regime[place][key])
                for place, settings in changed.items()
                if place in regime
            }
    return keys


def settings_of(
    folder: Path, studies: tuple[str, ...], tables: tuple[str, ...]
) -> dict[tuple[str, ...], dict[str, Any]]:
    """Instance, cluster's file and method -> all that decides the run."""
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for name in studies:
        for entry in study_of(folder, name).tables:
            if not is_named(entry.name, tables):
                continue
            rest = entry.model_dump(exclude={"name", "instances", "clusters", "methods"})
            for instance in entry.instances:
                for cluster in entry.clusters or ("",):
                    for method in entry.methods:
                        named = (method.name, str(method.params))
                        place = (str(instance.model), Path(cluster).stem, *named)
                        found[place] = {**flat(rest), **instance.model_dump(), "cluster": cluster}
    return found


def flat(settings: dict[str, Any], above: str = "") -> dict[str, Any]:
    """Settings of settings by their path."""
    found: dict[str, Any] = {}
    for key, value in settings.items():
        path = f"{above}{key}"
        found |= flat(value, f"{path}.") if isinstance(value, dict) else {path: value}
    return found


@pytest.mark.skipif(not TEXTS.is_dir(), reason="no ../shared/papers beside this checkout")
def test_a_cell_stands_in_the_lines_of_the_text_that_its_row_names(folder: Path) -> None:
    paper = load_paper(folder)[0]
    if not any(row.lines for table in paper.tables for row in table.rows):
        pytest.skip("its numbers are those of programs")
    printed = (TEXTS / f"{folder.name}.txt").read_text()
    text = printed.replace("1021.61043.6", "1021.6 1043.6").split("\n")  # labels that touch
    for table in paper.tables:
        for row in table.rows:
            if row.lines:
                there = "\n".join(text[line - 1] for line in lines_of(row.lines))
                for column, cell in zip(table.columns, row.cells, strict=True):
                    assert is_printed(column, cell, there), (table.name, row.name, column.name)


def lines_of(named: str) -> Iterator[int]:
    for part in named.split(", "):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def is_printed(column: PublishedColumn, cell: float | str | None, text: str) -> bool:
    """Whether a cell is in a text; one with a star is not, and its table says why."""
    if cell is None or str(cell).endswith("*"):
        return True
    if (column.figure or "").partition(", ")[0] == "split":
        return WRITTEN[int(float(cell))] in text.split()
    if (column.figure or "").startswith(SPLITS):
        return bool(cell) == (column.name in re.split(r"[,\s]+", text))
    spelled = [f"{cell:.10g}", f"{cell:,.10g}"] if isinstance(cell, float) else [cell.strip("<>")]
    if isinstance(cell, str) and cell.endswith("min"):  # "38.45 and 34.3 minutes"
        spelled.append(cell.removesuffix("min"))
    return any(re.search(rf"(?<![\d.,]){re.escape(one)}(?!\d)", text) for one in spelled)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("5 hrs", "5 eons", "'5 eons' is neither a number nor OOM"),
        ("text: arXiv", "test: arXiv", "test"),
    ],
)
def test_a_bad_file_is_one_line_with_its_place(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    for name, text in (("good", GOOD), ("bad", GOOD.replace(old, new))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "published.yaml").write_text(text)
        (tmp_path / name / "scoring.yaml").write_text("reproduced: all of it")
    assert load_paper(tmp_path / "good")[0].tables[0].rows[0].cells == ("1.5", "5 hrs")
    with pytest.raises(InputError, match=re.escape(message)) as error:
        load_paper(tmp_path / "bad")
    assert "published.yaml" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_cell_may_have_a_unit_of_its_own_and_a_mark() -> None:
    # 1.5 s; 2 minutes; half an hour; a starred number of milliseconds
    assert parse_cell("1.5", "s") == 1.5e9
    assert parse_cell("2min", "s") == 120e9
    assert parse_cell("0.5hrs", "s") == 1800e9
    assert parse_cell("865.519*", "ms") == pytest.approx(865.519e6)
    assert parse_cell(None, "s") is None
