"""Plans on disk: exact round trips, and errors that name what the instance lacks."""

from pathlib import Path
from typing import Any

import pytest
from draws.hybrid import layer_row
from draws.tiny import tiny_instance

from placegap.instances import (
    Cluster,
    HybridPipeline,
    LatencySubgraphs,
    Makespan,
    PipelineIteration,
    Plan,
    Semantics,
    evaluate,
    example,
    recheck,
    simulate,
)
from placegap.instances.files.document import read_json
from placegap.instances.files.plan_file import is_plan, load_plan, load_stated_plan, save_plan
from placegap.instances.problem import Instance, Transfer
from placegap.instances.problem.links import Group, Links
from placegap.instances.referee.channels import plan_from_times


def ordered_plan(instance: Instance, semantics: Semantics, devices: list[int]) -> Plan:
    """The plan with all orders that the simulation of a placement chooses."""
    schedule = simulate(instance, Plan.on(devices), semantics)
    table = schedule.transfers
    columns = (table.item, table.destination, table.start_ns, table.end_ns)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    spans = zip(schedule.start_ns.tolist(), schedule.end_ns.tolist(), strict=True)
    moves = [(Transfer(item, to), start, end) for item, to, start, end in rows]
    return plan_from_times(instance, semantics, devices, list(spans), moves)


@pytest.mark.parametrize("channels", ["free", "link", "port", "half_duplex"])
@pytest.mark.parametrize("transfers", ["per_edge", "per_tensor"])
def test_the_round_trip_is_exact(tmp_path: Path, channels: Any, transfers: Any) -> None:
    semantics = Makespan(channels=channels, transfers=transfers)
    ordered = 0
    for seed in range(3):
        instance = tiny_instance(seed, num_ops=7, num_devices=3)
        devices = [int(times.argmax()) for times in instance.arrays.time_ns]
        plan = ordered_plan(instance, semantics, devices)
        ordered += plan.channel_order is not None
        save_plan(instance, plan, semantics, tmp_path / "p.json", method="by hand")
        assert load_plan(instance, tmp_path / "p.json") == (plan, semantics)
    assert (ordered > 0) == (channels != "free")


def test_a_placement_alone_and_partial_orders_come_back_as_they_were(tmp_path: Path) -> None:
    semantics = Makespan()
    for plan in (
        Plan.on([0, 1, 0, 0]),
        Plan(((0,), (1,), (0,), (0,)), (None, (1,))),
        Plan(((0, 1), (1,), (0,), (0,))),
    ):
        save_plan(example(), plan, semantics, tmp_path / "p.json.gz")
        assert load_plan(example(), tmp_path / "p.json.gz") == (plan, semantics)


def test_the_file_names_ops_devices_and_channels(tmp_path: Path) -> None:
    semantics, path = Makespan(channels="port"), tmp_path / "p.json"
    save_plan(example(), ordered_plan(example(), semantics, [0, 1, 0, 0]), semantics, path)
    raw = read_json(path)
    assert is_plan(raw)
    assert raw["placement"] == {"op1": "gpu0", "op2": "gpu1", "op3": "gpu0", "op4": "gpu0"}
    sent = {"producer": "op1", "consumer": "op2", "to": "gpu1"}
    assert raw["channel_order"]["out of gpu0"] == [sent]


@pytest.mark.parametrize(
    ("field", "semantics", "plan"),
    [
        (
            "stage",
            PipelineIteration(microbatches=4),
            Plan(((0,), (0,), (1,), (1,)), stage=(0, 0, 1, 1)),
        ),
        ("call", LatencySubgraphs(subgraphs=2), Plan(((0,), (1,), (0,), (0,)), call=(0, 1, 1, 1))),
        ("call", LatencySubgraphs(subgraphs=2), Plan.on([0, 1, 0, 0])),
    ],
)
def test_stages_and_calls_are_written_by_op_name_and_come_back(
    tmp_path: Path, field: str, semantics: Semantics, plan: Plan
) -> None:
    save_plan(example(), plan, semantics, tmp_path / "p.json")
    raw, stated = read_json(tmp_path / "p.json"), getattr(plan, field)
    named = None if stated is None else {f"op{i + 1}": n for i, n in enumerate(stated)}
    assert raw.get(field) == named
    assert load_plan(example(), tmp_path / "p.json") == (plan, semantics)


def test_a_batch_that_takes_longer_than_64_bits_hold_is_kept_exactly(tmp_path: Path) -> None:
    # the edge into the loss, 10**8 bytes at 1 byte/s, each way for each of 2**20 microbatches; the
    # first stage computes 8 + 6 x 30 ns for each
    row, rules = layer_row(), HybridPipeline(microbatches=2**20)
    edges = tuple(edge.model_copy(update={"bytes": 10**8}) for edge in row.graph.edges)
    graph = row.graph.model_copy(update={"edges": edges})
    links = Links((Group(("g0", "g1"), 1),))
    cluster = Cluster(name="slow", devices=row.cluster.devices[:2], links=links)
    instance = Instance(name="slow", graph=graph, cluster=cluster)
    plan = Plan((*[(0,)] * 7, (1,)), stage=(*[0] * 7, 1), tensor=(1, 1), mode=("keep",) * 8)
    value_ns = 2**20 * (8 + 6 * 30 + 2 * 10**17)
    for judge in (evaluate, recheck):
        assert judge(instance, plan, rules).value_ns == value_ns
    path = tmp_path / "plan.json"
    save_plan(instance, plan, rules, path, value=value_ns)
    stated = load_stated_plan(instance, path)
    assert (stated.plan, stated.value) == (plan, value_ns)
