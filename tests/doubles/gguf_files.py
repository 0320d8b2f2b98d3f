"""GGUF files that end with their header, by the writer of the package gguf."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

Tensors = Mapping[str, tuple[tuple[int, ...], str]]
"""Shape, slowest axis first, and type of every tensor."""

LLAMA = {
    "block_count": 8,
    "embedding_length": 512,
    "feed_forward_length": 1024,
    "attention.head_count": 8,
    "attention.head_count_kv": 2,
    "context_length": 4096,
    "rope.dimension_count": 64,
}
"""Eight layers of 512 channels."""


def llama_tensors(down: Mapping[int, str] | None = None) -> dict[str, tuple[tuple[int, ...], str]]:
    """Those of `LLAMA` in Q4_K, the head in Q6_K; `down` are other types of ffn_down, by layer."""
    found: dict[str, tuple[tuple[int, ...], str]] = {
        "token_embd.weight": ((1000, 512), "Q4_K"),
        "output_norm.weight": ((512,), "F32"),
        "output.weight": ((1000, 512), "Q6_K"),
    }
    for at in range(8):
        layer = {
            "attn_norm": ((512,), "F32"),
            "attn_q": ((512, 512), "Q4_K"),
            "attn_k": ((128, 512), "Q4_K"),
            "attn_v": ((128, 512), "Q4_K"),
            "attn_output": ((512, 512), "Q4_K"),
            "ffn_norm": ((512,), "F32"),
            "ffn_gate": ((1024, 512), "Q4_K"),
            "ffn_up": ((1024, 512), "Q4_K"),
            "ffn_down": ((512, 1024), (down or {}).get(at, "Q4_K")),
        }
        found |= {f"blk.{at}.{name}.weight": each for name, each in layer.items()}
    return found


ROUTED = {"expert_count": 8, "expert_used_count": 2, "expert_feed_forward_length": 256}


def with_experts(
    own: Mapping[str, tuple[tuple[int, ...], str]], layers: int = 3, dense: int = 0
) -> dict[str, tuple[tuple[int, ...], str]]:
    """Layers of 512 channels whose attention is `own`, with 8 experts, of 256 channels in Q4_K and
    back in Q6_K; the first `dense` ones have a feed-forward of 1024 in their place.
    """
    found: dict[str, tuple[tuple[int, ...], str]] = {
        "token_embd.weight": ((1000, 512), "Q4_K"),
        "output_norm.weight": ((512,), "F32"),
        "output.weight": ((1000, 512), "Q6_K"),
    }
    experts = {
        "ffn_gate_inp": ((8, 512), "F32"),
        "ffn_gate_exps": ((8, 256, 512), "Q4_K"),
        "ffn_up_exps": ((8, 256, 512), "Q4_K"),
        "ffn_down_exps": ((8, 512, 256), "Q6_K"),
    }
    whole = {name: llama_tensors()[f"blk.0.{name}.weight"] for name in ("ffn_gate", "ffn_up")}
    whole["ffn_down"] = ((512, 1024), "Q4_K")
    for at in range(layers):
        norms = dict.fromkeys(("attn_norm", "ffn_norm"), ((512,), "F32"))
        layer = {**norms, **own, **(whole if at < dense else experts)}
        found |= {f"blk.{at}.{name}.weight": each for name, each in layer.items()}
    return found


def write_gguf(
    path: Path,
    tensors: Tensors,
    values: Mapping[str, Any] = LLAMA,
    architecture: str = "llama",
    **general: Any,
) -> str:
    """The name of a file with these metadata and tensors, and without weights."""
    import gguf
    import numpy as np

    writer = gguf.GGUFWriter(path, architecture)
    everything = {f"{architecture}.{name}": value for name, value in values.items()}
    for name, value in {**everything, **general}.items():
        match value:
            case bool():
                writer.add_bool(name, value)
            case int():
                writer.add_uint32(name, value)
            case float():
                writer.add_float32(name, value)
            case _:
                writer.add_array(name, value)
    for name, (shape, kind) in tensors.items():
        number = gguf.GGMLQuantizationType[kind]
        stored = gguf.quant_shape_to_byte_shape(shape, number)
        writer.add_tensor_info(name, stored, np.dtype(np.uint8), int(np.prod(stored)), number)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    return str(path)


def write_parts(folder: Path, tensors: Tensors, parts: int) -> Iterator[str]:
    """The names of a llama in parts; the first has the metadata, as llama.cpp's splitter writes."""
    names = [*tensors]
    for at in range(parts):
        own = {name: tensors[name] for name in names[at::parts]}
        path = folder / f"m-{at + 1:05d}-of-{parts:05d}.gguf"
        split = {"split.no": at, "split.count": parts, "split.tensors.count": len(names)}
        yield write_gguf(path, own, {} if at else LLAMA, **split)
