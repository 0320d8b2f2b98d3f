"""Helix's files and the small YAML: check values of the papers' plans, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from draws.tiny import SHARED, needs_inputs

from placegap.instances import InputError, Plan, ServingFlow, evaluate, load_model, recheck
from placegap.instances.files.document import load_document, save_document
from placegap.instances.files.plan_file import load_stated_plan, save_plan
from placegap.instances.importers.helix import load_helix, load_ranges
from placegap.instances.objectives.flow.referee import plan_of
from placegap.instances.problem.flow_problem import MOST_RATE, SINK, SOURCE, UNITS

HELIX = SHARED / "instances" / "helix"
needs_helix = needs_inputs("helix", "it holds files of github.com/Thesys-lab/Helix-ASPLOS25")

RELEASED = {  # ../shared/reference/serving-flow.md, in tokens per second
    "single-24": 1289.556,
    "kinds-42": 4892.242,
    "kinds-42-pruned": 4137.548,
    "regions-24": 952.107,
    "regions-24-pruned": 1212.177,
    "a100-4": 1044.533,
    "t4-12": 397.685,
}


def value(folder: str, plan: str, *, partial: bool = False) -> float:
    """Both referees' value of a plan in a network, in tokens per second."""
    instance = load_model(HELIX / folder / "ilp_model.lp.gz").instance()
    found = plan_of(instance, load_ranges(HELIX / plan, instance.flow_problem))
    assert found is not None
    rules = ServingFlow(partial_inference=partial)
    first, second = (judge(instance, found, rules) for judge in (evaluate, recheck))
    assert first.value == second.value
    return (first.value or 0) / UNITS


@needs_helix
@pytest.mark.parametrize("folder", RELEASED)
def test_released_plans_have_the_value_that_gurobi_printed(folder: str) -> None:
    for name in ("ilp_solution.sol", "ilp_sol.ini"):
        assert value(folder, f"{folder}/{name}") == pytest.approx(RELEASED[folder], abs=0.001)
    text = (HELIX / folder / "ilp_solution.sol").read_text()
    gurobi = float(text.partition("Objective value = ")[2].split()[0])
    assert RELEASED[folder] == pytest.approx(gurobi, abs=0.001)


@needs_helix
def test_other_plans_have_the_values_of_the_reference() -> None:
    for folder, plan, partial, expected in (
        ("kinds-42", "kinds-42-pruned/ilp_solution.sol", False, 4137.548),
        ("regions-24", "regions-24-pruned/ilp_solution.sol", False, 1212.177),
        ("single-24", "single-24/petals_sol.ini", False, 531.703),
        ("single-24", "single-24/swarm_sol.ini", False, 757.853),
        ("regions-24", "regions-24-pruned/swarm_sol.ini", False, 616.455),
        ("kinds-42", "kinds-42-pruned/petals_sol.ini", False, 655.730),
        ("kinds-42", "kinds-42-pruned/petals_sol.ini", True, 3292.244),
        ("kinds-42", "kinds-42-pruned/swarm_sol.ini", False, 4892.242),
    ):
        assert value(folder, plan, partial=partial) == pytest.approx(expected, abs=0.001), plan


@needs_helix
def test_machines_tables_and_links_are_those_of_the_file() -> None:
    found = load_helix(HELIX / "single-24" / "ilp_model.lp.gz")
    kinds = {kind: len(own) for kind, own in found.of_kind.items()}
    assert (found.num_layers, kinds) == (80, {"L4": 8, "T4": 12, "A100": 4})
    # 2045.641047... tokens/s with 8 layers, rounded down
    assert found.tables["A100"][7] == 2_045_641_047
    assert len(found.links) == 24 * 23 + 48
    assert found.links[SOURCE, 0] == found.links[0, SINK] == 500_000_000 * UNITS
    # Helix's own bound: largest h c(h), summed over machines, over the layers
    assert found.work_bound / UNITS == pytest.approx(2803.9, abs=0.05)
    other = load_helix(HELIX / "kinds-42" / "ilp_model.lp.gz")
    assert other.work_bound / UNITS == pytest.approx(7104.3, abs=0.05)


