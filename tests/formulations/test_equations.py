"""Tables of equations in the pages are made from the functions that state them."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"made_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


equations = load(ROOT / "docs" / "site" / "equations.py")
PAGES = equations.made()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_tables_of_a_page_are_those_of_the_models(page: Path) -> None:
    assert page.read_text() == PAGES[page], "run python docs/site/equations.py"


def test_a_row_has_the_paper_s_number_the_sets_the_mathematics_and_the_function() -> None:
    ((name, function),) = equations.functions("moirai.published.remote_flows")
    paper, parts, mathematics, code = equations.row(name, function)
    assert paper == "Moirai (7)"
    assert parts.split("; ")[0] == "`remote_leaves` EDGES x DEVICES"
    assert mathematics.startswith(r"$z_q \ge x_{ik} - x_{jk}, \quad")
    assert code == "`moirai.published.remote_flows`"


def rows_of_pages() -> dict[str, tuple[str, ...]]:
    names = {
        each
        for text in PAGES.values()
        for _, own, _ in equations.TABLE.findall(text)
        for each in own.split()
    }
    return {
        name: equations.row(name, function)
        for each in sorted(names)
        for name, function in equations.functions(each)
    }


@pytest.mark.parametrize(("name", "row"), rows_of_pages().items())
def test_every_row_has_a_paper_components_of_named_sets_and_mathematics(
    name: str, row: tuple[str, ...]
) -> None:
    assert all(row), name
    assert "other names" not in row[1]
    assert row[2].count("$") == 2


def test_pages_have_every_family_with_mathematics() -> None:
    modules = {name.rpartition(".")[0] for name in equations.components()}
    stated = {name for home in modules for name, _ in equations.functions(home)}
    assert stated - set(rows_of_pages()) == set()
