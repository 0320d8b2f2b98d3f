"""The best bound that is known of an instance: proven now, stored with a plan, or recorded.

Whatever says how good a plan is asks `known_bound`, so that all say the same. A bound counts where
its content and its rules are those of the instance, and as long as no plan refutes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from placegap.instances.corpus.corpus import known_of
from placegap.instances.io.document import read_json
from placegap.instances.io.plan_file import StatedPlan, StoredBound, is_plan, load_stated_plan
from placegap.instances.problem.instance import BestKnown, Instance
from placegap.instances.problem.modules import with_content
from placegap.instances.problem.plan import Plan
from placegap.instances.problem.semantics import (
    PLAN_CLASSES,
    PlanClass,
    Semantics,
    includes,
    plan_class,
    told,
    with_plans,
)
from placegap.instances.reading.errors import InputError
from placegap.solvers.core.result import (
    PROOF,
    STORED,
    Outcome,
    Result,
    carry_bound,
    describe_basis,
    finish,
)

RECORDED = "recorded: "
"""How the origin of a bound begins that the corpus or the instance's file records."""


class KnownBound(NamedTuple):
    """A value that no plan is below, who says so, on what it rests, and for which plans."""

    ns: int
    origin: str
    rests_on: str = PROOF
    plans: PlanClass = "any"


class Claim(NamedTuple):
    """A bound that a plan file states, and the instance that it is about.

    That is the plan's own, or the one with whole modules or layers.
    """

    bound: KnownBound
    whole: Instance


def known_bound(
    instance: Instance,
    semantics: Semantics,
    value_ns: int | None = None,
    proven: Iterable[KnownBound] = (),
    stored: Iterable[KnownBound] = (),
) -> tuple[KnownBound | None, tuple[str, ...]]:
    """The highest bound at hand, and a sentence for each that a plan refutes.

    Of equal ones, a proof of ours, else what was proven before what is recorded. One that is stored
    counts only where it is higher than all others, for everyone can edit a file.

    Parameters
    ----------
    instance : Instance
    semantics : Semantics
    value_ns : int, optional
        The value of the best feasible plan: what is above it is no bound.
    proven : iterable of KnownBound
        What was proven or checked just now.
    stored : iterable of KnownBound
        What plan files say, and no plan refutes (`believed`).

    Examples
    --------
    >>> from placegap.instances import Makespan, example
    >>> known_bound(example(), Makespan())
    (KnownBound(ns=33, origin='critical path', rests_on='proof', plans='any'), ())
    >>> told = KnownBound(34, "stored in plan.json: cp-sat", "CP-SAT 9")
    >>> known_bound(example(), Makespan(), 35, stored=[told])[0].ns
    34
    >>> known_bound(example(), Makespan(), 33, [told])[1][0].partition(":")[0]
    'stored in plan.json'
    """
    from placegap.solvers.bounds.cheap_bounds import quick_bound  # brings numba

    cheap = KnownBound(*quick_bound(instance, semantics), plan_class(semantics))
    at_hand = [*proven, *recorded_bounds(instance, semantics), cheap]
    wrong = tuple[str, ...]()
    if value_ns is not None:
        wrong = tuple(
            refuted(bound, value_ns, semantics) for bound in at_hand if bound.ns > value_ns
        )
        at_hand = [bound for bound in at_hand if bound.ns <= value_ns]
    best = sorted(at_hand, key=lambda bound: (-bound.ns, bound.rests_on != PROOF))[:1]
    return max([*best, *stored], key=lambda bound: bound.ns, default=None), wrong


def recorded_bounds(instance: Instance, semantics: Semantics) -> Iterator[KnownBound]:
    """Bounds that the corpus or the instance's file records, also of wider classes of plans."""
    for plans in PLAN_CLASSES[PLAN_CLASSES.index(plan_class(semantics)) :]:
        rules = with_plans(semantics, plans)
        for known in known_of(instance, rules) if plan_class(rules) == plans else ():
            if known.bound_ns is not None:
                origin = known.bound_origin or "not said by whom"
                yield KnownBound(known.bound_ns, RECORDED + origin, known.rests_on, plans)


