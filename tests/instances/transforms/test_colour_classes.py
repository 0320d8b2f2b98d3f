"""Colour classes as ops: what is contracted, what stays apart, and the same optimum as before."""

import random

import numpy as np
import pytest
from draws import draw
from draws.tiny import tiny_instance
from references.brute_force import FWD_BWD_SEMANTICS, MAX_LOAD_SEMANTICS, oracle, stage_draws

from placegap.instances import Edge, Instance, MaxLoad, Op
from placegap.instances.problem import parse_semantics
from placegap.instances.problem.blocks import contract
from placegap.instances.transforms.colocation import contract_classes
from placegap.instances.transforms.merge import Merge


def net(edges: str, **ops: str) -> Instance:
    """Edges of two letters; `ops` are groups by op name, capitals backward ops."""
    names = dict.fromkeys(edges.replace(" ", ""))
    made = tuple(
        Op(name=n, time_ns={"gpu": 1}, backward=n.isupper(), colocation=ops.get(n)) for n in names
    )
    arcs = [Edge(producer=a, consumer=b, host_time_ns=1) for a, b in edges.split()]
    return draw.instance_of("net", made, arcs, draw.devices(["gpu"]))


def groups(instance: Instance, *, fuse_cycles: bool = True) -> list[str]:
    names: dict[int, str] = {}
    merge = contract_classes(instance, fuse_cycles=fuse_cycles)
    for op, c in zip(instance.graph.ops, merge.op.tolist(), strict=True):
        names[c] = names.get(c, "") + op.name
    return sorted(names.values())


def test_a_class_is_one_op_and_what_feeds_it_back_joins_it() -> None:
    # w = {a, c}: a -> b -> c
    tied = net("ab bc cd", a="w", c="w")
    assert groups(tied) == ["abc", "d"]
    # without, b lies on the cycle a -> b -> c of ops that are one class: they keep their ops
    assert groups(tied, fuse_cycles=False) == ["a", "b", "c", "d"]
    labels = [op.colocation for op in contract_classes(tied, fuse_cycles=False).coarse.graph.ops]
    assert labels == ["w", None, "w", None]


def test_a_class_has_an_op_per_pass() -> None:
    # forward a -> b, backward B -> A, weights shared by a and A, b and B
    training = net("ab bB BA", a="1", A="1", b="2", B="2")
    merge = contract_classes(training)
    assert groups(training) == ["A", "B", "a", "b"]
    assert [op.colocation for op in merge.coarse.graph.ops] == ["1", "2", "2", "1"]
    more = net("ax xb bB BA", a="1", x="1", A="1", b="2", B="2")
    assert groups(more) == ["A", "B", "ax", "b"]


def test_a_class_without_a_forward_op_stays_an_orphan() -> None:
    # class 2 = {C, D} has no forward op. D -> B is mirrored to an arc from class 1 to class 2,
    # B -> C to one back: both are one block. C -> E is mirrored to an arc from class 3 to class 2.
    # Contracted with b, class 2 would lose it, so it stays a class; and B, C, D are on a cycle of
    # passes, so they stay ops.
    instance = net("bB BC DB CE eE", b="1", B="1", C="2", D="2", e="3", E="3")
    assert groups(instance) == ["B", "C", "D", "E", "b", "e"]
    same_blocks(contract_classes(instance))


@pytest.mark.parametrize("fuse_cycles", [True, False])
def test_classes_that_no_device_runs_together_are_not_contracted_together(
    fuse_cycles: bool,
) -> None:
    # w = {a, c} runs on the GPU, b between them on the CPU: they feed each other, and no plan is a
    # chain. d and e, which feed nothing, are contracted as ever
    tied = net("ab bc ad de", a="w", c="w", d="v", e="v")
    ops = tuple(
        op.model_copy(update={"time_ns": {"cpu" if op.name == "b" else "gpu": 1}})
        for op in tied.graph.ops
    )
    instance = draw.instance_of("two", ops, tied.graph.edges, draw.devices(["gpu", "cpu"]))
    assert groups(instance, fuse_cycles=fuse_cycles) == ["a", "b", "c", "de"]
    chain = MaxLoad(plans="chain")
    merge = contract_classes(instance, fuse_cycles=fuse_cycles)
    assert oracle(instance, chain) is oracle(merge.coarse, chain) is None


