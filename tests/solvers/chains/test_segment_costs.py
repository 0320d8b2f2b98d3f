"""Cuts of all segments of an order, against nets that are looked at one by one."""

import random

import numpy as np
import pytest
from references.brute_force import scattered_instance

from placegap.solvers.chains.orders import order_of_keys, places_to_cut
from placegap.solvers.chains.problem import ChainProblem, build_problem
from placegap.solvers.chains.slices import joining_costs, leave_behind, touched_nets

INSTANCES = [
    scattered_instance(seed, num_ops=3 + seed % 12, num_devices=3, max_edges=25)
    for seed in range(12)
]


def random_order(problem: ChainProblem, seed: int) -> np.ndarray:
    keys = np.array(random.Random(seed).sample(range(problem.num_blocks), problem.num_blocks))
    return order_of_keys(problem.arcs.succ_ptr, problem.arcs.succ, problem.arcs.num_preds, keys)


def cut_of(problem: ChainProblem, segment: np.ndarray) -> int:
    """Weight of the nets with a pin in the segment and one outside."""
    inside = set(segment.tolist())
    total = 0
    for e, weight in enumerate(problem.nets.weight.tolist()):
        pins = problem.pin[problem.net_ptr[e] : problem.net_ptr[e + 1]].tolist()
        total += weight * (0 < len(inside.intersection(pins)) < len(pins))
    return total


@pytest.mark.parametrize("most", [3, 1000])
def test_running_sums_are_the_cuts_of_all_segments(most: int) -> None:
    checked = 0
    for seed, instance in enumerate(INSTANCES):
        problem = build_problem(instance)
        order = random_order(problem, seed)
        stops = places_to_cut(order, problem.time.max(axis=0), problem.nets, most)
        weight = problem.nets.weight.copy().reshape(-1, 1)
        touched = touched_nets(order, stops, problem.nets)
        joining = joining_costs(touched, weight)
        for i in range(len(stops) - 1):
            cut = 0
            for j in range(i, len(stops) - 1):
                cut += int(joining[j, 0])
                assert cut == cut_of(problem, order[stops[i] : stops[j + 1]])
                checked += 1
            leave_behind(touched, weight, joining, i)
    assert checked > 50
