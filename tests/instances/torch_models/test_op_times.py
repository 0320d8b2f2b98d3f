"""Measured ops: every op once, none forgotten, and all on the device that was asked for."""

from __future__ import annotations

from typing import Any

import pytest

from placegap.instances import InputError

pytestmark = pytest.mark.torch


def traced_small() -> Any:
    """A graph with a view, a constant that is folded, and ops of several kinds."""
    import torch
    from torch import nn

    from placegap.instances.torch_models.tracing import Traceable, traced

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten())

        def forward(self, x: Any) -> Any:
            return self.layers(x) + torch.arange(144, device=x.device)

    with torch.device("meta"):
        return traced("net", Traceable(Net().eval(), (torch.zeros(2, 3, 8, 8),)))


def test_every_op_has_a_time_and_calls_that_are_no_ops_are_kept_apart() -> None:
    from placegap.instances.torch_models.fx_reader import read_fx_graph
    from placegap.instances.torch_models.op_times import measure_ops

    graph, held = traced_small()
    program = read_fx_graph(graph, held)
    times = measure_ops(graph, held, program, "cpu", runs=3)
    first, _, last = (op["name"] for op in program.ops)  # convolution, normalization, addition
    assert list(times.of_op_ns) == [op["name"] for op in program.ops]
    assert min(times.of_op_ns.values()) > 0
    assert times.rest_ns > 0  # the view, and the constant
    assert list(times.beside_ns) == [last]  # both are read by the addition alone
    # adding a gradient to those before counts with the op that makes it
    (call,) = (name for name, op in program.op_of.items() if op == first)
    times = measure_ops(graph, held, program, "cpu", runs=3, gradients=[call])
    assert sorted(times.beside_ns) == sorted([first, last])
    assert times.beside_ns[first] > 0


def test_a_device_that_is_not_there_is_one_line() -> None:
    import torch

    from placegap.instances.torch_models.fx_reader import read_fx_graph
    from placegap.instances.torch_models.op_times import measure_ops

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    graph, held = traced_small()
    with pytest.raises(InputError, match="--device cuda: torch finds no GPU here"):
        measure_ops(graph, held, read_fx_graph(graph, held), "cuda")


def test_rates_of_the_device_are_measured() -> None:
    from placegap.instances.torch_models.op_times import calibrate

    spec = calibrate("cpu")
    assert spec.peak(None) > 10**8  # any core that runs torch
    assert spec.bandwidth_bytes_per_s > 10**8
    assert 0 < spec.launch_overhead_ns < 10**7
