"""auto: no part makes another one worse, the time is used, and what fails costs nothing known.

It asks every placer of the registry, so that it is never worse than the best of them.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from types import SimpleNamespace

import pytest
from doubles import processes
from draws import draw
from draws.tiny import tiny_instance
from references.brute_force import max_load_draws, oracle

from placegap.instances import Instance, Makespan, MaxLoad, Plan, Semantics, evaluate, example
from placegap.instances.kernels.loading import loading_s
from placegap.instances.problem import LatencySubgraphs, MaxLoadFwdBwd, PipelineIteration
from placegap.solvers import METHODS, Limits, Outcome, Result, Task, run_method
from placegap.solvers.bounds.cheap_bounds import quick_bound
from placegap.solvers.core import clock as clock_module
from placegap.solvers.core.clock import Clock
from placegap.solvers.core.method import AnyMethod, Params
from placegap.solvers.core.objective import Step, proofs, strategy
from placegap.solvers.core.progress import Progress
from placegap.solvers.core.result import PROOF, Bound, SolverDisagreement, finish, no_plan
from placegap.solvers.core.starts import ALWAYS, cheapest_first
from placegap.solvers.objectives import makespan
from placegap.solvers.solving import auto, incumbent, search_process
from placegap.solvers.solving.incumbent import JudgedKnown
from placegap.solvers.solving.search_process import SearchProcess, plans

PORT = Makespan()
ALONE = {"workers": 1}


def tight_example(room: tuple[int, int] = (2, 3)) -> Instance:
    """The same where an op holds one byte, and no device, of two and three, can run all."""
    loose = draw.with_ops(example(), resident_bytes=[1] * 4)
    return draw.with_devices(loose, memory_bytes=room)


def hard() -> Instance:
    """30 ops on 4 devices: minutes away from a proof by either solver, and by no cheap bound."""
    return tiny_instance(9, num_ops=30, num_devices=4, density=0.3)


KINDS: tuple[Semantics, ...] = (
    PORT,
    Makespan(channels="free", memory="peak"),
    MaxLoad(plans="chain"),
    MaxLoad(plans="chain", memory="peak"),
    MaxLoad(plans="any"),
    MaxLoad(plans="convex"),
    MaxLoadFwdBwd(plans="any"),
    LatencySubgraphs(),
    PipelineIteration(microbatches=2),
)
by_label = pytest.mark.parametrize("semantics", KINDS, ids=lambda semantics: semantics.label)


@by_label
def test_value_and_bound_enclose_the_optimum(semantics: Semantics) -> None:
    instance = tiny_instance(3, num_ops=6, num_devices=3)
    found = run_method(instance, semantics, "auto", ALONE, time_limit_s=2.0)
    assert found.bound_ns >= quick_bound(instance, semantics).value
    if semantics.memory_rule == "sum":  # brute force knows no other rule
        optimum = oracle(instance, semantics)
        assert found.bound_ns <= optimum <= found.value_ns


def test_the_best_load_is_a_bound_on_forward_and_backward_loads() -> None:
    semantics, instances = MaxLoadFwdBwd(plans="chain"), max_load_draws()[::9]
    first = [next(proofs(Task(instance, semantics))) for instance in instances]
    assert {step.semantics.objective for step in first} == {"max_load"}
    for instance, step in zip(instances, first, strict=True):
        together, apart = oracle(instance, step.semantics), oracle(instance, semantics)
        assert (together is None) == (apart is None)
        assert together is None or apart is None or together <= apart
    found = run_method(instances[-1], semantics, "auto", ALONE, time_limit_s=20.0)
    assert found.value_ns == oracle(instances[-1], semantics)


def test_the_whole_time_is_used_where_nothing_is_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    found = run_method(hard(), PORT, "auto", ALONE, time_limit_s=0.5)
    assert found.status == "feasible"
    assert found.message == "stopped at the time limit"
    assert 0.35 < found.solve_s < 20.0  # busy machines are late
    monkeypatch.setattr(auto, "USUAL_S", 0.1)
    found = run_method(hard(), PORT, "auto", ALONE)
    assert found.message == "stopped at the time limit, 0.1 s by default"


def test_it_stops_at_the_gap_that_suffices() -> None:
    found = run_method(hard(), PORT, "auto", ALONE, time_limit_s=300.0, gap=0.9)
    assert found.status == "gap_met"


@pytest.mark.parametrize(
    ("error", "message"), [(MemoryError(), "out of memory"), (RuntimeError("broken"), "broken")]
)
def test_a_part_that_fails_costs_a_sentence(
    monkeypatch: pytest.MonkeyPatch, error: Exception, message: str
) -> None:
    def fail(*args: object, **kwargs: object) -> Result:
        raise error

    monkeypatch.setattr(incumbent, "run_task", fail)
    found = run_method(hard(), PORT, "auto", ALONE, time_limit_s=1.0)
    assert found.plan is not None
    assert found.bound_ns is not None
    assert message in found.message


def test_what_the_referee_denies_is_a_fault_and_no_mere_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def contradict(*args: object, **kwargs: object) -> Result:
        raise SolverDisagreement("claims 1,\nthe referee finds 34")

    known = JudgedKnown(task=Task(example(), PORT, Limits(60.0)))
    known.prove(Bound(34, "heft"), is_preliminary=True)  # told while it ran, and believed no more
    monkeypatch.setattr(incumbent, "run_task", contradict)
    known.take_answer("heft", known.run(Step("heft", PORT), 1.0))
    assert known.faults == ["heft: claims 1, the referee finds 34"]
    assert (known.bound.value, known.notes) == (quick_bound(example(), PORT).value, {})


def test_a_step_that_fails_because_it_was_stopped_is_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*given: object, **limits: object) -> None:
        raise RuntimeError("no compiled object yet")

    monkeypatch.setattr(incumbent, "run_task", fail)
    known = JudgedKnown(task=Task(example(), PORT))
    step = Step("heft", PORT)
    assert known.run(step, 1.0) == "RuntimeError: no compiled object yet"
    monkeypatch.setattr(incumbent, "stop_requested", lambda: True)
    assert known.run(step, 1.0) == "interrupted"


# ------------------------------------------------------------------------------ a likely proof


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The methods that run in this process, each time that one does."""
    calls: list[str] = []

    def counted(method: AnyMethod) -> AnyMethod:
        def run(task: Task, params: Params) -> Outcome:
            calls.append(method.name)
            outcome: Outcome = method.run(task, params)
            return outcome

        return replace(method, run=run)

    for name in METHODS:
        if name != "auto":
            monkeypatch.setitem(METHODS._loaded, name, counted(METHODS[name]))
    return calls


