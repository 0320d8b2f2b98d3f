"""Training steps of models from PyTorch and Hugging Face, as documents."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from typing import Any

from placegap.instances.files.document import Document
from placegap.instances.importers.torch_export.model import as_document, build_model
from placegap.instances.importers.torch_export.options import TraceOptions
from placegap.instances.importers.torch_export.tracing import (
    no_split_label,
    one_line,
    parameter_count,
)
from placegap.instances.reading.errors import InputError

LABELS = "labels"
"""Input of transformers' models that makes them return a loss."""


def read_training_model(name: str, options: TraceOptions) -> Document:
    """One training step of a model by its name, as a document without a cluster.

    A model of transformers with a head is given labels and returns its loss. Of another model the
    gradients of the outputs come in from outside, unless it returns a scalar: that is the loss.

    Parameters
    ----------
    name : str
        ``hf:NAME``, ``hf:PATH.json`` or ``py:module:function``.
    options : TraceOptions

    Raises
    ------
    InputError
        One line: there is no such model, torch is missing, or the model cannot be traced.
    """
    model = build_model(name, options)
    from placegap.instances.importers.torch_training.joint_program import joint_program
    from placegap.instances.importers.torch_training.training_graph import read_training_graph

    optimizer = options.optimizer or "adam"
    parameters = parameter_count(model.module)
    labels = no_split_label(model.module) if options.keep_modules else lambda node: ()
    with one_line(name, "cannot be traced for training"):
        step = joint_program(model.module, model.args, model.kwargs, _labels)
    try:
        program = read_training_graph(step, optimizer, options.tied, labels)
    except ValueError as error:
        raise InputError(str(error), name) from None
    changes = (
        "a training step: forward, backward and update ops; dropout is off",
        "nodes that read only weights are a part of the first op that reads what they write",
        f"state of {optimizer}: weights, gradients and what the optimizer holds",
    )
    return as_document(name, options, program, parameters, changes)


def _labels(module: Any, *args: Any, **kwargs: Any) -> Mapping[str, Any]:
    """Labels of the shape that the logits ask for: one class of each position, or of each example.

    The tensors are fake: the pass computes shapes alone.
    """
    import torch

    if LABELS not in signature(module.forward).parameters or not hasattr(module, "config"):
        return {}
    with torch.no_grad():
        logits = getattr(module(*args, **kwargs), "logits", None)
    if not isinstance(logits, torch.Tensor) or logits.dim() < 2:
        return {}
    return {LABELS: torch.zeros(logits.shape[:-1], dtype=torch.long)}
