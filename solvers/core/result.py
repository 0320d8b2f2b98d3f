"""One result for every method, the one function that may make it, and what its bound rests on."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import version
from typing import Literal, NamedTuple, Required, TypedDict, Unpack

from placegap.instances.kernels.loading import loading
from placegap.instances.problem import (
    PLAN_CLASSES,
    Evaluation,
    Instance,
    Plan,
    PlanClass,
    Semantics,
    Violation,
)
from placegap.instances.problem.integers import LARGEST_SUM
from placegap.instances.reading.errors import InputError
from placegap.instances.reading.printable import printable
from placegap.instances.transforms.op_splitting import OpSplit

PROOF = "proof"  # our own argument, in integers: dynamic program, path, sum, LP duals recomputed
NO_PLAN_NS = LARGEST_SUM**2 + 1  # a bound above every value: no plan exists


class Bound(NamedTuple):
    """What no plan is better than, who proves it, what that rests on, and for which plans."""

    value: int  #: In the unit of the rules: nanoseconds, or the tokens of max_context
    origin: str = ""  #: What proves it: "ideal-dp", "cp-sat", "highs", ..
    #: `PROOF`, an argument whose numbers our code computes in integers, or a solver and its version
    #: (`solver_and_version`); empty where that is not known.
    basis: str = PROOF
    #: Class of plans that it holds for; None: that of the semantics.
    plan_class: PlanClass | None = None
    #: Whether no method proved it: a path, the work or the longest op, which cost nothing to find.
    is_free: bool = False

    def rank(self, rules: Semantics | None = None) -> tuple[int, bool]:
        """Higher is better; if equal, one proved by placegap."""
        return cost(self.value, rules), self.basis == PROOF


NOTHING_PROVEN = Bound(0)


def cost(value: int, rules: Semantics | None) -> int:
    """A value or bound as what is minimized; without rules it is in nanoseconds."""
    return value if rules is None else rules.cost(value)


def no_plan(basis: str = PROOF, origin: str = "") -> Bound:
    """The bound that says that no plan exists."""
    return Bound(NO_PLAN_NS, origin, basis)


# Distributions and the solvers they bring.
SOLVERS = {"ortools": "CP-SAT", "highspy": "HiGHS", "pyscipopt": "SCIP"}


@cache
def installed_version(distribution: str) -> str:
    """The version of a distribution; its metadata, which take a millisecond, are read once."""
    return version(distribution)


def solver_and_version(distribution: str) -> str:
    """The solver of a distribution and its version, as results name what they rest on."""
    return f"{SOLVERS[distribution]} {installed_version(distribution)}"


def describe_basis(origin: str, rests_on: str) -> str:
    """Who proved a bound and what it rests on, as results print it."""
    basis = {PROOF: "proved by placegap", "": ""}.get(
        rests_on, f"proved by {rests_on}, not checked by placegap"
    )
    return "; ".join(filter(None, [origin, basis]))


# ``optimal``: value == bound. ``gap_met``: the requested gap is reached. ``feasible``: a plan
# without such proof. ``infeasible``: proven that no plan exists. ``bound``: a method that makes no
# plans proved a bound. ``no_plan``: none found, and the message says why.
Status = Literal["optimal", "gap_met", "feasible", "infeasible", "bound", "no_plan"]


# How a fault begins that is no solver's claim: our code failed, the corpus records a wrong bound,
# or a method of the user's did not return what it has to. The origin of a bound that the corpus
# records begins like the second one, too.
INTERNAL_ERROR, RECORDED, RUN_OF = "an internal error in", "recorded: ", "the run of"


class SolverDisagreement(AssertionError):
    """A method and the referee cannot both be right: a bug to find, never a tolerance to widen."""


class Fault(SolverDisagreement, RuntimeWarning):
    """A method failed, or contradicts a plan: a warning, and an error where warnings are errors.

    The tests have it raised (pyproject.toml), so that no fault goes unseen there.
    """


def fault_of(by: str, instance: Instance, said: str | Exception) -> str:
    """Warn of what went wrong in a method, and put it into words for a result's faults."""
    if isinstance(said, InputError):
        fault = str(said)
    elif isinstance(said, Exception) and not isinstance(said, SolverDisagreement):
        fault = internal_error(f"{by} on {instance.name}", said)
    else:
        fault = f"{by} on {instance.name}: {' '.join(str(said).split())}"
    warnings.warn(Fault(printable(f"a method failed: {fault}")), stacklevel=3)
    return fault


