"""Device maps of accelerate and of ours, as docs/exports.md has them.

``python -m placegap.experiments.research.tables.device_maps [MODEL ...]`` prints one table: the
heaviest load of a pipeline whose stages are accelerate's balanced map, our best chain of whole
layers, and the best chain of single ops. Models are traced: it needs the extra ``torch``.

Source of the map that accelerate makes by default ("balanced"): its guide "Handling big models for
inference" and the descriptions of ``get_balanced_memory`` and ``infer_auto_device_map`` (1.15),
stated anew; ``make test-torch`` compares it with the real one. It looks at bytes of weights alone.
Each device but the last may take an equal share and a margin: 1.25 times the larger of a block that
must stay whole and the mean of the leaf modules. Modules are taken in the order of the code, and
each goes whole onto the device at hand, or is divided if it may be, or goes to the next device.
Modules that share weights go together. The first device leaves room for the largest layer that is
still to come.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from placegap.experiments.research.tables.named_rows import print_named_rows
from placegap.experiments.running.sources import costed_by
from placegap.instances.files.cluster_file import load_cluster
from placegap.instances.problem import Instance, MaxLoad, Plan
from placegap.instances.problem.modules import with_granularity
from placegap.instances.referee.evaluate import evaluate
from placegap.instances.torch_models.model import build_model, read_traced_model
from placegap.instances.torch_models.options import TraceOptions
from placegap.solvers import Result, run_method

MARGIN = 1.25

Part = tuple[str, Any]  # path of a module or parameter, and itself


def balanced_map(module: Any, memory_bytes: Sequence[int]) -> dict[str, int]:
    """The device of each module; ``_no_split_modules`` names the classes that stay whole."""
    sizes, whole = _sizes(module), set(getattr(module, "_no_split_modules", None) or ())
    share = sizes[""] // len(memory_bytes) + _margin(module, sizes, whole)
    limits = [min(share, most) for most in memory_bytes[:-1]] + [memory_bytes[-1]]
    tied = _tied(module)
    todo = [*_children("", module), *module.named_buffers(recurse=False)]
    device, used = 0, 0
    found: dict[str, int] = {}
    while todo:
        if device == len(limits):
            raise ValueError(f"no device is left for {todo[0][0]}")
        name, part = todo.pop(0)
        room = limits[device] - used
        if device == 0:
            room -= max((sizes[at] for at, _ in _layers(todo, whole)), default=0)
        others = [
            p
            for group in tied
            if any(_within(p, name) for p in group)
            for p in group
            if not _within(p, name)
        ]
        mates = [next(at for at in todo if _within(p, at[0])) for p in others]
        size = sizes[name]
        together = size + sum(
            sizes[at] - sizes[p] for (at, _), p in zip(mates, others, strict=True)
        )
        if together <= room:
            used += together
            names = {name, *(at for at, _ in mates)}
            found.update(dict.fromkeys((at for at in (name, *(at for at, _ in mates))), device))
            todo = [at for at in todo if at[0] not in names]
            continue
        divisible = next((at for at in mates if _divisible(at[1], whole)), None)
        if size <= room and divisible is not None:
            here = next(i for i, at in enumerate(todo) if at[0] == divisible[0])
            todo[here : here + 1] = _children(*divisible)
            todo.insert(0, (name, part))
        elif size >= room and _divisible(part, whole):
            todo = [*_children(name, part), *todo]
        else:
            todo.insert(0, (name, part))
            device, used = device + 1, 0
    return found


def _sizes(module: Any) -> dict[str, int]:
    """Bytes of each tensor and of each module with all inside; a shared tensor counts once."""
    sizes: dict[str, int] = defaultdict(int)
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        parts = name.split(".")
        for depth in range(len(parts) + 1):
            sizes[".".join(parts[:depth])] += tensor.numel() * tensor.element_size()
    return sizes


def _margin(module: Any, sizes: dict[str, int], whole: set[str]) -> int:
    """Of the first block of each class that stays whole the largest, or the mean of the leaves."""
    kinds = {name: type(part).__name__ for name, part in module.named_modules()}
    first: dict[str, int] = {}
    for name in list(sizes):
        if name and kinds.get(name) in whole:
            first.setdefault(kinds[name], sizes[name])
    holding = [name for name in sizes if name in kinds and name]
    parents = {name.rpartition(".")[0] for name in holding}
    leaves = [sizes[name] for name in holding if name not in parents]
    mean = sum(leaves) // max(1, len(leaves))
    return int(MARGIN * max([mean, *first.values()]))


def _tied(module: Any) -> list[list[str]]:
    """Names of parameters that are one tensor."""
    names: dict[int, list[str]] = defaultdict(list)
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names[id(parameter)].append(name)
    return [group for group in names.values() if len(group) > 1]


def _children(name: str, part: Any) -> list[Part]:
    """Parameters of a module itself, and the modules in it."""
    inside = (*part.named_parameters(recurse=False), *part.named_children())
    return [(f"{name}.{last}" if name else last, one) for last, one in inside]


def _layers(parts: Sequence[Part], whole: set[str]) -> Iterator[Part]:
    """Modules and tensors that are not divided any further."""
    for name, part in parts:
        if not _divisible(part, whole):
            yield name, part
            continue
        inside = ((f"{name}.{last}", one) for last, one in part.named_children())
        yield from _layers(list(inside), whole)


def _divisible(part: Any, whole: set[str]) -> bool:
    return type(part).__name__ not in whole and any(True for _ in _modules_in(part))


def _modules_in(part: Any) -> Iterator[Any]:
    yield from part.children() if hasattr(part, "children") else ()


def _within(name: str, module: str) -> bool:
    return f"{name}.".startswith(f"{module}.")


V100, H100 = "celeritas-4xV100-pcie", "8xH100-nvlink"

MODELS = {
    "gpt2": (V100, H100),
    "bert-base": (V100,),
    "t5-small": (V100,),
    "vit-base": (V100,),
    "resnet50": (V100,),
    "swin-tiny": (V100,),
    "llama-7b": (H100,),
    "gpt3-13b": (H100,),
}

CHAIN = MaxLoad(plans="chain", memory="peak")

# For accelerate's maps: layers with shared weights may be on one device, out of order.
ANY = MaxLoad(plans="any", memory="peak")

HEADS = (
    "model",
    "cluster",
    "accelerate, ms",
    "ours, ms",
    "accelerate is above",
    "op by op, ms",
    "whole layers cost",
)

TIME_LIMIT_S = 60.0


def rows(names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """One row per model and cluster; a tilde stands before a value that is not proven best."""
    for name in names:
        document = costed_by(read_traced_model(f"hf:{name}"), "roofline")
        for cluster in MODELS[name]:
            instance = document.instance(load_cluster(cluster))
            theirs = balanced_value_ns(f"hf:{name}", instance)
            layers = with_granularity(instance, "layer")
            ours = run_method(layers, CHAIN, "auto", time_limit_s=TIME_LIMIT_S)
            fine = run_method(
                instance, CHAIN, "auto", time_limit_s=TIME_LIMIT_S, incumbent=ours.plan
            )
            yield (
                name,
                cluster,
                "does not fit" if theirs is None else f"{theirs / 1e6:.3f}",
                _ms(ours),
                _above(theirs, ours.value_ns),
                _ms(fine),
                _above(ours.value_ns, fine.value_ns),
            )


def balanced_value_ns(model: str, instance: Instance) -> int | None:
    """The heaviest load under accelerate's balanced map; None: it does not fit."""
    module = build_model(model, TraceOptions()).module
    devices = instance.cluster.devices
    number = [k for k, spec in enumerate(devices) if not spec.is_host]
    try:
        found = balanced_map(module, [devices[k].memory_bytes or sys.maxsize for k in number])
    except ValueError:
        return None
    place = {name: number[at] for name, at in found.items()}
    return evaluate(instance, mapped_plan(instance, place), ANY).value_ns


