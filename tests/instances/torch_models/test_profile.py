"""Profiles: every op is measured once, and its time is in a file that place reads."""

from pathlib import Path
from typing import Any

import pytest
from doubles.configs import gpt2

from placegap.instances import Cluster, Device, InputError
from placegap.instances.costing.catalogue import catalogue
from placegap.instances.importers.measured_times import load_times, with_times
from placegap.instances.torch_models.options import TraceOptions
from placegap.instances.torch_models.profile import OpTime, Profile, profile_model, times_csv


def test_names_with_commas_and_quotes_come_back_from_the_file(tmp_path: Path) -> None:
    ops = (OpTime('a,"b"', "mm", 7, 5), OpTime("c", "add", 2, 5))
    path = tmp_path / "times.csv"
    path.write_text(times_csv(Profile("m", "T4", catalogue()["T4"], False, ops, 1)))
    assert dict(load_times(path).samples_ns) == {('a,"b"', "T4"): [7.0], ("c", "T4"): [2.0]}


@pytest.mark.torch
def test_times_of_a_profile_are_those_of_the_model_it_measured(tmp_path: Path) -> None:
    from placegap.instances.torch_models.model import read_traced_model

    name = gpt2(tmp_path, n_layer=1)
    profile = profile_model(name, TraceOptions(), device_kind="T4")
    assert not profile.is_calibrated  # the catalogue knows a T4
    path = tmp_path / "times.csv"
    path.write_text(times_csv(profile))
    graph = read_traced_model(name).graph
    cluster = Cluster(name="c", devices=(Device(name="d", kind="T4"),))
    measured = with_times(graph, load_times(path), cluster)
    assert measured.num_ops == len(graph.ops)
    assert measured.unmatched == ()
    # with what views and folded constants take besides, which are no ops
    taken = [op.measured_ns + op.beside_ns for op in profile.ops]
    assert [op.time_ns["T4"] for op in measured.graph.ops] == taken


@pytest.mark.torch
def test_forward_and_backward_are_measured_where_there_is_no_update(tmp_path: Path) -> None:
    from placegap.instances.torch_models.training_model import read_training_model

    name = gpt2(tmp_path, n_layer=1)
    options = TraceOptions(train=True, optimizer="none", seq=8)
    profile = profile_model(name, options, runs=3)
    graph = read_training_model(name, options).graph
    assert [op.name for op in profile.ops] == [op.name for op in graph.ops]
    assert any(op.backward for op in graph.ops)
    assert min(op.measured_ns for op in profile.ops) > 0
    assert profile.rest_ns == pytest.approx(sum(op.beside_ns for op in profile.ops), abs=99)


def measured(device: str, gradient_of: int | None = None) -> tuple[list[str], Any]:
    """The ops of a small graph with a view and a constant that is folded, and their times."""
    import torch
    from torch import nn

    from placegap.instances.torch_models.fx_reader import read_fx_graph
    from placegap.instances.torch_models.op_times import measure_ops
    from placegap.instances.torch_models.tracing import Traceable, traced

    class Net(nn.Sequential):
        def forward(self, x: Any) -> Any:
            return super().forward(x) + torch.arange(144, device=x.device)

    with torch.device("meta"):
        net = Net(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten()).eval()
        graph, held = traced("net", Traceable(net, (torch.zeros(2, 3, 8, 8),)))
    program = read_fx_graph(graph, held)
    ops = [op["name"] for op in program.ops]
    gradients = [call for call, op in program.op_of.items() if ops.index(op) == gradient_of]
    return ops, measure_ops(graph, held, program, device, runs=3, gradients=gradients)


@pytest.mark.torch
def test_every_op_has_a_time_and_calls_that_are_no_ops_are_kept_apart() -> None:
    ops, times = measured("cpu")  # convolution, normalization, addition
    assert list(times.of_op_ns) == ops
    assert len(ops) == 3
    assert min(times.of_op_ns.values()) > 0
    assert times.rest_ns > 0  # the view, and the constant
    assert list(times.beside_ns) == [ops[-1]]  # both are read by the addition alone
    # adding a gradient to those before counts with the op that makes it
    ops, times = measured("cpu", gradient_of=0)
    assert sorted(times.beside_ns) == sorted([ops[0], ops[-1]])
    assert times.beside_ns[ops[0]] > 0


@pytest.mark.torch
def test_rates_of_the_device_are_measured_and_one_that_is_not_there_is_one_line() -> None:
    import torch

    from placegap.instances.torch_models.op_times import calibrate

    spec = calibrate("cpu")
    assert spec.peak(None) > 10**8  # any core that runs torch
    assert spec.bandwidth_bytes_per_s > 10**8
    assert 0 < spec.launch_overhead_ns < 10**7
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="--device cuda: "):
            measured("cuda")
