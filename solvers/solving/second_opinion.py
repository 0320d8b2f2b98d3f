"""Another method for the same bound: which one runs, and what its answer means.

Some bounds are a solver's, and solvers have been wrong. The second method is one that
shares as little as possible with the first: enumeration for a handful of ops, HiGHS after CP-SAT
and the other way round, a MIP after a dynamic program, SCIP after HiGHS where it is installed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from placegap.instances.problem import Instance, Semantics
from placegap.instances.reading.errors import InputError
from placegap.solvers.core.back_ends import require
from placegap.solvers.core.method import Task
from placegap.solvers.core.objective import strategy
from placegap.solvers.core.registry import find_method, parse_params, why_not
from placegap.solvers.core.result import Result, contradiction, describe_basis, is_better

# ``agrees``: the second proves as much. ``weaker``: nothing against the first, but it did not get
# as far. ``CONTRADICTS``: one of the two is wrong. ``none``: there is no other method, or it
# failed.
Verdict = Literal["agrees", "weaker", "CONTRADICTS", "none"]


@dataclass(frozen=True)
class Opinion:
    """The comparison of a second method with a result."""

    verdict: Verdict
    sentence: str
    method: str = ""
    result: Result | None = field(default=None, repr=False)


def second_methods(
    instance: Instance, semantics: Semantics, method: str
) -> Iterator[tuple[str, dict[str, str]]]:
    """Methods, with parameters, that can check the result of another one; the best first."""
    task = Task(instance, semantics)

    def applies(name: str, params: Mapping[str, str]) -> bool:
        return why_not(find_method(name), task, parse_params(find_method(name), params)) is None

    found = strategy(task)
    listed = found.opinions or tuple((step.method, {}) for step in found.provers)
    if method != "brute-force" and applies("brute-force", {}):
        yield "brute-force", {}
    kin = _kin(method)
    able = [(name, dict(params)) for name, params in listed if applies(name, params)]
    yield from ((name, params) for name, params in able if _kin(name) != kin)
    if kin == "HiGHS" and _has_scip() and applies(method, {"solver": "scip"}):
        yield method, {"solver": "scip"}
    # the same solver on another model: better than nothing
    yield from ((name, params) for name, params in able if _kin(name) == kin and name != method)


def _kin(method: str) -> str:
    """The solver that a method is all about, if any: two of one kin are no second opinion."""
    return find_method(method).solver or method


def _has_scip() -> bool:
    try:
        require("scip")
    except InputError:
        return False
    return True


def no_opinion(result: Result) -> Opinion:
    """The message where no other method proves bounds."""
    if result.split is not None:
        return Opinion("none", f"the plan of {result.method} is for the split instance")
    return Opinion("none", f"no other method proves bounds for {result.semantics.label} here")


def compare(first: Result, second: Result) -> Opinion:
    """The verdict of the second result on the first, both of one instance and semantics."""
    name = describe_basis(second.method, second.rests_on)
    clash = contradiction(first, second) or contradiction(second, first)
    if clash:
        return Opinion("CONTRADICTS", clash, second.method, second)
    if "infeasible" in (first.status, second.status):
        if first.status == second.status:
            return Opinion("agrees", f"{name}: no plan exists", second.method, second)
        return Opinion(
            "weaker", f"{name}: {second.message or second.status}", second.method, second
        )
    if second.bound_value is None:
        words = second.message or second.status
        return Opinion("weaker", f"{name}: no bound ({words})", second.method, second)
    words = f"{name}: bound {second.semantics.text(second.bound_value)}"
    if second.value is not None:
        words += f", value {second.semantics.text(second.value)}"
    if first.bound_value is None or not is_better(
        second.bound_value, first.bound_value, first.semantics
    ):
        return Opinion("agrees", words, second.method, second)
    if second.message:
        words += f" ({second.message})"
    return Opinion("weaker", words, second.method, second)
