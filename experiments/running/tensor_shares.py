"""What plans gain whose cards share layers (``placegap place --tensor-split``), in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from placegap.experiments.show.figures import format_gap, format_ns
from placegap.experiments.show.place_report import device_table
from placegap.instances.problem import Instance, Makespan, Semantics
from placegap.instances.problem.modules import Granularity
from placegap.instances.reading.errors import InputError
from placegap.solvers import Result
from placegap.solvers.core.result import describe_basis, relative_gap
from placegap.solvers.solving.tensor_split import TensorPlan, best_tensor_plan


def check_shares(semantics: Semantics) -> Makespan:
    """Refuse, before a plan is looked for, what `best_tensor_plan` does not do."""
    if not isinstance(semantics, Makespan):
        raise InputError(
            "--tensor-split looks for the fastest token; add --objective makespan, or leave it out"
        )
    return semantics


@dataclass(frozen=True)
class TensorShares:
    """The best plan with groups of cards, if any, beside that of whole layers."""

    layers_ns: int | None
    plan: TensorPlan | None

    @property
    def content(self) -> dict[str, Any]:
        """What ``--json`` prints."""
        plan = self.plan
        if plan is None:
            return {"value_ns": None, "layers_value_ns": self.layers_ns}
        uses = () if plan.result.evaluation is None else plan.result.evaluation.uses
        return {
            "value_ns": plan.result.value_ns,
            "bound_ns": plan.bound_ns,
            "rests_on": plan.result.rests_on,
            "layers_value_ns": self.layers_ns,
            "devices": {use.device: use.num_ops for use in uses},
            "all_reduces": plan.num_reduced,
            "all_reduces_ns": plan.reduced_ns,
        }

    def print_on(self, console: Console) -> None:
        """The table of devices, and what the plan gains."""
        if self.plan is not None and self.plan.result.evaluation is not None:
            result = self.plan.result
            console.print(
                device_table(self.plan.instance, self.plan.result.evaluation, result.semantics)
            )
        for line in self.lines():
            console.print(line, markup=False)

    def lines(self) -> Iterator[str]:
        """Value, bound and gain, and what all-reduces decide."""
        plan = self.plan
        if plan is None or plan.result.value_ns is None:
            yield "tensors no group of cards of one server has room for shares of the layers"
            return
        value_ns, layers_ns = plan.result.value_ns, self.layers_ns
        gain = "no plan of whole layers is known"
        if layers_ns is not None:
            gain = (
                f"{layers_ns / value_ns:.2f} times as fast as whole layers, {format_ns(layers_ns)}"
            )
        basis = describe_basis("", plan.result.rests_on)
        yield f"tensors {format_ns(value_ns)}, {gain}"
        gap = format_gap(relative_gap(value_ns, plan.bound_ns) or 0.0)
        yield f"        gap {gap} to {format_ns(plan.bound_ns)} ({basis}), of all groups and shares"
        each_ns = plan.reduced_ns // max(1, plan.num_reduced)
        said = (
            f"reduces {plan.num_reduced} all-reduces of {format_ns(each_ns)} take"
            f" {format_ns(plan.reduced_ns)} of it, {format_gap(plan.reduced_ns / value_ns)}"
        )
        if layers_ns is not None and plan.num_reduced:
            even_ns = each_ns + (layers_ns - value_ns) // plan.num_reduced
            said += (
                f"; at {format_ns(even_ns)} each whole layers are as fast" if even_ns > 0 else ""
            )
        yield said


def shares_of(
    fine: Instance, semantics: Semantics, whole: Granularity, limit_s: float, layers: Result
) -> TensorShares:
    """The best plan with groups, within a limit, beside one of whole layers."""
    plan = best_tensor_plan(fine, check_shares(semantics), whole, limit_s)
    return TensorShares(layers.value_ns, plan)
