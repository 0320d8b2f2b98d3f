"""Learned placers beside random search and annealing, at equal numbers of evaluated placements.

``python -m placegap.experiments.research.learned.table [--results FOLDER] [--seeds N]
[--evaluations N]`` prints three tables in Markdown, and writes the log of runs
(``runs.jsonl``), the training curves (``curves.csv``) and their plot (``curves.png``). What is in
the log is not run again. With the usual numbers it takes a quarter of an hour of one core. It needs
torch for runs that are not in the log, and matplotlib for the plot. The runs are on five corpus
graphs with proven optima, and on unseen graphs of a family.
"""

from __future__ import annotations

import csv
import io
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median
from typing import TypedDict

import numpy as np
from pydantic import BaseModel

from placegap.experiments.research.learned.evaluations import CurvePoint, Evaluations
from placegap.experiments.research.learned.params import HrlParams, PlacetoParams
from placegap.experiments.research.learned.placeto_nodes import nodes_of, start_of
from placegap.experiments.show.drawing import new_figure, styles, write_figure
from placegap.experiments.show.rendering import markdown_grid
from placegap.experiments.studies.log import RunLog, run_key
from placegap.instances.corpus.corpus import best_known, load_corpus
from placegap.instances.corpus.generate import generate
from placegap.instances.files.cluster_file import load_cluster
from placegap.instances.files.output_files import write_text
from placegap.instances.problem import Instance, Makespan, Plan
from placegap.instances.reading.errors import InputError, MissingExtra
from placegap.instances.referee.evaluate import evaluate
from placegap.solvers.core.clock import now_s
from placegap.solvers.core.method import Limits, Task
from placegap.solvers.local_search.annealing import Annealing
from placegap.solvers.solving.run_method import run_method

NODES = 64  # random search and Placeto place the same merged nodes
POINTS = 50  # points of a curve of what has no updates


@dataclass(frozen=True)
class Found:
    """What one run of one search found."""

    value_ns: int | None  # the referee's, of the best plan
    #: What it began with: Placeto's and annealing's first placement, the mean of the first update
    #: of HRL, the first placement of random search.
    start_ns: float
    seconds: float  # of the search; not of compiling kernels
    curve: tuple[CurvePoint, ...]


# From a budget of placements and a seed to the best plan, and what it began with in ns.
Search = Callable[[Evaluations, int], tuple[Plan | None, float]]


