"""What a model consists of: sizes of its components, before and after presolve, and its LP."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from inspect import Parameter, signature
from types import ModuleType
from typing import Any, NamedTuple

import highspy
import numpy as np
import pyomo.environ as pyo
from pyomo.common.errors import InfeasibleConstraintException

from placegap.instances.problem import Instance, Semantics
from placegap.instances.reading.errors import InputError, look_up, paused_collector
from placegap.solvers.core.back_ends import solve_model
from placegap.solvers.core.back_ends.highs import hand_over
from placegap.solvers.core.back_ends.outcome import Ending
from placegap.solvers.core.method import Task
from placegap.solvers.core.starts import best_start, placers

METHOD_OF = {
    **{name: name for name in ("moirai", "pesto", "helix")},
    **{name: name.replace("_", "-") for name in ("throughput_ip", "latency_ip")},
    **{"archer": "archer-exact", "getf": "getf-lp", "m_sct": "m-sct-lp"},
}
"""The linear models of `placegap.formulations`, and the methods that solve them."""


TOLERANCE = 1e-6  # of solvers
ADDED = "added by presolve"


class Size(NamedTuple):
    """Rows, columns and entries; a column component has the entries of its columns."""

    rows: int
    columns: int
    nonzeros: int


class Component(NamedTuple):
    """A Var or Constraint: what indexes it, what it states, its sizes around presolve."""

    name: str
    sets: str
    states: str
    before: Size
    after: Size


@dataclass(frozen=True)
class Explained:
    """A model in figures."""

    components: tuple[Component, ...]
    before: Size
    after: Size
    ending: Ending  #: How the solve of the linear relaxation ended
    lp_ns: float | None  #: Value of the linear relaxation; None if the solver found none
    value_ns: int | None  #: Best value that is known
    value_by: str  #: Where that is from

    @property
    def integrality_gap(self) -> float | None:
        """(value - LP) / value, or over the LP's where that is larger; less where not optimal."""
        if self.lp_ns is None or not self.value_ns:
            return None
        gap = abs(self.value_ns - self.lp_ns) / max(self.value_ns, self.lp_ns)
        return gap if gap > TOLERANCE else 0.0


def build_model(
    name: str, instance: Instance, semantics: Semantics, options: Mapping[str, Any]
) -> pyo.ConcreteModel:
    """What `build` of a formulation makes; options that it does not have are refused by name."""
    module = formulation_named(name)
    known = signature(module.build).parameters
    for option in options:
        if option not in known or known[option].kind is Parameter.POSITIONAL_ONLY:
            raise InputError(f"{name} has no {option}")
    with paused_collector():
        model: pyo.ConcreteModel = module.build(instance, semantics, **options)
    return model


def formulation_named(name: str) -> ModuleType:
    """The module of a linear model, also by the name of its method."""
    look_up("model", name.replace("-", "_"), METHOD_OF)
    return import_module(f"placegap.formulations.{name.replace('-', '_')}")


def explain_model(
    model: pyo.ConcreteModel, task: Task, recorded_ns: int | None = None
) -> Explained:
    """Sizes of a model and its linear relaxation; the values of its variables are lost."""
    # `recorded_ns` is the best value on record.
    try:
        form, lp, solver = hand_over(model, task.limits)
    except InfeasibleConstraintException:
        raise InputError(
            f"{task.instance.name}: the model has no solution: all variables of a row are fixed, to"
            " values that break it; --write shows which"
        ) from None
    lp.row_names_ = [str(row) for row in range(lp.num_row_)]
    lp.col_names_ = [str(column) for column in range(lp.num_col_)]
    solver.passModel(lp)
    solver.presolve()
    reduced = solver.getPresolvedLp()
    rows = [row.parent_component().name for row in form.constraints]
    columns = [variable.parent_component().name for variable in form.variables]
    before = _sizes(lp, rows, columns)
    after = _sizes(  # presolve keeps the names of what it leaves
        reduced,
        _kept(rows, reduced.row_names_, reduced.num_row_),
        _kept(columns, reduced.col_names_, reduced.num_col_),
    )
    components = tuple(
        Component(part.name, index_text(part), part.doc or "", before[part.name], after[part.name])
        for part in model.component_objects((pyo.Var, pyo.Constraint), active=True)
    )
    if ADDED in after:
        components += (Component(ADDED, "", "", before[ADDED], after[ADDED]),)
    relaxed = solve_model(model, task.limits, relax=True)
    unit_ns = float(pyo.value(model.unit_ns))
    sign = task.semantics.cost(1)  # models are minimized
    lp_ns = None if relaxed.objective is None else sign * relaxed.objective * unit_ns
    value_ns, by = recorded_ns, "recorded in the corpus"
    if value_ns is None:
        start = best_start(task, placers(task))
        value_ns, by = start and start.value, "the best plan of the fast placers"
    return Explained(
        components, before[""], after[""], relaxed.ending, lp_ns, value_ns, by if value_ns else ""
    )


def _kept(components: list[str], names: list[str], number: int) -> list[str]:
    """The components of what presolve leaves, by the names that were numbers."""
    names = [*names, *[""] * (number - len(names))]
    return [components[int(name)] if name else ADDED for name in names]


def _sizes(lp: highspy.HighsLp, rows: list[str], columns: list[str]) -> Mapping[str, Size]:
    """The size of each component, and of all under no name."""
    starts = np.array(lp.a_matrix_.start_, int)[: len(columns) + 1]
    per_column = np.diff(starts).tolist() if columns else []
    # Of a model that presolve empties, the old matrix is still there.
    entries = Counter(rows[row] for row in lp.a_matrix_.index_[: sum(per_column)])
    for name, number in zip(columns, per_column, strict=True):
        entries[name] += number
    num_rows, num_columns = Counter(rows), Counter(columns)
    sizes: dict[str, Size] = defaultdict(lambda: Size(0, 0, 0))
    for name in {*num_rows, *num_columns}:
        sizes[name] = Size(num_rows[name], num_columns[name], entries[name])
    sizes[""] = Size(len(rows), len(columns), sum(per_column))
    return sizes


def index_text(component: Any) -> str:
    """What indexes a component, by the names of the model's Sets: "OPS x DEVICES".

    A list that is no Set of its own reads as those that its members are in: "some of OPS x OPS".
    """
    if not component.is_indexed():
        return ""
    # an empty Set has no dimension
    named = [one for one in component.model().component_objects(pyo.Set) if len(one)]
    texts = []
    for part in component.index_set().subsets(expand_all_set_operators=True):
        if any(part is one for one in named):
            texts.append(part.name)
        elif len(part) == 2 and tuple(part) == ("out", "in"):  # the two ports of a device
            texts.append("{out, in}")
        else:
            texts.append(_listed(part, named))
    return " x ".join(texts)


def _listed(part: Any, named: list[pyo.Set]) -> str:
    """The Sets that the parts of all members of a list are in: those of pairs before others."""
    members = [one if isinstance(one, tuple) else (one,) for one in part]
    if not members:
        return "none"
    names, at, width = list[str](), 0, len(members[0])
    while at < width:
        fits = (
            one
            for one in sorted(named, key=lambda one: -one.dimen)
            if at + one.dimen <= width
            and all(member[at : at + one.dimen] in one for member in members)
        )
        found = next(fits, None)
        other = "numbers" if isinstance(members[0][at], int) else "other names"
        names.append(other if found is None else found.name)
        at += 1 if found is None else found.dimen
    return " x ".join(names) if names in (["numbers"], []) else f"some of {' x '.join(names)}"
