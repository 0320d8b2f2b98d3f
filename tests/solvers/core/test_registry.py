"""The registry: names are known at once, modules are loaded when their methods are asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

from placegap.instances import Makespan
from placegap.solvers import METHODS, Method, Outcome, Params, Task, method
from placegap.solvers.core.method_homes import HOMES
from placegap.solvers.core.registry import Registry

HEAVY = ("numba", "scipy", "networkx", "pandas", "pyomo", "highspy", "ortools", "matplotlib")
SOLVERS = ("pyomo", "highspy", "ortools", "pandas")


CP_SAT = """
from placegap.instances import LatencySubgraphs, Makespan, example
from placegap.solvers import run_method
for name, semantics in (("cp-sat", Makespan()), ("latency-ip", LatencySubgraphs())):
    assert run_method(example(), semantics, name, {"workers": 1}).status == "optimal"
"""


PROVE = """
from placegap.instances import *
from placegap.solvers import run_method
from placegap.experiments.running.sources import Source, load_source
instance = load_source(Source("squeezenet", "celeritas-4xV100-pcie"))
assert run_method(instance, {}, "auto", time_limit_s=60).status == "optimal"
"""
"""66 ops, of which 99 ideals are closed under predecessors."""


def test_a_method_is_registered_by_the_module_that_the_index_names() -> None:
    for name in HOMES:
        assert METHODS[name].name == name
        assert METHODS[name].run.__module__.removeprefix("placegap.solvers.") == HOMES[name].module
        assert METHODS[name].starts == HOMES[name].starts
        assert METHODS.origin(name) == "placegap"


def test_a_method_of_a_user_comes_after_those_of_the_table() -> None:
    registry = Registry()
    mine = Method(**{**vars(METHODS["heft"]), "name": "mine"})
    registry.add(mine)
    assert [*registry] == [*HOMES, "mine"]
    assert len(registry) == len(HOMES) + 1
    assert registry["mine"] is mine
    del registry["mine"]
    assert "mine" not in registry


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("import placegap.instances, placegap.solvers\nlist(placegap.solvers.METHODS)", HEAVY),
        ("from placegap.solvers import METHODS\nMETHODS['heft']", SOLVERS),
        (
            "from placegap.experiments.cli import main\nassert main(['--version']) == 0",
            (*HEAVY, "numpy", "pydantic", "typer"),
        ),
        (CP_SAT, ("pyomo", "highspy", "pandas")),
        *((PROVE.format(which), HEAVY) for which in ("MaxLoad(plans='chain')", "Makespan()")),
    ],
    ids=["the package", "a placer", "the version", "CP-SAT", "a small load", "a small makespan"],
)
def test_nothing_is_loaded_that_takes_long_and_is_not_asked_for(
    code: str, names: tuple[str, ...]
) -> None:
    script = f"{code}\nimport sys\nprint(*(set({names!r}) & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == ""


class SomeParams(Params):
    """Parameters of `some`."""


def some(task: Task[Makespan], params: SomeParams | None = None) -> Outcome:
    """ETF is a name, and so stays
    as it is.

    More is not in tables.
    """
    return Outcome()


def untyped(task, params):  # type: ignore[no-untyped-def]
    return Outcome()


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry:
    """An empty one in place of the usual one."""
    empty = Registry()
    monkeypatch.setattr("placegap.solvers.core.registry.METHODS", empty)
    return empty


def test_the_decorator_derives_parameters_summary_paper_and_keys(registry: Registry) -> None:
    cites = "Kim and Browne 1988; after Su et al. 2020 (GETF), section 4"
    assert method("some", objectives=("makespan",), cites=cites, solver="x")(some) is some
    found = registry["some"]
    assert found == Method(
        "some",
        "heuristic",
        ("makespan",),
        "Kim and Browne 1988; after Su et al. 2020 (GETF)",
        "ETF is a name, and so stays as it is",
        some,
        SomeParams,
        cites=("kim1988", "su2020, section 4"),
        solver="x",
        missing=found.missing,
        applies=found.applies,
    )


def test_a_function_without_annotations_and_docstring_is_a_method_too(registry: Registry) -> None:
    method("untyped", objectives=("makespan",), paper="me")(untyped)
    found = registry["untyped"]
    assert (found.params, found.summary, found.paper, found.cites) == (Params, "", "me", ())
