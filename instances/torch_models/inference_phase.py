"""What one step of inference reads besides its inputs: the cache of attention, routed experts.

A forward pass is traced without a cache. Decoding traces one token of each sequence, and attention
gets the cache that such a step finds: its bytes are read and held, and its FLOPs are those of the
new token against all tokens that are kept. How many are kept, and what is kept of each, the
attention module and its configuration say: shared heads (GQA, MQA) once, the last tokens of a
sliding window or of a chunk, and of multi-head latent attention (DeepSeek-AI 2024, arXiv
2405.04434, section 2.1) the latent and the rotated key, which queries meet directly there.

`Op.kernel` says of attention and of products of routed experts which kernel of a table they are.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from functools import partial
from math import ceil, prod
from typing import Any, Literal

from placegap.instances.costing.weight_formats import cache_bits, stored_bytes
from placegap.instances.problem import AttentionKernel, ExpertsKernel
from placegap.instances.problem.modules import is_tower
from placegap.instances.torch_models.fx_nodes import (
    ATTENTION,
    GROUPED,
    attention_flops,
    bytes_of,
    is_view,
    kind_of_node,
    number_type,
    sizes_of,
    tensors_in,
)
from placegap.instances.torch_models.fx_reader import FxProgram, FxTensor
from placegap.instances.torch_models.options import TraceOptions

# Ops that hand the heads of keys and values to several heads of queries.
REPEATS = frozenset({"expand", "clone", "repeat", "repeat_interleave", "index_select"})
FUSED = "placegap_fused"  # name of `fused_attention` among the implementations of transformers
PACKED = "placegap_flash"  # its name by which transformers hands over what is packed as one row


def add_kv_cache(program: FxProgram, graph: Any, module: Any, options: TraceOptions) -> int:
    """Add the cache of `options.cached_tokens` to every attention op; how many have one."""
    # It is a part of the op's state, and a step that decodes reads it. Attention of encoders and
    # towers has none, and cross-attention has the keys and values of the encoder's tokens.
    ops = {op["name"]: op for op in program.ops}
    found = 0
    for node in graph.nodes:
        if node.op != "call_function" or kind_of_node(node) not in ATTENTION:
            continue
        op = ops.get(program.op_of.get(node.name, ""))
        if op is None or _sees_all(module, op["module"] or ""):
            continue
        owner = module.get_submodule(op["module"] or "")
        if is_cross_attention(op["module"] or ""):
            kept = 0 if options.decode else sum(_least_bytes(each) for each in node.args[1:3])
            op["state_bytes"] += kept  # what it finds is in the cache of a step
            op["resident_bytes"] += kept
            continue
        query, key, value = (sizes_of(tensors_in(node.args[at])[0]) for at in range(3))
        per_token = sum(_least_bytes(each) // key[-2] for each in node.args[1:3])
        latent, rotated = (
            getattr(owner, name, None) for name in ("kv_lora_rank", "qk_rope_head_dim")
        )
        if latent and rotated:
            per_token = key[0] * (latent + rotated) * tensors_in(node)[0].dtype.itemsize
            key = (*key[:-1], latent + rotated)
            query, value = (*query[:-1], latent + rotated), (*value[:-1], latent)
        if options.kv_dtype is not None:
            number_bytes = tensors_in(node.args[1])[0].dtype.itemsize
            per_token = stored_bytes(per_token // number_bytes, cache_bits(options.kv_dtype))
        tokens, most = options.cached_tokens, _window(owner)
        cache = {"token_bytes": per_token, "tokens": tokens, "most_tokens": most}
        op.setdefault("caches", []).append(cache)
        tokens = tokens if most is None else min(tokens, most)
        op["state_bytes"] += per_token * tokens
        op["resident_bytes"] += per_token * tokens
        if options.decode:
            op["bytes_moved"] += per_token * tokens
            op["flops"] = attention_flops(query, (*key[:-2], tokens, key[-1]), value)
        found += 1
    return found


def add_kernels(program: FxProgram, graph: Any, module: Any, options: TraceOptions) -> None:
    """Say which kernels forward attention and the products of routed experts are."""
    ops = {op["name"]: op for op in program.ops}
    routed, chosen = defaultdict[tuple[str, int], list[Any]](list), 0
    for node in graph.nodes:
        op, kind = ops.get(program.op_of.get(node.name, "")), kind_of_node(node)
        if kind == "topk":
            chosen = node.args[1]
        elif op is None or op["backward"]:
            continue
        elif kind in ATTENTION:
            op["kernel"] = _attention_kernel(node, module, op["module"] or "", options)
        elif kind in GROUPED and chosen:
            routed[op["module"] or "", chosen].append(node)
    for (_, chosen), nodes in routed.items():
        parts = [ops[program.op_of[node.name]] for node in nodes]
        kernel = _experts_kernel(program, nodes, chosen)
        if kernel is not None and kernel.flops == sum(op["flops"] for op in parts):
            for op in parts:
                op["kernel"] = kernel


def _attention_kernel(
    node: Any, module: Any, path: str, options: TraceOptions
) -> AttentionKernel | None:
    """None for latent and cross-attention, and where no one says whether a mask is causal."""
    tensors = [tensors_in(node.args[at])[0] for at in range(3)]
    query, key, value = map(sizes_of, tensors)
    owner = module.get_submodule(path)
    phase = _attention_phase(node, owner, _sees_all(module, path), options)
    is_plain = key == value and query[-2:] == key[-2:] and all(query) and all(key)
    is_latent = getattr(owner, "kv_lora_rank", None) is not None
    if phase is None or is_latent or is_cross_attention(path) or not is_plain:
        return None
    kv_heads = key[-3] * _least_bytes(node.args[1]) // bytes_of(tensors[1])
    if not kv_heads or query[-3] % kv_heads:
        return None
    window, held = _window(owner), options.cached_tokens if phase == "generation" else 0
    return AttentionKernel(
        phase=phase,
        batch=prod(query[:-3]),
        heads=query[-3],
        kv_heads=kv_heads,
        head_size=query[-1],
        new_tokens=query[-2],
        held_tokens=held if window is None else min(held, window),
        dtype=number_type(tensors[0]),
        cache_dtype=_cache_type(options.kv_dtype) or number_type(tensors[1]),
        window=window,
    )


def _cache_type(kv_dtype: str | None) -> str | None:
    """The number type of a cache, where it has one: tables of kernels know no others."""
    if kv_dtype is None:
        return None
    name = kv_dtype.lower()
    types = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}
    return "float8" if name.startswith("fp8") else types.get(name, name)


def _attention_phase(
    node: Any, owner: Any, sees_all: bool, options: TraceOptions
) -> Literal["context", "generation", "encoder"] | None:
    if sees_all:
        return "encoder"
    if options.decode:
        return "generation" if sizes_of(tensors_in(node)[0])[-2] == 1 else None
    names = (each.name for each in node.target._schema.arguments)
    given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    if given.get("is_causal"):
        return "context"
    has_mask = given.get("attn_mask", given.get("attn_bias")) is not None
    causal = getattr(owner, "is_causal", None if has_mask else False)
    return None if causal is None else "context" if causal else "encoder"


def _experts_kernel(program: FxProgram, nodes: list[Any], chosen: int) -> ExpertsKernel | None:
    """The kernel that the grouped products of one module are parts of."""
    lefts, rights = ([tensors_in(node.args[at])[0] for node in nodes] for at in range(2))
    (rows, *_, hidden), (experts, inner, *_) = sizes_of(lefts[0]), sizes_of(rights[-1])
    weights = (program.read_of[node.args[1].name] for node in nodes)
    types = {number_type(tensor) for tensor in (*lefts, *rights)}
    if len(types) > 1 or any(map(FxTensor.is_packed, weights, rights)):
        return None
    has_gate = len(nodes) == 3 or sizes_of(rights[0])[-1] == 2 * inner
    return ExpertsKernel(
        tokens=max(1, rows // chosen),
        hidden=hidden,
        inner=inner,
        chosen=chosen,
        experts=experts,
        matrices=2 + has_gate,
        dtype=types.pop(),
    )


def _sees_all(module: Any, path: str) -> bool:
    """Whether attention is that of an encoder or of a tower, which keeps nothing."""
    if is_tower(path):
        return True
    encoder = getattr(module, "get_encoder", lambda: None)()
    if encoder is None or not module.config.is_encoder_decoder:
        return False
    return any(part is module.get_submodule(path) for part in encoder.modules())


# What models of transformers call attention to what the encoder made.
CROSS = ("EncDecAttention", "encoder_attn", "crossattention")


def is_cross_attention(path: str) -> bool:
    """Whether a module is attention to what an encoder made."""
    return not set(CROSS).isdisjoint(path.split("."))


def _window(attention: Any) -> int | None:
    """The most tokens whose keys and values an attention module keeps, or None for no limit."""
    config = getattr(attention, "config", None)
    kinds, at = getattr(config, "layer_types", None), getattr(attention, "layer_idx", None)
    kind = kinds[at] if kinds and at is not None else None
    if kind == "full_attention":
        return None
    limit = "attention_chunk_size" if kind == "chunked_attention" else "sliding_window"
    most = getattr(attention, limit, None) or getattr(config, limit, None)
    return most if isinstance(most, int) and most > 0 else None


def _least_bytes(node: Any) -> int:
    """Bytes of keys or values before their heads were repeated."""
    least = bytes_of(tensors_in(node)[0])
    while node.op == "call_function" and (is_view(node) or kind_of_node(node) in REPEATS):
        sources = node.all_input_nodes
        if len(sources) != 1 or len(tensors_in(sources[0])) != 1:
            break
        node = sources[0]
        if kind_of_node(node) in {"slice", "select", "split_with_sizes"}:
            break
        size = bytes_of(tensors_in(node)[0])
        if size > least:  # a slice of a larger tensor: the cache holds the slice
            break
        least = size
    return least


def read_routed_experts(program: FxProgram, graph: Any) -> None:
    """Let products of experts read the experts that tokens are routed to, and no others."""
    # These are the expected number of distinct ones, where each token picks its k of E with equal
    # chances: E (1 - (1 - k/E)^tokens), which is k for one token. Routers that prefer some experts
    # reach fewer. Where no top-k comes before the product, every row may have an expert of its own.
    ops = {op["name"]: op for op in program.ops}
    top = 1
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        if kind_of_node(node) == "topk":
            top = node.args[1]
        elif kind_of_node(node) in GROUPED and node.name in program.op_of:
            weights = program.read_of[node.args[1].name]
            rows, experts = (sizes_of(tensors_in(node.args[at])[0])[0] for at in range(2))
            if weights.held is None:
                continue
            read = float(min(rows, experts))
            if top > 1 and rows % top == 0:
                read = experts * (1 - (1 - top / experts) ** (rows // top))
            unread = weights.bytes - ceil(weights.bytes * read / experts)
            ops[program.op_of[node.name]]["bytes_moved"] -= unread


def use_fused_attention(model_class: Any, config: Any) -> None:
    """Let a model of transformers without a fused attention of its own trace as one op."""
    if model_class._supports_sdpa or not getattr(model_class, "_supports_attention_backend", False):
        return
    _use(config, FUSED)


def use_packed_attention(config: Any) -> None:
    """Let a tower that packs images attend within each of them, by one op for all."""
    _use(config, PACKED)


def _use(config: Any, name: str) -> None:
    from transformers import AttentionInterface

    AttentionInterface.register(name, fused_attention)
    config._attn_implementation = name


def fused_attention(
    module: Any,
    query: Any,
    key: Any,
    value: Any,
    attention_mask: Any,
    *,
    s_aux: Any = None,
    cu_seq_lens_q: Any = None,
    **kwargs: Any,
) -> tuple[Any, None]:
    """One op for attention, as an implementation of transformers; on the meta device alone."""
    # Learned sinks stand in the place of a mask: they are read, and the result has no other shape.
    # What is packed has parts of one length, as many as their ends say.
    from torch.nn.functional import scaled_dot_product_attention

    if cu_seq_lens_q is not None:
        parts = len(cu_seq_lens_q) - 1
        rows = [
            part.unflatten(2, (parts, -1)).squeeze(0).transpose(0, 1)
            for part in (query, key, value)
        ]
        return scaled_dot_product_attention(*rows).transpose(1, 2).flatten(0, 1)[None], None
    mask = None if s_aux is None else s_aux.reshape(1, -1, 1, 1).to(query.dtype)
    found = scaled_dot_product_attention(query, key, value, mask, enable_gqa=True)
    return found.transpose(1, 2).contiguous(), None


def use_chunks_at_once(module: Any) -> None:
    """Let a model's gated delta rule trace all chunks of tokens at once, and not one by one."""
    for name in {type(part).__module__ for part in module.modules()}:
        room = sys.modules[name]
        rule = getattr(room, DELTA_RULE, None)
        if rule is not None and not isinstance(rule, partial):
            setattr(room, DELTA_RULE, partial(_delta_rule, rule))


