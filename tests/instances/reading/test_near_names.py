"""Unknown names: what is offered instead of them."""

from placegap.instances.reading.errors import instead_of, near_names


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
