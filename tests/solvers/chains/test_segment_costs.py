"""Cuts of all segments of an order, against nets that are looked at one by one."""

import random

import numpy as np
import pytest
from references.brute_force import scattered_instance

from placegap.experiments.research.bench.placers import on_gpus, without_limits
from placegap.instances import MaxLoad
from placegap.instances.corpus.generate import generate
from placegap.solvers.chains import slices as slicer
from placegap.solvers.chains import slices as slicing
from placegap.solvers.chains.orders import order_of_keys, places_to_cut
from placegap.solvers.chains.problem import ChainProblem, build_problem
from placegap.solvers.chains.slices import joining_costs, leave_behind, touched_nets
from placegap.solvers.core.method import Task

INSTANCES = [
    scattered_instance(seed, num_ops=3 + seed % 12, num_devices=3, max_edges=25)
    for seed in range(40)
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
    assert checked > 200


def least_by_hand(problem: ChainProblem, order: np.ndarray, devices: int) -> int:
    """Least max_load over all ways to cut the order into so many segments of accelerators."""
    best = {0: 0}  # blocks in front -> least max_load of the devices so far
    for _ in range(devices):
        following = dict(best)
        for begin, before in best.items():
            for end in range(begin + 1, len(order) + 1):
                segment = order[begin:end]
                load = int(problem.time[0, segment].sum()) + cut_of(problem, segment)
                now = max(before, load)
                following[end] = min(following.get(end, now), now)
        best = following
    return best[len(order)]


def test_best_slices_are_the_best_by_hand() -> None:
    for seed in range(12):
        graph = generate("layered", {"ops": 9, "width": 3, "communication_ratio": 1}, seed=seed)
        problem = build_problem(without_limits(on_gpus(graph, 3)))
        order = random_order(problem, seed)
        split = slicing.best_slices(problem, order, problem.largest_load)
        assert split is not None
        assert split.value == least_by_hand(problem, order, 3)


def test_sequences_of_equal_devices_find_what_slices_of_one_kind_find() -> None:
    """Two kernels that share only the cuts: on equal devices their sequence does not matter."""
    for seed in range(12):
        graph = generate("layered", {"ops": 14, "width": 4, "communication_ratio": 1}, seed=seed)
        task = Task(without_limits(on_gpus(graph, 3)), MaxLoad())
        one_kind, any_kind = slicer.Slicer(task), slicer.Slicer(task)
        any_kind.alike = False
        any_kind.sequences = [np.arange(3)]
        order = random_order(one_kind.problem, seed)
        found, other = one_kind.slices(order), any_kind.slices(order)
        assert found is not None
        assert other is not None
        assert found[0] == other[0]
