"""The registry: names are known at once, modules are loaded when their methods are asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

from placegap.instances import InputError
from placegap.solvers import METHODS, Method
from placegap.solvers.core.method_homes import HOMES
from placegap.solvers.core.registry import Registry, find_method, register

HEAVY = ("numba", "scipy", "networkx", "pandas", "pyomo", "highspy", "ortools", "matplotlib")


def test_a_method_is_registered_by_the_module_that_the_index_names() -> None:
    for name in HOMES:
        assert METHODS[name].name == name
        assert METHODS[name].run.__module__.removeprefix("placegap.solvers.") == HOMES[name].module
        assert METHODS[name].starts == HOMES[name].starts
        assert METHODS.origin(name) == "placegap"


def test_a_name_is_taken_once() -> None:
    with pytest.raises(InputError, match="'heft' is taken"):
        register(METHODS["heft"])


def test_a_name_of_the_package_is_taken_before_its_method_is_loaded() -> None:
    mine = Method(**{**vars(METHODS["heft"]), "run": lambda task, params: None})
    with pytest.raises(InputError, match="'heft' is taken"):
        Registry().add(mine)


def test_an_unknown_method_is_an_input_error_that_lists_the_names() -> None:
    assert "magic" not in METHODS
    with pytest.raises(InputError, match="no method 'magic'; 'placegap methods' lists them"):
        find_method("magic")


def test_a_method_of_a_user_comes_after_those_of_the_table() -> None:
    registry = Registry()
    mine = Method(**{**vars(METHODS["heft"]), "name": "mine"})
    registry.add(mine)
    assert [*registry] == [*HOMES, "mine"]
    assert len(registry) == len(HOMES) + 1
    assert registry["mine"] is mine
    del registry["mine"]
    assert "mine" not in registry


def loaded(code: str, names: tuple[str, ...]) -> set[str]:
    """Those of the modules that a fresh Python has loaded after some code."""
    script = f"{code}\nimport sys\nprint(*(set({names!r}) & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return set(done.stdout.splitlines()[-1].split())


def test_importing_the_package_loads_no_solver_and_compiles_nothing() -> None:
    code = "import placegap.instances, placegap.solvers\nlist(placegap.solvers.METHODS)"
    assert loaded(code, HEAVY) == set()


def test_asking_for_the_version_loads_nothing_that_takes_long() -> None:
    code = "from placegap.experiments.cli import main\nassert main(['--version']) == 0"
    assert loaded(code, (*HEAVY, "numpy", "pydantic", "typer")) == set()


def test_a_placer_loads_no_solver() -> None:
    code = "from placegap.solvers import METHODS\nMETHODS['heft']"
    assert loaded(code, ("pyomo", "highspy", "ortools", "pandas")) == set()
