"""A placement in words, for people, and as an object, for scripts.

Below the result stand sentences on why a plan leaves devices unused, and what would use them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.table import Table

from placegap.experiments.show.figures import (
    format_gap,
    format_ns,
    format_s,
    format_value,
    memory_name,
)
from placegap.experiments.show.hybrid_stages import (
    STAGE_HEAD,
    bubble_words,
    stage_rows,
    stages_apart,
)
from placegap.experiments.show.rendering import plain_table
from placegap.instances.costing.catalogue import is_cpu
from placegap.instances.costing.costing import MEASURED_SHARE
from placegap.instances.costing.layer_modes import BY_KERNELS, MODELLED
from placegap.instances.costing.measured_links import MEASURED_LINKS
from placegap.instances.costing.runtime_memory import RESERVED
from placegap.instances.files.plan_file import describe_plan
from placegap.instances.problem import (
    AllLoads,
    DeviceUse,
    Evaluation,
    HybridPipeline,
    Instance,
    LoadSemantics,
    MaxContext,
    PipelineIteration,
    Plan,
    Semantics,
    has_two_levels,
    plan_class,
)
from placegap.instances.problem.integers import UNSUPPORTED, format_bytes
from placegap.instances.problem.modules import Granularity, layer_of, numbered_layers
from placegap.instances.reading.errors import shorten
from placegap.instances.reading.printable import printable
from placegap.solvers.core.registry import METHODS
from placegap.solvers.core.result import Bound, Result, describe_basis, relative_gap
from placegap.solvers.solving.known_bounds import Claim

if TYPE_CHECKING:
    from placegap.instances.certificates.certificate_file import Certificate
    from placegap.solvers import Result
    from placegap.solvers.solving.second_opinion import Opinion


def device_table(
    instance: Instance, verdict: Evaluation, semantics: Semantics, layers: Sequence[str] = ()
) -> Table:
    """One line per device: ops or layers, compute, communication, memory; its load and tokens."""
    communication = _communication_ns(verdict, instance.num_devices)
    is_load, is_context = isinstance(semantics, AllLoads), isinstance(semantics, MaxContext)
    rows = []
    for k, (use, spec) in enumerate(zip(verdict.uses, instance.cluster.devices, strict=True)):
        memory = format_bytes(use.memory_bytes)
        if spec.memory_bytes is not None:
            memory += f" of {format_bytes(spec.memory_bytes)}"
        what = layers[k] if layers else str(use.num_ops)
        times = (format_ns(use.compute_ns), format_ns(communication[k]))
        load = (format_ns(use.load_ns),) if is_load else ()
        rows.append((use.device, spec.kind, what, *times, *load, *_tokens(use), memory))
    head = ("device", "kind", "layers" if layers else "ops", "compute", "communication")
    more = (*(("load",) if is_load else ()), *(("tokens",) if is_context else ()))
    return plain_table(None, (*head, *more, memory_name(semantics)), rows)


def layers_per_device(instance: Instance, plan: Plan) -> list[list[str]]:
    """The layers that each device holds, in topological order."""
    layers = layer_of(instance.graph)
    held: list[dict[str, None]] = [{} for _ in range(instance.num_devices)]
    for i in instance.arrays.index.topological_order.tolist():
        name = layers[i]
        if name is not None:
            for k in plan.placement[i]:
                held[k][name] = None
    return [list(names) for names in held]


LONGEST_LAYERS = 40
"""Characters of a device's layers; longer ones are counted."""


