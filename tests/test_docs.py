"""The pages of docs/: their code runs, what they name exists, no constraint family is missing."""

import ast
import contextlib
import importlib.util
import inspect
import io
import pkgutil
import re
import runpy
import shlex
import sys
from collections.abc import Iterator
from functools import cache, partial
from itertools import chain
from pathlib import Path

import pytest
from references.own_methods import methods_restored, renamed
from references.page_commands import (
    LEFT_OUT,
    Command,
    commands,
    furnish,
    inline_commands,
    python_blocks,
)
from references.page_commands import PAGES as WITH_CODE
from typer.core import TyperGroup
from typer.main import get_command

import placegap.formulations
from placegap.experiments.cli import main
from placegap.experiments.cli.app import load_app
from placegap.experiments.running.pool import run_here

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.glob("*.md"), *DOCS.glob("course/*.md")])
README = ROOT / "README.md"
NO_PYTHON = {"torch": "the page's commands trace it"}
"""Code that imports one of these is compiled and not run, and why."""

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


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A reader's folder; what runs in processes of its own elsewhere runs here."""
    furnish(tmp_path)
    others = sys.modules.pop("my_models", None)  # another test has such a module, too
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("placegap.experiments.running.placing.run_pool", run_here)
    monkeypatch.setattr("placegap.experiments.studies.run.run_pool", run_here)
    with methods_restored(tmp_path):
        yield tmp_path
    sys.modules.pop("my_models", None)
    if others is not None:
        sys.modules["my_models"] = others


@pytest.mark.parametrize("page", [page for page in WITH_CODE if python_blocks(page)])
def test_the_python_of_a_page_runs_and_prints_what_it_shows(page: str, folder: Path) -> None:
    names: dict[str, object] = {"__name__": "__main__"}
    for code, shown in python_blocks(page):
        if any(re.search(rf"^(?:from|import) {name}\b", code, re.MULTILINE) for name in NO_PYTHON):
            compile(code, page, "exec")
            continue
        if '@method("restarts"' in code:  # what follows loads it from its file
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(renamed(code), page, "exec"), names)
        if shown:
            assert settled(printed.getvalue()) == settled(shown)


@pytest.mark.parametrize("page", ["README.md", *(page for page in WITH_CODE if "docs/" in page)])
def test_the_python_of_a_page_imports_only_what_is_exported(page: str) -> None:
    hidden = []
    for node in (node for code, _ in python_blocks(page) for node in ast.walk(ast.parse(code))):
        if isinstance(node, ast.Import):
            hidden += [name.name for name in node.names if name.name.startswith("placegap.")]
        elif isinstance(node, ast.ImportFrom) and str(node.module).startswith("placegap"):
            names = {name.name for name in node.names}
            hidden += [f"{node.module}.{name}" for name in names - exported(str(node.module))]
    assert hidden == []


def exported(package: str) -> set[str]:
    """What placegap, one of its layers, or `placegap.testing` exports."""
    if package == "placegap.formulations":
        return {name.removeprefix(f"{package}.") for name in MODULES}
    return set(importlib.import_module(package).__all__) if package.count(".") < 2 else set()


def settled(text: str) -> str:
    """What a program prints, without times, and who of several was first to find a plan."""
    return re.sub(r"^time .*$| \(by [\w-]+\)$", "", text, flags=re.MULTILINE)


@cache
def chains(needs_torch: bool) -> dict[str, list[Command]]:
    """What runs, by page: a study once, and again where the page goes on with its results."""
    found: dict[str, list[Command]] = {}
    ran = set[str]()
    for page in WITH_CODE:
        printed = commands(page)
        for one in printed:
            study = one.text.split()[2] if one.text.startswith("placegap study ") else ""
            goes_on = sum(study in other.text for other in printed) > 1
            is_new = study not in ran or goes_on
            if one.left_out is None and one.needs_torch == needs_torch and is_new:
                found.setdefault(page, []).append(one)
                ran |= {study} - {""}
    return found


