"""Plans for other tools: which granularity their formats need, the best lines that they can say,
the files, and what whole modules cost.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from placegap.experiments.running.placing import Attempt, better, judged_plan, place
from placegap.instances.exporters.hybrid import nearest_hybrid
from placegap.instances.exporters.lines import (
    LLAMACPP,
    VISIBLE,
    LineClass,
    alike_devices,
    gpus_and_host,
)
from placegap.instances.exporters.modules import layer_devices, num_experts, priced_map
from placegap.instances.exporters.onnx import device_faults
from placegap.instances.exporters.read_lines import ReadLine
from placegap.instances.exporters.table import EXPORTERS, check_export, export_plan, find_exporter
from placegap.instances.files.output_files import attempt, write_bytes, write_text
from placegap.instances.importers.onnx_model import inlined_model
from placegap.instances.problem import WITHOUT_OPS, Graph, Instance, Plan, Semantics
from placegap.instances.problem.integers import format_bytes
from placegap.instances.problem.modules import Granularity, layer_of, with_granularity
from placegap.instances.reading.errors import InputError
from placegap.instances.referee.evaluate import feasible_value
from placegap.instances.torch_models.options import LEFT_OUT, UNREAD
from placegap.solvers import Result, run_method
from placegap.solvers.chains.best_line import (
    ORIGIN,
    TIE,
    BestLine,
    best_expert_count,
    best_line,
    free_bytes,
    roomiest_line,
)
from placegap.solvers.core.result import Bound, carry_bound, is_better
from placegap.solvers.solving.tensor_split import best_tensor_plan, shares_texts

DEVICE_MAP, KTRANSFORMERS = "device_map", "ktransformers"

NEAREST_S = 20.0  # seconds for the best hybrid plan of one d, t, mode (optima take 2), or map
LONGEST = 200  # longer exports are named by their files in the answer
# Formats that number stages and name no devices.
IN_ORDER = ("torchtitan", "megatron", "vllm", "sglang", "pipelining")


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
        return abs(self.value_ns - self.fine_bound_ns) / self.value_ns


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
    lines = [EXPORTERS[kind].line for kind in kinds if EXPORTERS[kind].whole_layers]
    lines += [LLAMACPP for kind in kinds if kind == KTRANSFORMERS]  # which looks at no other plan
    apart = all(line is not None and line.experts_apart for line in lines)
    return ("experts" if apart else "layer") if lines else "op"


def joins_ends(kinds: Sequence[str]) -> bool:
    """Whether a format has all embeddings in the first stage, and norm and head in the last."""
    return any(EXPORTERS[kind].join_ends for kind in kinds)


def able_exports(
    exports: dict[str, Path], placed: Instance, semantics: Semantics, model: str
) -> dict[str, Path]:
    """The exports without those that can say none of the plans."""
    # Each of these is reported at the end; refused, before a plan is looked for, if none is left.
    able, failed = dict[str, Path](), list[tuple[Path, InputError]]()
    for kind, path in exports.items():
        try:
            check_format(kind, placed, semantics, model)
            able[kind] = path
        except InputError as error:
            failed.append((path, error))
    if failed and not able:
        raise failed[0][1]
    for path, why in failed:
        with attempt(path):
            raise why
    return able


def check_format(kind: str, placed: Instance, semantics: Semantics, model: str) -> None:
    """Refuse a format that can express no plan, or a copy of a file that is not an ONNX file."""
    # `placed` has the groups of the granularity that was chosen: a layer of several may be divided,
    # which is no matter where a line is looked for by itself.
    if EXPORTERS[kind].annotate is not None and not is_onnx_file(placed.graph, model):
        raise InputError(
            f"is not an ONNX file, and --export {kind} writes the plan into a copy of one; place"
            f" the .onnx file itself, or export {DEVICE_MAP} or csv",
            model,
        )
    check_export(kind, placed, semantics)
    if kind == KTRANSFORMERS:
        num_experts(placed)
    if not EXPORTERS[kind].whole_layers or line_class(kind, semantics) is not None:
        return
    first = dict[str, int]()
    for layer, group in zip(layer_of(placed.graph), placed.arrays.group.tolist(), strict=True):
        if layer is not None and first.setdefault(layer, group) != group:
            raise InputError(
                f"a plan may divide layer {layer!r}, but this format keeps layers whole; leave"
                " out --granularity, or export csv",
                f"export {kind}",
            )


def line_class(kind: str, semantics: Semantics) -> LineClass | None:
    """Which lines a format can express; none for hybrid plans and ranges."""
    return None if semantics.has_modes or semantics.holds_ranges else EXPORTERS[kind].line


@dataclass(frozen=True)
class Said:
    """What a tool runs, and what no plan that it can say is below; `text` is a line, or a file."""

    kind: str
    text: str
    value_ns: int
    bound: Bound | None
    notes: tuple[str, ...] = ()


def best_options(
    instance: Instance, semantics: Semantics, read: ReadLine, limit_s: float
) -> Said | None:
    """The best options of the tool of a line that was read; of no line, no text."""
    kind, of = read.kind, line_class(read.kind, semantics)
    if semantics.has_modes:
        found = run_method(instance, semantics, "hybrid-cuts", time_limit_s=limit_s)
        if found.plan is None:
            return None
        try:
            text, value_ns = nearest_hybrid(kind, instance, found.plan, semantics)
        except InputError:
            return None
        shown = " ".join(text.split()) if len(text) < LONGEST else f"(--export {kind}=FILE)"
        return Said(kind, shown, value_ns, found.bound)
    line = None if of is None else best_line(instance, semantics, of, limit_s)
    if read.is_shared and semantics.objective == "makespan":
        shares = best_tensor_plan(instance, semantics, "layer", limit_s)
        text = "" if shares is None else shares_texts(shares).get(kind, "")
        if shares is not None and text and (line is None or shares.value_ns < line.value_ns):
            return Said(kind, text, shares.value_ns, Bound(shares.bound_ns))
    if line is None:
        return None
    text = ""
    with suppress(InputError):  # of a group in several layers
        text = export_plan(kind, instance, line.plan, semantics).strip()
    notes = unusual_order(kind, text, instance, line.plan, semantics)
    return Said(kind, text, line.value_ns, line.bound, tuple(notes))


def best_lines(
    instance: Instance, placed: Instance, result: Result, kinds: Sequence[str]
) -> tuple[dict[LineClass, BestLine], Result]:
    """The best line of each class of formats that cannot say an optimal plan; and the result."""
    # The result has the best line in place of a worse plan, if it is one of what was placed.
    semantics, found = result.semantics, dict[LineClass, BestLine]()
    for kind in kinds:
        of = line_class(kind, semantics)
        if of is None or of in found or result.split is not None:
            continue
        if result.status == "infeasible" or _is_said(kind, instance, result):
            continue
        line = best_line(instance, semantics, of)
        if line is None:
            continue
        found[of] = line
        value_ns = feasible_value(placed, line.plan, semantics)
        if value_ns is not None and is_better(value_ns, result.value, semantics):
            judged = better(result, judged_plan(placed, semantics, line.plan))
            details, solve_s = {**result.details, "plan_by": ORIGIN}, result.solve_s
            result = replace(judged, method=result.method, details=details, solve_s=solve_s)
    return found, result


def with_room(
    instance: Instance, placed: Instance, result: Result, kinds: Sequence[str]
) -> tuple[dict[LineClass, BestLine], Result]:
    """`best_lines`; among near ties of the load of decode steps, those with most room."""
    lines, result = best_lines(instance, placed, result, kinds)
    rules = result.semantics
    is_step = bool(instance.graph.provenance.parameters.get("decode"))
    if not (is_step and rules.objective == "max_load" and result.plan) or result.split is not None:
        return lines, result
    usual = "vllm" if gpus_and_host(instance.cluster)[1] is None else "llamacpp"
    for of in dict.fromkeys(line_class(kind, rules) for kind in kinds or (usual,)):
        line = None
        with suppress(InputError):  # of a model without one list of layers
            line = None if of is None else lines.get(of) or best_line(instance, rules, of)
        if of is None or line is None:
            continue
        lines[of] = line = roomiest_line(instance, rules, of, line)
        free = free_bytes(placed, result.plan, rules)
        value, more = feasible_value(placed, line.plan, rules), free_bytes(placed, line.plan, rules)
        if value is None or value > (result.value or 0) * (1 + TIE) or more <= free:
            continue
        judged = carry_bound(judged_plan(placed, rules, line.plan), result)
        result = replace(
            judged,
            method=result.method,
            details={**result.details, "plan_by": ORIGIN},
            solve_s=result.solve_s,
            message=f"of loads up to {100 * TIE:g} % above the lowest this leaves most room:"
            f" {format_bytes(more)} on the fullest card instead of {format_bytes(free)}",
        )
    return lines, result


def _is_said(kind: str, instance: Instance, result: Result) -> bool:
    """Whether a format expresses the plan, and the plan is optimal."""
    if result.plan is None or result.status != "optimal":
        return False
    try:
        export_plan(kind, instance, result.plan, result.semantics)
    except InputError:
        return False
    return True


def is_onnx_file(graph: Graph, model: str) -> bool:
    """Whether a graph was read from the ONNX file of that name, and not from what it became."""
    is_file = Path(model).is_file() and not model.endswith((".json", ".json.gz"))
    return is_file and graph.provenance.source.startswith("ONNX model ")


def write_exports(
    instance: Instance,
    result: Result,
    exports: dict[str, Path],
    model: str,
    lines: Mapping[LineClass, BestLine],
) -> tuple[tuple[str, ...], tuple[Said, ...]]:
    """Write the best plan that each format can express; warnings, and what the tools run."""
    # Only where a file can be written. `model` is the name that the user gave: the file of which a
    # copy is written.
    if result.plan is None:
        return (), ()
    notes, texts, said = list[str](), dict[str, str](), list[Said]()
    for kind, path in exports.items():
        with attempt(path):
            if result.split is not None:
                raise InputError(
                    f"{result.method} splits ops, which no format has; choose another method"
                )
            if EXPORTERS[kind].annotate is None:
                texts[kind], plan, theirs = _text(kind, instance, result, lines)
                write_text(texts[kind], path)
                if theirs is not None:
                    shown = texts[kind].strip().replace("\n", "; ")
                    said.append(replace(theirs, text=shown if len(shown) < LONGEST else str(path)))
                if plan is not None:
                    notes += unusual_order(kind, texts[kind], instance, plan, result.semantics)
                continue
            data, outside = _annotated(kind, instance, result, Path(model))
            write_bytes(data, path)
            if outside and path.resolve().parent != Path(model).resolve().parent:
                notes.append(
                    f"{kind}: the weights stay in {', '.join(outside)}, beside {model}; copy them"
                    f" to where {path} is"
                )
    if DEVICE_MAP in exports and WITHOUT_OPS not in instance.graph.provenance.parameters:
        notes.append(
            "device_map: the model's file does not say which modules no op names (gpt2's wpe);"
            " trace the model (hf:, py:) for a complete map"
        )
    unread = instance.graph.provenance.parameters.get(UNREAD)
    if DEVICE_MAP in exports and unread:
        notes.append(
            f"device_map: {unread} are placed with the layers of the same name; their memory"
            " and time are not counted there"
        )
    left_out = instance.graph.provenance.parameters.get(LEFT_OUT)
    if "megatron" in texts and isinstance(left_out, str):
        count = int(left_out.partition("=")[2])
        whole = texts["megatron"].strip().replace("L", f"{'m' * count}L")
        notes.append(
            f"megatron: the graph lacks {left_out}; with --mtp-num-layers {count} write {whole},"
            " and leave room for their time and memory in the last stage"
        )
    return tuple(dict.fromkeys(notes)), tuple(said)


def _text(
    kind: str, instance: Instance, result: Result, lines: Mapping[LineClass, BestLine]
) -> tuple[str, Plan | None, Said | None]:
    """The file of one kind, its plan if it is known, and what it is worth."""
    assert result.plan is not None
    rules, of, value_ns = result.semantics, line_class(kind, result.semantics), result.value
    line = None if of is None else lines.get(of)
    if kind == KTRANSFORMERS:
        return experts_line(instance, rules)
    if kind == DEVICE_MAP and not rules.has_modes:
        priced = _device_map(instance, result)
        if priced is not None:
            return priced
    plan, text = result.plan, ""
    try:
        text = export_plan(kind, instance, plan, rules)
    except InputError:
        if rules.has_modes:
            text, theirs_ns = _nearest(kind, instance, result, rules)
            return text, None, Said(kind, text, theirs_ns, None)
        if line is None and of is not None and not of.has_host:
            raise InputError(
                "no split of the layers over GPUs alone was found that fits", f"export {kind}"
            ) from None
        if line is None:
            raise
    if line is not None and (
        not text or value_ns is None or not is_better(value_ns, line.value_ns, rules)
    ):
        plan, value_ns = line.plan, line.value_ns
        text = export_plan(kind, instance, plan, rules)
    bound, is_line = result.bound if line is None else line.bound, of is not None or rules.has_modes
    said = Said(kind, text, value_ns, bound) if is_line and value_ns is not None else None
    return text, plan, said


def experts_line(instance: Instance, semantics: Semantics) -> tuple[str, None, Said]:
    """The best number of experts of each layer on a card; its gap is not known."""
    text, value_ns = best_expert_count(instance, semantics)
    return f"{text}\n", None, Said(KTRANSFORMERS, text, value_ns, None)


def _nearest(kind: str, instance: Instance, result: Result, rules: Semantics) -> tuple[str, int]:
    """The best hybrid plan that a tool can run: with the cuts at hand, or with one mode for all."""
    one = rules.model_copy(update={"degrees": "one", "recompute": "all_or_none"})
    other = run_method(instance, one, "hybrid-cuts", time_limit_s=NEAREST_S)
    found, why = list[tuple[int, str]](), list[InputError]()
    for plan, semantics in ((result.plan, rules), (other.plan, one)):
        if plan is not None:
            try:
                text, value_ns = nearest_hybrid(kind, instance, plan, semantics)
            except InputError as error:
                why.append(error)
            else:
                found.append((value_ns, text))
    if not found:
        raise InputError(str(why[0]), f"export {kind}")
    value_ns, text = min(found)
    return text, value_ns


def _device_map(instance: Instance, result: Result) -> tuple[str, Plan | None, Said] | None:
    """The best map where accelerate copies the weights of what is on a CPU to its main card."""
    # That is the first card of the map; None where the plan has nothing on a CPU.
    gpus, host = gpus_and_host(instance.cluster)
    assert result.plan is not None
    used = {k for on in result.plan.placement for k in on}
    if host is None or not gpus or used <= set(gpus):
        return None
    layers, best = with_granularity(instance, "layer"), list[tuple[int, int, Result]]()
    for own in alike_devices(instance):
        if own[0] in gpus:
            priced = priced_map(layers, own[0])
            found = run_method(priced, result.semantics, "auto", time_limit_s=NEAREST_S)
            if found.value is not None:
                best.append((found.value, own[0], found))
    if not best:
        raise InputError("no map of whole layers fits", "export device_map")
    value_ns, main, found = min(best, key=lambda each: each[:2])
    assert found.plan is not None
    placed = json.loads(export_plan(DEVICE_MAP, instance, found.plan, result.semantics))
    # the first card of the map is the main one
    number = gpus.index(main)
    order = sorted(placed, key=lambda module: placed[module] != number)
    text = json.dumps({module: placed[module] for module in order}, indent=2) + "\n"
    return text, found.plan, Said(DEVICE_MAP, text, value_ns, found.bound)


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


def unusual_order(
    kind: str, text: str, instance: Instance, plan: Plan, semantics: Semantics
) -> list[str]:
    """A sentence where stages do not run on the first devices in order, if the text hides that."""
    if kind not in IN_ORDER or VISIBLE in text or semantics.holds_ranges:
        return []
    if semantics.has_modes:
        stages = dict(zip(plan.stage or (), plan.placement, strict=True))
        used = [k for _, on in sorted(stages.items()) for k in on]
    else:
        used = list(dict.fromkeys(layer_devices(instance, plan).values()))
    names = [instance.cluster.devices[k].name for k in used]
    if names == [spec.name for spec in instance.cluster.devices[: len(names)]]:
        return []
    return [f"start {', '.join(f'rank {k} on {name}' for k, name in enumerate(names))}"]


def price_of_modules(
    instance: Instance, attempt: Attempt, result: Result, granularity: Granularity
) -> ModulePrice | None:
    """The cost of whole modules: the ops are placed one by one, from the plan at hand."""
    # `attempt` has the time limit. None where that fails, or there is no plan.
    if result.plan is None or result.value is None:
        return None
    try:  # a plan of whole modules is one of single ops: what comes out is no worse
        start = judged_plan(instance, attempt.semantics, result.plan)
        fine, _ = place(replace(attempt, source=instance), start=start)
    except (InputError, RuntimeError):
        return None
    if fine.value is None:
        return None
    values = (result.value, fine.value, fine.bound_value)
    return ModulePrice(granularity, *values, result.semantics)
