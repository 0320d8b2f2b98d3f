"""The kernel of memory at its peak says what the referee says of the same plan."""

from collections import Counter

import numpy as np
import pytest
from references.placers import pressed_instance, with_room

from placegap.instances import Makespan, evaluate
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.solvers.local_search.disjunctive_graph import machines_of
from placegap.solvers.local_search.peak_memory import peak_excess, peak_of
from placegap.solvers.local_search.quick_schedule import (
    bottom_levels,
    insert_all,
    new_work,
    plan_of,
)


@pytest.mark.parametrize("transfers", ["per_edge", "per_tensor"])
def test_the_kernel_and_the_referee_agree_on_what_overfills(transfers: str) -> None:
    semantics = Makespan.model_validate({"transfers": transfers, "memory": "peak"})
    seen = Counter[bool]()
    for seed in range(4):
        rng = np.random.default_rng(seed)
        instance = with_room(pressed_instance(seed, num_ops=30, num_devices=3), 2)
        data, peak = machines_of(instance, semantics), peak_of(instance, semantics)
        work, level = new_work(data), np.zeros(instance.num_ops, np.int64)
        for _ in range(6):
            can = instance.arrays.time_ns != UNSUPPORTED
            chosen = [int(rng.choice(np.flatnonzero(row))) for row in can]
            device = np.array(chosen, np.int64)
            bottom_levels(data, device, level)
            now_ns = insert_all(data, device, level, work)
            excess = peak_excess(data, peak, device, work.start, work.end)
            verdict = evaluate(
                instance, plan_of(instance, semantics, data, device, work), semantics
            )
            assert verdict.value_ns <= now_ns
            if verdict.value_ns < now_ns:  # a gap has closed, and times are others
                continue
            # how many bytes too many each device holds, by the referee, in shares of its memory
            sizes = instance.arrays.memory_bytes
            over = [
                max(0.0, use.memory_bytes / m - 1)
                for use, m in zip(verdict.uses, sizes, strict=True)
            ]
            assert excess == pytest.approx(sum(over), abs=1e-12)
            assert all(x.rule != "memory" for x in verdict.violations) == (excess == 0.0)
            seen[excess == 0.0] += 1
    assert min(seen[True], seen[False]) >= 2
