"""Training steps of models from PyTorch and Hugging Face, as documents.
Weights of 16 bits are trained with a master copy in float32, and optimizer state is float32 then
(Micikevicius et al. 2018; the 16 bytes per parameter of Adam are those of Rajbhandari et al. 2020,
section 3.1). ``adam8bit`` keeps its two states in 8 bits, with a float32 scale for each block of
2048 values, and updates the weights in their own type (Dettmers et al. 2022).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from inspect import signature
from typing import TYPE_CHECKING, Any

from placegap.instances.costing.layer_modes import HEADS
from placegap.instances.files.document import Document
from placegap.instances.reading.errors import InputError
from placegap.instances.torch_models.fx_reader import FxProgram
from placegap.instances.torch_models.inference_phase import add_kernels
from placegap.instances.torch_models.model import as_document, build_model
from placegap.instances.torch_models.options import ASSUMED, LEFT_OUT, UNREAD, TraceOptions
from placegap.instances.torch_models.repeated_layers import (
    NotAlike,
    Stack,
    alike,
    repeat_layers,
    shortened,
)
from placegap.instances.torch_models.tracing import (
    Traceable,
    modules_without_ops,
    no_split_label,
    one_line,
    parameter_count,
    stored_bits,
    unread_bytes,
    unread_in_words,
    weights_in_words,
)

if TYPE_CHECKING:
    from placegap.instances.torch_models.joint_program import JointProgram

LABELS = "labels"  # input of transformers' models that makes them return a loss

OF_TOKENS = ("CausalLM", "MaskedLM", "LMHead", "ConditionalGeneration", "TokenClassification")
# Parts of the names of classes whose labels are of tokens, and of examples.
OF_EXAMPLES = ("ImageClassification", "SequenceClassification", "AudioClassification")


def read_training_model(name: str, options: TraceOptions) -> Document:
    """One training step of a model by its name, as a document without a cluster."""
    # Labels are an input of models of transformers with a head, which return a loss. Of another
    # model the gradients of the outputs come in from outside, unless it returns a scalar: that is
    # the loss.
    try:
        step = trace_step(name, options, repeat=name.startswith("hf:"))
    except (InputError, NotAlike):
        step = trace_step(name, options)
    optimizer = options.optimizer or "adam"
    has_update = optimizer != "none"
    changes = (
        f"a training step: forward{', backward and update' if has_update else ' and backward'} ops;"
        " dropout is off",
        "nodes that read only weights are a part of the first op that reads what they write",
        f"state of {optimizer}: weights, gradients and what the optimizer holds"
        if has_update
        else "state: weights and gradients; there is no optimizer",
    )
    ops, modules = step.ops, step.modules
    named = {op.get("module") for op in ops.ops}
    idle = [each for each in modules if each not in named]
    updates = "no update" if optimizer == "none" else f"updates by {optimizer}"
    return as_document(
        name,
        options,
        ops,
        step.parameters,
        changes,
        without_ops=idle,
        said={
            ASSUMED: f"{step.weights}, {updates}",
            UNREAD: step.unread,
            HEADS: step.heads,
            LEFT_OUT: step.left_out,
        },
    )


# What configurations of transformers call them.
NUMBERS_OF_HEADS = ("num_attention_heads", "num_key_value_heads")


@dataclass(frozen=True)
class TracedStep:
    """A training step: what was traced, and what was read from it."""

    # `parameters` counts weights, `modules` are those that hold weights themselves; `weights` and
    # `unread` say in words how large they are, and which the step does not read; `heads` how many
    # heads attention has, and of keys, where the configuration says so; `left_out` what of it the
    # model does not have.
    program: JointProgram
    ops: FxProgram
    parameters: int
    modules: tuple[str, ...]
    weights: str
    unread: str
    heads: str = ""
    left_out: str = ""


def trace_step(name: str, options: TraceOptions, *, repeat: bool = False) -> TracedStep:
    """Trace one training step of a model by its name."""
    # With `repeat` one layer of each kind is traced, and the program lacks what `ops` has.
    model = _with_frozen_bits(name, build_model(name, options))
    from placegap.instances.torch_models.joint_program import joint_program
    from placegap.instances.torch_models.training_graph import read_training_graph

    parameters, weights = parameter_count(model.module), weights_in_words(model)
    holding = modules_without_ops(model.module, ())
    labels = no_split_label(model.module) if options.keep_modules else lambda node: ()
    layers = shortened(model.module) if repeat else nullcontext(list[Stack]())
    with one_line(name, "cannot be traced for training"), layers as stacks:
        step = joint_program(model.module, model.args, {**model.kwargs, **_labels_of(model)})
    try:
        bits = stored_bits(model)
        ops = read_training_graph(step, options.optimizer or "adam", options.tied, labels, bits)
        add_kernels(ops, step.graph_module.graph, model.module, options)
        path = step.module_of.get
        repeat_layers(ops, step.graph_module.graph, stacks, lambda node: path(node.name))
    except ValueError as error:
        raise InputError(str(error), name) from None
    read = (each for name in step.parameter_of.values() for each in alike(name, stacks))
    unread = unread_in_words(unread_bytes(model, read))
    heads = heads_of(model.module)
    modules = tuple(holding)
    return TracedStep(step, ops, parameters, modules, weights, unread, heads, model.left_out)


def _with_frozen_bits(name: str, model: Traceable) -> Traceable:
    """The model whose frozen weights alone are stored as it says: those beside adapters (QLoRA)."""
    if model.weights is None:
        return model
    frozen = {each for each, p in model.module.named_parameters() if not p.requires_grad}
    bits = {each: size for each, size in stored_bits(model).items() if each in frozen}
    if not bits:
        raise InputError(
            "quantized weights are not trained, and no weight is frozen; leave out --weights (or"
            " quantization_config), or train adapters beside frozen weights (py:)",
            name,
        )
    return replace(model, weights=bits)


def heads_of(module: Any) -> str:
    """How many heads attention has, and of keys; one for each part of a model where they differ."""
    config = getattr(module, "config", None)
    found = list[int]()
    for name in NUMBERS_OF_HEADS:
        count = getattr(config, name, None)
        listed = count if isinstance(count, list | tuple) else [count]
        found += [each for each in listed if isinstance(each, int)]
    return " ".join(map(str, found))


def _labels_of(model: Traceable) -> Mapping[str, Any]:
    """Labels for a model of transformers whose head takes them, of each token or each example."""
    import torch

    head = type(model.module).__name__
    if LABELS not in signature(model.module.forward).parameters:
        return {}
    if any(name in head for name in OF_TOKENS):
        tokens = model.kwargs.get("decoder_input_ids", model.kwargs.get("input_ids"))
        return {} if tokens is None else {LABELS: torch.zeros_like(tokens)}
    if any(name in head for name in OF_EXAMPLES):
        images = next(iter(model.kwargs.values()))
        return {LABELS: torch.zeros(images.shape[0], dtype=torch.long, device=images.device)}
    return {}
