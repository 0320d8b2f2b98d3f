"""Configuration files of small models, as transformers reads them."""

import json
from pathlib import Path
from typing import Any

SIZES = "hidden_size num_hidden_layers num_attention_heads num_key_value_heads intermediate_size"
GPT2 = {"n_layer": 2, "n_embd": 8, "n_head": 2, "n_positions": 16, "vocab_size": 11}
"""Two layers of 8 channels."""


def write_config(folder: Path, kind: str, **fields: Any) -> str:
    """The name of a model of these fields."""
    path = folder / "config.json"
    path.write_text(json.dumps({"model_type": kind, **fields}))
    return f"hf:{path}"


def config(folder: Path, kind: str, sizes: str, **more: Any) -> str:
    """Channels, layers, heads of queries and of keys, channels of the MLP, tokens known."""
    return write_config(folder, kind, **{**sized(sizes), **more})


def sized(sizes: str) -> dict[str, int]:
    """The fields of `config` alone."""
    return dict(zip([*SIZES.split(), "vocab_size"], map(int, sizes.split()), strict=True))


def fields(text: str) -> dict[str, Any]:
    """Whole numbers by name, of ``a=1 b=2``."""
    return {name: int(size) for name, _, size in (each.partition("=") for each in text.split())}


def gpt2(folder: Path, **fields: Any) -> str:
    """A GPT-2 of two layers."""
    return write_config(folder, "gpt2", **{**GPT2, **fields})
