"""Training steps of models by name: labels, options, and the figures of known models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from placegap.instances import InputError
from placegap.instances.torch_models.options import TraceOptions
from placegap.instances.torch_models.training_model import NUM_STATES, read_training_model

pytestmark = pytest.mark.torch

SMALL = {"n_layer": 2, "n_embd": 8, "n_head": 2, "n_positions": 16, "vocab_size": 11}
"""A GPT-2 of two layers."""


def small(folder: Path, **fields: Any) -> str:
    path = folder / "config.json"
    path.write_text(json.dumps({"model_type": "gpt2", **SMALL, **fields}))
    return f"hf:{path}"


def test_a_model_with_a_head_gets_labels_and_returns_its_loss(tmp_path: Path) -> None:
    graph = read_training_model(small(tmp_path), TraceOptions(train=True)).graph
    kinds = [op.kind for op in graph.ops]
    assert "nll_loss_forward" in kinds
    assert "nll_loss_backward" in kinds
    assert all(op.colocation is not None for op in graph.ops if op.backward)


def test_the_state_of_adam_is_sixteen_bytes_for_each_parameter(tmp_path: Path) -> None:
    graph = read_training_model(small(tmp_path), TraceOptions(train=True)).graph
    # 27 x 8 embeddings; of a layer 12 x 8 x 8 weights, 9 x 8 biases, 4 x 8 of norms; 2 x 8 at last
    num_weights = 27 * 8 + 2 * (12 * 64 + 13 * 8) + 16
    assert graph.provenance.parameters["parameters"] == num_weights
    shared = {name: size for op in graph.ops for name, size in op.shared_state.items()}
    state = sum(op.state_bytes or 0 for op in graph.ops) + sum(shared.values())
    constants = 2 * 16 * 16 * 4 + 16 * 8  # a mask for each layer, and positions
    assert state == pytest.approx(num_weights * 16, abs=constants)
    weights = {
        op.shared_state["transformer.wte.weight"]
        for op in graph.ops
        if len(op.shared_state) and "transformer.wte.weight" in op.shared_state
    }
    assert weights == {11 * 8 * 16}  # the tied embedding: held once where both ends are


def test_products_with_the_matrix_of_an_expert_have_a_backward_pass(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    sizes = {
        "hidden_size": 8,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "num_local_experts": 4,
        "vocab_size": 11,
    }
    path.write_text(json.dumps({"model_type": "mixtral", **sizes}))
    graph = read_training_model(f"hf:{path}", TraceOptions(seq=16, train=True)).graph
    grouped = [op for op in graph.ops if "grouped_mm" in op.kind]
    # each of 16 tokens at 2 experts: 8 x 32 (gate and up) and 16 x 8; backward two of each
    assert sorted(op.flops or 0 for op in grouped if not op.backward) == [8192, 16384]
    assert sorted(op.flops or 0 for op in grouped if op.backward) == [16384, 32768]


def test_weights_whose_gradient_is_that_of_an_activation_are_updated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shifting.py").write_text(
        "import torch\n"
        "class Net(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.shift = torch.nn.Parameter(torch.zeros(2, 4))\n"
        "        self.layer = torch.nn.Linear(4, 4, bias=False)\n"
        "    def forward(self, x):\n"
        "        return self.layer(x + self.shift)\n"
        "def build():\n"
        "    return Net(), (torch.zeros(2, 4),)\n"
    )
    monkeypatch.chdir(tmp_path)
    graph = read_training_model("py:shifting:build", TraceOptions(train=True)).graph
    (edge,) = (edge for edge in graph.edges if edge.consumer == "add/adam")
    # the sum has no backward op of its own: what the layer's backward op writes is the gradient
    assert (edge.bytes, edge.tensor) == (2 * 4 * 4, edge.producer)


def test_blocks_stay_whole_with_their_backward_ops(tmp_path: Path) -> None:
    options = TraceOptions(train=True, keep_modules=True)
    graph = read_training_model(small(tmp_path), options).graph
    block = [op for op in graph.ops if (op.module or "").startswith("transformer.h.0")]
    assert {op.colocation for op in block} == {"transformer.h.0"}
    assert any(op.backward for op in block)


def test_a_module_that_branches_on_data_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "branching.py").write_text(
        "import torch\n"
        "class Net(torch.nn.Linear):\n"
        "    def forward(self, x):\n"
        "        return super().forward(x) if x.sum() > 0 else x\n"
        "def build():\n"
        "    return Net(4, 4), (torch.zeros(2, 4),)\n"
    )
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"py:branching:build: cannot be traced for training: "):
        read_training_model("py:branching:build", TraceOptions(train=True))


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
    assert len([e for e in graph.edges if e.consumer not in updates]) == pytest.approx(
        edges, rel=0.02
    )
    flops = {op.name: op.flops or 0 for op in graph.ops}
    assert sum(map(flops.get, behind)) / sum(map(flops.get, ahead)) == pytest.approx(  # type: ignore[arg-type]
        ratio, abs=0.01
    )
    stash = {
        (e.producer, e.tensor): e.bytes
        for e in graph.edges
        if e.producer in ahead and e.consumer in behind
    }
    assert sum(stash.values()) / 1e6 == pytest.approx(stash_mb, rel=0.01)
