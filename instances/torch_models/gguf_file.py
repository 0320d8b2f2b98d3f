"""Models of llama.cpp by the header of their GGUF file: sizes, and every tensor as it is stored.

The metadata become a configuration of transformers, and each of the model's parameters is matched
with the tensors that hold it, by the names of the package gguf. No weights are read: a file that
ends with its header will do. What does not fit (another shape, tensors left over) is refused, so
that no architecture is taken for another.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import chain
from math import prod
from pathlib import Path
from struct import calcsize, unpack
from struct import error as struct_error
from typing import Any, BinaryIO

from placegap.instances.reading.errors import InputError, MissingExtra
from placegap.instances.reading.input_files import check_regular

MAGIC = b"GGUF"

# Codes of `struct` by the format's numbers for types; 8 is a text, 9 a list.
SCALARS = {**dict(enumerate("BbHhIif?")), 10: "Q", 11: "q", 12: "d"}
LONGEST_LIST = 10**4  # longer lists are those of the tokenizer, and are not kept

PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf", re.DOTALL)

LEAST_LEFT_OVER = 1000  # rotary tables, which transformers makes, are less than this part of a file

FIELDS: Mapping[str, tuple[str, ...]] = {
    "context_length": ("max_position_embeddings",),
    "embedding_length": ("hidden_size",),
    "feed_forward_length": ("intermediate_size", "intermediate_size_mlp"),
    "attention.head_count": ("num_attention_heads",),
    "attention.head_count_kv": ("num_key_value_heads",),
    "attention.key_length": ("head_dim",),
    "attention.q_lora_rank": ("q_lora_rank",),
    "attention.kv_lora_rank": ("kv_lora_rank",),
    "attention.value_length_mla": ("v_head_dim",),
    "attention.sliding_window": ("sliding_window",),
    "expert_count": ("num_experts", "num_local_experts", "n_routed_experts"),
    "expert_used_count": ("num_experts_per_tok",),
    "expert_feed_forward_length": ("moe_intermediate_size",),
    "expert_shared_count": ("n_shared_experts",),
    "expert_shared_feed_forward_length": ("shared_expert_intermediate_size",),
    "expert_group_count": ("n_group",),
    "expert_group_used_count": ("topk_group",),
    "expert_weights_norm": ("norm_topk_prob",),
    "leading_dense_block_count": ("first_k_dense_replace",),
    "nextn_predict_layers": ("num_nextn_predict_layers",),
    "full_attention_interval": ("full_attention_interval",),
    "ssm.conv_kernel": ("linear_conv_kernel_dim",),
    "ssm.state_size": ("linear_key_head_dim", "linear_value_head_dim"),
    "ssm.group_count": ("linear_num_key_heads",),
    "ssm.time_step_rank": ("linear_num_value_heads",),
}
"""Metadata of a model -> fields of configurations of transformers, under all of their names."""

# Architectures that transformers calls otherwise, more than by lines and case.
MODEL_TYPES = {
    "command-r": "cohere",
    "gemma3": "gemma3_text",
    "gemma4": "gemma4_text",
    "llama4": "llama4_text",
    "qwen35": "qwen3_5_text",
    "qwen35moe": "qwen3_5_moe_text",
}

# Projections of transformers that files may keep in parts.
JOINT = {"gate_up_proj": ("gate_proj", "up_proj"), "kv_b_proj": ("k_b_proj", "v_b_proj")}

OTHER_SHAPE = (
    "has another shape than its metadata state, or is too new; place its config.json (hf:PATH)"
)


@dataclass
class GgufHeader:
    """What stands before the weights, of all parts of a model."""

    path: Path
    metadata: dict[str, Any] = field(default_factory=dict)
    #: Shape, slowest axis first, and bytes of each tensor.
    tensors: dict[str, tuple[tuple[int, ...], int]] = field(default_factory=dict)

    def value(self, name: str, default: Any = None) -> Any:
        """A value of the architecture's own."""
        return self.metadata.get(f"{self.metadata['general.architecture']}.{name}", default)

    @property
    def layers_left_out(self) -> int:
        """Layers of multi-token prediction, which transformers does not build."""
        return int(self.value("nextn_predict_layers", 0))


def import_gguf(source: str | Path) -> Any:
    """Import the package that knows the types and names of tensors."""
    try:
        import gguf
    except ImportError:
        raise MissingExtra("needs gguf: pip install 'placegap[gguf]'", source) from None
    return gguf


