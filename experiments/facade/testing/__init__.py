"""The exact methods as an oracle for your own tests: instances with proven optima, and a check.

A placer of your own is tested in a few lines, by pytest or by anything else:

>>> from placegap.instances import Makespan
>>> from placegap.testing import assert_gap, known_optima
>>> problem = next(known_optima(Makespan(), max_ops=50))
>>> problem.instance.name, problem.optimum_ns
('bvlc_alexnet@2x4-gpu-slow-link', 462962)
>>> assert_gap(problem, [0] * problem.instance.num_ops, at_most=0.5)  # all ops on one device

``placegap.testing.fixtures`` holds fixtures for pytest, `proven_optimum` among them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from placegap.instances.corpus.corpus import load_best_known, load_corpus
from placegap.instances.files.cluster_file import load_cluster
from placegap.instances.problem import Instance, Plan, Semantics
from placegap.instances.reading.errors import InputError
from placegap.instances.referee.evaluate import evaluate
from placegap.solvers.core.clock import USUAL_S
from placegap.solvers.core.result import Outcome, Result, is_better, relative_gap
from placegap.solvers.solving.run_method import run_method
from placegap.solving import Solution

__all__ = ["KnownOptimum", "assert_gap", "known_optima", "prove_optimum"]


@dataclass(frozen=True)
class KnownOptimum:
    """An instance, the rules, and the least value that any plan can have under them."""

    instance: Instance
    semantics: Semantics
    optimum_ns: int
    rests_on: str = ""  # the solver that proved it, where placegap did not check the proof


def known_optima(semantics: Semantics, max_ops: int | None = None) -> Iterator[KnownOptimum]:
    """The instances of the corpus whose optimum is proven under these rules, in a fixed order.

    Parameters
    ----------
    semantics : Semantics
        With makespan and with chains of max_load, nine networks on six clusters are proven, and
        some of those that bring a cluster of their own.
    max_ops : int, optional
        Leave out larger graphs.
    """
    for entry in load_best_known():
        if entry.semantics != semantics or entry.value_ns is None:
            continue
        if entry.value_ns != entry.bound_ns:
            continue
        document = load_corpus(entry.graph)
        if max_ops is not None and len(document.graph.ops) > max_ops:
            continue
        instance = document.instance(load_cluster(entry.cluster))
        if instance.content_hash == entry.content_hash:
            yield KnownOptimum(instance, semantics, entry.value_ns, entry.rests_on)


def prove_optimum(
    instance: Instance, semantics: Semantics, method: str = "auto", time_limit_s: float = USUAL_S
) -> KnownOptimum:
    """The optimum of an instance of your own, proven now by an exact method.

    Parameters
    ----------
    method : str
        An exact method of the registry.
    """
    found = run_method(instance, semantics, method, time_limit_s=time_limit_s)
    if found.status != "optimal" or found.value is None:
        raise InputError(
            f"{instance.name}, {semantics.label}: {method} proves no optimum in {time_limit_s:g} s"
            f" (value {found.value} ns, bound {found.bound_value} ns); give it more time or a"
            " smaller instance"
        )
    return KnownOptimum(instance, semantics, found.value, found.rests_on)


def assert_gap(
    problem: KnownOptimum,
    plan: Plan | Sequence[int] | Solution | Result | Outcome | None,
    at_most: float,
) -> None:
    """Fail unless the referee accepts a plan, and it is close enough to the optimum.

    Parameters
    ----------
    plan : Plan, sequence of int, Solution, Result or Outcome
        Or the number of each op's device, in the order of the instance; or what a solver returned:
        where it has no plan, its message is in the AssertionError.
    at_most : float
        The largest gap, (value - optimum) / value.
    """
    __tracebackhide__ = True  # pytest shows the line of the test
    if not at_most >= 0:
        raise InputError(f"at_most must be at least 0 (got {at_most})")
    where, why = f"{problem.instance.name}, {problem.semantics.label}", "None was given"
    found = plan.result if isinstance(plan, Solution) else plan
    if isinstance(found, Result | Outcome):
        why, found = found.message or "the method gives no reason", found.plan
    if found is None:
        raise AssertionError(f"{where}: there is no plan: {why}")
    given = found if isinstance(found, Plan) else Plan.on(list(found))
    verdict = evaluate(problem.instance, given, problem.semantics)
    if not verdict.feasible or verdict.value is None:
        broken = "; ".join(str(violation) for violation in verdict.violations)
        raise AssertionError(f"{where}: the plan is not feasible: {broken}")
    text = problem.semantics.text
    if is_better(verdict.value, problem.optimum_ns, problem.semantics):
        raise AssertionError(
            f"{where}: the plan takes {text(verdict.value)}, less than the proven optimum of"
            f" {text(problem.optimum_ns)}: please report it"
        )
    gap = relative_gap(verdict.value, problem.optimum_ns)
    if gap is None or gap > at_most:
        raise AssertionError(
            f"{where}: the plan takes {text(verdict.value)}, {100 * (gap or 0.0):.2f} % of it above"
            f" the optimum of {text(problem.optimum_ns)}; {100 * at_most:.2f} % are allowed"
        )
