"""What a worker process does with one run, and the line that the log keeps of it."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from placegap.experiments.running.other_clocks import other_clocks
from placegap.experiments.running.pool import Ending
from placegap.experiments.running.sources import load_source
from placegap.experiments.running.warm_up import GRACE_S, one_line, warm_up
from placegap.experiments.studies.log import Record
from placegap.experiments.studies.plan import Run
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.semantics import Makespan
from placegap.instances.reading.errors import InputError
from placegap.solvers import Result, SolverDisagreement, solve
from placegap.solvers.core.clock import compiled_s, while_compiling
from placegap.solvers.solving.coarsened import solve_coarse

SPLIT = "split"
"""Status of a run whose plan is one of a finer instance."""


def hard_limit_s(run: Run) -> float:
    """Seconds after which the worker is killed."""
    return run.time_limit_s + GRACE_S


def run_task(run: Run, notices: Path | None = None) -> dict[str, Any]:
    """Solve one run; whatever goes wrong becomes a status and a one-line message.

    While kernels are compiled, a file in the folder `notices` has the name of the run's key.
    """
    if notices is None:
        return _run(run, nullcontext())
    notice = notices / run.key
    with while_compiling(notice.touch, lambda: notice.unlink(missing_ok=True)):
        return _run(run, _noted(notices / warming_notice(run)))


def warming_notice(run: Run) -> str:
    """Name of the file that is there until a worker has compiled what the run needs."""
    return f"{run.key}.warming"


@contextmanager
def _noted(file: Path) -> Iterator[None]:
    file.touch()
    yield
    file.unlink(missing_ok=True)


def _run(run: Run, warming: AbstractContextManager[None]) -> dict[str, Any]:
    try:
        instance = load_source(run.source)
        if instance.content_hash != run.instance_hash:
            raise InputError("has changed since the study began", run.source.model)
        compiled = compiled_s()
        with warming:
            warm_up(run.method, run.semantics, run.params, branching=True)
        on: Callable[..., Result] = solve
        if run.coarsen is not None:
            on = partial(solve_coarse, transform=run.coarsen)
        result = on(
            instance,
            run.semantics,
            run.method,
            run.params,
            time_limit_s=run.time_limit_s,
            gap=run.gap,
            seed=run.seed,
        )
    except SolverDisagreement as error:
        return {"status": "disagreement", "message": str(error)}
    except Exception as error:  # the study goes on; the log keeps the place
        return {
            "status": "error",
            "message": one_line(error),
            "traceback": traceback.format_exc(),
        }
    described = describe_result(replace(result, setup_s=compiled_s() - compiled))
    described["details"].update(_clocks(instance, result))
    return described


def _clocks(instance: Instance, result: Result) -> dict[str, int]:
    """What the plan of one pass would take with free channels, and without transfers."""
    if result.plan is None or not isinstance(result.semantics, Makespan):
        return {}
    judged_on = instance if result.split is None else result.split.fine
    return other_clocks(judged_on, result.plan, result.semantics)


def describe_result(result: Result) -> dict[str, Any]:
    """The figures of a result, ready for JSON.

    A plan of a finer instance (operator splitting) has no value here, for the run is about the
    instance that was asked about; what it is worth there stands among the details.
    """
    if result.split is not None:
        return {
            "status": SPLIT if result.value_ns is not None else result.status,
            "value_ns": None,
            "bound_ns": None,
            "build_s": round(result.build_s, 6),
            "solve_s": round(result.solve_s, 6),
            "setup_s": round(result.setup_s, 6),
            "message": f"{result.message}, {result.value_ns} ns there",
            "details": {
                **result.details,
                "split_instance_hash": result.instance_hash,
                **({} if result.value_ns is None else {"split_value_ns": result.value_ns}),
            },
        }
    return {
        "status": result.status,
        "value_ns": result.value_ns,
        "bound_ns": result.bound_ns,
        "bound_origin": result.bound_origin,
        "bound_class": result.bound_class,
        "rests_on": result.rests_on,
        **({"faults": list(result.faults)} if result.faults else {}),
        "build_s": round(result.build_s, 6),
        "solve_s": round(result.solve_s, 6),
        "setup_s": round(result.setup_s, 6),
        "message": result.message,
        "details": dict(result.details),
    }


def describe_ending(ending: Ending[Run]) -> Record:
    """The line of the log: what was run, and how it ended."""
    run = ending.task
    outcome = ending.answer
    if ending.fate != "done":
        outcome = {"status": ending.fate, "message": ending.message}
    return {
        "key": run.key,
        **run.identity,
        "source": asdict(run.source),
        "wall_s": round(ending.wall_s, 6),
        **outcome,
    }
