"""Placements tried within a budget: times of the referee's kind, memory, the best that fits."""

from __future__ import annotations

import random

import numpy as np
from references.placers import pressed_instance

from placegap.experiments.research.learned.evaluations import Evaluations
from placegap.instances import Makespan, evaluate, example


def random_placements(count: int, *, seed: int, num_ops: int, num_devices: int) -> np.ndarray:
    rng = random.Random(seed)
    return np.array([[rng.randrange(num_devices) for _ in range(num_ops)] for _ in range(count)])


def test_the_plan_is_the_best_placement_that_fits_and_the_referee_agrees_on_its_time() -> None:
    for seed in range(5):
        instance = pressed_instance(seed, num_ops=12, num_devices=3)
        tried = Evaluations(instance, Makespan(), budget=200)
        fitting = []
        supported = instance.arrays.group_runs[instance.arrays.group]
        for device in random_placements(200, seed=seed, num_ops=12, num_devices=3):
            device = np.where(supported[np.arange(12), device], device, supported.argmax(axis=1))
            trial = tried.run(device)
            held = np.bincount(device, instance.arrays.resident_bytes, minlength=3)
            assert (trial.excess == 0.0) == bool((held <= instance.arrays.memory_bytes).all())
            if trial.excess == 0.0:
                fitting.append(trial.time_ns)
        assert tried.left == 0
        assert tried.best_ns == min(fitting, default=None)
        plan = tried.plan()
        assert (plan is None) == (not fitting)
        if plan is not None:
            verdict = evaluate(instance, plan, Makespan())
            assert verdict.value_ns == tried.best_ns
            assert not [v for v in verdict.violations if v.rule == "memory"]


def test_an_update_adds_to_the_curve_what_the_mean_and_the_best_are() -> None:
    tried = Evaluations(example(), Makespan(), budget=3)
    tried.end_update(7.0)
    tried.run(np.array([0, 1, 0, 0]))  # 35 ns, as in the docstring of the referee
    tried.end_update(35.0)
    points = [(point.evaluated, point.mean_ns, point.best_ns) for point in tried.curve]
    assert points == [(0, 7.0, None), (1, 35.0, 35)]
