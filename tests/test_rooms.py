"""The rooms of the house: who may import whom, and what keeps a name in one place."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LAYERS = ("instances", "formulations", "solvers", "experiments")
MOST_NAMES = 15

BELOW: dict[str, set[str]] = {
    "instances/reading": set(),
    "instances/problem": {"reading"},
    "instances/referee": {"reading", "problem"},
    "instances/structure": {"reading", "problem", "referee"},
    "instances/costing": {"reading", "problem"},
    "instances/op_splitting": {"reading", "problem", "referee"},
    "solvers/core": set(),
    "solvers/back_ends": {"core"},
    "solvers/chains": {"core"},
    "solvers/annealing": {"core"},
    "solvers/brute_force": {"core"},
    "solvers/solving": {"core", "back_ends"},
    "solvers/models": {"core", "back_ends", "chains", "solving"},
    "solvers/ideal_dp": {"core", "chains"},
    "solvers/noncontiguous": {"core", "back_ends", "chains"},
    "solvers/latency": {"core", "back_ends", "chains", "models"},
    "solvers/decomposition": {"core", "back_ends", "models", "annealing"},
    "solvers/placers": {"core", "back_ends", "chains", "models"},
}
"""Room, and the rooms of its layer that it may import; others may import any, without circles."""


def files() -> Iterator[Path]:
    for layer in LAYERS:
        yield from sorted((ROOT / layer).rglob("*.py"))


def room(module: tuple[str, ...]) -> str:
    """The room of a module, by its name without `placegap`: its layer and the folder in it."""
    folder = ROOT.joinpath(*module[:2])
    return "/".join(module[:2]) if folder.is_dir() else module[0]


def imported(path: Path) -> Iterator[tuple[str, ...]]:
    """Names of the modules of placegap that a file imports, also inside of functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("placegap."):
            parts = tuple((node.module or "").split(".")[1:])
            for alias in node.names:
                is_module = len(parts) == 1 and (ROOT / parts[0] / alias.name).is_dir()
                yield (*parts, alias.name) if is_module else parts


def edges() -> dict[tuple[str, str], list[str]]:
    """Room to room within a layer, and the files that say so."""
    found = defaultdict(list)
    for path in files():
        name = path.relative_to(ROOT).as_posix()
        here = room(tuple(name.split("/")))
        for module in imported(path):
            there = room(module)
            if here != there and here.split("/")[0] == there.split("/")[0]:
                found[here, there].append(name)
    return found


def test_rooms_import_only_what_is_below_them() -> None:
    wrong = {
        pair: names
        for pair, names in edges().items()
        if pair[0] in BELOW and pair[1].split("/")[-1] not in BELOW[pair[0]]
        if "/" in pair[1]  # the layer's own names are loaded when they are used
    }
    assert wrong == {}


@pytest.mark.parametrize("layer", LAYERS)
def test_rooms_make_no_circle(layer: str) -> None:
    above = defaultdict(set)
    for here, there in edges():
        if here.startswith(f"{layer}/") and there.startswith(f"{layer}/"):
            above[here].add(there)
    open_ = set(above)
    while free := {here for here in open_ if not above[here] & open_}:
        open_ -= free
    assert open_ == set()


def test_every_room_of_the_table_is_there() -> None:
    assert [name for name in BELOW if not (ROOT / name).is_dir()] == []


def test_methods_do_not_import_each_other_except_where_the_table_says() -> None:
    methods = {"ideal_dp", "noncontiguous", "latency", "decomposition", "placers", "brute_force"}
    for here, there in edges():
        if here.startswith("solvers/") and there.split("/")[-1] in methods:
            pytest.fail(f"{here} imports {there}: methods speak through the registry")


def test_only_a_method_of_the_table_registers_itself() -> None:
    # a method in several files is a package, and `method` is the file that registers
    for path in sorted((ROOT / "solvers").rglob("*.py")):
        calls = (
            node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)
        )
        if any(isinstance(call.func, ast.Name) and call.func.id == "register" for call in calls):
            folder = path.parent.relative_to(ROOT / "solvers")
            alone = folder.parts[0] in {"models", "placers"}
            assert alone or path.name in {"method.py", "ip.py"}, path


def test_no_underscore_name_crosses_a_file() -> None:
    crossing = [
        f"{path.relative_to(ROOT)}: {alias.name}"
        for path in files()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("placegap")
        for alias in node.names
        if alias.name.startswith("_")
    ]
    assert crossing == []


def test_no_public_class_name_stands_twice() -> None:
    homes = defaultdict(list)
    for path in files():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(path.relative_to(ROOT).as_posix())
    assert {name: where for name, where in homes.items() if len(where) > 1} == {}


def test_every_folder_is_short_enough_to_be_read() -> None:
    folders = {path.parent for path in files()}
    long = {
        folder.relative_to(ROOT).as_posix(): len(names)
        for folder in folders | {ROOT / layer for layer in LAYERS}
        if len(names := [p.name for p in folder.iterdir() if p.name != "__pycache__"]) > MOST_NAMES
    }
    assert long == {}