def layer_words(layers: Sequence[str]) -> str:
    """Layers of one list by their numbers, others by the end of their names.

    Examples
    --------
    >>> layer_words(["embed", "h.0", "h.1", "h.3", "norm"])
    'embed, 0-1, 3, norm'
    """
    lists = numbered_layers(layers)
    parts: dict[str, list[int]] = {}
    for layer in layers:
        owner, _, last = layer.rpartition(".")
        numbers = parts.setdefault(owner if owner in lists and last.isdecimal() else last, [])
        numbers += [int(last)] if owner in lists and last.isdecimal() else []
    texts = [_ranges(numbers) if numbers else name for name, numbers in parts.items()]
    words = ", ".join(texts)
    if len(lists) > 1 or len(words) > LONGEST_LAYERS:
        return f"{layers[0]} to {layers[-1]} ({len(layers)})" if layers else "none"
    return words or "none"


def _ranges(numbers: Sequence[int]) -> str:
    """``0-3, 7``."""
    first = [n for n in numbers if n - 1 not in numbers]
    last = [n for n in numbers if n + 1 not in numbers]
    pairs = zip(sorted(first), sorted(last), strict=True)
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in pairs)


def device_objects(instance: Instance, verdict: Evaluation) -> list[dict[str, Any]]:
    """What ``--json`` prints of each device."""
    communication = _communication_ns(verdict, instance.num_devices)
    devices = zip(verdict.uses, instance.cluster.devices, communication, strict=True)
    return [
        {
            "device": use.device,
            "kind": spec.kind,
            "ops": use.num_ops,
            "compute_ns": use.compute_ns,
            "communication_ns": moved_ns,
            "load_ns": use.load_ns,
            "memory_bytes": use.memory_bytes,
            "memory_limit_bytes": spec.memory_bytes,
        }
        for use, spec, moved_ns in devices
    ]


def _tokens(use: DeviceUse) -> tuple[str, ...]:
    """For how many tokens a device has room, under max_context."""
    if use.tokens is None:
        return ()
    return ("none" if use.tokens < 0 else format_value(-use.tokens).removesuffix(" tokens"),)


def plan_table(
    instance: Instance,
    plan: Plan,
    verdict: Evaluation,
    semantics: Semantics,
    whole: Granularity = "op",
) -> Table:
    """One line per device, or per stage of a hybrid plan."""
    if not isinstance(semantics, HybridPipeline) or verdict.value_ns is None:
        held = layers_per_device(instance, plan) if whole == "layer" else ()
        layers = [layer_words(names) for names in held]
        return device_table(instance, verdict, semantics, layers)
    stages = stages_apart(instance, plan, semantics, verdict)
    return plain_table(None, STAGE_HEAD, stage_rows(instance, plan, verdict, stages))


def server_lines(verdict: Evaluation) -> list[str]:
    """One line per server, with two levels of communication: what crosses its border."""
    return [f"server {use.server}: {format_ns(use.load_ns)}" for use in verdict.servers]


def _communication_ns(verdict: Evaluation, num_devices: int) -> list[int]:
    """Time each device sends and receives: the schedule's transfers, or max_load's counting."""
    if verdict.schedule is None:
        return [use.in_ns + use.out_ns for use in verdict.uses]
    moved = [0] * num_devices
    transfers = verdict.schedule.transfers
    lengths = (transfers.end_ns - transfers.start_ns).tolist()
    for ends in (transfers.source.tolist(), transfers.destination.tolist()):
        for device, length in zip(ends, lengths, strict=True):
            moved[device] += length
    return moved


SHOWN_S = 0.1
"""Loading that takes less is not printed."""

MOST_NAMES = 4
"""More devices are counted, not named."""

THROUGHPUT = "For throughput: --objective max_load"
SAYS_FREE = "KIND:22GB in --cluster, or reserved_bytes in a file"
EXACT = "An exact method may find a better plan: leave --method out"