def with_bounds_of(fine: Instance, whole: Instance, semantics: Semantics) -> Instance:
    """An instance with whole modules or layers, with what is recorded of its ops one by one.

    It has fewer plans, so the bounds hold.
    """
    bounds = (
        BestKnown(
            semantics=known.semantics,
            bound_ns=known.bound_ns,
            bound_origin=known.bound_origin,
            rests_on=known.rests_on,
        )
        for plans in PLAN_CLASSES
        for known in known_of(fine, with_plans(semantics, plans))
    )
    return whole.model_copy(update={"best_known": tuple(dict.fromkeys(bounds))})


def recorded_value_ns(instance: Instance, semantics: Semantics) -> int | None:
    """The best value that is recorded under the same semantics."""
    values = (known.value_ns for known in known_of(instance, semantics))
    return min((value for value in values if value is not None), default=None)


def with_known_bound(instance: Instance, result: Result) -> Result:
    """A result with the best bound at hand, where that is higher than its own.

    What a method proved itself then stands among the details, as `own_bound_ns`. A recorded bound
    that its plan refutes is one of its faults. There is no gap where the method proved nothing,
    nothing is recorded, and the bound that costs nothing does not prove the plan optimal.

    Examples
    --------
    >>> from placegap.instances import Makespan, example
    >>> from placegap.solvers import solve
    >>> found = with_known_bound(example(), solve(example(), Makespan(), "heft"))
    >>> found.bound_ns, found.bound_origin, found.gap
    (33, 'critical path', None)
    """
    if result.value_ns is None or result.split is not None:
        return result
    known, wrong = known_bound(instance, result.semantics, result.value_ns, proven_by(result))
    result = replace(result, faults=(*result.faults, *wrong))
    if known is None or (result.bound_ns is not None and known.ns <= result.bound_ns):
        return result
    if result.bound_ns is not None:
        own = {"own_bound_ns": result.bound_ns, **result.details}
        result = replace(result, details=own)
    is_quick = result.bound_ns is None and not known.origin.startswith(RECORDED)
    found = carry_bound(result, _as_result(instance, result.semantics, result.method, known))
    return replace(found, gap=None) if is_quick and found.status != "optimal" else found


def proven_by(result: Result) -> Iterator[KnownBound]:
    """What a result says that no plan of its instance is below."""
    if result.bound_ns is not None and result.split is None:
        origin = result.bound_origin or result.method
        yield KnownBound(result.bound_ns, origin, result.rests_on, result.bound_class)


def _as_result(instance: Instance, semantics: Semantics, by: str, bound: KnownBound) -> Result:
    outcome = Outcome(
        bound_ns=bound.ns,
        bound_origin=bound.origin,
        rests_on=bound.rests_on,
        bound_class=bound.plans,
    )
    return finish(instance, semantics, by, outcome, solve_s=0.0, bound_only=True)


# ----------------------------------------------------------------------------------- in plan files


def bound_to_store(result: Result) -> StoredBound | None:
    """What a plan file keeps of a result's bound.

    Examples
    --------
    >>> from placegap.instances import MaxLoad, example
    >>> from placegap.solvers import solve
    >>> stored = bound_to_store(solve(example(), MaxLoad(plans="chain"), "ideal-dp"))
    >>> stored.bound_ns, stored.bound_origin, stored.rests_on, stored.semantics.plans
    (39, 'ideal-dp', 'proof', 'chain')
    """
    if result.bound_ns is None:
        return None
    return StoredBound(
        bound_ns=result.bound_ns,
        bound_origin=result.bound_origin or result.method,
        rests_on=result.rests_on,
        semantics=with_plans(result.semantics, result.bound_class),
        content_hash=result.instance_hash,
    )


