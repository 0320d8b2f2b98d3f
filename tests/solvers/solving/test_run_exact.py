"""The rule for every exact method: never worse than what costs next to nothing."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from draws import draw
from draws.tiny import tiny_instance
from references.brute_force import (
    FWD_BWD_SEMANTICS,
    LATENCY_SEMANTICS,
    MAKESPAN_SEMANTICS,
    MAX_LOAD_SEMANTICS,
    STAGE_SEMANTICS,
)

from placegap.instances import Edge, Instance, Makespan, Op, Plan, evaluate, example, generate
from placegap.instances.files.document import Document
from placegap.instances.problem import HybridPipeline, PipelineIteration
from placegap.solvers import METHODS, Limits, Outcome, Task, run_method
from placegap.solvers.bounds.cheap_bounds import Bound, quick_bound, spread_bound
from placegap.solvers.core.method import ExactParams, Method, Params
from placegap.solvers.core.registry import parse_params, register, why_not
from placegap.solvers.core.result import PROOF, Fault, no_plan
from placegap.solvers.core.starts import best_start, placers
from placegap.solvers.solving.run_exact import run_exact

PORT = Makespan()
EXACT = [m.name for m in METHODS.values() if issubclass(m.params, ExactParams)]
QUICK: dict[str, dict[str, object]] = {
    "cp-sat": {"workers": 1},
    "decomposition": {"workers": 1},
    "latency": {"workers": 1, "moves": 0},
    "noncontiguous": {"moves": 0, "workers": 1},
    "latency-ip": {"workers": 1},
}
ALL_SEMANTICS = (
    *MAKESPAN_SEMANTICS[::2],
    *MAX_LOAD_SEMANTICS,
    *FWD_BWD_SEMANTICS[::3],
    *STAGE_SEMANTICS[::2],
    *LATENCY_SEMANTICS,
    PipelineIteration(microbatches=3),
)


def draws() -> list[Instance]:
    """Wide and deep graphs of 14 ops, on unlike devices, with memory that binds, on equal ones."""
    graph = generate("layered", {"ops": 14, "width": 4}, seed=1)
    return [
        *(
            tiny_instance(seed, num_ops=14, num_devices=3, density=(0.1, 0.4)[seed % 2])
            for seed in (0, 3, 4)  # 1 and 2 fit nowhere
        ),
        Document(name="equal", graph=graph).instance(example().cluster),
    ]


@pytest.mark.parametrize("name", EXACT)
def test_no_exact_method_is_worse_than_a_fast_placer_or_proves_less_than_a_cheap_bound(
    name: str,
) -> None:
    # Stopped at once: all that it has is what costs next to nothing.
    method, checked = METHODS[name], 0
    params = parse_params(method, QUICK.get(name, {}))
    assert isinstance(params, ExactParams)
    for number, semantics in enumerate((*ALL_SEMANTICS, HybridPipeline(microbatches=2))):
        instance, equal = draws()[-1 - number % 4], draws()[-1]
        if why_not(method, Task(instance, semantics), params) is not None:
            instance = equal  # some methods are for equal devices only
        task = Task(instance, semantics)
        if checked == 4 or semantics.has_two_levels or why_not(method, task, params) is not None:
            continue
        limited = replace(task, limits=Limits(time_limit_s=0.1))
        best, floor = best_start(task, placers(limited)), quick_bound(instance, semantics)
        for limit_s in (0.1, 2.0):  # a busy machine gives a fraction of the seconds
            quick = QUICK.get(name, {})
            result = run_method(instance, semantics, name, quick, time_limit_s=limit_s)
            value_ns = result.value_ns
            if best is None or (value_ns is not None and value_ns <= best.value):
                break
        assert not result.faults
        if result.status == "infeasible":
            continue
        checked += 1
        assert result.bound_ns >= floor.value
        if best is not None:
            assert value_ns <= best.value
        assert result.message or result.status == "optimal"
    assert checked


# ------------------------------------------------------------------------------ the cheap bounds


def test_quick_bounds_are_below_the_optimum() -> None:
    origins: Counter[str] = Counter()
    for seed in range(40):
        instance = tiny_instance(seed, num_ops=5, num_devices=2 + seed % 2, backward=True)
        semantics = ALL_SEMANTICS[seed % len(ALL_SEMANTICS)]
        if semantics.has_two_levels:
            continue
        best = run_method(instance, semantics, "brute-force")
        floor = quick_bound(instance, semantics)
        origins[floor.origin] += 1
        assert best.value_ns is None or floor.value <= best.value_ns, (seed, semantics.label)
    assert set(origins) == {"critical path", "longest op", "work", "one microbatch"}


def test_a_path_counts_the_transfers_that_it_cannot_avoid() -> None:
    # op1 only on a, op2 only on b: 5 + 7 + 6 ns; without transfers 11
    assert quick_bound(_two_places(7), PORT).value == 18
    assert quick_bound(_two_places(7), LATENCY_SEMANTICS[0]).value == 11


def _two_places(transfer_ns: int) -> Instance:
    ops = [Op(name="one", time_ns={"a": 5}), Op(name="two", time_ns={"b": 6})]
    rows = ((0, transfer_ns), (transfer_ns, 0))
    edge = Edge(producer="one", consumer="two", transfer_ns=rows, host_time_ns=0)
    return draw.instance_of("two places", ops, [edge], draw.devices("ab"))


@pytest.mark.parametrize("largest", [10, 10**12])
def test_spread_work_is_below_every_split_and_close_to_the_best(largest: int) -> None:
    # Of two kinds: the fractional optimum moves blocks by the ratio of their times (Dantzig).
    rng = random.Random(largest)
    for _ in range(15):
        time = np.array([[rng.randint(1, largest) for _ in range(2)] for _ in range(6)])
        order = sorted(range(6), key=lambda b: time[b, 0] / time[b, 1])
        best = min(max(_fill(time, order, at, part / 64)) for at in range(6) for part in range(65))
        found = spread_bound(time, time > 0)
        assert found <= best + 1
        assert found >= 0.95 * best - 1


def _fill(time: np.ndarray, order: list[int], at: int, part: float) -> tuple[float, float]:
    first, rest = order[:at], order[at + 1 :]
    loads = [float(time[first, 0].sum()), float(time[rest, 1].sum())]
    return loads[0] + part * time[order[at], 0], loads[1] + (1 - part) * time[order[at], 1]


# ------------------------------------------------------------------------- what goes wrong inside


def _method(outcome: Outcome | BaseException) -> Method:
    def run(task: Task, params: Params) -> Outcome:
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    return Method("wrong", "exact", ("makespan",), "none", "", run, params=ExactParams)


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (ValueError("a bug"), "ValueError: a bug"),
        (Outcome(bound=no_plan()), "claims that no plan exists, but there is one of 34 ns"),
        (Outcome(bound=Bound(99)), "claims that no plan is better than 99 ns"),
        (Outcome(Plan.on([0] * 4), claim=30), "claims 30, the referee finds 43"),
    ],
)
def test_a_method_that_is_wrong_leaves_the_best_plan_and_a_fault(
    outcome: Outcome | Exception, words: str
) -> None:
    # The best placer takes 34 ns, the critical path 33.
    task = Task(example(), PORT)
    with pytest.raises(Fault, match=words):  # the tests have warnings of it raised
        run_exact(_method(outcome), task, ExactParams())
    with pytest.warns(Fault):
        found = run_exact(_method(outcome), task, ExactParams())
    assert evaluate(example(), found.plan, PORT).value_ns == 34
    assert (found.bound_value, found.rests_on, found.proven_infeasible) == (33, PROOF, False)
    assert words in found.faults[0]
    assert found.message


def _fails(*_: object) -> Outcome:
    raise ValueError("a bug")


@pytest.mark.parametrize("method", ["auto", "decomposition"])
def test_a_placer_that_fails_costs_its_plan_and_a_sentence(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(METHODS, "heft", replace(METHODS["heft"], run=_fails))
    fault = f"an internal error in heft on {example().name}: ValueError: a bug"
    with pytest.warns(Fault, match="heft on .*: ValueError: a bug"):  # of sections, too
        found = run_method(example(), PORT, method, {"workers": 1})
    assert (found.value_ns, found.bound_ns) == (34, 34)
    assert fault in found.faults


def test_of_a_decomposition_that_fails_late_all_that_it_knew_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # arcs have plans of placers, which are joined; no section is solved before the whole model
    monkeypatch.setattr("placegap.solvers.decomposition.decomposition.solve_whole", _fails)
    monkeypatch.setattr("placegap.solvers.decomposition.decomposition._step", lambda arc: None)
    task = Task(example(), PORT)
    params = METHODS["decomposition"].params(start=False, anneal=False)
    with pytest.warns(Fault, match="a bug"):
        found = run_exact(METHODS["decomposition"], task, params)
    assert evaluate(example(), found.plan, PORT).feasible
    assert (found.bound_value, found.message) == (33, "stopped by an error")


def test_a_cheap_bound_that_a_plan_refutes_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Bound(35, "wishes")
    monkeypatch.setattr("placegap.solvers.solving.run_exact.quick_bound", lambda *_: wrong)
    with pytest.warns(Fault, match="wishes on .*: claims that no plan is better than 35 ns"):
        found = run_exact(_method(Outcome(bound=Bound(33))), Task(example(), PORT), ExactParams())
    assert (found.bound_value, len(found.faults)) == (33, 1)


@pytest.mark.parametrize(
    ("error", "message"), [(KeyboardInterrupt(), "interrupted"), (MemoryError(), "out of memory")]
)
def test_an_interrupt_and_a_lack_of_memory_are_no_faults(
    error: BaseException, message: str
) -> None:
    found = run_exact(_method(error), Task(example(), PORT), ExactParams())
    assert (found.faults, found.message, found.bound_value) == ((), message, 33)
    assert found.plan is not None


def test_an_interrupt_while_placers_are_asked_loses_no_plan_of_those_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def stop(task: Task, params: Params) -> Outcome:
        raise KeyboardInterrupt

    after_heft = placers(Task(example(), PORT))[3]
    monkeypatch.setitem(METHODS, after_heft, replace(METHODS[after_heft], run=stop))
    found = run_exact(_method(Outcome()), Task(example(), PORT), ExactParams())
    before = best_start(Task(example(), PORT), ("single-device", "m-topo", "heft"))
    assert found.plan == before.plan
    # the critical path is known before any placer is asked
    assert (found.message, found.bound_value) == ("interrupted", 33)


def test_what_fails_after_a_stop_was_asked_for_was_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # numba, interrupted, ends with "RuntimeError: no compiled object yet"
    monkeypatch.setattr("placegap.solvers.solving.run_exact.stop_requested", lambda: True)
    found = run_exact(_method(RuntimeError("no object")), Task(example(), PORT), ExactParams())
    assert (found.faults, found.message, found.bound_value) == ((), "interrupted", 33)


def test_a_method_s_own_figures_can_still_be_seen() -> None:
    method = _method(Outcome(Plan.on([0] * 4), bound=Bound(7, "its own")))
    found = run_exact(method, Task(example(), PORT), ExactParams())
    assert (found.bound_value, found.bound_origin) == (33, "critical path")
    assert dict(found.details) == {"own_bound_ns": 7, "own_value_ns": 43}


def test_without_starts_no_placer_is_asked_but_the_incumbent_counts() -> None:
    register(_method(Outcome()))
    try:
        alone = run_method(example(), PORT, "wrong", {"start": False})
        given = run_method(example(), PORT, "wrong", {"start": False}, incumbent=Plan.on([0] * 4))
    finally:
        METHODS.pop("wrong")
    assert (alone.status, alone.bound_ns, alone.message) == ("no_plan", 33, "ended unproven")
    assert (given.status, given.value_ns) == ("feasible", 43)
