"""Balance of equal plans: as many devices, the lightest second-heaviest, the least memory."""

from __future__ import annotations

import random

from draws.pipelines import layer_row, pipeline_instance
from references.agreement import few_and_many

from placegap.instances import Instance, PipelineIteration, Plan, evaluate
from placegap.instances.objectives.staged_plans import MOST_PLANS, chains, count_chains
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


def drawn_row(rng: random.Random) -> Instance:
    """Layers in a row: moves of single cuts alone miss the balance of one of eight of these."""
    n = rng.randrange(4, 8)
    return layer_row(
        [rng.choice([0, 1, 1, 2, 4]) for _ in range(n)],
        rng.choice([None, [rng.choice([1, 2, 3]) for _ in range(n)]]),
        num_devices=rng.randrange(2, 5),
        resident_bytes=rng.choice([0, 5]),
        stash_bytes=rng.choice([0, 3, 10]),
        bytes_each=rng.choice([0, 1]),
    )


@few_and_many(25, 3025)
def test_the_plan_is_the_best_balanced_of_all_chains(seeds: range) -> None:
    proven = 0
    for seed in seeds:
        rng = random.Random(f"balance-{seed}")
        instance = pipeline_instance(seed, most_layers=5, most_devices=3)
        instance = drawn_row(rng) if seed % 2 else instance
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
