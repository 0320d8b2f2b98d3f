"""auto: no part makes another one worse, the time is used, and what fails costs nothing known."""

from __future__ import annotations

import pickle
import signal
import time
from contextlib import closing
from dataclasses import replace
from itertools import islice

import pytest
from draws.tiny import tiny_instance
from references.brute_force import oracle

from placegap.instances import (
    Document,
    Instance,
    Makespan,
    MaxLoad,
    Plan,
    Semantics,
    evaluate,
    example,
    generate,
    load_cluster,
)
from placegap.instances.problem.example import tight_example
from placegap.instances.problem.semantics import (
    LatencySubgraphs,
    MaxLoadFwdBwd,
    PipelineIteration,
    memory_rule,
)
from placegap.instances.structure.bottlenecks import memory_is_slack
from placegap.solvers import METHODS, Limits, Outcome, Result, Task, solve
from placegap.solvers.bounds.cheap_bounds import quick_bound
from placegap.solvers.core.clock import Clock, compiled_s
from placegap.solvers.core.method import Params
from placegap.solvers.core.result import SolverDisagreement, finish
from placegap.solvers.core.starts import placers, starts
from placegap.solvers.core.trust import PROOF
from placegap.solvers.core.worker_process import WorkerProcess
from placegap.solvers.solving.auto import compile_ahead, parts
from placegap.solvers.solving.auto.board import Board
from placegap.solvers.solving.auto.compile_ahead import KernelCompiler
from placegap.solvers.solving.auto.deadline import Deadline
from placegap.solvers.solving.auto.lanes import Lane, run_lanes
from placegap.solvers.solving.auto.parts import Order, run_step
from placegap.solvers.solving.auto.rules import AutoStep, _turns, plans, proofs

PORT = Makespan()
ALONE = {"workers": 1}


def hard() -> Instance:
    """30 ops on 4 devices: minutes away from a proof by either solver, and by no cheap bound."""
    return tiny_instance(9, num_ops=30, num_devices=4, density=0.3)


@pytest.mark.parametrize(
    "semantics",
    [
        PORT, Makespan(channels="free", memory="peak"), MaxLoad(plans="chain"),
        MaxLoad(plans="convex", memory="peak"), MaxLoad(), MaxLoad(plans="chain", replicas=True),
        MaxLoadFwdBwd(), LatencySubgraphs(),
    ],
    ids=lambda semantics: semantics.label,
)  # fmt: skip
def test_it_is_no_worse_than_its_placers_and_its_cheap_bounds(semantics: Semantics) -> None:
    instance = tiny_instance(3, num_ops=6, num_devices=3)
    found = solve(instance, semantics, "auto", ALONE, time_limit_s=2.0)
    assert found.value_ns is not None
    assert found.bound_ns is not None
    assert found.bound_ns >= quick_bound(instance, semantics).ns
    if memory_rule(semantics) == "sum":  # brute force knows no other rule
        optimum = oracle(instance, semantics)
        assert optimum is not None
        assert found.bound_ns <= optimum <= found.value_ns
        task = Task(instance, semantics)
        known = [start.value_ns for start in starts(task, placers(task))]
        assert found.value_ns <= min(known, default=found.value_ns)


def test_an_iteration_of_a_pipeline_is_proven_by_cuts() -> None:
    found = solve(example(), PipelineIteration(microbatches=2), "auto", ALONE, time_limit_s=10.0)
    assert found.status == "optimal"


def test_the_whole_time_is_used_where_nothing_is_proven() -> None:
    found = solve(hard(), PORT, "auto", ALONE, time_limit_s=2.0)
    assert found.status == "feasible"
    assert found.message == "stopped at the time limit"
    assert 1.5 < found.solve_s < 20.0  # busy machines are late


def test_it_stops_at_the_gap_that_suffices() -> None:
    found = solve(hard(), PORT, "auto", ALONE, time_limit_s=300.0, gap=0.9)
    assert found.status == "gap_met"


