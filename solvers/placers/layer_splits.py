"""How serving tools split a model's layers by themselves: what a plan should beat.

Each puts layers in their order on devices, what runs before them with the first one and what runs
after them with the last one. Sources, as their code was in 2025:

- exo: devices by falling memory, each with its share of all memory, ends rounded to five digits
  (`RingMemoryWeightedPartitioningStrategy`, `map_partitions_to_shards`);
- llama.cpp until its fit of 2026 (`serving_fits`): layers and the output go to GPUs by shares of
  their free memory, as ``-ts`` has it by default; where not all fit, ``-ngl`` says how many of the
  last ones do, and the host has the rest, and the embeddings in any case (``load_tensors`` in
  ``llama-model.cpp``). Here as many are on GPUs as fit, which is what people try by hand;
- vLLM: as many layers each, what remains from the last but one backwards (`get_pp_indices`);
- SGLang: as many layers each, one more for the last devices (its `get_pp_indices`).

They look at no time; colocated ops are with the first of them. A plan may exceed a device's memory:
then the rule has no plan.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import wraps
from itertools import accumulate

from placegap.instances.exporters.lines import even_counts, gpus_and_host
from placegap.instances.problem import Instance, Plan
from placegap.instances.problem.graph_index import sum_by
from placegap.instances.problem.modules import homes_by_layer, layer_of, numbered_layers
from placegap.solvers.core.method import Params, Task
from placegap.solvers.core.registry import method
from placegap.solvers.core.result import Outcome

# The device of what is before the layers, of each layer, and of what is after them.
LayerRule = Callable[[Instance, int], list[int]]
OpRule = Callable[[Instance, int], list[int] | None]  # the device of each op; None without a plan


def why_no_layers(task: Task, params: Params) -> str | None:
    if task.semantics.plan_class != "any":
        return f"its plans are not {task.semantics.plan_class}"
    if not numbered_layers(layer_of(task.instance.graph)):
        return "no op names a numbered layer"
    return None


def fits(name: str, tool: str) -> Callable[[OpRule], OpRule]:
    """Register a rule, by which a `tool` places the ops of a model, as a method."""

    def add(rule: OpRule) -> OpRule:
        def run(task: Task, params: Params) -> Outcome:
            lists = numbered_layers(layer_of(task.instance.graph))
            homes = rule(task.instance, sum(map(len, lists.values())))
            if homes is None:
                return Outcome(message=f"by its own count {tool} has no room for the layers")
            return Outcome(Plan.on(homes))

        run.__doc__, run.__module__ = rule.__doc__, rule.__module__
        does = method(name, objectives=("makespan", "max_load"), paper=tool, applies=why_no_layers)
        does(run)
        return rule

    return add


def serves(name: str, tool: str) -> Callable[[LayerRule], LayerRule]:
    """Register a rule, by which a `tool` splits a model's layers, as a method."""

    def add(rule: LayerRule) -> LayerRule:
        @wraps(rule)
        def homes(instance: Instance, num_layers: int) -> list[int]:
            return homes_by_layer(instance, rule(instance, num_layers))

        fits(name, tool)(homes)
        return rule

    return add


@serves("exo", "exo")
def exo_split(instance: Instance, num_layers: int) -> list[int]:
    """Layers in order, by shares of memory.

    The largest device goes first; equal ones by name, the last one first. Where no device has
    memory, all have equal shares.
    """
    devices = instance.cluster.devices
    size = [1 if d.memory_bytes is None else d.memory_bytes for d in devices]
    size = size if any(size) else [1] * len(size)
    order = sorted(range(len(devices)), key=lambda k: (size[k], devices[k].name), reverse=True)
    home, end = list[int](), 0.0
    for k in order:
        start, end = end, round(end + size[k] / sum(size), 5)
        home += [k] * (int(end * num_layers) - int(start * num_layers))
    home += [order[-1]] * (num_layers - len(home))
    return [home[0], *home, home[-1]]


@serves("llama-cpp", "llama.cpp")
def llama_cpp_split(instance: Instance, num_layers: int) -> list[int]:
    """llama.cpp until 2025: layers by free memory, what does not fit on the host."""
    gpus, cpu = gpus_and_host(instance.cluster)
    host = gpus[0] if cpu is None else cpu
    if not gpus:
        return [host] * (num_layers + 2)
    size = [instance.cluster.devices[k].memory_bytes or 1 for k in gpus]
    room = instance.arrays.memory_bytes
    found = [host] * (num_layers + 2)
    for on_gpus in range(num_layers + 1, -1, -1):
        first = max(num_layers - on_gpus, 0)
        layers = num_layers - first + (on_gpus > num_layers)
        found = [host] * (first + 1) + [gpus[at] for at in by_shares(size, layers, on_gpus)]
        found += [host] * (num_layers + 2 - len(found))
        held = sum_by(homes_by_layer(instance, found), instance.arrays.resident_bytes, len(room))
        if (held <= room).all():
            break
    return found


def by_shares(size: Sequence[int], count: int, of: int) -> list[int]:
    """Which card has each of the first `count` of some layers that go to cards by shares."""
    ends = [at / max(1, sum(size)) for at in accumulate(size)]
    return [min(bisect_right(ends, i / of), len(size) - 1) for i in range(count)]


@serves("vllm-even", "vLLM")
def vllm_split(instance: Instance, num_layers: int) -> list[int]:
    """The same number of layers on each GPU, the remainder in the middle."""
    return _even(instance, num_layers, "vllm")


@serves("sglang-even", "SGLang")
def sglang_split(instance: Instance, num_layers: int) -> list[int]:
    """The same number of layers on each GPU, the remainder at the end."""
    return _even(instance, num_layers, "sglang")


def _even(instance: Instance, num_layers: int, tool: str) -> list[int]:
    ranks = gpus_and_host(instance.cluster)[0] or [0]
    counts = even_counts(num_layers, len(ranks), tool)
    home = [k for k, count in zip(ranks, counts, strict=True) for _ in range(count)]
    return [ranks[0], *home, ranks[-1]]
