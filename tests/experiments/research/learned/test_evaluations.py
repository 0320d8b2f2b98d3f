"""Placements tried within a budget: times of the referee's kind, memory, the best that fits."""

import random

import numpy as np
from references.placers import pressed_instance

from placegap.experiments.research.learned.evaluations import Evaluations
from placegap.instances import Makespan, evaluate


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
