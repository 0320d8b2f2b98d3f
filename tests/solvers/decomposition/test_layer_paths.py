"""layer-paths: the plans behind the bound of nested layers."""

from draws.training_steps import nested_instance, training_step

from placegap.instances import Makespan, example
from placegap.solvers import run_method


def test_layers_change_devices_where_that_is_worth_its_transfers() -> None:
    for transfer_ns, least_ns in ((3, 56), (9, 60)):  # as the bound, which is derived there
        found = run_method(training_step(2, transfer_ns), Makespan(), "layer-paths")
        assert found.value_ns == least_ns


def test_many_devices_keep_their_names() -> None:
    # K digits below K are a number of 64 bits for K <= 15; six layers need no more devices
    values = [
        run_method(training_step(6, 3, num_devices), Makespan(), "layer-paths").value_ns
        for num_devices in (12, 17)
    ]
    assert len(set(values)) == 1


def test_a_graph_without_layers_is_left_to_others() -> None:
    found = run_method(example(), Makespan(), "layer-paths")
    assert found.plan is None
    assert "no layers" in found.message


def test_every_plan_is_judged() -> None:
    values = [
        run_method(nested_instance(seed), Makespan(), "layer-paths").value_ns for seed in range(16)
    ]
    assert sum(value is not None for value in values) >= 8