def test_without_a_limit_it_says_which_one_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("placegap.solvers.solving.auto.method.USUAL_S", 0.5)
    found = solve(hard(), PORT, "auto", ALONE)
    assert found.message == "stopped at the time limit of 0.5 s, the usual where none is given"


@pytest.mark.parametrize(
    ("error", "message"),
    [(MemoryError(), "out of memory"), (RuntimeError("broken"), "broken")],
)
@pytest.mark.filterwarnings("ignore::placegap.solvers.core.result.Fault")
def test_a_part_that_fails_costs_a_sentence(
    monkeypatch: pytest.MonkeyPatch, error: Exception, message: str
) -> None:
    def fail(task: Task, params: Params) -> Outcome:
        raise error

    failing = replace(METHODS["chain-sides"], run=fail)
    monkeypatch.setitem(METHODS._loaded, "chain-sides", failing)
    found = solve(hard(), PORT, "auto", ALONE, time_limit_s=4.0)  # kernels load first
    assert found.plan is not None
    assert found.bound_ns is not None
    assert message in found.message


@pytest.mark.parametrize("in_a_lane", [False, True])
def test_what_the_referee_denies_is_a_fault_and_no_mere_failure(
    monkeypatch: pytest.MonkeyPatch, in_a_lane: bool
) -> None:
    def contradict(*args: object, **kwargs: object) -> Result:
        raise SolverDisagreement("claims 1,\nthe referee finds 34")

    task = Task(example(), PORT, Limits(60.0))
    board = Board(task=task, gap=0.0)
    board.prove(34, "heft", is_first_word=True)  # told while it ran, and believed no more
    monkeypatch.setattr("placegap.solvers.solving.auto.parts.solve", contradict)
    order = Order(AutoStep("heft", PORT), 1.0, 0.0, None, None)
    answer = run_step(example(), order, None, board.take_bound)
    if in_a_lane:
        lane = Lane(task, pickle.dumps(task.instance), iter([order.step]), is_nice=False)
        lane.feed(board)
        lane._take(answer, board, Deadline(Clock(60.0), 0.0))
        lane.close()
    else:
        board.take_answer("heft", answer)
    assert board.faults == ["heft: claims 1, the referee finds 34"]
    assert (board.bound_ns, board.notes) == (quick_bound(example(), PORT).ns, {})


def test_two_processes_are_no_worse_than_one_plan_after_another() -> None:
    instance = hard()
    found = solve(instance, PORT, "auto", {"workers": 2}, time_limit_s=2.0)
    assert found.value_ns is not None
    task = Task(instance, PORT)
    assert found.value_ns <= min(start.value_ns for start in starts(task, placers(task)))


@pytest.fixture
def warmed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """The methods that are compiled here for, and whether for tight memory, on a cold machine."""
    warmed: list[tuple[str, bool]] = []
    monkeypatch.setattr(
        compile_ahead, "warm_up", lambda step, is_tight: warmed.append((step.method, is_tight))
    )
    monkeypatch.setattr(compile_ahead, "compiled_s", lambda: 5.0)
    monkeypatch.setattr(compile_ahead, "_done", {("cp-sat", False)})
    return warmed


