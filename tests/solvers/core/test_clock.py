"""The clock of time limits."""

from __future__ import annotations

import time

import pytest

from placegap.instances import Makespan, example
from placegap.instances.problem import compiled_kernels
from placegap.instances.problem.kernels import kernel
from placegap.solvers import Method, Outcome, Task, solve
from placegap.solvers.core.clock import Clock, LimitReached, compiled_s, now_s
from placegap.solvers.core.method import Params
from placegap.solvers.core.registry import METHODS, register


def fresh_kernel() -> int:
    """Compile and run a kernel that no cache holds."""

    @kernel
    def total_below(number: int) -> int:
        total = 0
        for i in range(number):
            total += i
        return total

    return int(total_below(3))


def test_the_clock_stands_while_a_kernel_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_kernels, "cache_folder", lambda: None)
    compiled_s()  # it counts from the first question on
    compiled, wall, clock = compiled_s(), time.perf_counter(), now_s()
    fresh_kernel()
    wall, clock, compiled = time.perf_counter() - wall, now_s() - clock, compiled_s() - compiled
    assert compiled > 0
    assert clock == pytest.approx(wall - compiled, abs=1e-3)


def test_the_clock_runs_otherwise() -> None:
    before, clock = now_s(), Clock(0.01)
    time.sleep(0.02)
    assert now_s() - before >= 0.02
    with pytest.raises(LimitReached, match="the time limit is over"):
        clock.check()


def test_a_result_says_apart_what_compiling_took(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_kernels, "cache_folder", lambda: None)

    def run(task: Task, params: Params) -> Outcome:
        fresh_kernel()
        return Outcome(message="compiled")

    register(Method("compiles", "heuristic", ("makespan",), "none", "a fake", run, Params))
    try:
        result = solve(example(), Makespan(), "compiles")
    finally:
        del METHODS["compiles"]
    assert result.setup_s > result.solve_s >= 0
