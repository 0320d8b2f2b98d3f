"""local-search: the best single moves, with loads kept up to date."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from draws import draw
from draws.tiny import SHARED, needs_dnn_partitioning, tiny_instance
from references.brute_force import max_load_draws

from placegap.instances import Instance, MaxLoad, Plan, evaluate, example
from placegap.instances.importers.reader import read_model
from placegap.instances.problem.blocks import contract
from placegap.instances.problem.nets import build_nets
from placegap.instances.referee.loads import combine, device_loads
from placegap.solvers import Task, run_method
from placegap.solvers.chains.problem import arc_lists
from placegap.solvers.placers.movable_units import (
    best_move,
    free_units,
    keeps_chain,
    loads,
    move,
    start,
    units_of,
)

ANY = MaxLoad()
CHAIN = MaxLoad(plans="chain")


def referee(instance: Instance, device: np.ndarray, overlap: bool) -> list[int]:
    parts = device_loads(instance, device)
    return combine("overlap" if overlap else "add", *parts).tolist()


@pytest.mark.parametrize("overlap", [False, True])
def test_loads_are_the_referees_after_any_moves(overlap: bool) -> None:
    rng = np.random.default_rng(5)
    for seed in range(4):
        instance = tiny_instance(seed, num_ops=9, num_devices=3, hosts=seed % 2, density=0.5)
        units = free_units(instance)
        nets, arcs = build_nets(instance, units.block).lists, arc_lists(units)
        time, size = np.maximum(units.time_ns, 0), units.resident_bytes
        allowed = [np.flatnonzero(row >= 0) for row in units.time_ns]
        first = np.array([rng.choice(own) for own in allowed], np.int64)
        state = start(first, time, size, nets, arcs)
        for _ in range(25):
            v = int(rng.integers(units.num_blocks))
            b = int(rng.choice(allowed[v]))
            if b != state.device[v]:
                move(state, time, size, nets, arcs, v, b)
            expected = referee(instance, state.device[units.block], overlap)
            assert loads(state, overlap).tolist() == expected
        fresh = start(state.device.copy(), time, size, nets, arcs)
        assert all((kept == new).all() for kept, new in zip(state, fresh, strict=True))


def test_the_best_move_is_the_best_of_all_moves() -> None:
    rng, improved = np.random.default_rng(6), 0
    for number, instance in enumerate(max_load_draws()[::8]):
        semantics = (ANY, CHAIN)[number % 2]
        units = units_of(Task(instance, semantics))
        nets, arcs = build_nets(instance, units.block).lists, arc_lists(units)
        fits, memory = units.time_ns >= 0, instance.arrays.memory_bytes
        first = np.array([rng.choice(np.flatnonzero(row)) for row in fits], np.int64)
        state = start(first, units.time_ns, units.resident_bytes, nets, arcs)
        least = max(referee(instance, first[units.block], False))
        for v in range(units.num_blocks):
            for b in np.flatnonzero(fits[v]).tolist():
                other = first.copy()
                other[v] = b
                plan = Plan.on(other[units.block].tolist())
                broken = {x.rule for x in evaluate(instance, plan, semantics).violations}
                used = np.bincount(other, units.resident_bytes, len(memory))
                if used[b] <= memory[b] and "chain" not in broken:
                    least = min(least, max(referee(instance, other[units.block], False)))
        best, v, _ = best_move(
            state,
            units.time_ns,
            units.resident_bytes,
            fits,
            memory,
            nets,
            arcs,
            False,
            semantics == CHAIN,
        )
        assert best == least, instance.name
        improved += v >= 0
    assert improved >= 5


def test_a_move_that_closes_a_cycle_of_devices_keeps_no_chain() -> None:
    # the diamond 0 -> 1, 2 -> 3 with op 0 on d0 and the rest on d1: op 3 to d0 closes a cycle
    instance = example()
    units = contract(instance, merge_idle=False)
    nets, arcs = build_nets(instance, units.block).lists, arc_lists(units)
    first = np.array([0, 1, 1, 1])
    state = start(first, units.time_ns, units.resident_bytes, nets, arcs)
    before = state.arcs_between.copy()
    assert [keeps_chain(state, arcs, v, 0) for v in (1, 2, 3)] == [True, True, False]
    assert (state.arcs_between == before).all()


def roomy() -> Instance:
    """30 ops on three devices without memory limits."""
    instance = tiny_instance(4, num_ops=30, num_devices=3, density=0.1)
    return draw.with_devices(instance, memory_bytes=[None] * 3)


def test_a_seed_decides_the_plan() -> None:
    instance = roomy()
    plans = [
        run_method(instance, ANY, "local-search", {"restarts": 1}, seed=seed).plan
        for seed in (1, 1, 2, 3, 4)
    ]
    assert plans[0] == plans[1]
    assert len(set(map(str, plans))) > 1


def test_a_time_limit_ends_it_with_what_it_has() -> None:
    result = run_method(roomy(), ANY, "local-search", {"restarts": 10**6}, time_limit_s=0.0)
    assert (result.status, result.message) == (
        "feasible",
        "stopped after 0 restarts: the time limit is over",
    )


@needs_dnn_partitioning
def test_values_are_like_those_that_the_reference_program_recorded() -> None:
    # It ran another number of restarts, from other draws, and all ours honour memory: on operator
    # graphs ours are mostly far better, on two of BERT 3.2 and 11.6 % worse, elsewhere within 1 %.
    with (SHARED / "reference" / "dnn-partitioning.csv").open() as table:
        rows = [row for row in csv.DictReader(table) if row["local_search"]][::4]
    for row in rows:
        instance = read_model(SHARED / "instances" / "dnn-partitioning" / row["file"]).instance()
        value = run_method(instance, ANY, "local-search").value_ns
        assert value is not None
        most = 1.12 if "bert_l-6" in row["file"] else 1.01
        assert float(row["lower_bound_any_split"]) < value / 1e6 < most * float(row["local_search"])
    assert len(rows) == 4