def same_blocks(merge: Merge) -> None:
    """Assert that the blocks and the arcs between them are those of the ops as they are."""
    fine = contract(merge.fine, merge_idle=False)
    coarse = contract(merge.coarse, merge_idle=False)
    pairs = np.unique(np.column_stack([fine.block, coarse.block[merge.op]]), axis=0)
    assert len(pairs) == fine.num_blocks == coarse.num_blocks
    number = pairs[:, 1]
    arcs = zip(number[fine.arc_tail].tolist(), number[fine.arc_head].tolist(), strict=True)
    assert set(arcs) == set(zip(coarse.arc_tail.tolist(), coarse.arc_head.tolist(), strict=True))


def coloured(seed: int) -> Instance:
    """A tiny instance with several colour classes, across both passes where it has two."""
    rng = random.Random(f"coloured-{seed}")
    instance = tiny_instance(
        seed,
        num_ops=6 + seed % 3,
        num_devices=2 + seed % 2,
        hosts=seed % 2,
        backward=seed % 3 > 0,
        density=0.3,
    )
    kinds = sorted({device.kind for device in instance.cluster.devices})
    labels = [None, *(f"c{j}" for j in range(rng.choice((2, 3, 4))))]
    ops = tuple(
        op.model_copy(
            update={
                "colocation": rng.choice(labels),
                "time_ns": {kind: rng.randrange(9) for kind in kinds},
            }
        )
        for op in instance.graph.ops
    )
    return instance.model_copy(update={"graph": instance.graph.model_copy(update={"ops": ops})})


def compare(seeds: range) -> int:
    """Assert that optima and blocks stay; how many instances were contracted."""
    contracted = 0
    for seed in seeds:
        instance = coloured(seed)
        for fuse_cycles in (True, False):
            merge = contract_classes(instance, fuse_cycles=fuse_cycles)
            same_blocks(merge)
            if merge.coarse.num_ops == instance.num_ops:
                continue
            contracted += 1
            kinds = ("chain",) if fuse_cycles else ("any", "chain")
            for semantics in (*MAX_LOAD_SEMANTICS, *FWD_BWD_SEMANTICS):
                if semantics.plans in kinds:
                    best = oracle(instance, semantics)
                    assert oracle(merge.coarse, semantics) == best, (seed, semantics.label)
    return contracted


def test_the_optimum_of_loads_stays() -> None:
    assert compare(range(6)) >= 5


@pytest.mark.deep
def test_the_optimum_of_loads_stays_on_many_instances() -> None:
    assert compare(range(1000, 2000)) >= 800


@pytest.mark.parametrize("plans", ["any", "chain"])
def test_the_optimum_with_two_levels_stays(plans: str) -> None:
    semantics = parse_semantics({"objective": "max_load", "plans": plans, "levels": 2})
    seen = 0
    for number, drawn in enumerate(stage_draws()[:16]):
        rng = random.Random(f"levels-{number}")
        if any(len(op.time_ns) < len(drawn.graph.ops[0].time_ns) for op in drawn.graph.ops):
            continue
        ops = tuple(
            op.model_copy(update={"colocation": rng.choice((None, "v", "w"))})
            for op in drawn.graph.ops
        )
        instance = drawn.model_copy(update={"graph": drawn.graph.model_copy(update={"ops": ops})})
        merge = contract_classes(instance, fuse_cycles=plans == "chain")
        if merge.coarse.num_ops < instance.num_ops:
            seen += 1
            assert oracle(merge.coarse, semantics) == oracle(instance, semantics)
    assert seen >= 3
