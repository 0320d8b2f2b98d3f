"""greedy: next-fit by memory. local-search: the best single moves."""

import csv

import numpy as np
import pytest
from draws import draw
from draws.tiny import SHARED, needs_dnn_partitioning, tiny_instance

from placegap.instances import (
    Device,
    Edge,
    Instance,
    LatencySubgraphs,
    MaxLoad,
    Op,
    Semantics,
    example,
)
from placegap.instances.importers.reader import load_model
from placegap.instances.problem.blocks import contract
from placegap.instances.problem.nets import build_nets
from placegap.instances.referee.loads import combine, device_loads
from placegap.solvers import Task, run_method
from placegap.solvers.chains.problem import arc_lists
from placegap.solvers.placers.greedy_and_moves import greedy
from placegap.solvers.placers.movable_units import keeps_chain, start

# ----------------------------------------------------------------------------------------- greedy


ANY = MaxLoad(plans="any")
CHAIN = MaxLoad(plans="chain")
LATENCY = LatencySubgraphs()


def line(sizes: str, devices: str, runs: dict[int, str] | None = None) -> Instance:
    """A chain of ops with `sizes`; devices like ``g4 g4 c`` (kind, memory), c being hosts."""
    ops = tuple(
        Op(
            name=f"op{i}",
            time_ns=dict.fromkeys((runs or {}).get(i, "gc"), 1),
            resident_bytes=int(size),
        )
        for i, size in enumerate(sizes)
    )
    specs = [
        Device(
            name=f"d{k}",
            kind=text[0],
            memory_bytes=int(text[1:]) if text[1:] else None,
            is_host=text[0] == "c",
        )
        for k, text in enumerate(devices.split())
    ]
    return draw.row(ops, specs, host_time_ns=0)


def devices_of(instance: Instance, semantics: Semantics) -> str | None:
    plan = greedy(Task(instance, semantics)).plan
    return None if plan is None else "".join(map(str, plan.devices.tolist()))


@pytest.mark.parametrize("semantics", [ANY, CHAIN, LATENCY])
def test_an_accelerator_takes_what_fits_and_what_does_not_opens_the_next(
    semantics: Semantics,
) -> None:
    # 2 + 2 fit into 4, 1 more does not; 1 + 3 fill the second, and the last op goes to the host
    assert devices_of(line("22131", "g4 g4 c"), semantics) == "00112"


def test_what_is_too_large_goes_to_a_host_and_closes_the_accelerator() -> None:
    # 5 fits no accelerator; op2 would still fit d0, which is closed; op3 fits d1 no more
    for semantics in (ANY, LATENCY):
        assert devices_of(line("1533", "g4 g4 c"), semantics) == "0212"


def test_in_a_chain_a_host_that_was_left_is_not_used_again() -> None:
    # op1 is on d2; op3 needs a host again, after op2 on d1: there is none, or the other one
    assert devices_of(line("1533", "g4 g4 c"), CHAIN) is None
    assert devices_of(line("1533", "g4 g4 c c"), CHAIN) == "0213"


def test_what_an_accelerator_cannot_run_is_too_large_for_it() -> None:
    assert devices_of(line("111", "g9 g9 c", {1: "c"}), CHAIN) == "021"


def test_hosts_have_a_memory_here_and_what_fits_nowhere_is_no_plan() -> None:
    outcome = greedy(Task(line("33", "g4 c2"), ANY))
    assert outcome.plan is None
    assert outcome.message == (
        "memory: op 'op1' (3 B) fits on no device that greedy still fills; devices that can"
        " run it: 1 of 4 B, 1 of 2 B"
    )


def test_plans_of_any_kind_return_to_an_accelerator_where_nothing_else_is_left() -> None:
    assert devices_of(line("231", "g4 g4"), ANY) == "011"
    assert devices_of(line("2321", "g4 g4"), ANY) == "0101"
    assert devices_of(line("2321", "g4 g4"), CHAIN) is None


@needs_dnn_partitioning
def test_latencies_are_those_that_the_reference_program_recorded() -> None:
    # The program's order of blocks depends on its standard library: 5 of 8 values are equal. Of
    # the networks with many equally good orders two are within a tenth, and GNMT within a quarter.
    with (SHARED / "reference" / "dnn-partitioning.csv").open() as table:
        rows = {row["file"]: row["latency_greedy"] for row in csv.DictReader(table)}
    ratios = {}
    for file, recorded in rows.items():
        if recorded:
            instance = load_model(SHARED / "instances" / "dnn-partitioning" / file).instance()
            value = run_method(instance, LATENCY, "greedy").value_ns
            ratios[file] = value / 1e6 / float(recorded)
    assert {name for name, ratio in ratios.items() if abs(ratio - 1) < 1e-6} == {
        "latency-inputs/LayerGraphs/bert24_inference.json",
        "latency-inputs/OperatorGraphs/bert_l-12_inference.json",
        "latency-inputs/OperatorGraphs/bert_l-3_inference.json",
        "latency-inputs/OperatorGraphs/bert_l-6_inference.json",
        "latency-inputs/OperatorGraphs/resnet50_inference.json",
    }
    assert len(ratios) == 8
    assert all(0.9 < ratio < 1.25 for ratio in ratios.values())


@pytest.mark.parametrize("name", ["greedy", "m-topo"])
def test_single_sample_plans_of_training_graphs_are_accepted(name: str) -> None:
    # the backward op b depends on f and g, and f must share its device with b: for one sample all
    # three are one block, while f, g and b may be apart in a pipeline
    ops = (
        Op(name="f", time_ns={"x": 1}, resident_bytes=1, colocation="fb"),
        Op(name="g", time_ns={"x": 1}, resident_bytes=1),
        Op(name="b", time_ns={"x": 1}, resident_bytes=1, backward=True, colocation="fb"),
    )
    edges = [Edge(producer=a, consumer=b, bytes=1, host_time_ns=1) for a, b in ("fg", "gb", "fb")]
    devices = draw.devices("xx", lambda k: 3)
    instance = draw.instance_of("training", ops, edges, devices, draw.fast_links(devices))
    tight = draw.with_devices(instance, memory_bytes=[2, 2])
    once = LatencySubgraphs(subgraphs=2)
    result = run_method(instance, once, name)
    assert set(result.plan.devices.tolist()) == {0}
    # 2 bytes each: f and b on one device, g on the other would be calls that wait for each other
    result = run_method(tight, once, name)
    assert result.plan is None
    assert result.message.startswith("memory: ")


# ----------------------------------------------------------------------------------- local-search


def referee(instance: Instance, device: np.ndarray, overlap: bool) -> list[int]:
    parts = device_loads(instance, device)
    return combine("overlap" if overlap else "add", *parts).tolist()


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
        "stopped after 0 restarts: the time limit has passed",
    )


@needs_dnn_partitioning
def test_values_are_like_those_that_the_reference_program_recorded() -> None:
    # It ran another number of restarts, from other draws, and all ours honour memory: on operator
    # graphs ours are mostly far better, on two of BERT 3.2 and 11.6 % worse, elsewhere within 1 %.
    with (SHARED / "reference" / "dnn-partitioning.csv").open() as table:
        rows = [row for row in csv.DictReader(table) if row["local_search"]][::4]
    for row in rows:
        instance = load_model(SHARED / "instances" / "dnn-partitioning" / row["file"]).instance()
        value = run_method(instance, ANY, "local-search").value_ns
        most = 1.12 if "bert_l-6" in row["file"] else 1.01
        assert float(row["lower_bound_any_split"]) < value / 1e6 < most * float(row["local_search"])
    assert len(rows) == 4
