"""The rooms of the house: who may import whom, and what keeps a name in one place."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

from placegap.solvers.core.method_homes import HOMES

ROOT = Path(__file__).resolve().parents[1]
LAYERS = ("instances", "formulations", "solvers", "experiments")

BELOW: dict[str, set[str]] = {
    "instances/kernels": set(),
    "instances/reading": set(),
    "instances/problem": {"kernels", "reading"},
    "instances/referee": {"kernels", "reading", "problem"},
    "instances/oracle": {"kernels", "reading", "problem", "referee"},
    "instances/costing": {"kernels", "reading", "problem"},
    "instances/files": {"reading", "problem", "referee", "costing"},
    "instances/importers": {"kernels", "reading", "problem", "costing", "files"},
    "instances/exporters": {"reading", "problem", "referee", "costing"},
    "instances/certificates": {"reading", "problem", "referee", "oracle", "files"},
    "instances/torch_models": {"reading", "problem", "costing", "files"},
    "instances/transforms": {"kernels", "reading", "problem", "referee", "costing", "files"},
    "instances/corpus": {"reading", "problem", "costing", "files"},
    "formulations/shared": set(),
    "formulations/moirai": {"shared"},
    "formulations/throughput_ip": {"shared"},
    "formulations/latency_ip": {"shared"},
    "solvers/core": set(),
    "solvers/local_search": {"core"},
    "solvers/chains": {"core"},
    "solvers/bounds": {"core", "local_search"},
    "solvers/models": {"core", "bounds", "chains"},
    "solvers/solving": {"core", "bounds"},
    "solvers/pipeline": {"core", "chains"},
    "solvers/hybrid": {"core", "chains"},
    "solvers/noncontiguous": {"core"},
    "solvers/latency": {"core", "models", "chains"},
    "solvers/decomposition": {"core", "bounds", "models", "local_search"},
    "solvers/placers": {"core", "models", "chains"},
    "experiments/running": set(),
    "experiments/show": set(),
    "experiments/studies": {"running", "show"},
    "experiments/cli": {"running", "show", "studies"},
    "experiments/facade": {"running", "show", "cli"},
    "experiments/research": {"cli", "running", "show", "studies"},
}
"""Room, and the rooms of its layer that it may import."""


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
        (here, there): names
        for (here, there), names in edges().items()
        if "/" in here and "/" in there  # a layer's own names are loaded when they are used
        if there.split("/")[1] not in BELOW[here]
    }
    assert wrong == {}


def test_rooms_make_no_circle() -> None:
    layer_of = {room: room.split("/")[0] for room in BELOW}
    graph = {room: {f"{layer_of[room]}/{name}" for name in below} for room, below in BELOW.items()}
    TopologicalSorter(graph).prepare()  # a circle raises


def test_the_table_names_every_room() -> None:
    rooms = {init.parent.name for layer in LAYERS for init in (ROOT / layer).glob("*/__init__.py")}
    assert {room.split("/")[1] for room in BELOW} == rooms


def test_only_a_method_of_the_table_registers_itself() -> None:
    for path in sorted((ROOT / "solvers").rglob("*.py")):
        calls = (
            node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)
        )
        if any(isinstance(call.func, ast.Name) and call.func.id == "register" for call in calls):
            home = path.relative_to(ROOT / "solvers").with_suffix("")
            assert ".".join(home.parts) in {home.module for home in HOMES.values()}, path


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
