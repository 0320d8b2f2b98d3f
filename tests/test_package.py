"""The house: folders, packages, the wheel, and the direction of imports."""

from __future__ import annotations

import ast
import doctest
import importlib
import pkgutil
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LAYERS = ("instances", "formulations", "solvers", "experiments")
FACADE = "experiments/facade"
"""The folder that is `placegap` itself."""

RESEARCH = "experiments/research"
"""What only we run: importable in a checkout, and in no wheel."""


def modules() -> list[str]:
    """Every module of placegap, by name."""
    import placegap

    names = [f"placegap.{module.name}" for module in pkgutil.iter_modules(placegap.__path__)]
    names = [name for name in names if name.removeprefix("placegap.") not in (*LAYERS, "__main__")]
    for layer in LAYERS:
        package = importlib.import_module(f"placegap.{layer}")
        names.append(package.__name__)
        found = pkgutil.walk_packages(package.__path__, package.__name__ + ".")
        names += [module.name for module in found]
    return names


def test_the_layers_are_folders_at_the_top() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    folders = {f"placegap.{name}": name for name in LAYERS}
    assert project["tool"]["setuptools"]["package-dir"] == {"placegap": FACADE, **folders}
    assert not (ROOT / "placegap").exists()


def test_the_wheel_holds_every_module_and_data_file_but_those_of_research(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", str(tmp_path)]
    copy = tmp_path / "source"
    files = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout.decode()
    for name in filter(None, files.split("\0")):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes((ROOT / name).read_bytes())
    done = subprocess.run([*command, str(copy)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    shipped = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    suffixes = (".py", ".pyi", ".html", ".css", ".js", ".yaml", ".json", ".json.gz", "py.typed")
    wanted = {
        f"placegap/{name}".replace(f"placegap/{FACADE}/", "placegap/")
        for name in filter(None, files.split("\0"))
        if name.startswith(tuple(f"{layer}/" for layer in LAYERS)) and name.endswith(suffixes)
        if not name.startswith(f"{RESEARCH}/")
    }
    assert wanted <= shipped
    assert not [name for name in shipped if RESEARCH in name]
    front = {"placegap/__init__.py", "placegap/__init__.pyi", "placegap/__main__.py"}
    assert {*front, "placegap/solving.py", "placegap/py.typed"} <= shipped
    assert not [name for name in shipped if "facade" in name]
    assert not [name for name in shipped if not name.startswith("placegap/")]


def imported_names(path: Path) -> set[str]:
    """What a file imports, inside of functions too: modules, or a module and a name of it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


@pytest.mark.parametrize("layer", LAYERS)
def test_imports_run_one_way(layer: str) -> None:
    above = LAYERS[LAYERS.index(layer) + 1 :]
    for path in sorted((ROOT / layer).rglob("*.py")):
        for name in imported_names(path):
            parts = name.split(".")
            assert parts[0] not in LAYERS, f"{path}: import placegap.{name}"
            if parts[0] == "placegap" and len(parts) > 1:
                assert parts[1] not in above, f"{path}: {layer} imports {name}"


@pytest.mark.parametrize("layer", LAYERS)
def test_nothing_below_imports_the_facade(layer: str) -> None:
    for path in sorted((ROOT / layer).rglob("*.py")):
        for name in imported_names(path):
            parts = name.split(".")
            if parts[0] == "placegap" and ROOT / FACADE not in path.parents:  # in no layer
                assert {*parts[:2]} & {*LAYERS}, f"{path}: imports {name}"


NEED_TORCH = (
    "placegap.experiments.research.pipeline_stage",
    "placegap.experiments.running.machine_link",
    "placegap.instances.torch_models.op_times",
    "placegap.instances.torch_models.joint_program",
    "placegap.instances.torch_models.training_graph",
    "placegap.experiments.research.learned.hrl",
    "placegap.experiments.research.learned.placeto",
)
"""Modules of torch's own classes, loaded where such a model is asked for."""


@pytest.mark.parametrize("name", modules())
def test_examples_in_docstrings_run(name: str) -> None:
    if name in NEED_TORCH:
        pytest.importorskip("torch", reason="needs the torch extra")
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0


@pytest.mark.parametrize("order", ["highspy, ortools", "ortools, highspy"])
def test_highspy_and_ortools_load_in_one_process_in_either_order(order: str) -> None:
    first, second = (name.strip() for name in order.split(","))
    load = {
        "highspy": "import highspy; highspy.Highs()",
        "ortools": "from ortools.sat.python import cp_model; cp_model.CpSolver()",
    }
    code = f"{load[first]}\n{load[second]}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_package_is_marked_as_typed() -> None:
    assert (ROOT / FACADE / "py.typed").is_file()  # PEP 561: it holds for all packages below


def test_one_version_is_stated_everywhere() -> None:
    stated = {
        "pyproject.toml": r'^version = "([\d.]+)"$',
        "CITATION.cff": r"^version: ([\d.]+)$",
        "CHANGELOG.md": r"^## ([\d.]+)$",
        "mkdocs.yml": r"^copyright: placegap ([\d.]+),",
    }
    found = {
        name: re.findall(form, (ROOT / name).read_text(), re.MULTILINE)[:1]
        for name, form in stated.items()
    }
    assert list(found.values()) == [found["pyproject.toml"]] * 4, found
    assert found["pyproject.toml"]
