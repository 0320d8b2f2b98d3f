"""How weights are stored: bits per weight with their scales, and which weights a format leaves out.

What a format stores in fewer bits are tensors of two or more axes. Norms and biases have one; they,
and routers, stay in the model's number type. Embeddings and the head stay, too, in formats that
replace linear layers: GPTQ and AWQ quantize the layers of blocks, and bitsandbytes, fp8 and mxfp4
skip the head (``modules_to_not_convert`` of transformers' quantization configurations, which also
says what else a file leaves out). Files of llama.cpp quantize every matrix.

A weight that is quantized in groups has, for each group, a scale, and a zero point where the format
has one, so that its bits are those of the number and a share of those two.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from fractions import Fraction
from math import ceil
from typing import Any, Literal

from placegap.instances.reading.errors import InputError, instead_of

Role = Literal["matrix", "embedding", "head", "router"]

Part = Literal["linear", "all", "experts"]

MOST_BITS = 64  # of a weight: no number type of a model has more


@dataclass(frozen=True)
class WeightFormat:
    name: str
    bits: Fraction  # per weight, with its share of scales and zero points
    #: Whether embeddings and the head stay as they are, nothing does, or only stacks of experts are
    #: stored in it.
    part: Part = "linear"
    #: Modules that stay as they are: paths, their ends, patterns (``*``), or ``re:`` and a regular
    #: expression.
    left_out: tuple[str, ...] = ()

    def bits_of(self, module: str, num_axes: int, role: Role = "matrix") -> Fraction | None:
        """Bits per weight of a tensor that a module holds; None where it stays as it is."""
        kept = role == "router" or (self.part != "all" and role != "matrix")
        if kept or num_axes < (3 if self.part == "experts" else 2):
            return None
        return None if any(_names(entry, module) for entry in self.left_out) else self.bits


@dataclass(frozen=True)
class PartFormats:
    """Formats of parts of a model, by their names (`PARTS`)."""

    # Parts that it does not name are stored as ``rest`` is, or stay as they are.
    name: str
    formats: Mapping[str, WeightFormat]

    def bits_of(self, module: str, num_axes: int, role: Role = "matrix") -> Fraction | None:
        """Bits per weight of a tensor that a module holds; None where it stays as it is."""
        part = "experts" if num_axes > 2 or "experts" in module.split(".") else role
        if part in self.formats:
            return self.formats[part].bits_of(module, num_axes)
        rest = self.formats.get("rest")
        return None if rest is None else rest.bits_of(module, num_axes, role)


PARTS = ("experts", "embedding", "head", "rest")  # of a model, whose weights may differ in format

Weights = WeightFormat | PartFormats


def stored_bytes(num_weights: int, bits: Fraction) -> int:
    """Bytes of weights, rounded up."""
    return ceil(num_weights * bits / 8)


def _names(entry: str, module: str) -> bool:
    """Whether an entry of what is left out names a module, one above it, or the end of its path."""
    if entry.startswith("re:"):
        return re.match(entry.removeprefix("re:"), module) is not None
    forms = (entry, f"{entry}.*", f"*.{entry}", f"*.{entry}.*")
    return any(fnmatch(module, form) for form in forms)


def grouped_bits(bits: int, group: int, scale_bits: int, zero_bits: int = 0) -> Fraction:
    """Bits of a weight with its share of a scale and a zero point; no group: theirs is nothing."""
    return bits + (Fraction(scale_bits + zero_bits, group) if group > 0 else Fraction(0))


FLOATS = {"float32": 32, "float16": 16, "bfloat16": 16}

LINEAR = {
    # one scale for a row or a tensor of 8-bit weights, below 0.1 % of them: not counted
    "float8": Fraction(8),
    "int8": Fraction(8),
    # GPTQ and AWQ as they are usually published: 128 weights share a float16 scale and a zero point
    "int4": grouped_bits(4, 128, 16, 4),
    "int3": grouped_bits(3, 128, 16, 3),
    # bitsandbytes (Dettmers et al. 2023, section 3): 64 weights share a float32 scale
    "nf4": grouped_bits(4, 64, 32),
    # 16 weights share a float8 scale (NVIDIA's NVFP4)
    "nvfp4": grouped_bits(4, 16, 8),
}

# OCP Microscaling Formats 1.0: 32 weights share an 8-bit scale; gpt-oss stores experts so.
EXPERTS = {"mxfp4": grouped_bits(4, 32, 8)}

# Bits per weight of files of llama.cpp, embeddings and head included.
GGUF = {
    # blocks of one type, as ggml-common.h of llama.cpp lays them out
    **{"q4_0": "4.5", "q4_1": "5", "q5_0": "5.5", "q5_1": "6"},
    **{"q1_0": "1.125", "tq1_0": "1.6875", "tq2_0": "2.0625"},
    # mixtures: averages of Llama-3.1-8B, llama.cpp's tools/quantize/README.md; its row of q3_k_m
    # repeats q4_k_s, so that one is the average of the types that its tensors get
    **{"iq1_s": "2.0042", "iq1_m": "2.1460", "iq2_xxs": "2.3824", "iq2_xs": "2.5882"},
    **{"iq2_s": "2.7403", "iq2_m": "2.9294", "q2_k_s": "2.9697", "q2_k": "3.1593"},
    **{"iq3_xxs": "3.2548", "iq3_xs": "3.4977", "iq3_s": "3.6606", "iq3_m": "3.7628"},
    **{"q3_k_s": "3.6429", "q3_k_m": "3.9960", "q3_k_l": "4.2979"},
    **{"iq4_xs": "4.4597", "iq4_nl": "4.6818", "q4_k_s": "4.6672", "q4_k_m": "4.8944"},
    **{"q5_k_s": "5.5704", "q5_k_m": "5.7036", "q6_k": "6.5633", "q8_0": "8.5008"},
    # other names of llama-quantize
    **{"q3_k": "3.9960", "q4_k": "4.8944", "q5_k": "5.7036"},
    # Unsloth's dynamic mixtures, which differ by model: as the largest ones of llama.cpp
    **{"q3_k_xl": "4.2979", "q4_k_xl": "4.8944", "q5_k_xl": "5.7036"},
    **{"f32": "32", "f16": "16", "bf16": "16"},
}

FORMATS: Mapping[str, WeightFormat] = {
    **{name: WeightFormat(name, Fraction(bits), "all") for name, bits in FLOATS.items()},
    **{name: WeightFormat(name, bits) for name, bits in LINEAR.items()},
    **{name: WeightFormat(name, bits, "experts") for name, bits in EXPERTS.items()},
    **{name: WeightFormat(name, Fraction(bits), "all") for name, bits in GGUF.items()},
}

FORMATS_OF_PARTS = {"mxfp4_moe": "experts=mxfp4,rest=q8_0"}

# Bits of a key or value in a cache, by the names that tools have for them.
CACHE_BITS: Mapping[str, Fraction] = {
    **{name: Fraction(32) for name in ("f32", "float32")},
    **{name: Fraction(16) for name in ("f16", "float16", "bf16", "bfloat16")},
    # vLLM's and SGLang's; one scale for a layer
    **{name: Fraction(8) for name in ("fp8", "fp8_e4m3", "fp8_e5m2", "float8", "int8")},
    # llama.cpp's, in blocks of 32
    **{name: Fraction(GGUF[name]) for name in ("q4_0", "q4_1", "q5_0", "q5_1")},
    "iq4_nl": Fraction("4.5"),
    "q8_0": Fraction("8.5"),
}
# What attention reaches of the bandwidth on these caches of llama.cpp, as if they had 16 bits:
# 7 runs of more than 4,000 tokens on an RTX 4070 and an RTX 3060 are off by 1.06, not by 1.13.
BLOCK_CACHE_PERCENT = 55


def slower_cache(kv_dtype: object) -> Fraction:
    """How many times its bytes a cache counts at `BLOCK_CACHE_PERCENT`; 0 for no type of blocks."""
    name = str(kv_dtype).lower()
    is_block = name in CACHE_BITS and "q" in name
    return 16 / CACHE_BITS[name] if is_block else Fraction(0)


def cache_bits(text: str) -> Fraction:
    """Bits of a number in a cache of keys and values."""
    if text.lower() not in CACHE_BITS:
        hint = instead_of(text.lower(), CACHE_BITS)
        raise InputError(f"--kv-dtype {text!r} is not one of {', '.join(CACHE_BITS)}{hint}")
    return CACHE_BITS[text.lower()]


def weight_format(text: str) -> Weights:
    """A format by its name, its bits per weight, or those of its parts."""
    # Bits are those of linear layers, scales included; parts are ``experts=q4_k_m,rest=q8_0``.
    name = text.lower()
    name = FORMATS_OF_PARTS.get(name, name)
    if "=" in name:
        stated = [part.strip().partition("=")[::2] for part in name.split(",")]
        unknown = next((part for part, _ in stated if part not in PARTS), None)
        if unknown is not None:
            raise InputError(f"--weights {text!r}: {unknown!r} is not one of {', '.join(PARTS)}")
        return PartFormats(text, {part: _one_format(own) for part, own in stated})
    return _one_format(name)


def _one_format(name: str) -> WeightFormat:
    if name in FORMATS:
        return FORMATS[name]
    if re.fullmatch(r"[0-9]{1,2}(\.[0-9]{1,6})?", name):
        bits = Fraction(name)
        if 0 < bits <= MOST_BITS:
            return WeightFormat(f"{name} bits", bits)
    hint = instead_of(name, FORMATS)
    raise InputError(
        f"--weights {name!r} is not a format{hint}: one of {', '.join(FORMATS)}, or a number of"
        " bits per weight, scales included"
    )


def configured_format(raw: Any) -> WeightFormat:
    """The format of a ``quantization_config`` of Hugging Face."""
    if not isinstance(raw, Mapping):
        raise InputError("its quantization_config is not a mapping")
    method = str(raw.get("quant_method") or "").lower().replace("_", "-")
    if not method and ("load_in_4bit" in raw or "load_in_8bit" in raw):
        method = "bitsandbytes"
    method = method or ("compressed-tensors" if "config_groups" in raw else "")
    read = METHODS.get(method)
    if read is None:
        known = ", ".join(METHODS)
        raise InputError(
            f"its quantization_config is of the method {method!r}, none of {known}; say how many"
            " bits a weight has (--weights 4.5)"
        )
    bits, part = read(raw)
    left_out: list[str] = []
    for key in ("modules_to_not_convert", "llm_int8_skip_modules", "skip_modules", "ignore"):
        found = raw.get(key)
        if isinstance(found, str):
            left_out.append(found)
        elif isinstance(found, Sequence):
            left_out += [str(entry) for entry in found]
    for entry in left_out:
        try:
            re.compile(entry.removeprefix("re:") if entry.startswith("re:") else "")
        except re.error as error:
            raise InputError(f"its quantization_config leaves out {entry!r}: {error}") from None
    return WeightFormat(method, bits, part, tuple(left_out))


def _number(raw: Mapping[str, Any], names: Sequence[str], default: int) -> int:
    """A whole number that a configuration states under one of some names; -1 is no group."""
    value = next((raw[name] for name in names if raw.get(name) is not None), default)
    if isinstance(value, bool) or not isinstance(value, int) or not -1 <= value <= 1 << 20:
        raise InputError(
            f"its quantization_config states {names[0]} {value!r}, which is not a size"
        )
    return value


def _bits(raw: Mapping[str, Any], names: Sequence[str], default: int) -> int:
    found = _number(raw, names, default)
    if not 1 <= found <= 16:
        raise InputError(f"its quantization_config states {found} bits; a weight has 1 to 16")
    return found


def _gptq(raw: Mapping[str, Any]) -> tuple[Fraction, Part]:
    """GPTQ, AWQ and AutoRound store a float16 scale and a zero point of each group."""
    bits = _bits(raw, ("bits", "w_bit"), 4)
    return grouped_bits(bits, _number(raw, ("group_size", "q_group_size"), 128), 16, bits), "linear"


def _bitsandbytes(raw: Mapping[str, Any]) -> tuple[Fraction, Part]:
    """8 bits with a scale per row, or 4 bits with a scale of 64."""
    # Double quantization stores that in 8 bits, and 256 of them share a float32 (Dettmers et al.
    # 2023, section 3).
    if not (raw.get("load_in_4bit") or raw.get("_load_in_4bit")):
        return Fraction(8), "linear"
    if raw.get("bnb_4bit_use_double_quant"):
        return grouped_bits(4, 64, 8) + Fraction(32, 64 * 256), "linear"
    return FORMATS["nf4"].bits, "linear"


def _fp8(raw: Mapping[str, Any]) -> tuple[Fraction, Part]:
    """One float32 scale for a block of weights, where the configuration has blocks."""
    block = raw.get("weight_block_size")
    if not isinstance(block, list | tuple) or len(block) != 2:
        return Fraction(8), "linear"
    rows, columns = (
        _number({"weight_block_size": side}, ("weight_block_size",), 0) for side in block
    )
    return grouped_bits(8, rows * columns, 32), "linear"


def _compressed(raw: Mapping[str, Any]) -> tuple[Fraction, Part]:
    """The weights of the first group; a group of them has a 16-bit scale."""
    groups = raw.get("config_groups")
    first = next(iter(groups.values()), None) if isinstance(groups, Mapping) else None
    weights = first.get("weights") if isinstance(first, Mapping) else None
    if not isinstance(weights, Mapping):
        raise InputError("its quantization_config has no config_groups that say how weights are")
    bits = _bits(weights, ("num_bits",), 8)
    zero = 0 if weights.get("symmetric", True) else bits
    return grouped_bits(bits, _number(weights, ("group_size",), -1), 16, zero), "linear"


def _hqq(raw: Mapping[str, Any]) -> tuple[Fraction, Part]:
    """A float16 scale and a float16 zero point of each group (`HqqConfig`)."""
    inner = raw.get("quant_config")
    own = inner.get("weight_quant_params") if isinstance(inner, Mapping) else None
    stated = own if isinstance(own, Mapping) else raw
    bits = _bits(stated, ("nbits",), 4)
    return grouped_bits(bits, _number(stated, ("group_size",), 64), 16, 16), "linear"


METHODS: Mapping[str, Any] = {
    "gptq": _gptq,
    "awq": _gptq,
    "auto-round": _gptq,
    "bitsandbytes": _bitsandbytes,
    "fp8": _fp8,
    "fbgemm-fp8": _fp8,
    "mxfp4": lambda raw: (FORMATS["mxfp4"].bits, "experts"),
    "nvfp4": lambda raw: (FORMATS["nvfp4"].bits, "linear"),
    "compressed-tensors": _compressed,
    "eetq": lambda raw: (Fraction(8), "linear"),
    "hqq": _hqq,
}
"""Method of a quantization configuration -> what reads its bits and part."""
