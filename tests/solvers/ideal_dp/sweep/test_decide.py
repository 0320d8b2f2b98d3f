"""The sweep of the ideal DP: the lattice, the costs of stages as paths, decisions."""

from __future__ import annotations

import numpy as np
import pytest
from draws.chains import all_ideals, best_chain, best_chain_of_ideals, chain_instance, wide_instance

from placegap.instances import Cluster, Device, Edge, Graph, Instance, MaxLoad, Op, Semantics
from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.solvers import Result, solve
from placegap.solvers.chains.orders import NUM_ORDERS, orders
from placegap.solvers.chains.problem import ACCELERATOR, HOST, ChainProblem, build_problem
from placegap.solvers.chains.slices import Slices
from placegap.solvers.chains.stage_bounds import raise_bound
from placegap.solvers.chains.work_bound import Relief
from placegap.solvers.core.clock import Clock
from placegap.solvers.ideal_dp.sweep.decide import Sweep, why_no_sweep
from placegap.solvers.ideal_dp.sweep.lattice import IdealLattice, TooLarge, build_lattice
from placegap.solvers.ideal_dp.sweep.net_steps import net_steps
from placegap.solvers.ideal_dp.sweep.passes import FAR, pass_forth
from placegap.solvers.ideal_dp.sweep.walks import Walks, build_walks
from placegap.solvers.ideal_dp.two_kinds import bracket as ideal_bracket

CHAIN = MaxLoad(plans="chain")
OVERLAP = MaxLoad(plans="chain", load="overlap")
CLOCK = Clock(None)


def arcs(problem: ChainProblem) -> set[tuple[int, int]]:
    blocks = problem.blocks
    return set(zip(blocks.arc_tail.tolist(), blocks.arc_head.tolist(), strict=True))


def an_order(problem: ChainProblem, seed: int) -> Ints:
    return list(orders(problem, seed))[seed % NUM_ORDERS]


def lattice_of(problem: ChainProblem, order: Ints) -> IdealLattice:
    total = len(all_ideals(problem.num_blocks, arcs(problem)))
    return build_lattice(problem, order, total, CLOCK, 10**7)


def paths_of(problem: ChainProblem, lattice: IdealLattice) -> Walks:
    nets = net_steps(problem, lattice.order)
    assert nets is not None
    return build_walks(problem, lattice, nets, CLOCK, 10**8)


def sweep_of(problem: ChainProblem, seed: int) -> Sweep:
    lattice = lattice_of(problem, an_order(problem, seed))
    paths = paths_of(problem, lattice) if problem.counts[ACCELERATOR] else None
    return Sweep(problem, Relief(problem), lattice, paths, CLOCK)


def cut(problem: ChainProblem, members: frozenset[int]) -> int:
    total = 0
    for e, weight in enumerate(problem.nets.weight.tolist()):
        pins = problem.pin[problem.net_ptr[e] : problem.net_ptr[e + 1]].tolist()
        total += weight * (0 < sum(v in members for v in pins) < len(pins))
    return total


def ideals_of(lattice: IdealLattice) -> list[frozenset[int]]:
    return [frozenset(lattice.blocks(i).tolist()) for i in range(lattice.size)]


def problems(number: int) -> list[ChainProblem]:
    """Problems that the sweep takes, on feasible blocks."""
    found = [build_problem(chain_instance(seed)) for seed in range(3 * number)]
    return [
        p
        for p in found
        if why_no_sweep(p) is None and (p.need <= p.room[:, None]).any(axis=0).all()
    ][:number]


def test_the_lattice_holds_each_ideal_once_with_its_sums() -> None:
    for seed, problem in enumerate(problems(30)):
        lattice = lattice_of(problem, an_order(problem, seed))
        members = ideals_of(lattice)
        masks = {sum(1 << v for v in ideal) for ideal in members}
        assert masks == all_ideals(problem.num_blocks, arcs(problem))
        assert len(members) == len(masks)
        for i, ideal in enumerate(members):
            inside = sorted(ideal)
            assert lattice.time[i].tolist() == problem.time[:, inside].sum(axis=1).tolist()
            assert lattice.cut[i] == cut(problem, ideal)


def test_numbers_ascend_with_work_and_from_ideals_to_those_above() -> None:
    for seed, problem in enumerate(problems(30)):
        lattice = lattice_of(problem, an_order(problem, seed))
        assert (np.diff(lattice.work) >= 0).all()
        assert (lattice.below < lattice.above).all()


