"""Placing one model: which method under which semantics, run in a worker process.

The worker keeps the command alive: Ctrl-C works while a solver computes, what the solver has by
then is kept or else the best plan of the attempts before, and a solver that crashes or hangs costs
one line.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial

from placegap.experiments.running.pool import Ending, run_pool, send_news
from placegap.experiments.running.rules import Rules
from placegap.experiments.running.sources import Source, load_source
from placegap.experiments.running.warm_up import GRACE_S, one_line, warm_up
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.semantics import FIELDS, Semantics
from placegap.instances.reading.errors import InputError
from placegap.instances.referee.plan import Plan
from placegap.solvers import Result, solve
from placegap.solvers.bounds.cheap_bounds import quick_bound
from placegap.solvers.core.clock import compiled_s
from placegap.solvers.core.interrupts import stop_asked
from placegap.solvers.core.progress import Ledger, Listener, News, each_plan_once
from placegap.solvers.core.registry import find_method, parse_params
from placegap.solvers.core.result import Outcome, SolverDisagreement, carry_bound, finish
from placegap.solvers.solving.coarsened import solve_coarse
from placegap.solvers.solving.default_methods import default_method, quick_method
from placegap.solvers.solving.second_opinion import (
    Opinion,
    Verdict,
    compare,
    nobody_to_ask,
    second_methods,
)

DEFAULT_TIME_LIMIT_S = 60.0
STOP_S = 5.0
"""What a method gets after Ctrl-C to return what it has; a second Ctrl-C ends it at once."""


@dataclass(frozen=True)
class Attempt:
    """One call of a method."""

    source: Source | Instance
    semantics: Semantics
    method: str
    params: Mapping[str, object] = field(default_factory=dict)
    time_limit_s: float = DEFAULT_TIME_LIMIT_S
    gap: float = 0.0
    seed: int = 0
    incumbent: Plan | None = None
    optional: bool = False
    """Whether the placement goes on if this attempt fails: there is another."""

    coarsen: str | None = None
    """The transform that makes the instance coarser, if any, and its parameters."""

    coarsen_params: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Failure:
    """Why an attempt has no result."""

    message: str
    is_input_error: bool
    is_disagreement: bool = False


class Stopped(Exception):
    """Ctrl-C; `best` is the best result until then."""

    def __init__(self, best: Result | None) -> None:
        super().__init__()
        self.best = best


def choose_semantics(
    rules: Rules,
    own: Semantics | None,
    method: str | None,
    params: Mapping[str, object] | None = None,
    usual: Mapping[str, str] | None = None,
) -> Semantics:
    """What the value will mean, from the options, the file and the method, in this order.

    Where a rule is not stated, it is the one that the named method, with its parameters, is for;
    max_load means chains where no method is named. `usual` are rules for where nothing says others
    (`sources.usual_rules`).

    Examples
    --------
    >>> choose_semantics(Rules(), None, None).label
    'makespan port per_edge'
    >>> choose_semantics(Rules(objective="max_load"), None, None).label
    'max_load chain add'
    >>> choose_semantics(Rules(objective="max_load"), None, "throughput-ip").label
    'max_load any add'
    """
    objectives = () if method is None else find_method(method).objectives
    usual = usual or {}
    first = (usual.get("objective", "makespan"), "makespan")
    wanted = [objective for objective in first if objective in objectives or not objectives]
    default = wanted[0] if wanted else objectives[0]
    semantics = rules.override(own, default)
    rest = {"plans": "chain"} if method is None else find_method(method).usual_rules(params or {})
    update = {
        name: rule
        for name, rule in {**(usual if own is None else {}), **rest}.items()
        if name in FIELDS[semantics.objective] and getattr(rules, name) is None
    }
    return semantics.model_copy(update=update)


def default_attempts(attempt: Attempt) -> Iterator[Attempt]:
    """What runs where no method is named; `place` fills in incumbents.

    First a placer that takes no time, whose plan stands if what follows fails.

    Raises
    ------
    InputError
        If what follows would fail on its parameters.
    """
    last = default_method(attempt.semantics)
    parse_params(find_method(last), attempt.params)
    quick = _with(attempt, method=quick_method(attempt.semantics), params={}, optional=True)
    return iter((quick, _with(attempt, method=last)))


def _with(attempt: Attempt, **changes: object) -> Attempt:
    return Attempt(**{**vars(attempt), **changes})


def place(
    attempts: Iterator[Attempt],
    modules: Sequence[str] = (),
    *,
    start: Result | None = None,
    on_news: Listener | None = None,
    pool: Callable[..., Generator[Ending[Attempt]]] | None = None,
) -> tuple[Result, tuple[str, ...]]:
    """Run attempts one after another; the result of the best, and warnings.

    Each attempt starts from the best plan of those before. If one fails or finds nothing, the best
    plan that was told of until then stands, and a warning says so.

    Parameters
    ----------
    attempts : iterator of Attempt
    modules : sequence of str
        Modules that the worker imports first.
    start : Result, optional
        A plan to start from (`given_plan`); what comes out is no worse.
    on_news : callable, optional
        Called with a `progress.News` whenever something better is known.
    pool : callable, optional
        What runs the attempts, by default `run_pool` in a process of their own.

    Raises
    ------
    InputError
        If a method does not apply, or its parameters are wrong, and there is no plan yet.
    Stopped
        On Ctrl-C.
    RuntimeError
        If a method crashes or disagrees with the referee, and there is no plan yet.
    """
    best = start
    warnings: list[str] = []
    names: list[str] = []
    ledger = Ledger(on_news or (lambda news: None))
    told: list[Plan] = []  # the last plan of the attempt that runs
    running: list[Attempt] = []
    if start is not None:
        ledger.enter(_news(start))

    def hear(news: News) -> None:
        if news.plan is not None:
            told[:] = [news.plan]
        ledger.enter(news)

    def tasks() -> Iterator[Attempt]:
        for attempt in attempts:
            told.clear()
            running[:] = [attempt if best is None else _with(attempt, incumbent=best.plan)]
            yield running[0]

    endings = (pool or run_pool)(
        tasks(),
        run_attempt,
        workers=1,
        hard_limit_s=lambda attempt: attempt.time_limit_s + GRACE_S,
        modules=modules,
        stop_s=STOP_S,
        on_news=hear,
    )
    try:
        with closing(endings):
            for ending in endings:
                answer = _answer(ending)
                names.append(ending.task.method)
                if told and _has_lost_its_plan(answer):
                    best = better(best, _judged_last(ending.task, told[0]))
                if isinstance(answer, Result):
                    if answer.split is not None and best is not None:
                        warnings.append(f"{answer.method} splits ops: what it started from is left")
                        best = None
                    best = better(best, _with_finder(answer, best))
                    ledger.enter(_news(answer))  # whoever hears it may end everything
                elif best is start and answer.is_input_error and not ending.task.optional:
                    raise InputError(answer.message)
                elif best is not None and best.plan is not None:
                    warnings.append(f"{answer.message}; this is the plan of {best.method}")
                elif not ending.task.optional:
                    raise (InputError if answer.is_input_error else RuntimeError)(answer.message)
    except KeyboardInterrupt:
        if told:  # it may have been ended before it could return that plan
            last = _judged_last(running[0], told[0], "interrupted")
            best = last if best is None else better(last, best)
        raise Stopped(best) from None
    assert best is not None
    if best.method == START:
        best = replace(best, message=f"{' and '.join(names)} found no better plan")
    return best, tuple(warnings)


def better(best: Result | None, new: Result) -> Result:
    """The result to report: the better plan, the later of equal ones, and the better bound.

    What one says and the plan of the other refutes becomes a fault of the result.
    """
    if best is None or best.value_ns is None:
        return new
    if new.value_ns is not None and new.value_ns <= best.value_ns:
        return carry_bound(new, best)
    return carry_bound(best, new)


def _has_lost_its_plan(answer: Result | Failure) -> bool:
    """Whether an attempt ended without a plan, but perhaps not before it told of one."""
    if isinstance(answer, Failure):
        return not answer.is_disagreement
    return answer.plan is None and answer.status == "no_plan"


def _judged_last(attempt: Attempt, plan: Plan, how: str = "failed") -> Result:
    """The last plan that an attempt told of before it failed, as a result of its method."""
    source = attempt.source
    instance = source if isinstance(source, Instance) else load_source(source)
    outcome = Outcome(plan, message=f"{how}; the plan is what it had by then")
    return finish(instance, attempt.semantics, attempt.method, outcome, solve_s=0.0)


def _with_finder(result: Result, start: Result | None) -> Result:
    """The result; where its plan is the one that it started from, with the method that found it."""
    if start is None or result.details.get("plan_by") != "the start":
        return result
    return replace(result, details={**result.details, "plan_by": start.method})


def _news(result: Result) -> News:
    """What a result adds to what is known; a plan of a finer instance is worth nothing here."""
    if result.split is not None:
        return News()
    proven_by = result.bound_origin or result.method
    return News(result.value_ns, result.bound_ns, result.method, result.plan, proven_by)


def given_plan(instance: Instance, semantics: Semantics, path: str) -> Result:
    """The plan of a plan file or split file, judged, as a result to start from.

    Raises
    ------
    InputError
        If the file holds no plan of the instance, or its plan breaks a rule.
    """
    found = solve(instance, semantics, "expert", {"path": path})
    if found.plan is None:
        raise InputError(f"cannot be the start for {instance.name}: {found.message}", path)
    return replace(found, method=START)


def judged_plan(instance: Instance, semantics: Semantics, plan: Plan) -> Result:
    """A plan, judged, as a result to start from.

    Raises
    ------
    InputError
        If it breaks a rule.
    """
    found = finish(instance, semantics, START, Outcome(plan), solve_s=0.0)
    if found.plan is None:
        raise InputError(f"the start is no plan of {instance.name}: {found.message}")
    return found


START = "start"
"""Stands for the method in a result that is the plan that was given."""

FIRST_SHARE = 2 / 3
"""Of the time limit, for the first method, where a second opinion is asked for."""


def ask_second(
    instance: Instance, first: Attempt, result: Result, modules: Sequence[str] = ()
) -> tuple[Result, Opinion]:
    """Let another method check a result in the time that is left; the better of both, and why.

    `first` has the time limit of both together.
    """
    asked = next(second_methods(instance, first.semantics, result.method), None)
    if asked is None or result.split is not None:
        return result, nobody_to_ask(result)
    left_s = first.time_limit_s - result.build_s - result.solve_s
    attempt = _with(
        first,
        method=asked[0],
        params=asked[1],
        time_limit_s=max(left_s, (1 - FIRST_SHARE) * first.time_limit_s),
        gap=0.0,
        coarsen=None,
        coarsen_params={},
    )
    started = _with(attempt, incumbent=result.plan)
    endings = run_pool(
        [started], run_attempt, workers=1, modules=modules,
        hard_limit_s=lambda attempt: attempt.time_limit_s + GRACE_S,
    )  # fmt: skip
    with closing(endings):
        answer = _answer(next(iter(endings)))
    if isinstance(answer, Failure):
        verdict: Verdict = "CONTRADICTS" if answer.is_disagreement else "none"
        return result, Opinion(verdict, answer.message, asked[0])
    opinion = compare(result, answer)
    if opinion.verdict == "CONTRADICTS":
        return result, opinion
    is_better = answer.value_ns is not None and (
        result.value_ns is None or answer.value_ns < result.value_ns
    )
    return (carry_bound(answer, result) if is_better else carry_bound(result, answer)), opinion


def _answer(ending: Ending[Attempt]) -> Result | Failure:
    if ending.fate == "done":
        answer: Result | Failure = ending.answer
        return answer
    return Failure(f"{ending.task.method}: {ending.message}", is_input_error=False)


def _with_cheap_bound(instance: Instance, result: Result) -> Result:
    """A plan of a method that proves nothing, with what paths and work prove."""
    if result.value_ns is None or result.bound_ns is not None or result.split is not None:
        return result
    cheap = quick_bound(instance, result.semantics)
    outcome = Outcome(bound_ns=cheap.ns, bound_origin=cheap.origin, rests_on=cheap.rests_on)
    known = finish(instance, result.semantics, result.method, outcome, solve_s=0.0, bound_only=True)
    return carry_bound(result, known)


def run_attempt(attempt: Attempt) -> Result | Failure:
    """What the worker does: read the instance, solve, judge."""
    try:
        compiled = compiled_s()
        warm_up(attempt.method, attempt.semantics, attempt.params, branching=False)
        if stop_asked():  # and the method has taken it for an end of the warm-up
            raise KeyboardInterrupt
        run: Callable[..., Result]
        if attempt.coarsen is not None:
            run = partial(
                solve_coarse, transform=attempt.coarsen, transform_params=attempt.coarsen_params
            )
        else:
            run = partial(solve, progress=each_plan_once(send_news))
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
        result = _with_cheap_bound(instance, result)
        return replace(result, setup_s=compiled_s() - compiled)  # with what the warm-up took
    except InputError as error:
        return Failure(str(error), is_input_error=True)
    except SolverDisagreement as error:
        return Failure(str(error), is_input_error=False, is_disagreement=True)
    except Exception as error:  # one line for the user, whatever it is
        return Failure(f"{attempt.method}: {one_line(error)}", is_input_error=False)
