"""The method `noncontiguous`: valid bounds, plans, and what it does when it is stopped."""

from types import ModuleType

import pytest
from draws.tiny import SHARED, needs_dnn_partitioning, tiny_instance
from features.makespan import anywhere
from features.makespan import instance as instance_of
from references.agreement import keeps_sides
from references.brute_force import max_load_draws, oracle

from placegap.instances import Instance, MaxLoad, Semantics, example
from placegap.instances.importers.reader import load_model
from placegap.solvers import METHODS, Result, Task, run_method
from placegap.solvers.core.clock import LimitReached
from placegap.solvers.core.registry import why_not
from placegap.solvers.noncontiguous import annealing as multilevel
from placegap.solvers.noncontiguous import noncontiguous as split_search

ANY = MaxLoad(plans="any")


OVERLAP = MaxLoad(plans="any", load="overlap")


def split(instance: Instance, semantics: Semantics = ANY, **options: float) -> Result:
    limits = {name: options.pop(name) for name in ("time_limit_s", "gap") if name in options}
    few = {"moves": 5000, **options}
    return run_method(instance, semantics, "noncontiguous", few, **limits)  # type: ignore[arg-type]


def chain_of_three() -> Instance:
    """a -> b -> c, 4 ns each, tensors of 1 ns, two equal devices."""
    edges = [("a", "b", 1), ("b", "c", 1)]
    return instance_of("three", [anywhere(name, 4) for name in "abc"], edges)


def test_three_ops_of_which_two_share_a_device() -> None:
    # {a, b} costs 4 + 4 + 1; a device that holds two ops holds at least that, and one must
    result = split(chain_of_three())
    assert (result.status, result.value_ns) == ("optimal", 9)
    assert (result.bound_origin, result.rests_on) == ("column generation", "proof")
    # it takes max(4 + 4, 1) where the tensor is hidden
    result = split(chain_of_three(), OVERLAP)
    assert (result.status, result.value_ns) == ("optimal", 8)


def test_searches_on_coarser_problems_stay_between_bound_and_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As on large graphs: coarse blocks first."""
    monkeypatch.setattr(split_search, "LARGE", 0)
    monkeypatch.setattr(multilevel, "COARSEST", 1)
    for instance in max_load_draws()[3:110:24]:
        keeps_sides(split(instance), oracle(instance, ANY), instance.name)


def test_without_time_for_frontiers_there_is_still_a_plan_and_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def late(*args: object) -> None:
        raise LimitReached("the time limit has passed")

    monkeypatch.setattr(split_search, "choose_pricer", late)
    result = split(open_instance(), rounds=1)
    assert result.faults == ()
    assert result.bound_ns <= result.value_ns


def test_it_is_never_worse_than_the_best_chain() -> None:
    chains = MaxLoad(plans="chain")
    dp, compared = METHODS["ideal-dp"], 0
    for instance in max_load_draws()[::12]:
        best = oracle(instance, chains)
        if best is not None and why_not(dp, Task(instance, chains), dp.params()) is None:
            result = split(instance, moves=0, rounds=0)
            assert result.value_ns <= best
            compared += 1
    assert compared > 1


def test_no_time_still_gives_a_plan_and_a_bound() -> None:
    result = split(example(), time_limit_s=0.0)
    # the heaviest op takes 20 ns, and the optimum is 25
    assert 20 <= result.bound_ns <= 25 <= result.value_ns
    assert result.bound_origin == "work"
    assert "time limit" in result.message


def test_an_interrupt_keeps_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(split_search, "cover_all", interrupted)
    result = split(open_instance())
    assert result.plan is not None
    assert result.message.startswith("interrupted")


@pytest.mark.deep
@needs_dnn_partitioning
def test_bert_3_gains_27_percent_over_the_best_chain() -> None:
    """The poster's "up to 27 %" (Tarnawski et al.): the chain's 27.9186 ms against 21.9084 ms."""
    folder = SHARED / "instances/dnn-partitioning/throughput-inputs/OperatorGraphs"
    instance = load_model(folder / "bert_l-3_inference.json").instance()
    result = split(instance, gap=0.001)
    assert result.status in ("gap_met", "optimal")
    assert 27_918_568 / result.value_ns >= 1.274


def open_instance() -> Instance:
    """Fourteen ops, of which the heaviest is far from the optimum."""
    return tiny_instance(5, num_ops=14, num_devices=3, density=0.3)


@pytest.fixture
def open_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the columns prove is passed over, so that no phase closes the gap."""
    monkeypatch.setattr(split_search.SplitSearch, "learn", lambda *_: None)


@pytest.mark.parametrize(("finds", "rounds"), [(False, 1), (True, 4)])
def test_under_a_limit_rounds_go_on_while_they_find_something(
    finds: bool, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One round is asked for, and here each round finds 1 ns, or nothing."""
    found = iter(range(1, 4))

    def learn(search: split_search.SplitSearch, *_: object) -> None:
        if finds:  # three times; the round after that finds nothing
            known = search.progress.bound
            search.progress.bound = known._replace(value=known.value + (next(found, 0) > 0))

    monkeypatch.setattr(split_search.SplitSearch, "learn", lambda *_: None)
    monkeypatch.setattr(split_search.SplitSearch, "prove_finely", lambda *_: None)
    monkeypatch.setattr(split_search.SplitSearch, "price", learn)
    monkeypatch.setattr(split_search.PartitionSearch, "improve", lambda *_: None)
    result = split(open_instance(), rounds=0, time_limit_s=60.0)
    assert result.message.startswith(f"ended after {rounds} rounds of pricing")


@pytest.mark.usefixtures("open_gap")
@pytest.mark.parametrize(
    ("module", "phase", "words"),
    [
        (split_search, "choose_pricer", "the pricing's set-up"),
        (split_search, "cover_all", "column generation"),
        (split_search, "anneal", "local search"),
    ],
)
def test_a_phase_that_fails_costs_no_more_than_its_part(
    module: ModuleType, phase: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: object, **options: object) -> None:
        raise ValueError("broken")

    monkeypatch.setattr(module, phase, broken)
    result = split(open_instance(), rounds=1)
    assert f"an internal error in noncontiguous ({words}): ValueError: broken" in result.faults
    assert result.bound_ns <= result.value_ns
