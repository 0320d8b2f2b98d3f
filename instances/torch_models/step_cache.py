"""What a step of decoding finds in a model's cache: recurrent states, and what an encoder left.

Linear attention, state-space models and causal convolutions keep a state of fixed size for each
sequence, and cross-attention the keys and values of the encoder's tokens. A model of transformers
runs one step of a recurrence where its cache holds a state, and else the form for many tokens. So
one token is run on the meta device first, which shows what the model keeps. That becomes inputs of
the step that is traced.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from inspect import signature
from typing import Any

from placegap.instances.torch_models.fx_nodes import bytes_of, is_view, kind_of_node, tensors_in
from placegap.instances.torch_models.fx_reader import FxProgram

STATES = "cached_states"  # input of a traced step; the names of its nodes begin with it
LAYER = re.compile(r"(?:.*?\.)??\d+(?=\.|$)")  # the path of a module up to its first number
# What models of transformers call a cache, the usual name first.
CACHES = ("past_key_values", "cache_params", "state")


def cache_inputs(module: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """What a step finds in its cache, as one more input; none where attention alone has one."""
    # A hook on the module hands it over in the model's own cache. Self-attention finds that empty,
    # for `add_kv_cache` adds what it reads.
    import torch

    name = next((each for each in CACHES if each in signature(module.forward).parameters), None)
    if name is None or (name == CACHES[0] and not _keeps_states(module.config)):
        return {}
    with torch.no_grad(), _as_compiled():
        cache = module.eval()(**inputs, use_cache=True).get(name)
    if isinstance(cache, list):
        cache = [_ByLayer(state) for state in cache]
    own = getattr(cache, "self_attention_cache", cache)
    for layer in getattr(own, "layers", ()):
        if hasattr(layer, "keys"):
            layer.keys, layer.values, layer.is_initialized = None, None, False
            layer.cumulative_length = 0
    if hasattr(own, "update"):
        # what attention gets of an empty cache
        own.update = lambda key, value, *rest, **more: (key, value)
    places = [] if cache is None else list(_places(cache))
    if not places:
        return {}
    module.register_forward_pre_hook(partial(_with_cache, name, cache, places), with_kwargs=True)
    return {STATES: [torch.empty_like(inside[key]) for inside, key in places]}


@contextmanager
def _as_compiled() -> Iterator[None]:
    """What a trace is; the products of experts that run otherwise take bfloat16 alone."""
    from torch import compiler

    original, compiler.is_compiling = compiler.is_compiling, lambda: True
    try:
        yield
    finally:
        compiler.is_compiling = original


def _keeps_states(config: Any) -> bool:
    from transformers.cache_utils import DYNAMIC_LAYER_TYPE_MAPPING, LinearAttentionCacheLayerMixin

    kinds = getattr(config.get_text_config(decoder=True), "layer_types", None) or ()
    layers = (DYNAMIC_LAYER_TYPE_MAPPING.get(kind, object) for kind in kinds)
    recurrent = any(issubclass(layer, LinearAttentionCacheLayerMixin) for layer in layers)
    return recurrent or bool(config.is_encoder_decoder)


class _ByLayer:
    """A tensor whose last dimension counts layers, as one tensor for each layer."""

    def __init__(self, whole: Any) -> None:
        self.parts = list(whole.unbind(-1))

    def __getitem__(self, at: tuple[slice, slice, int]) -> Any:
        return self.parts[at[2]]

    def __setitem__(self, at: tuple[slice, slice, int], state: Any) -> None:
        self.parts[at[2]] = state


def _places(owner: Any) -> Iterator[tuple[Any, Any]]:
    """The containers, and the keys in them, of all tensors that an object holds."""
    import torch

    inside = vars(owner) if hasattr(owner, "__dict__") else owner
    for key, value in list(inside.items() if isinstance(inside, dict) else enumerate(inside)):
        if isinstance(value, tuple) and any(isinstance(each, torch.Tensor) for each in value):
            value = inside[key] = list(value)
        if isinstance(value, torch.Tensor):
            yield inside, key
        elif isinstance(value, list | dict) or (hasattr(value, "__dict__") and not callable(value)):
            yield from _places(value)


def _with_cache(
    name: str, cache: Any, places: list[Any], module: Any, args: Any, kwargs: dict[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """A hook: the inputs in their places in the cache."""
    for (inside, key), state in zip(places, kwargs.pop(STATES), strict=True):
        inside[key] = state
    return args, {**kwargs, name: cache, "use_cache": True}


def add_states(program: FxProgram, graph: Any) -> int:
    """Add every state in the cache to what the first op that reads it holds; how many there are."""
    ops = {op["name"]: op for op in program.ops}
    states: dict[Any, Any] = {}
    held: dict[Any, None] = {}
    for node in graph.nodes:
        read = [states[each] for each in node.all_input_nodes if each in states]
        if node.op == "placeholder" and node.name.startswith(STATES):
            states[node] = node
        elif read and is_view(node):
            states[node] = read[0]
        elif node.name in program.op_of:
            op = ops[program.op_of[node.name]]
            size = sum(bytes_of(tensors_in(each)[0]) for each in read if each not in held)
            op["state_bytes"] += size
            op["resident_bytes"] += size
            if kind_of_node(node) == "copy" and node.args[0] in states:  # is written over, not read
                op["bytes_moved"] -= bytes_of(tensors_in(node.args[0])[0])
            held |= dict.fromkeys(read)
    return len(held)


def end_writes(program: FxProgram) -> None:
    """Let what a step writes into its cache precede the end of its layer, or else of the step."""
    # No op reads it in this step. A schedule would run it while the next layers run on another
    # device, but an engine runs the ops of a layer in a row.
    read = {edge["producer"] for edge in program.edges}
    place = {op["name"]: at for at, op in enumerate(program.ops)}
    layers = [LAYER.match(op["module"] or "") for op in program.ops]
    paths = ["" if found is None else found[0] for found in layers]
    last = {path: at for at, path in enumerate(paths) if path and program.ops[at]["name"] in read}
    for at, op in enumerate(program.ops[:-1]):
        if op["name"] not in read:
            end = last.get(paths[at], at)
            consumer = program.ops[end if end > at else -1]["name"]
            program.edges.append({"producer": op["name"], "consumer": consumer, "bytes": 0})
    program.edges.sort(key=lambda edge: place[edge["consumer"]])
