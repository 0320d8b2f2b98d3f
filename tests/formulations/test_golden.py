"""Every model, row by row, on four ops: a change of any constraint family shows in a diff.

``UPDATE_GOLDEN=1 pytest tests/formulations/test_golden.py`` writes the files anew.
"""

from __future__ import annotations

import os
import re
from functools import partial
from itertools import permutations
from pathlib import Path
from types import ModuleType

import pyomo.environ as pyo
import pytest
from draws import draw

from placegap.formulations import (
    archer,
    getf,
    latency_ip,
    m_sct,
    moirai,
    pesto,
    sections,
    throughput_ip,
)
from placegap.formulations.shared.data import FileNames, names_of
from placegap.formulations.shared.devices import device_groups
from placegap.instances import (
    Device,
    Edge,
    Graph,
    InputError,
    Instance,
    LatencySubgraphs,
    Link,
    Makespan,
    MaxLoadFwdBwd,
    Op,
    Semantics,
    evaluate,
)
from placegap.instances.problem import parse_semantics
from placegap.solvers import Limits
from placegap.solvers.core.back_ends import solve_model

GOLDEN = Path(__file__).parent / "golden"


def four_ops(*, host: bool = False) -> Instance:
    """p feeds q and r one tensor, r feeds s; q and s are colocated; two equal devices are tight.

    With a host, s is a backward op, and each device is in a server of its own.
    """
    times = {"gpu": 4, "cpu": 9} if host else {"gpu": 4}
    ops = (
        Op(name="p", time_ns=times, resident_bytes=2, parameter_bytes=3),
        Op(name="q", time_ns={"gpu": 3}, resident_bytes=2, colocation="pair"),
        Op(name="r", time_ns=times, resident_bytes=1),
        Op(name="s", time_ns={"gpu": 2}, resident_bytes=1, colocation="pair", backward=host),
    )
    edges = (
        Edge(producer="p", consumer="q", bytes=5, tensor="out"),
        Edge(producer="p", consumer="r", bytes=5, tensor="out"),
        Edge(producer="r", consumer="s", bytes=2),
    )
    devices = tuple(
        Device(name=f"g{k}", kind="gpu", memory_bytes=4, server=f"server{k}" if host else None)
        for k in range(2)
    )
    if host:
        devices = (*devices, Device(name="h", kind="cpu", is_host=True, server="server0"))
    links = (
        Link(source=a.name, target=b.name, bandwidth_bytes_per_s=10**9)
        for a, b in permutations(devices, 2)
    )
    return draw.instance_of("four", ops, edges, devices, links)


PLAIN, HOST = four_ops(), four_ops(host=True)


def makespan(channels: str) -> Semantics:
    return parse_semantics({"objective": "makespan", "channels": channels})


def load(**fields: object) -> Semantics:
    return parse_semantics({"objective": "max_load", "plans": "any", **fields})


Model = tuple[ModuleType, Instance, Semantics, dict[str, object]]

MODELS: dict[str, Model] = {
    "moirai-as-published": (moirai, PLAIN, makespan("port"), {"form": "as_published"}),
    "moirai-verbatim": (moirai, PLAIN, makespan("port"), {"form": "verbatim"}),
    **{
        f"moirai-{channels}": (moirai, PLAIN, makespan(channels), {"symmetry": True})
        for channels in ("free", "link", "port", "half_duplex")
    },
    "pesto-as-published": (pesto, PLAIN, makespan("link"), {"form": "as_published"}),
    "pesto-strengthened": (pesto, PLAIN, makespan("link"), {}),
    "getf-lp": (getf, PLAIN, makespan("free"), {}),
    "m-sct": (m_sct, PLAIN, makespan("free"), {}),
    "m-sct-truncated": (m_sct, PLAIN, makespan("free"), {"form": "truncated"}),
    **{
        f"throughput-{name}": (throughput_ip, instance, semantics, {"symmetry": True})
        for name, instance, semantics in (
            ("any-add", HOST, load()),
            ("convex-add", HOST, load(plans="convex")),
            ("chain-overlap", HOST, load(plans="chain", load="overlap")),
            ("replicas", PLAIN, load(replicas=True)),
            ("servers", HOST, load(levels=2)),
            ("fwd-bwd", HOST, MaxLoadFwdBwd(plans="any")),
        )
    },
    "archer-exact": (archer, PLAIN, load(plans="chain"), {}),
    "latency-as-published": (latency_ip, HOST, LatencySubgraphs(), {"form": "as_published"}),
    "latency-strengthened": (latency_ip, HOST, LatencySubgraphs(subgraphs=2), {"symmetry": True}),
    "sections": (sections, PLAIN, Makespan(transfers="per_tensor"), {"horizon_ns": 60}),
}


