"""What is made from what methods register: the index, and the page of methods."""

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from references.agreement import compare_one, methods
from references.brute_force import makespan_draws
from references.own_methods import methods_restored, my_placer

from placegap.instances import Makespan
from placegap.solvers import METHODS, Task
from placegap.solvers.core.starts import cheapest_first

ROOT = Path(__file__).resolve().parents[3]
BIBLIOGRAPHY = (ROOT / "instances" / "data" / "references.bib").read_text()


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"made_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


tables = load(ROOT / "docs" / "site" / "methods.py")
references = load(ROOT / "docs" / "site" / "references.py")


def test_every_method_stands_in_one_section_of_the_page() -> None:
    groups = [[name for name, holds in tables.GROUPS.items() if holds(m)] for m in METHODS.values()]
    assert {len(found) for found in groups} == {1}


def test_a_method_names_the_papers_that_it_cites() -> None:
    papers = references.entries(BIBLIOGRAPHY)
    for method in METHODS.values():
        for key in (cited.partition(",")[0] for cited in method.cites):
            author = references.paper(papers[key]).partition(":")[0].replace(",", " ").split()[0]
            author = author.replace('\\"u', "ü")
            is_named = author in method.paper and papers[key]["year"] in method.paper
            assert is_named or key == "goncalves2011", (method.name, key)
        if re.search(r"\d{4}", method.paper) and "pytorch" not in method.paper:
            assert method.cites, method.name


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the placer that CONTRIBUTING shows."""
    (tmp_path / "my_placer.py").write_text(my_placer())
    monkeypatch.syspath_prepend(str(tmp_path))
    with methods_restored(tmp_path):
        yield tmp_path


def test_a_method_is_one_file(folder: Path) -> None:
    (method,) = tables.registered(folder, "")
    # it is listed, in the index and where its kind is,
    assert '"shown-placer": Home("my_placer", {"makespan": Cost(0.1, 1.0)}),' in tables.index(
        [method]
    )
    assert list(METHODS)[-1] == "shown-placer"
    page = tables.with_entries((ROOT / "docs" / "methods.md").read_text(), [*METHODS.values()])
    one_pass = page.partition("## Heuristics for one pass")[2].partition("\n## ")[0]
    text = "Each op where it runs fastest. *after Topcuoglu et al. 2002, section 4.1.*"
    assert f"### shown-placer\n\n{text}\n" in one_pass
    assert page.count("shown-placer") == 1
    # asked for starts,
    draws = makespan_draws()[:6]
    assert "shown-placer" in dict(cheapest_first(Task(draws[0], Makespan())))
    # compared with optima,
    assert method in methods("heuristic")
    compared = [compare_one(instance, Makespan(), method) for instance in draws]
    assert sum(result is not None and result.value_ns is not None for result in compared) >= 3
