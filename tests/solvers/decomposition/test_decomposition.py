"""Decomposition: exact where the theorem says so, a bound everywhere, whatever stops it."""

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from doubles.processes import children
from draws import draw
from draws.bottlenecks import bottleneck_instance
from draws.tiny import SHARED, needs_moirai
from features.makespan import edges_of, instance, ops_of
from references.agreement import few_and_many, keeps_sides, proves
from references.brute_force import MAKESPAN_SEMANTICS, oracle

from placegap.instances import (
    Instance,
    Makespan,
    Plan,
    Semantics,
    example,
    load_cluster,
    load_corpus,
)
from placegap.instances.importers.reader import load_model
from placegap.instances.problem.sections import cuts, sections_between
from placegap.solvers import Result, SolverDisagreement, run_method
from placegap.solvers.core import worker_process
from placegap.solvers.core.back_ends import cp_sat
from placegap.solvers.core.back_ends.cp_sat import Answer
from placegap.solvers.core.method import Task
from placegap.solvers.core.result import PROOF
from placegap.solvers.decomposition import decomposition, search, section_jobs
from placegap.solvers.decomposition.arcs import ArcTable, tiling
from placegap.solvers.decomposition.search import SectionSearch
from placegap.solvers.decomposition.section_jobs import Job

PORT = Makespan()
ONE = {"workers": 1}


