"""A placement in words, for people, and as an object, for scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console

from placegap.experiments.show.figures import format_gap, format_ns, format_s
from placegap.experiments.show.place_report import device_table, plan_notes, server_lines
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.plan import Plan

if TYPE_CHECKING:
    from placegap.instances.io.certificate_file import Certificate
    from placegap.solvers import Result
    from placegap.solvers.solving.second_opinion import Opinion


def named_placement(instance: Instance, plan: Plan) -> dict[str, str | list[str]]:
    """The device of each op by name, or the devices that share it."""
    devices = [device.name for device in instance.cluster.devices]
    return {
        op.name: devices[on[0]] if len(on) == 1 else [devices[k] for k in on]
        for op, on in zip(instance.graph.ops, plan.placement, strict=True)
    }


def result_object(instance: Instance, result: Result) -> dict[str, Any]:
    """What ``--json`` prints: times in ns, the placement by name."""
    return {
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
        "faults": list(result.faults),
        "details": dict(result.details),
        "placement": None if result.plan is None else named_placement(instance, result.plan),
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
    """How much of the bound a certificate proves, and what the rest relies on.

    Examples
    --------
    >>> from placegap.instances import Makespan, example
    >>> from placegap.solvers.bounds.certificates import certify
    >>> certificate_line(certify(example(), Makespan()))
    '34 ns (chain), the whole bound'
    """
    from placegap.solvers.core.result import describe_basis

    mine, printed = certificate.bound_ns, certificate.printed_bound_ns
    line = f"{format_ns(mine)} ({certificate.proof.kind})"
    if printed is None:
        return f"{line}, the whole bound"
    basis = describe_basis("", certificate.printed_rests_on) or "a method"
    return f"{line}, {format_gap((printed - mine) / printed)} less than what rests on {basis}"


def print_result(console: Console, instance: Instance, result: Result) -> None:
    """What each device does, and the value, the bound and the gap."""
    from placegap.solvers.core.result import describe_basis

    console.print(f"{result.instance}: {result.semantics.label}, {result.method}", markup=False)
    if result.evaluation is not None and result.plan is not None:
        console.print(device_table(instance, result.evaluation, result.semantics))
        for line in server_lines(result.evaluation):
            console.print(line, markup=False)
    value = "none" if result.value_ns is None else format_ns(result.value_ns)
    found_by = result.details.get("plan_by")
    if result.value_ns is not None and found_by:
        value += f" (by {found_by})"
    bound = "none"
    if result.bound_ns is not None:
        basis = describe_basis(result.bound_origin or result.method, result.rests_on)
        bound = f"{format_ns(result.bound_ns)} ({basis})"
    gap = "unknown" if result.gap is None else format_gap(result.gap)
    build = f"build {format_s(result.build_s)}, " if result.build_s else ""
    console.print(f"status  {result.status}")
    console.print(f"value   {value}", markup=False)
    console.print(f"bound   {bound}", markup=False)
    console.print(f"gap     {gap}")
    once = f"; compiling kernels, once: {format_s(result.setup_s)}" if result.setup_s else ""
    console.print(f"time    {build}solve {format_s(result.solve_s)}{once}")
    for sentence in filter(None, (result.message, *plan_notes(instance, result))):
        console.print(f"note    {sentence}", markup=False)
