"""Bounds from how far stages can come: never above an optimum, and better than work alone."""

from __future__ import annotations

import numpy as np
import pytest
from draws.chains import best_chain, chain_instance

from placegap.instances import Cluster, Device, Instance, Link, MaxLoad
from placegap.instances.corpus.generate import generate
from placegap.solvers import run_method
from placegap.solvers.chains.kinds_problem import build_kinds
from placegap.solvers.chains.problem import build_problem
from placegap.solvers.chains.raise_bound import (
    DEEP_EFFORTS,
    EFFORTS,
    first_windows,
    narrow,
    raise_bound,
)
from placegap.solvers.chains.stage_lp import BlockArcs, ChainCosts, Range, chain_costs, reach
from placegap.solvers.core.clock import Clock
from placegap.solvers.core.result import PROOF

CHAIN = MaxLoad(plans="chain")


def costs_of(instance: Instance, semantics: MaxLoad = CHAIN) -> ChainCosts:
    problem = build_kinds(instance, semantics)
    return chain_costs(
        BlockArcs(problem.blocks.arc_tail, problem.blocks.arc_head),
        (problem.time, problem.need, problem.room),
        (problem.weight, problem.net_ptr, problem.pin),
        problem.counts,
        overlap=problem.overlap,
    )


def bound_of(instance: Instance, optimum: int, semantics: MaxLoad = CHAIN) -> int:
    known = 2 * optimum + 3  # so that limits above the optimum are tried as well
    return raised(instance, known, EFFORTS, semantics)


def raised(
    instance: Instance, known: int, efforts: tuple[int, ...], semantics: MaxLoad = CHAIN
) -> int:
    found = [0]
    raise_bound(
        costs_of(instance, semantics),
        0,
        lambda: known,
        found.append,
        lambda reach: None,
        Clock(None),
        efforts=efforts,
    )
    return found[-1]


def on_gpus(family: str, params: dict[str, object], count: int) -> Instance:
    devices = tuple(Device(name=f"gpu{k}", kind="gpu") for k in range(count))
    links = tuple(
        Link(source=a.name, target=b.name, bandwidth_bytes_per_s=10**10)
        for a in devices
        for b in devices
        if a is not b
    )
    cluster = Cluster(name="gpus", devices=devices, links=links)
    return Instance(name=family, graph=generate(family, params, 1), cluster=cluster)


def never_above(seeds: range) -> None:
    """Compare with the enumeration of all chains; some of the bounds are the optimum."""
    reached = 0
    for seed in seeds:
        instance = chain_instance(seed, most_ops=6)
        for rules in (MaxLoad(plans="chain"), MaxLoad(plans="chain", load="overlap")):
            optimum = best_chain(instance, overlap=rules.load == "overlap")
            if optimum:
                bound = bound_of(instance, optimum, rules)
                assert bound <= optimum, seed
                reached += bound == optimum
    assert reached > len(seeds) // 3


def test_no_bound_is_above_the_optimum() -> None:
    never_above(range(8))


@pytest.mark.deep
def test_no_bound_is_above_the_optimum_of_many_draws() -> None:
    never_above(range(1000, 4000))


def split_by_blocks(seeds: range) -> None:
    """Of plans of one ns more than the optimum: the optimum itself is never refuted."""
    for seed in seeds:
        instance = chain_instance(seed, most_ops=6)
        for rules in (MaxLoad(plans="chain"), MaxLoad(plans="chain", load="overlap")):
            optimum = best_chain(instance, overlap=rules.load == "overlap")
            if optimum:
                assert raised(instance, optimum + 1, DEEP_EFFORTS[:1], rules) <= optimum, seed


def test_splits_by_single_blocks_refute_no_optimum() -> None:
    split_by_blocks(range(4))


@pytest.mark.deep
def test_splits_by_single_blocks_refute_no_optimum_of_many_draws() -> None:
    split_by_blocks(range(5000, 6000))


@pytest.mark.parametrize(
    ("family", "params"),
    [("layered", {"ops": 30, "width": 6}), ("fork-join", {"stages": 3, "width": 5})],
)
def test_splits_by_single_blocks_prove_the_optimum_of_two_equal_devices(
    family: str, params: dict[str, object]
) -> None:
    """As the DP over all ideals finds it."""
    instance = on_gpus(family, params, 2)
    optimum = run_method(instance, CHAIN, "ideal-dp").value_ns
    assert optimum is not None
    assert raised(instance, optimum, DEEP_EFFORTS[:1]) == optimum


def test_one_stage_comes_as_far_as_by_hand() -> None:
    """The diamond, times 5, 20, 10, 8 and nets of 1, 20, 1, 10 ns (a-b, a-c, b-d, c-d).

    Within 26 ns a first stage holds {a, c}: 5 + 10 + 1 + 10. {a, b} takes 5 + 20 + 20 + 1, {a} 26.
    The LP mixes them with all of the diamond, 43 ns of work, so that it says a little more.
    """
    from placegap.instances import example

    costs = costs_of(example())
    found = reach(costs, 0, Range(0, 0), Range(0, 26), 26, None)
    assert 15 <= found.most <= 26
    # 25 ns is not enough for {a}, without which there is nothing: the LP knows that something is
    # in as soon as more work than that of b, c and d has to be
    assert reach(costs, 0, Range(0, 0), Range(39, 43), 25, None).most < 39


def test_work_before_and_after_is_that_of_the_reachable_blocks() -> None:
    """More blocks than a word has bits; compared with closures by definition."""
    costs = costs_of(on_gpus("layered", {"ops": 150, "width": 5}, 2))
    b = costs.num_blocks
    above = np.eye(b, dtype=bool)
    for tail, head in sorted(zip(costs.arcs.tail, costs.arcs.head, strict=True)):
        above[head] |= above[tail]  # blocks are numbered topologically, tails come in order
    assert costs.before.tolist() == (above @ costs.work).tolist()
    assert costs.after.tolist() == (above.T @ costs.work).tolist()
    assert costs.backwards().before.tolist() == costs.after.tolist()


def test_communication_that_no_chain_avoids_raises_the_bound() -> None:
    """Work alone proves 0.9 of the value of the best slices here; ideals would take gigabytes."""
    instance = on_gpus("layered", {"ops": 200, "width": 8}, 8)
    problem = build_problem(instance)
    costs, work = costs_of(instance), -(-int(problem.time[0].sum()) // 8)
    limit = work + work // 50
    windows = first_windows(costs, limit)
    assert windows is not None
    assert narrow(costs, windows, limit, 0, Clock(None), lambda reach: None) is None


def test_where_ideals_are_too_many_the_bound_goes_on_rising() -> None:
    instance = on_gpus("fork-join", {"stages": 3, "width": 10}, 3)
    optimum = run_method(instance, CHAIN, "ideal-dp").value_ns
    result = run_method(instance, CHAIN, "ideal-dp", {"max_ideals": 100})
    assert result.bound_ns is not None
    assert optimum is not None
    assert result.bound_ns <= optimum
    assert result.bound_ns > 0.95 * optimum
    assert result.rests_on == PROOF