@by_label
def test_what_one_exact_method_proves_alone_costs_no_other_work(
    semantics: Semantics, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Work is counted in calls of methods, those of their own starts included, and not in seconds:
    # auto makes those that the exact method makes by itself, and three of the fastest placers. Of
    # forward and backward loads it asks for the best load first, which is a bound.
    monkeypatch.setattr(search_process, "WorkerProcess", _no_process)
    rng = random.Random(7)
    proven = 0
    for _ in range(2):
        instance = tiny_instance(rng.randrange(10**6), num_ops=5, num_devices=2)
        asked.clear()
        prover = strategy(Task(instance, semantics)).provers[0].method
        alone = run_method(instance, semantics, prover, time_limit_s=60.0)
        own = [*asked]
        if not alone.proved:
            continue
        asked.clear()
        found = run_method(instance, semantics, "auto", {"workers": 2}, time_limit_s=60.0)
        assert (found.value_ns, found.bound_ns) == (alone.value_ns, alone.bound_ns)
        steps = proofs(Task(instance, semantics))
        first = [step.method for step in steps if step.semantics != semantics]
        assert {*asked} <= {*own, *ALWAYS, *first}
        most = len(own) + len(first) + 2 * len(ALWAYS)  # at peak memory, two runs of one each
        assert len(asked) <= most
        proven += 1
    assert proven


def test_a_likely_proof_has_the_whole_time_and_a_head_start_of_half_of_it() -> None:
    # P seconds alone and S beside, S = P - half of the limit at most: together at most 1.5 P
    known = known_of(example(), 20.0)
    task, step = known.task, next(auto._first_proofs(known, 2))
    assert (step.method, step.share) == ("decomposition", 1.0)
    assert "start" not in step.params  # its own, as by itself
    assert auto._head_start_s(task, Clock(20.0), 2) == 10.0
    assert auto._head_start_s(task, Clock(600.0), 2) == auto.LONGEST_HEAD_START_S
    assert auto._head_start_s(task, Clock(20.0), 1) is None


def _no_process(*args: object) -> None:
    raise AssertionError("a process was started")


# ------------------------------------------------------------------------- the other process


def search_of(known: JudgedKnown, limit_s: float, **options: object) -> SearchProcess:
    return SearchProcess(known, Clock(limit_s), 0.0, **options)  # type: ignore[arg-type]


def test_the_other_process_finds_plans_by_itself() -> None:
    known = JudgedKnown(task=Task(hard(), PORT, Limits(60.0, gap=0.9)))
    known.prove(quick_bound(hard(), PORT))
    with search_of(known, 60.0) as search:
        search.wait()  # until a plan closes the gap that suffices
    assert known.value is not None
    assert set(known.notes.values()) <= {"interrupted"}  # its last search


def test_a_process_that_dies_costs_a_sentence() -> None:
    known = JudgedKnown(task=Task(hard(), PORT, Limits(60.0)))
    with search_of(known, 60.0) as search:
        _until(lambda: search._step is not None)
        search._process.send_signal(signal.SIGKILL)
        search.wait()
    assert list(known.notes.values()) == ["its process died (signal SIGKILL)"]


def test_a_process_that_hangs_is_ended_at_the_limit() -> None:
    known = JudgedKnown(task=Task(hard(), PORT, Limits(60.0)))
    search = search_of(known, 60.0)
    with search:
        _until(lambda: search._step is not None)
        search._process.send_signal(signal.SIGSTOP)
        began = time.monotonic()
    assert time.monotonic() - began < 30.0
    with pytest.raises(OSError, match="closed"):
        search._process.pipe.poll()


def test_a_process_that_cannot_start_costs_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> None:
        raise OSError(11, "no more processes")

    monkeypatch.setattr(search_process, "WorkerProcess", refuse)
    known = JudgedKnown(task=Task(hard(), PORT, Limits(60.0)))
    with search_of(known, 60.0) as search:
        search.wait()
    assert known.notes == {"search": "its process cannot start (no more processes)"}


def test_the_clock_stands_while_the_search_gets_back_what_compiling_took() -> None:
    limit_s, compiling_s = 0.05, 0.5
    known = JudgedKnown(task=Task(hard(), PORT, Limits(limit_s)))
    clock, loaded, wall = Clock(limit_s), loading_s(), time.perf_counter()
    search = SearchProcess(known, clock, 0.0)
    search._process = object()  # type: ignore[assignment] (nothing is asked of it)
    search._compiled = search_process.Compiled(is_compiling=False, seconds=compiling_s)
    search.wait()
    assert time.perf_counter() - wall >= limit_s + compiling_s
    assert clock.spent_s < limit_s + 3 * search_process.POLL_S < limit_s + compiling_s
    assert loading_s() - loaded > compiling_s - 3 * search_process.POLL_S


def test_a_proof_that_the_search_has_made_needless_is_interrupted() -> None:
    known = JudgedKnown(task=Task(example(), PORT, Limits(60.0)))
    search = SearchProcess(known, Clock(60.0), None)
    known.prove(Bound(34, "somebody"))
    known.take(run_method(example(), PORT, "brute-force"))
    with pytest.raises(KeyboardInterrupt), search, search.proof:
        _until(lambda: False)
    assert search.proof.has_interrupted


def test_a_proof_that_runs_past_the_limit_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_process, "LATE_S", 0.1)
    known = JudgedKnown(task=Task(example(), PORT, Limits(0.1)))
    search = SearchProcess(known, Clock(0.1), None)
    with pytest.raises(KeyboardInterrupt), search, search.proof:
        _until(lambda: False)
    assert search.proof.has_interrupted


