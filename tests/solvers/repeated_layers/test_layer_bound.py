"""The bound of repeated layers: never above an optimum, and often equal to it."""

from collections.abc import Iterable
from functools import partial
from itertools import count, cycle, islice

import pytest
from draws.layered import stack, stacks, windows
from references.brute_force import MAKESPAN_SEMANTICS

from placegap.instances import Instance, Makespan, load_cluster
from placegap.instances.corpus.generate import generate
from placegap.instances.files.document import Document
from placegap.instances.oracle.placements import best_schedule
from placegap.solvers import run_method
from placegap.solvers.bounds.work_windows import window_bound, work_windows
from placegap.solvers.repeated_layers.layer_bound import prove_layers
from placegap.solvers.repeated_layers.sections import bottlenecks_of, has_repeats


def proven_ns(instance: Instance, semantics: Makespan) -> int:
    proof = prove_layers(instance, semantics, bottlenecks_of(instance))
    assert proof is not None
    return proof.ns


def compare(instances: Iterable[Instance]) -> tuple[int, int]:
    """How many instances have a plan, and of how many the optimum is proven."""
    done = equal = 0
    for instance, semantics in zip(instances, cycle(MAKESPAN_SEMANTICS), strict=False):
        best = best_schedule(instance, semantics)
        if best is not None:
            bound_ns = proven_ns(instance, semantics)
            assert bound_ns <= best[0], (instance.name, semantics.label, bound_ns, best[0])
            done, equal = done + 1, equal + (bound_ns == best[0])
    return done, equal


def test_it_is_never_above_the_optimum() -> None:
    for draws in (windows, stacks):
        done, equal = compare(islice(draws(0), 150))
        assert done >= 145
        assert equal >= 0.4 * done


@pytest.mark.deep
def test_it_is_never_above_the_optimum_of_thousands() -> None:
    for draws in (windows, stacks):
        done, _ = compare(islice(draws(10_000), 4_000))
        assert done >= 3_900


def test_work_and_transfers_of_a_window_are_balanced() -> None:
    # Each of two layers has four ops of 10 ns between joins of 1 ns. Two devices take 20 ns each;
    # the second one waits 1 ns for the first tensor, and its last tensor takes 1 ns. As ops may be
    # divided in the bound, (40 + 2) / 2 = 21 ns: 1 + 21 + 1 + 21 + 1
    assert proven_ns(stack(2, branches=4), Makespan()) == 45
    # 1,000 ns per tensor leave 1/25 of an op for the other device: 3 + 2 x 40 ns
    assert proven_ns(stack(2, branches=4, sent=1000), Makespan()) == 83


def test_times_beyond_its_integers_have_no_bound() -> None:
    instance = stack(2, branches=2, op_ns=2**52)
    assert prove_layers(instance, Makespan(), bottlenecks_of(instance)) is None


def test_windows_of_which_none_are_equal_have_prices() -> None:
    # What is not on the fork's device has a tensor through its port: in each of four stages with 18
    # random ops on four devices that takes longer than a fourth of the work, which windows count.
    graph = generate("fork-join", {"stages": 4}, seed=0)
    instance = Document(name="fork-join", graph=graph).instance(
        load_cluster("celeritas-4xV100-pcie")
    )
    bottlenecks, by_work = bottlenecks_of(instance), work_windows(instance, Makespan())
    assert not has_repeats(instance, bottlenecks)
    assert by_work is not None
    found = run_method(instance, Makespan(), "run-moves", {"steps": 1000})
    assert 1.1 * window_bound(by_work) < proven_ns(instance, Makespan()) <= found.value_ns
    # ended before, windows have the prices of others or none, which prove no more
    for calls in range(0, 100, 20):
        ticks = count()
        over = partial(lambda ticks, calls: next(ticks) > calls, ticks, calls)
        early = prove_layers(instance, Makespan(), bottlenecks, over)
        assert early is not None
        assert early.ns <= proven_ns(instance, Makespan())