def read_gguf_header(path: Path) -> GgufHeader:
    """The header of a model, of all its parts (``-00001-of-00003.gguf``)."""
    gguf, paths = import_gguf(path), [path]
    if match := PART.fullmatch(path.name):
        names = (f"{match[1]}-{k:05d}-of-{match[3]}.gguf" for k in range(1, int(match[3]) + 1))
        paths = [path.with_name(name) for name in names]
    header = GgufHeader(path)
    for part in paths:
        check_regular(part)
        try:
            with part.open("rb") as file:
                _read_part(file, header, gguf)
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", part) from None
        except struct_error:
            raise InputError("its header ends too early; download the file again", part) from None
        except (ValueError, KeyError, MemoryError, OverflowError, RecursionError) as error:
            raise InputError(
                f"its header is damaged, or newer than the package gguf: {error}", part
            ) from None
    if not isinstance(header.metadata.get("general.architecture"), str) or not header.tensors:
        raise InputError("its header names no architecture, or no tensors", path)
    stated = header.metadata.get("split.count", len(paths))
    if stated != len(paths):
        raise InputError(f"is one of {stated} parts; name the first as it was downloaded", path)
    return header


def _read_part(file: BinaryIO, header: GgufHeader, gguf: Any) -> None:
    if file.read(4) != MAGIC:
        raise ValueError("it does not begin with GGUF")
    version, num_tensors, num_fields = unpack("<IQQ", file.read(20))
    if version not in (2, 3):
        raise ValueError(f"it is of version {version}, not 2 or 3")
    found = {}
    for _ in range(num_fields):
        name = _text(file)
        found[name] = _value(file, *_numbers(file, "I"))
    header.metadata = {**found, **header.metadata}  # the first part has the model's
    for _ in range(num_tensors):
        name = _text(file)
        (num_axes,) = _numbers(file, "I")
        if num_axes > 8:
            raise ValueError(f"tensor {name!r} has {num_axes} axes")
        *shape, number, _ = _numbers(file, f"{num_axes}QIQ")
        block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(number)]
        header.tensors[name] = tuple(reversed(shape)), prod(shape) // block * size


def _numbers(file: BinaryIO, codes: str) -> tuple[Any, ...]:
    return unpack(f"<{codes}", file.read(calcsize(f"<{codes}")))


def _text(file: BinaryIO) -> str:
    (length,) = _numbers(file, "Q")
    if length > 1 << 20:
        raise ValueError(f"a text has {length} bytes")
    text = file.read(length)
    if len(text) < length:
        raise struct_error
    return text.decode(errors="replace")


def _value(file: BinaryIO, kind: int) -> Any:
    if kind == 8:
        return _text(file)
    if kind != 9:
        return _numbers(file, SCALARS[kind])[0]
    inner, length = _numbers(file, "IQ")
    if inner in SCALARS and length > LONGEST_LIST:
        file.seek(length * calcsize(f"<{SCALARS[inner]}"), 1)
        return None
    values = (_value(file, inner) for _ in range(length))
    if length <= LONGEST_LIST:
        return [*values]
    return sum(1 for _ in values)  # reads them


def configuration(header: GgufHeader, model_types: Sequence[str]) -> dict[str, Any]:
    """The configuration of transformers that a model's metadata state; `model_types` it knows."""
    architecture = header.metadata["general.architecture"]
    layers, embedding = header.value("block_count"), header.tensors.get("token_embd.weight")
    if not isinstance(layers, int) or embedding is None:
        raise InputError("its header states no block_count, or no token_embd.weight", header.path)
    raw: dict[str, Any] = {
        "model_type": _model_type(header, architecture, model_types),
        "dtype": "float16",  # in which llama.cpp keeps its cache
        "num_hidden_layers": layers - header.layers_left_out,
        "vocab_size": embedding[0][0],
        "tie_word_embeddings": "output.weight" not in header.tensors,
        "sliding_window": None,
        "q_lora_rank": None,
        "norm_topk_prob": True,
        "pad_token_id": None,
    }
    for name, fields in FIELDS.items():
        value = header.value(name)
        if isinstance(value, list) and len({*value}) == 1:
            value = value[0]
        if isinstance(value, list):
            raise InputError(
                f"its layers differ in {name}; place its config.json (hf:PATH)", header.path
            )
        raw |= {} if value is None else dict.fromkeys(fields, value)
    for name, own in (("attention_bias", "attn_q.bias"), ("use_qk_norm", "attn_q_norm.weight")):
        if f"blk.0.{own}" in header.tensors:
            raw[name] = True
    if raw["model_type"] == "llama4_text":
        raw["intermediate_size"] = raw.get("moe_intermediate_size")
    rotated, whole = header.value("rope.dimension_count"), header.value("attention.key_length_mla")
    if raw.get("kv_lora_rank") and rotated:  # files before 2025 state the length of whole keys
        raw |= {"qk_rope_head_dim": rotated, "head_dim": rotated}
        raw["num_key_value_heads"] = raw.get("num_attention_heads")
        raw["qk_nope_head_dim"] = (whole or header.value("attention.key_length", 0)) - rotated
        raw.setdefault("v_head_dim", header.value("attention.value_length"))
    return raw