def stored_bound(
    file: str | Path, stated: StatedPlan, instance: Instance, semantics: Semantics
) -> tuple[Claim | None, str]:
    """The bound that a plan file states; or why it does not count here, in a sentence."""
    said = stated.bound
    if said is None:
        return None, ""
    if not includes(said.semantics, semantics):
        return None, f"{file}: its bound is one under {said.semantics.label}, and is left out"
    found = with_content(instance, said.content_hash)
    if found is None:
        return None, (
            f"{file}: its bound is about another content than {instance.name} has here, and is left"
            " out"
        )
    whole, granularity = found
    origin = said.bound_origin or "not said by whom"
    here = f"{STORED}{Path(file).name}: "
    words = "" if granularity == "op" else f", among plans of whole {granularity}s"
    origin = here + origin.removeprefix(here).removesuffix(words) + words
    bound = KnownBound(said.bound_ns, origin, said.rests_on, plan_class(said.semantics))
    return Claim(bound, whole), ""


def believed(
    instance: Instance, semantics: Semantics, files: Sequence[tuple[str, StatedPlan]]
) -> tuple[list[Claim], list[str], list[str]]:
    """The bounds that plan files of one instance state; why others do not count; which are wrong.

    Wrong is one that a plan of any of the files refutes.
    """
    claims, left_out, wrong = list[Claim](), list[str](), list[str]()
    for file, stated in files:
        claim, why = stored_bound(file, stated, instance, semantics)
        if claim is None:
            left_out += [why] if why else []
            continue
        values = [_value_ns(claim.whole, plan.plan, semantics) for _, plan in files]
        least = min((value for value in values if value is not None), default=None)
        if not counts_for(claim, instance, stated.plan, semantics):
            left_out.append(
                f"{file}: its bound is one among plans of whole modules or layers, which this plan"
                " splits, and is left out"
            )
        elif least is not None and claim.bound.ns > least:
            wrong.append(refuted(claim.bound, least, semantics))
        else:
            claims.append(claim)
    return claims, left_out, wrong


def counts_for(claim: Claim, instance: Instance, plan: Plan, semantics: Semantics) -> bool:
    """Whether a plan is one of those that a claim is about."""
    return claim.whole is instance or _value_ns(claim.whole, plan, semantics) is not None


def _value_ns(instance: Instance, plan: Plan, semantics: Semantics) -> int | None:
    from placegap.instances.referee.evaluate import evaluate  # brings numba

    verdict = evaluate(instance, plan, semantics)
    return verdict.value_ns if verdict.feasible else None


def with_stored_bound(
    instance: Instance, result: Result, file: str | Path, fine: Instance | None = None
) -> tuple[Result, tuple[str, ...]]:
    """A plan to start from with the bound that its file states; or why that does not count here.

    `fine` is the instance before whole modules or layers were asked for: its bounds hold, too.
    """
    if not _is_plan_file(file):
        return result, ()
    single = instance if fine is None else fine
    claim, why = stored_bound(file, load_stated_plan(instance, file), single, result.semantics)
    if claim is None:
        return result, (why,) if why else ()
    bound, about = claim.bound, claim.whole.content_hash
    if about not in (instance.content_hash, single.content_hash):
        return result, (f"{file}: its bound is one among plans of other wholes, and is left out",)
    if result.value_ns is not None and bound.ns > result.value_ns:
        return result, (refuted(bound, result.value_ns, result.semantics),)
    return carry_bound(result, _as_result(instance, result.semantics, result.method, bound)), ()


def _is_plan_file(file: str | Path) -> bool:
    try:
        return is_plan(read_json(file))
    except InputError:  # a split of dnn-partitioning, after which programs append text
        return False


def refuted(bound: KnownBound, value_ns: int, semantics: Semantics) -> str:
    """What is said of a bound that a plan refutes.

    Examples
    --------
    >>> from placegap.instances import Makespan
    >>> stored = KnownBound(34, "stored in plan.json: cp-sat", "CP-SAT 9")
    >>> refuted(stored, 33, Makespan()).partition(":")[0]
    'stored in plan.json'
    """
    return (
        f"{describe_basis(bound.origin, bound.rests_on)}: says that no plan is better than"
        f" {told(semantics, bound.ns)}, and one has {told(semantics, value_ns)}: the bound is"
        " wrong, and left out"
    )