@pytest.mark.parametrize("page", chains(needs_torch=False))
def test_the_commands_of_a_page_run_in_their_order(
    page: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_all(chains(needs_torch=False)[page], monkeypatch, capsys)


@pytest.mark.torch
@pytest.mark.parametrize("page", chains(needs_torch=True))
def test_the_commands_of_a_page_that_need_torch_run_in_their_order(
    page: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_all(chains(needs_torch=True)[page], monkeypatch, capsys)


def run_all(
    chain: list[Command], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Run commands one after another; a failing one, or other figures than shown, is an error."""
    for command in chain:
        status = status_of(command.words, monkeypatch)
        out, err = capsys.readouterr()
        place = f"{command.page}:{command.line}: {shlex.join(command.words)}"
        assert status == 0, f"{place}\n{err}"
        if command.words[:2] == ["placegap", "place"] and command.shown:  # optima have many plans
            assert figures(out) == figures(command.shown), place
        elif command.shown:
            assert [line for line in told(command.shown) if line not in told(out)] == [], place


def status_of(words: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    if words[0] == "placegap":
        return main(words[1:])
    if words[0] == "cat":
        print(Path(words[1]).read_text())
        return 0
    assert words[0] == "python", words
    is_module = words[1] == "-m"
    monkeypatch.setattr(sys, "argv", words[2:] if is_module else words[1:])
    # the types of a command's options are looked up in sys.modules["__main__"]
    run = partial(runpy.run_module, alter_sys=True) if is_module else runpy.run_path
    try:
        run(sys.argv[0], run_name="__main__")
    except SystemExit as ending:
        return ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    return 0


def figures(text: str) -> list[list[str]]:
    """Status, value, bound and gap; who found them may differ, and optima have many plans."""
    lines = re.findall(r"^ *(status|value|bound|gap) +([^(\n]+)", text, re.MULTILINE)
    return [[name, figure.strip()] for name, figure in lines]


def told(text: str) -> list[str]:
    """The lines of an output, without rules, the widths of columns, and times at the end."""
    lines = [re.sub(r" [\d.]+ m?s$", "", " ".join(line.split())) for line in text.splitlines()]
    return [line for line in lines if line.strip("─")]


@pytest.mark.parametrize("page", WITH_CODE)
def test_a_command_in_a_sentence_has_options_that_exist(page: str) -> None:
    known = get_command(load_app())
    assert isinstance(known, TyperGroup)
    for text in inline_commands(page):
        words = shlex.split(text.replace("...", ""))
        if words[:2] == ["python", "-m"]:
            assert importlib.util.find_spec(words[2]) is not None, text
        if words[0] == "make":
            assert re.search(f"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), text
        if words[0] != "placegap":
            continue
        options = {
            name
            for parameter in known.commands.get(words[1], known).params
            for name in (*parameter.opts, *parameter.secondary_opts)
        }
        asked = {word.partition("=")[0] for word in words if word.startswith("-")}
        assert asked <= options, text


def test_what_is_left_out_is_printed_and_exists() -> None:
    printed = [one for page in WITH_CODE for one in commands(page)]
    assert len(printed) > 80
    for form in LEFT_OUT:
        assert any(re.fullmatch(form, one.text) for one in printed), form
    for one in printed:
        if one.left_out is not None and one.text.startswith("python -m placegap"):
            assert importlib.util.find_spec(one.text.split()[2]) is not None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_functions_that_a_page_names_exist(page: Path) -> None:
    missing = [
        f"{module}.{name}"
        for module, name in re.findall(r"`([\w.]+)\.(\w+)`", page.read_text())
        if f"placegap.formulations.{module}" in MODULES
        and f"placegap.formulations.{module}.{name}" not in MODULES
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
    linked = re.findall(r"\]\(((?:course/)?[\w-]+\.md)\)", (DOCS / "index.md").read_text())
    assert {*linked, "index.md"} == {page.relative_to(DOCS).as_posix() for page in PAGES}


def keys_of_the_bibliography() -> list[str]:
    return re.findall(
        r"^@\w+\{([^,]+),",
        (ROOT / "instances" / "data" / "references.bib").read_text(),
        flags=re.MULTILINE,
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_papers_that_a_page_cites_are_in_the_bibliography(page: Path) -> None:
    _, _, section = page.read_text().partition("\n## References\n")
    cited = re.findall(r"`([a-z]+\d{4})`", section)
    assert [key for key in cited if key not in keys_of_the_bibliography()] == []
    assert bool(section) == bool(cited)


def test_the_bibliography_is_sorted_and_names_each_paper_once() -> None:
    assert keys_of_the_bibliography() == sorted(set(keys_of_the_bibliography()))


def test_every_constraint_family_stands_beside_its_equation() -> None:
    rows = [row for row in (DOCS / "formulations.md").read_text().splitlines() if row[:1] == "|"]
    set_in_mathematics = "\n".join(row for row in rows if re.search(r"\$[^$]*[\\_=][^$]*\$", row))
    missing = [name for name in constraint_families() if f"`{name}`" not in set_in_mathematics]
    assert missing == []


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
            is_data = function_name.endswith(("_data", "_set", "_sets", "_value"))
            is_plan = function_name.startswith(("warm_start", "set_", "require_"))
            if adds and not is_data and not is_plan:
                yield f"{name.removeprefix('placegap.formulations.')}.{function_name}"