def plan_notes(instance: Instance, result: Result) -> tuple[str, ...]:
    """Sentences about a result's plan, for people who expected all devices to be used.

    The instance is that of the plan: the finer one, where the method split ops or layers were kept
    whole.
    """
    verdict, told = result.evaluation, instance.cluster.provenance.parameters
    notes: tuple[str, ...] = (f"{told[RESERVED]} ({SAYS_FREE})",) if RESERVED in told else ()
    notes += (str(told[MEASURED_LINKS]),) if MEASURED_LINKS in told else ()
    modes = str(instance.graph.provenance.parameters.get(MODELLED, ""))
    notes += (f"modes are {modes}",) if modes.startswith(BY_KERNELS) else ()
    if result.plan is not None and verdict is not None:
        notes += (*_no_state(instance, result.semantics), *_idle(instance, result, verdict))
    return tuple(map(printable, notes))


def whole_layers(instance: Instance, result: Result) -> tuple[str, ...]:
    """A decode step on several cards: what its optimum leaves out."""
    cluster, known = instance.cluster, instance.graph.provenance.parameters
    cards = sum(not is_cpu(device, cluster) for device in cluster.devices)
    if result.status != "optimal" or result.semantics.objective != "makespan":
        return ()
    if not known.get("decode") or cards < 2:
        return ()
    what = "layer or op" if result.instance_hash == instance.content_hash else "layer"
    return (f"optimal with each {what} on one card; --tensor-split also shares layers",)


def _no_state(instance: Instance, semantics: Semantics) -> tuple[str, ...]:
    """Formats that give one number for an op's memory say nothing of what stays."""
    sizes = instance.memory_arrays
    stated = sizes.state_bytes.any() or len(sizes.shared_bytes)
    if semantics.memory_rule == "sum" or stated or not instance.arrays.resident_bytes.any():
        return ()
    return (
        "no op states parameter_bytes, state_bytes or shared_state: the peaks count tensors and"
        " workspace alone; --memory sum counts the resident bytes",
    )


def _idle(instance: Instance, result: Result, verdict: Evaluation) -> tuple[str, ...]:
    """Why the plan leaves devices unused, if it does.

    What is optimal among plans of whole layers is not proven of the ops one by one.
    """
    if not verdict.idle_devices:
        return ()
    if result.status == "optimal" and result.instance_hash != instance.content_hash:
        result = replace(result, status="feasible")
    cluster, time_ns = instance.cluster, instance.arrays.time_ns
    idle = [cluster.device_index[name] for name in verdict.idle_devices]
    runs_none = (time_ns == UNSUPPORTED).all(axis=0)
    if runs_none[idle].all():
        return (f"{_unused(verdict)}: no op of this model can run there",)
    if runs_none.any():
        names = tuple(cluster.devices[k].name for k in np.flatnonzero(runs_none).tolist())
        return (
            f"no op of this model can run on {_names(names)}",
            *_chosen(instance, result, verdict),
        )
    return _chosen(instance, result, verdict)


def _chosen(instance: Instance, result: Result, verdict: Evaluation) -> tuple[str, ...]:
    """Why a plan leaves devices unused that it could use."""
    cluster = instance.cluster
    idle = [cluster.device_index[name] for name in verdict.idle_devices]
    if all(cluster.devices[k].is_host for k in idle):
        return (f"{_unused(verdict)}: a host",)
    if isinstance(result.semantics, LoadSemantics):
        return (_stages(verdict, result),)
    if isinstance(result.semantics, MaxContext):
        found = "no plan" if result.status == "optimal" else "no plan that was found"
        return (f"{_unused(verdict)}: {found} has room for more tokens with more devices",)
    if isinstance(result.semantics, HybridPipeline):
        found = "no plan is" if result.status == "optimal" else "no plan was found that is"
        return (f"{_unused(verdict)}: {found} faster with more devices",)
    if isinstance(result.semantics, PipelineIteration):
        return (_fewer_stages(instance, verdict, result, result.semantics),)
    return (_one_pass(instance, verdict, result),)