def test_where_kernels_are_not_compiled_yet_those_of_the_lanes_are_compiled_before_they_start(
    warmed: list[tuple[str, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = list(proofs(Task(hard(), PORT), 2))
    with closing(KernelCompiler(hard())) as compiler:
        with monkeypatch.context() as patch:
            patch.setattr(compile_ahead, "compiled_s", lambda: 0.5)
            compiler.finish(steps, [])
            assert warmed == []
        for _ in range(2):
            compiler.finish(steps, [])
    once = [("bounds", False), ("decomposition", False)]  # once each, and cp-sat was warm
    assert warmed == once
    with closing(KernelCompiler(tight_example())) as compiler:  # tight memory needs other kernels
        compiler.finish(steps, [])
    assert warmed[len(once) :] == [("bounds", True), ("decomposition", True), ("cp-sat", True)]


@pytest.mark.parametrize("can_start", [True, False])
def test_two_processes_compile_what_two_lanes_need(
    warmed: list[tuple[str, bool]], monkeypatch: pytest.MonkeyPatch, *, can_start: bool
) -> None:
    started: list[list[str]] = []

    class Process(WorkerProcess):
        def __init__(self, serve: object, args: tuple[list[AutoStep], bool]) -> None:
            if not can_start:
                raise OSError("no more processes")
            started.append([step.method for step in args[0]])
            super().__init__(compile_ahead._serve, ([], False))

    monkeypatch.setattr(compile_ahead, "WorkerProcess", Process)
    heft, etf, peft = (AutoStep(name, PORT) for name in ("heft", "etf", "peft"))
    before_s = compiled_s()
    with closing(KernelCompiler(hard())) as compiler:
        compiler.begin([etf, peft])
        compiler.finish([heft, peft], [peft, etf])
    here = [method for method, _ in warmed]
    assert (here, started) == (
        (["heft"], [["etf", "peft"]]) if can_start else (["heft", "peft", "etf"], [])
    )
    assert (compiled_s() > before_s) == can_start  # clocks stand while it waits


def test_what_only_tight_memory_needs_is_compiled_before_the_clock_of_a_step_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(
        parts, "solve", lambda instance, *given, **limits: asked.append(memory_is_slack(instance))
    )
    for is_tight in (False, True):
        parts.warm_up(AutoStep("frontier-paths", PORT), is_tight=is_tight)
    assert asked == [True, True, False]


def test_a_step_that_fails_because_it_was_stopped_is_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*given: object, **limits: object) -> None:
        raise RuntimeError("no compiled object yet")

    monkeypatch.setattr(parts, "solve", fail)
    order = Order(AutoStep("heft", PORT), 1.0, 0.0, None, None)
    assert run_step(example(), order, None, lambda found: None) == (
        "RuntimeError: no compiled object yet"
    )
    monkeypatch.setattr(parts, "stop_asked", lambda: True)
    assert run_step(example(), order, None, lambda found: None) == "interrupted"


def test_a_process_that_dies_is_replaced_for_the_next_step() -> None:
    instance = example()
    task = Task(instance, PORT, Limits(60.0))
    steps = [AutoStep("getf", PORT), AutoStep("heft", PORT)]
    lane = Lane(task, pickle.dumps(task.instance), iter(steps), is_nice=False)
    board = Board(task=task, gap=0.0)
    lane.feed(board)
    assert lane.process is not None
    lane.process.send_signal(signal.SIGKILL)
    run_lanes([lane], board, Deadline(Clock(60.0), 0.0))
    assert board.notes == {"getf": "its process died (signal SIGKILL)"}
    assert board.plan_by == "heft"


def test_a_process_that_hangs_is_ended_at_the_limit() -> None:
    task = Task(hard(), PORT, Limits(1.0))
    lane = Lane(
        task, pickle.dumps(task.instance), iter([AutoStep("decomposition", PORT)]), is_nice=False
    )
    board = Board(task=task, gap=0.0)
    assert lane.process is not None
    lane.process.send_signal(signal.SIGSTOP)
    began = time.monotonic()
    run_lanes([lane], board, Deadline(Clock(1.0), 0.0))
    assert time.monotonic() - began < 10.0
    assert lane.process is None


# ----------------------------------------------------------------------------------------- board


def judged(semantics: Semantics, outcome: Outcome, method: str = "somebody") -> Result:
    return finish(example(), semantics, method, outcome, solve_s=0.0)


def test_a_plan_under_stricter_channels_counts_under_the_looser_ones() -> None:
    free = Makespan(channels="free")
    board = Board(task=Task(example(), free), gap=0.0)
    plan = Plan.on([0, 1, 0, 0])
    board.take(judged(PORT, Outcome(plan)))
    assert board.value_ns == evaluate(example(), plan, free).value_ns


def test_bounds_on_wider_classes_count_and_on_narrower_ones_do_not() -> None:
    chain, whole = MaxLoad(plans="chain"), MaxLoad()
    board = Board(task=Task(example(), chain), gap=0.0)
    board.take(judged(whole, Outcome(bound_ns=25, bound_origin="columns", rests_on=PROOF)))
    assert (board.bound_ns, board.bound_class) == (25, "any")
    other = Board(task=Task(example(), whole), gap=0.0)
    other.take(judged(chain, Outcome(bound_ns=39, bound_origin="ideal-dp", rests_on=PROOF)))
    assert other.bound_ns == 0


def test_a_bound_that_a_plan_refutes_becomes_a_fault() -> None:
    board = Board(task=Task(example(), PORT), gap=0.0)
    board.prove(40, "a wrong one")  # the optimum is 34
    assert board.offer(Plan.on([0, 1, 0, 0]), "somebody")
    assert (board.value_ns, board.bound_ns) == (35, 33)  # the critical path is left
    assert "above the value 35 of a plan" in board.faults[0]
    board.take(judged(PORT, Outcome(proven_infeasible=True), "a liar"))
    assert not board.is_over
    assert "says that no plan exists" in board.faults[1]


def test_of_equal_bounds_the_one_that_is_a_proof_counts() -> None:
    board = Board(task=Task(example(), PORT), gap=0.0)
    board.prove(30, "cp-sat", "CP-SAT 9")
    board.prove(30, "critical path", PROOF)
    board.prove(30, "cp-sat", "CP-SAT 9")
    assert (board.origin, board.rests_on) == ("critical path", PROOF)


# ----------------------------------------------------------------------------------------- rules


def test_the_search_that_gained_most_for_its_time_is_asked_again() -> None:
    best = {"run-moves": 10, "disjunctive-search": 40}  # ns that each turn of a search gains
    value, asked = 1000, []
    steps = _turns([AutoStep(name, Makespan(), 0.2) for name in best], lambda: value)
    for step in islice(steps, 7):
        asked.append((step.method, step.share))
        time.sleep(0.01)
        value -= best[step.method]
    first, later = [("run-moves", 0.2), ("disjunctive-search", 0.2)], ("disjunctive-search", 0.5)
    # two in a row, then the other one once
    assert asked == [*first, later, ("run-moves", 0.5), later, later, ("run-moves", 0.5)]


def test_layers_move_first_unless_there_are_too_many_groups_to_cool() -> None:
    # 600 groups times some 2,000 ops and edges: a round of run-moves is taken to last about 5 s
    document = Document(name="wide", graph=generate("layered", {"ops": 600}))
    wide = document.instance(load_cluster("celeritas-4xV100-pcie"))
    for limit_s, first in ((60.0, "run-moves"), (1.0, "multilevel")):
        looking = plans(Task(wide, PORT, Limits(limit_s)), 0)
        assert next(step.method for step in looking if step.method != "chain-sides") == first


def test_searches_that_gain_nothing_take_turns() -> None:
    steps = _turns([AutoStep(name, Makespan()) for name in "abc"], lambda: 5)
    assert [step.method for step in islice(steps, 7)] == [*"abc", *"abc", "a"]


def test_steps_have_rules_whose_plans_or_bounds_hold_for_the_task() -> None:
    convex = Task(example(), MaxLoad(plans="convex"))
    assert [step.semantics.label for step in proofs(convex, 2)][-2:] == [
        "max_load any add", "max_load convex add",
    ]  # fmt: skip
    assert next(plans(convex, 0)).semantics.label == "max_load chain add"


def test_memory_that_cannot_suffice_is_an_answer_at_once() -> None:
    # four ops of a byte, and devices of one byte each
    tight = tight_example()
    devices = tuple(d.model_copy(update={"memory_bytes": 1}) for d in tight.cluster.devices)
    cluster = tight.cluster.model_copy(update={"devices": devices})
    for semantics in (Makespan(), Makespan(memory="peak"), MaxLoad(plans="any")):
        result = solve(tight.model_copy(update={"cluster": cluster}), semantics, "auto")
        assert result.status == "infeasible"
        assert result.rests_on == PROOF
        assert "need" in result.message
