"""What every transform keeps: no cycle, time, memory, tensors; and what its claim promises."""

from __future__ import annotations

import random

import networkx as nx
import numpy as np
import pytest
from draws.tiny import tiny_instance
from references.brute_force import oracle

from placegap.instances import (
    Instance,
    Makespan,
    MaxLoad,
    MaxLoadFwdBwd,
    Plan,
    Semantics,
    evaluate,
    example,
)
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.instances.transforms.merge import Merge
from placegap.instances.transforms.table import TRANSFORMS, coarsen, expand, loses_groups

KINDS = ("Conv", "BatchNormalization", "Relu", "Add", "MatMul")
PARAMS: dict[str, dict[str, object]] = {"pesto-merge": {"ops": 3}, "celeritas-fusion": {"reach": 3}}
SEMANTICS = (
    Makespan(channels="free"),
    Makespan(channels="link", transfers="per_tensor"),
    Makespan(channels="port"),
    MaxLoad(plans="any"),
    MaxLoad(plans="convex"),
    MaxLoad(plans="chain"),
    MaxLoadFwdBwd(plans="chain"),
)


def drawn(rng: random.Random) -> Instance:
    """A tiny instance, some of whose ops are fused by rules, and have parameters."""
    base = tiny_instance(
        rng.randrange(10**6), num_ops=rng.randint(2, 6), backward=rng.random() < 0.5, max_edges=6
    )
    ops = tuple(
        op.model_copy(update={"kind": rng.choice(KINDS), "parameter_bytes": rng.randrange(3)})
        for op in base.graph.ops
    )
    return base.with_graph(base.graph.model_copy(update={"ops": ops}))


def check_kept(merge: Merge) -> None:
    """Times, bytes and tensors are conserved, and the groups form no cycle."""
    fine, coarse, op = merge.fine, merge.coarse, merge.op
    assert sorted(set(op.tolist())) == list(range(coarse.num_ops))
    quotient: nx.DiGraph[int] = nx.DiGraph()
    index = fine.arrays.index
    ends = zip(op[index.producer].tolist(), op[index.consumer].tolist(), strict=True)
    quotient.add_edges_from((a, b) for a, b in ends if a != b)
    assert nx.is_directed_acyclic_graph(quotient)
    for c, merged in enumerate(coarse.graph.ops):
        inside = np.flatnonzero(op == c)
        specs = [fine.graph.ops[i] for i in inside]
        assert merged.resident_bytes == sum(spec.resident_bytes for spec in specs)
        assert merged.parameter_bytes == sum(spec.parameter_bytes for spec in specs)
        times = fine.arrays.time_ns[inside]
        refused = (times == UNSUPPORTED).any(axis=0)
        times = np.where(refused, UNSUPPORTED, times.sum(axis=0))
        assert coarse.arrays.time_ns[c].tolist() == times.tolist()
    pairs = set()
    for e, (edge, c) in enumerate(zip(fine.graph.edges, merge.edge.tolist(), strict=True)):
        a, b = op[index.producer[e]], op[index.consumer[e]]
        if c < 0:
            assert a == b
            continue
        kept = coarse.graph.edges[c]
        assert kept.bytes == edge.bytes
        names = coarse.graph.ops[a].name, coarse.graph.ops[b].name
        assert (kept.producer, kept.consumer) == names
        pairs.add((int(index.tensor[e]), int(b), c))
    # one merged edge per tensor and merged op that needs it
    assert len({(t, b) for t, b, _ in pairs}) == len(pairs) == len(coarse.graph.edges)


def check_transform(name: str, seed: int) -> None:
    """Draw an instance, a semantics and a plan; all that the transform promises holds."""
    rng = random.Random(f"transform-{seed}")
    instance, semantics = drawn(rng), rng.choice(SEMANTICS)
    found = coarsen(instance, name, PARAMS.get(name), semantics)
    check_kept(found.merge)
    again = coarsen(instance, name, PARAMS.get(name), semantics)
    assert again.merge.coarse.content_hash == found.merge.coarse.content_hash

    coarse = found.merge.coarse
    plan = Plan.on([rng.randrange(2) for _ in coarse.graph.ops])
    verdict = evaluate(coarse, plan, semantics)
    if verdict.feasible and found.claim != "neither":
        back = evaluate(instance, expand(found, plan), semantics)
        assert back.feasible, back.violations
        if semantics.objective != "makespan":
            assert back.value_ns == verdict.value_ns
        elif semantics.transfers == "per_tensor" or found.claim == "exact":
            assert back.value_ns is not None
            assert verdict.value_ns is not None
            assert back.value_ns <= verdict.value_ns
    if found.claim == "exact" and coarse.num_ops < instance.num_ops:
        assert oracle(coarse, semantics) == oracle(instance, semantics)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_transform_keeps_what_it_must_and_claims_no_more_than_is_true(name: str) -> None:
    for seed in range(25):
        check_transform(name, seed)


@pytest.mark.deep
@pytest.mark.parametrize("name", TRANSFORMS)
def test_it_does_so_on_many_instances(name: str) -> None:
    for seed in range(25, 400):
        check_transform(name, seed)


def test_what_is_exact_is_so_for_a_reason() -> None:
    chain, whole = MaxLoad(plans="chain"), MaxLoad(plans="any")
    ops = tuple(op.model_copy(update={"colocation": "w"}) for op in example().graph.ops[:2])
    graph = example().graph.model_copy(update={"ops": (*ops, *example().graph.ops[2:])})
    tied = example().model_copy(update={"graph": graph})

    def claim(name: str, semantics: Semantics, **params: object) -> str:
        return coarsen(tied, name, params, semantics).claim

    assert claim("colour-classes", chain) == "exact"
    assert claim("colour-classes", whole) == "restriction"  # fused cycles may be apart there
    assert claim("colour-classes", whole, fuse_cycles="no") == "exact"
    replicas = chain.model_copy(update={"replicas": True})
    assert claim("colour-classes", replicas) == "neither"  # devices may look equal afterwards
    assert claim("pesto-merge", chain, ops=2) == "restriction"
    assert claim("pesto-merge", chain, ops=4) == "exact"  # nothing is merged
    assert claim("celeritas-fusion", chain, reach=2) == "neither"  # its segments lose the groups


def test_a_group_that_segments_cut_goes_where_its_first_op_is() -> None:
    # CPD-TOPO 0, 2, 1, 3 in twos: the segments are {0, 2} and {1, 3}; 0 and 3 are one group
    ops = list(example().graph.ops)
    for i in (0, 3):
        ops[i] = ops[i].model_copy(update={"colocation": "w"})
    graph = example().graph.model_copy(update={"ops": tuple(ops)})
    tied = example().model_copy(update={"graph": graph})
    found = coarsen(tied, "celeritas-fusion", {"reach": 2})
    assert loses_groups(found.merge)
    assert expand(found, Plan.on([0, 1])).placement == ((0,), (1,), (0,), (0,))
