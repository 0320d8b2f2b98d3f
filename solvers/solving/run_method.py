"""Run a method on an instance, and let the referee judge what it returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict, Unpack, cast

from typing_extensions import deprecated

from placegap.instances.kernels.loading import loading, loading_s
from placegap.instances.problem import Instance, Plan, Semantics
from placegap.instances.reading.errors import InputError
from placegap.instances.referee.evaluate import check_semantics
from placegap.solvers.core.back_ends import SolverName, require
from placegap.solvers.core.clock import now_s
from placegap.solvers.core.method import AnyMethod, ExactParams, Limits, Params, Task
from placegap.solvers.core.progress import Control, Listener, OnBound, OnPlan, listening, say
from placegap.solvers.core.registry import find_method, parse_params, why_not
from placegap.solvers.core.result import Outcome, Result, finish, installed_version


class LimitOptions(TypedDict, total=False):
    """When a method stops: seconds, a gap that suffices, and the seed of one that draws numbers."""

    time_limit_s: float | None
    gap: float
    seed: int


class SolveOptions(LimitOptions, total=False):
    """When `run_method` stops, and its progress callbacks."""

    progress: Listener | None
    on_plan: OnPlan | None
    on_bound: OnBound | None


DEFAULT_METHOD = "auto"
"""What runs where no method is named."""


def run_method(
    instance: Instance,
    semantics: Semantics,
    method: str | None = None,
    params: Mapping[str, object] | None = None,
    *,
    incumbent: Plan | None = None,
    **options: Unpack[SolveOptions],
) -> Result:
    """Run one method on one instance; the referee evaluates its plan.

    Parameters
    ----------
    instance, semantics
        The problem and its objective.
    method : str, optional
        A name of the registry; by default `DEFAULT_METHOD`.
    params : mapping, optional
        The method's own parameters.
    incumbent : Plan, optional
        A plan to start from; it is ignored by methods that cannot use one.
    **options
        The options below.
    time_limit_s, gap, seed : float, float, int, optional
        Time limit and relative gap at which to stop (none by default), and the random seed.
    progress : callable, optional
        Called with a `progress.Progress` for each better plan or bound, by methods that report
        progress, perhaps from other threads.
    on_plan, on_bound : callable, optional
        Called with ``(value_ns, plan or None)`` and with ``(bound_ns, by)`` whenever one is better.
        If one returns False or raises `progress.StopSearch`, the search ends with the plan so far,
        as after Ctrl-C; this works only if `run_method` is called from the main thread.

    Raises
    ------
    InputError
        Unknown method or parameters, impossible limits, a method that does not apply, or an
        instance that lacks what the semantics needs.

    Examples
    --------
    >>> from placegap.instances import Makespan, MaxLoad, example
    >>> from placegap.solvers import run_method
    >>> result = run_method(example(), Makespan(), "brute-force")
    >>> result.status, result.value
    ('optimal', 34)
    >>> run_method(example(), MaxLoad(plans="chain")).method
    'auto'
    """
    chosen = find_method(DEFAULT_METHOD if method is None else method)
    parsed = parse_params(chosen, params or {})
    progress = options.pop("progress", None)
    on_plan, on_bound = options.pop("on_plan", None), options.pop("on_bound", None)
    limits = Limits(**cast("dict[str, Any]", options))
    task = Task(instance, semantics, limits, incumbent)
    check_semantics(instance, semantics)
    reason = why_not(chosen, task, parsed)
    if reason is not None:
        if reason == chosen.missing():
            raise InputError(f"{chosen.name} {reason}")
        raise InputError(f"{chosen.name} does not apply to {instance.name}: {reason}")
    began, loaded = now_s(), loading_s()
    control = Control(on_plan, on_bound, progress)
    has_callbacks = on_plan is not None or on_bound is not None
    outcome = None
    listener = control.pass_on if has_callbacks else progress
    try:
        with listening(instance, semantics, listener), control.region:
            outcome = run_task(chosen, task, parsed)
    except KeyboardInterrupt:
        if not control.is_stopped:
            raise
    if outcome is None or (control.is_stopped and outcome.plan is None):
        outcome = Outcome(control.plan, message="stopped by a callback")
    elapsed = now_s() - began
    return finish(
        instance,
        semantics,
        chosen.name,
        outcome,
        solve_s=max(0.0, elapsed - outcome.build_s),
        setup_s=loading_s() - loaded,
        seed=limits.seed,
        requested_gap=limits.gap,
        bound_only=chosen.claim == "bound",
        options={
            **parsed.model_dump(mode="json"),
            "time_limit_s": limits.time_limit_s,
            "gap": limits.gap,
        },
        versions=versions_of(chosen),
    )


def run_task(method: AnyMethod, task: Task, params: Params) -> Outcome:
    """Run a method. A memory rule that it does not keep is kept around it, by several runs."""
    if task.semantics.memory_rule in method.memory_rules:
        return _run_alone(method, task, params)
    with loading():
        from placegap.solvers.solving.peak_memory import run_at_peak  # loads the referee

    def run(part: Task) -> Outcome:
        reason = why_not(method, part, params)
        return Outcome(message=reason) if reason else _run_alone(method, part, params)

    is_exact = _proves(method, params)
    return run_at_peak(task, run, method.name, is_exact=is_exact, settle=method.settle)


def _proves(method: AnyMethod, params: Params) -> bool:
    return method.claim == "exact" or isinstance(params, ExactParams)


def _run_alone(method: AnyMethod, task: Task, params: Params) -> Outcome:
    if _proves(method, params) and method.name != DEFAULT_METHOD:
        say(f"proving by {method.name}")
    if not isinstance(params, ExactParams) or not params.keeps_exact:
        return method.outcome(task, params)
    with loading():
        from placegap.solvers.solving.run_exact import run_exact  # its bounds load HiGHS

    return run_exact(method, task, params)


@deprecated("placegap.solvers.solve is now run_method")
def solve(*args: Any, **options: Any) -> Result:
    """The old name of `run_method`: `args` and `options` are its arguments; it warns."""
    return run_method(*args, **options)


def what_is_missing(method: AnyMethod, params: Params) -> str | None:
    """What has to be installed before a method can run with these parameters, or None."""
    solver: SolverName = getattr(params, "solver", "highs")
    if solver != "highs":
        try:
            require(solver)
        except InputError as error:
            return str(error)
    return method.missing()


def versions_of(method: AnyMethod) -> dict[str, str]:
    """Versions of the distributions that decide a method's results, placegap's own first."""
    return {name: installed_version(name) for name in ("placegap", *method.packages)}
