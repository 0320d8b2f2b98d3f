"""Unknown names: what is offered instead of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from placegap.instances import InputError, Makespan, Plan, example, load_plan, save_plan
from placegap.instances.problem import parse_semantics
from placegap.instances.reading.errors import from_validation_error, instead_of, near_names
from placegap.instances.transforms.table import find_transform


def test_near_names_forgive_case_signs_parts_and_slips() -> None:
    known = ["max_load", "makespan", "8xH100-nvlink", "V100-32GB", "V100-32GB-PCIe"]
    assert near_names("maxload", known) == ["max_load"]
    assert near_names("MAKESPAN", known) == ["makespan"]
    assert near_names("makspan", known) == ["makespan"]
    assert near_names("h100", known) == ["8xH100-nvlink"]  # a part of the name
    assert near_names("v100", known) == ["V100-32GB", "V100-32GB-PCIe"]
    assert near_names("", known) == near_names("q", known) == []
    many = [f"network-{number}" for number in range(100)]
    assert instead_of("zzz", many, "placegap instances") == "; 'placegap instances' lists them"
    assert instead_of("network-7", many).startswith("; did you mean 'network-7'")


@pytest.mark.parametrize(("ask", "name"), [(lambda: find_transform("moirai"), "moirai-fusion")])
def test_every_look_up_offers_a_near_name(ask, name: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError, match=rf"did you mean .*'{name}'"):
        ask()


def test_a_plan_file_is_told_of_near_devices(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    save_plan(example(), Plan.on([0, 1, 0, 0]), Makespan(), plan)
    plan.write_text(plan.read_text().replace("gpu0", "gpu_0"))
    with pytest.raises(InputError, match="no device 'gpu_0' in the instance; did you mean 'gpu0'"):
        load_plan(example(), plan)


def test_a_field_with_few_values_offers_the_near_one() -> None:
    from pydantic import ValidationError

    with pytest.raises(ValidationError) as caught:
        parse_semantics({"objective": "maxload"})
    message = str(from_validation_error(caught.value))
    assert message.endswith("(got 'maxload'); did you mean 'max_load'?")
