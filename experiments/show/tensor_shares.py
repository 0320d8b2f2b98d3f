"""What plans gain whose cards share layers (``placegap place --tensor-split``), in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from placegap.experiments.show.figures import format_gap, format_ns
from placegap.solvers.core.result import describe_basis, relative_gap
from placegap.solvers.solving.tensor_split import TensorPlan, shares_texts


def shares_object(plan: TensorPlan | None) -> dict[str, Any]:
    """What ``--json`` prints."""
    if plan is None:
        return {"value_ns": None}
    uses = () if plan.result.evaluation is None else plan.result.evaluation.uses
    return {
        "value_ns": plan.value_ns,
        "bound_ns": plan.bound_ns,
        "rests_on": plan.basis,
        "ops_per_device": {use.device: use.num_ops for use in uses},
        "all_reduces": plan.num_reduced,
        "all_reduces_ns": plan.reduced_ns,
    }


def shares_lines(plan: TensorPlan | None, layers_ns: int | None) -> Iterator[str]:
    """Value, bound, what is gained over whole layers, and what all-reduces decide."""
    if plan is None:
        yield "tensors no group of cards of one server has room for shares of the layers"
        return
    gain = "; no plan of whole layers is known"
    if layers_ns is not None:
        gain = f", {layers_ns / plan.value_ns:.2f} times as fast as whole layers"
        gain += f" ({format_ns(layers_ns)})"
    gap = format_gap(relative_gap(plan.value_ns, plan.bound_ns) or 0.0)
    basis = describe_basis("", plan.basis)
    yield f"tensors {format_ns(plan.value_ns)}{gain}"
    yield f"        gap {gap} to {format_ns(plan.bound_ns)} ({basis}), over all groups and shares"
    if plan.num_reduced:
        each_ns = plan.reduced_ns // plan.num_reduced
        said = f"{plan.num_reduced} all-reduces of {format_ns(each_ns)} take"
        said += f" {format_ns(plan.reduced_ns)}, {format_gap(plan.reduced_ns / plan.value_ns)}"
        even_ns = each_ns + ((layers_ns or 0) - plan.value_ns) // plan.num_reduced
        if layers_ns is not None and even_ns > 0:
            said += f"; with {format_ns(even_ns)} each, whole layers are as fast"
        yield f"reduces {said}"
    for kind, text in shares_texts(plan).items():
        yield f"line    {kind}: {text}"
