"""The rooms of the house: who may import whom, and that names stand once and exist."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cache
from graphlib import TopologicalSorter
from itertools import pairwise
from pathlib import Path

from placegap.solvers.core.method_homes import HOMES

ROOT = Path(__file__).resolve().parents[1]
FACADE = ROOT / "experiments" / "facade"
LAYERS = ("instances", "formulations", "solvers", "experiments")

BELOW: dict[str, set[str]] = {
    "instances/kernels": set(),
    "instances/reading": set(),
    "instances/rules": set(),
    "instances/problem": {"kernels", "reading", "rules"},
    "instances/referee": {"kernels", "reading", "rules", "problem"},
    "instances/oracle": {"kernels", "reading", "rules", "problem", "referee"},
    "instances/objectives": {"kernels", "reading", "rules", "problem", "referee", "oracle"},
    "instances/costing": {"kernels", "reading", "problem"},
    "instances/files": {"reading", "problem", "referee", "costing"},
    "instances/importers": {"kernels", "reading", "problem", "costing", "files"},
    "instances/exporters": {
        *("kernels", "reading", "problem", "referee", "objectives", "costing", "files"),
        "transforms",  # lines of groups of cards are read as plans on these
    },
    "instances/certificates": {"reading", "problem", "referee", "objectives", "oracle", "files"},
    "instances/torch_models": {"reading", "problem", "costing", "files"},
    "instances/transforms": {
        *("kernels", "reading", "problem", "referee", "objectives", "costing", "files")
    },
    "instances/corpus": {"reading", "problem", "costing", "files"},
    "formulations/shared": set(),
    "formulations/moirai": {"shared"},
    "formulations/throughput_ip": {"shared"},
    "formulations/latency_ip": {"shared"},
    "solvers/core": set(),
    "solvers/local_search": {"core"},
    "solvers/chains": {"core"},
    "solvers/repeated_layers": {"core", "local_search"},
    "solvers/bounds": {"core", "local_search", "repeated_layers"},
    "solvers/models": {"core", "bounds", "chains"},
    "solvers/objectives": {"core", "bounds"},
    "solvers/solving": {"core", "bounds", "objectives"},
    "solvers/pipeline": {"core", "chains"},
    "solvers/hybrid": {"core", "chains"},
    "solvers/noncontiguous": {"core", "local_search", "chains"},
    "solvers/serving_flow": {"core", "bounds", "solving"},
    "solvers/latency": {"core", "models", "chains", "local_search"},
    "solvers/decomposition": {"core", "bounds", "models", "local_search"},
    "solvers/placers": {"core", "models", "chains", "noncontiguous"},
    "experiments/running": set(),
    "experiments/show": set(),
    "experiments/studies": {"running", "show"},
    "experiments/cli": {"running", "show", "studies"},
    "experiments/facade": {"running", "show", "cli"},
    "experiments/research": {"cli", "running", "show", "studies"},
}
"""Room, and the rooms of its layer that it may import."""


@cache
def trees() -> dict[Path, ast.Module]:
    """Every file of placegap, parsed."""
    paths = (path for layer in LAYERS for path in sorted((ROOT / layer).rglob("*.py")))
    return {path: ast.parse(path.read_text()) for path in paths}


def room(module: tuple[str, ...]) -> str:
    """The room of a module, by its name without `placegap`: its layer and the folder in it.

    Rules of objectives are below the problem, and what judges plans by them is above the referee.
    """
    if module[:2] == ("instances", "objectives") and module[-1].removesuffix(".py") in (
        "base",
        "rules",
    ):
        return "instances/rules"
    folder = ROOT.joinpath(*module[:2])
    return "/".join(module[:2]) if folder.is_dir() else module[0]


@cache
def imported(path: Path) -> list[tuple[str, ...]]:
    """Names of what a file imports of placegap, also inside of functions."""
    names = []
    for node in ast.walk(trees()[path]):
        if isinstance(node, ast.Import):
            names += [tuple(alias.name.split(".")) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            parts = tuple((node.module or "").split("."))
            for alias in node.names:
                is_module = len(parts) == 2 and ROOT.joinpath(*parts[1:], alias.name).is_dir()
                is_short = len(parts) == 1  # from placegap import ...
                names.append((*parts, alias.name) if is_module or is_short else parts)
    return [name[1:] for name in names if name[0] == "placegap"]


def edges() -> dict[tuple[str, str], list[str]]:
    """Room to room within a layer, and the files that say so."""
    found = defaultdict(list)
    for path in trees():
        name = path.relative_to(ROOT).as_posix()
        here = room(tuple(name.split("/")))
        for module in imported(path):
            there = room(module)
            if here != there and here.split("/")[0] == there.split("/")[0]:
                found[here, there].append(name)
    return found


def test_layers_import_only_what_is_below_them_and_not_the_facade() -> None:
    for path in trees():
        layer = path.relative_to(ROOT).parts[0]
        for module in imported(path) if FACADE not in path.parents else ():
            where = f"{path}: imports placegap.{'.'.join(module)}"
            assert module, where
            assert module[0] in LAYERS, where  # what is in no layer is the facade
            assert LAYERS.index(module[0]) <= LAYERS.index(layer), where


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


def test_files_make_no_circle() -> None:
    graph = defaultdict[Path, set[Path]](set)
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("placegap."):
                home = ROOT.joinpath(*(node.module or "").split(".")[1:])
                for end in (home, *(home / alias.name for alias in node.names)):
                    file = end / "__init__.py" if end.is_dir() else end.with_suffix(".py")
                    graph[path] |= {file} & trees().keys() - {path}
    TopologicalSorter(graph).prepare()  # a circle raises


BUILT_ON: set[tuple[str, str]] = {
    ("decomposition.decomposition", "local_search.annealing"),
    ("hybrid.placers", "hybrid.hybrid_cuts"),
    ("local_search.annealing", "local_search.run_moves"),
    ("placers.baechi", "placers.earliest_start"),
    ("placers.cluster_balancing", "placers.celeritas"),
    ("placers.getf", "placers.earliest_start"),
    ("placers.m_sct", "placers.baechi"),
    ("placers.serving_fits", "placers.layer_splits"),
    ("serving_flow.search", "serving_flow.rules"),
}
"""Methods that use functions of another one's module; all others use the registry."""


