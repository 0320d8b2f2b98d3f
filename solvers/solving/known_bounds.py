"""The best bound that is known of an instance: proven now, or recorded in the corpus.

All statements on how good a plan is use `known_bound`, so that they agree. A bound counts where
its content and its rules are those of the instance, and as long as no plan refutes it.

What files state of an instance is a *claim*: nothing has proven it here. A claim is shown, and
compared with what is known. It is no bound of a result, no part of a gap and no reason to end a
search. A certificate that is checked, or a method that runs, can prove it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from placegap.instances.corpus.corpus import known_of
from placegap.instances.files.plan_file import StoredBound
from placegap.instances.problem import PLAN_CLASSES, Instance, Plan, Semantics, includes
from placegap.instances.problem.modules import with_content
from placegap.instances.reading.printable import printable
from placegap.solvers.core.result import (
    RECORDED,
    Bound,
    Outcome,
    Result,
    carry_bound,
    describe_basis,
    finish,
    is_better,
    refutation,
)


def known_bound(
    instance: Instance,
    semantics: Semantics,
    value_ns: int | None = None,
    proven: Iterable[Bound] = (),
) -> tuple[Bound | None, tuple[str, ...]]:
    """The highest bound at hand, and a sentence for each that a plan refutes."""
    # If equal, one proved by placegap, else what was proven just now before what is recorded. What
    # is above `value_ns`, that of the best feasible plan, or above the value that the corpus
    # records, is no bound.
    from placegap.solvers.bounds.cheap_bounds import quick_bound  # brings numba

    cheap = quick_bound(instance, semantics)._replace(plan_class=semantics.plan_class, is_free=True)
    at_hand = [*proven, *recorded_bounds(instance, semantics), cheap]
    values = {"there is": value_ns, "the corpus records": recorded_value_ns(instance, semantics)}
    wrong = tuple[str, ...]()
    for who, value in values.items():
        if value is not None:
            for bound in tuple(at_hand):
                words = refutation(bound, value, semantics, who)
                if words:
                    said = f"{describe_basis(bound.origin, bound.basis)}: {words}"
                    wrong += (f"{said}: the bound is wrong, and not used",)
                    at_hand.remove(bound)
    return max(at_hand, key=lambda bound: bound.rank(semantics), default=None), wrong


def recorded_bounds(instance: Instance, semantics: Semantics) -> Iterator[Bound]:
    """Bounds that the corpus records of this content, also of wider classes of plans."""
    for plans in PLAN_CLASSES[PLAN_CLASSES.index(semantics.plan_class) :]:
        rules = semantics.with_plans(plans)
        for known in known_of(instance, rules) if rules.plan_class == plans else ():
            if known.bound_ns is not None:
                origin = known.bound_origin or "source unknown"
                yield Bound(known.bound_ns, RECORDED + origin, known.rests_on, plans)


def recorded_value_ns(instance: Instance, semantics: Semantics) -> int | None:
    """The best value that the corpus records under the same semantics."""
    values = (known.value_ns for known in known_of(instance, semantics))
    return min((value for value in values if value is not None), key=semantics.cost, default=None)


def with_known_bound(instance: Instance, result: Result, recorded: Iterable[Bound] = ()) -> Result:
    """A result with the best bound at hand, where that is higher than its own."""
    # What a method proved itself then stands among the details, as `own_bound_ns`. A bound that is
    # refuted is one of the result's faults, and it is left without it. `recorded` is what the
    # corpus records of the single ops, where whole modules or layers are placed: these have fewer
    # plans. There is no gap where the method proved nothing, nothing is recorded, and the bound
    # that costs nothing does not prove the plan optimal.
    if result.value is None or result.split is not None:
        return result
    proven = [*proven_by(result), *recorded]
    rules = result.semantics
    known, wrong = known_bound(instance, rules, result.value, proven)
    result = replace(result, faults=(*result.faults, *wrong))
    if known is None or known.value == result.bound_value:
        return result
    if result.bound_value is not None:
        own = {"own_bound_ns": result.bound_value, **result.details}
        result = replace(result, details=own)
    is_quick = result.bound_value is None and known.is_free
    if result.bound_value is not None and is_better(
        known.value, result.bound_value, rules
    ):  # refuted by a recorded value
        result = replace(result, status="feasible", bound=None, gap=None)
    outcome = Outcome(bound=known)
    said = finish(instance, result.semantics, result.method, outcome, solve_s=0.0, bound_only=True)
    found = carry_bound(result, said)
    return replace(found, gap=None) if is_quick and found.status != "optimal" else found


def proven_by(result: Result) -> Iterator[Bound]:
    """The bound of a result on all plans of its instance."""
    if result.bound and result.bound_value is not None and result.split is None:
        yield result.bound._replace(origin=result.bound_origin or result.method)


def bound_to_store(result: Result) -> StoredBound | None:
    """What a plan file keeps of a result's bound."""
    if result.bound_value is None:
        return None
    stated: dict[str, Any] = {result.semantics.key("bound"): result.bound_value}
    return StoredBound(
        bound_origin=result.bound_origin or result.method,
        rests_on=result.rests_on,
        semantics=result.semantics.with_plans(result.bound_class),
        content_hash=result.instance_hash,
        **stated,
    )


