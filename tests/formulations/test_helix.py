"""Helix's MILP: the released LP files row by row, and what both forms claim."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pyomo.environ as pyo
import pytest
from draws.serving import flow_instance
from draws.tiny import SHARED, needs_inputs
from pyomo.repn import generate_standard_repn

from placegap.formulations import helix
from placegap.formulations.shared.data import FileNames
from placegap.instances import InputError, Instance, Provenance, ServingFlow, evaluate, load_model
from placegap.instances.importers.helix import load_ranges, lp_rows
from placegap.instances.importers.serving import as_document
from placegap.instances.objectives.flow.referee import plan_of
from placegap.instances.problem.flow_problem import SINK, SOURCE, UNITS, FlowProblem, Machine
from placegap.instances.reading.input_files import read_content
from placegap.solvers import Limits, run_method
from placegap.solvers.core.back_ends import solve_model

HELIX = SHARED / "instances" / "helix"
GOLDEN = Path(__file__).parent / "golden"
needs_helix = needs_inputs("helix", "it holds files of github.com/Thesys-lab/Helix-ASPLOS25")
RULES = ServingFlow()
#: Folders, rows of their LP files, and whether Helix's option remove_redundant was on.
FILES = {
    "single-24": (1848, True),
    "kinds-42": (5502, True),
    "kinds-42-pruned": (2772, True),
    "regions-24": (1848, True),
    "regions-24-pruned": (1122, True),
    "a100-4": (76, False),
    "t4-12": (516, False),
}
#: Helix's names of our rows, by family and side.
NAMES = {
    ("hold_once", ""): "hold_constraint",
    ("hold_end", ""): "end_constraint",
    ("machine_flow", ""): "node_flow_constraint",
    ("machine_throughput", ""): "node_throughput_constraint",
    ("source_switch", "on"): "edge_enable_constr_source",
    ("source_switch", "off"): "edge_disable_constr_source",
    ("sink_switch", "on"): "edge_enable_constr",
    ("sink_switch", "off"): "edge_disable_constr",
    ("edge_switch", "end"): "edge_disable_constr1",
    ("edge_switch", "start"): "edge_disable_constr2",
    ("edge_flow", ""): "edge_flow_constr",
}


def number(part: object) -> str:
    """compute_node_5 is machine 3 of the file."""
    return str(int(str(part)[13:]) - 2) if str(part).startswith("compute_node_") else str(part)


def index_of(component: pyo.Component) -> list[str]:
    index = component.index()
    return [number(part) for part in (index if isinstance(index, tuple) else (index,))]


def our_rows(model: pyo.ConcreteModel) -> dict[str, tuple[dict[str, float], str, float]]:
    """Terms, sense and right side of each row, by the names of the file."""
    rows = {}
    for row in model.component_data_objects(pyo.Constraint):
        form = generate_standard_repn(row.body)
        terms = {
            "_".join([variable.parent_component().name, *index_of(variable)]): pyo.value(factor)
            for factor, variable in zip(form.linear_coefs, form.linear_vars, strict=True)
        }
        *ends, last = index_of(row)
        side = last if last in ("on", "off", "end", "start") else ""
        name = NAMES[row.parent_component().name, side]
        parts = [name, *ends, *([] if side else [last])]
        parts += ["sink"] * (row.parent_component().name == "sink_switch")
        sense = "=" if row.equality else "<=" if row.upper is not None else ">="
        right = pyo.value(row.lower if row.upper is None else row.upper) - form.constant
        rows["_".join(parts)] = terms, sense, right
    return rows


@needs_helix
@pytest.mark.parametrize("folder", FILES)
def test_as_published_is_the_released_file_row_by_row(folder: str) -> None:
    path = HELIX / folder / "ilp_model.lp.gz"
    count, remove_redundant = FILES[folder]
    instance = load_model(path).instance()
    model = helix.build(instance, RULES, form="as_published", remove_redundant=remove_redundant)
    ours, theirs = our_rows(model), dict(lp_rows(read_content(path).decode()))
    assert len(theirs) == count
    assert ours.keys() == theirs.keys()
    for name, row in theirs.items():
        terms, sense, right = ours[name]
        assert (sense, right, terms.keys()) == (row.sense, float(row.right), row.terms.keys())
        # ours are rounded down to a millionth
        apart = {key: abs(terms[key] - float(value)) for key, value in row.terms.items()}
        assert max(apart.values()) <= 1e-6, name
    # and the released plan satisfies them all
    plan = plan_of(instance, load_ranges(path.with_name("ilp_sol.ini"), instance.flow_problem))
    assert plan is not None
    helix.warm_start(model, instance, plan)
    assert helix.extract(model, instance).placement == plan.placement
    assert pyo.value(model.flow_value) * UNITS == pytest.approx(
        evaluate(instance, plan, RULES).value, abs=1
    )


def small() -> Instance:
    """Two machines of one kind and one of another, three layers; c has no link to the sink."""
    machines = (Machine("a", "big"), Machine("b", "small"), Machine("c", "small"))
    links = {(SOURCE, 0): 90, (0, 1): 45, (1, 2): 30, (2, 1): 25, (2, 0): 40}
    links |= {(1, SINK): 80, (0, SINK): 70, (SOURCE, 2): 60}
    tables = {"big": (90, 60), "small": (50, 20)}
    million = {pair: rate * UNITS for pair, rate in links.items()}
    scaled = {kind: tuple(rate * UNITS for rate in table) for kind, table in tables.items()}
    found = FlowProblem(3, machines, scaled, million)
    return as_document(found, "small", Provenance(), "small").instance()


@pytest.mark.parametrize("form", ["as_published", "strengthened"])
def test_a_model_is_its_golden_file_row_by_row(form: helix.Form, tmp_path: Path) -> None:
    model = helix.build(small(), RULES, form=form)
    written, golden = tmp_path / "model.lp", GOLDEN / f"helix-{form.replace('_', '-')}.lp"
    model.write(str(written), io_options={"symbolic_solver_labels": True, "labeler": FileNames()})
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(written.read_text())
    assert written.read_text() == golden.read_text()
    rows = sum(len(each) for each in model.component_objects(pyo.Constraint))
    assert rows <= helix.count_rows(small(), form) <= 2 * rows
    kinds = (pyo.Var, pyo.Constraint, pyo.Objective, pyo.Expression, pyo.Param)
    assert all(one.doc for one in model.component_objects(kinds))


@pytest.mark.parametrize("seed", range(20))
def test_the_published_form_is_exact_and_the_other_one_a_relaxation(seed: int) -> None:
    rng = random.Random(f"helix-{seed}")
    instance = flow_instance(rng, most_machines=4, most_layers=4, unit=UNITS)
    best = run_method(instance, RULES, "brute-force").value or 0
    exact, relaxed = (
        solve_model(
            helix.build(
                instance,
                RULES,
                form=form,
                most_flow=instance.flow_problem.work_bound,
                remove_redundant=True,
            ),
            Limits(),
        )
        for form in ("as_published", "strengthened")
    )
    assert exact.objective is not None
    assert -exact.objective * UNITS == pytest.approx(best, rel=1e-5, abs=1)
    assert relaxed.objective is not None
    assert -relaxed.objective * UNITS >= best * (1 - 1e-5)


def test_where_links_never_limit_the_strengthened_form_is_exact() -> None:
    machines = tuple(Machine(name, kind) for name, kind in zip("abcd", "xxyy", strict=True))
    links = {(a, b): 10**9 * UNITS for a in range(4) for b in range(4) if a != b}
    tables = {"x": (70 * UNITS, 30 * UNITS, 18 * UNITS), "y": (40 * UNITS, 21 * UNITS)}
    for layers in (2, 3, 4, 5):
        found = FlowProblem(layers, machines, tables, links)
        instance = as_document(found, "free", Provenance(), "free").instance()
        result = run_method(instance, RULES, "helix", time_limit_s=20)
        best = run_method(instance, RULES, "brute-force").value
        assert result.value == best
        assert best is not None
        assert best <= (result.bound_value or 0) <= best * (1 + 1e-5)  # HiGHS's tolerance


def test_partial_inference_is_refused() -> None:
    with pytest.raises(InputError, match="states serving_flow, not serving_flow partial inference"):
        helix.build(small(), ServingFlow(partial_inference=True))