def test_nothing_but_a_proof_is_interrupted() -> None:
    # what loads a solver meanwhile would leave half of it
    known = JudgedKnown(task=Task(example(), PORT, Limits(60.0)))
    known.prove(Bound(34, "somebody"))
    known.take(run_method(example(), PORT, "brute-force"))
    with SearchProcess(known, Clock(60.0), None) as search:
        time.sleep(5 * search_process.POLL_S)
    assert not search.proof.has_interrupted


SESSION = """
import sys
import time

import placegap
from placegap.instances import Cluster, Device, Graph, Instance, Op
from placegap.solvers.solving import search_process

times = {"a": 60, "b": 40, "c": 55, "d": 45}
ops = tuple(Op(name=n, time_ns={"gpu": t}, resident_bytes=10) for n, t in times.items())
devices = tuple(Device(name=n, kind="gpu", memory_bytes=100) for n in ("d0", "d1"))
balanced = Instance(
    name="balanced",
    graph=Graph(name="balanced", ops=ops),
    cluster=Cluster(name="two", devices=devices),
)

class Slow:
    left = int(sys.argv[1])

    def find_spec(self, name, path, target=None):
        self.left -= name.startswith("numba.")
        end = time.monotonic() + 0.8
        while self.left == 0 and time.monotonic() < end:
            pass


search_process.POLL_S = 0.5
sys.meta_path.insert(0, Slow())
found = placegap.solve(balanced, objective="max_load", plans="any", params={"workers": 2})
print(found.status, found.value_ns, *found.result.faults)
chain = ("zfnet512", "celeritas-4xV100-pcie", "max_load")
found = placegap.solve(*chain, method="ideal-dp")
print(found.status, found.value_ns, *found.result.faults)
print(placegap.solve(*chain[:2], "makespan", method="heft").value_ns is not None)
"""


