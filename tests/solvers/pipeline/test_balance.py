"""Balance of equal plans: as many devices, the lightest second-heaviest, the least memory."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import chain, combinations

from draws import draw
from draws.pipelines import layer_row, pipeline_instance
from references.agreement import few_and_many

from placegap.instances import Instance, Op, PipelineIteration, Plan, evaluate
from placegap.instances.oracle.stage_chains import MOST_PLANS, chains, count_chains
from placegap.solvers import run_method


def balance(
    instance: Instance, semantics: PipelineIteration, plan: Plan
) -> tuple[int, int, int, int] | None:
    """Value, devices left empty, second-heaviest work, most memory; None if it breaks a rule."""
    verdict = evaluate(instance, plan, semantics)
    if not verdict.feasible or verdict.value_ns is None:
        return None
    used = [use for use in verdict.uses if use.num_ops]
    blocking = semantics.sending == "blocking"
    work = sorted(use.load_ns if blocking else use.compute_ns for use in used)
    second = work[-2] if len(used) > 1 else 0
    return verdict.value_ns, -len(used), second, max(use.memory_bytes for use in used)


def test_rows_of_layers_are_balanced_as_brute_force_over_their_cuts_says() -> None:
    # moves of single cuts alone miss one of eight of these
    for seed in range(16):
        rng = random.Random(f"rows-{seed}")
        n, count = rng.randrange(4, 8), rng.randrange(2, 5)
        row = layer_row(
            [rng.choice([0, 1, 1, 2, 4]) for _ in range(n)],
            rng.choice([None, [rng.choice([1, 2, 3]) for _ in range(n)]]),
            num_devices=count,
            resident_bytes=rng.choice([0, 5]),
            stash_bytes=rng.choice([0, 3, 10]),
            bytes_each=rng.choice([0, 1]),
        )
        semantics = PipelineIteration(
            schedule=rng.choice(["gpipe", "1f1b"]), microbatches=rng.choice([1, 1, 2, 4])
        )
        found = run_method(row, semantics, "stage-cuts")
        assert found.plan is not None
        every = (balance(row, semantics, plan) for plan in all_cuts(row, n, count))
        best = min(each for each in every if each is not None)
        assert balance(row, semantics, found.plan) == best, seed
        assert found.details["balance"] == "proven"


def all_cuts(row: Instance, num_layers: int, num_devices: int) -> Iterator[Plan]:
    """Every way to cut layers in a row."""
    for cuts in chain.from_iterable(
        combinations(range(1, num_layers), count) for count in range(num_devices)
    ):
        stage = [sum(cut <= layer for cut in cuts) for layer in range(num_layers)]
        yield Plan.on([stage[int(op.name[1:])] for op in row.graph.ops])


@few_and_many(25, 3025)
def test_the_plan_is_the_best_balanced_of_all_chains(seeds: range) -> None:
    proven = 0
    for seed in seeds:
        rng = random.Random(f"balance-{seed}")
        instance = pipeline_instance(seed, most_layers=5, most_devices=3)
        semantics = PipelineIteration(
            schedule=rng.choice(["gpipe", "1f1b"]),
            microbatches=rng.randrange(1, 4),
            sending=rng.choice(["overlap", "blocking"]),
        )
        if count_chains(instance, semantics) > MOST_PLANS:
            continue
        found = run_method(instance, semantics, "stage-cuts")
        if found.plan is None or found.details["balance"] != "proven":
            continue
        every = (balance(instance, semantics, plan) for plan in chains(instance, semantics))
        best = min(each for each in every if each is not None)
        assert balance(instance, semantics, found.plan) == best, (seed, semantics.label)
        proven += 1
    assert proven >= len(seeds) // 3


def test_a_chain_of_equal_time_takes_the_devices_of_its_own_kinds() -> None:
    # each device holds one op, and either order of them takes 7 ns: 4 + 3 or 6 + 1, the lighter
    # stage being lighter in the second
    ops = (
        Op(name="op0", time_ns={"gpu": 4, "npu": 6}, resident_bytes=1),
        Op(name="op1", time_ns={"gpu": 1, "npu": 3}, resident_bytes=1),
    )
    edges, links = draw.edges([(0, 1)], [0], [True], int), draw.links(2, lambda a, b: (10**9, 0))
    for kinds in (("gpu", "npu"), ("npu", "gpu")):
        instance = draw.instance_of("unlike", ops, edges, draw.devices(kinds, lambda k: 1), links)
        semantics = PipelineIteration(microbatches=1)
        found = run_method(instance, semantics, "stage-cuts")
        assert found.plan is not None
        assert balance(instance, semantics, found.plan) == (7, -2, 1, 1), kinds
        assert found.details["balance"] == "proven"