def mapped_plan(instance: Instance, place: dict[str, int]) -> Plan:
    """The plan of a device map: an op is with its module, or else with what feeds it."""
    index = instance.arrays.index
    fed_by: dict[int, int] = {}
    for a, b in zip(index.producer.tolist(), index.consumer.tolist(), strict=True):
        fed_by.setdefault(b, a)
    device: dict[int, int] = {}
    first = min(place.values(), default=0)
    for i in index.topological_order.tolist():
        path = (instance.graph.ops[i].module or "").split(".")
        while path and ".".join(path) not in place:
            path.pop()
        inherited = device[fed_by[i]] if i in fed_by else first
        device[i] = place[".".join(path)] if path else inherited
    return Plan.on(device[i] for i in range(instance.num_ops))


def _ms(result: Result) -> str:
    if result.value_ns is None:
        return "none fits"
    return f"{'' if result.status == 'optimal' else '~'}{result.value_ns / 1e6:.3f}"


def _above(value_ns: int | None, other_ns: int | None) -> str:
    return "-" if not value_ns or not other_ns else f"{100 * (value_ns / other_ns - 1):.1f} %"


def main(names: Sequence[str]) -> None:
    """Print the table of the named models, or of all, row by row."""
    print_named_rows(HEADS, MODELS, names, rows)


if __name__ == "__main__":
    main(sys.argv[1:])