def random_search(tried: Evaluations, seed: int) -> tuple[Plan | None, float]:
    """Try random placements of the merged nodes until the budget is spent."""
    nodes = nodes_of(tried.instance, NODES)
    rng = np.random.default_rng(seed)
    each, times = max(1, tried.left // POINTS), []
    while tried.left > 0:
        trial = tried.run(start_of(nodes, "random", int(rng.integers(2**31)))[nodes.node])
        times.append(trial.time_ns)
        if len(times) % each == 0:
            tried.end_update(fmean(times[-each:]))
    return tried.plan(), float(times[0])


def annealing(tried: Evaluations, seed: int) -> tuple[Plan | None, float]:
    """Anneal once, from all ops on the device that alone is fastest; a move is one placement."""
    instance = tried.instance
    nodes = nodes_of(instance, NODES)
    start = start_of(nodes, "one-device", seed)[nodes.node]
    first = tried.run(start)
    if first.excess > 0:
        return None, float(first.time_ns)
    plan = Annealing(instance, tried.semantics).run(start, seed=seed, moves=tried.left)
    return plan, float(first.time_ns)


def placeto(tried: Evaluations, seed: int) -> tuple[Plan | None, float]:
    """Train a policy of Placeto from nothing."""
    from placegap.experiments.research.learned.placeto import learn

    task = Task(tried.instance, tried.semantics, Limits(seed=seed))
    first_ns = _first_ns(tried, "one-device", seed)
    learn(task, PlacetoParams(nodes=NODES), tried)
    return tried.plan(), first_ns


def hrl(tried: Evaluations, seed: int) -> tuple[Plan | None, float]:
    """Train both policies of HRL from nothing."""
    from placegap.experiments.research.learned.hrl import learn

    learn(Task(tried.instance, tried.semantics, Limits(seed=seed)), HrlParams(), tried)
    return tried.plan(), tried.curve[0].mean_ns


# By name; all start from nothing but the instance.
SEARCHES: Mapping[str, Search] = {
    "random search": random_search,
    "annealing": annealing,
    "hrl": hrl,
    "placeto": placeto,
}


def run_search(name: str, instance: Instance, evaluations: int, seed: int) -> Found:
    """Run one search on an instance under the plainest makespan."""
    semantics = Makespan()
    tried = Evaluations(instance, semantics, evaluations, name)
    began = now_s()
    plan, start_ns = SEARCHES[name](tried, seed)
    seconds = now_s() - began
    value_ns = None if plan is None else evaluate(instance, plan, semantics).value_ns
    return Found(value_ns, start_ns, seconds, tuple(tried.curve))


def _first_ns(tried: Evaluations, start: str, seed: int) -> float:
    nodes = nodes_of(tried.instance, NODES)
    apart = Evaluations(tried.instance, tried.semantics, 1)
    return float(apart.run(start_of(nodes, start, seed)[nodes.node]).time_ns)


CLUSTER = "celeritas-4xV100-pcie"  # four equal devices, for which the policy that ships was trained

POLICY, POLICY_NODES = "blocks-4", 32

# Random numbers of the family's graphs: those of the training, and those that it never saw.
TRAINING_SEEDS, UNSEEN_SEEDS = range(100, 108), range(5)


@dataclass(frozen=True)
class Case:
    """A graph of the corpus on a cluster, whose least makespan is known."""

    graph: str
    cluster: str

    @property
    def instance(self) -> Instance:
        """The graph with times for the cluster."""
        return load_corpus(self.graph).instance(load_cluster(self.cluster))

    @property
    def optimum_ns(self) -> int:
        known = best_known(self.graph, self.cluster, Makespan())
        if known is None or known.value_ns is None or known.value_ns != known.bound_ns:
            raise InputError(f"no optimum of {self.graph} on {self.cluster} is proven")
        return known.value_ns


# On these one device alone is 1.7 % to 65 % above the optimum.
CASES = (
    Case("inception_v1", "celeritas-4xV100-pcie"),
    Case("inception_v2", "celeritas-4xV100-pcie"),
    Case("squeezenet", "moirai-intra-server"),
    Case("resnet50", "moirai-intra-server"),
    Case("shufflenet", "moirai-intra-server"),
)


class Identity(TypedDict):
    """What identifies a run."""

    graph: str
    cluster: str
    search: str
    evaluations: int
    seed: int


class LearnedRun(BaseModel):
    """A run as the log has it; `curve` has (evaluated, mean_ns, best_ns) of every update."""

    graph: str
    cluster: str
    search: str
    evaluations: int
    seed: int
    optimum_ns: int
    random_ns: int
    value_ns: int | None
    start_ns: float
    seconds: float
    curve: list[tuple[int, float, int | None]]

    @property
    def gap(self) -> float | None:
        """How far the value is above the optimum."""
        return None if self.value_ns is None else self.value_ns / self.optimum_ns - 1


def run_case(case: Case, search: str, evaluations: int, seed: int) -> dict[str, object]:
    """Run one search; what it found, for the log."""
    instance = case.instance
    found = run_search(search, instance, evaluations, seed)
    random_ns = run_method(instance, Makespan(), "random", seed=seed).value_ns
    return {
        **asdict(found),
        "curve": [list(asdict(point).values()) for point in found.curve],
        "optimum_ns": case.optimum_ns,
        "random_ns": random_ns,
    }


@dataclass(frozen=True)
class Unseen:
    """One graph of the family, and makespans in ns of several ways to place it."""

    name: str
    num_ops: int
    one_device_ns: int
    random_ns: int
    untrained_ns: int
    trained_ns: int
    annealing_ns: int
    seconds: float

    def cells(self) -> list[str]:
        """A row of the table, in percent of one device alone."""
        times = (self.random_ns, self.untrained_ns, self.trained_ns, self.annealing_ns)
        shares = [f"{time / self.one_device_ns:.1%}" for time in times]
        own = f"{self.one_device_ns / 1e6:.2f} ms"
        return [self.name, str(self.num_ops), own, *shares, f"{self.seconds:.2f}"]


def family_graph(seed: int) -> Instance:
    """A graph of the family: blocks with branches, of other sizes for other seeds."""
    sizes = {"blocks": 3 + seed % 4, "branches": 3 + seed % 3, "length": 2 + seed % 2}
    cluster = load_cluster(CLUSTER)
    kinds = {device.kind: 1.0 for device in cluster.devices}
    graph = generate("blocks", {**sizes, "kinds": kinds, "communication_ratio": 0.1}, seed=seed)
    return Instance(name=graph.name, graph=graph, cluster=cluster)


def unseen_graphs() -> Iterator[tuple[str, Instance]]:
    """Graphs of the family that the policy was not trained on."""
    for seed in UNSEEN_SEEDS:
        yield f"blocks seed {seed}", family_graph(seed)


def run_unseen(name: str, instance: Instance) -> Unseen:
    """Place a graph by the trained policy, once, and by others."""
    # Random placements are as many as the policy tries: one per node. Annealing tries as many, too.

    def value(method: str, params: dict[str, object] | None = None, seed: int = 0) -> int:
        found = run_method(instance, Makespan(), method, params, seed=seed)
        if found.value_ns is None:
            raise InputError(f"{name}: {method}: {found.message}")
        return found.value_ns

    once: dict[str, object] = {"nodes": POLICY_NODES, "train": False}
    began = run_method(instance, Makespan(), "placeto", {**once, "policy": POLICY})
    untrained = [value("placeto", once, seed) for seed in range(5)]
    searched = run_search("random search", instance, POLICY_NODES + 1, 0).value_ns
    annealed = run_search("annealing", instance, POLICY_NODES + 1, 0).value_ns
    if began.value_ns is None or searched is None or annealed is None:
        raise InputError(f"{name}: {began.message or 'no plan fits'}")
    return Unseen(
        name,
        instance.num_ops,
        value("single-device"),
        searched,
        int(median(untrained)),
        began.value_ns,
        annealed,
        began.solve_s,
    )


COLUMNS = ("graph", "cluster", "search", "seed", "evaluated", "mean_ns", "best_ns")

TICKS = (0, 5, 10, 20, 50, 100, 200, 400)  # percent; the scale is logarithmic above 10


def write_csv(runs: Sequence[LearnedRun], path: Path) -> None:
    """Write a line per update: placements so far, mean of the update, best so far."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for run in runs:
        for evaluated, mean_ns, best_ns in run.curve:
            writer.writerow(
                [
                    run.graph,
                    run.cluster,
                    run.search,
                    run.seed,
                    evaluated,
                    round(mean_ns),
                    "" if best_ns is None else best_ns,
                ]
            )
    write_text(text.getvalue(), path)


def write_plot(runs: Sequence[LearnedRun], path: Path) -> None:
    """Draw the best placement (line) and the mean of updates (dots) over placements, seed 0."""
    # A search without updates is a dashed line at what it found in the end.
    drawn = [run for run in runs if run.seed == 0 and (run.curve or run.value_ns is not None)]
    graphs = list(dict.fromkeys(run.graph for run in drawn))
    style = styles(dict.fromkeys(run.search for run in drawn))
    figure = new_figure(9, 2.4 * len(graphs))
    axes = figure.subplots(len(graphs), 1, squeeze=False)[:, 0]
    for axis, graph in zip(axes, graphs, strict=True):
        for run in (run for run in drawn if run.graph == graph):
            colour = style[run.search].color
            if not run.curve:
                axis.axhline(100 * (run.gap or 0), color=colour, ls="--", label=run.search)
                continue
            points = [point for point in run.curve if point[2] is not None]
            best = [100 * (point[2] or 0) / run.optimum_ns - 100 for point in points]
            mean = [100 * point[1] / run.optimum_ns - 100 for point in run.curve]
            axis.plot([point[0] for point in points], best, color=colour, label=run.search)
            axis.plot([point[0] for point in run.curve], mean, ".", color=colour, markersize=2)
        axis.set_title(graph, fontsize=9)
        axis.set_yscale("symlog", linthresh=10)
        axis.set_yticks(TICKS, [f"{tick} %" for tick in TICKS])
        axis.set_ylabel("above optimum")
        axis.grid(alpha=0.3)
    axes[-1].set_xlabel("evaluated placements (line: best so far, dots: mean of an update)")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)
    write_figure(figure, path)


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
