"""Placing one model: which method under which semantics, run in a worker process.

The worker keeps the command alive: Ctrl-C works while a solver computes, what the solver has by
then is kept, and a solver that crashes or hangs costs one line.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from numbers import Real
from typing import TYPE_CHECKING

from placegap.experiments.running.pool import Ending, run_here, run_pool, send_progress
from placegap.experiments.running.rules import Rules, as_options, nearest, option
from placegap.experiments.running.sources import Source, load_source
from placegap.experiments.running.warm_up import GRACE_S, one_line
from placegap.instances.files.document import of_version, read_json
from placegap.instances.files.plan_file import PlanFile, is_plan
from placegap.instances.kernels.loading import loading_s
from placegap.instances.objectives.hybrid.checks import why_nothing_fits as why_no_degrees
from placegap.instances.problem import (
    FIELDS,
    HybridPipeline,
    Instance,
    Makespan,
    MaxContext,
    Plan,
    Semantics,
)
from placegap.instances.problem.integers import times_written
from placegap.instances.reading.errors import InputError
from placegap.instances.referee.evaluate import check_semantics
from placegap.instances.torch_models.options import ASSUMED
from placegap.solvers import Result, run_method
from placegap.solvers.core.clock import USUAL_S, while_compiling
from placegap.solvers.core.method import Task
from placegap.solvers.core.progress import Listener, Progress, ProgressLog, each_plan_once, watching
from placegap.solvers.core.registry import find_method, parse_params, why_not
from placegap.solvers.core.result import (
    Bound,
    Outcome,
    SolverDisagreement,
    carry_bound,
    finish,
    is_better,
    refutation,
    with_reason,
)
from placegap.solvers.solving.known_bounds import proven_by, with_known_bound
from placegap.solvers.solving.run_method import DEFAULT_METHOD

if TYPE_CHECKING:
    from placegap.solvers.solving.second_opinion import Opinion, Verdict

COMPILING = "compiling kernels (once per machine)"

MOST_TIMES = 1000.0  # larger factors of the least load are no limit
STOP_S = 5.0  # for a method to return what it has after Ctrl-C; a second one ends it at once


@dataclass(frozen=True)
class Attempt:
    """One call of a method."""

    source: Source | Instance
    semantics: Semantics
    method: str
    params: Mapping[str, object] = field(default_factory=dict)
    time_limit_s: float = USUAL_S
    gap: float = 0.0
    seed: int = 0
    incumbent: Plan | None = None
    coarsen: str | None = None  # the transform that makes the instance coarser, and its parameters

    coarsen_params: Mapping[str, str] = field(default_factory=dict)
    alone: bool = False  # whether only what the method proves counts, and nothing recorded

    #: What the corpus records of the single ops, where whole modules or layers are placed.
    recorded: tuple[Bound, ...] = ()


@dataclass(frozen=True)
class Failure:
    """Why an attempt has no result."""

    message: str
    is_input_error: bool
    is_disagreement: bool = False


class Stopped(Exception):
    """Raised after Ctrl-C, with the best result so far."""

    def __init__(self, best: Result | None) -> None:
        super().__init__()
        self.best = best


@dataclass(frozen=True)
class Chosen:
    """The semantics, and a note if they are not the usual ones for the model."""

    semantics: Semantics
    note: str = ""


def choose_semantics(
    rules: Rules,
    instance: Instance,
    method: str | None,
    params: Mapping[str, object] | None = None,
    *,
    stated: Semantics | None = None,
    is_final: bool = True,
) -> Chosen:
    """The semantics: by options, the plan to start from (`stated`), file and defaults."""
    # A method that cannot do that gets the nearest that it can, but for what options state.
    # `is_final` is False where the method gets a coarser instance.
    own, params = stated or instance.semantics, params or {}
    found = find_method(method or DEFAULT_METHOD)
    usually = "makespan" if own is None else own.objective
    able = [one for one in (usually, "makespan", *found.objectives) if one in found.objectives]

    def suits(semantics: Semantics) -> bool:
        return why_refused(instance, semantics, found.name, params) is None

    def nearest_to(wanted: Rules) -> Semantics | None:
        wished = wanted.override(own, able[0]).objective
        for one in [wished] if wished in able or wanted.objective is not None else able:
            if one in able and wanted.given.keys() <= {"objective", *FIELDS[one]}:
                kept = {"memory", *wanted.given}  # `run_at_peak` keeps that rule for any method
                near = nearest(replace(wanted, objective=one).override(own), suits, kept)
                if near is not None:
                    return near
        return None

    wished, near = rules.override(own, able[0]), nearest_to(rules)
    if isinstance(wished, HybridPipeline):
        why = why_no_degrees(instance, wished)
        if why is not None:
            raise InputError(why, instance.name)
    if near is not None:
        plain = wished if own is None else rules.override(instance.semantics)
        if suits(plain):  # near differs from it where a start has other rules
            is_usual = near == plain and rules.objective is None and near.objective == usually
            return Chosen(near, _why_objective(instance, near) if is_usual else "")
        options = as_options(near, plain)
        return Chosen(
            near,
            f"{found.name} does not support the default {plain.label}; it runs under"
            f" {near.label} ({options})",
        )
    if not is_final:
        return Chosen(wished)
    reason = why_refused(instance, wished, found.name, params)
    other = nearest_to(Rules())
    mend = f"leave out --method: {DEFAULT_METHOD} chooses one"
    if other is not None:
        has = {"objective", *FIELDS[other.objective]}
        lost = [option(name, rule) for name, rule in rules.given.items() if name not in has]
        mend = f"it applies with {as_options(other, wished)}"
        mend += f", without {' '.join(lost)}" if lost else ""
    raise InputError(f"{found.name} does not apply to {instance.name}: {reason}; {mend}")


def _why_objective(instance: Instance, semantics: Semantics) -> str:
    """A line on why a traced model has its objective, and on the option for another; or nothing."""
    known = instance.graph.provenance.parameters
    said = f"the objective is {semantics.label},"
    if known.get("decode"):
        if isinstance(semantics, Makespan):
            return (
                f"{said} the time of one token, the default for decode steps; for the throughput of"
                " a full pipeline add --objective max_load"
            )
        return f"{said} as its file states; for the time of one token add --objective makespan"
    if ASSUMED not in known or not semantics.load_passes:
        return ""
    return (
        f"{said} the default for traced models, as one pass gains little from more devices; for"
        " one pass add --objective makespan"
    )


def why_refused(
    instance: Instance, semantics: Semantics, method: str, params: Mapping[str, object]
) -> str | None:
    """Why a method cannot do a task, or None; `run_method` says what has to be installed."""
    found = find_method(method)
    try:
        check_semantics(instance, semantics)
    except InputError as error:
        return str(error).removeprefix(f"{instance.name}: ")
    reason = why_not(found, Task(instance, semantics), parse_params(found, params))
    return None if reason == found.missing() else reason


def place(
    attempt: Attempt,
    modules: Sequence[str] = (),
    *,
    start: Result | None = None,
    on_progress: Listener | None = None,
    pool: Callable[..., Generator[Ending[Attempt]]] | None = None,
) -> tuple[Result, tuple[str, ...]]:
    """Run a method in a process of its own; its result, and warnings."""
    # If it fails, the plan and the bound that it had reported stand, and a warning says so. The
    # result is no worse than `start`.
    log = ProgressLog(on_progress or (lambda progress: None), rules=attempt.semantics)
    reported: list[Plan] = []  # the last plan

    def enter(progress: Progress) -> None:
        if progress.doing:
            log.listener(replace(log.best, doing=progress.doing))
            return
        if progress.plan is not None:
            reported[:] = [progress.plan]
        log.enter(progress)

    if start is not None:
        attempt = replace(attempt, incumbent=start.plan)
    endings = (pool or run_pool)(
        [attempt],
        run_attempt,
        workers=1,
        hard_limit_s=lambda attempt: attempt.time_limit_s + GRACE_S,
        modules=modules,
        stop_s=STOP_S,
        on_progress=enter,
    )
    best, warnings = start, list[str]()
    try:
        if start is not None:
            log.enter(_as_progress(start))
        with closing(endings):
            for ending in endings:
                answer = _answer(ending)
                if isinstance(answer, Failure) and answer.is_input_error:
                    raise InputError(answer.message)
                if _has_lost_its_plan(answer):
                    known = _reported(attempt, log.best, reported, "failed", ending.wall_s)
                    best = best if known is None else better(best, known)
                if isinstance(answer, Result):
                    if answer.split is not None and best is not None:
                        warnings.append(
                            f"{answer.method} splits ops, so the start, a plan for the unsplit"
                            " model, is not used"
                        )
                        best = None
                    best = better(best, _with_finder(answer, best))
                    log.enter(_as_progress(answer))  # a listener may end everything
                elif best is None:
                    raise RuntimeError(answer.message)
                else:
                    warnings.append(f"{answer.message}; the result is what it had reported by then")
    except KeyboardInterrupt:
        known = _reported(attempt, log.best, reported, "interrupted", 0.0)
        if known is not None:  # it may have been ended before it could return that plan
            best = known if best is None else better(known, best)
        raise Stopped(best) from None
    assert best is not None
    if best.method == START:
        best = replace(best, message=f"{attempt.method} found no better plan")
    return best, tuple(warnings)


def with_load_limit(attempt: Attempt, at_most: float, *, here: bool = False) -> tuple[Attempt, str]:
    """The attempt with a limit of loads, `at_most` x the optimal `max_load`; that in words."""
    # The least load is that of the model as it is stated, with its caches, and has half of the
    # time.
    semantics = attempt.semantics
    if not isinstance(semantics, MaxContext):
        raise InputError("--at-most limits loads under --objective max_context; add that")
    if semantics.at_most_ns is not None:
        raise InputError("--at-most and --at-most-ns both limit loads; leave out one")
    if not (isinstance(at_most, Real) and 1 <= at_most <= MOST_TIMES):
        raise InputError(f"--at-most is a factor of the optimal load, from 1 to {MOST_TIMES:g}")
    half_s = attempt.time_limit_s / 2
    first = replace(
        attempt,
        semantics=semantics.loads,
        method=DEFAULT_METHOD,
        params={},
        time_limit_s=half_s,
        incumbent=None,
    )
    result, _ = place(first, pool=run_here if here else None)
    if result.value is None:
        raise InputError(
            f"no load to compare with: no plan of {result.instance} fits with the stated caches;"
            " trace a shorter --context, or leave out --at-most"
        )
    limit_ns = times_written(at_most, result.value)
    proven = "" if result.status == "optimal" else " (not proven optimal)"
    rules = semantics.model_copy(update={"at_most_ns": limit_ns})
    said = f"at most {limit_ns} ns of load, {at_most:g} times {result.value} ns{proven}"
    return replace(attempt, semantics=rules, time_limit_s=attempt.time_limit_s - half_s), said


def better(best: Result | None, new: Result) -> Result:
    """The result to report: the better plan (of two equal ones the later), and the better bound."""
    # A claim of one that the plan of the other refutes becomes a fault of the result.
    if best is None or best.value is None:
        return new
    if new.value is not None and not is_better(best.value, new.value, new.semantics):
        return carry_bound(new, best)
    return carry_bound(best, new)


def _has_lost_its_plan(answer: Result | Failure) -> bool:
    """Whether an attempt ended without a plan, but may have reported one before."""
    if isinstance(answer, Failure):
        return not answer.is_disagreement
    return answer.plan is None and answer.status == "no_plan"


def _reported(
    attempt: Attempt, progress: Progress, plans: Sequence[Plan], how: str, spent_s: float
) -> Result | None:
    """What a method had reported before it ended, as its result: a plan, a bound, or both."""
    bound = progress.bound if attempt.coarsen is None else None
    if refutation(bound, progress.value, attempt.semantics):
        bound = None  # a plan has refuted it since
    if not plans and bound is None:
        return None
    source = attempt.source
    instance = source if isinstance(source, Instance) else load_source(source)
    outcome = Outcome(
        plans[-1] if plans else None,
        bound=bound and bound._replace(basis=bound.basis or find_method(attempt.method).basis),
        message=f"{how}; the result is what it had reported by then",
    )
    known = finish(instance, attempt.semantics, attempt.method, outcome, solve_s=spent_s)
    return with_known_bound(instance, known, attempt.recorded)


def _with_finder(result: Result, start: Result | None) -> Result:
    """The result; where its plan is the one that it started from, with the method that found it."""
    if start is None or result.details.get("plan_by") != "the start":
        return result
    return replace(result, details={**result.details, "plan_by": start.method})


def _as_progress(result: Result) -> Progress:
    """A result as progress; a plan of a finer instance has no value here."""
    if result.split is not None:
        return Progress()
    bound, unit = next(proven_by(result), None), result.semantics.unit
    return Progress(result.value, bound, result.method, result.plan, unit=unit)


def given_plan(instance: Instance, semantics: Semantics, path: str) -> Result:
    """The plan of a plan file or split file, judged, as a result to start from."""
    # The bound that a plan file states is a claim (`claims`), and not the result's.
    found = run_method(instance, semantics, "expert", {"path": path})
    if found.plan is None:
        raise InputError(f"cannot be the start for {instance.name}: {found.message}", path)
    return replace(found, method=START)


def plan_file_at(path: str) -> PlanFile | None:
    """What a plan file states; None where it is none, which `given_plan` reports."""
    try:
        raw = read_json(path)
        return of_version(PlanFile, raw, path) if is_plan(raw) else None
    except InputError:
        return None


def judged_plan(instance: Instance, semantics: Semantics, plan: Plan) -> Result:
    """A plan, judged, as a result to start from."""
    found = finish(instance, semantics, START, Outcome(plan), solve_s=0.0)
    if found.plan is None:
        raise InputError(f"the start is not a feasible plan for {instance.name}: {found.message}")
    return found


START = "start"  # stands for the method in a result that is the plan that was given
FIRST_SHARE = 2 / 3  # of the time limit, for the first method, where a second opinion is requested


def ask_second(
    instance: Instance, first: Attempt, result: Result, modules: Sequence[str] = ()
) -> tuple[Result, Opinion]:
    """Let another method check a result in the time that is left; the better of both, and why."""
    # `first` has the time limit of both together.
    from placegap.solvers.solving.second_opinion import Opinion, compare, no_opinion, second_methods

    other = next(second_methods(instance, first.semantics, result.method), None)
    if other is None or result.split is not None:
        return result, no_opinion(result)
    left_s = first.time_limit_s - result.build_s - result.solve_s
    attempt = replace(
        first,
        method=other[0],
        params=other[1],
        time_limit_s=max(left_s, (1 - FIRST_SHARE) * first.time_limit_s),
        gap=0.0,
        coarsen=None,
        coarsen_params={},
        incumbent=result.plan,
        alone=True,
    )
    endings = run_pool(
        [attempt],
        run_attempt,
        workers=1,
        modules=modules,
        hard_limit_s=lambda attempt: attempt.time_limit_s + GRACE_S,
    )
    with closing(endings):
        answer = _answer(next(iter(endings)))
    if isinstance(answer, Failure):
        verdict: Verdict = "CONTRADICTS" if answer.is_disagreement else "none"
        return result, Opinion(verdict, answer.message, other[0])
    opinion = compare(result, answer)
    if opinion.verdict == "CONTRADICTS":
        return result, opinion
    rules = result.semantics
    if answer.value is not None and is_better(answer.value, result.value, rules):
        return carry_bound(answer, result), opinion
    return carry_bound(result, answer), opinion


def _answer(ending: Ending[Attempt]) -> Result | Failure:
    if ending.fate == "done":
        answer: Result | Failure = ending.answer
        return answer
    return Failure(f"{ending.task.method}: {ending.message}", is_input_error=False)


def run_attempt(attempt: Attempt) -> Result | Failure:
    """What the worker does: read the instance, solve, judge; and report progress."""
    doing = [""]

    def report(said: str) -> None:
        doing[:] = [said]
        send_progress(Progress(doing=said))

    report(f"placing by {attempt.method}")
    with (
        watching(report),
        while_compiling(
            lambda: send_progress(Progress(doing=COMPILING), paused=True),
            lambda: send_progress(Progress(doing=doing[0]), paused=False),
        ),
    ):
        return _run_attempt(attempt)


def _run_attempt(attempt: Attempt) -> Result | Failure:
    try:
        loaded = loading_s()
        run: Callable[..., Result]
        if attempt.coarsen is not None:
            from placegap.solvers.solving.coarsened import solve_coarse

            run = partial(
                solve_coarse, transform=attempt.coarsen, transform_params=attempt.coarsen_params
            )
        else:
            run = partial(run_method, progress=each_plan_once(send_progress))
        source = attempt.source
        instance = source if isinstance(source, Instance) else load_source(source)
        result = run(
            instance,
            attempt.semantics,
            attempt.method,
            attempt.params,
            time_limit_s=attempt.time_limit_s,
            gap=attempt.gap,
            seed=attempt.seed,
            incumbent=attempt.incumbent,
        )
        if not attempt.alone:
            result = with_known_bound(instance, result, attempt.recorded)
        result = with_reason(result, instance)
        return replace(result, setup_s=loading_s() - loaded)  # with what reading it took
    except InputError as error:
        return Failure(str(error), is_input_error=True)
    except SolverDisagreement as error:
        return Failure(str(error), is_input_error=False, is_disagreement=True)
    except Exception as error:  # one line for the user, whatever it is
        return Failure(f"{attempt.method}: {one_line(error)}", is_input_error=False)
