"""The joint program of a training step: forward and backward calls in one FX graph, linked.

All private interfaces of torch that placegap uses for training are in this file. The way there:

1. The module's tensors become fake ones on the CPU, tied ones stay tied: shapes without values. (On
   the meta device the backward pass of attention would fall apart into matrix products.)
2. ``torch.export`` gives a graph whose nodes know their modules; dropout is off, batch
   normalization is in training mode. Guards and assertions leave, tied weights get one name.
3. That graph is run by an interpreter which keeps the nodes' metadata, and AOTAutograd records what
   it and its backward pass call.

Each backward call then carries the number (``seq_nr``) of the forward call whose gradient it is a
part of. A sum of gradients carries none of use and goes with the call that reads it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._functorch._aot_autograd.descriptors import (
    BufferAOTInput,
    GradAOTOutput,
    ParamAOTInput,
    PlainAOTOutput,
)
from torch._functorch.aot_autograd import aot_export_joint_with_descriptors
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.traceback import preserve_node_meta
from torch.utils import _pytree as pytree

from placegap.instances.torch_models.fx_reader import module_path_of


@dataclass(frozen=True)
class JointProgram:
    """Forward and backward calls of one training step."""

    #: Inputs are parameters, buffers, the module's inputs, and gradients of its outputs; outputs
    #: are the module's outputs and the gradients. Every node has ``meta["val"]``.
    graph_module: fx.GraphModule
    forward_of: Mapping[str, str]  # name of every backward call, and of its forward call
    module_of: Mapping[str, str]  # path of the module of every call that has one
    #: parameter_of, buffer_of: Names of the inputs that are parameters or buffers, and their names
    #: in the module.
    parameter_of: Mapping[str, str]
    buffer_of: Mapping[str, str]
    #: Name in the module of each parameter that gets a gradient, and of the call that makes it.
    gradient_of: Mapping[str, str]


def joint_program(
    module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None
) -> JointProgram:
    """Trace one training step of a module; the tensors of `module` become fake ones."""
    # A scalar that the module returns is the loss; of other outputs the gradients come in as
    # inputs. Of the input tensors only shapes and types count.
    with FakeTensorMode(), contextlib.ExitStack() as stack:
        _make_fake(module)
        _set_training_modes(module)
        args, kwargs = pytree.tree_map_only(torch.Tensor, _fake, (tuple(args), dict(kwargs or {})))
        exported = torch.export.export(module, args, kwargs, strict=False)
        run = _Interpreted(_cleaned(exported.module()))
        stack.enter_context(torch.enable_grad())
        joint = aot_export_joint_with_descriptors(stack, run, run.inputs).graph_module
    assert isinstance(joint, fx.GraphModule)
    return _described(joint)


class _Interpreted(torch.nn.Module):  # type: ignore[misc]  # torch is Any
    """An exported graph that is run call by call, so that recorded calls get its metadata."""

    def __init__(self, program: fx.GraphModule) -> None:
        super().__init__()
        self.program = program
        nodes = program.graph.find_nodes(op="placeholder")
        values = (node.meta["val"] for node in nodes)  # fake ones of the export
        self.inputs = tuple(_fake(v) if isinstance(v, torch.Tensor) else v for v in values)

    def forward(self, *inputs: Any) -> tuple[torch.Tensor, ...]:
        with preserve_node_meta():
            found = fx.Interpreter(self.program).run(*inputs, enable_io_processing=False)
        tensors = [value for value in pytree.tree_leaves(found) if isinstance(value, torch.Tensor)]
        is_loss = tensors and tensors[0].is_floating_point() and tensors[0].dim() == 0
        return tuple(tensors[:1] if is_loss else tensors)


def _fake(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of the same shape, strides and type on the CPU; fake under a fake mode."""
    fake = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="cpu")
    return fake.requires_grad_(tensor.requires_grad)


def _make_fake(module: torch.nn.Module) -> None:
    """Put fake tensors in the place of all parameters and buffers; tied ones stay tied."""
    fakes: dict[int, torch.Tensor] = {}
    for owner in module.modules():
        own = [
            *owner.named_parameters(recurse=False, remove_duplicate=False),
            *owner.named_buffers(recurse=False, remove_duplicate=False),
        ]
        for name, tensor in own:
            if id(tensor) not in fakes:
                fake = _fake(tensor)
                is_parameter = isinstance(tensor, torch.nn.Parameter)
                fakes[id(tensor)] = (
                    torch.nn.Parameter(fake.detach(), tensor.requires_grad)
                    if is_parameter
                    else fake
                )
            setattr(owner, name, fakes[id(tensor)])