def _model_type(header: GgufHeader, architecture: str, model_types: Sequence[str]) -> str:
    wanted = MODEL_TYPES.get(architecture, architecture)
    if architecture == "llama" and header.value("expert_count"):
        wanted = "mixtral"
    if architecture == "deepseek2":  # gating by a sigmoid is V3's
        wanted = "deepseek_v3" if header.value("expert_gating_func") == 2 else "deepseek_v2"
    plain = {re.sub("[-_.]", "", kind): kind for kind in model_types}
    found = plain.get(re.sub("[-_.]", "", wanted.lower()))
    if found is None:
        raise InputError(
            f"transformers has no model of its architecture {architecture!r}; place a config.json"
            " of its shape (hf:PATH)",
            header.path,
        )
    return found


def stored_as(header: GgufHeader, module: Any) -> dict[str, Fraction]:
    """Bits per weight of every parameter of a model, by name, as the file stores it."""
    gguf, tensors = import_gguf(header.path), header.tensors
    architecture = header.metadata["general.architecture"]
    numbers = {name: number for number, name in gguf.MODEL_ARCH_NAMES.items()}
    if architecture not in numbers:
        raise InputError(f"the package gguf does not know {architecture!r}", header.path)
    layers = header.value("block_count")
    names = gguf.get_tensor_name_map(numbers[architecture], layers)
    other_shape = f"{OTHER_SHAPE}: the {type(module).__name__} of transformers"
    bits, read = dict[str, Fraction](), set[str]()
    for name, parameter in module.named_parameters():
        size, found = int(parameter.numel()), _tensors_of(name, names)
        held = next((each for each in found if _size(each, tensors) == size), None)
        if held is not None:
            read.update(held)
            bits[name] = Fraction(8 * sum(tensors[each][1] for each in held), size)
        elif parameter.dim() > 1 or any(each in tensors for each in chain(*found)):
            shape = tuple(parameter.shape)
            raise InputError(f"{other_shape} has {name!r} of {shape}", header.path)
    last = tuple(f"blk.{layers - 1 - at}." for at in range(header.layers_left_out))
    left = {
        name: size
        for name, (_, size) in tensors.items()
        if name not in read and not name.startswith(last)
    }
    if LEAST_LEFT_OVER * sum(left.values()) > sum(size for _, size in tensors.values()):
        largest = max(left, key=lambda name: left[name])
        raise InputError(f"{other_shape} has no {largest!r}", header.path)
    return bits


def _size(names: Iterable[str], tensors: Mapping[str, tuple[tuple[int, ...], int]]) -> int:
    """Weights of tensors; 0 where one is missing."""
    names = [*names]
    return sum(prod(tensors[name][0]) for name in names) if {*names} <= tensors.keys() else 0


def _tensors_of(name: str, names: Any) -> list[list[str]]:
    """What may hold a parameter: one tensor, or the parts of a joint projection."""
    stem, _, kind = name.rpartition(".")
    if kind not in ("weight", "bias"):
        stem, kind = name.removesuffix("_bias"), "bias" if name.endswith("_bias") else "weight"
    ways = [[stem]]
    for joint, parts in JOINT.items():
        if stem.endswith(joint):
            ways.append([stem.removesuffix(joint) + part for part in parts])
    return [[f"{names.get_name(each)}.{kind}" for each in way] for way in ways]
