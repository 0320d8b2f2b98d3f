"""What every transform keeps: no cycle, time, memory, tensors; and what its claim promises."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from references.brute_force import oracle

from placegap.instances import (
    Cluster,
    Device,
    Edge,
    Graph,
    InputError,
    Instance,
    LatencySubgraphs,
    Link,
    Makespan,
    MaxLoad,
    MaxLoadFwdBwd,
    Op,
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
    MaxLoad(),
    MaxLoad(plans="convex"),
    MaxLoad(plans="chain"),
    MaxLoadFwdBwd(plans="chain"),
)


@st.composite
def instances(draw: st.DrawFn) -> Instance:
    """2 to 6 ops on two devices: zero times, groups, backward ops, shared tensors, tight memory."""
    n = draw(st.integers(2, 6))
    mixed = draw(st.booleans())
    backward_from = draw(st.integers(1, n)) if draw(st.booleans()) else n
    ops = []
    for i in range(n):
        times = {"gpu": draw(st.integers(0, 3)), "cpu": draw(st.integers(0, 3))}
        if mixed and draw(st.integers(0, 4)) == 0:
            del times[draw(st.sampled_from(("gpu", "cpu")))]
        ops.append(
            Op(
                name=f"op{i}",
                kind=draw(st.sampled_from(KINDS)),
                time_ns=times,
                resident_bytes=draw(st.integers(0, 2)),
                parameter_bytes=draw(st.integers(0, 2)),
                backward=i >= backward_from,
            )
        )
    group = draw(st.lists(st.sampled_from((None, None, "w", "v")), min_size=n, max_size=n))
    for label in ("w", "v"):
        inside = [op for op, name in zip(ops, group, strict=True) if name == label]
        if all("gpu" in op.time_ns for op in inside):
            for op in inside:
                ops[ops.index(op)] = op.model_copy(update={"colocation": label})
    pairs = [(a, b) for a in range(n) for b in range(a + 1, n)]
    chosen = draw(st.lists(st.sampled_from(pairs), max_size=6, unique=True))
    shared = draw(st.lists(st.integers(0, 3), min_size=n, max_size=n))
    edges = tuple(
        Edge(
            producer=f"op{a}",
            consumer=f"op{b}",
            bytes=shared[a] or a + b,
            tensor="out" if shared[a] else None,
        )
        for a, b in sorted(chosen)
    )
    memory = draw(st.sampled_from((None, 4, 6)))
    devices = (
        Device(name="d0", kind="gpu", memory_bytes=memory),
        Device(name="d1", kind="cpu" if mixed else "gpu", memory_bytes=memory),
    )
    links = tuple(
        Link(source=a, target=b, bandwidth_bytes_per_s=10**9, latency_ns=draw(st.integers(0, 1)))
        for a, b in (("d0", "d1"), ("d1", "d0"))
    )
    if not mixed:  # no device is a cpu
        ops = [op.model_copy(update={"time_ns": {"gpu": op.time_ns.get("gpu", 1)}}) for op in ops]
    return Instance(
        name="drawn",
        graph=Graph(name="drawn", ops=tuple(ops), edges=edges),
        cluster=Cluster(name="two", devices=devices, links=links),
    )


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


def check_transform(name: str, data: Any) -> None:
    """Draw an instance, a semantics and a plan; all that the transform promises holds."""
    instance = data.draw(instances())
    semantics = data.draw(st.sampled_from(SEMANTICS))
    found = coarsen(instance, name, PARAMS.get(name), semantics)
    check_kept(found.merge)
    again = coarsen(instance, name, PARAMS.get(name), semantics)
    assert again.merge.coarse.content_hash == found.merge.coarse.content_hash

    coarse = found.merge.coarse
    where = data.draw(st.lists(st.integers(0, 1), min_size=coarse.num_ops, max_size=coarse.num_ops))
    plan = Plan.on(where)
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


few = settings(
    max_examples=20, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)


@pytest.mark.parametrize("name", TRANSFORMS)
@few
@given(data=st.data())
def test_a_transform_keeps_what_it_must_and_claims_no_more_than_is_true(
    name: str, data: Any
) -> None:
    check_transform(name, data)


@pytest.mark.deep
@pytest.mark.parametrize("name", TRANSFORMS)
@settings(few, max_examples=300)
@given(data=st.data())
def test_it_does_so_on_many_instances(name: str, data: Any) -> None:
    check_transform(name, data)


def test_what_is_exact_is_so_for_a_reason() -> None:
    chain, whole = MaxLoad(plans="chain"), MaxLoad()
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


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("melt", {}, "there is no transform 'melt'; choose from moirai-fusion, "),
        ("pesto-merge", {"ops": 0}, "parameters of pesto-merge: ops: "),
        ("pesto-merge", {"reach": 3}, "parameters of pesto-merge: reach: unknown field"),
        ("celeritas-fusion", {"memory_share": "x"}, "parameters of celeritas-fusion: memory_share"),
        ("moirai-fusion", {"rules": "no/such.yaml"}, "no/such.yaml: No such file"),
    ],
)
def test_bad_parameters_are_one_line(name: str, params: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as caught:
        coarsen(example(), name, params)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "semantics",
    [
        LatencySubgraphs(),
        MaxLoad(replicas=True),
        MaxLoad(levels=2),
    ],
)
def test_zero_time_ops_stay_where_nothing_is_proved(semantics: Semantics) -> None:
    with pytest.raises(InputError, match="nothing is known to be exact"):
        coarsen(example(), "zero-time", {}, semantics)
