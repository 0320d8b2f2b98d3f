"""How many model types of transformers come in: each of the common ones with two layers.

``python -m placegap.experiments.research.bench.model_types`` prints a line for each type, and how
many failed.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from placegap.instances.reading.errors import InputError
from placegap.instances.torch_models.model import read_traced_model
from placegap.instances.torch_models.options import UNCOUNTED, TraceOptions
from placegap.instances.torch_models.tracing import import_torch

OF_TEXT = (
    # decoders
    "gpt2",
    "gpt_neo",
    "gpt_neox",
    "gptj",
    "opt",
    "bloom",
    "llama",
    "mistral",
    "mixtral",
    "qwen2",
    "qwen3",
    "qwen3_moe",
    "gemma",
    "gemma2",
    "phi",
    "phi3",
    "falcon",
    "mpt",
    "stablelm",
    "olmo",
    "cohere",
    "granite",
    "starcoder2",
    "codegen",
    "deepseek_v3",
    # encoders
    "bert",
    "roberta",
    "distilbert",
    "albert",
    "electra",
    "deberta-v2",
    "mpnet",
    "modernbert",
    # both
    "t5",
    "bart",
    "pegasus",
    "marian",
    "m2m_100",
    "blenderbot",
)
OF_IMAGES_AND_SOUND = (
    "vit",
    "deit",
    "swin",
    "resnet",
    "beit",
    "convnext",
    "dinov2",
    "regnet",
    "mobilenet_v2",
    "segformer",
    "wav2vec2",
    "hubert",
    "whisper",
)
TYPES = OF_TEXT + OF_IMAGES_AND_SOUND  # 52 types that people use

# Fields that count layers.
LAYERS = frozenset(
    {
        "num_hidden_layers",
        "n_layer",
        "n_layers",
        "num_layers",
        "encoder_layers",
        "decoder_layers",
        "num_decoder_layers",
        "num_encoder_layers",
    }
)

# Fields that are made from the number of layers.
DERIVED = frozenset({"stage_names", "out_features", "out_indices"})

TOKENS = 64


def shortened(config: Any) -> Any:
    """The fields of a configuration with two layers wherever layers are counted."""
    if not isinstance(config, dict):
        return config
    short: dict[str, Any] = {}
    for name, value in config.items():
        if name in DERIVED:
            continue
        if name in LAYERS and isinstance(value, int):
            short[name] = 2
        elif name in ("layer_types", "attention_layers", "mlp_layer_types"):
            short[name] = value[:2] if isinstance(value, list) else value
        else:
            short[name] = shortened(value)
    return short


def extract_types(types: tuple[str, ...] = TYPES) -> Iterator[tuple[str, str, float]]:
    """Every type, what became of it ("93 ops, 120 edges", or an error), and the seconds it took."""
    import_torch("the benchmark", "transformers")
    from transformers import CONFIG_MAPPING

    with tempfile.TemporaryDirectory() as folder:
        for kind in types:
            path = Path(folder) / f"{kind}.json"
            fields = shortened(CONFIG_MAPPING[kind]().to_dict())
            if kind == "gpt_neo":  # counts its layers in a list of its own
                fields["attention_types"] = [[["global", "local"], 1]]
            path.write_text(json.dumps({**fields, "model_type": kind}))
            begun = time.monotonic()
            options = TraceOptions(seq=TOKENS) if kind in OF_TEXT else TraceOptions()
            try:
                graph = read_traced_model(f"hf:{path}", options).graph
                found = f"{len(graph.ops)} ops, {len(graph.edges)} edges"
                if UNCOUNTED in graph.provenance.parameters:
                    found += f"; no FLOPs: {graph.provenance.parameters[UNCOUNTED]}"
            except InputError as error:
                found = f"error: {error}"
            yield kind, found, time.monotonic() - begun


def main(types: tuple[str, ...]) -> int:
    """Print a line for each type."""
    failed = 0
    for kind, found, seconds in extract_types(types or TYPES):
        print(f"{kind:16} {seconds:6.1f} s  {found}", flush=True)
        failed += found.startswith("error")
    print(f"{len(types or TYPES) - failed} of {len(types or TYPES)} types are read")
    return int(failed > 2)


if __name__ == "__main__":
    sys.exit(main(tuple(sys.argv[1:])))