def build(name: str) -> pyo.ConcreteModel:
    """Every model is built by the same call."""
    module, instance, semantics, options = MODELS[name]
    return module.build(instance, semantics, **options)


SOURCE = re.compile(
    r"Moirai( \(\d[a-g]?\)|, section)|(Pesto|GETF|m-SCT|Archer et al\.|Tarnawski et al\.)[,:]"
    r"|Placegap's own"
)
"""How the documentation of a constraint begins: the paper's equation, or that it is ours."""


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_its_golden_file_row_by_row(name: str, tmp_path: Path) -> None:
    model = build(name)
    written = tmp_path / "model.lp"
    model.write(str(written), io_options={"symbolic_solver_labels": True, "labeler": FileNames()})
    golden = GOLDEN / f"{name}.lp"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(written.read_text())
    assert written.read_text() == golden.read_text()
    rows = model.component_data_objects(pyo.Constraint, active=True)
    families = dict.fromkeys(row.parent_component().name for row in rows)
    text = golden.read_text()
    assert [name for name in families if not re.search(rf"_{name}(_|\()", text)] == []


@pytest.mark.parametrize("name", MODELS)
def test_every_component_says_what_it_is_and_every_constraint_which_equation(name: str) -> None:
    model = build(name)
    kinds = (pyo.Var, pyo.Constraint, pyo.Objective, pyo.Expression, pyo.Param)
    components = list(model.component_objects(kinds))
    assert [one.name for one in components if not one.doc] == []
    rows = [one for one in components if one.ctype in (pyo.Constraint, pyo.Objective)]
    assert [(one.name, one.doc) for one in rows if not SOURCE.match(one.doc)] == []


WITH_PLANS = [
    name for name, (module, *_) in MODELS.items() if module not in (getf, m_sct, sections)
]


@pytest.mark.parametrize("name", WITH_PLANS)
def test_the_optimum_of_a_model_is_what_the_referee_says_of_its_plan(name: str) -> None:
    module, instance, semantics, _ = MODELS[name]
    model = build(name)
    assert solve_model(model, Limits()).ending == "optimal"
    verdict = evaluate(instance, module.extract(model, instance), semantics)
    assert verdict.feasible
    values = [model.component(f"{what}_ns") for what in ("makespan", "load", "latency")]
    (value,) = [value for value in values if value is not None]
    assert pyo.value(value) == pytest.approx(verdict.value_ns, abs=1e-3)
    module.warm_start(model, instance, module.extract(model, instance))
    assert pyo.value(value) == pytest.approx(verdict.value_ns, abs=1e-3)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_has_sets_of_names_and_data_that_can_be_changed(name: str) -> None:
    _, instance, *_ = MODELS[name]
    model = build(name)
    if name != "archer-exact":  # its ops are blocks of the graph
        assert list(model.OPS) == ["p", "q", "r", "s"]
    assert list(model.DEVICES) == [device.name for device in instance.cluster.devices]
    assert any(data.mutable for data in model.component_objects(pyo.Param))


ROWS = {
    "moirai-as-published": moirai.count_rows(PLAIN, makespan("port"), "as_published", False),
    "moirai-verbatim": moirai.count_rows(PLAIN, makespan("port"), "verbatim", False),
    **{
        f"moirai-{channels}": moirai.count_rows(PLAIN, makespan(channels), "strengthened", True)
        for channels in ("free", "link", "port", "half_duplex")
    },
    "pesto-as-published": pesto.count_rows(PLAIN, "as_published"),
    "pesto-strengthened": pesto.count_rows(PLAIN, "strengthened"),
    "getf-lp": getf.count_rows(PLAIN, device_groups(PLAIN)),
    "m-sct": m_sct.count_rows(PLAIN),
    "throughput-convex-add": throughput_ip.count_rows(HOST, load(plans="convex")),
    "throughput-chain-overlap": throughput_ip.count_rows(HOST, load(plans="chain", load="overlap")),
    "throughput-replicas": throughput_ip.count_rows(PLAIN, load(replicas=True)),
    "throughput-servers": throughput_ip.count_rows(HOST, load(levels=2)),
    "throughput-fwd-bwd": throughput_ip.count_rows(HOST, MaxLoadFwdBwd(plans="any")),
    "archer-exact": archer.count_rows(PLAIN),
    "latency-as-published": latency_ip.count_rows(HOST, LatencySubgraphs(), "as_published"),
    "latency-strengthened": latency_ip.count_rows(
        HOST, LatencySubgraphs(subgraphs=2), "strengthened"
    ),
}
"""Rows as they are counted without building, but for those of memory and colocation."""


