"""What a method proves now, or a certificate proves, for `known_bounds` to choose from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from placegap.experiments.running.certifying import Verdict
from placegap.experiments.running.placing import Attempt, place, why_refused
from placegap.experiments.running.sources import Source, load_source
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.plan import Plan
from placegap.instances.problem.semantics import Semantics, plan_class
from placegap.instances.reading.errors import InputError
from placegap.solvers.core.result import PROOF, fault_words
from placegap.solvers.solving.known_bounds import KnownBound, proven_by


class Proof(NamedTuple):
    """A method that is to prove a bound, its parameters and its seconds."""

    method: str
    params: Mapping[str, str]
    time_limit_s: float


def proven(
    source: Source | Instance, semantics: Semantics, proof: Proof, start: Plan | None = None
) -> tuple[list[KnownBound], tuple[str, ...]]:
    """What a method proves in a worker process, and warnings.

    Parameters
    ----------
    source : Source or Instance
        What the process reads.
    semantics : Semantics
    proof : Proof
    start : Plan, optional
        A feasible plan that it may start from.

    Raises
    ------
    InputError
        If the method does not do the semantics, which are those of a plan.
    """
    instance = source if isinstance(source, Instance) else load_source(source)
    reason = why_refused(instance, semantics, proof.method, proof.params)
    if reason is not None:
        raise InputError(
            f"{proof.method} does not apply to {instance.name}: {reason}; leave out --method, or"
            f" name one that does {semantics.label}"
        )
    attempt = Attempt(
        source, semantics, proof.method, proof.params, proof.time_limit_s, incumbent=start
    )
    try:
        result, said = place(attempt)
    except RuntimeError as error:
        return [], (f"no bound: {error}",)
    return list(proven_by(result)), (*said, *map(fault_words, result.faults))


def certified_bounds(verdict: Verdict, semantics: Semantics) -> list[KnownBound]:
    """What a checked certificate proves; nothing where it is one under other rules."""
    if verdict.bound_ns is None or verdict.semantics != semantics:
        return []
    words = ", ".join(verdict.words)
    return [KnownBound(verdict.bound_ns, "certificate", words or PROOF, plan_class(semantics))]
