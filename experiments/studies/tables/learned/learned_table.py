"""Learned placers beside random search and annealing, at equal numbers of evaluated placements.

``python -m placegap.experiments.research.learned.table [--results FOLDER] [--seeds N]
[--evaluations N]`` prints three tables in Markdown, and writes the log of runs
(``runs.jsonl``), the training curves (``curves.csv``) and their plot (``curves.png``). What is in
the log is not run again. With the usual numbers it takes about 6 minutes of one core. It needs
torch for runs that are not in the log, and matplotlib for the plot.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median

from placegap.experiments.research.learned.table import (
    CASES,
    POLICY,
    POLICY_NODES,
    SEARCHES,
    Case,
    Identity,
    LearnedRun,
    Unseen,
    run_case,
    run_unseen,
    unseen_graphs,
    write_csv,
    write_plot,
)
from placegap.experiments.studies.log import RunLog, run_key
from placegap.experiments.studies.report import markdown_grid
from placegap.instances.problem.instance import Instance
from placegap.instances.reading.errors import InputError, MissingExtra

EVALUATIONS, SEEDS = 6_000, 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is missing, print the tables, write the curves; exit status 2 for bad input."""
    parser = ArgumentParser(prog="learned_table")
    parser.add_argument("--results", type=Path, default=Path("results/learned"))
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--evaluations", type=int, default=EVALUATIONS)
    chosen = parser.parse_args(arguments)
    if min(chosen.seeds, chosen.evaluations) < 1:
        print("--seeds and --evaluations are at least 1", file=sys.stderr)
        return 2
    try:
        with RunLog(chosen.results / "runs.jsonl") as log:
            runs = [
                _run(log, case, search, chosen.evaluations, seed)
                for case in CASES
                for search in SEARCHES
                for seed in range(chosen.seeds)
            ]
            placed = [_unseen(log, *graph) for graph in unseen_graphs()]
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    print("\n".join(tables(runs, placed)))
    write_csv(runs, chosen.results / "curves.csv")
    try:
        write_plot(runs, chosen.results / "curves.png")
    except MissingExtra as error:
        print(f"no plot: {error}", file=sys.stderr)
    return 0


def _run(log: RunLog, case: Case, search: str, evaluations: int, seed: int) -> LearnedRun:
    """The run of the log, or a new one that goes into it."""
    identity: Identity = {
        "graph": case.graph,
        "cluster": case.cluster,
        "search": search,
        "evaluations": evaluations,
        "seed": seed,
    }
    key = run_key(identity)
    if key not in log.records:
        print(f"{case.graph} {search} seed {seed}", file=sys.stderr, flush=True)
        log.append({**identity, "key": key, **run_case(case, search, evaluations, seed)})
    return LearnedRun.model_validate(log.records[key])


def _unseen(log: RunLog, name: str, instance: Instance) -> Unseen:
    """A graph of the family as the log has it, or placed now."""
    identity = {"unseen": name, "policy": POLICY, "nodes": POLICY_NODES}
    key = run_key(identity)
    if key not in log.records:
        print(name, file=sys.stderr, flush=True)
        log.append({**identity, "key": key, "found": asdict(run_unseen(name, instance))})
    return Unseen(**log.records[key]["found"])


def tables(runs: Sequence[LearnedRun], placed: Sequence[Unseen]) -> Iterator[str]:
    """Lines of all tables: how far from the optimum, against starts, and unseen graphs."""
    cases: dict[tuple[str, str], list[LearnedRun]] = {}
    for run in runs:
        cases.setdefault((run.graph, run.cluster), []).append(run)
    evaluations = max(run.evaluations for run in runs)
    yield f"**Above the proven optimum after {evaluations:,} placements: median, range of seeds**"
    yield ""
    head = ["graph, cluster", "random placement", *SEARCHES]
    yield from markdown_grid(head, [_gaps(where, found) for where, found in cases.items()])
    yield ""
    yield "**What they began with, above the optimum, and seconds of a run: medians**"
    yield ""
    yield from markdown_grid(
        ["graph", *SEARCHES], [_starts(where, found) for where, found in cases.items()]
    )
    yield ""
    yield "**A policy trained on other graphs of the family, without training on these**"
    yield ""
    yield from markdown_grid(
        [
            "graph",
            "ops",
            "one device",
            "random placements",
            "untrained policy",
            "trained policy",
            "annealing",
            "seconds of the policy",
        ],
        [graph.cells() for graph in placed],
    )


def _by_search(found: Sequence[LearnedRun]) -> Mapping[str, list[LearnedRun]]:
    return {name: [run for run in found if run.search == name] for name in SEARCHES}


def _gaps(where: tuple[str, str], found: Sequence[LearnedRun]) -> list[str]:
    random = median(run.random_ns / run.optimum_ns - 1 for run in found)
    cells = [f"{where[0]}, {where[1]}", f"{random:.1%}"]
    for runs in _by_search(found).values():
        gaps = sorted(run.gap for run in runs if run.gap is not None)
        if not gaps:
            cells.append("no plan")
            continue
        cells.append(f"{median(gaps):.1%} ({gaps[0]:.1%} to {gaps[-1]:.1%})")
    return cells


def _starts(where: tuple[str, str], found: Sequence[LearnedRun]) -> list[str]:
    cells = [where[0]]
    for runs in _by_search(found).values():
        start = median(run.start_ns / run.optimum_ns - 1 for run in runs)
        cells.append(f"{start:.1%}, {median(run.seconds for run in runs):.1f} s")
    return cells


if __name__ == "__main__":
    sys.exit(main())
