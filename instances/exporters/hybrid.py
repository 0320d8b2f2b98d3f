"""Hybrid plans for trainers and servers that have one d and one t: Megatron-LM, torchtitan, vLLM.

Beside cuts and degrees, the tools can state which layers are recomputed:

- **Megatron-LM** (its ``arguments.py``): ``--recompute-granularity selective`` in all layers, or
  ``full`` with ``--recompute-method block``: the first ``--recompute-num-layers`` layers of every
  stage, one number for all. Sums of gradients with ``--use-distributed-optimizer`` divide the
  optimizer's state.
- **torchtitan** (its ``job_config.py``): ``activation_checkpoint.mode`` is ``none``, ``full``, or
  ``selective``, where ``selective_ac_option`` is ``op`` or a number: every n-th layer of a
  rank, counted from 1, is recomputed. It has no plain replicas beside other degrees; shards that
  stay gathered (``fsdp_reshard_after_forward = "never"``) send the same bytes, and hold less.
- **vLLM** serves: nothing is recomputed.

So a plan is written by the setting that is most like it of those that take no longer, by the
referee, with the same cuts and degrees: equal layers may recompute in another order.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import NamedTuple

from placegap.instances.exporters.stages import TORCHTITAN, layout
from placegap.instances.objectives.hybrid.referee import hybrid_stages
from placegap.instances.problem import HybridPipeline, Instance, Plan, Semantics
from placegap.instances.problem.modules import layer_of
from placegap.instances.reading.errors import InputError
from placegap.instances.referee.evaluate import evaluate

KEEP, SELECTIVE, FULL = "keep", "selective", "full"
# What names of modes mean to the tools: ours, and those of Piper's inputs.
WORDS = {
    **dict.fromkeys(("keep", "vanilla", "own", "none"), KEEP),
    **dict.fromkeys(("selective",), SELECTIVE),
    **dict.fromkeys(("full", "recompute", "activation recomp"), FULL),
}


class NumberedLayers(NamedTuple):
    """The numbered layers in the order in which they run, and what stands before and after them."""

    # Each is the numbers of its ops.
    names: tuple[str, ...]
    numbered: tuple[tuple[int, ...], ...]
    before: tuple[int, ...]
    after: tuple[int, ...]


def read_layers(instance: Instance) -> NumberedLayers:
    """The layers of a model by their modules; without modules, by the names of its ops."""
    # Numbered layers are those whose names differ in their last number alone, most of all names.
    ops, modules = instance.graph.ops, layer_of(instance.graph)
    label = [layer or op.colocation or op.name for layer, op in zip(modules, ops, strict=True)]
    order = instance.arrays.index.topological_order.tolist()
    first = list(dict.fromkeys(label[i] for i in order))
    stem = {name: re.sub(r"\d+$", "", name) for name in first}
    count = Counter(stem[name] for name in first if stem[name] != name)
    most = max(count.values(), default=0)
    owner = next((stem[name] for name in first if count[stem[name]] == most), "")
    if most < 2:
        raise InputError(
            f"{instance.graph.name} has no numbered layers; trace the model (hf:, py:), or name"
            " its layers layer0, layer1, .."
        )
    numbered = [name for name in first if stem[name] == owner != name]
    numbers = [int(name.removeprefix(owner)) for name in numbered]
    if numbers != sorted(numbers):
        raise InputError(f"the layers {owner}.. do not run in the order of their numbers")
    begin = first.index(numbered[0])
    of: dict[str, list[int]] = {name: [] for name in first}
    for i in order:
        of[label[i]].append(i)
    outside = [name for name in first if name not in set(numbered)]
    ends = [
        tuple(i for name in outside if (first.index(name) < begin) == is_before for i in of[name])
        for is_before in (True, False)
    ]
    return NumberedLayers(tuple(numbered), tuple(tuple(of[name]) for name in numbered), *ends)


class _Read(NamedTuple):
    """A plan with one d and t, and the layers of each stage by their numbers."""

    layers: NumberedLayers
    replicas: int
    tensor: int
    stages: tuple[tuple[int, ...], ...]

    @property
    def counts(self) -> list[int]:
        """How many numbered layers each stage has."""
        return [len(own) for own in self.stages]


def _read(instance: Instance, plan: Plan, semantics: HybridPipeline) -> _Read:
    assert plan.stage is not None
    stages = hybrid_stages(instance, plan, semantics)
    degrees = {(stage.replicas, stage.tensor) for stage in stages}
    if len(degrees) > 1:
        both = ", ".join(f"{d} x {t}" for d, t in sorted(degrees))
        raise InputError(
            f"stages have d x t of {both}, but this tool supports only one; add --degrees one"
        )
    layers, home = read_layers(instance), list[int]()
    for name, ops in zip(layers.names, layers.numbered, strict=True):
        inside = {plan.stage[i] for i in ops}
        if len(inside) > 1:
            raise InputError(f"{name!r} is in {len(inside)} stages; add --granularity layer")
        home.append(inside.pop())
    if home != sorted(home):
        raise InputError("the numbered layers do not pass through the stages in order")
    rows = tuple(tuple(n for n, s in enumerate(home) if s == at) for at in range(len(stages)))
    return _Read(layers, stages[0].replicas, stages[0].tensor, rows)


# The options of a tool, and what they do to a layer by its place in its stage, from 0.
Setting = tuple[str, Callable[[int], str]]


def _megatron(most: int) -> Iterator[Setting]:
    yield "", lambda at: KEEP
    yield " --recompute-granularity selective", lambda at: SELECTIVE
    for n in range(1, most + 1):
        block = f" --recompute-granularity full --recompute-method block --recompute-num-layers {n}"
        yield block, lambda at, n=n: FULL if at < n else KEEP  # type: ignore[misc]


def _torchtitan(most: int) -> Iterator[Setting]:
    yield 'mode = "none"', lambda at: KEEP
    yield 'mode = "selective"\nselective_ac_option = "op"', lambda at: SELECTIVE
    yield 'mode = "full"', lambda at: FULL
    for n in range(2, most + 1):
        each = f'mode = "selective"\nselective_ac_option = "{n}"'
        yield each, lambda at, n=n: KEEP if (at + 1) % n else FULL  # type: ignore[misc]


def _vllm(most: int) -> Iterator[Setting]:
    yield "", lambda at: KEEP


# Settings of recomputation that each tool has, for stages of limited size.
SETTINGS = {"megatron": _megatron, "torchtitan": _torchtitan, "vllm": _vllm}


def hybrid_plan(
    instance: Instance, counts: Sequence[int], tensor: int, does: Callable[[int], str]
) -> Plan:
    """The plan of layers of each stage on equal blocks of devices, in groups of `tensor`."""
    layers, num = read_layers(instance), len(counts)
    if sum(counts) != len(layers.numbered) or min(counts) < 0:
        said = ", ".join(map(str, counts))
        raise InputError(f"the stages have {said} layers, and the model has {len(layers.names)}")
    each, rest = divmod(instance.num_devices, num * tensor)
    if rest or not each:
        raise InputError(
            f"{instance.num_devices} devices are no multiple of {num} stages of {tensor} tensor"
            " ranks; all devices are used"
        )
    ends = list(accumulate(counts, initial=0))
    stages = tuple(tuple(range(a, b)) for a, b in pairwise(ends))
    stage = [0] * instance.num_ops
    for s, own in enumerate(stages):
        for n in own:
            for i in layers.numbered[n]:
                stage[i] = s
    blocks = [tuple(range(s * each * tensor, (s + 1) * each * tensor)) for s in range(num)]
    blank, last = ("",) * instance.num_ops, num - 1
    for i in layers.after:
        stage[i] = last
    on = tuple(blocks[s] for s in stage)
    plan = Plan(placement=on, stage=tuple(stage), tensor=(tensor,) * num, mode=blank)
    found = _with_setting(instance, plan, _Read(layers, each, tensor, stages), does)
    if found is None:
        raise InputError(f"a layer has no mode of {tensor} tensor ranks that recomputes this")
    return found


def write_hybrid(kind: str, instance: Instance, plan: Plan, semantics: Semantics) -> str:
    """The options, or the part of a TOML file, by which a tool runs a plan."""
    text, value_ns = nearest_hybrid(kind, instance, plan, semantics)
    least = evaluate(instance, plan, semantics).value_ns
    if least is not None and value_ns > least:
        raise InputError("cannot express what the plan recomputes, or where its ends are")
    return text


def nearest_hybrid(
    kind: str, instance: Instance, plan: Plan, semantics: Semantics
) -> tuple[str, int]:
    """The setting of a tool that is most like a plan, and what it takes."""
    # Of the settings that take no longer than the plan; without one, the fastest.
    assert isinstance(semantics, HybridPipeline)
    verdict = evaluate(instance, plan, semantics)
    if not verdict.feasible or verdict.value_ns is None:
        raise InputError(f"the plan is infeasible: {verdict.violations[0]}")
    found = _read(instance, plan, semantics)
    rules = {"recompute": "per_layer", "degrees": "one"}
    if kind == "megatron" and semantics.sharding == "gradients":
        rules["sharding"] = "optimizer"
    judged = semantics.model_copy(update=rules)
    best: tuple[tuple[int, int, int], str] | None = None
    for text, does in SETTINGS[kind](max(found.counts)):
        nearest = _with_setting(instance, plan, found, does)
        theirs = None if nearest is None else evaluate(instance, nearest, judged)
        if nearest is None or theirs is None or not theirs.feasible or theirs.value_ns is None:
            continue
        longer = max(0, theirs.value_ns - verdict.value_ns)
        rank = longer, -_num_alike(plan, nearest), -theirs.value_ns
        if best is None or rank < best[0]:
            best = rank, text
    if best is None:
        raise InputError(
            "cannot express what the plan recomputes, or where its ends are, and no setting"
            " that it can express fits with these cuts"
        )
    return _WRITERS[kind](found, judged, best[1]), -best[0][2]


def _num_alike(one: Plan, other: Plan) -> int:
    """How many ops are in the same stage and mode."""
    assert one.stage is not None
    assert one.mode is not None
    assert other.stage is not None
    assert other.mode is not None
    pairs = zip(one.stage, one.mode, other.stage, other.mode, strict=True)
    return sum((a, x) == (b, y) for a, x, b, y in pairs)


def _with_setting(
    instance: Instance, plan: Plan, found: _Read, does: Callable[[int], str]
) -> Plan | None:
    """The plan with layers in the modes of a setting, and ends in the first and last stage."""
    # None where some layer has no such mode.
    assert plan.stage is not None
    stage, mode = list(plan.stage), list[str | None](plan.mode or ())
    last = len(found.stages) - 1
    for own in found.stages:
        for at, n in enumerate(own):
            for i in found.layers.numbered[n]:
                mode[i] = _mode(instance, i, found.tensor, does(at))
    for ops, s in ((found.layers.before, 0), (found.layers.after, last)):
        for i in ops:
            stage[i], mode[i] = s, _mode(instance, i, found.tensor, KEEP)
    known = tuple(name for name in mode if name is not None)
    if len(known) < len(mode) or len(set(stage)) <= last:
        return None
    on = dict(zip(plan.stage, plan.placement, strict=True))
    return replace(plan, placement=tuple(on[s] for s in stage), stage=tuple(stage), mode=known)


def _mode(instance: Instance, i: int, tensor: int, what: str) -> str | None:
    """The name of an op's mode of that meaning, or of its only one."""
    ways = [mode.name for mode in instance.graph.ops[i].ways if mode.tensor == tensor]
    if len(ways) == 1:
        return ways[0]
    return next((name for name in ways if WORDS.get(name) == what), None)


