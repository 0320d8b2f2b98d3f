"""slicing and pipedream: segments of orders, and stages with replicas."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from itertools import combinations_with_replacement

import numpy as np
import pytest
from draws import draw
from draws.tiny import SHARED, needs_dnn_partitioning
from references.brute_force import max_load_draws

from placegap.instances import Instance, MaxLoad, Op, Plan
from placegap.instances.importers.reader import load_model
from placegap.instances.referee.evaluate import evaluate
from placegap.solvers import Task, run_method
from placegap.solvers.chains.orders import order_of_keys
from placegap.solvers.chains.slices import Slicer
from placegap.solvers.placers import pipedream as _pipedream  # noqa: F401 - it registers itself
from placegap.solvers.placers import slicing as _slicing  # noqa: F401

CHAIN = MaxLoad(plans="chain")
REPLICAS = MaxLoad(plans="any", replicas=True)


def recorded() -> Iterator[tuple[Instance, Mapping[str, str]]]:
    """Every third row of those that the reference programs recorded."""
    with (SHARED / "reference" / "dnn-partitioning.csv").open() as table:
        rows = [row for row in csv.DictReader(table) if row["linearized_dp"]]
    for row in rows[::3]:
        file = SHARED / "instances" / "dnn-partitioning" / row["file"]
        yield load_model(file).instance(), row


def rounding_ms(instance: Instance) -> float:
    """How much rounding all times to whole ns may change a load: half a ns per op and border."""
    return (instance.num_ops + 2 * len(instance.arrays.index.tensor_producer)) * 0.5e-6


def by_hand(instance: Instance, slicer: Slicer, order: np.ndarray) -> int | None:
    """Least max_load over all ways to cut an order for the devices in each of the sequences."""
    best = None
    for sequence in slicer.sequences:
        for cuts in combinations_with_replacement(range(len(order) + 1), len(sequence) - 1):
            ends = [0, *cuts, len(order)]
            device = np.zeros(len(order), np.int64)
            for p, k in enumerate(sequence.tolist()):
                device[order[ends[p] : ends[p + 1]]] = k
            plan = Plan.on(device[slicer.problem.blocks.block].tolist())
            if np.any(slicer.time_ns[np.arange(len(order)), device] < 0):
                continue
            verdict = evaluate(instance, plan, CHAIN)
            if verdict.feasible and verdict.value_ns is not None:
                best = verdict.value_ns if best is None else min(best, verdict.value_ns)
    return best


def test_slices_on_devices_that_differ_are_the_best_of_all() -> None:
    compared = 0
    for number, instance in enumerate(max_load_draws()):
        slicer = Slicer(Task(instance, CHAIN))
        if slicer.alike or number % 9:
            continue
        order = np.arange(slicer.problem.num_blocks)
        found, best = slicer.slices(order), by_hand(instance, slicer, order)
        assert (None if found is None else found[0]) == best, instance.name
        compared += 1
    assert compared >= 3


def test_keys_give_topological_orders_and_the_least_key_goes_first() -> None:
    # 0 -> 2, 1 -> 2, 3 alone; by key: 3, 2, 1, 0, but 2 waits for both of its predecessors
    arcs = np.array([0, 1, 2, 2, 2]), np.array([2, 2]), np.array([0, 0, 2, 0])
    assert order_of_keys(*arcs, np.array([3, 2, 1, 0])).tolist() == [3, 1, 0, 2]


def test_a_time_limit_ends_slicing_with_what_it_has() -> None:
    result = run_method(max_load_draws()[0], CHAIN, "slicing", time_limit_s=0.0)
    assert result.status == "feasible"
    assert result.message.startswith("stopped ")


def two_layers(parameter_bytes: int, memory_bytes: int | None = None) -> Instance:
    """a (10 ns, with parameters) -> b (30 ns) on three equal devices, 1 byte per ns."""
    ops = (
        Op(name="a", time_ns={"gpu": 10}, resident_bytes=3, parameter_bytes=parameter_bytes),
        Op(name="b", time_ns={"gpu": 30}, resident_bytes=3),
    )
    return draw.row(ops, draw.devices(["gpu"] * 3, lambda k: memory_bytes), host_time_ns=1)


@pytest.mark.parametrize(
    ("formula", "parameter_bytes", "whole"),
    [
        # a | b b is planned at 30 / 2 = 15 (with its transfer 31 / 2 -> 16); all on three devices:
        ("2019", 8, True),  # max(40, 2 * 2 * 8) / 3 = 13.3
        ("2019", 15, False),  # max(40, 2 * 2 * 15) / 3 = 20
        ("2018", 15, True),  # max(40, 4 * 2 * 15 / 3) / 3 = 13.3
        ("2018", 20, False),  # max(40, 4 * 2 * 20 / 3) / 3 = 17.8
        ("placegap", 1, True),  # ceil(40 / 3) + ceil(2 * 2 * 1 / 3) = 14 + 2 = 16, as a | b b
        ("placegap", 8, False),  # 14 + ceil(2 * 2 * 8 / 3) = 25
    ],
)
def test_each_formula_weighs_replicas_against_the_sum_of_weights(
    formula: str, parameter_bytes: int, whole: bool
) -> None:
    instance = two_layers(parameter_bytes)
    result = run_method(instance, REPLICAS, "pipedream", {"formula": formula})
    split = ((0,), (1, 2))
    assert result.plan.placement == (((0, 1, 2), (0, 1, 2)) if whole else split)


def test_stages_are_shared_only_where_the_semantics_has_replicas() -> None:
    result = run_method(two_layers(0), CHAIN, "pipedream")
    assert (result.plan, result.value_ns) == (Plan.on([0, 1]), 31)


def test_every_replica_holds_the_whole_stage() -> None:
    # 5 bytes hold one of the ops: a | b b, though all on three would be planned at 40 / 3
    result = run_method(two_layers(0, memory_bytes=5), REPLICAS, "pipedream")
    assert result.plan.placement == ((0,), (1, 2))
    # nor can 2 bytes hold either
    assert run_method(two_layers(0, memory_bytes=2), REPLICAS, "pipedream").status == "no_plan"


@needs_dnn_partitioning
def test_slices_are_at_most_the_recorded_linearized_dp() -> None:
    for instance, row in recorded():
        value = run_method(instance, CHAIN, "slicing").value_ns
        assert value / 1e6 >= float(row["contiguous_max_load"]) - rounding_ms(instance)
        assert value / 1e6 <= float(row["linearized_dp"]) + rounding_ms(instance)


@needs_dnn_partitioning
def test_stages_of_merged_layers_are_those_of_the_recorded_pipedream() -> None:
    # With the formula of the referee: the program merges and linearizes the same way. It
    # excludes edges of BERT-24 by hand, and on six of all 16 graphs its order is another.
    equal = set()
    for instance, row in recorded():
        value = run_method(instance, CHAIN, "pipedream", {"formula": "placegap"}).value_ns
        if abs(value / 1e6 - float(row["pipedream"])) <= rounding_ms(instance):
            equal.add(row["file"].removeprefix("throughput-inputs/"))
    assert equal == {
        "LayerGraphs/gnmt_training.json",
        "LayerGraphs/resnet50_inference.json",
        "OperatorGraphs/bert_l-12_inference.json",
    }
