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
    memory_of,
)
from placegap.experiments.show.objectives.base import Judged, words_of
from placegap.experiments.show.rendering import plain_table
from placegap.instances.costing.fitted import beside_line, fitted_costs
from placegap.instances.costing.layer_modes import BY_KERNELS, MODELLED
from placegap.instances.costing.measured_links import MEASURED_LINKS
from placegap.instances.costing.runtime_memory import RESERVED
from placegap.instances.files.plan_file import describe_plan
from placegap.instances.problem import DeviceUse, Evaluation, Instance, Plan, Semantics
from placegap.instances.problem.integers import UNSUPPORTED
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
    has_loads = "load" in semantics.rules()
    rows = []
    for k, (use, spec) in enumerate(zip(verdict.uses, instance.cluster.devices, strict=True)):
        memory = memory_of(use.memory_bytes, spec.memory_bytes)
        what = layers[k] if layers else str(use.num_ops)
        times = (format_ns(use.compute_ns), format_ns(communication[k]))
        load = (format_ns(use.load_ns),) if has_loads else ()
        rows.append((use.device, spec.kind, what, *times, *load, *_tokens(use), memory))
    head = ("device", "kind", "layers" if layers else "ops", "compute", "communication")
    more = ("load",) * has_loads + ("tokens",) * (semantics.unit == "tokens")
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


LONGEST_LAYERS = 40  # characters of a device's layers; longer ones are counted


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
    return (
        "none" if use.tokens < 0 else format_value(use.tokens, "tokens").removesuffix(" tokens"),
    )


def plan_table(
    instance: Instance,
    plan: Plan,
    verdict: Evaluation,
    semantics: Semantics,
    whole: Granularity = "op",
) -> Table:
    """One line per device, or per stage of a hybrid plan."""
    table = words_of(semantics).table
    if table is not None and verdict.value is not None:
        return plain_table(None, *table(Judged(instance, plan, semantics, verdict)))
    held = layers_per_device(instance, plan) if whole == "layer" else ()
    layers = [layer_words(names) for names in held]
    return device_table(instance, verdict, semantics, layers)


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


SHOWN_S = 0.1  # loading that takes less is not printed
MOST_NAMES = 4  # more devices are counted, not named

THROUGHPUT = "For throughput: --objective max_load"
SAYS_FREE = "KIND:22GB in --cluster, or reserved_bytes in a file"
EXACT = "An exact method may find a better plan: leave --method out"


def plan_notes(instance: Instance, result: Result) -> tuple[str, ...]:
    """Sentences about a result's plan, for people who expected all devices to be used."""
    # The instance is that of the plan: the finer one, where the method split ops or layers were
    # kept whole.
    verdict, stated = result.evaluation, instance.cluster.provenance.parameters
    notes: tuple[str, ...] = (f"{stated[RESERVED]} ({SAYS_FREE})",) if RESERVED in stated else ()
    notes += (str(stated[MEASURED_LINKS]),) if MEASURED_LINKS in stated else ()
    modes = str(instance.graph.provenance.parameters.get(MODELLED, ""))
    notes += (f"modes are {modes}",) if modes.startswith(BY_KERNELS) else ()
    if result.semantics.objective == "makespan":
        notes += beside_line(instance, result.value_ns)
    if result.plan is not None and verdict is not None:
        notes += (*_no_state(instance, result.semantics), *_idle(instance, result, verdict))
    return tuple(map(printable, notes))


def _no_state(instance: Instance, semantics: Semantics) -> tuple[str, ...]:
    """A note if memory is counted at its peak, but no op states what it keeps."""
    sizes = instance.memory_arrays
    stated = sizes.state_bytes.any() or len(sizes.shared_bytes)
    if semantics.memory_rule == "sum" or stated or not instance.arrays.resident_bytes.any():
        return ()
    return (
        "no op states parameter_bytes, state_bytes or shared_state: the peaks count tensors and"
        " workspace alone; --memory sum counts the resident bytes",
    )


def _idle(instance: Instance, result: Result, verdict: Evaluation) -> tuple[str, ...]:
    """Why the plan leaves devices unused, if it does."""
    # What is optimal among plans of whole layers is not proven of the ops one by one.
    if not verdict.idle_devices:
        return ()
    if result.status == "optimal" and result.instance_hash != instance.content_hash:
        result = replace(result, status="feasible")
    cluster, time_ns = instance.cluster, instance.arrays.time_ns
    idle = [cluster.device_index[name] for name in verdict.idle_devices]
    runs_none = (time_ns == UNSUPPORTED).all(axis=0)
    if runs_none[idle].all():
        return (f"{unused(verdict)}: no op of this model can run there",)
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
        return (f"{unused(verdict)}: a host",)
    why = words_of(result.semantics).idle
    return (unused(verdict) if why is None else why(instance, result, verdict),)