def test_arcs_join_all_ideals_that_differ_by_the_block_of_their_step() -> None:
    for seed, problem in enumerate(problems(30)):
        lattice = lattice_of(problem, an_order(problem, seed))
        members = ideals_of(lattice)
        number = {ideal: i for i, ideal in enumerate(members)}
        for step, v in enumerate(lattice.order.tolist()):
            own = slice(lattice.step_ptr[step], lattice.step_ptr[step + 1])
            found = list(zip(lattice.below[own].tolist(), lattice.above[own].tolist(), strict=True))
            assert found == [
                (number[ideal - {v}], i)
                for i, ideal in enumerate(members)
                if v in ideal and ideal - {v} in number
            ]


def test_a_lattice_over_the_memory_is_refused() -> None:
    problem = build_problem(wide_instance(0))
    total = len(all_ideals(problem.num_blocks, arcs(problem)))
    with pytest.raises(TooLarge, match="memory"):
        build_lattice(problem, next(orders(problem)), total, CLOCK, 1000)


def distances(problem: ChainProblem, lattice: IdealLattice, paths: Walks, source: int) -> Ints:
    found = np.full(lattice.size + len(paths.ideal), FAR)
    found[source] = 0
    limit = problem.largest_load
    pass_forth(paths, lattice.work, 0, int(lattice.work[-1]), limit, found)
    return found[: lattice.size]


