"""Semantics: what a number means. Every comparison is made under exactly one of these.

An objective's rules are registered by the import of their module.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, reduce
from importlib import import_module
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeGuard

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationInfo

from placegap.instances.objectives.base import (
    BY_OBJECTIVE,
    OLD_PLANS,
    PLAN_CLASSES,
    Channels,
    LoadRule,
    MemoryRule,
    PlanClass,
    Semantics,
    Transfers,
    Unit,
    belongs,
    rule_defaults,
)
from placegap.instances.reading.errors import InputError

# In the order of lists.
# isort: off
from placegap.instances.objectives.makespan.rules import Makespan
from placegap.instances.objectives.max_load.rules import Loads, MaxLoad, MaxLoadFwdBwd
from placegap.instances.objectives.calls.rules import LatencySubgraphs
from placegap.instances.objectives.iteration.rules import (
    PipelineIteration,
    PipelineSchedule,
    Sending,
)
from placegap.instances.objectives.hybrid.rules import (
    MAX_BATCH,
    Degrees,
    HybridPipeline,
    Recompute,
    Sharding,
)
from placegap.instances.objectives.context.rules import MOST_TOKENS, MaxContext
from placegap.instances.objectives.flow.rules import ServingFlow
# isort: on

__all__ = [
    "BY_OBJECTIVE",
    "DEFAULTS",
    "FIELDS",
    "MAX_BATCH",
    "MOST_TOKENS",
    "OBJECTIVES",
    "OLD_PLANS",
    "PLAN_CLASSES",
    "Channels",
    "Degrees",
    "HybridPipeline",
    "LatencySubgraphs",
    "LoadRule",
    "Loads",
    "Makespan",
    "MaxContext",
    "MaxLoad",
    "MaxLoadFwdBwd",
    "MemoryRule",
    "Objective",
    "PipelineIteration",
    "PipelineSchedule",
    "PlanClass",
    "Recompute",
    "Semantics",
    "Sending",
    "ServingFlow",
    "Sharding",
    "StatedSemantics",
    "TaggedSemantics",
    "Transfers",
    "Unit",
    "belongs",
    "includes",
    "leaves_out_plans",
    "parse_semantics",
    "part",
    "stored_semantics",
]

OBJECTIVES: tuple[str, ...] = tuple(BY_OBJECTIVE)

if TYPE_CHECKING:
    Objective = str
    TaggedSemantics = Semantics
else:
    Objective = Literal[OBJECTIVES]
    # its objective says which it is
    TaggedSemantics = Annotated[
        reduce(or_, BY_OBJECTIVE.values()), Field(discriminator="objective")
    ]

FIELDS: Mapping[str, tuple[str, ...]] = {name: kind.rules() for name, kind in BY_OBJECTIVE.items()}
"""The rules that each objective has."""

DEFAULTS: Mapping[str, object] = rule_defaults()
"""Every rule that some objective has."""


def _as_stored(raw: object, info: ValidationInfo) -> object:
    """Rules of a file, with the plans that an old one means; the context notes that it is old."""
    context = info.context or {}
    if not leaves_out_plans(raw) or context.get("version") == 2:
        return raw
    context["is_old"] = True
    return {**raw, "plans": OLD_PLANS}


StatedSemantics = Annotated[TaggedSemantics, BeforeValidator(_as_stored)]
"""Semantics as a field of a file."""

_RULES: TypeAdapter[Semantics] = TypeAdapter(TaggedSemantics)
_STORED: TypeAdapter[Semantics] = TypeAdapter(StatedSemantics)


def parse_semantics(raw: object) -> Semantics:
    """The semantics of a mapping with the key objective."""
    return _RULES.validate_python(raw)


def stored_semantics(raw: object) -> Semantics:
    """The same for what a run, a record or a certificate keeps: see `OLD_PLANS`."""
    return _STORED.validate_python(raw)


def leaves_out_plans(rules: object) -> TypeGuard[dict[str, Any]]:
    """Whether rules of a file have a class of plans, and state none."""
    named = isinstance(rules, dict) and "plans" not in rules and rules.get("objective")
    return any(one == named and "plans" in FIELDS[one] for one in OBJECTIVES)


def includes(wide: Semantics, semantics: Semantics) -> bool:
    """Whether a bound on all plans of `wide` also holds for the plans of `semantics`.

    It does under the same rules, if their class of plans is the same or is contained in that of
    `wide`.
    """
    rank, least = (PLAN_CLASSES.index(rules.plan_class) for rules in (wide, semantics))
    return rank >= least and wide.with_plans("any") == semantics.with_plans("any")


def part(semantics: Semantics, name: str, *, optional: bool = False) -> Any:
    """The module of an objective's folder: `referee`, `oracle` or `checks`.

    Where there is none, an `optional` one is None.
    """
    path = f"placegap.instances.objectives.{semantics.folder}.{name}"
    return _module(semantics.objective, path, optional)


@cache
def _module(objective: str, name: str, optional: bool) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if not name.startswith(error.name or name):
            raise
        if optional:
            return None
        raise InputError(f"nothing judges plans under {objective}: there is no {name}") from None
