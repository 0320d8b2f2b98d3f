"""The papers' files: every number has a place, and a study can be found for every table."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from draws.tiny import SHARED

from placegap.experiments.cli import main
from placegap.experiments.research.graph_figures import (
    DEVIATION,
    FIGURES,
    OP_FIGURES,
    SPLITS,
    WITHIN,
)
from placegap.experiments.research.published import (
    Paper,
    PublishedColumn,
    PublishedTable,
    load_paper,
    load_published,
    parse_cell,
)
from placegap.experiments.running.pool import run_here
from placegap.experiments.studies import run
from placegap.experiments.studies.config import Study, load_study
from placegap.instances import InputError
from placegap.instances.transforms.table import TRANSFORMS

ROOT = Path(__file__).resolve().parents[3]
PAPERS = ROOT / "experiments" / "papers"
FILES = sorted(PAPERS.glob("*/published.yaml"))
STUDIES = sorted(set(PAPERS.glob("*/*.yaml")) - set(FILES) - set(PAPERS.glob("*/regimes.yaml")))
GOOD = """
paper: xu2022
text: arXiv
tables:
  - name: one
    title: One
    source: table 1
    unit: s
    columns: [{name: A, method: a}, {name: B}]
    rows: [{name: Net, instance: net, cells: ["1.5", 5 hrs]}]
"""


@pytest.fixture(scope="module", params=FILES, ids=lambda path: path.parent.name)
def paper(request: pytest.FixtureRequest) -> tuple[Path, Paper]:
    return request.param, load_paper(request.param)


def test_a_papers_file_names_a_paper_of_the_references(paper: tuple[Path, Paper]) -> None:
    keys = re.findall(
        r"^@\w+\{(\w+),", (ROOT / "docs" / "references.bib").read_text(), re.MULTILINE
    )
    assert paper[1].paper in keys


def test_every_table_of_a_paper_belongs_to_one_study(paper: tuple[Path, Paper]) -> None:
    path, content = paper
    asked = [
        name
        for study in STUDIES
        if study.parent == path.parent
        for name in asked_of(load_study(study))
    ]
    assert sorted(asked) == sorted(table.name for table in content.tables)


def asked_of(study: Study) -> tuple[str, ...]:
    """None for the studies of regimes, whose tables `regimes.yaml` names."""
    return () if study.published is None else study.published.tables


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_cell_of_a_papers_table_has_a_run_in_its_study(path: Path) -> None:
    study = load_study(path)
    if study.published is None:  # its tables are those of a regime
        return
    assert study.smoke is not None
    for table in load_published(path.parent / study.published.file, study.published.tables):
        assert missing_runs(table, study) == []


def missing_runs(table: PublishedTable, study: Study) -> list[tuple[str, str]]:
    """Rows and columns with a method or a figure, but without a table of the study for them.

    An expert's split belongs to some rows only; everything else is there for every row.
    """
    missing = []
    for column in table.columns:
        if column.figure is not None:
            check_figure(column.figure)
        method = None if column.method is None else column.method.split()[0]
        if method == "expert" or (method is None and column.figure is None):
            continue
        for row in table.rows:
            found = [
                entry.name
                for entry in study.tables
                if row.instance
                in {Path(str(i.model).removesuffix(".xls")).name for i in entry.instances}
                and (
                    row.cluster is None
                    or row.cluster in {Path(name).stem for name in entry.clusters}
                )
                and (not column.tables or entry.name in column.tables)
                and (method is None or method in {known.name for known in entry.methods})
            ]
            if len(found) != 1:
                missing.append((row.name, column.name))
    return missing


def check_figure(name: str) -> None:
    """A figure of a graph after a transform, or of estimates."""
    figure, _, more = name.partition(", ")
    if figure.startswith(DEVIATION):
        assert more in ("", *WITHIN)
    elif figure.startswith(SPLITS) or figure in OP_FIGURES:
        assert more == "" or 0 < float(more) < 1  # the least share of an op that is split
    else:
        assert figure in FIGURES
        assert more in ("", *TRANSFORMS)


TEXTS = SHARED / "papers"
WRITTEN = {0: "no", 1: "yes"}


@pytest.mark.skipif(not TEXTS.is_dir(), reason="no ../shared/papers beside this checkout")
def test_a_cell_stands_in_the_lines_of_the_text_that_its_row_names(
    paper: tuple[Path, Paper],
) -> None:
    path, content = paper
    named = [row for table in content.tables for row in table.rows if row.lines]
    if not named:
        pytest.skip("its numbers are those of programs")
    printed = (TEXTS / f"{path.parent.name}.txt").read_text()
    text = printed.replace("1021.61043.6", "1021.6 1043.6").split("\n")  # labels that touch
    for table in content.tables:
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
    good, path = tmp_path / "good.yaml", tmp_path / "published.yaml"
    good.write_text(GOOD)
    assert load_paper(good).tables[0].rows[0].cells == ("1.5", "5 hrs")
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(InputError, match=re.escape(message)) as error:
        load_paper(path)
    assert "published.yaml" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_cell_may_have_a_unit_of_its_own_and_a_mark() -> None:
    # 1.5 s; 2 minutes; half an hour; a starred number of milliseconds
    assert parse_cell("1.5", "s") == 1.5e9
    assert parse_cell("2min", "s") == 120e9
    assert parse_cell("0.5hrs", "s") == 1800e9
    assert parse_cell("865.519*", "ms") == pytest.approx(865.519e6)
    assert parse_cell(None, "s") is None


PUBLISHED = """
paper: xu2022
text: arXiv
tables:
  - name: one
    title: One
    source: table 1
    unit: "1"
    columns: [{name: A, method: single-device}, {name: ops, figure: ops}]
    rows: [{name: Net, instance: zfnet512, cells: ["1.5", 12]}]
"""
STUDY = """
name: s
published: {file: published.yaml, tables: [one]}
tables:
  - name: t
    semantics: {objective: makespan}
    instances: [zfnet512]
    clusters: [celeritas-4xV100-pcie]
    methods: [single-device]
"""


def test_a_study_prints_the_figures_of_graphs_that_a_paper_states(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "run_pool", run_here)
    (tmp_path / "published.yaml").write_text(PUBLISHED)
    (tmp_path / "s.yaml").write_text(STUDY)
    assert main(["study", str(tmp_path / "s.yaml"), "--out", str(tmp_path)]) == 0
    assert "22 (0 %; paper 12)" in capsys.readouterr().out  # zfnet512 has 22 ops
