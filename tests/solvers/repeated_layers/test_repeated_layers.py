"""repeated-layers: plans that the referee agrees with, within memory, and a bound beside them."""

from itertools import cycle, islice

import pytest
from draws import draw
from draws.layered import stack, stacks
from references.brute_force import MAKESPAN_SEMANTICS

from placegap.instances import Instance, Makespan, Plan, evaluate
from placegap.instances.oracle.placements import best_schedule
from placegap.solvers import Limits, Task, run_method
from placegap.solvers.core.registry import METHODS, why_not
from placegap.solvers.repeated_layers import layer_plans
from placegap.solvers.repeated_layers import repeated_layers as layers
from placegap.solvers.repeated_layers.layer_search import anneal_layer
from placegap.solvers.repeated_layers.repeated_layers import RepeatedLayersParams
from placegap.solvers.solving.incumbent import JudgedKnown
from placegap.solvers.solving.search_process import plans

NAME = "repeated-layers"


@pytest.mark.parametrize("semantics", MAKESPAN_SEMANTICS, ids=lambda one: one.label)
def test_a_stack_is_solved_layer_by_layer(semantics: Makespan) -> None:
    # four ops of 10 ns between joins of 1 ns, two of them on each device: 1 + 3 x (20 + 1)
    instance = stack(3, branches=4, sent=0)
    found = run_method(instance, semantics, NAME, {"moves": 600})
    assert (found.value_ns, found.bound_ns, found.status) == (64, 64, "optimal")
    assert found.bound is not None
    assert (found.bound.origin, found.bound.basis) == ("repeated layers", "proof")


def test_the_seed_decides_without_a_time_limit() -> None:
    instance = stack(3, branches=5)
    one, other = (run_method(instance, Makespan(), NAME, {"moves": 80}, seed=7) for _ in range(2))
    assert one.plan == other.plan
    assert one.details == other.details


@pytest.mark.parametrize("memory", ["sum", "peak"])
def test_memory_is_kept(memory: str) -> None:
    # One device has no room for 12 ops of 1 byte. Two ops of each layer are on the other one, which
    # waits 1 ns for a tensor and sends its last one for 1 ns: 1 + 3 x (22 + 1)
    semantics = Makespan(memory=memory)
    instance = draw.with_memory(stack(3, branches=4, size=1, sent=1), 8 if memory == "sum" else 14)
    found = run_method(instance, semantics, NAME, {"moves": 600})
    assert found.plan is not None
    assert evaluate(instance, found.plan, semantics).feasible
    assert found.value_ns == 70


def test_most_plans_of_small_stacks_are_optimal_and_none_is_better() -> None:
    compared = optimal = 0
    for instance, semantics in zip(islice(stacks(0), 40), cycle(MAKESPAN_SEMANTICS), strict=False):
        task, params = Task(instance, semantics), RepeatedLayersParams()
        if why_not(METHODS[NAME], task, params) is not None:  # an edge that skips hides the joins
            continue
        best = best_schedule(instance, semantics)
        found = run_method(instance, semantics, NAME, {"moves": 300})
        assert best is not None
        assert found.value_ns is not None
        assert found.bound_ns is not None
        assert found.bound_ns <= best[0] <= found.value_ns
        compared, optimal = compared + 1, optimal + (best[0] == found.value_ns)
    assert compared >= 30
    assert optimal >= 0.7 * compared


def test_the_incumbent_is_never_lost() -> None:
    instance = stack(2, branches=2, sent=30)  # one device is best: 3 joins and 4 ops, 43 ns
    start = Plan.on([0] * instance.num_ops)
    found = run_method(instance, Makespan(), NAME, {"moves": 1}, incumbent=start)
    assert found.value_ns == 43


def test_no_long_run_follows_where_one_device_is_best() -> None:
    instance = stack(2, branches=2, sent=1000)
    start = Plan.on([0] * instance.num_ops)
    found = run_method(instance, Makespan(), NAME, {"moves": 1000}, incumbent=start)
    assert found.message == "its first plans are no better than the one that it was given"
    assert 0 < int(found.details["moves"]) < 200


# first runs, and long ones
@pytest.mark.parametrize(
    ("memory", "most"), [("sum", 1 + 1), ("peak", layers.MOST_PRE_RUNS + len(layers.LONG_RUNS))]
)
def test_another_run_of_a_layout_follows_only_where_tensors_need_room(
    memory: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = []

    def judge(*args: object) -> object:
        judged.append(args)
        return evaluate(*args)

    monkeypatch.setattr(layers, "evaluate", judge)
    instance = draw.with_memory(stack(3, branches=4, size=1), 5)  # for 12 bytes on two devices
    run_method(instance, Makespan(memory=memory), NAME, {"moves": 100})
    assert len(judged) == most


def test_an_interrupt_keeps_what_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def interrupt(*args: object) -> None:
        calls.append(args)
        if len(calls) > 3:
            raise KeyboardInterrupt
        anneal_layer(*args)

    monkeypatch.setattr(layer_plans, "anneal_layer", interrupt)
    found = run_method(stack(3, branches=4), Makespan(), NAME)
    assert found.message == "interrupted"
    assert found.value_ns is not None


def test_auto_begins_with_it_where_layers_repeat() -> None:
    def first_of(instance: Instance) -> list[str]:
        known = JudgedKnown(task=Task(instance, Makespan(), Limits(60.0)))
        return [step.method for step in islice(plans(known, 0), 2)]

    assert first_of(stack(3, 4)) == [NAME, "run-moves"]
    chain = draw.row([draw.op(i, {"gpu": 3}) for i in range(9)], draw.devices(["gpu", "gpu"]))
    assert first_of(chain)[0] == "run-moves"


def test_without_a_device_for_all_bottlenecks_there_is_a_bound_alone() -> None:
    # Ops of 1 ns, the first on one device and the last on another: paths have three bottlenecks,
    # two other ops and a transfer
    kinds = {"op0": "a", "op2": "b"}
    ops = [
        op.model_copy(update={"time_ns": dict.fromkeys(kinds.get(op.name, "ab"), 1)})
        for op in stack(2, branches=2).graph.ops
    ]
    instance = draw.changed(stack(2, branches=2), ops=ops, devices=draw.devices(["a", "b"]))
    found = run_method(instance, Makespan(), NAME)
    assert (found.message, found.bound_ns) == ("no device runs all bottlenecks", 6)


def test_it_says_why_it_does_not_apply() -> None:
    task = Task(
        draw.row([draw.op(i, {"gpu": 3}) for i in range(4)], draw.devices(["gpu"])), Makespan()
    )
    said = why_not(METHODS[NAME], task, RepeatedLayersParams())
    assert said == "no two sections between bottlenecks are equal and have parallel ops"
