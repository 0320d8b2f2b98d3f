"""What `auto` can run: methods of the registry that prove, and those that look for plans."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count

import numpy as np

from placegap.instances.problem import (
    HybridPipeline,
    Instance,
    LatencySubgraphs,
    LoadSemantics,
    Makespan,
    MaxContext,
    MaxLoad,
    MaxLoadFwdBwd,
    PipelineIteration,
    Semantics,
)
from placegap.instances.problem.additive_memory import relax_memory
from placegap.instances.problem.integers import NO_WAY
from placegap.solvers.core.method import Task
from placegap.solvers.core.registry import METHODS, parse_params, why_not
from placegap.solvers.core.starts import task_for

SMALL_CHOICES = 1_500
"""Makespans with this many groups of ops, and edges between groups, are likely to be proven by
`decomposition` (`python -m placegap.experiments.research.bench.default`)."""

LARGE_PARTS = 20_000
"""Ops and edges beyond which a MIP or CP model of the whole fits neither into the time nor into the
memory, and one search has all of the time, for a second one would begin anew."""

KNAPSACK = "memory-knapsack"

WHOLE_MODELS = {KNAPSACK: 200_000, "archer-exact": LARGE_PARTS, "throughput-ip": LARGE_PARTS}
"""Methods that build such a model, and the most ops and edges that they do it for. Equal ops are
one class of the knapsack's, which takes 40 us for each op and edge to build."""

MOST_WIDTH = 1.5
"""Work beside the longest path: of a decoder's step it is 1.2 to 1.5 times that, of training 2."""

SEARCHES = ("run-moves", "disjunctive-search")
"""Searches of a makespan, in the order of their turns: whole layers, single ops."""

ROUND_US = 4.0
"""Microseconds that a round of `run-moves` takes for each colocation group times op or edge."""

TURN_SHARE = 1 / 3
"""Of the time that is left, for one of several searches."""

BOUNDS = "bounds"
"""Stands for the portfolio of bounds where a step names its method."""


@dataclass(frozen=True)
class AutoStep:
    """One run of a method of the registry."""

    method: str
    #: The task's own, or rules whose plans or bounds hold for it.
    semantics: Semantics
    #: Of the time that is left when it begins.
    share: float = 1.0
    params: Mapping[str, object] = field(default_factory=dict)
    seed: int = 0
    #: Whether it makes a plan of its own once, and does not search.
    is_placer: bool = False


def proving_method(semantics: Semantics) -> str:
    """The exact method that settles most instances of a problem.

    For makespan decomposition; for max_load the ideal DP where plans are chains, and column
    generation where they may be any, which comes near the optimum and leaves the proof of small
    instances to the throughput IP; for latency_subgraphs rows of calls; for pipeline_iteration
    cuts of a chain of stages; for hybrid_pipeline rows of stages; for
    max_context one load after another. Else the throughput IP.
    """
    match semantics:
        case Makespan():
            return "decomposition"
        case LatencySubgraphs():
            return "latency"
        case PipelineIteration():
            return "stage-cuts"
        case HybridPipeline():
            return "hybrid-cuts"
        case MaxContext():
            return "most-tokens"
        case MaxLoad(plans="chain"):
            return "ideal-dp"
        case MaxLoad(plans="any", replicas=False, levels=1):
            return "noncontiguous"
        case _:
            return "throughput-ip"


def proofs(task: Task) -> Iterator[AutoStep]:
    """The methods that prove and can do a task, the one that proves most first."""
    own = task.semantics
    if isinstance(own, MaxLoadFwdBwd):
        together = MaxLoad(plans=own.plans, load=own.load, memory=own.memory)
        asked = {"start": False}
        first = AutoStep(proving_method(together), together, TURN_SHARE, asked, task.limits.seed)
        yield from able(task, first)
    names = _provers(task.semantics)
    if isinstance(task.semantics, Makespan):
        names.insert(0 if _is_knapsack(task) else 1, KNAPSACK)
    yield from _proofs_by(task, names)


def _provers(semantics: Semantics) -> list[str]:
    """The methods that prove any such problem, the one that proves most first."""
    first = proving_method(semantics)
    match semantics:
        case LatencySubgraphs():
            others = ["latency-ip"]
        case MaxLoad() | MaxLoadFwdBwd():
            others = ["archer-exact", "throughput-ip"]
        case _:
            others = []
    return list(dict.fromkeys([first, *others]))


def _proofs_by(task: Task, names: Iterable[str]) -> Iterator[AutoStep]:
    """Steps of those methods that can do a task; none builds a model of a whole large graph."""
    for name in names:
        share = 0.5 if name == KNAPSACK else 1.0  # its MIP may never end
        parts = task.instance.num_parts
        if parts <= WHOLE_MODELS.get(name, parts):
            yield from able(task, AutoStep(name, task.semantics, share, seed=task.limits.seed))


