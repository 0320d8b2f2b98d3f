"""What a worker process does with one run, and the line that the log keeps of it."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Mapping
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from placegap.experiments.running.compile_notice import compile_notice
from placegap.experiments.running.pool import Ending
from placegap.experiments.running.sources import load_source
from placegap.experiments.studies.log import Record
from placegap.experiments.studies.plan import Run
from placegap.instances.corpus.generate import generate
from placegap.instances.files.document import Document
from placegap.instances.problem.example import example
from placegap.instances.problem.semantics import Semantics
from placegap.instances.reading.errors import InputError
from placegap.solvers import Result, SolverDisagreement, solve
from placegap.solvers.core.clock import compiled_s
from placegap.solvers.core.registry import find_method

GRACE_S = 180.0
"""A run's hard limit is its time limit plus this: the method's own clock leaves out reading the
instance and compiling kernels, and some methods look at theirs only now and then."""

SPLIT = "split"
"""Status of a run whose plan is one of a finer instance."""

EFFORT = frozenset(
    {"moves", "restarts", "rounds", "patience", "generations", "population", "orders"}
)
"""Parameters that say how long a search goes on: they decide no kernel, and a warm-up with them
could take as long as the run."""

_warm: set[tuple[str, str, str]] = set()


def hard_limit_s(run: Run) -> float:
    """Seconds after which the worker is killed."""
    return run.time_limit_s + GRACE_S


def run_task(run: Run, notices: Path | None = None) -> dict[str, Any]:
    """Solve one run; whatever goes wrong becomes a status and a one-line message.

    While kernels are compiled, a file in the folder `notices` has the name of the run's key.
    """
    with compile_notice(None if notices is None else notices / run.key):
        return _run(run)


def _run(run: Run) -> dict[str, Any]:
    try:
        instance = load_source(run.source)
        if instance.content_hash != run.instance_hash:
            raise InputError("has changed since the study began", run.source.model)
        compiled = compiled_s()
        warm_up(run.method, run.semantics, run.params, branching=True)
        result = solve(
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
    return describe_result(replace(result, setup_s=compiled_s() - compiled))


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


def one_line(error: BaseException) -> str:
    """``KeyError: 'conv1' (etf.py:57)``: an exception and where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno})" if frames else ""
    return " ".join(f"{type(error).__name__}: {error}".split()) + place


def warm_up(
    method: str, semantics: Semantics, params: Mapping[str, Any], *, branching: bool
) -> None:
    """Compile a method's kernels on small examples, so that no run's time includes it.

    The four-op example needs no limit: compiling may take many seconds, solving takes none. The
    `branching` one makes searches branch, which compiles what the first does not reach, and may
    take a second.
    """
    params = {key: value for key, value in params.items() if key not in EFFORT}
    what = (method, semantics.label, repr(sorted(params.items())))
    if what in _warm:
        return
    _warm.add(what)
    diamond = example()
    examples = [(diamond, GRACE_S)]
    if branching:
        graph = generate("layered", {"ops": 12, "width": 4}, seed=2)
        examples.append((Document(name="warm-up", graph=graph).instance(diamond.cluster), 1.0))
    with contextlib.suppress(Exception):
        if branching and "highspy" in find_method(method).packages:
            import_module("placegap.solvers.back_ends.highs")  # Pyomo takes a second to load
    for instance, limit_s in examples:
        # what fails here fails in the run itself, where it is reported
        with contextlib.suppress(Exception):
            solve(instance, semantics, method, params, time_limit_s=limit_s)