def _megatron_line(found: _Read, semantics: HybridPipeline, text: str) -> str:
    words = [f"--tensor-model-parallel-size {found.tensor}"]
    words.append(f"--pipeline-model-parallel-size {len(found.stages)}")
    if len(found.stages) > 1:
        words.append(f'--pipeline-model-parallel-layout "{layout(found.counts)}"')
    if semantics.sharding != "none":
        words.append("--use-distributed-optimizer")
    return " ".join(words) + text + "\n"


def _torchtitan_part(found: _Read, semantics: HybridPipeline, text: str) -> str:
    turns = semantics.microbatches // found.replicas
    if turns < len(found.stages):
        raise InputError(
            f"torch's 1F1B needs a microbatch for each of {len(found.stages)} stages, and a replica"
            f" has {turns}; use --export megatron, or more --microbatches"
        )
    names = [[f"layers.{n}" for n in own] for own in found.stages]
    names[0][:0] = TORCHTITAN["embed_tokens"]
    names[-1] += [*TORCHTITAN["norm"], *TORCHTITAN["lm_head"]]
    parts = ",\n".join(f"  {json.dumps(own)}" for own in names)
    return f"""[parallelism]
data_parallel_replicate_degree = 1
data_parallel_shard_degree = {found.replicas}
fsdp_reshard_after_forward = "never"
tensor_parallel_degree = {found.tensor}
pipeline_parallel_degree = {len(found.stages)}
pipeline_parallel_schedule = "1F1B"
module_fqns_per_model_part = [
{parts}
]

[activation_checkpoint]
{text}
"""


def _vllm_lines(found: _Read, semantics: HybridPipeline, text: str) -> str:
    return (
        f"VLLM_PP_LAYER_PARTITION={','.join(map(str, found.counts))}\n"
        f"--tensor-parallel-size {found.tensor} --pipeline-parallel-size {len(found.stages)}"
        f" --data-parallel-size {found.replicas}\n"
    )


_WRITERS = {"megatron": _megatron_line, "torchtitan": _torchtitan_part, "vllm": _vllm_lines}