def _is_knapsack(task: Task) -> bool:
    """Whether a makespan is most of all a matter of what goes where for want of memory: hosts hold
    what no other device has room for, whole layers run one after another, or nearly all ops do.
    """
    from placegap.solvers.bounds.cheap_bounds import path_ns
    from placegap.solvers.bounds.labels.layer_chain import stops_of

    if task.instance.num_parts > WHOLE_MODELS[KNAPSACK]:
        return False
    relaxed, _ = relax_memory(task.instance, task.semantics)
    arrays = relaxed.arrays
    if arrays.memory_is_slack:
        return False
    room = sum(arrays.memory_bytes[~arrays.is_host].tolist())  # some have no limit
    if sum(arrays.group_bytes.tolist()) > room or stops_of(relaxed) is not None:
        return True
    time = np.where(relaxed.arrays.possible, arrays.time_ns, NO_WAY).min(axis=1)
    return bool(sum(time.tolist()) <= MOST_WIDTH * path_ns(relaxed, transfers=False))


def memory_binds(instance: Instance, semantics: Semantics) -> bool:
    """Whether some device cannot hold all that it can run."""
    return not relax_memory(instance, semantics)[0].arrays.memory_is_slack


def is_likely_proven(task: Task) -> bool:
    """Whether the best exact method for such problems is likely to settle this one."""
    is_small = not isinstance(task.semantics, Makespan) or _choices(task.instance) <= SMALL_CHOICES
    return is_small and next(_proofs_by(task, _provers(task.semantics)), None) is not None


def _choices(instance: Instance) -> int:
    """What a makespan has to choose: groups of ops, and edges between them."""
    group, index = instance.arrays.group, instance.graph.index
    between = group[index.producer] != group[index.consumer]
    return instance.arrays.num_groups + int(between.sum())


def plans(
    task: Task, seed: int, waiting: Iterable[str] = (), workers: int = 1
) -> Iterator[AutoStep]:
    """The steps that look for plans, without end where a seed makes a difference.

    First the placers that are still `waiting`. Loads then begin with chains, for other plans, and
    with any plans, for their bound. Then the searches take turns, each time with another seed: a
    turn has its part of the time that is left. The one search of a large graph has `workers`.
    """
    own = task.semantics
    for name in waiting:
        narrower = task_for(task, name)
        if narrower is not None:
            yield AutoStep(name, narrower.semantics, TURN_SHARE, is_placer=True)
    once = []
    if isinstance(own, LoadSemantics) and own.plans != "chain":
        once.append(AutoStep("ideal-dp", own.with_plans("chain"), TURN_SHARE, {"start": False}))
    if isinstance(own, LoadSemantics) and own.plans != "any":  # whose bound holds for some of them
        once.append(AutoStep("noncontiguous", own.with_plans("any"), TURN_SHARE, {"start": False}))
    yield from able(task, *once)
    is_large = task.instance.num_parts > LARGE_PARTS
    turns = list(able(task, *_searches(task), workers=workers if is_large else 1))
    for turn in count() if turns else ():
        for step in turns:
            share = 1.0 if len(turns) == 1 else TURN_SHARE
            later = replace(step, share=share, seed=seed + turn)
            # an annealing from the plan that the same annealing has found rarely finds a better one
            yield with_params(later, {"anew": turn > 0})


def _searches(task: Task) -> list[AutoStep]:
    """The searches of a round, the one that finds most first."""
    own = task.semantics
    if isinstance(own, LoadSemantics):
        return [AutoStep("local-search", own)]
    if not isinstance(own, Makespan):
        return []
    if task.instance.num_parts > LARGE_PARTS:
        return [AutoStep("disjunctive-search", own)]
    # a round of `run-moves` that does not cool within the time leaves its plan hot
    round_s = 1e-6 * ROUND_US * task.instance.arrays.num_groups * task.instance.num_parts
    limit_s = task.limits.time_limit_s
    cools = limit_s is None or round_s <= max(1.0, limit_s)
    names = SEARCHES if cools else SEARCHES[::-1]
    return [AutoStep(name, own) for name in names]


def able(task: Task, *steps: AutoStep, workers: int = 1) -> Iterator[AutoStep]:
    """The steps that their methods can do, with as many workers as they can use."""
    for step in steps:
        method = METHODS[step.method]
        other = Task(task.instance, step.semantics, task.limits)
        if why_not(method, other, parse_params(method, step.params)) is None:
            yield with_params(step, {"workers": workers})


def with_params(step: AutoStep, params: Mapping[str, object]) -> AutoStep:
    """The step with those parameters that its method has."""
    known = METHODS[step.method].params.model_fields
    chosen = {name: value for name, value in params.items() if name in known}
    return replace(step, params={**step.params, **chosen})
