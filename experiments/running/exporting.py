"""Plans for other tools: which granularity their formats need, the files, and what whole modules
cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from placegap.experiments.running.placing import Attempt, judged_plan, place
from placegap.instances.exporters.modules import layer_devices
from placegap.instances.exporters.onnx import device_faults
from placegap.instances.exporters.table import EXPORTERS, check_export, export_plan, find_exporter
from placegap.instances.files.output_files import attempt, write_bytes, write_text
from placegap.instances.importers.onnx_model import inlined_model
from placegap.instances.problem import WITHOUT_OPS, Graph, HybridPipeline, Instance, Semantics
from placegap.instances.problem.modules import Granularity, is_expert, layer_of
from placegap.instances.reading.errors import InputError
from placegap.instances.torch_models.options import LEFT_OUT, UNREAD
from placegap.solvers import Result, run_method

DEVICE_MAP = "device_map"

NEAREST_S = 20.0
"""Seconds for the nearest hybrid plan that a tool can run; optima of one d and t take under 2."""

IN_ORDER = ("torchtitan", "megatron", "vllm", "pipelining")
"""Formats that number stages and name no devices."""


@dataclass(frozen=True)
class ModulePrice:
    """The best value and bound op by op, beside the value of a plan of whole modules."""

    granularity: Granularity
    value_ns: int
    fine_value_ns: int
    fine_bound_ns: int | None
    semantics: Semantics | None = None

    @property
    def at_most(self) -> float | None:
        """The distance of value and bound op by op, as a share of the value; None: no bound."""
        if self.fine_bound_ns is None or not self.value_ns:
            return None
        return (self.value_ns - self.fine_bound_ns) / abs(self.value_ns)


def parse_exports(pairs: Sequence[str]) -> dict[str, Path]:
    """``KIND=FILE`` texts of ``--export``."""
    exports: dict[str, Path] = {}
    for pair in pairs:
        kind, equals, name = pair.partition("=")
        if not kind or not equals or not name:
            raise InputError(f"--export {pair!r} is not KIND=FILE ({', '.join(EXPORTERS)})")
        find_exporter(kind)
        if kind in exports:
            raise InputError(f"--export {kind!r} is given twice")
        exports[kind] = Path(name)
    return exports


def needed_granularity(given: Granularity | None, kinds: Sequence[str]) -> Granularity:
    """The option, else whole layers where a format has nothing smaller, or all but experts."""
    if given is not None:
        return given
    apart = [EXPORTERS[kind].experts_apart for kind in kinds if EXPORTERS[kind].whole_layers]
    return ("experts" if all(apart) else "layer") if apart else "op"


def joins_ends(kinds: Sequence[str]) -> bool:
    """Whether a format has all embeddings in the first stage, and norm and head in the last."""
    return any(EXPORTERS[kind].join_ends for kind in kinds)


def check_copies(kinds: Sequence[str], graph: Graph, model: str) -> None:
    """Refuse formats that are a copy of the model's own file where that is no ONNX file."""
    for kind in kinds:
        if EXPORTERS[kind].annotate is not None and not is_onnx_file(graph, model):
            raise InputError(
                f"is no ONNX file, and --export {kind} writes the plan into a copy of one; place"
                f" the .onnx file itself, or export {DEVICE_MAP} or csv",
                model,
            )


def check_formats(kinds: Sequence[str], placed: Instance, semantics: Semantics) -> None:
    """Refuse, before a plan is looked for, formats that cannot express it.

    `placed` has the groups of the granularity that was chosen: a layer of several may be divided.
    """
    for kind in kinds:
        check_export(kind, placed, semantics)
        if not EXPORTERS[kind].whole_layers:
            continue
        first, apart = dict[tuple[str, bool], int](), EXPORTERS[kind].experts_apart
        for op, layer, group in zip(
            placed.graph.ops, layer_of(placed.graph), placed.arrays.group.tolist(), strict=True
        ):
            part = layer or "", apart and is_expert(op)
            if layer is not None and first.setdefault(part, group) != group:
                raise InputError(
                    f"a plan may divide layer {layer!r}, and this format has whole layers; leave"
                    " out --granularity, or export csv",
                    f"export {kind}",
                )


def is_onnx_file(graph: Graph, model: str) -> bool:
    """Whether a graph was read from the ONNX file of that name, and not from what it became."""
    is_file = Path(model).is_file() and not model.endswith((".json", ".json.gz"))
    return is_file and graph.provenance.source.startswith("ONNX model ")