def is_heuristic(method: str) -> bool:
    """Whether a method proves no bound."""
    return method in METHODS and METHODS[method].claim == "heuristic"


def unused(verdict: Evaluation) -> str:
    """``gpu0 and gpu1 are unused``."""
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
    costs = fitted_costs(instance)
    return {
        "version": version("placegap"),
        "instance": result.instance,
        "semantics": result.semantics.model_dump(mode="json"),
        "method": result.method,
        "status": result.status,
        result.semantics.key("value"): result.value,
        result.semantics.key("bound"): result.bound_value,
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
        "costs": None if costs is None else costs._asdict(),
        "faults": list(result.faults),
        "details": dict(result.details),
        **words_of(result.semantics).more(result),
        "devices": devices,
        **placed_object(instance, result),
    }


def opinion_object(opinion: Opinion, semantics: Semantics) -> dict[str, Any]:
    """What ``--json`` prints of a second opinion."""
    result = opinion.result
    return {
        "verdict": opinion.verdict,
        "method": opinion.method,
        "sentence": opinion.sentence,
        semantics.key("value"): None if result is None else result.value,
        semantics.key("bound"): None if result is None else result.bound_value,
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
    line = f"{format_value(mine, certificate.semantics.unit)} ({certificate.proof.kind})"
    if printed is None:
        return f"{line}, the whole bound"
    basis = describe_basis("", certificate.printed_rests_on) or "a method"
    return f"{line}, {format_gap((printed - mine) / printed)} less than the bound {basis}"


def gap_words(gap: float | None, value_ns: int | None, bound: Bound | None) -> str:
    """The gap, or its upper limit if no method proved the bound."""
    most = None if bound is None else relative_gap(value_ns, bound.value)
    if gap is not None or bound is None or most is None:
        return "unknown" if gap is None else format_gap(gap)
    return f"unknown; at most {format_gap(most)} ({bound.origin} only)"


def _gap_words(result: Result) -> str:
    """The gap, and the bound that it refers to."""
    bound = None if result.bound_value is None else result.bound
    words = gap_words(result.gap, result.value, bound)
    if not result.gap or bound is None:
        return words
    by = bound.origin or result.method
    return f"{words} to {format_value(bound.value, result.semantics.unit)} ({by})"


LONGEST_ORIGIN = 80  # characters of what a file says has proven its claim


def claim_words(claim: Claim, semantics: Semantics) -> str:
    """A file's claim, with the file's name."""
    value = format_value(claim.value, semantics.unit)
    origin = ", ".join(filter(None, (shorten(claim.origin, LONGEST_ORIGIN), claim.plans)))
    what = value if claim.is_bound else f"a plan of {value}"
    return f"{what} by {claim.file}" + (f" ({origin})" if origin else "")


def claim_objects(claims: Sequence[Claim], semantics: Semantics) -> list[dict[str, Any]]:
    """What ``--json`` prints of claims."""
    return [
        {
            "file": claim.file,
            semantics.key("bound" if claim.is_bound else "value"): claim.value,
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
    console.print(f"{result.instance}: {result.semantics.label}, {result.method}")
    if result.evaluation is not None and result.plan is not None:
        table = plan_table(instance, result.plan, result.evaluation, result.semantics, whole)
        console.print(table)
        for line in server_lines(result.evaluation):
            console.print(line)
    rules = result.semantics
    value = "none" if result.value is None else format_value(result.value, rules.unit)
    if result.value is not None:
        value += words_of(rules).after_value(result)
    found_by = result.details.get("plan_by")
    if result.value is not None and found_by:
        value += f" (by {found_by})"
    bound = "none"
    if result.bound_value is not None:
        basis = describe_basis(result.bound_origin or result.method, result.rests_on)
        bound = f"{format_value(result.bound_value, rules.unit)} ({basis})"
    build = f"build {format_s(result.build_s)}, " if result.build_s else ""
    console.print(f"status  {result.status}")
    console.print(f"value   {value}")
    console.print(f"bound   {bound}")
    console.print(f"gap     {_gap_words(result)}")
    for claim in claims:
        console.print(f"claimed {claim_words(claim, rules)}")
    costs = fitted_costs(instance)
    if costs is not None:
        for head, line in zip(("costs", ""), costs.lines, strict=False):
            console.print(f"{head:8}{line}")
    setup = f"; loading {format_s(result.setup_s)}" if result.setup_s >= SHOWN_S else ""
    console.print(f"time    {build}solve {format_s(result.solve_s)}{setup}")
    for sentence in filter(None, (result.message, *plan_notes(instance, result))):
        console.print(f"note    {sentence}")
