"""Merging given groups, and plans on their way there and back."""

from itertools import islice

import numpy as np
import pytest
from references.brute_force import more_makespan

from placegap.instances import Makespan, Plan, example, simulate
from placegap.instances.problem import parse_semantics
from placegap.instances.transforms.merge import (
    expand_plan,
    merge_groups,
    shrink_plan,
    with_all_orders,
)

FREE = Makespan(channels="free")
GROUPS = np.array([0, 1, 0, 2])


def test_a_merged_op_may_be_given_a_kind_and_the_provenance_says_what_was_done() -> None:
    merge = merge_groups(example(), GROUPS, "fused", "somebody", {0: "both"})
    assert [op.kind for op in merge.coarse.graph.ops] == ["both", "op", "op"]
    assert merge.coarse.graph.provenance.changes[-1] == "4 ops fused to 3 (after somebody)"


def test_shrinking_undoes_expanding() -> None:
    merge = merge_groups(example(), GROUPS, "merged", "nobody")
    plan = Plan.on([0, 1, 0], [[0, 2], [1]])
    assert shrink_plan(merge, expand_plan(merge, plan, FREE)) == plan
    calls = Plan(((0,), (1,), (0,)), call=(0, 0, 1))
    assert shrink_plan(merge, expand_plan(merge, calls, FREE)) == calls
    stages = Plan(((0,), (1,), (0,)), stage=(0, 1, 2))
    assert shrink_plan(merge, expand_plan(merge, stages, FREE)) == stages


def test_a_plan_that_sets_merged_ops_apart_has_no_coarse_one() -> None:
    merge = merge_groups(example(), GROUPS, "merged", "nobody")
    assert shrink_plan(merge, Plan.on([0, 0, 1, 0])) is None
    assert shrink_plan(merge, Plan(((0,),) * 4, call=(0, 0, 1, 1))) is None
    assert shrink_plan(merge, Plan(((0,),) * 4, stage=(0, 0, 1, 1))) is None


@pytest.mark.parametrize("channels", ["free", "port"])
def test_writing_down_all_orders_changes_no_time(channels: str) -> None:
    semantics = parse_semantics({"objective": "makespan", "channels": channels})
    for instance in islice(more_makespan(0), 10):
        device = [int(np.flatnonzero(row >= 0)[-1]) for row in instance.arrays.time_ns]
        plan = Plan.on(device)
        ordered = with_all_orders(instance, plan, semantics)
        assert ordered.device_order is not None
        before, after = (simulate(instance, p, semantics) for p in (plan, ordered))
        assert before.makespan_ns == after.makespan_ns
