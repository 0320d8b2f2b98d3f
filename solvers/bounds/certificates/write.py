"""Write certificates: bounds that the stand-alone checker proves again, and says so beforehand."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from placegap.formulations.shared.devices import colocated_times
from placegap.instances.io.certificate_checker import Rejected
from placegap.instances.io.certificate_file import (
    Certificate,
    IdealsProof,
    LongestProof,
    PathProof,
    Proof,
    TreeProof,
    WorkProof,
    plain_document,
)
from placegap.instances.io.certificate_ideals import IdealBlocks, chain_within
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import NEVER
from placegap.instances.problem.sections import choose_chain, intervals
from placegap.instances.problem.semantics import (
    LatencySubgraphs,
    Makespan,
    MaxLoad,
    PipelineIteration,
    Semantics,
)
from placegap.solvers.bounds.certificates.chain import prove_chain
from placegap.solvers.bounds.certificates.multipliers import MOST_ROUTES, SectionLp, num_routes
from placegap.solvers.bounds.certificates.timed_terms import TimedTerms, fits
from placegap.solvers.bounds.certificates.tree import grow_tree
from placegap.solvers.bounds.spread_bound import spread_weights
from placegap.solvers.core.clock import Clock, LimitReached

Proved = tuple[Any, Proof]
"""A bound, and its proof."""

MOST_PARTS = 20_000
"""Of instances whose sections are looked at: ops and edges."""

MOST_LEAVES = 200

MOST_HALVES = 8
"""How often ideals are checked: at the bound, then half-way between what is proven and what not."""


def certify(
    instance: Instance,
    semantics: Semantics,
    time_limit_s: float | None = None,
    target_ns: float = math.inf,
) -> Certificate | None:
    """The certificate with the highest bound that is found in some seconds; None where none is.

    There is none for latency_subgraphs and pipeline_iteration, and none where some op can be
    nowhere.

    Parameters
    ----------
    instance : Instance
    semantics : Semantics
    time_limit_s : float, optional
        The cheapest certificate is written in any case.
    target_ns : float
        A bound that suffices, such as the best one known.

    Examples
    --------
    >>> from placegap.instances import Makespan, example
    >>> certify(example(), Makespan()).bound_ns
    34
    """
    if isinstance(semantics, LatencySubgraphs | PipelineIteration):
        return None
    clock = Clock(time_limit_s)
    cheapest = _cheapest(instance, semantics)
    if not fits(instance, clock):
        return _certificate(instance, semantics, *cheapest)
    parts = checked_parts(instance)
    problem = TimedTerms(parts, semantics.model_dump(mode="json"), clock)
    if not all(problem.able.values()):
        return None
    best = cheapest
    proofs = _proofs(instance, problem, parts, semantics, target_ns)
    with suppress(LimitReached):
        for bound, proof in proofs:
            if best[0] < bound < math.inf:
                best = bound, proof
            if best[0] >= target_ns:
                break
    return _certificate(instance, semantics, *best)


def checked_parts(instance: Instance) -> dict[str, Any]:
    """What the checker reads of the file of an instance."""
    document = plain_document(instance)
    graph, cluster = document["graph"], document["cluster"]
    return {
        "devices": cluster["devices"],
        "links": cluster.get("links", []),
        "edges": graph.get("edges", []),
        "ops": graph["ops"],
    }


def _certificate(
    instance: Instance, semantics: Semantics, bound_ns: int, proof: Proof
) -> Certificate:
    return Certificate(
        instance=instance.name,
        instance_hash=instance.content_hash,
        semantics=semantics,
        bound_ns=bound_ns,
        proof=proof,
    )


def _cheapest(instance: Instance, semantics: Semantics) -> Proved:
    """Work, or the longest group, on arrays; the checker finds no less, as memory is left out."""
    arrays = instance.arrays
    runs, total = arrays.group_runs, np.zeros(arrays.group_runs.shape, np.int64)
    np.add.at(total, arrays.group, arrays.time_ns.clip(0))
    work, weights = spread_weights(total, runs)
    replicas = isinstance(semantics, MaxLoad) and semantics.replicas
    if not isinstance(semantics, Makespan) and not replicas:
        longest = int(np.where(runs, total, NEVER).min(axis=1).max())
        if work < longest < NEVER:
            return longest, LongestProof()
    return work, WorkProof(weights=tuple(weights))


def _proofs(
    instance: Instance,
    problem: TimedTerms,
    parts: dict[str, Any],
    semantics: Semantics,
    target_ns: float,
) -> Iterator[Proved]:
    """Proofs and what they prove, cheapest first; each is worked out when it is asked for."""
    possible, together = colocated_times(instance)
    work = WorkProof(weights=tuple(spread_weights(together, possible)[1]))
    least = problem.work({"weights": list(work.weights)})
    yield least, work
    if not isinstance(semantics, Makespan):
        if not problem.rules.get("replicas"):
            least = max(least, longest := problem.longest({}))
            yield longest, LongestProof()
        yield from _no_chain_below(problem, parts, semantics, least, target_ns)
        return
    clock = problem.clock
    clock.check()
    yield problem.path({}), PathProof()
    if clock.left_s == 0 or len(problem.time) + len(problem.edges) > MOST_PARTS:
        return
    yield from filter(None, [prove_chain(instance, problem, clock.part(0.5))])
    if num_routes(problem, problem.able) <= MOST_ROUTES:
        windows = [s.ops for s in choose_chain(instance, intervals(instance)) if s.num_inner > 1]
        lp = SectionLp(problem, problem.able, windows=(None, *windows), clock=clock)
        tree, bound = grow_tree(
            lp, problem.able, most_leaves=MOST_LEAVES, target_ns=target_ns, clock=clock
        )
        yield bound, TreeProof(tree=tree)


def _no_chain_below(
    problem: TimedTerms, parts: dict[str, Any], semantics: Semantics, least: int, target_ns: float
) -> Iterator[Proved]:
    """What the check of ideals proves: the target, or as much as it does in the time."""
    if not isinstance(semantics, MaxLoad) or semantics.plans != "chain":
        return
    if semantics.replicas or semantics.levels == 2 or not least < target_ns < math.inf:
        return
    clock, overlap = problem.clock, semantics.load == "overlap"
    try:
        blocks = IdealBlocks(problem, parts, clock.check)
    except Rejected:  # too large
        return
    trial = most = int(target_ns)
    for _ in range(MOST_HALVES):
        try:
            if chain_within(blocks, trial - 1, overlap, clock.part(0.5).check):
                return  # the target is none
            least = trial
            yield trial, IdealsProof()
        except (LimitReached, Rejected):  # the less is to be proven, the faster it goes
            clock.check()
            most = trial
        if most - least <= 1:
            return
        trial = (least + most) // 2