def internal_error(where: str, error: Exception) -> str:
    """A fault that is no wrong claim: our code, or what it calls, has failed."""
    said = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(": ")
    return f"{INTERNAL_ERROR} {where}: {said}"


def fault_words(fault: str, where: str = "") -> str:
    """A fault of a result as people read it: a wrong claim, or an internal error."""
    words = f"{where}: {fault}" if where else fault
    is_no_solver = fault.startswith((INTERNAL_ERROR, RECORDED, RUN_OF))
    return words if is_no_solver else f"a solver was wrong: {words}"


class Proven:
    """The parts of a bound by name."""

    bound: Bound | None

    @property
    def proven_infeasible(self) -> bool:
        """Whether it is proven that no plan exists."""
        return self.bound is not None and self.bound.value >= NO_PLAN_NS

    @property
    def bound_value(self) -> int | None:
        """The bound; None where nothing is proven, or that no plan exists."""
        return None if self.bound is None or self.proven_infeasible else self.bound.value

    @property
    def bound_origin(self) -> str:
        """What proves the bound."""
        return self.bound.origin if self.bound else ""

    @property
    def rests_on(self) -> str:
        """What the bound, or the proof that no plan exists, rests on."""
        return self.bound.basis if self.bound else ""


@dataclass(frozen=True)
class Outcome(Proven):
    """What a method returns: decisions and proofs; the referee computes values."""

    plan: Plan | None = None
    #: The value that an exact method claims for its plan; the referee must find no more.
    claim: int | None = None
    #: What is proven of all plans; `no_plan` where none exists.
    bound: Bound | None = None
    #: Claims of a solver that a known plan contradicts, each with its name and version; nothing of
    #: it is in plan and bound. And internal errors that cost a part of the search.
    faults: tuple[str, ...] = ()
    #: Why there is no plan, what limit was hit, ...
    message: str = ""
    #: Part of the time that went into building a model.
    build_s: float = 0.0
    #: Figures a study may tabulate: rows, columns, ideals, ...
    details: Mapping[str, int | float | str] = field(default_factory=dict)
    #: Where the method split ops: plan and bound are of ``split.fine``, which is another instance.
    split: OpSplit | None = None


@dataclass(frozen=True)
class Result(Proven):
    """The result of one run of one method; made only by `finish`.

    `value` is the referee's, `bound_value` the method's own proof, both in the unit of the rules:
    `value_ns` and `bound_ns` are None where these are tokens. `gap` is (value - bound) / value, 0
    when both are 0, None if one of them is missing, or if the only bound is a trivial one that no
    method proved (`known_bounds`). If the method split ops, `split` lists them, and all other
    fields refer to ``split.fine``: its name, its hash, and a plan evaluated on it. Such a value may
    lie below the optimum of the original instance. `setup_s` is the time to load modules and
    kernels, and to compile kernels that this machine has not compiled before; no other time
    includes it.
    """

    method: str
    instance: str
    instance_hash: str
    semantics: Semantics
    status: Status
    plan: Plan | None
    value: int | None
    bound: Bound | None
    faults: tuple[str, ...]
    gap: float | None
    build_s: float
    solve_s: float
    setup_s: float
    seed: int
    options: Mapping[str, str | int | float | bool | None]
    versions: Mapping[str, str]
    message: str
    details: Mapping[str, int | float | str]
    evaluation: Evaluation | None = field(default=None, repr=False)
    split: OpSplit | None = field(default=None, repr=False)

    @property
    def value_ns(self) -> int | None:
        """The value, where it is a time."""
        return self.value if self.semantics.unit == "ns" else None

    @property
    def bound_ns(self) -> int | None:
        """The bound, where it is a time."""
        return self.bound_value if self.semantics.unit == "ns" else None

    @property
    def value_tokens(self) -> int | None:
        """The value, where it is a number of tokens."""
        return self.value if self.semantics.unit == "tokens" else None

    @property
    def bound_tokens(self) -> int | None:
        """The bound, where it is a number of tokens."""
        return self.bound_value if self.semantics.unit == "tokens" else None

    @property
    def bound_class(self) -> PlanClass:
        """The class of plans that the bound holds for."""
        return (self.bound and self.bound.plan_class) or self.semantics.plan_class

    @property
    def proved(self) -> bool:
        """True if the plan is proven optimal, or proven not to exist."""
        return self.status in ("optimal", "infeasible")