def test_methods_do_not_import_each_other() -> None:
    homes = {home.module for home in HOMES.values()}
    found = set()
    for path in trees():
        own = ".".join(path.relative_to(ROOT).with_suffix("").parts).removeprefix("solvers.")
        used = {".".join(module[1:]) for module in imported(path) if module[:1] == ("solvers",)}
        found |= {(own, other) for other in used & homes - {own} if own in homes}
    assert found == BUILT_ON


def test_the_table_names_every_room() -> None:
    rooms = {init.parent.name for layer in LAYERS for init in (ROOT / layer).glob("*/__init__.py")}
    assert {room.split("/")[1] for room in BELOW} == rooms | {"rules"}


def test_only_a_method_of_the_table_registers_itself() -> None:
    homes = {home.module for home in HOMES.values()}
    for path, tree in trees().items():
        calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
        registers = any(isinstance(c.func, ast.Name) and c.func.id == "register" for c in calls)
        if registers and path.is_relative_to(ROOT / "solvers"):
            home = path.relative_to(ROOT / "solvers").with_suffix("")
            assert ".".join(home.parts) in homes, path


def test_no_underscore_name_crosses_a_file() -> None:
    crossing = [
        f"{path.relative_to(ROOT)}: {alias.name}"
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("placegap")
        for alias in node.names
        if alias.name.startswith("_")
    ]
    assert crossing == []


def test_no_public_class_name_stands_twice() -> None:
    homes = defaultdict(list)
    for path, tree in trees().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(path.relative_to(ROOT).as_posix())
    assert {name: where for name, where in homes.items() if len(where) > 1} == {}


def defined_names() -> dict[str, set[str]]:
    """The names below each module, package and class, by its last name."""
    found = defaultdict[str, set[str]](set)
    for path, tree in trees().items():
        parts = path.relative_to(ROOT).with_suffix("").parts
        *above, module = parts[:-1] if path.stem == "__init__" else parts
        found[above[-1] if above else "placegap"].add(module)
        classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
        for owner, body in ((module, tree), *((node.name, node) for node in classes)):
            found[module].add(owner)
            for inner in ast.walk(body):
                match inner:
                    case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                        found[owner].add(name)
                    case ast.Name(id=name, ctx=ast.Store()):
                        found[owner].add(name)
                    case ast.Attribute(attr=name, ctx=ast.Store()):
                        found[owner].add(name)
    return found


ELSEWHERE = frozenset({"functools", "np", "numba", "rng", "subprocess", "time", "torch"})


def test_dotted_names_in_texts_exist() -> None:
    names, dead = defined_names(), []
    local = re.compile(r"(?<!`)`([a-z_]\w*(?:\.\w+)+)`(?!`)", re.IGNORECASE)
    for path in trees():
        for said in local.findall(path.read_text()):
            parts = said.split(".")
            is_file = parts[-1] in ("csv", "py", "yaml", "json", "html", "md")
            if not is_file and parts[0] not in ELSEWHERE:
                dead += [f"{path}: {said}"] * any(b not in names[a] for a, b in pairwise(parts))
    assert dead == []
