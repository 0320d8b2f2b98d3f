"""Place a coarser instance, and bring the plan back to the instance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Unpack

from placegap.instances.problem import Instance, Plan, Semantics
from placegap.instances.reading.errors import InputError
from placegap.instances.transforms.merge import shrink_plan
from placegap.instances.transforms.table import Coarsening, coarsen, expand
from placegap.solvers.core.clock import now_s
from placegap.solvers.core.method import Limits, Task
from placegap.solvers.core.result import Outcome, Result, finish
from placegap.solvers.solving.peak_memory import run_at_peak
from placegap.solvers.solving.run_method import LimitOptions, run_method


def solve_coarse(
    instance: Instance,
    semantics: Semantics,
    method: str,
    params: Mapping[str, object] | None = None,
    *,
    transform: str,
    transform_params: Mapping[str, object] | None = None,
    incumbent: Plan | None = None,
    **options: Unpack[LimitOptions],
) -> Result:
    """Run one method on the coarsened instance; the referee judges on the instance itself."""
    # A bound, and a proof that there is no plan, count only where the transform is exact under the
    # semantics. The time of coarsening and expanding is part of the solve time, not of the limit.
    # The transform is one of `table.TRANSFORMS`. The incumbent, a plan of `instance`, is ignored
    # where it sets merged ops apart.
    limits = Limits(**options)
    began = now_s()
    results: list[Result] = []

    def run(part: Task) -> Outcome:
        found = coarsen(part.instance, transform, transform_params, part.semantics)
        start = None if part.incumbent is None else shrink_plan(found.merge, part.incumbent)
        coarse = run_method(
            found.merge.coarse,
            part.semantics,
            method,
            params,
            time_limit_s=part.limits.time_limit_s,
            gap=limits.gap,
            seed=limits.seed,
            incumbent=start,
        )
        results.append(coarse)
        return _brought_back(found, coarse)

    task = Task(instance, semantics, limits, incumbent)
    if semantics.memory_rule == "peak":  # no transform is exact then, but on a relaxation it may be
        outcome = run_at_peak(task, run, method, is_exact=False)
    else:
        outcome = run(task)
    elapsed, first = now_s() - began, results[0]
    named = {f"{transform} {key}": str(value) for key, value in (transform_params or {}).items()}
    return finish(
        instance,
        semantics,
        method,
        outcome,
        solve_s=max(0.0, elapsed - outcome.build_s),
        seed=limits.seed,
        requested_gap=limits.gap,
        bound_only=first.status == "bound",
        options={
            **first.options,
            "time_limit_s": limits.time_limit_s,
            "coarsen": transform,
            **named,
        },
        versions=first.versions,
    )


def _brought_back(found: Coarsening, coarse: Result) -> Outcome:
    """What the result for the coarse instance says about the fine one."""
    if coarse.split is not None:
        raise InputError(
            f"{coarse.method} splits ops, which cannot be mapped back from merged ones; choose"
            " another method, or leave the transform out"
        )
    exact, merge, rules = found.claim == "exact", found.merge, coarse.semantics
    words = [f"{found.transform}: {merge.fine.num_ops} ops to {merge.coarse.num_ops}"]
    if exact:
        words.append("exact")
    elif coarse.plan is None and coarse.status == "infeasible":
        words.append("no coarse plan fits, which proves nothing about the model")
    else:
        bound = coarse.bound_value
        words.append("no bound" + (f" (coarse: {rules.text(bound)})" if bound is not None else ""))
    if coarse.value is not None and not exact:
        words.append(f"on the coarse graph the plan takes {rules.text(coarse.value)}")
    if coarse.message:
        words.append(coarse.message)
    return Outcome(
        plan=None if coarse.plan is None else expand(found, coarse.plan),
        claim=coarse.value if exact else None,
        bound=coarse.bound if exact else None,
        faults=coarse.faults,
        message="; ".join(words),
        build_s=coarse.build_s,
        details={**coarse.details, "coarse_ops": merge.coarse.num_ops},
    )
