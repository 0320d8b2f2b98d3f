"""Tokens that fit on every device: which device fills up first, and the loads beside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from placegap.experiments.show.figures import format_value
from placegap.experiments.show.objectives.base import Judged, Parts, Words
from placegap.experiments.show.objectives.max_load import load_parts
from placegap.experiments.show.place_report import unused
from placegap.instances.problem import Evaluation, Instance, MaxContext
from placegap.instances.problem.integers import format_bytes

if TYPE_CHECKING:
    from placegap.solvers.core.result import Result


def parts(case: Judged[MaxContext]) -> Parts:
    """Bars of loads, and the fullest device."""
    uses = case.verdict.uses
    full = min(uses, key=lambda use: use.tokens or 0)
    most = format_value(full.tokens or 0, case.semantics.unit)
    first = f"{full.device} fills up first: with {most} it holds {format_bytes(full.memory_bytes)}."
    return load_parts(case, [first], max(use.load_ns for use in uses))


def idle(instance: Instance, result: Result, verdict: Evaluation) -> str:
    """More devices would have to hold more."""
    found = "no plan" if result.status == "optimal" else "no plan that was found"
    return f"{unused(verdict)}: {found} has room for more tokens with more devices"


def more(result: Result) -> dict[str, Any]:
    """Tokens that fit, on all devices and on each, and that no plan exceeds."""
    uses = () if result.evaluation is None else result.evaluation.uses
    return {
        "tokens": result.value,
        "tokens_bound": result.bound_value,
        "tokens_per_device": {use.device: use.tokens for use in uses},
    }


WORDS = Words(parts, idle=idle, more=more)