@pytest.mark.parametrize("name", ROWS)
def test_rows_are_counted_without_building(name: str) -> None:
    beside = ("memory", "coloc")
    families = build(name).component_objects(pyo.Constraint)
    rows = sum(len(each) for each in families if not any(word in each.name for word in beside))
    assert rows <= ROWS[name] <= 3 * rows


def test_rows_are_written_with_the_names_of_ops_and_devices(tmp_path: Path) -> None:
    model = moirai.build(PLAIN, makespan("port"))
    row = model.device_shared["q", "r", "g0"]
    assert row.name == "device_shared[q,r,g0]"
    assert "x[q,g0]" in str(row.expr)
    # p and q are ops of one tensor "out", r and s of a tensor without a name
    assert list(model.flow_start) == ["p -> q", "p -> r", "r -> s"]


def test_a_model_takes_rows_that_name_ops_and_devices() -> None:
    model = moirai.build(PLAIN, makespan("port"))
    model.apart = pyo.Constraint(["g0", "g1"], rule=lambda m, k: m.x["p", k] + m.x["q", k] <= 1)
    model.fixed = pyo.Constraint(expr=model.x["p", "g1"] == 1)
    assert solve_model(model, Limits()).ending == "optimal"
    plan = moirai.extract(model, PLAIN)
    assert plan.devices.tolist()[:2] == [1, 0]
    model.del_component("memory_capacity")
    moirai.warm_start(model, PLAIN, plan)
    assert model.x["q", "g0"].value == 1
    copied = model.clone()
    assert moirai.extract(copied, PLAIN) == moirai.extract(model, PLAIN)
    assert copied.x["q", "g0"] is not model.x["q", "g0"]


@pytest.mark.parametrize("name", [name for name in MODELS if name != "sections"])
def test_no_plan_comes_out_of_a_model_that_holds_no_solution(name: str) -> None:
    module, instance, *_ = MODELS[name]
    model, extract = build(name), partial(module.extract, instance=instance)
    nothing = partial(pytest.raises, InputError, match="no solution")
    with nothing():
        extract(model)
    assert solve_model(model, Limits()).ending == "optimal"
    found = extract(model)
    goal = next(iter(model.component_data_objects(pyo.Objective)))
    model.never = pyo.Constraint(expr=goal.expr <= -1)  # no time is below 0
    assert solve_model(model, Limits()).ending == "infeasible"
    with nothing():
        extract(model)
    model.never.deactivate()
    assert solve_model(model, Limits()).ending == "optimal"
    assert extract(model) == found
    model.never.activate()
    for placed in model.component_objects(pyo.Var):
        if placed.name in ("x", "stage"):
            placed.fix(0)  # these have values now, without a solution
    assert solve_model(model, Limits()).ending == "infeasible"
    with nothing():
        extract(model)


def test_tensors_and_edges_without_names_of_their_own_are_told_apart() -> None:
    # op a makes two tensors, "t" and one without a name, which is number 1; b reads both
    edges = (
        Edge(producer="a", consumer="b", bytes=1, tensor="t"),
        Edge(producer="a", consumer="b", bytes=1),
    )
    ops = (Op(name="a", time_ns={"gpu": 1}), Op(name="b", time_ns={"gpu": 1}))
    graph = Graph(name="two", ops=ops, edges=edges)
    names = names_of(PLAIN.model_copy(update={"graph": graph}))
    assert names.edges == ["a -> b (t)", "a -> b (#1)"]
    assert names.tensors == ["a (t)", "a (#1)"]
