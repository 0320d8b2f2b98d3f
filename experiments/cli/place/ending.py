"""What ``placegap place`` prints at the end, the plan that it writes, and why there is none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placegap.experiments.show.figures import format_gap, format_ns
from placegap.experiments.show.place_report import (
    certificate_line,
    certificate_object,
    opinion_object,
    print_result,
    result_object,
)
from placegap.experiments.show.rendering import output, warn
from placegap.instances.problem.instance import Instance
from placegap.solvers.core.result import fault_words

if TYPE_CHECKING:
    from placegap.experiments.running.exporting import ModulePrice
    from placegap.instances.io.certificate_file import Certificate
    from placegap.instances.problem.plan import Plan
    from placegap.solvers import Result
    from placegap.solvers.solving.second_opinion import Opinion


def report(
    instance: Instance,
    result: Result,
    out: Path | None,
    as_json: bool,
    opinion: Opinion | None = None,
    *,
    model: str,
    certificate: Certificate | None = None,
    price: ModulePrice | None = None,
) -> None:
    """Print a result, explain a missing plan, write the plan.

    A plan of a finer instance (operator splitting) is shown and written with that instance.
    """
    if result.split is not None:
        instance = result.split.fine
    if out is not None and result.plan is not None and result.evaluation is not None:
        _write_plan(instance, result, result.plan, out)  # first: stdout may be full, or closed
    if as_json:
        from placegap.experiments.running.sources import open_questions

        content = result_object(instance, result)
        content["notes"] += open_questions(instance.graph, model)
        if opinion is not None:
            content["second_opinion"] = opinion_object(opinion)
        if certificate is not None:
            content["certificate"] = certificate_object(certificate)
        if price is not None:
            content["granularity"] = price_object(price)
        print(json.dumps(content, ensure_ascii=False), flush=True)
    else:
        print_result(output(), instance, result)
        if opinion is not None:
            output().print(f"second  {opinion.verdict}: {opinion.sentence}", markup=False)
        if certificate is not None:
            output().print(f"certified {certificate_line(certificate)}", markup=False)
        if price is not None:
            output().print(f"{price.granularity:<7} {price_line(price)}", markup=False)
    for fault in result.faults:
        warn(fault_words(fault))
    if result.plan is None or result.evaluation is None:
        if result.status == "bound":
            warn(f"{result.method} makes no plans, only bounds")
        else:
            _explain(instance, result)
        return
    if out is not None and result.split is not None:
        warn(f"the plan is one of the finer instance, which is written to {finer_file(out)}")


def _write_plan(instance: Instance, result: Result, plan: Plan, out: Path) -> None:
    """The plan, and the finer instance that it is one of, if it is."""
    from placegap.instances.io.document import Document, save_document
    from placegap.instances.io.plan_file import save_plan
    from placegap.solvers.solving.known_bounds import bound_to_store

    save_plan(
        instance,
        plan,
        result.semantics,
        out,
        result.method,
        value_ns=result.value_ns,
        bound=bound_to_store(result),
    )
    if result.split is not None:
        save_document(Document.of(instance), finer_file(out))


def finer_file(plan: Path) -> Path:
    """Where the instance of a plan goes, if the method has split ops.

    Examples
    --------
    >>> finer_file(Path("plan.json")).name
    'plan.instance.json.gz'
    """
    return plan.with_name(f"{plan.name.removesuffix('.json')}.instance.json.gz")


def _explain(instance: Instance, result: Result) -> None:
    """Why there is no plan: what the method says, and a line for each thing about memory."""
    from placegap.instances.problem.explain import why_no_room

    why = why_no_room(instance, result.semantics)
    said = result.message.removesuffix("; ".join(why)).removesuffix("; ")
    warn(f"{result.instance}: no feasible plan ({said or result.status})")
    for sentence in why:
        warn(sentence)


def price_object(price: ModulePrice) -> dict[str, Any]:
    """What ``--json`` prints of a plan of whole modules."""
    return {
        "granularity": price.granularity,
        "op_value_ns": price.fine_value_ns,
        "op_bound_ns": price.fine_bound_ns,
        "price_at_most": price.at_most,
    }


def price_line(price: ModulePrice) -> str:
    """What whole modules cost.

    Examples
    --------
    >>> from placegap.experiments.running.exporting import ModulePrice
    >>> price_line(ModulePrice("layer", 100, 80, 80))
    'kept whole; op by op 80 ns is the best, 20.0 % less'
    >>> price_line(ModulePrice("layer", 100, 90, 80))
    'kept whole; op by op 90 ns was found, and no plan is below 80 ns, 20.0 % less'
    """
    fine, share = format_ns(price.fine_value_ns), price.at_most
    if price.fine_value_ns == price.value_ns == price.fine_bound_ns:
        return "kept whole, at no cost: no plan of single ops is better"
    if share is None or price.fine_bound_ns is None:
        return f"kept whole; op by op {fine} was found"
    if price.fine_bound_ns == price.fine_value_ns:
        return f"kept whole; op by op {fine} is the best, {format_gap(share)} less"
    bound = format_ns(price.fine_bound_ns)
    return (
        f"kept whole; op by op {fine} was found, and no plan is below {bound},"
        f" {format_gap(share)} less"
    )