def _set_training_modes(module: torch.nn.Module) -> None:
    """Everything as in use, which turns dropout off; batch normalization as in training."""
    module.eval()
    for owner in module.modules():
        if isinstance(owner, torch.nn.modules.batchnorm._BatchNorm):
            owner.train()


def _cleaned(program: fx.GraphModule) -> fx.GraphModule:
    """The program without guards and assertions, and with one name for each weight."""
    names: dict[int, str] = {}
    for node in list(program.graph.nodes):
        if (node.op == "call_module" and node.target == "_guards_fn") or (
            node.op == "call_function" and "assert" in str(node.target)
        ):
            program.graph.erase_node(node)
        elif node.op == "get_attr":
            found: Any = program
            for part in str(node.target).split("."):
                found = getattr(found, part)
            node.target = names.setdefault(id(found), str(node.target))
    program.recompile()
    return program


def _described(joint: fx.GraphModule) -> JointProgram:
    """Names and links of a joint graph, from the descriptors and numbers of its nodes."""
    graph = joint.graph
    (output,) = graph.find_nodes(op="output")
    kept = [
        (value, desc)
        for value, desc in zip(output.args[0], output.meta["desc"], strict=True)
        if isinstance(value, fx.Node) and isinstance(desc, PlainAOTOutput | GradAOTOutput)
    ]  # without updates of buffers
    output.args = (tuple(value for value, _ in kept),)
    output.meta["desc"] = [desc for _, desc in kept]
    graph.eliminate_dead_code()
    joint.recompile()
    # the other names of tied weights are inputs that no node reads
    inputs = {n: n.meta["desc"] for n in graph.find_nodes(op="placeholder") if n.users}
    parameters = {node: _own_name(d) for node, d in inputs.items() if isinstance(d, ParamAOTInput)}
    buffers = {node: _own_name(d) for node, d in inputs.items() if isinstance(d, BufferAOTInput)}
    gradients = {
        _own_name(desc.grad_of): value
        for value, desc in kept
        if isinstance(desc, GradAOTOutput) and isinstance(desc.grad_of, ParamAOTInput)
    }
    forward_of = _link(graph, {gradients[p]: n for n, p in parameters.items() if p in gradients})
    return JointProgram(
        graph_module=joint,
        forward_of=forward_of,
        module_of=_modules(graph, forward_of),
        parameter_of={node.name: name for node, name in parameters.items()},
        buffer_of={node.name: name for node, name in buffers.items()},
        gradient_of={name: value.name for name, value in gradients.items()},
    )


def _own_name(desc: ParamAOTInput | BufferAOTInput) -> str:
    return str(desc.target).removeprefix("program.")


def is_backward(node: fx.Node) -> bool:
    """Whether a call of a joint graph belongs to the backward pass."""
    return str(node.meta.get("partitioner_tag")).endswith("backward")


def _link(graph: fx.Graph, parameter_of: Mapping[fx.Node, fx.Node]) -> dict[str, str]:
    """The forward call of every backward call."""
    # Forward calls without a gradient carry the number of the last one that has one: the first call
    # of a number is the one whose gradient it is.
    calls = [node for node in graph.nodes if node.op == "call_function"]
    first: dict[int, fx.Node] = {}
    for node in calls:
        if not is_backward(node):
            first.setdefault(node.meta.get("seq_nr", -1), node)
    linked: dict[fx.Node, fx.Node] = {}
    for node in reversed([node for node in calls if is_backward(node)]):
        if not node.meta.get("is_gradient_acc") and node.meta.get("seq_nr") in first:
            linked[node] = first[node.meta["seq_nr"]]
            continue
        readers = [linked[user] for user in node.users if user in linked]
        if not readers and node in parameter_of:
            readers = [user for user in parameter_of[node].users if not is_backward(user)]
        if not readers:
            raise ValueError(f"backward call {node.name!r} belongs to no forward call")
        linked[node] = readers[0]
    return {node.name: partner.name for node, partner in reversed(linked.items())}


def _modules(graph: fx.Graph, forward_of: Mapping[str, str]) -> dict[str, str]:
    """Path of the module of every call; of a backward call that of its forward call."""
    calls = (node for node in graph.nodes if node.op == "call_function")
    own = {node.name: path for node in calls if (path := module_path_of(node))}
    nearest = {name: own.get(partner, own.get(name)) for name, partner in forward_of.items()}
    return {**own, **{name: path for name, path in nearest.items() if path is not None}}