class Claim(NamedTuple):
    """What a file states of an instance under some rules."""

    file: str  # its name, without folders
    value: int  # the claimed bound, or the claimed value of a plan
    is_bound: bool
    origin: str  # the method that is claimed to have found it
    #: The instance, or the one with whole modules or layers. None: another one, or other rules.
    about: Instance | None
    plans: str = ""  # the plans of which it is claimed, where these are not all


def claims_of(
    instance: Instance,
    semantics: Semantics,
    model: str = "",
    plan_files: Mapping[str, StoredBound | None] | None = None,
) -> list[Claim]:
    """What the file of a model and those of its plans claim under some rules."""
    # `model` is the file that states `Instance.best_known`; by default the instance's name stands
    # for it.
    found, name = list[Claim](), Path(model).name or instance.name
    for known in instance.best_known:
        if known.bound_ns is not None and includes(known.semantics, semantics):
            found.append(Claim(name, known.bound_ns, True, known.bound_origin, instance))
        if known.value_ns is not None and known.semantics == semantics:
            found.append(Claim(name, known.value_ns, False, known.value_origin, instance))
    for file, said in (plan_files or {}).items():
        if said is not None:
            where = _about(said, instance, semantics)
            found.append(Claim(Path(file).name, said.bound, True, said.bound_origin, *where))
    return found


def _about(
    said: StoredBound, instance: Instance, semantics: Semantics
) -> tuple[Instance | None, str]:
    """The instance that a stated bound is about, and the plans of which it is claimed."""
    if not includes(said.semantics, semantics):
        return None, f"under {said.semantics.label}"
    found = with_content(instance, said.content_hash)
    if found is None:
        return None, "of other content"
    whole, granularity = found
    return whole, "" if granularity == "op" else f"among plans of whole {granularity}s"


def refuted_claims(
    claims: Iterable[Claim],
    semantics: Semantics,
    plans: Iterable[tuple[str, Plan]],
    bound: Bound | None = None,
) -> tuple[str, ...]:
    """A sentence for each claim that something else contradicts."""
    # Each plan has the name of its file or method.
    claims, plans, sentences = list(claims), list(plans), list[str]()
    for claim in claims:
        origin, ns = f" ({claim.origin})" * bool(claim.origin), semantics.text(claim.value)
        rivals = _better(claim, claims, semantics, plans) if claim.is_bound else ()
        for by, value_ns in islice(rivals, 1):
            sentences.append(
                f"{claim.file} claims that no plan is better than {ns}{origin}, but {by} one of"
                f" {semantics.text(value_ns)}"
            )
        if not claim.is_bound and bound and is_better(claim.value, bound.value, semantics):
            basis = describe_basis(bound.origin, bound.basis)
            sentences.append(
                f"{claim.file} claims a plan of {ns}{origin}, but no plan is better than"
                f" {semantics.text(bound.value)} ({basis})"
            )
    return tuple(map(printable, sentences))


def _better(
    claim: Claim, claims: Iterable[Claim], semantics: Semantics, plans: Iterable[tuple[str, Plan]]
) -> Iterator[tuple[str, int]]:
    """Values below a claimed bound, and who has them: plans, the corpus, other claims."""
    from placegap.instances.referee.evaluate import feasible_value  # brings numba

    if claim.about is None:
        return
    values = [other for other in claims if not other.is_bound]
    rivals = [
        *((f"{by} has", feasible_value(claim.about, plan, semantics)) for by, plan in plans),
        ("the corpus records", recorded_value_ns(claim.about, semantics)),
        *((f"{c.file} claims", c.value) for c in values if c.about is claim.about),
    ]
    for by, value_ns in rivals:
        if value_ns is not None and is_better(value_ns, claim.value, semantics):
            yield by, value_ns


def refuted_by(result: Result, instance: Instance, claims: Iterable[Claim]) -> tuple[str, ...]:
    """What a result refutes of claims about the instance: by its plan, and by its bound."""
    plans = []
    if result.plan is not None and result.split is None:
        plans = [(result.method, result.plan)]
    is_whole = result.instance_hash != instance.content_hash
    bound = None if is_whole else next(proven_by(result), None)
    return refuted_claims(claims, result.semantics, plans, bound)
