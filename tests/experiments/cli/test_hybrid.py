"""Hybrid plans of training steps at the command line: shapes and traced models."""

import json
import re
from pathlib import Path

import pytest

from placegap.experiments.cli import main
from placegap.experiments.running.sources import Source, find_model, load_source
from placegap.instances import HybridPipeline
from placegap.instances.corpus.layer_chains import ModelShape, shape_layers
from placegap.instances.costing.layer_modes import MODELLED, ModelledOn, Rates, layer_modes
from placegap.instances.files.document import save_document
from placegap.instances.torch_models.options import TraceOptions

Capture = pytest.CaptureFixture[str]
HYBRID = ["--objective", "hybrid_pipeline", "--microbatches", "16"]


def test_filling_and_draining_are_asked_for_and_told(tmp_path: Path, capsys: Capture) -> None:
    plan = str(tmp_path / "plan.json")
    model = ["llama-8b-train", "--cluster", "2x2xH100"]
    certificate = ["--certificate", str(tmp_path / "c.json")]
    command = ["place", *model, *HYBRID, "--bubble", "--quiet", "-o", plan, *certificate]
    assert main(command) == 0
    said, err = capsys.readouterr()
    assert "with --bubble" in err  # no certificate states that
    assert re.search(r"value .* a batch, .* each; .* steady, .* % *\) to fill and drain", said)
    assert re.search(r"gap +0 %", said)
    assert main(["show", plan]) == 0
    assert "A batch is" in capsys.readouterr().out
    assert main(["verify", model[0], plan, *model[1:]]) == 0


def test_a_shape_is_a_training_step_for_every_other_objective() -> None:
    plain = load_source(Source("llama-8b-train", "8xH100-nvlink"))
    layers = load_source(Source("llama-8b-train", "8xH100-nvlink", layers=True))
    assert (plain.num_ops, layers.num_ops) == (2 * 34, 34)
    assert not any(op.backward for op in layers.graph.ops)
    assert "494 TFLOP/s" in str(layers.graph.provenance.parameters[MODELLED])


def test_rules_of_hybrid_plans_that_a_training_step_states_stand_for_its_layers(
    tmp_path: Path,
) -> None:
    path, rules = tmp_path / "step.json", HybridPipeline(microbatches=16, sharding="optimizer")
    step = find_model("llama-8b-train").model_copy(update={"semantics": rules})
    save_document(step, path)
    assert load_source(Source(str(path), "8xH100-nvlink", layers=True)).semantics == rules


LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
}


@pytest.mark.torch
def test_a_traced_model_is_what_its_shape_says(tmp_path: Path) -> None:
    (tmp_path / "tiny.json").write_text(json.dumps(LLAMA))
    options = TraceOptions(train=True, batch=1, seq=32, dtype="bfloat16")
    source = Source(f"hf:{tmp_path}/tiny.json", "1x4xA100-80GB", tracing=options, layers=True)
    traced = load_source(source).graph.ops
    shape = ModelShape(2, 64, 96, 3, 100, 32, 4, 2)
    rates = Rates(312 * 10**12 // 2, 300 * 10**9, 5000)
    on = ModelledOn({"A100-80GB": rates}, (1, 2, 4))
    assert [op.kind for op in traced] == ["Embedding", "Layer", "Layer", "Loss"]
    for op, layer in zip(traced, shape_layers(shape), strict=True):
        expected = {(m.name, m.tensor): m for m in layer_modes(layer, on)}
        found = {(m.name, m.tensor): m for m in op.modes}
        assert expected.keys() == found.keys()  # no t above the two heads of keys
        for key, mode in expected.items():
            # 18 bytes a weight in the shape, 16 in the trace: gradients have the weights' type
            assert found[key].state_bytes * 18 == mode.state_bytes * 16
            # not causal, and norms written out: more of both
            mine, own = found[key].time_ns["A100-80GB"], mode.time_ns["A100-80GB"]
            assert own <= mine <= 1.2 * own + 10
            assert mode.held_bytes <= found[key].held_bytes