def write_exports(
    instance: Instance, result: Result, exports: dict[str, Path], model: str
) -> tuple[str, ...]:
    """Write the plan in each format that can express it, where a file can be written; warnings.

    `model` is the name that the user gave: the file of which a copy is written.
    """
    if result.plan is None:
        return ()
    notes, texts = list[str](), dict[str, str]()
    for kind, path in exports.items():
        with attempt(path):
            if result.split is not None:
                raise InputError(
                    f"{result.method} splits ops, which no format has; choose another method"
                )
            if EXPORTERS[kind].annotate is None:
                texts[kind] = _text(kind, instance, result)
                write_text(texts[kind], path)
                continue
            data, outside = _annotated(kind, instance, result, Path(model))
            write_bytes(data, path)
            if outside and path.resolve().parent != Path(model).resolve().parent:
                notes.append(
                    f"{kind}: the weights stay in {', '.join(outside)}, beside {model}; copy them"
                    f" to where {path} is"
                )
    if any(kind in IN_ORDER for kind in exports):
        notes += _unusual_order(instance, result)
    if DEVICE_MAP in exports and WITHOUT_OPS not in instance.graph.provenance.parameters:
        notes.append(
            "device_map: the model's file does not say which modules no op names (gpt2's wpe);"
            " tracing it anew (hf:, py:) makes the map complete"
        )
    unread = instance.graph.provenance.parameters.get(UNREAD)
    if DEVICE_MAP in exports and unread:
        notes.append(
            f"device_map: {unread} go with the layers that are named alike, and neither their"
            " memory nor their time is counted there"
        )
    left_out = instance.graph.provenance.parameters.get(LEFT_OUT)
    if "megatron" in texts and isinstance(left_out, str):
        count = int(left_out.partition("=")[2])
        whole = texts["megatron"].strip().replace("L", f"{'m' * count}L")
        notes.append(
            f"megatron: the graph lacks {left_out}; with --mtp-num-layers {count} write {whole},"
            " and leave room for their time and memory in the last stage"
        )
    return tuple(notes)


def _text(kind: str, instance: Instance, result: Result) -> str:
    """The file of one kind; a hybrid plan it cannot express is refused, with one that it can."""
    assert result.plan is not None
    try:
        return export_plan(kind, instance, result.plan, result.semantics)
    except InputError as error:
        rules = result.semantics
        if not isinstance(rules, HybridPipeline) or not result.value_ns:
            raise
        rules = rules.model_copy(update={"degrees": "one", "recompute": "all_or_none"})
        other = run_method(instance, rules, "hybrid-cuts", time_limit_s=NEAREST_S)
        if other.plan is None or other.value_ns is None:
            raise
        try:
            export_plan(kind, instance, other.plan, rules)
        except InputError:
            raise error from None
        price = f"{100 * (other.value_ns / result.value_ns - 1):+.1f} %"
        if other.status == "optimal":
            price += ", proven"
        asked = "--degrees one --recompute all_or_none"
        raise InputError(f"{error}; with any cuts: {asked}, {price}") from None


def _annotated(
    kind: str, instance: Instance, result: Result, model: Path
) -> tuple[bytes, tuple[str, ...]]:
    """A copy of the model's file with the plan in it, and the files that hold its weights."""
    annotate, plan = EXPORTERS[kind].annotate, result.plan
    assert annotate is not None
    assert plan is not None
    content = inlined_model(model)
    before = device_faults(content)
    try:
        annotate(content, instance, plan, result.semantics)
    except InputError as error:
        raise InputError(str(error), f"export {kind}") from None
    ours = [fault for fault in device_faults(content) if fault not in before]
    assert not ours, ours[0]
    outside = {
        entry.value
        for tensor in content.graph.initializer
        for entry in tensor.external_data
        if entry.key == "location"
    }
    try:
        return content.SerializeToString(), tuple(sorted(outside))
    except Exception as error:  # protobuf's EncodeError, whose module has no types: 2 GB
        raise InputError(f"the copy cannot be made: {error}", model) from None


def _unusual_order(instance: Instance, result: Result) -> list[str]:
    """A sentence where the stages do not run on the first devices in their order."""
    assert result.plan is not None
    if isinstance(result.semantics, HybridPipeline):
        stages = dict(zip(result.plan.stage or (), result.plan.placement, strict=True))
        used = [k for _, on in sorted(stages.items()) for k in on]
    else:
        used = list(dict.fromkeys(layer_devices(instance, result.plan).values()))
    names = [instance.cluster.devices[k].name for k in used]
    if names == [spec.name for spec in instance.cluster.devices[: len(names)]]:
        return []
    return [f"the stages run on {', '.join(names)}, in this order: number the ranks so"]


def price_of_modules(
    instance: Instance, attempt: Attempt, result: Result, granularity: Granularity
) -> ModulePrice | None:
    """What is lost by whole modules: place the ops one by one, from the plan at hand.

    `attempt` has the time limit. None where that fails, or there is no plan.
    """
    if result.plan is None or result.value_ns is None:
        return None
    try:  # a plan of whole modules is one of single ops: what comes out is no worse
        start = judged_plan(instance, attempt.semantics, result.plan)
        fine, _ = place(replace(attempt, source=instance), start=start)
    except (InputError, RuntimeError):
        return None
    if fine.value_ns is None:
        return None
    values = (result.value_ns, fine.value_ns, fine.bound_ns)
    return ModulePrice(granularity, *values, result.semantics)
