"""What files claim of an instance: bounds and values that nothing has proven here.

A claim is shown, and compared with what is known. It is no bound of a result, no part of a gap and
no reason to end a search. A certificate that is checked, or a method that runs, can prove it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from placegap.instances.files.plan_file import StoredBound
from placegap.instances.problem import Instance, Plan, Semantics, includes, told
from placegap.instances.problem.modules import with_content
from placegap.instances.reading.printable import printable
from placegap.solvers.core.result import Bound, Result, describe_basis
from placegap.solvers.solving.known_bounds import proven_by, recorded_value_ns


class Claim(NamedTuple):
    """What a file states of an instance under some rules."""

    #: Its name, without folders.
    file: str
    #: The claimed bound, or the claimed value of a plan.
    ns: int
    is_bound: bool
    #: The method that is claimed to have found it.
    origin: str
    #: The instance, or the one with whole modules or layers. None: another one, or other rules.
    about: Instance | None
    #: The plans of which it is claimed, where these are not all.
    plans: str = ""


def claims_of(
    instance: Instance,
    semantics: Semantics,
    model: str = "",
    plan_files: Mapping[str, StoredBound | None] | None = None,
) -> list[Claim]:
    """What the file of a model and those of its plans claim under some rules.

    `model` is the file that states `Instance.best_known`; by default the instance's name stands for
    it.
    """
    found, name = list[Claim](), Path(model).name or instance.name
    for known in instance.best_known:
        if known.bound_ns is not None and includes(known.semantics, semantics):
            found.append(Claim(name, known.bound_ns, True, known.bound_origin, instance))
        if known.value_ns is not None and known.semantics == semantics:
            found.append(Claim(name, known.value_ns, False, known.value_origin, instance))
    for file, said in (plan_files or {}).items():
        if said is not None:
            where = _about(said, instance, semantics)
            found.append(Claim(Path(file).name, said.bound_ns, True, said.bound_origin, *where))
    return found


def _about(
    said: StoredBound, instance: Instance, semantics: Semantics
) -> tuple[Instance | None, str]:
    """The instance that a stated bound is about, and the plans of which it is claimed."""
    if not includes(said.semantics, semantics):
        return None, f"under {said.semantics.label}"
    found = with_content(instance, said.content_hash)
    if found is None:
        return None, "of another content"
    whole, granularity = found
    return whole, "" if granularity == "op" else f"among plans of whole {granularity}s"


def refuted_claims(
    claims: Iterable[Claim],
    semantics: Semantics,
    plans: Iterable[tuple[str, Plan]],
    bound: Bound | None = None,
) -> tuple[str, ...]:
    """A sentence for each claim that something else contradicts.

    Each plan has the name of its file or method.
    """
    claims, plans, sentences = list(claims), list(plans), list[str]()
    for claim in claims:
        origin, ns = f" ({claim.origin})" * bool(claim.origin), told(semantics, claim.ns)
        rivals = _better(claim, claims, semantics, plans) if claim.is_bound else ()
        for by, value_ns in islice(rivals, 1):
            sentences.append(
                f"{claim.file} claims that no plan is better than {ns}{origin}, but {by} one of"
                f" {told(semantics, value_ns)}"
            )
        if not claim.is_bound and bound is not None and claim.ns < bound.ns:
            basis = describe_basis(bound.origin, bound.basis)
            sentences.append(
                f"{claim.file} claims a plan of {ns}{origin}, but no plan is better than"
                f" {told(semantics, bound.ns)} ({basis})"
            )
    return tuple(map(printable, sentences))


def _better(
    claim: Claim, claims: Iterable[Claim], semantics: Semantics, plans: Iterable[tuple[str, Plan]]
) -> Iterator[tuple[str, int]]:
    """Values below a claimed bound, and who has them: plans, the corpus, other claims."""
    from placegap.instances.referee.evaluate import feasible_ns  # brings numba

    if claim.about is None:
        return
    values = [other for other in claims if not other.is_bound]
    rivals = [
        *((f"{by} has", feasible_ns(claim.about, plan, semantics)) for by, plan in plans),
        ("the corpus records", recorded_value_ns(claim.about, semantics)),
        *((f"{c.file} claims", c.ns) for c in values if c.about is claim.about),
    ]
    for by, value_ns in rivals:
        if value_ns is not None and value_ns < claim.ns:
            yield by, value_ns


def refuted_by(result: Result, instance: Instance, claims: Iterable[Claim]) -> tuple[str, ...]:
    """What a result refutes of claims about the instance: by its plan, and by its bound."""
    plans = []
    if result.plan is not None and result.split is None:
        plans = [(result.method, result.plan)]
    is_whole = result.instance_hash != instance.content_hash
    bound = None if is_whole else next(proven_by(result), None)
    return refuted_claims(claims, result.semantics, plans, bound)
