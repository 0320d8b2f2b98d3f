"""Every bound says what it rests on."""

from __future__ import annotations

from collections import Counter

import pytest
from doubles.tiny_mip import ops_on
from references.agreement import little, methods, run
from references.brute_force import (
    STAGE_SEMANTICS,
    latency_draws,
    makespan_draws,
    max_load_draws,
    stage_draws,
)

from placegap.instances import Instance, LatencySubgraphs, Makespan, MaxLoad, example
from placegap.solvers import METHODS, run_method
from placegap.solvers.core.back_ends import LABELS
from placegap.solvers.core.result import PROOF, SOLVERS

CASES = (
    (Makespan(channels="link"), makespan_draws),
    (MaxLoad(plans="chain"), max_load_draws),
    (STAGE_SEMANTICS[-1], stage_draws),
    (LatencySubgraphs(), latency_draws),
)


def is_known(rests_on: str) -> bool:
    solvers = tuple(f"{name} " for name in (*SOLVERS.values(), *LABELS.values()))
    return rests_on == PROOF or rests_on.startswith(solvers)


def without_room() -> Instance:
    """Three ops of 2 bytes for two devices of 3: no plan fits."""
    return ops_on(1, 1, 1, memory=3, size=2)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0].label)
def test_no_bound_and_no_proof_comes_without_what_it_rests_on(case: tuple) -> None:  # type: ignore[type-arg]
    semantics, draws = case
    said: Counter[str] = Counter()
    none = () if semantics.has_two_levels else (without_room(),)
    for instance in (*draws()[2:3], *none):
        for method in [METHODS["brute-force"], *methods("exact", "bound", "heuristic")]:
            result = run(instance, semantics, method.name, little(method))
            if result is None or (result.bound_ns is None and result.status != "infeasible"):
                continue
            where = f"{method.name} on {instance.name}, {semantics.label}: {result.rests_on!r}"
            said[method.name] += 1
            assert is_known(result.rests_on), where
            assert result.bound_ns is None or result.bound_origin, where
    assert said["brute-force"] or semantics.has_two_levels


def test_sums_are_proofs_and_so_are_lps_whose_duals_are_summed_up_again() -> None:
    """The diamond's critical path, 33 ns, is what its LP proves; here the LP proves more."""
    makespan = Makespan()
    path = run_method(example(), makespan, "getf-lp")
    assert (path.bound_origin, path.rests_on) == ("critical path", PROOF)
    # three ops of 5 ns on two devices: the path is 5, half of the work 7.5
    work = run_method(ops_on(5, 5, 5), makespan, "getf-lp")
    assert work.bound_ns > 5
    assert (work.bound_origin, work.rests_on) == ("getf-lp", PROOF)


def test_a_bound_that_is_dropped_rests_on_nothing() -> None:
    """Pesto with merged ops proves nothing about the graph itself."""
    merged = run_method(example(), Makespan(channels="link"), "pesto", {"num_ops": 3})
    assert (merged.bound_ns, merged.bound_origin, merged.rests_on) == (None, "", "")
