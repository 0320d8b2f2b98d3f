"""The joint program: every backward call has its forward call, and nothing else comes in."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.torch


def step_of(module: Any, *args: Any, **kwargs: Any) -> Any:
    from placegap.instances.torch_models.joint_program import joint_program

    return joint_program(module, args, kwargs)


def calls(step: Any) -> dict[str, str]:
    """Name and schema of all calls."""
    nodes = (node for node in step.graph_module.graph.nodes if node.op == "call_function")
    return {node.name: str(node.target) for node in nodes}


def backward_names(step: Any) -> set[str]:
    from placegap.instances.torch_models.joint_program import is_backward

    return {
        node.name
        for node in step.graph_module.graph.nodes
        if node.op == "call_function" and is_backward(node)
    }


def perceptron() -> Any:
    from torch import nn

    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def test_every_backward_call_is_linked_to_a_forward_call() -> None:
    import torch

    step = step_of(perceptron(), torch.zeros(16, 4))
    assert backward_names(step) == set(step.forward_of)
    assert not backward_names(step) & set(step.forward_of.values())
    assert step.forward_of["threshold_backward"] == "relu"
    # both products of the second layer's backward pass belong to its product
    assert step.forward_of["mm"] == step.forward_of["mm_1"] == "addmm_1"
    assert step.module_of["mm"] == "2"
    # and every parameter has its gradient
    assert sorted(step.gradient_of) == ["0.bias", "0.weight", "2.bias", "2.weight"]
    assert sorted(step.parameter_of.values()) == sorted(step.gradient_of)
    meta = step_of(perceptron().to("meta"), torch.zeros(16, 4, device="meta"))
    assert calls(step) == calls(meta)  # of a real module


def test_dropout_is_off_and_batch_normalization_normalizes_the_batch() -> None:
    import torch
    from torch import nn

    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2))
    names = " ".join(calls(step_of(net, torch.zeros(16, 4))).values())
    assert "dropout" not in names
    assert "bernoulli" not in names
    assert "native_batch_norm_backward" in names
    assert "copy_" not in names  # running means are no outputs


def test_a_loss_that_comes_first_is_the_only_output() -> None:
    import torch
    from torch import nn

    class Net(nn.Linear):
        def forward(self, x: Any, *, labels: Any) -> tuple[Any, Any]:
            found = super().forward(x)
            return nn.functional.cross_entropy(found, labels), found

    step = step_of(Net(4, 2), torch.zeros(3, 4), labels=torch.zeros(3, dtype=torch.long))
    (output,) = step.graph_module.graph.find_nodes(op="output")
    assert len(output.args[0]) == 1 + 2  # the loss, and the gradients of weight and bias
