"""`noncontiguous` where 1 ns stands beside 10^15 ns, and where memory is tight to the byte."""

from __future__ import annotations

import random
import warnings
from itertools import islice

import numpy as np
import pytest
from draws import draw
from references.brute_force import more_max_load, oracle

from placegap.instances import Instance, MaxLoad, Semantics
from placegap.solvers import Result, run_method
from placegap.solvers.noncontiguous.column_generation import cover_all, to_integers
from placegap.solvers.noncontiguous.knapsack import TOTAL_PRICE
from placegap.solvers.noncontiguous.pricing import build_pricer
from placegap.solvers.noncontiguous.problem import build_split_problem

SEMANTICS = tuple(MaxLoad(load=load) for load in ("add", "overlap"))
FEW = {"moves": 300, "rounds": 1, "workers": 1}
FACTORS = (1, 10**3, 10**9, 10**12, 10**14)


def stretched(instance: Instance, seed: int) -> Instance:
    """Times of 1 ns to about 10^15 ns, in ops and in transfers, side by side."""
    rng = random.Random(f"stretched-{seed}")
    ops = []
    for op in instance.graph.ops:
        factor, extra = rng.choice(FACTORS), rng.randrange(3)
        time_ns = {kind: time * factor + extra for kind, time in op.time_ns.items()}
        ops.append(op.model_copy(update={"time_ns": time_ns}))
    factor_of = {op.name: rng.choice(FACTORS) for op in ops}
    edges = [
        edge.model_copy(update={"bytes": edge.bytes * factor_of[edge.producer]})
        for edge in instance.graph.edges
    ]
    return draw.changed(instance, ops=ops, edges=edges)


def crowded(instance: Instance, seed: int) -> Instance:
    """Ops of 10^9 to 10^12 bytes; every device has room for what it holds in some draw."""
    rng = random.Random(f"crowded-{seed}")
    ops = [
        op.model_copy(update={"resident_bytes": rng.randrange(10**9, 10 ** rng.randint(10, 12))})
        for op in instance.graph.ops
    ]
    held = [0] * instance.num_devices
    for op in ops:
        held[rng.randrange(len(held))] += op.resident_bytes
    return draw.with_memory(draw.changed(instance, ops=ops), *(max(1, room) for room in held))


def check(instance: Instance, semantics: Semantics) -> Result:
    """Its bound and value are on the right sides of the optimum, and nothing failed inside."""
    best = oracle(instance, semantics)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = run_method(instance, semantics, "noncontiguous", FEW)
    assert result.faults == ()
    if best is None:
        assert result.plan is None
    elif result.value_ns is not None:
        assert result.bound_ns is not None
        assert result.bound_ns <= best <= result.value_ns
        assert result.rests_on == "proof"
    return result


def draws(first: int, count: int) -> list[Instance]:
    return list(islice(more_max_load(first), count))


@pytest.mark.parametrize("semantics", SEMANTICS, ids=lambda semantics: semantics.load)
@pytest.mark.parametrize("change", [stretched, crowded])
def test_bounds_and_values_hold_over_the_whole_range(change: object, semantics: Semantics) -> None:
    found = 0
    for seed, instance in enumerate(draws(30_000, 5)):
        result = check(change(instance, seed), semantics)  # type: ignore[operator]
        found += result.value_ns is not None
    assert found > 1


@pytest.mark.deep
@pytest.mark.parametrize("semantics", SEMANTICS, ids=lambda semantics: semantics.load)
@pytest.mark.parametrize("change", [stretched, crowded])
@pytest.mark.parametrize("start", [30_030, *range(40_000, 45_000, 1000)])
def test_thousands_hold_over_the_whole_range(
    start: int, change: object, semantics: Semantics
) -> None:
    for seed, instance in enumerate(draws(start, 1000)):
        check(change(instance, start + seed), semantics)  # type: ignore[operator]


def adversarial(rng: np.random.Generator, blocks: int) -> list[np.ndarray]:
    """Prices that floating point treats badly."""
    ones, tiny = np.ones(blocks), np.full(blocks, 5e-324)
    spike = np.full(blocks, 1e-17)
    spike[rng.integers(blocks)] = 1.0
    huge = rng.random(blocks) * 1e300
    third = ones / 3
    broken = np.where(rng.random(blocks) < 0.5, np.nan, -ones)
    endless = np.where(rng.random(blocks) < 0.5, np.inf, ones)
    powers = rng.random(blocks) ** 40
    return [ones, tiny, spike, huge, third, powers, np.nextafter(ones, 2), broken, endless]


@pytest.mark.parametrize("seed", range(4))
def test_whatever_the_prices_the_bound_holds(seed: int) -> None:
    """Prices are rounded to integers first; what the devices hold is compared with their sum."""
    instance = draws(31_000 + seed, 1)[0]
    if seed % 2:
        instance = stretched(instance, seed)
    best = oracle(instance, SEMANTICS[0])
    problem = build_split_problem(instance)
    if best is None:
        return
    rng = np.random.default_rng(seed)
    for cells in (3, 1000):
        for prices in adversarial(rng, problem.num_blocks):
            whole = to_integers(prices)
            assert 0 < int(whole.astype(np.int64).sum()) <= TOTAL_PRICE
            assert (whole >= 0).all()
            search = cover_all(build_pricer(problem), 2 * best + 7, cells)
            search.prove(prices)
            assert search.bound_ns <= best
            assert not search.contradicted
