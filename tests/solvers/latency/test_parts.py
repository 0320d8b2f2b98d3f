"""The parts of `latency` by themselves: evaluation, spines, sections, rows, annealing."""

from __future__ import annotations

import numpy as np
import pytest
from draws.latency.spines import spine_draw, spine_instance
from draws.latency.tiny import ONCE, TWICE, by_hand, optimum
from draws.tiny import tiny_instance

from placegap.instances import Instance, LatencySubgraphs, Op, Semantics, evaluate, example
from placegap.instances.objectives.calls.referee import simulate_subgraphs
from placegap.instances.problem.integers import NEVER
from placegap.instances.referee.rules import PlanError
from placegap.solvers.latency.call_rows import Row, best_row, passing_ns, row_places
from placegap.solvers.latency.calls import build_call_problem
from placegap.solvers.latency.spine import build_nodes, build_spine


def row_of(instance: Instance, semantics: Semantics) -> Row:
    arrays = instance.arrays
    accelerators = ~arrays.is_host
    spine = build_spine(build_nodes(instance, semantics.subgraphs))
    room = int(arrays.memory_bytes[accelerators].max(initial=0))
    most_calls = min(int(accelerators.sum()) * semantics.subgraphs, instance.num_ops)
    return best_row(spine, room, most_calls)


def row_graph(times: list[int], moves: str, room: int | None = None) -> Instance:
    """Ops of 1 byte in a row, on two equal accelerators."""
    ops = [Op(name=str(i), time_ns={"gpu": t}, resident_bytes=1) for i, t in enumerate(times)]
    return by_hand(ops, moves, room=room)


def test_the_latency_of_random_plans_is_the_referees() -> None:
    cycles = 0
    for seed in range(48):
        draw = spine_instance(seed, 3 + seed % 9, 3, seed % 3)
        instance = draw if seed % 2 else tiny_instance(seed, num_ops=7, num_devices=3, hosts=1)
        semantics = LatencySubgraphs(subgraphs=1 + seed % 3)
        problem = build_call_problem(instance, semantics.subgraphs)
        rng = np.random.default_rng(seed)
        for sort in (False, True):
            place = rng.integers(0, len(problem.device), instance.num_ops)
            if sort:  # along a topological order there are fewer cycles
                place = np.sort(place)[instance.arrays.index.topological_position]
            plan, value = problem.plan(place), problem.latency_ns(place)
            assert problem.place(plan).tolist() == place.tolist()
            verdict = evaluate(instance, plan, semantics)
            assert verdict.feasible == (problem.fits(place) and value < NEVER)
            assert not verdict.feasible or verdict.value_ns == value
            if value == NEVER and problem.fits(place):
                cycles += 1
                with pytest.raises(PlanError, match="wait"):
                    simulate_subgraphs(instance, plan, semantics)
    assert cycles >= 6


def test_an_op_represents_a_group_if_it_comes_in_the_middle_of_all() -> None:
    # a -> b -> c with b and a constant w -> b in one group: b represents w, all are in a row
    ops = [Op(name=x, time_ns={"gpu": 2}, resident_bytes=1) for x in "abcw"]
    for at in (1, 3):
        ops[at] = ops[at].model_copy(update={"colocation": "group"})
    instance = by_hand(ops, "a b 1, b c 1, w b 1", ["gpu"])
    nodes = build_nodes(instance, 1)
    assert nodes.node[3] == nodes.node[1]
    assert sorted(nodes.own_ns.tolist()) == [2, 2, 4]
    assert build_spine(nodes).sections == [[], [], [], []]
    # with several calls per accelerator the two may be in different ones
    twice = build_nodes(instance, 2)
    assert twice.own_ns.tolist() == [2, 2, 2, 2]
    assert twice.size_bytes.tolist() == [1, 1, 1, 1]


def test_what_lies_beside_a_long_path_is_left_out() -> None:
    # w feeds the last op of five and is beside the four before it: one bottleneck, or all five
    nodes = build_nodes(row_graph([1] * 6, "0 1 1, 1 2 1, 2 3 1, 3 4 1, 5 4 1"), 1)
    assert len(build_spine(nodes).bottlenecks) == 1
    spine = build_spine(nodes, 3)
    assert len(spine.bottlenecks) == 5
    assert spine.left_out == [int(nodes.node[5])]


def test_a_call_pays_for_tensors_that_pass_bottlenecks() -> None:
    # in a row of five, a tensor of 9 from op 0 to op 4 also: no cut between them avoids it
    moves = "0 1 0, 1 2 0, 2 3 0, 3 4 0, 0 4 9"
    instance = row_graph([1] * 5, moves)
    extra = passing_ns(build_spine(build_nodes(instance, 1)))
    # calls of bottlenecks s..t: the producer is surely outside and the consumer inside, or the
    # producer inside (not last: `options` charges that) and the consumer outside
    assert extra[2, 4] == extra[0, 2] == 9
    assert extra[0, 4] == extra[1, 3] == extra[0, 0] == 0
    # two calls of at most three ops: 5 for the ops, 9 out and 9 in
    tight = row_graph([1] * 5, moves, room=3)
    assert row_of(tight, ONCE).cost_ns == optimum(tight, ONCE) == 23


def test_rows_are_exact_where_all_ops_are_in_a_row() -> None:
    for seed in range(16):
        rng = np.random.default_rng(seed)
        times, moves = rng.integers(0, 9, 5).tolist(), rng.integers(0, 9, 4).tolist()
        joined = ", ".join(f"{i} {i + 1} {ns}" for i, ns in enumerate(moves))
        instance = row_graph(times, joined, room=int(rng.integers(3, 6)))
        assert row_of(instance, ONCE).cost_ns == optimum(instance, ONCE)


def test_rows_beyond_the_limit_are_cut_off() -> None:
    spine = build_spine(build_nodes(example(), 1))
    assert best_row(spine, 0, 2, 43).cost_ns == 43
    assert best_row(spine, 0, 2, 42).cost_ns == NEVER


def test_a_row_becomes_a_plan_of_no_less_than_its_cost() -> None:
    made = 0
    for seed in range(20):
        instance = spine_draw(seed)
        for semantics in (ONCE, TWICE):
            problem = build_call_problem(instance, semantics.subgraphs)
            spine = build_spine(build_nodes(instance, semantics.subgraphs))
            row = row_of(instance, semantics)
            place = row_places(problem, spine, row) if row.cost_ns < NEVER else None
            if place is not None:
                verdict = evaluate(instance, problem.plan(place), semantics)
                assert verdict.feasible
                assert verdict.value_ns >= row.cost_ns
                made += 1
    assert made >= 13


def test_two_small_calls_share_an_accelerator_where_memory_allows() -> None:
    # c can only be on a host, so a b | c | d e are two calls; with one device they share it
    ops = [Op(name=x, time_ns={"gpu": 1, "cpu": 9}, resident_bytes=1) for x in "abcde"]
    ops[2] = Op(name="c", time_ns={"cpu": 1})
    instance = by_hand(ops, "a b 1, b c 1, c d 1, d e 1", ["gpu", "cpu"], room=4)
    spine, row = build_spine(build_nodes(instance, 2)), row_of(instance, TWICE)
    assert row.cost_ns == 7  # 2 + 1 out, 1, 1 in + 2
    place = row_places(build_call_problem(instance, 2), spine, row)
    assert place.tolist() == [0, 0, 2, 1, 1]
