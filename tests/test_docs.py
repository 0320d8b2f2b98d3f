"""The pages of docs/: their code runs, what they name exists, no constraint family is missing."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import placegap.formulations

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = sorted(DOCS.glob("*.md"))
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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_files_that_a_page_links_exist(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


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
