"""Annealing for makespan: its plans are never worse than the start."""

from types import ModuleType

import numpy as np
import pytest
from draws import draw
from draws.tiny import tiny_instance

from placegap.instances import Makespan, evaluate, example
from placegap.solvers import run_method
from placegap.solvers.local_search import disjunctive_search, run_moves
from placegap.solvers.local_search.annealing import Annealing

PORT = Makespan(channels="port")


def test_plans_fit_and_are_no_worse_than_the_start() -> None:
    checked = 0
    for seed in range(16):
        instance = tiny_instance(seed, num_ops=8, num_devices=3)
        found = run_method(instance, PORT, "annealing", seed=seed)
        start = run_method(instance, PORT, "heft").value_ns
        if start is not None:
            assert found.value_ns <= start
            checked += 1
    assert checked > 8


def test_a_time_limit_of_nothing_returns_the_start() -> None:
    search = Annealing(example(), PORT)
    plan = search.run(np.zeros(4, np.int64), seed=0, moves=100, deadline=0.0)
    assert search.tried == 0
    assert evaluate(example(), plan, PORT).value_ns == 43  # 5 + 20 + 10 + 8 on one device
    assert list(search.runs(np.zeros(4, np.int64), seed=0, limit_s=0.0)) == []


def test_a_makespan_of_nothing_is_kept() -> None:
    # ops that take no time: what is left are transfers, and none on one device
    ops = [op.model_copy(update={"time_ns": {"gpu": 0}}) for op in example().graph.ops]
    instance = draw.changed(example(), ops=ops)
    plan = Annealing(instance, PORT).run(np.array([0, 1, 0, 1]), seed=0, moves=500)
    assert evaluate(instance, plan, PORT).value_ns == 0


@pytest.mark.parametrize(
    ("module", "kernel", "method"),
    [
        (run_moves, "anneal_runs", "annealing"),
        (disjunctive_search, "walk_on", "disjunctive-search"),
    ],
)
def test_an_interrupt_returns_the_best_plan_so_far(
    module: ModuleType, kernel: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, kernel, interrupt)
    found = run_method(tiny_instance(1), PORT, method)
    assert found.value_ns is not None
    assert found.message == "interrupted"
