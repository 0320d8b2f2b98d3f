"""The best bound that is at hand for a plan: recorded, cheap, certified, or proven now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from placegap.experiments.running import known_bounds as known
from placegap.experiments.running.certifying import Verdict
from placegap.experiments.running.sources import Source
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.semantics import Semantics
from placegap.instances.referee.plan import Plan
from placegap.solvers.bounds.cheap_bounds import Bound
from placegap.solvers.core.result import fault_words


class Proof(NamedTuple):
    """A method that is to prove a bound, its parameters and its seconds."""

    method: str
    params: Mapping[str, str]
    time_limit_s: float


def known_bound(
    source: Source | Instance,
    instance: Instance,
    semantics: Semantics,
    start: Plan | None = None,
    proof: Proof | None = None,
    certified: Verdict | None = None,
) -> tuple[Bound | None, tuple[str, ...]]:
    """The highest bound, and warnings.

    Parameters
    ----------
    source : Source or Instance
        What a worker process reads, if there is a `proof` to make.
    instance : Instance
    semantics : Semantics
    start : Plan, optional
        A feasible plan that the proof may start from.
    proof : Proof, optional
    certified : Verdict, optional
        What a checked certificate says; one under other rules is left out.

    Examples
    --------
    >>> from placegap.instances import Makespan, example
    >>> known_bound(example(), example(), Makespan())[0]
    Bound(ns=33, origin='critical path', rests_on='proof')
    """
    bounds = [*known.recorded_bounds(instance, semantics), *known.cheap_bounds(instance, semantics)]
    warnings: tuple[str, ...] = ()
    if certified is not None and certified.semantics == semantics:
        bounds += known.certified_bound(certified)
    if proof is not None:
        from placegap.experiments.running.placing import Attempt, place

        attempt = Attempt(
            source, semantics, proof.method, proof.params, proof.time_limit_s, incumbent=start
        )
        try:
            result, said = place(attempt)
        except RuntimeError as error:
            warnings = (f"no bound: {error}",)
        else:
            bounds += known.bound_of(result)
            warnings = (*said, *map(fault_words, result.faults))
    return known.best_bound(bounds), warnings