@contextmanager
def without_the_whole_model(**constants: int) -> Iterator[None]:
    """Sections and intervals only; constants of the search set to other values."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decomposition, "solve_whole", lambda *_: None)
        patch.setattr(decomposition, "_anneal", lambda *_: False)
        for name, value in constants.items():
            patch.setattr(decomposition, name, value)
        yield


def agrees(problem: Instance, semantics: Semantics, result: Result, *, proven: bool) -> None:
    """Assert bound <= optimum <= value, all of them equal if that is said to be proven."""
    best = oracle(problem, semantics)
    where = f"{problem.name}, {semantics.label}: {result.value_ns} / {result.bound_ns}, not {best}"
    keeps_sides(result, best, where)
    assert best is None or result.bound_ns is not None, where
    if proven:
        proves(result, best, where)


def is_exact(problem: Instance) -> bool:
    """Whether the theorem holds and there is something to decompose."""
    return problem.arrays.memory_is_slack and len(cuts(problem)) > 0


@few_and_many(60, 4000)
def test_sections_alone_are_exact_where_the_theorem_holds(seeds: range) -> None:
    exact = Counter[bool]()
    for seed in seeds:
        problem, semantics = bottleneck_instance(seed), MAKESPAN_SEMANTICS[seed // 5 % 8]
        most = -1 if seed % 4 == 0 else 100  # intervals alone give bounds
        with without_the_whole_model(LP_FROM=1 if seed % 3 == 0 else 40, MOST_INNER=most):
            params = {**ONE, "start": seed % 2 == 0}
            result = run_method(problem, semantics, "decomposition", params)
        proven = is_exact(problem) and most > 0
        agrees(problem, semantics, result, proven=proven)
        exact[proven] += 1
    assert min(exact.values()) >= len(seeds) // 5


def long() -> Instance:
    """Ten sections of 26 to 36 ops on four different devices: half a minute of work."""
    return load_corpus("inception_v2").instance(load_cluster("moirai-inter-server"))


def test_a_time_limit_is_kept_and_plans_improve_meanwhile() -> None:
    values = []
    for limit_s in (0, 1, 2, 4):  # a busy machine gives a fraction of the seconds
        outcome = run_method(long(), PORT, "decomposition", ONE, time_limit_s=float(limit_s))
        words = f"time limit of {limit_s} s reached"
        assert (outcome.status, outcome.message) == ("feasible", words)
        assert outcome.solve_s < limit_s + 20
        assert 0 < outcome.bound_ns < OPTIMUM_OF_LONG_NS
        assert outcome.value_ns >= OPTIMUM_OF_LONG_NS
        values.append(outcome.value_ns)
        if values[-1] < values[0]:
            break
    assert values[-1] < values[0]


@pytest.mark.parametrize(("most_parts", "models"), [(0, 0), (10**9, 1)])
def test_without_annealing_there_is_no_large_model_of_the_whole(
    most_parts: int, models: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole: list[int] = []
    monkeypatch.setattr(decomposition, "MOST_INNER", -1)  # no section is solved by itself
    monkeypatch.setattr(decomposition, "PROMISING", most_parts)
    monkeypatch.setattr(decomposition, "solve_whole", lambda *_: whole.append(1))
    monkeypatch.setattr(decomposition, "_anneal", lambda *_: pytest.fail("it annealed"))
    found = run_method(long(), PORT, "decomposition", {**ONE, "anneal": False})
    assert (len(whole), found.status) == (models, "feasible")
    assert 0 < found.bound_ns <= OPTIMUM_OF_LONG_NS <= found.value_ns


OPTIMUM_OF_LONG_NS = 1_556_362


@pytest.mark.parametrize("workers", [1, 2])
def test_an_interrupt_ends_the_search_and_keeps_what_is_known(
    workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(section_jobs, "SPAWN_AFTER_S", 0.0)
    alarm = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    submit, waiting = section_jobs.SectionWorkers.submit, [alarm]

    def submit_and_interrupt(self: section_jobs.SectionWorkers, job: Job) -> int:
        while waiting:
            waiting.pop().start()
        return submit(self, job)

    monkeypatch.setattr(section_jobs.SectionWorkers, "submit", submit_and_interrupt)
    try:
        result = run_method(long(), PORT, "decomposition", {"workers": workers}, time_limit_s=60.0)
    finally:
        alarm.cancel()
    assert (result.status, result.message) == ("feasible", "interrupted")
    assert result.solve_s < 30
    assert 0 < result.bound_ns < OPTIMUM_OF_LONG_NS
    assert not children()


def test_a_claim_that_the_referee_cannot_confirm_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Everything on one device takes 43, and not the 34 that the sections take.
    monkeypatch.setattr(search, "join", lambda *_: Plan.on([0] * 4))
    params = {**ONE, "start": False}
    with without_the_whole_model(), pytest.raises(SolverDisagreement, match="claims 34"):
        run_method(example(), PORT, "decomposition", params)


def test_worker_processes_find_the_same_optimum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(section_jobs, "SPAWN_AFTER_S", 0.0)
    problem = load_corpus("inception_v1").instance(load_cluster("celeritas-4xV100-pcie"))
    result = run_method(problem, PORT, "decomposition", {"workers": 2})
    assert (result.status, result.value_ns) == ("optimal", 786_996)
    assert not children()


@pytest.mark.deep
def test_a_job_survives_the_death_of_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(section_jobs, "SPAWN_AFTER_S", 0.0)
    job = Job(example(), PORT, "cp", None, 10.0, 0, None)
    with section_jobs.SectionWorkers(2) as workers:
        assert workers.wanted == 1  # no process is ready yet: this one takes a job
        while workers.wanted < 2:
            time.sleep(0.1)
        tickets = {workers.submit(job), workers.submit(job)}
        for process in children():
            os.kill(process, signal.SIGKILL)
        while tickets:
            for ticket, answer in workers.answers(None):
                assert (answer.lower_ns, answer.upper_ns) == (34, 34)
                tickets.remove(ticket)


def test_where_no_process_can_start_the_work_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[object] = []

    def fail(*args: object, **options: object) -> None:
        tried.append(args)
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(section_jobs, "SPAWN_AFTER_S", 0.0)
    monkeypatch.setattr(worker_process.subprocess, "Popen", fail)
    with without_the_whole_model():
        result = run_method(example(), PORT, "decomposition", {"workers": 2, "start": False})
    assert tried
    assert (result.status, result.value_ns) == ("optimal", 34)


def test_sections_are_equal_only_if_groups_leave_their_ops_the_same_devices() -> None:
    # b and e take the same, but only x runs c, and b with it: b takes 100 ns there. e does not, as
    # it is free to go: a, b and c on x, d and e on y take 1 + 100 + 1 + 2 + 1 + 1 ns
    ops = ops_of("a 0:1 1:1") + ops_of("b 0:100 1:1, c 0:1", colocation="g")
    ops += ops_of("d 0:1 1:1, e 0:100 1:1")
    row = instance("row", ops, edges_of("a b 2, b c 2, c d 2, d e 2"))
    for params in ({"start": False, **ONE}, ONE):
        result = run_method(row, PORT, "decomposition", params)
        assert (result.value_ns, result.bound_ns) == (106, 106)


def test_nothing_is_asked_of_an_arc_that_no_better_plan_can_use() -> None:
    # on kind0 all takes 4 ns; from `in` to `out` on kind1 x alone takes 1,000. Memory may lead a
    # path there, but no plan of less than 4 ns: a horizon below 0 was an error in CP-SAT
    ops = ops_of("in 0:1 1:1, x 0:1 1:1000, y 0:1 1:1000, out 0:1 1:1")
    diamond = instance("diamond", ops, edges_of("in x 2, in y 2, x out 2, y out 2"))
    task = Task(diamond, PORT)
    table = ArcTable(diamond, PORT)
    tiles = tiling(table, sections_between(diamond, cuts(diamond)))
    (slow,) = (uses[1][1] for uses in tiles.uses if uses[0][0].section.num_inner == 2)
    with section_jobs.SectionWorkers(1) as workers:
        found = SectionSearch(task, table, workers, task.limits.clock())
        assert found.found_plan(Plan.on([0] * 4))
        found.refine(tiles, decomposition._step, shortest=lambda _: (3, [slow]))
    assert (found.value, found.bound.value, found.jobs) == (4, 3, 0)


def test_section_plans_are_packed_into_memory_that_binds() -> None:
    # Each of the four devices holds half of the sum of all ops. Without limits, 423,673 ns.
    problem = load_corpus("squeezenet").instance(load_cluster("celeritas-4xV100-pcie"))
    half = sum(op.resident_bytes for op in problem.graph.ops) // 2
    tight = draw.with_memory(problem, half)
    with without_the_whole_model():
        result = run_method(tight, PORT, "decomposition", ONE)
    # the whole model proves the same optimum; runs that fit into memory do so without it
    assert (result.status, result.value_ns) == ("optimal", 453_464)


def test_the_three_ops_of_the_documentation_take_11_ns() -> None:
    # Forward over (op, device): a 2, 4; b min(2 + 9, 4 + 12) = 11, min(2 + 7, 4 + 4) = 8;
    # c min(11 + 3, 8 + 4) = 12, min(11 + 4, 8 + 3) = 11.
    ops, edges = ops_of("a 0:2 1:4, b 0:9 1:4, c 0:3 1:3"), edges_of("a b 3, b c 1")
    row, skipped = instance("row", ops, edges), instance("skip", ops, [*edges, ("a", "c", 1)])
    assert (cuts(row), cuts(skipped)) == ((0, 1, 2), (0, 2))
    with without_the_whole_model():
        result = run_method(row, PORT, "decomposition", {**ONE, "start": False})
    assert (result.status, result.value_ns) == ("optimal", 11)


@pytest.mark.deep
@needs_moirai
def test_googlenet_takes_1_27811_ms() -> None:
    # moirai-semantics.md: the optimum of the sample
    problem = load_model(SHARED / "instances" / "moirai" / "GoogLeNet.xls").instance()
    result = run_method(problem, PORT, "decomposition", ONE)
    assert (result.status, result.value_ns) == ("optimal", 1_278_110)


@pytest.mark.filterwarnings("ignore::placegap.solvers.core.result.Fault")
def test_what_a_lie_of_cp_sat_helps_to_prove_is_never_called_a_proof(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # "no better schedule of this section exists", whatever the section
    lie = Answer("infeasible")
    monkeypatch.setattr(cp_sat, "run_cp_sat", lambda *_: lie)
    monkeypatch.setattr(decomposition, "solve_whole", lambda *_: None)
    lied = 0
    for seed in range(25):
        problem = bottleneck_instance(seed, num_ops=6, most_edges=7)
        best = oracle(problem, PORT)
        result = run_method(problem, PORT, "decomposition", {**ONE, "start": False})
        if best is None or result.bound_ns is None:
            continue
        if result.bound_ns > best:
            lied += 1
        assert result.rests_on != PROOF or result.bound_ns <= best, problem.name
    assert lied
