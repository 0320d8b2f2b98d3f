"""The pages of docs/: their code runs, what they name exists, no constraint family is missing."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import pkgutil
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

import placegap.formulations

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
README = ROOT / "README.md"
TEXTS = [README, ROOT / "CONTRIBUTING.md", ROOT / "experiments" / "README.md", *PAGES]
"""All that people read before the code."""

PACKAGES = ("instances", "formulations", "solvers", "experiments", "tests")
SOURCES = {
    path.relative_to(ROOT).with_suffix("").as_posix().removesuffix("/__init__"): path
    for package in PACKAGES
    for path in (ROOT / package).rglob("*.py")
}
"""Every module's file, by its path without the suffix."""

FOLDERS = {name.split("/")[-2] for name in SOURCES if "/" in name}

FORMULATIONS = placegap.formulations.__path__
MODULES = [module.name for module in pkgutil.walk_packages(FORMULATIONS, "placegap.formulations.")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_code_of_a_page_runs(page: Path) -> None:
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL):
        exec(compile(block, str(page), "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_functions_that_a_page_names_exist(page: Path) -> None:
    missing = [
        f"{module}.{name}"
        for module, name in re.findall(r"`([\w.]+)\.(\w+)`", page.read_text())
        if f"placegap.formulations.{module}" in MODULES
        and not hasattr(importlib.import_module(f"placegap.formulations.{module}"), name)
    ]
    assert missing == []


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.stem)
def test_the_files_that_a_page_links_exist(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.stem)
def test_the_paths_that_a_page_names_exist(page: Path) -> None:
    paths = re.findall(r"`([\w./*-]+(?:\.py|/))`", page.read_text())
    assert [path for path in paths if not names_a_file(path)] == []


def names_a_file(path: str) -> bool:
    """Whether a path from the root, or a bare name anywhere, exists; stars may stand in it."""
    inside = (
        ROOT.glob(path)
        if "/" in path
        else chain.from_iterable((ROOT / package).rglob(path) for package in PACKAGES)
    )
    return any(True for _ in inside)


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.stem)
def test_the_modules_that_a_page_names_exist(page: Path) -> None:
    dotted = re.findall(r"`((?:[a-z_]\w*\.)+\w+)`", page.read_text())
    modules = [name for name in dotted if not name.endswith((".gz", ".json", ".yaml"))]
    rooms = [name for name in modules if name.split(".")[0] in {"placegap", *PACKAGES, *FOLDERS}]
    assert [name for name in rooms if not names_code(name)] == []


def names_code(name: str) -> bool:
    """Whether a dotted name is the end of a module's name, or a name that such a module defines."""
    path = name.removeprefix("placegap.").replace(".", "/")
    home, _, last = path.rpartition("/")
    defines = re.compile(rf"^(?:def |class |from .* import .*\b|    )?{last}\b", re.MULTILINE)
    if name.startswith("placegap.") and not home:
        facade = ROOT / "experiments/facade"
        is_package = (ROOT / path).is_dir() or (facade / path).is_dir()
        return is_package or last in (facade / "__init__.pyi").read_text()
    return any(
        f"/{module}".endswith(f"/{path}")
        or (f"/{module}".endswith(f"/{home}") and defines.search(source.read_text()))
        for module, source in SOURCES.items()
    )


def test_the_index_names_every_page() -> None:
    linked = re.findall(r"\]\(([\w-]+\.md)\)", (DOCS / "index.md").read_text())
    assert sorted({*linked, "index.md"}) == [page.name for page in PAGES]


def keys_of_the_bibliography() -> list[str]:
    return re.findall(r"^@\w+\{([^,]+),", (DOCS / "references.bib").read_text(), flags=re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_papers_that_a_page_cites_are_in_the_bibliography(page: Path) -> None:
    _, _, section = page.read_text().partition("\n## References\n")
    cited = re.findall(r"`([a-z]+\d{4})`", section)
    assert [key for key in cited if key not in keys_of_the_bibliography()] == []
    assert bool(section) == bool(cited)


def test_the_page_of_references_lists_the_bibliography() -> None:
    listed = re.findall(r"^\| `([^`]+)` \|", (DOCS / "references.md").read_text(), re.MULTILINE)
    assert listed == sorted(set(keys_of_the_bibliography())) == keys_of_the_bibliography()


def test_the_code_that_a_paper_is_in_names_its_first_author() -> None:
    rows = re.findall(
        r"^\| `[^`]+` \| (\w+).* \| (.*) \|$", (DOCS / "references.md").read_text(), re.MULTILINE
    )
    placed = [(author, path) for author, where in rows for path in re.findall(r"`([^`]+)`", where)]
    assert len(placed) > 50
    unnamed = [
        (author, path)
        for author, path in placed
        if not any(spelled(author) in source.read_text() for source in files_of(ROOT / path))
    ]
    assert unnamed == []


def files_of(path: Path) -> list[Path]:
    return [path] if path.is_file() else list(path.rglob("*.py"))


def spelled(author: str) -> str:
    """A name as docstrings spell it, in letters of English."""
    return plain(author.replace("ü", "ue"))


def test_an_author_and_a_year_that_a_page_names_are_in_the_bibliography() -> None:
    bibliography = (DOCS / "references.bib").read_text()
    known = {
        (surname, year)
        for authors, year in re.findall(r"author = \{(.*)\},(?s:.*?)year = \{(\d+)\}", bibliography)
        for surname in re.findall(r"(?:^| and )([^,]+),", plain(authors))
    }
    cited = [
        (plain(surname), year)
        for page in TEXTS
        for surname, year in re.findall(
            r"(\w+)(?: et al\.|(?:,? and |, )\w+(?: \w+)?) \(?((?:19|20)\d\d)\b", page.read_text()
        )
        if surname not in ("NeurIPS", "ICML", "SOSP", "Me")
    ]
    assert len(cited) > 30
    assert [one for one in cited if one not in known] == []


def plain(text: str) -> str:
    """A name without its accents, as BibTeX or as Unicode writes them."""
    text = re.sub(r"\{\\[`'\"^c](?:\{(\w)\}|(\w))\}", r"\1\2", text)
    return text.translate(str.maketrans("èáçéüôí", "eaceuoi"))


def test_the_python_of_the_readme_prints_what_it_shows() -> None:
    blocks = re.findall(r"```python\n(.*?)```\n+```text\n(.*?)```", README.read_text(), re.DOTALL)
    assert len(blocks) == 2
    for code, shown in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, str(README), "exec"), {})
        assert without_times(printed.getvalue()) == without_times(shown)


def without_times(text: str) -> str:
    return re.sub(r"^time .*$", "time", text, flags=re.MULTILINE)


def test_every_constraint_family_stands_in_the_page_of_formulations() -> None:
    text = (DOCS / "formulations.md").read_text()
    assert [name for name in constraint_families() if f"`{name}`" not in text] == []


def constraint_families() -> Iterator[str]:
    """Public functions that add to a model: their first argument is `model`, they return None."""
    for name in MODULES:
        module = importlib.import_module(name)
        for function_name, function in inspect.getmembers(module, inspect.isfunction):
            if function.__module__ != module.__name__ or function_name.startswith("_"):
                continue
            signature = inspect.signature(function)
            first = next(iter(signature.parameters), None)
            adds = first == "model" and signature.return_annotation in (None, "None")
            if adds and function_name != "warm_start":
                yield f"{name.removeprefix('placegap.formulations.')}.{function_name}"
