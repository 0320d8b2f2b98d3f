"""Write certificates: bounds that the stand-alone checker proves again, and says so beforehand."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from placegap.formulations.getf.groups import colocated_times
from placegap.instances.files.certificate_checker import Rejected, Terms
from placegap.instances.files.certificate_file import (
    Certificate,
    IdealsProof,
    LongestProof,
    PathProof,
    Proof,
    TreeProof,
    WorkProof,
    plain_document,
)
from placegap.instances.files.certificate_ideals import MOST_STAGES, IdealBlocks, chain_within
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.semantics import (
    LatencySubgraphs,
    Makespan,
    MaxLoad,
    PipelineIteration,
    Semantics,
)
from placegap.instances.structure.intervals import choose_chain, intervals
from placegap.solvers.bounds.certificates.chain import prove_chain
from placegap.solvers.bounds.certificates.multipliers import SectionLp
from placegap.solvers.bounds.certificates.tree import grow_tree
from placegap.solvers.bounds.spread_bound import spread_weights
from placegap.solvers.core.clock import Clock

MOST_ROUTES = 60_000
"""Of an LP of a whole instance: ways of its edges from device to device."""

MOST_PARTS = 20_000
"""Of instances whose sections are looked at: ops and edges."""

MOST_LEAVES = 200

STAGES_PER_S = 60_000
"""That the check of ideals tries: it gives up by number, so that it is deterministic."""


def certify(
    instance: Instance, semantics: Semantics, time_limit_s: float | None = None,
    target_ns: float = math.inf,
) -> Certificate | None:  # fmt: skip
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
    document, clock = plain_document(instance), Clock(time_limit_s)
    graph, cluster = document["graph"], document["cluster"]
    parts = {
        "devices": cluster["devices"],
        "links": cluster.get("links", []),
        "edges": graph.get("edges", []),
        "ops": graph["ops"],
    }
    problem = Terms(parts, semantics.model_dump(mode="json"))
    if not all(problem.able.values()):
        return None
    best: tuple[int, Proof] | None = None
    for proof in _proofs(instance, problem, semantics, clock, target_ns):
        content = proof.model_dump(mode="json", exclude_none=True)
        bound = getattr(problem, proof.kind)(content)
        if bound < math.inf and (best is None or bound > best[0]):
            best = bound, proof
        if best is not None and best[0] >= target_ns:
            break
    if _no_chain_below(problem, parts, semantics, clock, target_ns, best):
        best = int(target_ns), IdealsProof()
    if best is None:
        return None
    return Certificate(
        instance=instance.name,
        instance_hash=instance.content_hash,
        semantics=semantics,
        bound_ns=best[0],
        proof=best[1],
    )


def _no_chain_below(
    problem: Terms, parts: dict[str, Any], semantics: Semantics, clock: Clock, target_ns: float,
    best: tuple[int, Proof] | None,
) -> bool:  # fmt: skip
    """Whether the check of ideals proves the target in the time, and nothing else does."""
    if not isinstance(semantics, MaxLoad) or semantics.plans != "chain":
        return False
    if semantics.replicas or semantics.levels == 2 or not math.isfinite(target_ns):
        return False
    if clock.left_s == 0 or (best is not None and best[0] >= target_ns):
        return False
    left_s = math.inf if clock.left_s is None else clock.left_s
    most = int(min(MOST_STAGES, STAGES_PER_S * left_s))
    try:
        blocks, overlap = IdealBlocks(problem, parts), semantics.load == "overlap"
        return not chain_within(blocks, int(target_ns) - 1, overlap, most)
    except Rejected:  # too large
        return False


def _proofs(
    instance: Instance, problem: Terms, semantics: Semantics, clock: Clock, target_ns: float
) -> Iterator[Proof]:
    """Proofs, cheapest first; each is worked out when it is asked for."""
    possible, together = colocated_times(instance)
    yield WorkProof(weights=tuple(spread_weights(together, possible)[1]))
    if not isinstance(semantics, Makespan):
        if not problem.rules.get("replicas"):
            yield LongestProof()
        return
    yield PathProof()
    parts = len(problem.time) + len(problem.edges)
    if clock.left_s == 0 or parts > MOST_PARTS:
        return
    yield from filter(None, [prove_chain(instance, problem, clock.part(0.5))])
    ways = (len(problem.able[i]) * len(problem.able[j]) for i, j, _ in problem.edges)
    if clock.left_s != 0 and sum(ways) <= MOST_ROUTES:
        windows = [s.ops for s in choose_chain(instance, intervals(instance)) if s.num_inner > 1]
        lp = SectionLp(problem, problem.able, windows=(None, *windows))
        tree, _ = grow_tree(
            lp, problem.able, most_leaves=MOST_LEAVES, target_ns=target_ns, clock=clock
        )
        yield TreeProof(tree=tree)
