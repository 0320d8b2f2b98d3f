"""Unused devices: why, and what to ask instead."""

from __future__ import annotations

import pytest

from placegap.experiments.show.place_report import plan_notes
from placegap.instances import (
    Cluster,
    Device,
    Edge,
    Graph,
    Instance,
    LatencySubgraphs,
    Link,
    Makespan,
    MaxLoad,
    Op,
    Plan,
    Semantics,
)
from placegap.instances.problem import parse_semantics
from placegap.solvers.core.result import Bound, Outcome, Result, finish

MAKESPAN = Makespan()


def chain(num_devices: int, *, hosts: int = 0, kinds: tuple[str, ...] = ()) -> Instance:
    """Three ops in a row, of 5, 7 and 9 ns, and an all-to-all cluster."""
    names = [f"gpu{k}" for k in range(num_devices)]
    devices = tuple(
        Device(name=name, kind=kinds[k] if kinds else "gpu", is_host=k >= num_devices - hosts)
        for k, name in enumerate(names)
    )
    links = tuple(
        Link(source=a, target=b, bandwidth_bytes_per_s=10**9)
        for a in names
        for b in names
        if a != b
    )
    ops = tuple(Op(name=f"op{i}", time_ns={"gpu": t}) for i, t in enumerate((5, 7, 9)))
    edges = tuple(Edge(producer=f"op{i}", consumer=f"op{i + 1}", bytes=2) for i in range(2))
    return Instance(
        name="chain",
        graph=Graph(name="chain", ops=ops, edges=edges),
        cluster=Cluster(name="c", devices=devices, links=links),
    )


def judged(
    instance: Instance,
    placement: list[int],
    semantics: Semantics,
    bound: int | None = None,
    method: str = "throughput-ip",
) -> Result:
    outcome = Outcome(Plan.on(placement), bound=None if bound is None else Bound(bound))
    return finish(instance, semantics, method, outcome, solve_s=0)


def note(instance: Instance, result: Result) -> str:
    (sentence,) = plan_notes(instance, result)
    return sentence


def test_one_device_alone_is_optimal_for_one_pass() -> None:
    # a chain of 21 ns gains nothing from a second device
    said = note(chain(3), judged(chain(3), [0, 0, 0], MAKESPAN, 21))
    assert said.startswith(
        "gpu0 alone is optimal for one pass. 100% of its time is one path of ops"
    )
    assert said.endswith("For throughput: --objective max_load")


def test_what_is_not_proven_is_not_claimed() -> None:
    said = note(chain(3), judged(chain(3), [0, 0, 0], MAKESPAN))
    assert "optimal" not in said
    assert said.startswith("the plan uses gpu0 alone. Only ops that can run side by side gain")
    latency = LatencySubgraphs()
    said = note(chain(3), judged(chain(3), [0, 0, 1], latency))
    assert said.startswith("gpu2 is unused. Only ops that can run side by side gain from another")
    assert said.endswith("each transfer costs time. For throughput: --objective max_load")


def test_an_optimal_plan_of_whole_layers_is_not_said_to_be_the_best_of_all_plans() -> None:
    instance = chain(2)
    whole = instance.with_graph(
        instance.graph.model_copy(
            update={
                "ops": tuple(op.model_copy(update={"colocation": "h"}) for op in instance.graph.ops)
            }
        )
    )
    for semantics, claim in (
        (MAKESPAN, "optimal"),
        (MaxLoad(plans="chain"), "no plan has a lower one"),
    ):
        result = judged(whole, [0, 0, 0], semantics, 21)  # 5 + 7 + 9 ns on one device
        assert result.status == "optimal"
        assert claim in plan_notes(whole, result)[0]
        assert claim not in plan_notes(instance, result)[0]


@pytest.mark.parametrize(
    ("placement", "semantics", "ending"),
    [
        # the heaviest stage has two ops
        ([0, 0, 1], {"plans": "chain"}, "With --replicas equal devices may share a stage"),
        ([0, 0, 1], {"plans": "chain", "replicas": True}, "With --plans any a device may run any"),
        ([0, 0, 1], {"replicas": True}, "'placegap split' divides heavy ops"),
        # the heaviest stage, gpu1's, is one op of 9 ns + 2 ns of communication
        ([0, 2, 1], {}, "'placegap split' divides an op that is a stage of its own"),
    ],
)
def test_a_pipeline_is_offered_what_its_rules_leave_open(
    placement: list[int], semantics: dict[str, object], ending: str
) -> None:
    instance = chain(5)
    rules = parse_semantics({"objective": "max_load", "plans": "any", **semantics})
    said = note(instance, judged(instance, placement, rules))
    assert "the value is the heaviest stage" in said
    assert "the search found no lower one" in said
    assert ending in said


def test_hosts_and_devices_that_run_no_op_need_no_advice() -> None:
    with_host = chain(3, hosts=1)
    assert note(with_host, judged(with_host, [0, 0, 1], MAKESPAN)) == "gpu2 is unused: a host"
    other = chain(3, kinds=("gpu", "gpu", "other"))
    assert note(other, judged(other, [0, 0, 1], MAKESPAN)) == (
        "gpu2 is unused: no op of this model can run there"
    )


def test_many_devices_are_counted() -> None:
    said = note(chain(12), judged(chain(12), [0, 0, 1], MAKESPAN))
    assert said.startswith("gpu2, gpu3, gpu4 and 7 more are unused")


def test_peaks_of_ops_that_state_nothing_are_said_to_count_tensors_alone() -> None:
    peak = MAKESPAN.model_copy(update={"memory": "peak"})
    bare = chain(1)
    assert plan_notes(bare, judged(bare, [0, 0, 0], peak)) == ()  # nor resident bytes
    ops = tuple(op.model_copy(update={"resident_bytes": 4}) for op in bare.graph.ops)
    one = bare.model_copy(update={"graph": bare.graph.model_copy(update={"ops": ops})})
    (note,) = plan_notes(one, judged(one, [0, 0, 0], peak))
    assert note.startswith("no op states parameter_bytes, state_bytes or shared_state")
    assert plan_notes(one, judged(one, [0, 0, 0], MAKESPAN)) == ()
    stated = ops[0].model_copy(update={"parameter_bytes": 4})
    graph = one.graph.model_copy(update={"ops": (stated, *ops[1:])})
    said = one.model_copy(update={"graph": graph})
    assert plan_notes(said, judged(said, [0, 0, 0], peak)) == ()