def test_the_nearest_walk_between_two_ideals_costs_the_load_of_their_difference() -> None:
    pairs = 0
    for seed, problem in enumerate(problems(60)):
        if not problem.counts[ACCELERATOR]:
            continue
        lattice = lattice_of(problem, an_order(problem, seed))
        paths, members = paths_of(problem, lattice), ideals_of(lattice)
        for source in range(0, lattice.size, 1 + lattice.size // 8):
            found = distances(problem, lattice, paths, source)
            for i, ideal in enumerate(members):
                taken = sorted(ideal - members[source])
                refused = problem.need[ACCELERATOR, taken].sum() > 0
                if not members[source] <= ideal or refused:
                    assert found[i] == FAR
                else:
                    work = int(problem.time[ACCELERATOR, taken].sum())
                    assert found[i] == work + cut(problem, frozenset(taken))
                    pairs += 1
    assert pairs > 500


def test_a_tensor_to_three_consumers_is_paid_once_however_it_is_cut() -> None:
    # a -> b, c, d share one tensor of 7 ns; each op takes 1 ns
    graph = Graph(
        name="fan",
        ops=tuple(Op(name=name, time_ns={"x": 1}) for name in "abcd"),
        edges=tuple(Edge(producer="a", consumer=to, tensor="out", host_time_ns=7) for to in "bcd"),
    )
    devices = tuple(Device(name=name, kind="x") for name in "12")
    problem = build_problem(
        Instance(name="fan", graph=graph, cluster=Cluster(name="c", devices=devices))
    )
    lattice = lattice_of(problem, np.arange(4))
    paths, members = paths_of(problem, lattice), ideals_of(lattice)
    nothing, only_a = members.index(frozenset()), members.index(frozenset({0}))
    from_nothing = distances(problem, lattice, paths, nothing)
    from_a = distances(problem, lattice, paths, only_a)
    for i, ideal in enumerate(members):
        if ideal:
            whole = len(ideal) == 4
            assert from_nothing[i] == len(ideal) + (0 if whole else 7)
        if len(ideal) > 1:
            assert from_a[i] == len(ideal) - 1 + 7


def loads(problem: ChainProblem, split: Slices) -> list[int]:
    """Load of each device, by the definition; the split is checked on the way."""
    found = []
    for kind in (ACCELERATOR, HOST):
        for number in range(problem.counts[kind]):
            own = np.flatnonzero((split.kind == kind) & (split.number == number))
            assert problem.need[kind, own].sum() <= problem.room[kind]
            moved = cut(problem, frozenset(own.tolist())) if kind == ACCELERATOR else 0
            found.append(int(problem.time[kind, own].sum()) + moved)
    return found


def decides(seed: int, *, most_ops: int = 7) -> bool:
    """Check decisions on one instance at its optimum, below and above; False if it does not fit."""
    instance = chain_instance(seed, most_ops=most_ops)
    problem = build_problem(instance)
    if why_no_sweep(problem) or not (problem.need <= problem.room[:, None]).any(axis=0).all():
        return False
    optimum = best_chain(instance)
    assert optimum is not None
    sweep = sweep_of(problem, seed)
    for limit in sorted({optimum, optimum + 1, optimum * 2}):
        split = sweep.decide(limit)
        assert split is not None
        assert optimum <= max(loads(problem, split)) <= limit
        assert split.value == max(loads(problem, split))
    for limit in {optimum - 1, optimum // 2} - {optimum, -1}:
        assert sweep.decide(limit) is None
    return True


def test_decisions_are_right_at_the_optimum_and_on_both_sides() -> None:
    assert sum(decides(seed) for seed in range(120)) > 60


def dp(instance: Instance, semantics: Semantics = CHAIN) -> Result:
    return solve(instance, semantics, "ideal-dp")


def only_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search ends at its first node, and nothing else is known before."""
    monkeypatch.setattr(ideal_bracket.TwoKindsBracket, "cut", lambda bracket: None)
    monkeypatch.setattr(ideal_bracket, "LEAST_NODES", 0)
    monkeypatch.setattr(ideal_bracket, "NODES_PER_IDEAL", 0)


def judge(result: Result, optimum: int | None) -> None:
    expected = ("infeasible", None) if optimum is None else ("optimal", optimum)
    assert (result.status, result.value_ns) == expected, result.instance


def test_the_dp_by_sweeps_equals_the_enumeration_of_all_chains(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    only_sweeps(monkeypatch)
    swept = 0
    for seed in range(80):
        instance = chain_instance(seed)
        result = dp(instance)
        judge(result, best_chain(instance))
        swept += "walk_edges" in result.details
    assert swept > 15


def test_sets_of_more_than_64_blocks_are_swept(monkeypatch: pytest.MonkeyPatch) -> None:
    only_sweeps(monkeypatch)
    for seed in range(3):
        instance = wide_instance(seed)
        judge(dp(instance), best_chain_of_ideals(instance))


def test_the_search_ends_what_the_sweep_cannot_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_large(*_: object) -> Walks:
        raise TooLarge("no room")

    only_sweeps(monkeypatch)
    monkeypatch.setattr(ideal_bracket, "build_walks", too_large)
    for seed in range(30):
        instance = chain_instance(seed)
        result = dp(instance)
        judge(result, best_chain(instance))
        assert "walk_edges" not in result.details


@pytest.mark.parametrize(("first", "end"), [(0, 40), pytest.param(40, 160, marks=pytest.mark.deep)])
def test_where_the_ideals_do_not_fit_the_memory_bounds_still_rise(
    first: int, end: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ideal_bracket, "MOST_BYTES", 1500)
    monkeypatch.setattr(
        raise_bound, "rounds", lambda costs: iter(())
    )  # they have tests of their own
    raised = 0
    for seed in range(first, end):
        instance = chain_instance(seed)
        optimum = best_chain(instance)
        if optimum is None:
            continue
        result = dp(instance)
        assert result.value_ns is None or result.value_ns >= optimum
        assert result.bound_ns is not None
        assert result.bound_ns <= optimum
        raised += "memory" in result.message and result.bound_origin == "ideal-dp"
    assert raised > 0


def test_tight_memory_and_overlap_are_left_to_the_search() -> None:
    refused = 0
    for seed in range(60):
        instance = chain_instance(seed)
        assert why_no_sweep(build_problem(instance, overlap=True)) is not None
        problem = build_problem(instance)
        sizes, times = problem.blocks.resident_bytes, problem.blocks.time_ns
        # a device without memory holds exactly the blocks that take none: nothing to add up
        tight = any(
            0 < device.memory_bytes < sizes[times[:, k] != UNSUPPORTED].sum()
            for k, device in enumerate(instance.cluster.devices)
            if device.memory_bytes is not None
        )
        assert (why_no_sweep(problem) == "memory is tight") == tight
        refused += tight
    assert refused > 5


@pytest.mark.deep
@pytest.mark.parametrize("start", range(10_000, 14_000, 1000))
def test_thousands_of_decisions_are_right(start: int) -> None:
    assert sum(decides(seed) for seed in range(start, start + 1000)) > 500


@pytest.mark.deep
def test_thousands_of_instances_are_solved_by_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    only_sweeps(monkeypatch)
    for seed in range(20_000, 22_000):
        instance = chain_instance(seed)
        judge(dp(instance), best_chain(instance))
        judge(dp(instance, OVERLAP), best_chain(instance, overlap=True))
