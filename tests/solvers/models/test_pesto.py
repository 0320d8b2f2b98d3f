"""Pesto as a method: exact on the graph as it is, a heuristic on a merged one."""

from __future__ import annotations

import pytest
from draws import draw
from draws.equal_devices import layered
from draws.tiny import SHARED, needs_moirai

from placegap.formulations import pesto as formulation
from placegap.formulations.pesto import SEMANTICS, Form
from placegap.instances import (
    Edge,
    Op,
    evaluate,
    example,
    read_model,
)
from placegap.instances.transforms.merge import expand_plan
from placegap.instances.transforms.pesto_merge import merge_ops
from placegap.solvers import run_method

FORMS: tuple[Form, ...] = ("as_published", "strengthened")
both_forms = pytest.mark.parametrize("form", FORMS)


@both_forms
def test_it_proves_the_optimum_of_the_graph_as_it_is(form: Form) -> None:
    # FD-DPS, figure 3: 5 + 1 + 20 + 8; merging to 4 ops or more merges nothing
    for num_ops in (None, 4):
        result = run_method(example(), SEMANTICS, "pesto", {"form": form, "num_ops": num_ops})
        assert (result.status, result.value_ns, result.bound_ns) == ("optimal", 34, 34)


@both_forms
def test_a_merged_graph_gives_a_plan_and_no_bound(form: Form) -> None:
    # of the diamond's edges 1 -> 3 is the dearest, 20 ns: op 1 and op 3 are one op of 15. All on
    # one device: 15 + 20 + 8 = 43; op 2 alone elsewhere, 15 + 1 + 20 + 1 + 8 = 45; op 4 with it,
    # 15 + 1 + 20 + 8 = 44. But op 2 may start when op 1 ends: the plan is 43 still.
    result = run_method(example(), SEMANTICS, "pesto", {"form": form, "num_ops": 3})
    assert (result.status, result.value_ns, result.bound_ns) == ("feasible", 43, None)
    assert "merged to 3 ops, so that there is no bound" in result.message
    assert "there the plan takes 43 ns, with a bound of 43 ns" in result.message
    assert result.details["merged_ops"] == 3


def test_a_plan_of_a_merged_graph_is_expanded_and_judged() -> None:
    instance = layered(24)
    merge = merge_ops(instance, 6)
    result = run_method(instance, SEMANTICS, "pesto", {"num_ops": 6})
    coarse = run_method(merge.coarse, SEMANTICS, "pesto")
    assert result.bound_ns is None
    expanded = evaluate(instance, expand_plan(merge, coarse.plan, SEMANTICS), SEMANTICS)
    assert expanded.feasible
    assert result.value_ns == expanded.value_ns


def test_no_plan_of_a_merged_graph_proves_nothing() -> None:
    # two devices of 4 bytes hold a 2 + c 2 and b 3 + d 1; with a and d merged, of 3 bytes, there
    # are 3 + 3 + 2 left, no two of which fit on one device
    sizes = {"a": 2, "b": 3, "c": 2, "d": 1}
    ops = [Op(name=x, time_ns={"gpu": 1}, resident_bytes=size) for x, size in sizes.items()]
    edges, devices = (
        [Edge(producer="a", consumer="d", bytes=1)],
        draw.devices(["gpu"] * 2, lambda k: 4),
    )
    instance = draw.instance_of("tight", ops, edges, devices, draw.fast_links(devices))
    exact = run_method(instance, SEMANTICS, "pesto")
    assert exact.status == "optimal"
    result = run_method(instance, SEMANTICS, "pesto", {"num_ops": 3})
    assert (result.status, result.plan) == ("no_plan", None)
    assert "which proves nothing here" in result.message


@needs_moirai
def test_googlenet_merged_to_60_ops_is_solved() -> None:
    instance = read_model(SHARED / "instances/moirai/GoogLeNet.xls").instance()
    merge = merge_ops(instance, 60)
    result = run_method(instance, SEMANTICS, "pesto", {"num_ops": 60})
    # the merged graph's optimum, 2.0445 ms; the plan is shorter, as ops need not wait for all of
    # the merged op before them
    assert "there the plan takes 2044500 ns, with a bound of 2044500 ns" in result.message
    assert result.status == "feasible"
    assert result.value_ns <= 2_044_500
    assert formulation.count_rows(merge.coarse, "strengthened") <= 5_404
