"""Every method under the memory rule `peak`: bounds hold, and plans fit."""

from __future__ import annotations

import time
from collections import Counter
from itertools import islice

import numpy as np
import pytest
from draws import draw
from draws.peak import peak_instances, with_peak
from references.agreement import little
from references.brute_force import FWD_BWD_SEMANTICS, MAKESPAN_SEMANTICS, MAX_LOAD_SEMANTICS, oracle

from placegap.instances import (
    Device,
    Edge,
    InputError,
    Instance,
    Makespan,
    MaxLoad,
    Op,
    Plan,
    evaluate,
    recheck,
)
from placegap.instances.problem.additive_memory import ceiling_bytes, relax_memory
from placegap.solvers import METHODS, Limits, Outcome, Task, run_method
from placegap.solvers.core.progress import Progress
from placegap.solvers.core.result import Bound
from placegap.solvers.solving.coarsened import solve_coarse
from placegap.solvers.solving.peak_memory import _instances, run_at_peak

MAKESPAN = ("decomposition", "cp-sat", "heft", "etf", "annealing")
LOAD = ("ideal-dp", "noncontiguous", "throughput-ip", "m-topo")
CHAIN = MaxLoad(plans="chain", memory="peak")
PASS = Makespan(memory="peak")


def compare(first_seed: int, number: int) -> dict[str, Counter[str]]:
    """Solve small instances by every method; how often each found what, beside brute force."""
    found: dict[str, Counter[str]] = {name: Counter() for name in (*MAKESPAN, *LOAD)}
    rules = (*MAKESPAN_SEMANTICS, *MAX_LOAD_SEMANTICS, *FWD_BWD_SEMANTICS)
    for seed, plain in enumerate(rules, first_seed):
        semantics = with_peak(plain)
        methods = MAKESPAN if isinstance(semantics, Makespan) else LOAD
        for instance in islice(peak_instances(1000 * seed, plain), number):
            best = oracle(instance, semantics)
            for name in methods:
                try:
                    result = run_method(
                        instance, semantics, name, little(METHODS[name]), time_limit_s=5
                    )
                except InputError:
                    continue  # not its class of plans
                where = f"{name} on {instance.name}, {semantics.label}"
                seen = found[name]
                if result.plan is not None:
                    assert best is not None, where
                    assert result.value_ns >= best, where
                    assert recheck(instance, result.plan, semantics).feasible, where
                    seen["optimum"] += result.value_ns == best
                if result.status == "infeasible":
                    assert best is None, where
                if result.bound_ns is not None and best is not None:
                    assert result.bound_ns <= best, where
                    seen["tight"] += result.bound_ns == best
                seen["plan"] += result.plan is not None
                seen["possible"] += best is not None
                seen["not of the floor"] += result.details.get("memory_run", "floor") != "floor"
    return found


def test_runs_between_floor_and_ceiling_give_no_op_less_than_both() -> None:
    # of shared state the floor counts at one op and the ceiling at another, whose floor is above
    # its ceiling: 27 and 24 bytes, which must not become 27 + (24 - 27) // 16 * 8 = 19
    instance = next(islice(peak_instances(198_000, MaxLoad(plans="any")), 4, None))
    floor = relax_memory(instance, MaxLoad(plans="any", memory="peak"))[0]
    low, high = floor.arrays.resident_bytes, ceiling_bytes(instance)
    assert (high < low).any()
    for _, each in _instances(instance, floor):
        assert (each.arrays.resident_bytes >= np.minimum(low, high)).all()


def test_no_bound_is_above_the_optimum_and_every_plan_fits() -> None:
    found = compare(0, 1)
    # exact methods find a plan wherever there is one, but for a few, and mostly the best
    exact = Counter[str]()
    for name in [name for name in found if METHODS[name].claim == "exact"]:
        exact.update(found[name])
    assert exact["plan"] >= 0.75 * exact["possible"]
    assert exact["optimum"] >= 0.6 * exact["possible"]
    assert exact["tight"] >= 0.4 * exact["possible"]
    assert all(seen["plan"] for seen in found.values())
    assert exact["not of the floor"]


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(0, 1000, 100))
def test_no_bound_is_above_the_optimum_on_thousands_of_runs(seed: int) -> None:
    compare(seed, 12)


def chain(memory_bytes: int) -> Instance:
    """Four ops of 5 ns and 10 bytes of state; each sends 6 bytes, in 1 ns, to the next."""
    ops = [Op(name=x, time_ns={"x": 5}, parameter_bytes=10, resident_bytes=16) for x in "abcd"]
    edges = draw.row(ops, [Device(name="g", kind="x")], bytes=6, host_time_ns=1).graph.edges
    return draw.instance_of("chain", ops, edges, draw.devices("xx", lambda k: memory_bytes))


