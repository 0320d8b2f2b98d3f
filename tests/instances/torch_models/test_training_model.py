"""Training steps of models by name: labels, options, and the figures of known models."""

from pathlib import Path

import pytest
from doubles.configs import config, gpt2

from placegap.instances import InputError
from placegap.instances.torch_models.optimizers import NUM_STATES
from placegap.instances.torch_models.options import TraceOptions
from placegap.instances.torch_models.training_model import read_training_model

pytestmark = pytest.mark.torch


def test_a_model_with_a_head_gets_labels_and_adam_holds_16_bytes_for_each_parameter(
    tmp_path: Path,
) -> None:
    graph = read_training_model(gpt2(tmp_path), TraceOptions(train=True)).graph
    assert {"nll_loss_forward", "nll_loss_backward"} <= {op.kind for op in graph.ops}
    assert all(op.colocation is not None for op in graph.ops if op.backward)
    # 27 x 8 embeddings; of a layer 12 x 8 x 8 weights, 9 x 8 biases, 4 x 8 of norms; 2 x 8 at last
    num_weights = 27 * 8 + 2 * (12 * 64 + 13 * 8) + 16
    assert graph.provenance.parameters["parameters"] == num_weights
    shared = {name: size for op in graph.ops for name, size in op.shared_state.items()}
    state = sum(op.state_bytes or 0 for op in graph.ops) + sum(shared.values())
    constants = 2 * 16 * 16 * 4 + 16 * 8  # a mask for each layer, and positions
    assert state == pytest.approx(num_weights * 16, abs=constants)
    # the tied embedding: held once where both ends are
    ends = [op.shared_state.get("transformer.wte.weight") for op in graph.ops]
    assert {size for size in ends if size is not None} == {11 * 8 * 16}


def test_products_with_the_matrix_of_an_expert_have_a_backward_pass(tmp_path: Path) -> None:
    name = config(tmp_path, "mixtral", "8 1 2 2 16 11", num_local_experts=4)
    graph = read_training_model(name, TraceOptions(seq=16, train=True)).graph
    grouped = [op for op in graph.ops if "grouped_mm" in op.kind]
    # each of 16 tokens at 2 experts: 8 x 32 (gate and up) and 16 x 8; backward two of each
    assert sorted(op.flops or 0 for op in grouped if not op.backward) == [8192, 16384]
    assert sorted(op.flops or 0 for op in grouped if op.backward) == [16384, 32768]


SHIFTING = """
import torch

class Net(torch.nn.Linear):
    def __init__(self):
        super().__init__(4, 4, bias=False)
        self.shift = torch.nn.Parameter(torch.zeros(2, 4))

    def forward(self, x):
        return super().forward(x + self.shift)

def build():
    return Net(), (torch.zeros(2, 4),)
"""


def test_weights_whose_gradient_is_that_of_an_activation_are_updated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shifting.py").write_text(SHIFTING)
    monkeypatch.chdir(tmp_path)
    graph = read_training_model("py:shifting:build", TraceOptions(train=True)).graph
    (edge,) = (edge for edge in graph.edges if edge.consumer == "add/adam")
    # the sum has no backward op of its own: what the layer's backward op writes is the gradient
    assert (edge.bytes, edge.tensor) == (2 * 4 * 4, edge.producer)


def test_blocks_stay_whole_with_their_backward_ops(tmp_path: Path) -> None:
    options = TraceOptions(train=True, keep_modules=True)
    graph = read_training_model(gpt2(tmp_path), options).graph
    block = [op for op in graph.ops if (op.module or "").startswith("transformer.h.0")]
    assert {op.colocation for op in block} == {"transformer.h.0"}
    assert any(op.backward for op in block)


FIGURES = [  # front-door.md's trials: forward and backward ops, edges, FLOPs bwd / fwd, stash MB
    ("gpt2", 212, 356, 947, 2.07, 1270),
    ("resnet50", 176, 178, 756, 1.97, 86),
]


@pytest.mark.parametrize(("name", "forward", "backward", "edges", "ratio", "stash_mb"), FIGURES)
def test_known_models_have_the_figures_of_earlier_trials(
    name: str, forward: int, backward: int, edges: int, ratio: float, stash_mb: int
) -> None:
    graph = read_training_model(f"hf:{name}", TraceOptions(train=True)).graph
    updates = {op.name for op in graph.ops if op.kind in NUM_STATES}
    behind = {op.name for op in graph.ops if op.backward} - updates
    ahead = {op.name for op in graph.ops} - updates - behind
    assert len(ahead) == pytest.approx(forward, rel=0.02)
    assert len(behind) == pytest.approx(backward, rel=0.02)
    kept = [edge for edge in graph.edges if edge.consumer not in updates]
    assert len(kept) == pytest.approx(edges, rel=0.02)
    work = [sum(op.flops or 0 for op in graph.ops if op.name in part) for part in (behind, ahead)]
    assert work[0] / work[1] == pytest.approx(ratio, abs=0.01)
    stash = {
        (e.producer, e.tensor): e.bytes
        for e in graph.edges
        if e.producer in ahead and e.consumer in behind
    }
    assert sum(stash.values()) / 1e6 == pytest.approx(stash_mb, rel=0.01)


ADAPTERS = """
import torch
from torch import nn


class Adapted(nn.Module):
    def __init__(self, frozen):
        super().__init__()
        self.base = nn.Linear(64, 64, bias=False).requires_grad_(not frozen)
        self.a, self.b = nn.Linear(64, 4, bias=False), nn.Linear(4, 64, bias=False)

    def forward(self, x):
        return (self.base(x) + self.b(self.a(x))).sum()


def frozen():
    return Adapted(True), (torch.zeros(16, 64),)


def trained():
    return Adapted(False), (torch.zeros(16, 64),)
"""


def test_frozen_weights_beside_adapters_are_stored_as_stated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "adapted.py").write_text(ADAPTERS)
    monkeypatch.syspath_prepend(tmp_path)
    options = TraceOptions(train=True, weights="nf4", optimizer="adam")
    graph = read_training_model("py:adapted:frozen", options).graph
    # 4096 weights in 4 bits and a float32 for 64 of them: 4.5 bits; 2 * 256 weights of adapters
    # with gradients and two states of Adam, 16 bytes each
    state = sum(op.state_bytes or 0 for op in graph.ops)
    assert state == 4096 * 4.5 / 8 + 2 * 256 * 16
    assert len([op for op in graph.ops if op.name.endswith("/adam")]) == 2
    with pytest.raises(InputError, match="no weight is frozen"):
        read_training_model("py:adapted:trained", options)
