"""The table of exporters: a name, and what writes a plan in that format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from placegap.instances.costing.catalogue import is_cpu
from placegap.instances.exporters.hybrid import SETTINGS, read_layers, write_hybrid
from placegap.instances.exporters.lines import (
    EXLLAMA,
    LLAMACPP,
    OLLAMA,
    RANKS,
    LineClass,
    gpus_and_host,
    write_exllama,
    write_llamacpp,
    write_ollama,
    write_partition,
)
from placegap.instances.exporters.modules import layer_list, write_device_map, write_op_table
from placegap.instances.exporters.onnx import annotate
from placegap.instances.exporters.rows import KINDS, write_rows
from placegap.instances.exporters.stages import (
    refuse_several_stages,
    write_megatron,
    write_pipelining,
    write_split,
    write_torchtitan,
)
from placegap.instances.problem import Instance, Plan, Semantics
from placegap.instances.problem.modules import layer_of
from placegap.instances.reading.errors import InputError, look_up


@dataclass(frozen=True)
class Exporter:
    """One row of the table."""

    # `whole_layers` says whether only plans of whole layers can be written, but for experts where
    # `line` has them apart; `join_ends`, whether the first stage must hold all that comes before
    # the numbered layers, and the last one all that comes after them; `gpus_alone`, whether a stage
    # on a CPU is one that its tool cannot run; `line`, which lines of layers the tool can always
    # express. A format that is a copy of the model's own file has `annotate` in place of `write`:
    # it changes the model, as it was read from that file.
    write: Callable[[Instance, Plan, Semantics], str] | None
    whole_layers: bool = False
    join_ends: bool = False
    gpus_alone: bool = False
    line: LineClass | None = None
    annotate: Callable[[Any, Instance, Plan, Semantics], None] | None = None


EXPORTERS: Mapping[str, Exporter] = {
    "device_map": Exporter(write_device_map, whole_layers=True),
    "torchtitan": Exporter(write_torchtitan, whole_layers=True, gpus_alone=True, line=RANKS),
    "megatron": Exporter(write_megatron, True, join_ends=True, gpus_alone=True, line=RANKS),
    "vllm": Exporter(partial(write_partition, "VLLM"), True, True, gpus_alone=True, line=RANKS),
    "sglang": Exporter(partial(write_partition, "SGLANG"), True, True, gpus_alone=True, line=RANKS),
    "pipelining": Exporter(write_pipelining, whole_layers=True, line=RANKS),
    "llamacpp": Exporter(write_llamacpp, whole_layers=True, line=LLAMACPP),
    "exllama": Exporter(write_exllama, whole_layers=True, gpus_alone=True, line=EXLLAMA),
    "ktransformers": Exporter(None),  # `experts_line` writes the number of experts on a card
    "ollama": Exporter(write_ollama, whole_layers=True, line=OLLAMA),
    "onnx": Exporter(None, annotate=annotate),
    "dnn-partitioning": Exporter(write_split),
    "csv": Exporter(write_op_table),
    "ranges": Exporter(None),  # of plans of serving_flow alone (`write_rows`)
}


def find_exporter(name: str) -> Exporter:
    return look_up("export", name, EXPORTERS)


def export_plan(kind: str, instance: Instance, plan: Plan, semantics: Semantics) -> str:
    """The content of the file of one kind, which is no copy of the model's."""
    exporter = find_exporter(kind)
    write = exporter.write
    if semantics.holds_ranges:
        write = partial(write_rows, kind)
    if write is None:
        raise InputError("the plan goes into a copy of the model's own file", f"export {kind}")
    try:
        if exporter.gpus_alone:
            _refuse_cpus(instance, plan)
        if semantics.has_modes:
            return write_hybrid(kind, instance, plan, semantics)
        return write(instance, plan, semantics)
    except InputError as error:
        raise InputError(str(error), f"export {kind}") from None


def check_export(kind: str, instance: Instance, semantics: Semantics) -> None:
    """Refuse, before a plan is looked for, a format that can express none of this model's plans."""
    exporter = find_exporter(kind)
    try:
        if semantics.has_modes:
            if kind not in SETTINGS:
                raise InputError(
                    "cannot express replicas, tensor degrees and modes; export"
                    f" {', '.join(SETTINGS)}, or write the plan (-o FILE)"
                )
            read_layers(instance)
            return
        if semantics.holds_ranges or kind == "ranges":
            if kind not in KINDS or not semantics.holds_ranges:
                raise InputError(
                    f"ranges of serving_flow are written as {', '.join(KINDS)}, and no other plan"
                    " as ranges; or write the plan (-o FILE)"
                )
            return
        if exporter.whole_layers and not any(layer_of(instance.graph)):
            raise InputError(
                f"no op of {instance.graph.name} names its module; trace the model (hf:, py:)"
            )
        if exporter.join_ends:
            layer_list(instance)
        if exporter.gpus_alone and not gpus_and_host(instance.cluster)[0]:
            raise InputError("the ranks of this tool are GPUs, and the cluster has none")
        if kind in ("vllm", "sglang"):
            refuse_several_stages(semantics, kind)
    except InputError as error:
        raise InputError(str(error), f"export {kind}") from None


def _refuse_cpus(instance: Instance, plan: Plan) -> None:
    for k in sorted({k for on in plan.placement for k in on}):
        device = instance.cluster.devices[k]
        if is_cpu(device, instance.cluster):
            raise InputError(
                f"a stage runs on {device.name!r}, a CPU, but the ranks of this tool are GPUs;"
                " leave it out of the cluster"
            )