def _one_pass(instance: Instance, verdict: Evaluation, result: Result) -> str:
    """Makespan and latency: the end of one pass."""
    used = [use.device for use in verdict.uses if use.num_ops]
    proven = result.status == "optimal"
    if len(used) == 1 and proven and result.value_ns:
        from placegap.solvers.bounds.cheap_bounds import path_ns  # loads a solver

        share = path_ns(instance, transfers=False) / result.value_ns
        return (
            f"{used[0]} alone is optimal for one pass. {share:.0%} of its time is one path of ops,"
            " each of which waits for the one before. The rest would gain less from another device"
            f" than its transfers cost. {THROUGHPUT}"
        )
    if len(used) == 1 and proven:
        what = f"{used[0]} alone is optimal for one pass"
    elif len(used) == 1:
        what = f"the plan uses {used[0]} alone"
    else:
        what = _unused(verdict)
    why = "Only ops that can run side by side gain from another device, and each transfer costs"
    if not proven and _is_heuristic(result.method):
        return f"{what}. {why} time. {EXACT}. {THROUGHPUT}"
    return f"{what}. {why} time. {THROUGHPUT}"


def _fewer_stages(
    instance: Instance, verdict: Evaluation, result: Result, semantics: PipelineIteration
) -> str:
    """pipeline_iteration: another stage delays the first microbatch, or does not fit the rounds."""
    rounds = semantics.schedule == "interleaved" and semantics.microbatches % instance.num_devices
    if rounds:
        return (
            f"{_unused(verdict)}: {semantics.microbatches} microbatches are not a multiple"
            f" of {instance.num_devices} devices; interleaved needs one (--microbatches)"
        )
    from placegap.instances.problem.nets import gradient_tie  # loads networkx

    tie = gradient_tie(instance)
    if tie is not None:
        return f"{_unused(verdict)}: {tie}"
    if result.status == "optimal":
        return f"{_unused(verdict)}: no plan with more stages has a shorter iteration"
    if _is_heuristic(result.method):
        return f"{_unused(verdict)}. {EXACT}"
    return f"{_unused(verdict)}: the search found no shorter iteration with more stages"


def _stages(verdict: Evaluation, result: Result) -> str:
    """max_load and max_load_fwd_bwd: the heaviest stages."""
    heaviest = max(verdict.uses, key=lambda use: use.load_ns)
    if result.semantics.objective == "max_load_fwd_bwd":
        why = "the value is the sum of the heaviest forward and backward loads"
    elif has_two_levels(result.semantics):
        why = "the value is the heaviest load of a device or server"
    else:
        why = f"the value is the heaviest stage, {heaviest.device}'s"
    asked = _instead(result.semantics, heaviest.num_ops)
    if result.status == "optimal":
        why += ", and no plan has a lower one"
    elif _is_heuristic(result.method):
        asked = EXACT
    else:
        why += ", and the search found no lower one"
    return f"{_unused(verdict)}: {why}. {asked}"


def _instead(semantics: Semantics, num_ops: int) -> str:
    if num_ops == 1:
        return "'placegap split' divides an op that is a stage of its own"
    if semantics.objective == "max_load" and not semantics.replicas:
        return "With --replicas equal devices may share a stage"
    if plan_class(semantics) != "any":
        return "With --plans any a device may run any ops"
    return "'placegap split' divides heavy ops"


def _is_heuristic(method: str) -> bool:
    return method in METHODS and METHODS[method].claim == "heuristic"


def _unused(verdict: Evaluation) -> str:
    idle = verdict.idle_devices
    return f"{_names(idle)} {'is' if len(idle) == 1 else 'are'} unused"


def _names(names: tuple[str, ...]) -> str:
    """``gpu0``, ``gpu0 and gpu1``, ``gpu0, gpu1, gpu2 and 5 more``."""
    if len(names) > MOST_NAMES:
        shown = [*names[: MOST_NAMES - 1], f"{len(names) - MOST_NAMES + 1} more"]
    else:
        shown = list(names)
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))


