"""Pesto as a method: exact on the graph as it is, a heuristic on a merged one."""

from __future__ import annotations

import pytest
from draws.tiny import SHARED, needs_moirai
from references.brute_force import makespan_draws, oracle

from placegap.formulations import pesto as formulation
from placegap.formulations.pesto import SEMANTICS, Form
from placegap.instances import (
    Cluster,
    Device,
    Edge,
    Graph,
    InputError,
    Instance,
    Link,
    Makespan,
    Op,
    Plan,
    evaluate,
    example,
    generate,
    load_model,
)
from placegap.instances.transforms.merge import expand_plan
from placegap.instances.transforms.pesto_merge import merge_ops
from placegap.solvers import run_method

FORMS: tuple[Form, ...] = ("as_published", "strengthened")
both_forms = pytest.mark.parametrize("form", FORMS)


def layered(num_ops: int) -> Instance:
    """A random layered graph on three equal devices."""
    names = ("a", "b", "c")
    cluster = Cluster(
        name="three",
        devices=tuple(Device(name=name, kind="gpu") for name in names),
        links=tuple(
            Link(source=a, target=b, bandwidth_bytes_per_s=10**9)
            for a in names
            for b in names
            if a != b
        ),
    )
    graph = generate("layered", {"ops": num_ops, "width": 4}, seed=1)
    return Instance(name=f"layered-{num_ops}", graph=graph, cluster=cluster)


@both_forms
@pytest.mark.deep
def test_it_equals_brute_force(form: Form) -> None:
    for instance in makespan_draws():
        result = run_method(instance, SEMANTICS, "pesto", {"form": form})
        optimum = oracle(instance, SEMANTICS)
        assert result.status == ("infeasible" if optimum is None else "optimal"), instance.name
        assert (result.value_ns, result.bound_ns) == (optimum, optimum), instance.name


@both_forms
def test_it_proves_the_optimum_of_the_graph_as_it_is(form: Form) -> None:
    # FD-DPS, figure 3: 5 + 1 + 20 + 8; merging to 4 ops or more merges nothing
    for num_ops in (None, 4, 10):
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
    assert coarse.plan is not None
    expanded = evaluate(instance, expand_plan(merge, coarse.plan, SEMANTICS), SEMANTICS)
    assert expanded.feasible
    assert result.value_ns == expanded.value_ns


def test_no_plan_of_a_merged_graph_proves_nothing() -> None:
    # two devices of 4 bytes hold a 2 + c 2 and b 3 + d 1; with a and d merged, of 3 bytes, there
    # are 3 + 3 + 2 left, no two of which fit on one device
    sizes = {"a": 2, "b": 3, "c": 2, "d": 1}
    links = tuple(
        Link(source=x, target=y, bandwidth_bytes_per_s=10**9) for x, y in (("p", "q"), ("q", "p"))
    )
    instance = Instance(
        name="tight",
        graph=Graph(
            name="tight",
            ops=tuple(
                Op(name=name, time_ns={"gpu": 1}, resident_bytes=size)
                for name, size in sizes.items()
            ),
            edges=(Edge(producer="a", consumer="d", bytes=1),),
        ),
        cluster=Cluster(
            name="two",
            devices=tuple(Device(name=x, kind="gpu", memory_bytes=4) for x in ("p", "q")),
            links=links,
        ),
    )
    exact = run_method(instance, SEMANTICS, "pesto")
    assert exact.status == "optimal"
    result = run_method(instance, SEMANTICS, "pesto", {"num_ops": 3})
    assert (result.status, result.plan) == ("no_plan", None)
    assert "which proves nothing here" in result.message


def test_stopped_at_once_it_returns_the_incumbent() -> None:
    incumbent = Plan.on([0, 1, 0, 0])
    result = run_method(example(), SEMANTICS, "pesto", incumbent=incumbent, time_limit_s=0.0)
    assert result.status == "feasible"
    assert result.value_ns is not None
    assert result.value_ns <= 35
    assert "time limit" in result.message


def test_stopped_at_once_without_a_plan_it_says_so() -> None:
    for num_ops, bound_ns in ((None, 33), (3, None)):  # the critical path; merged, nothing
        params = {"num_ops": num_ops, "start": False}
        result = run_method(example(), SEMANTICS, "pesto", params, time_limit_s=0.0)
        assert (result.status, result.plan, result.bound_ns) == ("no_plan", None, bound_ns)
        assert "reached, no plan found" in result.message


def test_other_semantics_are_refused() -> None:
    with pytest.raises(InputError, match="makespan port per_edge"):
        run_method(example(), Makespan(), "pesto")


def test_models_that_are_too_large_are_refused_unbuilt_unless_merged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    instance = layered(600)
    with monkeypatch.context() as patch:
        patch.setattr(formulation, "build", None)
        with pytest.raises(InputError, match=r"\(as_published\) would have \d+ rows"):
            run_method(instance, SEMANTICS, "pesto", {"form": "as_published"})
        with pytest.raises(InputError, match=r"at most 20000 edges.*merge with num_ops"):
            run_method(layered(15_000), SEMANTICS, "pesto")
    result = run_method(instance, SEMANTICS, "pesto", {"form": "as_published", "num_ops": 5})
    assert result.status == "feasible"


def test_the_number_of_ops_to_merge_to_is_checked() -> None:
    with pytest.raises(InputError, match="num_ops"):
        run_method(example(), SEMANTICS, "pesto", {"num_ops": 0})


def test_the_same_seed_gives_the_same_plan() -> None:
    plans = {str(run_method(layered(10), SEMANTICS, "pesto", seed=3).plan) for _ in range(2)}
    assert len(plans) == 1


@needs_moirai
def test_googlenet_merged_to_60_ops_is_solved() -> None:
    instance = load_model(SHARED / "instances/moirai/GoogLeNet.xls").instance()
    merge = merge_ops(instance, 60)
    result = run_method(instance, SEMANTICS, "pesto", {"num_ops": 60})
    # the merged graph's optimum, 2.0445 ms; the plan is shorter, as ops need not wait for all of
    # the merged op before them
    assert "there the plan takes 2044500 ns, with a bound of 2044500 ns" in result.message
    assert result.status == "feasible"
    assert result.value_ns is not None
    assert result.value_ns <= 2_044_500
    assert formulation.count_rows(merge.coarse, "strengthened") <= 5_404
