"""latency_subgraphs: every rule on an instance of two or three ops, by hand."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from draws import draw
from draws.tiny import SHARED, needs_dnn_partitioning

from placegap.instances import Device, Edge, Instance, LatencySubgraphs, MaxLoad, Op, Plan, evaluate
from placegap.instances.importers.dnn_partitioning import load_split
from placegap.instances.importers.reader import load_model
from placegap.instances.objectives.calls.referee import simulate_subgraphs

ONCE, TWICE = (LatencySubgraphs(subgraphs=q) for q in (1, 2))


def op(name: str, gpu: int | None = 1, cpu: int | None = 10, **fields: object) -> Op:
    times = {"gpu": gpu, "cpu": cpu}
    return Op(
        name=name,
        time_ns={kind: time for kind, time in times.items() if time is not None},
        **fields,  # type: ignore[arg-type]
    )


def edge(a: str, b: str, host_time_ns: int, tensor: str | None = None) -> Edge:
    return Edge(producer=a, consumer=b, host_time_ns=host_time_ns, tensor=tensor)


def instance(
    ops: list[Op], edges: list[Edge], *, gpus: int = 2, cpus: int = 1, memory: int | None = None
) -> Instance:
    """Accelerators g0, g1, ... come before hosts c0, ..."""
    devices = [Device(name=f"g{k}", kind="gpu", memory_bytes=memory) for k in range(gpus)]
    devices += [Device(name=f"c{k}", kind="cpu", is_host=True) for k in range(cpus)]
    return draw.instance_of("by-hand", ops, edges, devices)


def value(
    of: Instance, devices: list[int], call: list[int] | None = None, q: int = 1
) -> int | str | None:
    """The latency of a plan, or the first rule that it breaks."""
    plan = Plan(Plan.on(devices).placement, call=None if call is None else tuple(call))
    verdict = evaluate(of, plan, LatencySubgraphs(subgraphs=q))
    return verdict.value_ns if verdict.feasible else verdict.violations[0].rule


def test_a_call_brings_in_computes_and_takes_out() -> None:
    # a on the host until 10; b on g0: 3 in, 2, 5 out, until 20; c on the host: 20 + 10
    chain = instance([op("a"), op("b", 2), op("c")], [edge("a", "b", 3), edge("b", "c", 5)])
    assert value(chain, [2, 0, 2]) == 30
    schedule = simulate_subgraphs(chain, Plan.on([2, 0, 2]), ONCE)
    assert schedule.start_ns.tolist() == [0, 10, 20]
    assert schedule.end_ns.tolist() == [10, 20, 30]
    assert len(schedule.transfers.item) == 0


def test_a_tensor_is_paid_once_in_and_once_out_however_many_read_it() -> None:
    # a on g0: 1 + 4 out; b and c on g1: 4 in + 1 + 1
    fan = instance(
        [op("a"), op("b"), op("c")], [edge("a", "b", 4, "t"), edge("a", "c", 4, "t")], gpus=3
    )
    assert value(fan, [0, 1, 1]) == 11
    # b and c on an accelerator each: both bring it in, 5 + 4 + 1
    assert value(fan, [0, 1, 2]) == 10
    # b beside a: out for c all the same, 1 + 1 + 4, then 4 + 1
    assert value(fan, [0, 0, 1]) == 11

    # two tensors are paid twice: 1 + 4 + 4 out, 4 + 4 in + 1 + 1
    two = instance([op("a"), op("b"), op("c")], [edge("a", "b", 4), edge("a", "c", 4)])
    assert value(two, [0, 1, 1]) == 19


def test_between_two_calls_of_one_accelerator_a_tensor_is_paid_out_and_in() -> None:
    # 1 + 4, then 4 + 1; within a call nothing is paid
    pair = instance([op("a"), op("b")], [edge("a", "b", 4)])
    assert value(pair, [0, 0]) == 2
    assert value(pair, [0, 0], [0, 1], q=2) == 10
    assert value(pair, [0, 0], [1, 1], q=2) == 2  # call 0 does not exist


def test_calls_of_an_accelerator_do_not_overlap_and_keep_their_order() -> None:
    alone = instance([op("a", 3), op("b", 5)], [])
    assert value(alone, [0, 0], [0, 1], q=2) == 8
    assert value(alone, [0, 1]) == 5
    # a (3) must wait for c on the host (10), and b's call 1 for a's call 0
    late = instance([op("c"), op("a", 3), op("b", 5)], [edge("c", "a", 0)])
    assert value(late, [2, 0, 0], [0, 0, 1], q=2) == 18
    assert value(late, [2, 0, 0], [0, 1, 0], q=2) == 13


def test_calls_that_wait_for_each_other_are_named() -> None:
    # a1 -> b1 and b2 -> a2: g0 and g1 wait for each other
    crossed = instance(
        [op("a1"), op("b1"), op("b2"), op("a2")], [edge("a1", "b1", 0), edge("b2", "a2", 0)]
    )
    verdict = evaluate(crossed, Plan.on([0, 1, 1, 0]), ONCE)
    assert verdict.value_ns is None
    (message,) = [violation.message for violation in verdict.violations]
    assert message in {
        "calls wait for each other: op 'a1' on 'g0' (call 0) -> op 'b2' on 'g1' (call 0)"
        " -> op 'a1' on 'g0' (call 0)",
        "calls wait for each other: op 'b2' on 'g1' (call 0) -> op 'a1' on 'g0' (call 0)"
        " -> op 'b2' on 'g1' (call 0)",
    }
    # with two calls each there is an order: 1 | 1 | 1 | 1 on two accelerators, two at a time
    assert value(crossed, [0, 1, 1, 0], [0, 1, 0, 1], q=2) == 2


def test_a_call_that_a_path_leaves_and_enters_again_waits_for_itself() -> None:
    path = instance([op("a"), op("b"), op("c")], [edge("a", "b", 0), edge("b", "c", 0)])
    assert value(path, [0, 2, 0]) == "order"
    assert value(path, [0, 2, 0], [0, 0, 1], q=2) == 12
    # nor does a later call feed an earlier one
    assert value(path, [0, 0, 0], [1, 0, 0], q=2) == "order"


def test_a_group_shares_an_accelerator_but_not_a_call_nor_a_host() -> None:
    group = instance([op("a", colocation="g"), op("b", colocation="g")], [], cpus=2)
    assert value(group, [0, 0], [0, 1], q=2) == 2
    assert value(group, [2, 3]) == 10
    assert value(group, [0, 1]) == "colocation"
    assert value(group, [0, 2]) == "colocation"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ((0, 1), "op 'b' is in call 1 of device 'g0'; calls are numbered from 0 to 0"),
        ((-1, 0), "op 'a' is in call -1 of device 'g0'; calls are numbered from 0 to 0"),
        ((0,), "call has 1 entries for 2 ops"),
    ],
)
def test_calls_that_do_not_exist_are_named(call: tuple[int, ...], message: str) -> None:
    pair = instance([op("a"), op("b")], [])
    verdict = evaluate(pair, Plan(((0,), (0,)), call=call), ONCE)
    assert [violation.message for violation in verdict.violations] == [message]
    assert verdict.value_ns is None


def test_on_a_host_the_call_is_ignored() -> None:
    assert value(instance([op("a"), op("b")], []), [2, 2], [7, -7]) == 10


def test_calls_are_foreign_to_other_objectives() -> None:
    pair = instance([op("a"), op("b")], [])
    verdict = evaluate(pair, Plan(((0,), (0,)), call=(0, 0)), MaxLoad(plans="any"))
    assert [violation.rule for violation in verdict.violations] == ["fields"]


@needs_dnn_partitioning
def test_all_on_hosts_takes_the_recorded_time() -> None:
    # column latency_all_cpu, in ms, of the reference program
    with (SHARED / "reference/dnn-partitioning.csv").open() as lines:
        recorded = {
            row["file"]: float(row["latency_all_cpu"])
            for row in csv.DictReader(lines)
            if row["latency_all_cpu"]
        }
    assert len(recorded) == 8
    for file, latency_ms in recorded.items():
        of = load_model(SHARED / "instances/dnn-partitioning" / file).instance()
        host = int(np.flatnonzero(of.arrays.is_host)[0])
        verdict = evaluate(of, Plan.on([host] * of.num_ops), ONCE)
        assert verdict.value_ns == pytest.approx(1e6 * latency_ms, abs=of.num_ops)


@needs_dnn_partitioning
@pytest.mark.parametrize(
    ("name", "latency_ms"), [("bert24", 111.937), ("inceptionv3", 865.519), ("resnet50", 1014.927)]
)
def test_the_human_experts_splits_have_their_recorded_latency(name: str, latency_ms: float) -> None:
    # column latency_expert; the program warns that the latter two exceed the memory. BERT-24's
    # split has six parts, one more than its input has accelerators.
    root = SHARED / "instances/dnn-partitioning"
    of = load_model(root / f"latency-inputs/LayerGraphs/{name}_inference.json").instance()
    sixth = of.cluster.devices[0].model_copy(update={"name": "sixth"})
    wider = of.cluster.model_copy(update={"devices": (sixth, *of.cluster.devices)})
    of = of.model_copy(update={"cluster": wider})
    split = load_split(of, root / f"human-experts/{name}_inference_expert.json")
    verdict = evaluate(of, split, ONCE)
    assert verdict.value_ns == pytest.approx(1e6 * latency_ms, abs=1000)
    assert {violation.rule for violation in verdict.violations} <= {"memory"}