@pytest.mark.parametrize("sessions", [1, pytest.param(50, marks=pytest.mark.deep)])
def test_an_interrupted_proof_leaves_nothing_half_imported(sessions: int) -> None:
    # the best plan, 100 = 60 + 40 = 55 + 45, is known when the proof begins and imports numba; that
    # waits at one of its 152 modules, another one in each session, until the proof is interrupted
    for session in range(sessions):
        out, err = processes.finish(processes.begin(SESSION, str(20 + 37 * session % 100)))
        assert (out, err) == ("optimal 100\noptimal 366386\nTrue\n", "")


def _until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 60.0
    while not holds() and time.monotonic() < end:
        time.sleep(0.02)


# ----------------------------------------------------------------------------------------- known


def judged(semantics: Semantics, outcome: Outcome, method: str = "somebody") -> Result:
    return finish(example(), semantics, method, outcome, solve_s=0.0)


def test_a_plan_under_stricter_channels_counts_under_the_looser_ones() -> None:
    free = Makespan(channels="free")
    known = JudgedKnown(task=Task(example(), free))
    plan = Plan.on([0, 1, 0, 0])
    known.take(judged(PORT, Outcome(plan)))
    assert known.value == evaluate(example(), plan, free).value


def test_bounds_on_wider_classes_count_and_on_narrower_ones_do_not() -> None:
    chain, whole = MaxLoad(plans="chain"), MaxLoad(plans="any")
    known = JudgedKnown(task=Task(example(), chain))
    known.take(judged(whole, Outcome(bound=Bound(25, "columns"))))
    assert (known.bound.value, known.bound.plan_class) == (25, "any")
    other = JudgedKnown(task=Task(example(), whole))
    other.take(judged(chain, Outcome(bound=Bound(39, "ideal-dp"))))
    assert other.bound.value == 0


def test_a_bound_that_a_plan_refutes_becomes_a_fault() -> None:
    known = JudgedKnown(task=Task(example(), PORT))
    known.prove(Bound(40, "a wrong one"))  # the optimum is 34
    assert known.offer(Plan.on([0, 1, 0, 0]), "somebody")
    assert (known.value, known.bound.value) == (35, 33)  # the critical path is left
    assert (
        "claims that no plan is better than 40 ns, but somebody has one of 35 ns" in known.faults[0]
    )
    known.take(judged(PORT, Outcome(bound=no_plan()), "a liar"))
    assert not known.is_over
    assert "claims that no plan exists" in known.faults[1]


def test_bounds_told_on_the_way_rest_on_the_solvers_of_the_method_until_its_result_comes() -> None:
    known = JudgedKnown(task=Task(example(), PORT))
    on_progress = known.listener("cp-sat", PORT)
    on_progress(Progress(None, Bound(30, "cp-sat", ""), "cp-sat"))
    assert (known.bound.value, known.is_preliminary) == (30, True)
    assert known.bound.basis.startswith("CP-SAT")
    known.take(judged(PORT, Outcome(bound=Bound(30, "paths")), "cp-sat"))
    assert (known.bound, known.is_preliminary) == (Bound(30, "paths", PROOF, "any"), False)


def test_of_equal_bounds_the_one_that_is_a_proof_counts() -> None:
    known = JudgedKnown(task=Task(example(), PORT))
    known.prove(Bound(30, "cp-sat", "CP-SAT 9"))
    known.prove(Bound(30, "critical path", PROOF))
    known.prove(Bound(30, "cp-sat", "CP-SAT 9"))
    assert (known.bound.origin, known.bound.basis) == ("critical path", PROOF)


# ----------------------------------------------------------------------------------------- rules


def known_of(instance: Instance, time_limit_s: float) -> JudgedKnown:
    return JudgedKnown(task=Task(instance, PORT, Limits(time_limit_s)))


