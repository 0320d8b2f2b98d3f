"""Which part of `auto` earns its place: the default whole, and without one part at a time.

Each part that can be left out is a method of its own here, ``auto-without-<part>``, so that the
ablation is a study like any other (``ablation.yaml`` beside it), which goes on where it was
interrupted. A part is left out by what replaces its functions while `auto` runs, in one process.
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from placegap.experiments.studies.gaps import GapCell
from placegap.experiments.studies.run import logged_cells, run_study
from placegap.instances.problem import Objective
from placegap.solvers.core.method import Params, Task
from placegap.solvers.core.registry import find_method, register, use_module
from placegap.solvers.core.result import Bound, Outcome
from placegap.solvers.core.starts import ALWAYS

CONFIG = Path(__file__).resolve().with_name("ablation.yaml")

ASKED = "PLACEGAP_ABLATION"
"""Set where the parts are to be methods: elsewhere nobody wants them listed."""

WORTH = 0.005
"""A part that moves no value and no bound by this share, and no time to a proof by `FASTER`, may
go."""

FASTER = 0.2


class Without(NamedTuple):
    """What is missing: placers and methods by name, and functions by what stands in for them."""

    placers: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    functions: Mapping[str, Any] = {}


def _nothing(*args: object, **kwargs: object) -> None:
    """Stand in for a function that is called for what it does."""


def _zero(*args: object, **kwargs: object) -> int:
    return 0


def _no(*args: object, **kwargs: object) -> bool:
    return False


def _none_of_them(*args: object, **kwargs: object) -> list[Any]:
    return []


def _no_bound(*args: object, **kwargs: object) -> Bound:
    return Bound(0, "")


def _no_bounds(*args: object, **kwargs: object) -> Iterator[Bound]:
    return iter(())


DECOMPOSITION = "placegap.solvers.decomposition.decomposition:"
PORTFOLIO = "placegap.solvers.bounds.portfolio:"
SEARCH = "placegap.solvers.decomposition.search:SectionSearch."
BRACKET = "placegap.solvers.chains.bracket:Bracket."
SPLITS = "placegap.solvers.noncontiguous.noncontiguous:SplitSearch."
PATHS = ("frontier-paths", "layer-paths")
SLICING = ("slicing", "pipedream", "slicegraph")
CUTS = ("memory-cuts", "interleaved-cuts")
LISTS = ("mp-dps", "dsc-glb")
SEARCHES = ("run-moves", "multilevel", "disjunctive-search", "chain-sides", "local-search")

PARTS = {
    # families
    "placers": Without((*PATHS, *SLICING, *CUTS, *LISTS, "local-search")),
    "searches": Without(methods=SEARCHES),
    "bounds": Without(functions={PORTFOLIO + "_dearer": _no_bounds}),
    "proofs": Without(methods=("decomposition", "memory-knapsack")),
    # placers
    "path-placers": Without(PATHS),
    "slicing-placers": Without(SLICING),
    "cut-placers": Without(CUTS),
    "list-placers": Without(LISTS),
    # searches
    **{name: Without(methods=(name,)) for name in SEARCHES},
    # bounds
    "nested-layers": Without(functions={PORTFOLIO + "layers_bound": _zero}),
    "frontier": Without(functions={PORTFOLIO + "frontier_bound": _zero}),
    "method-bounds": Without(
        functions={
            PORTFOLIO + "method_bound": _no_bound,
            "placegap.solvers.solving.run_exact:method_bound": lambda task, floor, limit_s: floor,
        }
    ),
    # proofs
    "memory-knapsack": Without(methods=("memory-knapsack",)),
    "other-proofs": Without(methods=("archer-exact", "throughput-ip")),
    "decomposition": Without(methods=("decomposition",)),
    "annealing-in-decomposition": Without(functions={DECOMPOSITION + "_anneal": _no}),
    "whole-model": Without(functions={DECOMPOSITION + "solve_whole": _nothing}),
    "intervals": Without(functions={DECOMPOSITION + "_intervals_alone": _none_of_them}),
    "runs-in-decomposition": Without(functions={DECOMPOSITION + "_runs_that_fit": _none_of_them}),
    "prices-of-bytes": Without(functions={DECOMPOSITION + "_price": lambda search, runs: runs}),
    "dives-of-sections": Without(
        functions={SEARCH + "dive": _nothing, SEARCH + "dive_into_memory": _nothing}
    ),
    # loads
    "stage-lps": Without(functions={BRACKET + "raise_bound": _nothing}),
    "stage-moves": Without(functions={BRACKET + "move_blocks": _nothing}),
    "beams": Without(functions={BRACKET + "beam": _nothing}),
    "dives": Without(functions={SPLITS + "dives": _nothing}),
    "mip": Without(functions={SPLITS + "turn_to_mip": _no}),
    "pair-splits": Without(
        functions={
            "placegap.solvers.noncontiguous.partition_search:PartitionSearch.improve": _nothing
        }
    ),
}
"""What can be left out, by name."""


@contextmanager
def left_out(part: Without) -> Iterator[None]:
    """Run `auto` without a part."""
    starts = import_module("placegap.solvers.core.starts")
    steps = import_module("placegap.solvers.solving.steps")
    able, missing = steps.able, {*part.placers} - {*ALWAYS}
    costs = starts.start_costs

    def kept(objective: Objective) -> dict[str, Any]:
        return {name: cost for name, cost in costs(objective).items() if name not in missing}

    def others(task: Task, *asked: Any, workers: int = 1) -> Iterator[Any]:
        yield from able(
            task, *(step for step in asked if step.method not in part.methods), workers=workers
        )

    with ExitStack() as stack:
        stack.enter_context(patch.object(starts, "start_costs", kept))
        stack.enter_context(patch.object(steps, "able", others))
        for path, instead in part.functions.items():
            module, _, name = path.partition(":")
            owner: Any = import_module(module)
            *classes, function = name.split(".")
            for each in classes:
                owner = getattr(owner, each)
            stack.enter_context(patch.object(owner, function, instead))
        yield


def _run_without(part: Without) -> Callable[[Task, Params], Outcome]:
    def run(task: Task, params: Params) -> Outcome:
        with left_out(part):
            return find_method("auto").run(task, params)

    return run


for _name, _part in PARTS.items() if ASKED in os.environ and __name__ != "__main__" else ():
    register(
        replace(
            find_method("auto"),
            name=f"auto-without-{_name}",
            summary=f"auto without {_name.replace('-', ' ')}",
            run=_run_without(_part),
        )
    )


class RowChange(NamedTuple):
    """What leaving out a part does to a row: shares of the whole `auto`, positive is worse."""

    value: float
    bound: float
    time: float


def moved(whole: GapCell, without: GapCell) -> RowChange | None:
    """How much worse a row is without a part; None where a run has failed."""
    if not (whole.value_ns and without.value_ns and whole.time_s and without.time_s):
        return None
    value = without.value_ns / whole.value_ns - 1
    bound = 1 - (without.bound_ns or 0) / whole.bound_ns if whole.bound_ns else 0.0
    are_proven = whole.status == without.status == "optimal"
    # a proof of less than a second is as long as the machine likes
    is_long = max(whole.time_s, without.time_s) > 1.0
    time = without.time_s / whole.time_s - 1 if are_proven and is_long else 0.0
    return RowChange(value, bound, time)


def table(cells: Sequence[GapCell]) -> str:
    """The page: what each part moves, on how many rows, by how much."""
    rows: dict[tuple[str, str, int], dict[str, GapCell]] = defaultdict(dict)
    for one in cells:
        rows[one.cell.table, one.cell.instance, one.cell.seed][one.cell.method] = one
    lines = [
        "| without | rows | value | bound | time to proof | moved most |",
        "|---|---|---|---|---|---|",
    ]
    for part in PARTS:
        found = {}
        for row, methods in rows.items():
            whole, other = methods.get("auto"), methods.get(f"auto-without-{part}")
            change = None if whole is None or other is None else moved(whole, other)
            if change is not None:
                found[row] = change
        if not found:
            continue
        most = max(found, key=lambda row: found[row].value + found[row].bound)
        said = " | ".join(
            (
                _said([change.value for change in found.values()], WORTH),
                _said([change.bound for change in found.values()], WORTH),
                _said([change.time for change in found.values()], FASTER),
            )
        )
        top = f"{most[1]}: {found[most].value:+.1%}, {found[most].bound:+.1%}"
        lines.append(f"| {part} | {len(found)} | {said} | {top} |")
    return "\n".join(lines)


def _said(shares: Sequence[float], least: float) -> str:
    """On how many rows it is worse and better by so much, and by how much on the first ones."""
    worse = sorted((share for share in shares if share >= least), reverse=True)
    better = sorted(share for share in shares if share <= -least)
    if not worse and not better:
        return "-"
    named = ", ".join(f"{share:+.1%}" for share in (*worse[:3], *better[:2]))
    return f"{len(worse)} worse, {len(better)} better ({named})"


def main(argv: Sequence[str]) -> int:
    """Run what is missing of the study and print the table; ``--log`` only prints it."""
    os.environ[ASKED] = "1"
    use_module(MODULE)
    if "--log" in argv:
        _, cells = logged_cells(CONFIG)
    else:
        _, cells = run_study(CONFIG, workers=1, modules=[MODULE], tell=print)
    print(table(cells))
    return 0


MODULE = "placegap.experiments.research.ablation"

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