def is_better(value_ns: int, than: int | None, rules: Semantics | None = None) -> bool:
    """Whether a value of a plan is better than another one, or than none."""
    return than is None or cost(value_ns, rules) < cost(than, rules)


def relative_gap(value: int | None, bound: int | None) -> float | None:
    """(value - bound) / value; 0 when both are 0; None where one is missing."""
    # Of what is maximized, where the bound is the larger one, it is the share of it that is
    # missing.
    if value is None or bound is None:
        return None
    whole = max(value, bound)
    return abs(value - bound) / whole if whole else 0.0


def refutation(
    bound: Bound | None, value_ns: int | None, rules: Semantics | None, by: str = "there is"
) -> str:
    """What a bound claims and a plan refutes, in words; empty where it refutes nothing."""
    # `by` says who has that plan.
    if bound is None or value_ns is None:
        return ""
    text = "{} ns".format if rules is None else rules.text
    if bound.value >= NO_PLAN_NS:
        claim = "no plan exists"
    elif is_better(value_ns, bound.value, rules):
        claim = f"no plan is better than {text(bound.value)}"
    else:
        return ""
    return f"claims that {claim}, but {by} one of {text(value_ns)}"


def gap_to(value_ns: int | None, bound: Bound | None) -> float | None:
    """The gap to a bound; None where that is free and does not prove the plan optimal."""
    gap = None if bound is None else relative_gap(value_ns, bound.value)
    return None if gap and bound is not None and bound.is_free else gap


def carry_bound(result: Result, other: Result) -> Result:
    """The result with the bound of another one for the same problem, where that is higher."""
    # A bound above the result's value is no bound: it becomes a fault.
    if (result.instance_hash, result.semantics) != (other.instance_hash, other.semantics):
        return result
    faults = (*result.faults, *(fault for fault in other.faults if fault not in result.faults))
    wrong = contradiction(other, result)
    if wrong:
        return replace(result, faults=(*faults, wrong))
    rules = result.semantics
    if other.bound_value is None or (
        result.bound_value is not None
        and not is_better(result.bound_value, other.bound_value, rules)
    ):
        return replace(result, faults=faults)
    is_optimal = result.value == other.bound_value
    has_gap = is_optimal or other.value is None or other.gap is not None
    words = [result.message] if is_optimal else [result.message, other.message]
    return replace(
        result,
        status="optimal" if is_optimal else result.status,
        bound=other.bound,
        faults=faults,
        gap=relative_gap(result.value, other.bound_value) if has_gap else None,
        message="; ".join(dict.fromkeys(filter(None, words))),
    )


def with_reason(result: Result, instance: Instance) -> Result:
    """The result; one without a plan says what memory is missing and what would help, if it is."""
    # Where no plan can exist for it, the message is only that.
    if result.plan is not None or result.status not in ("infeasible", "no_plan"):
        return result
    from placegap.instances.problem.explain import why_no_room  # brings numba

    why, proven = why_no_room(instance, result.semantics)
    said = [] if proven or not result.message else [result.message]
    return replace(result, message="; ".join((*said, *why))) if why else result


