"""Exports read by the tools that they are for: accelerate, torch's pipelining, onnxruntime."""

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from doubles.configs import GPT2, fields, write_config

from placegap.instances import Instance, MaxLoad, Plan, load_cluster
from placegap.instances.exporters.modules import layer_devices
from placegap.instances.exporters.table import export_plan
from placegap.instances.problem.modules import with_granularity
from placegap.instances.torch_models.model import build_model, config_model, read_traced_model
from placegap.instances.torch_models.options import TraceOptions

pytestmark = pytest.mark.torch

OPTIONS = TraceOptions(seq=8, batch=2)
CHAIN = MaxLoad(plans="chain")
SIXTEEN = "intermediate_size=16 hidden_size=8 num_attention_heads=2 vocab_size=11"
TINY = {
    "gpt2": {**GPT2, "n_layer": 6, "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0},
    "llama": fields(f"{SIXTEEN} num_hidden_layers=6 num_key_value_heads=2"),
    "bert": fields(f"{SIXTEEN} num_hidden_layers=4 max_position_embeddings=16"),
    "t5": fields("num_layers=2 d_model=8 d_kv=4 d_ff=16 num_heads=2 vocab_size=11 dropout_rate=0"),
}


def config(folder: Path, name: str) -> Path:
    return Path(write_config(folder, name, **TINY[name]).removeprefix("hf:"))


def quarters(path: Path) -> tuple[Instance, Plan]:
    """The model in four parts, of about as many groups of whole layers each, in order."""
    document = read_traced_model(f"hf:{path}", OPTIONS)
    instance = document.instance(load_cluster("celeritas-4xV100-pcie"))
    whole = with_granularity(instance, "layer")
    groups = [op.colocation or op.name for op in whole.graph.ops]
    order = list(dict.fromkeys(groups[i] for i in instance.arrays.index.topological_order))
    part = {group: 4 * at // len(order) for at, group in enumerate(order)}
    return instance, Plan.on(part[group] for group in groups)


def real(path: Path) -> tuple[Any, dict[str, Any]]:
    """The model with random weights on the CPU, and its inputs."""
    import torch

    torch.manual_seed(0)
    made = config_model(path, OPTIONS)
    inputs = {
        name: torch.randint(0, 11, value.shape) if "input_ids" in name else value
        for name, value in made.kwargs.items()
    }
    return made.module.eval(), inputs


def first_output(module: Any, inputs: dict[str, Any]) -> Any:
    import torch

    with torch.no_grad():
        found = module(**inputs)
    return next(iter(found.values())) if hasattr(found, "values") else found[0]


@pytest.mark.parametrize("name", TINY)
def test_accelerate_takes_the_map_and_the_outputs_stay_the_same(name: str, tmp_path: Path) -> None:
    accelerate = pytest.importorskip("accelerate", reason="needs accelerate")
    from accelerate.utils import check_device_map

    path = config(tmp_path, name)
    instance, plan = quarters(path)
    assert len(set(layer_devices(instance, plan).values())) == 4
    found = json.loads(export_plan("device_map", instance, plan, CHAIN))
    check_device_map(build_model(f"hf:{path}", OPTIONS).module, found)  # incomplete: ValueError
    module, inputs = real(path)
    alone = first_output(module, inputs)
    on_cpu = dict.fromkeys(found, "cpu")
    placed = accelerate.dispatch_model(module, on_cpu, main_device="cpu", force_hooks=True)
    assert (first_output(placed, inputs) - alone).abs().max().item() == 0.0


@pytest.mark.parametrize("name", ["gpt2", "bert"])  # torch 2.13 runs no Llama of transformers
def test_torch_builds_the_stages_and_the_outputs_stay_the_same(name: str, tmp_path: Path) -> None:
    from torch.distributed.pipelining import SplitPoint, pipeline

    path = config(tmp_path, name)
    instance, plan = quarters(path)
    spec = json.loads(export_plan("pipelining", instance, plan, CHAIN))["split_spec"]
    module, inputs = real(path)
    alone = first_output(module, inputs)
    points = {layer: SplitPoint[at] for layer, at in spec.items()}
    pipe = pipeline(deepcopy(module), (), inputs, split_spec=points)
    assert pipe.num_stages == 4
    assert (first_output(pipe, inputs) - alone).abs().max().item() == 0.0
    for stage, begin in enumerate(spec, 1):  # the module that begins a stage is in that one
        assert any(name == begin for name, _ in pipe.get_stage_module(stage).named_modules())


def test_onnxruntime_runs_the_copy_with_the_outputs_of_the_model(tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="needs onnxruntime")
    import numpy as np
    from doubles.onnx_nets import nodes, save, tensor

    from placegap.instances.exporters.onnx import annotate
    from placegap.instances.importers.onnx_model import inlined_model, load_onnx

    x, y, b = (tensor(name, 2, 3) for name in "xyb")
    made = nodes("e: Exp x > a; n: Neg a > b; sum: Add a b > y")
    path = save(tmp_path, made, [x], ends=[y, b], ir_version=8)
    instance = load_onnx(path).instance(load_cluster("celeritas-4xV100-pcie"))
    model = inlined_model(path)
    annotate(model, instance, Plan.on([0, 1, 2]), CHAIN)
    feed = {"x": np.arange(6, dtype=np.float32).reshape(2, 3)}
    outputs = [
        runtime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, feed)
        for data in (path.read_bytes(), model.SerializeToString())
    ]
    for one, other in zip(*outputs, strict=True):
        assert (one == other).all()