@needs_helix
def test_an_imported_instance_and_its_plan_are_kept_in_files(tmp_path: Path) -> None:
    path = HELIX / "single-24" / "ilp_model.lp.gz"
    document = load_model(path)
    save_document(document, tmp_path / "own.json.gz")
    again = load_document(tmp_path / "own.json.gz")
    assert again == document
    instance = again.instance()
    assert instance.flow_problem == load_helix(path)
    plan = plan_of(instance, load_ranges(path.with_name("ilp_sol.ini"), instance.flow_problem))
    assert isinstance(plan, Plan)
    save_plan(instance, plan, ServingFlow(), tmp_path / "plan.json", value=1_289_555_769)
    stated = load_stated_plan(instance, tmp_path / "plan.json")
    assert (stated.plan, stated.semantics, stated.value) == (plan, ServingFlow(), 1_289_555_769)


GOOD = """
layers: 3
kinds: {big: [90, 60.5, 40], small: [50, 20]}
machines: {big: 1, small: [left, right]}
links:
  - {between: all, tokens_per_s: 70}
  - {from: left, to: right, tokens_per_s: 10.25}
  - {from: source, to: big, tokens_per_s: 1e3}
  - {from: right, to: sink, tokens_per_s: 100}
"""


def read(folder: Path, text: str) -> Path:
    path = folder / "serving.yaml"
    path.write_text(text)
    return path


def test_yaml_states_rates_in_tokens_per_second(tmp_path: Path) -> None:
    document = load_model(read(tmp_path, GOOD))
    found = document.instance().flow_problem
    assert [machine.name for machine in found.machines] == ["big", "left", "right"]
    assert found.tables["big"] == (90_000_000, 60_500_000, 40_000_000)
    assert found.links[0, 1] == 70_000_000
    assert found.links[1, 2] == 10_250_000
    assert {pair for pair in found.links if min(pair) < 0} == {(SOURCE, 0), (2, SINK)}
    assert document.semantics == ServingFlow()
    # without a link to the sink tokens leave everywhere
    text = GOOD.replace("  - {from: right, to: sink, tokens_per_s: 100}\n", "")
    links = load_model(read(tmp_path, text)).instance().flow_problem.links
    assert [links.get((i, SINK)) for i in range(3)] == [MOST_RATE] * 3
    assert [pair for pair in links if SOURCE in pair] == [(SOURCE, 0)]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("big: 1,", "huge: 1,", "'huge' is none of the kinds"),
        ("[left, right]", "[left, left]", "a name appears twice"),
        ("{from: left, to: right,", "{from: left,", r"links\[1\]: state from and to"),
        ("{from: left,", "{from: up,", "there is no machine 'up'"),
        ("{from: left, to: right,", "{from: left, to: left,", "leads from 'left' to 'left'"),
        ("{from: right, to: sink,", "{from: sink, to: right,", "leads from 'sink' to 'right'"),
        ("layers: 3", "layers: 0", "layers"),
        ("10.25", "-1", "tokens_per_s"),
        ("layers: 3", "layers: 3\nlayer: 2", "layer"),
    ],
)
def test_what_is_wrong_in_a_yaml_file_is_one_line(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    with pytest.raises(InputError, match=said) as error:
        load_model(read(tmp_path, GOOD.replace(old, new)))
    assert "serving.yaml" in str(error.value)
    assert "\n" not in str(error.value)


def test_what_is_no_plan_of_helix_is_one_line(tmp_path: Path) -> None:
    found = load_model(read(tmp_path, GOOD)).instance().flow_problem
    for text in ("nothing", "[Solution]\ncompute_node_0=[0, 2]", "[Solution]\ncompute_node_9=[0]"):
        path = tmp_path / "ilp_sol.ini"
        path.write_text(text)
        with pytest.raises(InputError, match=r"ilp_sol\.ini"):
            load_ranges(path, found)
    model = tmp_path / "ilp_model.lp"
    model.write_text(
        "\\ Model x\nSubject To\n node_throughput_constraint_0: - 5 hold_0_1 <= 0\nBounds\n"
    )
    with pytest.raises(InputError, match="has no rows of Helix's model"):
        load_model(model)
