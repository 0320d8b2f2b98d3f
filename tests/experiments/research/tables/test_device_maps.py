"""The restated rule of accelerate's balanced map, against accelerate and against trials."""

import json
from pathlib import Path
from typing import Any

import pytest

from placegap.experiments.research.tables.device_maps import balanced_map
from placegap.instances.torch_models.model import build_model
from placegap.instances.torch_models.options import TraceOptions

pytestmark = pytest.mark.torch

GPT2 = {"model_type": "gpt2", "n_layer": 7, "n_embd": 16, "n_head": 2, "vocab_size": 50}
T5 = {"model_type": "t5", "num_layers": 4, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_heads": 2}
T5["vocab_size"] = 120
RESNET = {"model_type": "resnet", "embedding_size": 8, "hidden_sizes": [8, 16, 32, 64]}
RESNET["depths"] = [2, 2, 3, 2]
TINY = {"gpt2": GPT2, "t5": T5, "resnet": RESNET}


def by_parameter(module: Any, found: dict[str, int]) -> dict[str, int]:
    """The device of each parameter: of the innermost entry that holds it."""
    where = {}
    for name, _ in module.named_parameters(remove_duplicate=False):
        path = name
        while path not in found:
            path = path.rpartition(".")[0]
        where[name] = found[path]
    return where


@pytest.mark.parametrize("count", [2, 3, 8])
@pytest.mark.parametrize("name", TINY)
def test_each_parameter_is_where_accelerate_puts_it(name: str, count: int, tmp_path: Path) -> None:
    utils = pytest.importorskip("accelerate.utils", reason="needs accelerate")
    path = tmp_path / "config.json"
    path.write_text(json.dumps(TINY[name]))
    module = build_model(f"hf:{path}", TraceOptions()).module
    whole = list(module._no_split_modules or ())
    room = dict.fromkeys(range(count), 10**9)
    limits = utils.get_balanced_memory(module, dict(room), no_split_module_classes=whole)
    theirs = utils.infer_auto_device_map(module, limits, no_split_module_classes=whole)
    if "" in theirs:  # all on one device
        theirs = dict.fromkeys((child for child, _ in module.named_children()), theirs[""])
    ours = balanced_map(module, [10**9] * count)
    assert by_parameter(module, ours) == by_parameter(module, theirs)
