"""Both referees read pipeline_iteration alike, on random plans."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from draws.pipelines import (
    iteration_semantics,
    layer_row,
    pipeline_instance,
    stage_plan,
    zero_bubble,
)

from placegap.instances import PipelineIteration, Plan, evaluate, recheck


def compare(seeds: range, *, updates: bool = False) -> Counter[str]:
    """Judge random plans twice; how many broke each rule."""
    rules = Counter[str]()
    for seed in seeds:
        rng = random.Random(f"iterations-{seed}")
        splits = updates and seed % 2 == 0
        instance = pipeline_instance(seed, weights=splits, updates=updates)
        semantics = zero_bubble(rng) if splits else iteration_semantics(rng)
        plan = stage_plan(instance, semantics, rng)
        first = evaluate(instance, plan, semantics)
        second = recheck(instance, plan, semantics)
        broken, again = (
            {violation.rule for violation in verdict.violations} for verdict in (first, second)
        )
        assert (first.value_ns, broken) == (second.value_ns, again), (seed, semantics.label)
        rules.update(broken or {"none"})
    return rules


def test_both_referees_agree_on_random_iterations() -> None:
    rules = compare(range(300))
    assert set(rules) >= {"none", "memory", "order", "shape", "colocation"}
    assert rules["none"] >= 90


def test_both_referees_agree_on_updates_and_zero_bubble() -> None:
    assert compare(range(150), updates=True)["none"] >= 45


@pytest.mark.deep
@pytest.mark.parametrize("updates", [False, True])
def test_both_referees_agree_on_20_000_more(updates: bool) -> None:
    compare(range(300, 20_300), updates=updates)


def test_a_group_is_in_one_stage_of_each_device_that_has_some_of_it() -> None:
    # b and c of the group a, b, c are on d1, in its stages 0 and 2; a, the first, is on d0
    row = layer_row([1, 1, 1, 1], None, num_devices=2)
    ops = [
        op.model_copy(update={"colocation": None if i == 3 else "group"})
        for i, op in enumerate(row.graph.ops)
    ]
    graph = row.graph.model_copy(update={"ops": tuple(ops), "edges": ()})
    instance = row.model_copy(update={"graph": graph})
    rules = PipelineIteration(schedule="interleaved", stages_per_device=2, microbatches=2)
    plan = replace(Plan.on([0, 1, 1, 0]), stage=(1, 0, 2, 3))
    for verdict in (evaluate(instance, plan, rules), recheck(instance, plan, rules)):
        assert {violation.rule for violation in verdict.violations} == {"colocation", "order"}
        assert verdict.value_ns is None


def test_stages_of_any_number_are_counted_at_once() -> None:
    rules, row = PipelineIteration(), layer_row([1, 2, 3, 2], [2, 4, 6, 4])
    plan = replace(Plan.on([0, 1, 2, 3] * 2), stage=(0, 1, 2, 10**30) * 2)
    for verdict in (evaluate(row, plan, rules), recheck(row, plan, rules)):
        assert "numbered from 0 on" in str(verdict.violations[0])


def test_thousands_of_microbatches_take_no_minutes() -> None:
    # a path: both passes of all stages, 8 + 16 ns, 4095 more backward events of the third stage and
    # the 4094 forward events that it does not begin with; above its work and what must come before
    # and after that, 4096 * 9 + 3 + 6
    rules = PipelineIteration(microbatches=4096)
    row, plan = layer_row([1, 2, 3, 2], [2, 4, 6, 4]), Plan.on([0, 1, 2, 3] * 2)
    assert recheck(row, plan, rules).value_ns == 24 + 4095 * 6 + 4094 * 3
