"""Pipelines as their runners read them: stages by modules, by numbers of layers, by nodes.

Sources: torchtitan's option ``module_fqns_per_model_part`` ("a list of lists containing the FQNs of
modules to be included in each model chunk"), the guide of ``torch.distributed.pipelining``
(``split_spec={"layers.4": SplitPoint.BEGINNING}``), and vLLM's environment variable
``VLLM_PP_LAYER_PARTITION`` (``8,9,9,6``: numbers of layers, the first stage with the embeddings and
the last one with norm and head).

Megatron-LM's ``--pipeline-model-parallel-layout`` is a string (Megatron Core's page "Custom
Pipeline Model Parallel Layout"): stages are split by ``|``; E is the embedding, t a decoder layer,
L the loss (with final norm and head); ``t*3`` is ``ttt``. The stages are in the order in which a
microbatch passes them: all of the first virtual rank first.

The split files of dnn-partitioning, which say which nodes are on which accelerator and CPU, are
read by `dnn_partitioning.load_split`.
"""

from __future__ import annotations

import json
from typing import Any

from placegap.instances.exporters.modules import layer_list, layer_stages, run_order
from placegap.instances.problem import Instance, Plan, Semantics
from placegap.instances.problem.integers import NS_PER_MS
from placegap.instances.problem.modules import feeders, layer_ends, layer_of
from placegap.instances.reading.errors import InputError
from placegap.instances.referee.evaluate import evaluate

# Modules of a Llama by their names in transformers, and in torchtitan; layers are ``layers.3``. The
# head is ``lm_head`` since 2026, and was ``output``; names that a model lacks are ignored.
TORCHTITAN = {
    "embed_tokens": ("tok_embeddings",),
    "norm": ("norm",),
    "lm_head": ("lm_head", "output"),
}


def write_torchtitan(instance: Instance, plan: Plan, semantics: Semantics) -> str:
    """``module_fqns_per_model_part``: a list of lists, in JSON, which TOML and Python read too."""
    # Modules that are named as in transformers' Llama get torchtitan's names; others keep theirs.
    stages = layer_stages(instance, plan, semantics)
    renamed = {layer: _torchtitan_name(layer) for stage in stages for layer in stage}
    if None not in renamed.values():
        stages = [[name for layer in stage for name in renamed[layer] or ()] for stage in stages]
    rows = ",\n".join(f"  {json.dumps(stage)}" for stage in stages)
    return f"[\n{rows}\n]\n"


def write_pipelining(instance: Instance, plan: Plan, semantics: Semantics) -> str:
    """``split_spec`` as JSON: before each of these modules a stage begins."""
    stages = layer_stages(instance, plan, semantics)
    begins = [stage[0] for stage in stages[1:]]
    _check_split(instance, {layer: s for s, stage in enumerate(stages) for layer in stage}, begins)
    return json.dumps({"split_spec": dict.fromkeys(begins, "BEGINNING")}, indent=2) + "\n"


def refuse_several_stages(semantics: Semantics, kind: str) -> None:
    """Refuse rules by which a device has several stages: servers have one per rank."""
    if getattr(semantics, "stages_per_device", 1) > 1:
        raise InputError(f"{kind} has one stage per device; leave out --stages-per-device")


def _torchtitan_name(layer: str) -> tuple[str, ...] | None:
    owner, _, last = layer.rpartition(".")
    if last.isdecimal() and owner in ("layers", "model.layers"):
        return (f"layers.{last}",)
    return TORCHTITAN.get(layer.removeprefix("model."))


def _check_split(instance: Instance, stage_of: dict[str, int], begins: list[str]) -> None:
    """Refuse what a cut of the program before these modules would put into another stage."""
    layers, order = layer_of(instance.graph), run_order(instance)
    forward = [i for i in range(instance.num_ops) if not instance.arrays.backward[i]]
    forward.sort(key=lambda i: order[i])
    current, at, stage = 0, dict.fromkeys(begins), dict[int, int]()
    for i in forward:
        layer = layers[i]
        if layer is not None and layer in at:
            current = max(current, stage_of[layer])
        stage[i] = current
        if layer is not None and stage_of[layer] != current:
            raise InputError(
                f"op {instance.graph.ops[i].name!r} of {layer!r} runs after stage {current} has"
                " begun, but is in another; split points cannot express that"
            )
    for b, a in feeders(instance, layers).items():
        if b in stage and a in stage and stage[a] != stage[b]:
            raise InputError(
                f"op {instance.graph.ops[b].name!r} would fall into another stage than"
                f" {instance.graph.ops[a].name!r}, which feeds it; split points cannot express that"
            )


def write_megatron(instance: Instance, plan: Plan, semantics: Semantics) -> str:
    """The layout of a plan, in one line."""
    stages, numbered = layer_stages(instance, plan, semantics), set(layer_list(instance))
    is_before = layer_ends(instance, layer_of(instance.graph))
    for s, stage in enumerate(stages):
        for layer in (layer for layer in stage if layer not in numbered):
            if s != (0 if is_before[layer] else len(stages) - 1):
                where = "first" if is_before[layer] else "last"
                raise InputError(
                    f"{layer!r} is in stage {s}, but megatron has it in the {where} one; place with"
                    " --export megatron=FILE, which keeps it there"
                )
    return layout([sum(layer in numbered for layer in stage) for stage in stages]) + "\n"


def layout(counts: list[int]) -> str:
    """The layout of a number of layers in each stage."""
    stages = ["" if not count else "t" if count == 1 else f"t*{count}" for count in counts]
    stages[0] = f"E{stages[0]}"
    stages[-1] = f"{stages[-1]}{',' if '*' in stages[-1] else ''}L"
    return "|".join(stages)


def write_split(instance: Instance, plan: Plan, semantics: Semantics) -> str:
    """A split file, with loads in ms as the program writes them."""
    verdict = evaluate(instance, plan, semantics)
    nodes: list[list[int]] = [[] for _ in range(instance.num_devices)]
    for op, devices in zip(instance.graph.ops, plan.placement, strict=True):
        if not (op.name.isascii() and op.name.isdecimal()) or str(int(op.name)) != op.name:
            raise InputError(
                f"op {op.name!r} is not a number, as nodes of dnn-partitioning must be; export csv"
            )
        if len(devices) > 1:
            raise InputError(f"op {op.name!r} is on {len(devices)} devices; leave out --replicas")
        nodes[devices[0]].append(int(op.name))
    content: dict[str, Any] = {"fpgas": [], "cpus": []}
    for k, spec in enumerate(instance.cluster.devices):
        stage: dict[str, Any] = {"nodes": nodes[k]}
        if verdict.uses:
            stage = {"load": verdict.uses[k].load_ns / NS_PER_MS, **stage}
        content["cpus" if spec.is_host else "fpgas"].append(stage)
    if semantics.load_passes == (None,) and verdict.value_ns is not None:
        content["maxLoad"] = verdict.value_ns / NS_PER_MS
    return json.dumps(content, indent=2) + "\n"
