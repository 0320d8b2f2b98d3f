"""Sweeps at toy size: congestion, wrong costs and scaling, resumable and recorded."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from placegap.experiments.research.sweeps import (
    believed_and_true,
    blind_or_aware,
    run_sweep,
    with_wrong_costs,
)
from placegap.instances import Edge, Graph, Instance, Op, example


def test_a_sweep_goes_on_where_it_stopped(tmp_path: Path) -> None:
    asked = []

    def measure(task: Mapping[str, Any]) -> Mapping[str, Any]:
        asked.append(task["n"])
        if task["n"] == 2 and len(asked) == 2:
            raise KeyboardInterrupt
        return {"value_ns": 2 * task["n"]}

    tasks = [{"n": number} for number in (1, 2, 3)]
    with pytest.raises(KeyboardInterrupt):
        run_sweep("toy", tasks, measure, tmp_path)
    found = run_sweep("toy", tasks, measure, tmp_path)
    assert [row.value_ns for row in found] == [2, 4, 6]
    assert asked == [1, 2, 2, 3]


def test_a_blind_plan_is_worth_no_more_under_ports_than_it_promises() -> None:
    # a transfer that waits for a port ends no earlier, and the plan's orders stay as they are
    task = {"instance": "inception_v1", "cluster": "celeritas-4xV100-pcie", "method": "heft"}
    blind, aware = (
        blind_or_aware({**task, "table": table, "time_limit_s": 5.0})
        for table in ("blind", "aware")
    )
    assert blind["promised_ns"] < blind["value_ns"]
    assert blind["best_bound_ns"] <= min(blind["value_ns"], aware["value_ns"])
    assert blind["rules"] == aware["rules"]  # both values are under ports


def test_a_plan_of_wrong_costs_is_judged_with_the_true_ones() -> None:
    task = {
        "instance": "squeezenet",
        "cluster": "celeritas-4xV100-pcie",
        "method": "single-device",
        "seed": 1,
        "time_limit_s": 1.0,
    }
    right = believed_and_true({**task, "off": 0.0})
    wrong = believed_and_true({**task, "off": 0.3})
    # all ops are on one of four equal devices: the plan is the same, only the belief is off
    assert right["promised_ns"] == right["value_ns"] == wrong["value_ns"]
    assert wrong["promised_ns"] != right["promised_ns"]
    assert abs(wrong["promised_ns"] / right["value_ns"] - 1) < 0.3


def test_edges_of_one_tensor_share_its_error_and_zeros_stay() -> None:
    ops = tuple(Op(name=name, time_ns={"gpu": 1000 if name == "a" else 0}) for name in "abc")
    edges = (
        Edge(producer="a", consumer="b", bytes=10**6, tensor="t"),
        Edge(producer="a", consumer="c", bytes=10**6, tensor="t", host_time_ns=None),
    )
    cluster = example().cluster
    graph = Graph(name="fan", ops=ops, edges=edges)
    wrong = with_wrong_costs(Instance(name="fan", graph=graph, cluster=cluster), 0.2, seed=3).graph
    assert wrong.edges[0].bytes == wrong.edges[1].bytes != 10**6
    assert abs(wrong.edges[0].bytes - 10**6) <= 0.2 * 10**6
    assert [op.time_ns["gpu"] for op in wrong.ops[1:]] == [0, 0]
    assert 800 <= wrong.ops[0].time_ns["gpu"] <= 1200