# What models of transformers call it (Yang et al. 2025, arXiv 2412.06464).
DELTA_RULE = "torch_chunk_gated_delta_rule"


def _delta_rule(rule: Any, *args: Any, **kwargs: Any) -> Any:
    from torch import compiler

    return (_chunks_at_once if compiler.is_exporting() else rule)(*args, **kwargs)


def _chunks_at_once(query: Any, key: Any, value: Any, g: Any, beta: Any, **more: Any) -> Any:
    """The products of every chunk and their sizes; values are none, for states are summed only."""
    import torch
    from torch.nn.functional import normalize, pad

    size = more.get("chunk_size", 64)  # what transformers and the kernels of fla take

    def chunked(part: Any) -> Any:
        padding = (0, 0) * (part.dim() - 2) + (0, -part.shape[1] % size)
        return pad(part.float(), padding).unflatten(1, (-1, size)).movedim(3, 1)

    repeats = value.shape[2] // key.shape[2]
    queries, keys = (
        normalize(chunked(part.repeat_interleave(repeats, 2)), dim=-1) for part in (query, key)
    )
    values, rates = chunked(value), chunked(beta)[..., None]
    decays = chunked(g).cumsum(-1).exp()[..., None]
    between = decays / decays.mT
    new_values, old_keys = torch.linalg.solve_triangular(
        keys * rates @ keys.mT * between,
        torch.cat((values * rates, keys * rates * decays), -1),
        upper=False,
        unitriangular=True,
    ).split((value.shape[-1], key.shape[-1]), -1)
    states = (keys.mT @ new_values).cumsum(2)
    new_values = new_values - old_keys @ states
    found = queries * decays @ states + queries @ keys.mT * between @ new_values
    found = found.movedim(1, 3).flatten(1, 2)[:, : query.shape[1]].to(query.dtype)
    return found, states[:, :, -1] if more.get("output_final_state") else None
