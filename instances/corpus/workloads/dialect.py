"""How a framework writes a network out as a graph: which ops there are beside the layers' own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Dialect:
    """What the graph of one network looks like in one framework.

    Attributes
    ----------
    framework : {"modules", "onnx", "tensorflow"}
        ``modules``: one op per module, which holds its weights, and one backward op for each, as
        profilers of PyTorch see a network. ``onnx``: ONNX Runtime's ops; weights and the further
        outputs of an op are ops of their own, as in dnn-partitioning's operator graphs.
        ``tensorflow``: the graph of TensorFlow 1, with variables, reads, constants, and all that
        its automatic differentiation adds.
    training : bool
        Whether backward ops and updates follow the forward ops.
    optimizer : str
        Name of the update op.
    slots : int
        Variables of a weight's size that the optimizer keeps per weight (Adam: 2).
    fused_norms : bool
        tensorflow: batch normalisation as one op, or written out in elementwise ops and means.
    decay_weights : bool
        tensorflow: a penalty on the weights of convolutions and products (TF-Slim's scripts).
    initial_values : bool
        tensorflow: the ops that make and assign the first value of each variable.
    checkpoints : bool
        tensorflow: the ops that restore variables.
    averages : bool
        tensorflow: a running average of each variable, as Inception-v3 is evaluated with.
    clips : bool
        tensorflow: each gradient scaled down to a norm.
    summaries : bool
        tensorflow: a histogram of each variable.
    activity : bool
        tensorflow: histograms and shares of zeros of the activations, and of the gradients their
        histograms and norms, which TF-Slim's scripts can add.
    """

    framework: Literal["modules", "onnx", "tensorflow"]
    training: bool = False
    optimizer: str = "SGD"
    slots: int = 0
    fused_norms: bool = True
    decay_weights: bool = False
    initial_values: bool = False
    checkpoints: bool = False
    averages: bool = False
    clips: bool = False
    summaries: bool = False
    activity: bool = False

    @property
    def means(self) -> str:
        """The ops beside the layers' own, in words."""
        words = {
            "fused_norms": "fused norms",
            "decay_weights": "penalties",
            "initial_values": "first values",
            "checkpoints": "checkpoints",
            "averages": "averages",
            "clips": "clipping",
            "summaries": "summaries",
            "activity": "activity",
        }
        if self.framework != "tensorflow":
            return self.framework
        found = [word for name, word in words.items() if getattr(self, name)]
        return ", ".join([self.optimizer, *found])


MODULES = Dialect("modules")
MODULES_TRAINING = Dialect("modules", training=True)
ONNX = Dialect("onnx")
ONNX_ADAM = Dialect("onnx", training=True, optimizer="AdamOptimizer", slots=2)
ONNX_SGD = Dialect("onnx", training=True, optimizer="SGDOptimizer")
