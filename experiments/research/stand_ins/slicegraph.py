"""slicegraph: topological orders from a genetic algorithm, each cut into segments optimally."""

from __future__ import annotations

from itertools import islice

import numpy as np
from pydantic import Field

from placegap.instances.kernels.array_types import Floats, Ints
from placegap.instances.problem import MaxLoad, Plan
from placegap.solvers.chains.orders import order_of_keys, orders
from placegap.solvers.chains.slices import Slicer
from placegap.solvers.core.clock import Clock, LimitReached
from placegap.solvers.core.method import EFFORT, Params, Task
from placegap.solvers.core.registry import method
from placegap.solvers.core.result import Outcome
from placegap.solvers.placers.movable_units import why_not_one_level
from placegap.solvers.placers.slicing import NO_SLICES

NOT_SLICED = 2**62  # fitness of an order without slices, or with ones twice as bad as the best


class SliceGraphParams(Params):
    """Parameters of ``slicegraph``."""

    #: Orders in each generation.
    population: int = Field(default=32, ge=4, json_schema_extra=EFFORT)
    #: Share of a generation that survives.
    elite: float = Field(default=0.25, gt=0, lt=0.5)
    #: Share of a generation that is drawn anew.
    mutants: float = Field(default=0.25, ge=0, lt=0.5)
    #: Probability that a child has the key of its elite parent.
    inherit: float = Field(default=0.7, gt=0.5, le=1)
    #: Generations after the first; a time limit may end them sooner.
    generations: int = Field(default=20, ge=0, json_schema_extra=EFFORT)


@method(
    "slicegraph",
    objectives=("max_load",),
    paper="Archer et al. 2024",
    cites="Archer et al. 2024; Goncalves and Resende 2011",
    scope="max_load, chain plans",
    applies=why_not_one_level,
    packages=("numba",),
)
def slicegraph(task: Task[MaxLoad], params: SliceGraphParams) -> Outcome:
    """Cuts topological orders from a genetic algorithm.

    After Archer, Fahrbach, Liu and Prabhu, "Practical performance guarantees for pipelined DNN
    inference" (ICML 2024): SliceGraph cuts a topological order by a DP over the places to cut, and
    a BRKGA (Goncalves, Resende, J. Heuristics 17, 2011) looks for a good order. An individual has a
    key in [0, 1) for each block; its order takes the ready block of the least key; its fitness is
    the max_load of the order's best slices. The next generation has the elite, mutants drawn anew,
    and children of an elite and another parent, key by key. A heuristic: never better than the best
    chain. O(b^2 K + pins) per individual of b blocks, less where a limit ends segments early.

    Deviations: the paper was not available: defaults of the genetic algorithm are ours; at most
    half of the first generation are the orders of `slicing`.
    """
    clock, slicer = Clock(task.limits.time_limit_s), Slicer(task)
    generator = np.random.default_rng(task.limits.seed)
    herd, message, generation = _Herd(slicer, clock), "", 0
    try:
        people = _first_generation(slicer, params, task.limits.seed, generator)
        fitness = herd.judge(people)
        for generation in range(1, params.generations + 1):  # noqa: B007 - it is reported
            by_fitness = np.argsort(fitness, kind="stable")
            people, fitness = people[by_fitness], fitness[by_fitness]
            young = _next_generation(people, params, generator)
            survivors = len(people) - len(young)
            people = np.concatenate([people[:survivors], young])
            fitness = np.concatenate([fitness[:survivors], herd.judge(young)])
    except LimitReached as limit:
        message = f"stopped in generation {generation}: {limit}"
    blocks = slicer.problem.num_blocks
    details = {"blocks": blocks, "orders": herd.judged, "generations": generation}
    if herd.device is None:
        return Outcome(message=message or NO_SLICES, details=details)
    return Outcome(Plan.on(herd.device.tolist()), message=message, details=details)


class _Herd:
    """Fitness of individuals, and the best of all so far."""

    def __init__(self, slicer: Slicer, clock: Clock) -> None:
        self.slicer, self.clock = slicer, clock
        self.value, self.judged = NOT_SLICED, 0
        self.device: Ints | None = None

    def judge(self, people: Floats) -> Ints:
        """Fitness of each."""
        problem = self.slicer.problem
        fitness = np.full(len(people), NOT_SLICED)
        for i, keys in enumerate(people):
            rank = np.empty(len(keys), np.int64)
            rank[np.argsort(keys, kind="stable")] = np.arange(len(keys))
            order = order_of_keys(*problem.arcs[:3], rank)
            limit = None if self.device is None else 2 * self.value
            found = self.slicer.slices(order, limit)
            self.judged += 1
            if found is not None:
                fitness[i] = found[0]
                if found[0] < self.value:
                    self.value, self.device = found
            self.clock.check()
        return fitness


def _first_generation(
    slicer: Slicer, params: SliceGraphParams, seed: int, generator: np.random.Generator
) -> Floats:
    blocks = slicer.problem.num_blocks
    people = generator.random((params.population, blocks))
    for keys, order in zip(
        people, islice(orders(slicer.problem, seed), params.population // 2), strict=False
    ):
        keys[order] = np.arange(blocks) / blocks
    return people


def _next_generation(
    people: Floats, params: SliceGraphParams, generator: np.random.Generator
) -> Floats:
    """Children and mutants of a generation that is sorted by fitness; the elite stays as it is."""
    size, blocks = people.shape
    elite, mutants = max(1, round(params.elite * size)), round(params.mutants * size)
    children = size - elite - mutants
    noble = people[generator.integers(0, elite, children)]
    other = people[generator.integers(elite, size, children)]
    takes = generator.random((children, blocks)) < params.inherit
    return np.concatenate([np.where(takes, noble, other), generator.random((mutants, blocks))])
