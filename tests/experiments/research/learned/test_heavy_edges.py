"""Merging along heavy edges: no part gets too much."""

import numpy as np
import pytest
from draws.binding_memory import binding_instance
from draws.tiny import tiny_instance

from placegap.experiments.research.learned.heavy_edges import MEMORY_PARTS, SLACK, merge_heavy_edges
from placegap.instances import Instance
from placegap.instances.problem.mean_costs import flow_of
from placegap.instances.transforms.merge import Merge
from placegap.instances.transforms.pesto_merge import merge_ops


def check_limits(merge: Merge, parts: int) -> None:
    """Work and bytes of each part, of which no limit is exceeded but by single ops."""
    arrays, k = merge.fine.arrays, merge.fine.num_devices
    limits = (flow_of(arrays).node_ns.sum() / (k * parts), arrays.memory_bytes.min() / MEMORY_PARTS)
    for held, limit in zip((flow_of(arrays).node_ns, arrays.resident_bytes), limits, strict=True):
        total = np.bincount(merge.op, held)
        most = np.zeros(len(total))
        np.maximum.at(most, merge.op, held)
        assert (total <= np.maximum(np.maximum(limit, SLACK * most), most)).all()


def draws(count: int) -> list[Instance]:
    return [draw(seed) for seed in range(count) for draw in (tiny_instance, binding_instance)]


@pytest.mark.parametrize("parts", [1, 5])
def test_no_part_has_more_than_its_share_unless_one_op_has(parts: int) -> None:
    merged = 0
    for instance in draws(12):
        merge = merge_heavy_edges(instance, parts)  # `merge_groups` refuses a cycle
        check_limits(merge, parts)
        merged += merge.coarse.num_ops < instance.num_ops
    assert merged > 1


@pytest.mark.parametrize("num_ops", [1, 4])
def test_limits_give_way_until_so_few_ops_are_left_or_no_two_can_be_merged(num_ops: int) -> None:
    reached = 0
    for instance in draws(12):
        coarse = merge_heavy_edges(instance, 4, num_ops=num_ops).coarse
        if coarse.num_ops > num_ops:
            assert merge_ops(coarse, num_ops).coarse.num_ops == coarse.num_ops
        else:
            reached += 1
    assert reached > 1
