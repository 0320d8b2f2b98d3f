"""Searches that learned placers are compared with, and all of them at one budget of placements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from placegap.experiments.research.learned.evaluations import CurvePoint, Evaluations
from placegap.experiments.research.learned.hrl import HrlParams
from placegap.experiments.research.learned.hrl import learn as learn_hrl
from placegap.experiments.research.learned.placeto import PlacetoParams, start_of
from placegap.experiments.research.learned.placeto import learn as learn_placeto
from placegap.experiments.research.learned.placeto_nodes import nodes_of
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.plan import Plan
from placegap.instances.problem.semantics import Makespan
from placegap.instances.referee.evaluate import evaluate
from placegap.solvers.core.clock import now_s
from placegap.solvers.core.method import Limits, Task
from placegap.solvers.local_search.annealing import Annealing

NODES = 64
"""Random search and Placeto place the same merged nodes."""

POINTS = 50
"""Points of a curve of what has no updates."""


@dataclass(frozen=True)
class Found:
    """What one run of one search found.

    Attributes
    ----------
    value_ns : int or None
        The referee's, of the best plan.
    start_ns : float
        What it began with: Placeto's and annealing's first placement, the mean of the first update
        of HRL, the first placement of random search.
    seconds : float
        Of the search; not of compiling kernels.
    curve : tuple of CurvePoint
    """

    value_ns: int | None
    start_ns: float
    seconds: float
    curve: tuple[CurvePoint, ...]


Search = Callable[[Evaluations, int], tuple[Plan | None, float]]
"""From a budget of placements and a seed to the best plan, and what it began with in ns."""


def random_search(tried: Evaluations, seed: int) -> tuple[Plan | None, float]:
    """Try random placements of the merged nodes until the budget is spent.

    Examples
    --------
    >>> from placegap.instances import example
    >>> tried = Evaluations(example(), Makespan(), budget=40)
    >>> plan, first_ns = random_search(tried, seed=0)
    >>> tried.best_ns
    34
    """
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
    task = Task(tried.instance, tried.semantics, Limits(seed=seed))
    first_ns = _first_ns(tried, "one-device", seed)
    learn_placeto(task, PlacetoParams(nodes=NODES), tried)
    return tried.plan(), first_ns


def hrl(tried: Evaluations, seed: int) -> tuple[Plan | None, float]:
    """Train both policies of HRL from nothing."""
    learn_hrl(Task(tried.instance, tried.semantics, Limits(seed=seed)), HrlParams(), tried)
    return tried.plan(), tried.curve[0].mean_ns


SEARCHES: Mapping[str, Search] = {
    "random search": random_search,
    "annealing": annealing,
    "hrl": hrl,
    "placeto": placeto,
}
"""By name; all start from nothing but the instance."""


def run_search(name: str, instance: Instance, evaluations: int, seed: int) -> Found:
    """Run one search on an instance under the plainest makespan.

    Examples
    --------
    >>> from placegap.instances import example
    >>> run_search("annealing", example(), 200, seed=0).value_ns
    34
    """
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
