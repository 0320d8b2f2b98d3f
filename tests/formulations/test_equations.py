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


def test_every_family_with_mathematics_adds_what_the_table_lists() -> None:
    expressions = {"moirai.strengthened.add_durations"}
    for home in ("shared.families", "moirai.published", "moirai.strengthened"):
        for name, _ in equations.functions(home):
            assert equations.components().get(name) or name in expressions, name