def _once(violations: Sequence[Violation]) -> list[str]:
    """Sentences of violations; one for devices of which the same is said."""
    said = dict[str, list[Violation]]()
    for each in violations:
        said.setdefault(str(each).replace(repr(each.device), ""), []).append(each)
    texts = list[str]()
    for first, *more in said.values():
        name, others = repr(first.device), f" (and {len(more)} like it)" if more else ""
        texts.append(str(first).replace(name, name + others))
    return texts


def contradiction(one: Result, other: Result) -> str:
    """What one result proves and a plan of the other refutes; empty where there is nothing."""
    # Both are of one instance and one semantics.
    words = refutation(one.bound, other.value, one.semantics, f"{other.method} has")
    return f"{describe_basis(one.method, one.rests_on)}: {words}" if words else ""


class RunFacts(TypedDict, total=False):
    """How a method was run."""

    #: solve_s, setup_s: What it took without building a model, and what went into loading modules
    #: and kernels.
    solve_s: Required[float]
    setup_s: float
    seed: int
    requested_gap: float  # what suffices; the status says whether it is reached
    bound_only: bool  # whether the method makes no plans
    options: Mapping[str, str | int | float | bool | None]  # its parameters and limits
    versions: Mapping[str, str]


def finish(
    instance: Instance, semantics: Semantics, method: str, outcome: Outcome, **run: Unpack[RunFacts]
) -> Result:
    """Judge an outcome by the referee and make it a result."""
    with loading():
        from placegap.instances.referee.evaluate import evaluate

    plans, bound = semantics.plan_class, outcome.bound
    bound_class = (bound and bound.plan_class) or plans
    if PLAN_CLASSES.index(bound_class) < PLAN_CLASSES.index(plans):
        raise SolverDisagreement(f"{method}: a {bound_class} bound does not hold for {plans}")
    if outcome.split is not None:
        instance = outcome.split.fine  # the plan is one of this instance, and of no other
    verdict = None if outcome.plan is None else evaluate(instance, outcome.plan, semantics)
    plan, value, message = outcome.plan, None, outcome.message
    if verdict is not None and not verdict.feasible:
        reasons = "; ".join(_once(verdict.violations)[:3])
        if outcome.claim is not None:
            raise SolverDisagreement(f"{method} on {instance.name}: claims a plan with {reasons}")
        plan, message = None, f"its plan is infeasible: {reasons}"
    elif verdict is not None:
        value = verdict.value
    wrong = wrong_claim(outcome, value, semantics, "its plan is")
    if wrong:
        raise SolverDisagreement(f"{method} on {instance.name}: {wrong}")
    gap = relative_gap(value, outcome.bound_value)
    status: Status
    if value is None and outcome.proven_infeasible:
        status = "infeasible"
    elif value is None:
        status = "bound" if run.get("bound_only") and outcome.bound_value is not None else "no_plan"
    elif value == outcome.bound_value:
        status = "optimal"
    else:
        is_close = gap is not None and gap <= run.get("requested_gap", 0.0)
        status = "gap_met" if is_close else "feasible"
    return Result(
        method=method,
        instance=instance.name,
        instance_hash=instance.content_hash,
        semantics=semantics,
        status=status,
        plan=plan,
        value=value,
        bound=bound and bound._replace(plan_class=bound_class),
        faults=outcome.faults,
        gap=gap,
        build_s=outcome.build_s,
        solve_s=run["solve_s"],
        setup_s=run.get("setup_s", 0.0),
        seed=run.get("seed", 0),
        options=run.get("options", {}),
        versions=run.get("versions", {}),
        message=message,
        details=outcome.details,
        evaluation=verdict,
        split=outcome.split,
    )


def wrong_claim(
    outcome: Outcome, value_ns: int | None, semantics: Semantics, by: str = "there is"
) -> str:
    """What an outcome claims of its plan, and of all, and the value of a plan refutes; or empty."""
    claim = outcome.claim
    if value_ns is not None and claim is not None and is_better(claim, value_ns, semantics):
        return f"claims {claim}, the referee finds {value_ns}"
    return refutation(outcome.bound, value_ns, semantics, by)