def named_placement(instance: Instance, plan: Plan) -> dict[str, str | list[str]]:
    """The device of each op by name, or the devices that share it."""
    devices = [device.name for device in instance.cluster.devices]
    return {
        op.name: devices[on[0]] if len(on) == 1 else [devices[k] for k in on]
        for op, on in zip(instance.graph.ops, plan.placement, strict=True)
    }


def placed_object(instance: Instance, result: Result) -> dict[str, Any]:
    """The placement by name, or the stages of a hybrid plan."""
    if result.plan is None or result.plan.tensor is None:
        placed = None if result.plan is None else named_placement(instance, result.plan)
        return {"placement": placed}
    named = describe_plan(instance, result.plan, result.semantics).stages or ()
    return {"placement": None, "stages": [stage.model_dump(mode="json") for stage in named]}


def result_object(instance: Instance, result: Result, whole: Granularity = "op") -> dict[str, Any]:
    """What ``--json`` prints (docs/command-line.md): times in ns, the placement by name."""
    verdict = result.evaluation  # without uses where the plan's shape is wrong
    devices = device_objects(instance, verdict) if verdict is not None and verdict.uses else None
    if devices is not None and whole == "layer" and result.plan is not None:
        for own, layers in zip(devices, layers_per_device(instance, result.plan), strict=True):
            own["layers"] = layers
    return {
        "version": version("placegap"),
        "instance": result.instance,
        "semantics": result.semantics.model_dump(mode="json"),
        "method": result.method,
        "status": result.status,
        "value_ns": result.value_ns,
        "bound_ns": result.bound_ns,
        "bound_origin": result.bound_origin,
        "bound_class": result.bound_class,
        "rests_on": result.rests_on,
        "proved": result.proved,
        "gap": result.gap,
        "build_s": round(result.build_s, 6),
        "solve_s": round(result.solve_s, 6),
        "setup_s": round(result.setup_s, 6),
        "message": result.message,
        "notes": list(plan_notes(instance, result)),
        "costs": instance.graph.provenance.parameters.get(MEASURED_SHARE),
        "faults": list(result.faults),
        "details": dict(result.details),
        **_tokens_object(result),
        "devices": devices,
        **placed_object(instance, result),
    }


def _tokens_object(result: Result) -> dict[str, Any]:
    """Under max_context: tokens that fit, on all devices and on each, and that no plan exceeds."""
    if not isinstance(result.semantics, MaxContext):
        return {}
    uses = () if result.evaluation is None else result.evaluation.uses
    return {
        "tokens": None if result.value_ns is None else -result.value_ns,
        "tokens_bound": None if result.bound_ns is None else -result.bound_ns,
        "tokens_per_device": {use.device: use.tokens for use in uses},
    }


def opinion_object(opinion: Opinion) -> dict[str, Any]:
    """What ``--json`` prints of a second opinion."""
    result = opinion.result
    return {
        "verdict": opinion.verdict,
        "method": opinion.method,
        "sentence": opinion.sentence,
        "value_ns": None if result is None else result.value_ns,
        "bound_ns": None if result is None else result.bound_ns,
        "rests_on": "" if result is None else result.rests_on,
        "solve_s": None if result is None else round(result.solve_s, 6),
    }


def certificate_object(certificate: Certificate) -> dict[str, Any]:
    """What ``--json`` prints of a certificate that was written."""
    return {
        "bound_ns": certificate.bound_ns,
        "kind": certificate.proof.kind,
        "printed_bound_ns": certificate.printed_bound_ns or certificate.bound_ns,
        "printed_rests_on": certificate.printed_rests_on,
    }


def certificate_line(certificate: Certificate) -> str:
    """How much of the bound a certificate proves, and what the rest relies on."""
    mine, printed = certificate.bound_ns, certificate.printed_bound_ns
    line = f"{format_ns(mine)} ({certificate.proof.kind})"
    if printed is None:
        return f"{line}, the whole bound"
    basis = describe_basis("", certificate.printed_rests_on) or "a method"
    return f"{line}, {format_gap((printed - mine) / printed)} less than the bound {basis}"


