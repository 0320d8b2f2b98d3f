"""Which part of `auto` earns its place: the default whole, and without one part at a time.

Each part that can be left out is a method of its own here, ``auto-without-<part>``, so that an
ablation is a study like any other (``ablation.yaml`` and ``trial.yaml`` beside it), which goes on
where it was interrupted. A part is left out by what replaces its functions while `auto` runs, in
one process.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import yaml

from placegap.experiments.research.record import logged_cells
from placegap.experiments.studies.gaps import FAILURES, NOT_RUN, GapCell
from placegap.experiments.studies.run import run_study
from placegap.instances.problem import Objective
from placegap.solvers.core.method import Params, Task
from placegap.solvers.core.registry import find_method, register, use_module
from placegap.solvers.core.result import Bound, Outcome, relative_gap
from placegap.solvers.core.starts import ALWAYS
from placegap.solvers.latency.call_rows import GroupMemory, group_memory
from placegap.solvers.latency.sections import RowSection, build_section
from placegap.solvers.latency.spine import Spine

CONFIG = Path(__file__).resolve().with_name("ablation.yaml")

ASKED = "PLACEGAP_ABLATION"
"""Set where the parts are to be methods: elsewhere they are not listed."""

WORTH, FASTER = 0.015, 0.2
"""A part stays if it lowers the mean gap of its rows by this much, or the time to a proof by such a
share. The rule was fixed before the trial ran."""

LONG_S = 1.0
"""A proof of less than a second is as long as the machine likes."""


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


def _untied_section(spine: Spine, t: int) -> RowSection:
    """A section whose groups may be in any calls, where they may be in several: a relaxation."""
    section = build_section(spine, t)
    if section.once:
        return section
    return section._replace(together=np.zeros_like(section.together))


def _untied_memory(spine: Spine) -> GroupMemory:
    """What goes with it: each call has the memory of its own nodes."""
    if spine.nodes.once:
        return group_memory(spine)
    none = np.zeros((len(spine.bottlenecks),) * 2, np.int64)
    return GroupMemory(none, none, none.astype(np.bool_))


DECOMPOSITION = "placegap.solvers.decomposition.decomposition:"
PORTFOLIO = "placegap.solvers.bounds.portfolio:"
SEARCH = "placegap.solvers.decomposition.search:SectionSearch."
KNAPSACK = "placegap.solvers.bounds.memory_knapsack:"
ROWS = "placegap.solvers.latency.call_rows:"
PATHS = ("frontier-paths", "layer-paths")
SLICING = ("slicing", "pipedream", "slicegraph")
CUTS = ("memory-cuts", "interleaved-cuts")
LISTS = ("mp-dps", "dsc-glb")
SEARCHES = ("run-moves", "disjunctive-search", "local-search")

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
    "nested-layers": Without(("layer-paths",), functions={PORTFOLIO + "layers_bound": _zero}),
    "layers-in-a-row": Without(
        functions={
            PORTFOLIO + "chain_bound": _zero,
            KNAPSACK + "stops_of": _nothing,
            "placegap.solvers.bounds.labels.layer_chain:stops_of": _nothing,
        }
    ),
    "memory-runs": Without(
        functions={
            PORTFOLIO + "memory_bound": _zero,
            DECOMPOSITION + "_runs_that_fit": _none_of_them,
        }
    ),
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
    # latency
    "linked-groups": Without(
        functions={ROWS + "build_section": _untied_section, ROWS + "group_memory": _untied_memory}
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


class Pair(NamedTuple):
    """A row's run of the whole `auto`, and its run without a part."""

    whole: GapCell
    without: GapCell


def gap_of(cell: GapCell) -> float:
    """The gap between a run's own value and bound; 1 without a plan or a bound."""
    gap = relative_gap(cell.value_ns, cell.bound_ns)
    return 1.0 if gap is None else gap


def time_ratio(pairs: Sequence[Pair]) -> float | None:
    """Median of the time with a part over that without it, of rows that both runs prove."""
    ratios = [
        (pair.whole.time_s or 0.0) / pair.without.time_s
        for pair in pairs
        if all(cell.status == "optimal" for cell in pair)
        and pair.without.time_s
        and max(pair.whole.time_s or 0.0, pair.without.time_s) > LONG_S
    ]
    return statistics.median(ratios) if ratios else None


def pairs_of(cells: Sequence[GapCell], part: str) -> list[Pair]:
    """The rows that a part was tried on, as far as both runs have ended by themselves."""
    rows: dict[tuple[str, str, int], dict[str, GapCell]] = defaultdict(dict)
    for one in cells:
        if one.cell.run is not None and one.status not in (NOT_RUN, *FAILURES):
            rows[one.cell.table, one.cell.instance_hash, one.cell.seed][one.cell.method] = one
    other = f"auto-without-{part}"
    return [Pair(row["auto"], row[other]) for row in rows.values() if {"auto", other} <= {*row}]


def table(cells: Sequence[GapCell]) -> str:
    """The page: what each part is worth on the rows that it was tried on, and whether it stays."""
    lines = [
        "| part | rows | mean gap with | without | points | time with / without | proven | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for part in PARTS:
        pairs = pairs_of(cells, part)
        if not pairs:
            continue
        whole, without = (statistics.fmean(gap_of(pair[at]) for pair in pairs) for at in (0, 1))
        ratio = time_ratio(pairs)
        stays = without - whole >= WORTH or (ratio is not None and ratio <= 1 - FASTER)
        proven = [sum(pair[at].status == "optimal" for pair in pairs) for at in (0, 1)]
        said = (
            f"{whole:.2%}",
            f"{without:.2%}",
            f"{100 * (without - whole):+.2f}",
            "-" if ratio is None else f"{ratio:.2f}",
            f"{proven[0]}, {proven[1]}",
            "stays" if stays else "goes",
        )
        lines.append(f"| {part} | {len(pairs)} | {' | '.join(said)} |")
    return "\n".join(lines)


def only(study: Path, parts: Sequence[str], out: Path) -> Path:
    """A study of the tables that try some parts."""
    raw = yaml.safe_load(study.read_text())
    wanted = {f"auto-without-{part}" for part in parts}
    kept = [row for row in raw["tables"] if wanted & {each["name"] for each in row["methods"]}]
    out.mkdir(parents=True, exist_ok=True)
    path = out / study.name
    path.write_text(yaml.safe_dump({**raw, "tables": kept}))
    return path


def main(argv: Sequence[str]) -> int:
    """Run what is missing of a study and print the table; ``--log`` only prints it."""
    parser = argparse.ArgumentParser(description="What the parts of `auto` are worth.")
    parser.add_argument("study", nargs="?", type=Path, default=CONFIG)
    parser.add_argument("--out", type=Path, help="folder of the log; default results/NAME")
    parser.add_argument("--workers", type=int, default=1, help="runs at a time")
    parser.add_argument("--parts", nargs="+", choices=PARTS, metavar="PART", help="only these")
    parser.add_argument("--log", action="store_true", help="run nothing")
    asked = parser.parse_args(argv)
    os.environ[ASKED] = "1"
    use_module(MODULE)
    study = asked.study
    if asked.parts:
        study = only(study, asked.parts, asked.out or Path("results") / study.stem)
    if asked.log:
        _, cells = logged_cells(study, asked.out)
    else:
        _, cells = run_study(study, asked.out, workers=asked.workers, modules=[MODULE], tell=print)
    print(table(cells))
    return 0


MODULE = "placegap.experiments.research.ablation"

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
