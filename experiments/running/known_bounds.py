"""The best bound that is known for a plan: from files, from sums, or from a method run now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from placegap.experiments.running.certifying import Verdict
from placegap.instances.corpus.corpus import known_of
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.semantics import PLAN_CLASSES, Semantics, plan_class, with_plans
from placegap.solvers.bounds.cheap_bounds import Bound, quick_bound
from placegap.solvers.core.result import Result
from placegap.solvers.core.trust import PROOF


def best_bound(bounds: Iterable[Bound]) -> Bound | None:
    """The highest; of equal ones a proof of ours, else the first.

    Examples
    --------
    >>> best_bound([Bound(5, "cp-sat", "CP-SAT 9"), Bound(5, "path", PROOF)]).origin
    'path'
    """
    return max(bounds, key=lambda bound: (bound.ns, bound.rests_on == PROOF), default=None)


def recorded_bounds(instance: Instance, semantics: Semantics) -> Iterator[Bound]:
    """Bounds that the corpus or the instance's file records, also of wider classes of plans."""
    for plans in PLAN_CLASSES[PLAN_CLASSES.index(plan_class(semantics)) :]:
        for known in known_of(instance, with_plans(semantics, plans)):
            if known.bound_ns is not None:
                origin = known.bound_origin or "not said by whom"
                yield Bound(known.bound_ns, f"recorded: {origin}", known.rests_on)


def recorded_value_ns(instance: Instance, semantics: Semantics) -> int | None:
    """The best value that is recorded under the same semantics."""
    values = (known.value_ns for known in known_of(instance, semantics))
    return min((value for value in values if value is not None), default=None)


def cheap_bounds(instance: Instance, semantics: Semantics) -> Iterator[Bound]:
    """What paths, work and the longest op prove."""
    yield quick_bound(instance, semantics)


def certified_bound(verdict: Verdict) -> Iterator[Bound]:
    """What a certificate proves that was checked."""
    if verdict.bound_ns is not None:
        words = ", ".join(verdict.words)
        yield Bound(verdict.bound_ns, "certificate", words or PROOF)


def bound_of(result: Result) -> Iterator[Bound]:
    """What a method proved just now."""
    if result.bound_ns is not None and result.split is None:
        yield Bound(result.bound_ns, result.bound_origin or result.method, result.rests_on)