def gap_words(gap: float | None, value_ns: int | None, bound: Bound | None) -> str:
    """The gap, or how large it can be beside a bound that no method proved."""
    most = None if bound is None else relative_gap(value_ns, bound.ns)
    if gap is not None or bound is None or most is None:
        return "unknown" if gap is None else format_gap(gap)
    return f"unknown; at most {format_gap(most)} ({bound.origin} only)"


def _gap_words(result: Result) -> str:
    """The gap, and to which bound it is."""
    bound = None if result.bound_ns is None else result.bound
    words = gap_words(result.gap, result.value_ns, bound)
    if not result.gap or bound is None:
        return words
    by = bound.origin or result.method
    return f"{words} to {format_value(bound.ns, result.semantics)} ({by})"


LONGEST_ORIGIN = 80
"""Characters of what a file says has proven its claim."""


def claim_words(claim: Claim, semantics: Semantics) -> str:
    """What a file claims, and that it does."""
    value = format_value(claim.ns, semantics)
    origin = ", ".join(filter(None, (shorten(claim.origin, LONGEST_ORIGIN), claim.plans)))
    what = value if claim.is_bound else f"a plan of {value}"
    return f"{what} by {claim.file}" + (f" ({origin})" if origin else "")


def claim_objects(claims: Sequence[Claim]) -> list[dict[str, Any]]:
    """What ``--json`` prints of claims."""
    return [
        {
            "file": claim.file,
            "bound_ns" if claim.is_bound else "value_ns": claim.ns,
            "origin": claim.origin,
            "plans": claim.plans,
        }
        for claim in claims
    ]


def print_result(
    console: Console,
    instance: Instance,
    result: Result,
    claims: Sequence[Claim] = (),
    whole: Granularity = "op",
) -> None:
    """What each device does, the value, the bound and the gap, and what files claim."""
    console.print(f"{result.instance}: {result.semantics.label}, {result.method}", markup=False)
    if result.evaluation is not None and result.plan is not None:
        table = plan_table(instance, result.plan, result.evaluation, result.semantics, whole)
        console.print(table)
        for line in server_lines(result.evaluation):
            console.print(line, markup=False)
    rules = result.semantics
    value = "none" if result.value_ns is None else format_value(result.value_ns, rules)
    if result.value_ns is not None and isinstance(result.semantics, HybridPipeline):
        value += f" a batch, {format_ns(result.value_ns // result.semantics.microbatches)} each"
        if result.semantics.bubble and result.evaluation is not None:
            value += f"; {bubble_words(result.evaluation)}"
    found_by = result.details.get("plan_by")
    if result.value_ns is not None and found_by:
        value += f" (by {found_by})"
    bound = "none"
    if result.bound_ns is not None:
        basis = describe_basis(result.bound_origin or result.method, result.rests_on)
        bound = f"{format_value(result.bound_ns, rules)} ({basis})"
    build = f"build {format_s(result.build_s)}, " if result.build_s else ""
    console.print(f"status  {result.status}")
    console.print(f"value   {value}", markup=False)
    console.print(f"bound   {bound}", markup=False)
    console.print(f"gap     {_gap_words(result)}", markup=False)
    for claim in claims:
        console.print(f"claimed {claim_words(claim, rules)}", markup=False)
    measured = instance.graph.provenance.parameters.get(MEASURED_SHARE)
    if measured is not None:
        console.print(f"costs   {measured}", markup=False)
    setup = f"; loading {format_s(result.setup_s)}" if result.setup_s >= SHOWN_S else ""
    console.print(f"time    {build}solve {format_s(result.solve_s)}{setup}")
    for sentence in filter(None, (result.message, *plan_notes(instance, result))):
        console.print(f"note    {sentence}", markup=False)
