"""Decomposition: exact where the theorem says so, a bound everywhere, whatever stops it."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import pytest
from doubles.processes import children
from draws.bottlenecks import SPOILS, bottleneck_instance
from draws.tiny import SHARED, needs_moirai
from features.makespan import instance
from references.brute_force import MAKESPAN_SEMANTICS, oracle

from placegap.instances import (
    Instance,
    Makespan,
    Op,
    Plan,
    Semantics,
    evaluate,
    example,
    load_cluster,
    load_corpus,
)
from placegap.instances.importers.reader import read_model
from placegap.instances.problem.sections import cuts, sections_between
from placegap.solvers import Result, SolverDisagreement, run_method
from placegap.solvers.core import worker_process
from placegap.solvers.core.back_ends import cp_sat
from placegap.solvers.core.back_ends.cp_sat import Answer
from placegap.solvers.core.method import Task
from placegap.solvers.core.progress import Progress
from placegap.solvers.core.result import PROOF
from placegap.solvers.decomposition import decomposition, search, section_jobs
from placegap.solvers.decomposition.arcs import ArcTable, tiling
from placegap.solvers.decomposition.search import SectionSearch
from placegap.solvers.decomposition.section_jobs import Job

PORT = Makespan()
ONE = {"workers": 1}

by_label = pytest.mark.parametrize(
    "semantics", MAKESPAN_SEMANTICS, ids=lambda s: s.label.replace(" ", "-")
)


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
    if best is None:
        assert result.value_ns is None, where
        assert result.status == "infeasible" or not proven, where
        return
    assert result.status != "infeasible", where
    assert result.bound_ns is not None, where
    assert result.bound_ns <= best, where
    assert result.value_ns is None or result.value_ns >= best, where
    if proven:
        assert result.status == "optimal", where


def is_exact(problem: Instance) -> bool:
    """Whether the theorem holds and there is something to decompose."""
    return problem.arrays.memory_is_slack and len(cuts(problem)) > 0


def seeds(semantics: Semantics, end: int) -> range:
    """Other instances for each semantics."""
    return range(MAKESPAN_SEMANTICS.index(semantics), end, len(MAKESPAN_SEMANTICS))


@by_label
def test_it_equals_brute_force(semantics: Semantics) -> None:
    # test_agreement_makespan.py has other instances
    for number, seed in enumerate(seeds(semantics, 96)):
        problem = bottleneck_instance(seed)
        result = run_method(problem, semantics, "decomposition", {**ONE, "start": number % 2 == 0})
        agrees(problem, semantics, result, proven=True)


@by_label
def test_sections_alone_are_exact_where_the_theorem_holds(semantics: Semantics) -> None:
    exact: Counter[bool] = Counter()
    for seed in seeds(semantics, 80):
        problem = bottleneck_instance(seed)
        with without_the_whole_model(LP_FROM=2 if seed % 3 == 0 else 40):
            result = run_method(
                problem, semantics, "decomposition", {**ONE, "start": seed % 2 == 0}
            )
        agrees(problem, semantics, result, proven=is_exact(problem))
        exact[is_exact(problem)] += 1
    assert min(exact.values()) >= 2


@by_label
def test_intervals_alone_give_bounds(semantics: Semantics) -> None:
    for seed in seeds(semantics, 24):
        problem = bottleneck_instance(seed)
        with without_the_whole_model(MOST_INNER=-1, LP_FROM=1 if seed % 3 == 0 else 40):
            agrees(
                problem,
                semantics,
                run_method(problem, semantics, "decomposition", ONE),
                proven=False,
            )


@pytest.mark.deep
@pytest.mark.parametrize("first", range(0, 4000, 500))
def test_thousands_of_instances(first: int) -> None:
    spoilt: Counter[str] = Counter()
    for seed in range(first, first + 500):
        problem = bottleneck_instance(seed)
        semantics = MAKESPAN_SEMANTICS[seed // 5 % 8]
        params = {**ONE, "start": seed % 3 > 0}
        agrees(
            problem, semantics, run_method(problem, semantics, "decomposition", params), proven=True
        )
        most = -1 if seed % 4 == 0 else 100
        with without_the_whole_model(LP_FROM=1 if seed % 2 else 40, MOST_INNER=most):
            result = run_method(problem, semantics, "decomposition", params)
        proven = is_exact(problem) and most > 0
        agrees(problem, semantics, result, proven=proven)
        spoilt[SPOILS[seed % 5]] += not proven
    assert spoilt["memory"] > 50


# ------------------------------------------------------------------------------- limits and the end


@by_label
def test_stopped_at_once_it_returns_its_start_and_a_valid_bound(semantics: Semantics) -> None:
    gaps = 0
    for seed in seeds(semantics, 24):
        problem = bottleneck_instance(seed)
        result = run_method(problem, semantics, "decomposition", time_limit_s=0.0)
        agrees(problem, semantics, result, proven=False)
        gaps += result.status == "feasible"
    assert gaps > 0


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
        assert outcome.bound_ns is not None
        assert 0 < outcome.bound_ns < OPTIMUM_OF_LONG_NS
        assert outcome.value_ns is not None
        assert outcome.value_ns >= OPTIMUM_OF_LONG_NS
        values.append(outcome.value_ns)
        if values[-1] < values[0]:
            break
    assert values[-1] < values[0]


OPTIMUM_OF_LONG_NS = 1_556_362


def test_the_requested_gap_ends_the_search() -> None:
    result = run_method(long(), PORT, "decomposition", ONE, gap=0.5)
    assert result.status == "gap_met"
    assert result.gap is not None
    assert 0.1 < result.gap <= 0.5


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
    assert result.bound_ns is not None
    assert 0 < result.bound_ns < OPTIMUM_OF_LONG_NS
    assert not children()


def test_an_incumbent_is_never_lost() -> None:
    # The optimum, 34, as incumbent; without it the placers start at 35 or more.
    best = run_method(example(), PORT, "brute-force").plan
    params = {**ONE, "start": False}
    stopped = run_method(example(), PORT, "decomposition", params, time_limit_s=0.0, incumbent=best)
    assert stopped.value_ns == 34


def test_one_worker_returns_the_same_plan_every_time() -> None:
    for seed in range(0, 40, 8):
        problem = bottleneck_instance(seed)
        plans = [run_method(problem, PORT, "decomposition", ONE, seed=7).plan for _ in range(2)]
        assert plans[0] == plans[1]


def test_a_claim_that_the_referee_cannot_confirm_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Everything on one device takes 43, and not the 34 that the sections take.
    monkeypatch.setattr(search, "join", lambda *_: Plan.on([0] * 4))
    params = {**ONE, "start": False}
    with without_the_whole_model(), pytest.raises(SolverDisagreement, match="claims 34"):
        run_method(example(), PORT, "decomposition", params)


# ------------------------------------------------------------------------------------- on processes


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


def test_a_process_that_is_one_worker_of_many_does_the_work_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(section_jobs, "SPAWN_AFTER_S", 0.0)
    monkeypatch.setattr(worker_process, "_may_start_processes", False)
    with section_jobs.SectionWorkers(2) as workers:
        assert workers.wanted == 1
        assert not children()


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


# ------------------------------------------------------------------------------------ real graphs


@pytest.mark.parametrize(
    ("graph", "cluster", "optimum_ns"),
    [
        ("squeezenet", "celeritas-4xV100-pcie", 423_673),
        ("resnet50", "moirai-inter-server", 1_883_914),
        pytest.param("inception_v2", "moirai-inter-server", 1_556_362, marks=pytest.mark.deep),
    ],
)
def test_optima_of_the_corpus(graph: str, cluster: str, optimum_ns: int) -> None:
    problem = load_corpus(graph).instance(load_cluster(cluster))
    result = run_method(problem, PORT, "decomposition", ONE)
    assert (result.status, result.value_ns) == ("optimal", optimum_ns)


def test_sections_are_equal_only_if_groups_leave_their_ops_the_same_devices() -> None:
    # b and e take the same, but only x runs c, and b with it: b takes 100 ns there. e does not, as
    # it is free to go: a, b and c on x, d and e on y take 1 + 100 + 1 + 2 + 1 + 1 ns
    times = {"a": (1, 1), "b": (100, 1), "c": (1, None), "d": (1, 1), "e": (100, 1)}
    ops = [
        Op(
            name=name,
            time_ns={"kind0": x} if y is None else {"kind0": x, "kind1": y},
            colocation="g" if name in "bc" else None,
        )
        for name, (x, y) in times.items()
    ]
    row = instance("row", ops, [(a, b, 2) for a, b in pairwise("abcde")])
    for params in ({"start": False, **ONE}, ONE):
        result = run_method(row, PORT, "decomposition", params)
        assert (result.value_ns, result.bound_ns) == (106, 106)


def test_nothing_is_asked_of_an_arc_that_no_better_plan_can_use() -> None:
    # on kind0 all takes 4 ns; from `in` to `out` on kind1 x alone takes 1,000. Memory may lead a
    # path there, but no plan of less than 4 ns: a horizon below 0 was an error in CP-SAT
    ops = [
        Op(name=name, time_ns={"kind0": 1, "kind1": 1000 if name in "xy" else 1})
        for name in ("in", "x", "y", "out")
    ]
    pairs = [("in", "x", 2), ("in", "y", 2), ("x", "out", 2), ("y", "out", 2)]
    diamond = instance("diamond", ops, pairs)
    task = Task(diamond, PORT)
    table = ArcTable(diamond, PORT)
    tiles = tiling(table, sections_between(diamond, cuts(diamond)))
    (slow,) = (uses[1][1] for uses in tiles.uses if uses[0][0].section.num_inner == 2)
    with section_jobs.SectionWorkers(1) as workers:
        found = SectionSearch(task, table, workers, task.limits.clock())
        assert found.found_plan(Plan.on([0] * 4))
        found.refine(tiles, decomposition._step, shortest=lambda _: (3, [slow]))
    assert (found.value_ns, found.bound_ns, found.jobs) == (4, 3, 0)


def test_section_plans_are_packed_into_memory_that_binds() -> None:
    # Each of the four devices holds half of the sum of all ops. Without limits, 423,673 ns.
    problem = load_corpus("squeezenet").instance(load_cluster("celeritas-4xV100-pcie"))
    half = sum(op.resident_bytes for op in problem.graph.ops) // 2
    devices = [d.model_copy(update={"memory_bytes": half}) for d in problem.cluster.devices]
    cluster = problem.cluster.model_copy(update={"devices": tuple(devices)})
    tight = problem.model_copy(update={"cluster": cluster})
    with without_the_whole_model():
        result = run_method(tight, PORT, "decomposition", ONE)
    # the whole model proves the same optimum; runs that fit into memory do so without it
    assert (result.status, result.value_ns) == ("optimal", 453_464)


def test_those_who_listen_are_given_its_plans() -> None:
    heard = list[Progress]()
    alone = {"workers": 1, "start": False}
    found = run_method(example(), Makespan(), "decomposition", alone, progress=heard.append)
    assert heard[-1].value_ns == found.value_ns == 34
    assert heard[-1].plan is not None
    assert evaluate(example(), heard[-1].plan, Makespan()).value_ns == 34


def test_the_three_ops_of_the_documentation_take_11_ns() -> None:
    # Forward over (op, device): a 2, 4; b min(2 + 9, 4 + 12) = 11, min(2 + 7, 4 + 4) = 8;
    # c min(11 + 3, 8 + 4) = 12, min(11 + 4, 8 + 3) = 11.
    times = {"a": (2, 4), "b": (9, 4), "c": (3, 3)}
    ops = [Op(name=op, time_ns={"kind0": p, "kind1": q}) for op, (p, q) in times.items()]
    edges = [("a", "b", 3), ("b", "c", 1)]
    row, skipped = instance("row", ops, edges), instance("skip", ops, [*edges, ("a", "c", 1)])
    assert (cuts(row), cuts(skipped)) == ((0, 1, 2), (0, 2))
    with without_the_whole_model():
        result = run_method(row, PORT, "decomposition", {**ONE, "start": False})
    assert (result.status, result.value_ns) == ("optimal", 11)


@needs_moirai
def test_googlenet_takes_1_27811_ms() -> None:
    # moirai-semantics.md: the optimum of the sample
    problem = read_model(SHARED / "instances" / "moirai" / "GoogLeNet.xls").instance()
    result = run_method(problem, PORT, "decomposition", ONE)
    assert (result.status, result.value_ns) == ("optimal", 1_278_110)


@pytest.mark.deep
@needs_moirai
def test_the_transformer_takes_at_least_17_9_ms() -> None:
    # makespan-bounds.md: 17.9645 ms by a chain of intervals
    problem = read_model(SHARED / "instances" / "moirai" / "transformer.xls").instance()
    result = run_method(problem, PORT, "decomposition", time_limit_s=60.0)
    assert result.bound_ns is not None
    assert result.value_ns is not None
    assert 17_900_000 <= result.bound_ns <= 20_391_500 <= result.value_ns


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