# The last turn is that of the search that finds most: the first one, unless another betters it by
# more than a hundredth, 1,000 to 989.
@pytest.mark.parametrize(("second_ns", "last"), [(989, "disjunctive-search"), (991, "run-moves")])
def test_searches_take_turns_and_the_last_is_of_the_one_that_finds_most(
    second_ns: int, last: str
) -> None:
    known, steps = known_of(tight_example(), 60.0), list[Step]()
    for step, value_ns in zip(plans(known, 5), (1_000, second_ns, 900, 890, 880), strict=False):
        steps.append(step)
        known.improve(value_ns, by=step.method)
    both = ["run-moves", "disjunctive-search"]
    assert [step.method for step in steps] == [*both, last, last, last]
    assert [step.seed for step in steps] == [5, 5, 6, 7, 8]
    if last == "run-moves":
        assert [steps[i].params["anew"] for i in (0, 2)] == [False, True]
    # half of all time, a sixth (a third of what is left), and then one of them has the rest
    assert [step.share for step in steps[:3]] == [1 / 2, 1 / 3, 1.0]


# What ended in half of its time has left nothing out that takes twice as long: 20 s after 10 s, of
# which 4 s were spent, but 10 s alone after 6 s; and 40 s after 20 s.
@pytest.mark.parametrize(("spent_s", "asked"), [(4.0, [10.0, 20.1]), (6.0, [10.0, 10.1, 20.0])])
def test_bounds_are_not_computed_again_where_more_time_proves_no_more(
    spent_s: float, asked: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = list[float]()

    def bounds(
        instance: Instance, rules: Semantics, limit_s: float, *, best_ns: object
    ) -> list[Bound]:
        limits.append(limit_s)
        return []

    monkeypatch.setattr(incumbent, "improving_bounds", bounds)
    monkeypatch.setattr(incumbent, "Clock", lambda limit_s: SimpleNamespace(spent_s=spent_s))
    known = known_of(tight_example(), 60.0)
    for limit_s in (10.0, 10.0, 10.1, 20.0, 20.1):
        assert known.run(Step(auto.BOUNDS, PORT), limit_s) == ""
    assert limits == asked


def test_steps_beside_have_rules_whose_plans_or_bounds_hold_for_the_task() -> None:
    convex = Task(example(), MaxLoad(plans="convex"))
    known = JudgedKnown(task=convex)
    assert [step.semantics.label for step in islice(plans(known, 0), 3)] == [
        "max_load chain add",
        "max_load convex add",
        "max_load any add",
    ]
    assert [step.method for step in proofs(convex)] == ["throughput-ip"]


def test_memory_that_cannot_suffice_is_an_answer_at_once() -> None:
    # four ops of a byte, and devices of one byte each
    for semantics in (Makespan(), Makespan(memory="peak"), MaxLoad(plans="any")):
        result = run_method(tight_example((1, 1)), semantics, "auto")
        assert result.status == "infeasible"
        assert result.rests_on == PROOF
        assert "need" in result.message


# --------------------------------------------------------------------------------- first plans


@pytest.mark.parametrize("semantics", KINDS[::3], ids=lambda semantics: semantics.label)
def test_the_value_is_the_best_one_whichever_placer_finds_it(
    monkeypatch: pytest.MonkeyPatch, semantics: Semantics
) -> None:
    # By turns one placer alone has a plan, and it is the best; nothing else looks for plans.
    instance = example()
    best = run_method(instance, semantics, "brute-force").plan
    value_ns = evaluate(instance, best, semantics).value_ns
    names = [
        name
        for name, _ in cheapest_first(Task(instance, semantics))
        if semantics.objective in METHODS[name].objectives
    ]
    monkeypatch.setattr(auto, "proofs", lambda task: iter(()))
    monkeypatch.setattr(search_process, "able", lambda task, *steps, **given: iter(()))
    for winner in names:
        with monkeypatch.context() as patch:
            for name in names:
                plan = best if name == winner else None
                silent = replace(
                    METHODS[name], run=_saying(plan), applies=_always, missing=lambda: None
                )
                patch.setitem(METHODS._loaded, name, silent)
            found = run_method(instance, semantics, "auto", {"workers": 1}, time_limit_s=60.0)
        assert found.value_ns == value_ns, winner


def test_once_a_plan_is_known_no_placer_is_asked_that_is_likely_to_take_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # the costs of a huge graph: m-topo has a plan within the limit of 60 s, heft would have none
    likely = {"single-device": 1.0, "m-topo": 1.0, "heft": 61.0}
    said: list[str] = []
    monkeypatch.setattr(auto, "cheapest_first", lambda task: tuple(likely.items()))
    monkeypatch.setattr(auto, "placers", lambda task: tuple(likely))
    for name in likely:
        monkeypatch.setitem(METHODS._loaded, name, replace(METHODS[name], run=_noting(name, said)))
    known = JudgedKnown(task=Task(example(), Makespan(), Limits(60.0)))
    auto._run_placers(known)
    assert said[:3] == ["single-device", "m-topo", "heft"]  # no plan is known until the last
    known.offer(Plan.on([0, 1, 0, 0]), "somebody")
    said.clear()
    auto._run_placers(known)
    assert said == ["single-device", "m-topo"]


def test_a_graph_too_large_to_be_copied_stays_in_one_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = Task(hard(), Makespan(), Limits(60.0))
    assert auto._head_start_s(task, Clock(60.0), 2) is not None
    monkeypatch.setattr(auto, "MOST_PARTS", task.instance.num_parts - 1)
    assert auto._head_start_s(task, Clock(60.0), 2) is None
    found = run_method(task.instance, Makespan(), "auto", {"workers": 2}, time_limit_s=0.2)
    assert found.value_ns is not None


def _noting(name: str, said: list[str]) -> Callable[[Task, Params], Outcome]:
    def run(task: Task, params: Params) -> Outcome:
        said.append(name)
        return Outcome()

    return run


def _saying(plan: Plan | None) -> Callable[[Task, Params], Outcome]:
    return lambda task, params: Outcome(plan)


def _always(task: Task, params: Params) -> None:
    return None


def test_an_unlikely_proof_comes_after_placers_and_bounds_and_leaves_its_core_to_searches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(makespan, "SMALL_CHOICES", 7)  # the example has four ops and four edges
    known = JudgedKnown(task=Task(example(), Makespan(), Limits(60.0, seed=3)))
    steps = list(islice(auto._first_proofs(known, 2), 5))
    proving = ["bounds", "decomposition", "bounds"]
    assert [step.method for step in steps] == [*proving, "run-moves", "disjunctive-search"]
    assert steps[1].params == {"workers": 2, "start": False, "anneal": False}
    assert 3 not in {step.seed for step in steps[3:]}  # the other process has that seed
    assert len(list(auto._first_proofs(known, 1))) == 3  # one core: the other process searches


@pytest.mark.parametrize(
    "greedy", [auto.BOUNDS, "decomposition", "run-moves", "disjunctive-search"]
)
@pytest.mark.parametrize("is_likely", [False, True])
def test_one_process_alone_gives_each_side_its_share(
    greedy: str, is_likely: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One method takes all the time that it may have, and any other one a tenth of it.
    if not is_likely:
        monkeypatch.setattr(makespan, "SMALL_CHOICES", 7)  # the example has eight
    now = 0.0
    monkeypatch.setattr(clock_module, "now_s", lambda: now)
    known, clock = JudgedKnown(task=Task(example(), Makespan(), Limits(60.0))), Clock(60.0)
    spent = {"proof": 0.0, "search": 0.0}
    for step in auto._in_turn(known, (), clock):
        side = "search" if step.method in makespan.SEARCHES else "proof"
        s = step.share * clock.left_s * (1.0 if step.method == greedy else 0.1)
        spent[side] += s
        now += s
        if clock.left_s < 0.1:
            break
    proof = auto.PROOF_SHARE if is_likely else auto.UNLIKELY_PROOF_SHARE
    if greedy in makespan.SEARCHES:  # the proof ends without what it may have
        assert spent["search"] > 0.95 * 60.0 - spent["proof"]
    else:
        assert spent["proof"] <= proof * 60.0 + 1e-9  # sums of shares are rounded
        assert spent["search"] >= (1 - proof) * 60.0 - 0.1


def test_of_a_large_graph_there_is_one_search_and_it_has_all_cores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # the example has four ops and four edges
    monkeypatch.setattr(makespan, "MOST_MOVED_PARTS", 7)
    monkeypatch.setattr(search_process, "LARGE_PARTS", 7)
    steps = list(islice(plans(known_of(example(), 0.0), 0, workers=3), 2))
    assert [step.method for step in steps] == ["disjunctive-search"] * 2
    assert [step.params["workers"] for step in steps] == [3, 3]
