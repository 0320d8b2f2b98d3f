"""Device maps of accelerate and of ours, as docs/exports.md has them.

``python -m placegap.experiments.research.tables.device_maps [MODEL ...]`` prints one table: the
heaviest load of a pipeline whose stages are accelerate's balanced map, our best chain of whole
layers, and the best chain of single ops. Models are traced: it needs the extra ``torch``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from placegap.experiments.research.tables.device_maps import balanced_map
from placegap.experiments.research.tables.named_rows import print_named_rows
from placegap.instances.io.cluster_file import load_cluster
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.modules import with_granularity
from placegap.instances.problem.plan import Plan
from placegap.instances.problem.semantics import MaxLoad
from placegap.instances.referee.evaluate import evaluate
from placegap.instances.torch_models.model import build_model, read_traced_model
from placegap.instances.torch_models.options import TraceOptions
from placegap.solvers import Result, solve

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

ANY = MaxLoad(plans="any", memory="peak")
"""For accelerate's maps: layers with shared weights may be on one device, out of order."""

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
        document = read_traced_model(f"hf:{name}")
        for cluster in MODELS[name]:
            instance = document.instance(load_cluster(cluster))
            theirs = balanced_value_ns(f"hf:{name}", instance)
            layers = with_granularity(instance, "layer")
            ours = solve(layers, CHAIN, "auto", time_limit_s=TIME_LIMIT_S)
            fine = solve(instance, CHAIN, "auto", time_limit_s=TIME_LIMIT_S, incumbent=ours.plan)
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
    """The plan of a device map: an op is with its module, or else with what feeds it.

    Examples
    --------
    >>> from placegap.instances import example
    >>> mapped_plan(example(), {}).devices.tolist()
    [0, 0, 0, 0]
    """
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