def test_a_plan_that_fits_on_the_floor_is_proven_best() -> None:
    # two ops each: 20 of state; the middle ops have 6 in and 6 out: 32 bytes. The sum is 36
    result = run_method(chain(32), CHAIN, "ideal-dp")
    assert (result.status, result.value_ns, result.details["memory_run"]) == (
        "optimal",
        11,
        "floor",
    )
    plain = CHAIN.model_copy(update={"memory": "sum"})
    assert run_method(chain(31), plain).status == "infeasible"
    # 31 bytes hold 30 of state and nothing else
    assert run_method(chain(31), CHAIN).plan is None
    # that no plan exists is proven by the floor
    assert run_method(chain(9), CHAIN).status == "infeasible"
    assert run_method(chain(9), CHAIN, "brute-force").status == "infeasible"


def test_a_plan_that_does_not_fit_is_made_again_with_less_room() -> None:
    # a and d have 6 bytes at most, b and c 12. The floor is 40, and 12 at one of b and c: it lets
    # a device have a, b, c or b, c, d less often than it should where memory is 42: 30 + 12
    result = run_method(chain(42), CHAIN)
    assert evaluate(chain(42), result.plan, CHAIN).feasible
    assert result.value_ns == 11


def test_where_no_run_finds_a_plan_that_fits_the_reason_names_a_device() -> None:
    # the floor counts what is live at one moment, when a runs; b alone does not fit on its device
    ops = tuple(
        Op(name=kind, time_ns={kind: 1}, workspace_bytes=size)
        for kind, size in (("a", 55), ("b", 50))
    )
    apart = draw.instance_of("apart", ops, (), draw.devices("ab", (60, 40).__getitem__))
    result = run_method(apart, PASS, "heft")
    assert result.plan is None
    assert "holds 50 B at its peak, 10 B more than its 40 B" in result.message


@pytest.mark.parametrize(("incumbent", "share"), [(None, 0.6), (Plan.on([0, 0, 0, 0]), 0.9)])
def test_the_floor_has_nearly_all_the_time_where_a_plan_that_fits_is_given(
    incumbent: Plan | None, share: float
) -> None:
    given = list[float | None]()

    def run(part: Task) -> Outcome:
        given.append(part.limits.time_limit_s)
        return Outcome(bound=Bound(1))

    task = Task(chain(1000), PASS, Limits(100.0), incumbent)
    run_at_peak(task, run, "somebody", is_exact=True)
    assert given == [pytest.approx(100 * share, abs=1)]


@pytest.mark.parametrize(("waits", "runs"), [(True, 2), (False, 1)])
def test_a_search_that_the_clock_ends_goes_on_from_its_plan(*, waits: bool, runs: int) -> None:
    parts = list[Task]()
    plan = Plan.on([0, 0, 1, 1])

    def run(part: Task) -> Outcome:
        parts.append(part)
        assert part.limits.time_limit_s is not None
        time.sleep(part.limits.time_limit_s if waits else 0)
        return Outcome(plan)

    outcome = run_at_peak(Task(chain(1000), PASS, Limits(0.1)), run, "somebody", is_exact=False)
    assert outcome.plan is plan
    assert outcome.details["memory_runs"] == runs
    assert [part.incumbent for part in parts] == [None, plan][:runs]
    assert all(part.at_peak is not None for part in parts)


def test_listeners_hear_of_bounds_and_of_plans_that_fit() -> None:
    reported: list[Progress] = []
    result = run_method(chain(32), CHAIN, progress=reported.append)
    assert reported[-1].value == result.value
    assert all(progress.value in (None, result.value) for progress in reported)
    assert max(progress.bound_value or 0 for progress in reported) <= (result.bound_value or 0)


def test_a_coarser_graph_is_placed_on_the_floor() -> None:
    net = chain(32)
    result = solve_coarse(
        net, CHAIN, "ideal-dp", transform="pesto-merge", transform_params={"ops": 2}
    )
    assert evaluate(net, result.plan, CHAIN).feasible
    exact = solve_coarse(net, CHAIN, "ideal-dp", transform="zero-time")
    assert (exact.value_ns, exact.bound_ns) == (11, 11)


def test_devices_that_differ_only_in_what_they_hold_at_the_peak_are_told_apart() -> None:
    # nothing is resident, but op a needs 100 bytes: it runs on the second device, and b on the
    # first. For devices that are alike the first one has the first part of a chain: 8 ns
    ops = (Op(name="a", time_ns={"gpu": 5}, workspace_bytes=100), Op(name="b", time_ns={"gpu": 3}))
    edges = (Edge(producer="a", consumer="b", host_time_ns=0),)
    devices = draw.devices(["gpu"] * 2, (10, None).__getitem__)
    instance = draw.instance_of("peak", ops, edges, devices)
    assert run_method(instance, CHAIN, "ideal-dp").bound_ns == 5
    with pytest.raises(InputError, match="'d0' and 'd1'"):
        run_method(instance, CHAIN, "archer-exact")
