"""HiGHS: bounds are safe, every ending is told as it is."""

from __future__ import annotations

from itertools import islice

import highspy
import pytest
from doubles import tiny_mip
from references.brute_force import max_load_draws, more_stages, oracle

from placegap.instances import Makespan, MaxLoad, Plan, evaluate, example
from placegap.solvers import Limits, run_method
from placegap.solvers.bounds.certificates.write import certify
from placegap.solvers.core.back_ends.highs import solve_model
from placegap.solvers.core.back_ends.outcome import BOUND_MARGIN, bound_ns


@pytest.mark.parametrize(
    ("dual", "unit_ns", "granularity", "expected"),
    [
        (29.2, 1e6, 1_000_000, 30_000_000),  # 29.2 ms: the next whole ms
        (30.0, 1e6, 1_000_000, 30_000_000),
        (30.0 + 1e-6, 1e6, 1_000_000, 30_000_000),  # within the margin of 30e-6: no 31
        (30.0 + 1e-3, 1e6, 1_000_000, 31_000_000),
        (0.0, 1e6, 1_000_000, 0),
        (-1e-9, 1.0, 1, 0),  # no time is negative
        (500.0, 1e6, 1, 499_999_500),  # margin 500e-6 units = 500 ns
        (None, 1.0, 1, None),
    ],
)
def test_bounds_give_way_by_a_margin_and_rise_to_the_granularity(
    dual: float | None, unit_ns: float, granularity: int, expected: int | None
) -> None:
    assert BOUND_MARGIN == 1e-6
    assert bound_ns(dual, unit_ns, granularity) == expected


def test_running_out_of_memory_is_an_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: highspy.Highs) -> None:
        raise MemoryError

    monkeypatch.setattr(highspy.Highs, "run", fail)
    found = solve_model(tiny_mip.build(tiny_mip.ops_on(1)), Limits())
    assert (found.ending, found.has_solution, found.dual_bound) == ("memory_limit", False, None)


def test_other_failures_are_not_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: highspy.Highs) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(highspy.Highs, "run", fail)
    with pytest.raises(RuntimeError, match="broken"):
        solve_model(tiny_mip.build(tiny_mip.ops_on(1)), Limits())


def test_a_model_that_presolve_by_enumeration_got_wrong_is_solved() -> None:
    # With that rule, HiGHS 1.13.1 proves 12.
    (instance,) = islice(more_stages(210_090), 4, 5)
    stages = MaxLoad(plans="chain", replicas=True, levels=2)
    result = run_method(instance, stages, "throughput-ip")
    assert (result.value_ns, result.bound_ns) == (11, 11) == (oracle(instance, stages),) * 2


def test_a_model_that_presolve_by_probing_got_wrong_from_a_start_is_solved() -> None:
    # With that rule, HiGHS 1.13.1 proves the start's 11 for half of all random seeds.
    (instance,) = (draw for draw in max_load_draws() if draw.name == "tiny-97")
    overlap = MaxLoad(plans="any", load="overlap")
    start = Plan.on([0, 1, 0, 0, 1, 1, 2])
    assert evaluate(instance, start, overlap).value_ns == 11
    for seed in range(2):
        result = run_method(instance, overlap, "throughput-ip", incumbent=start, seed=seed)
        assert (result.value_ns, result.bound_ns) == (10, 10) == (oracle(instance, overlap),) * 2


def test_a_solve_of_the_users_own_with_other_threads_weakens_no_bound() -> None:
    # HiGHS keeps the number of threads of a process's first solve: 34 ns needs LPs, paths prove 33
    own = highspy.Highs()
    own.setOptionValue("output_flag", False)
    own.setOptionValue("threads", 2)
    highspy.Highs.resetGlobalScheduler(True)
    own.addVar(0.0, 1.0)
    own.run()
    found = certify(example(), Makespan(channels="port", transfers="per_edge"))
    assert found is not None
    assert found.bound_ns == 34
