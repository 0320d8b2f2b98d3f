"""Running a study: what the log does not hold yet, in worker processes, one line per run."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import asdict, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placegap.experiments.running.dask_pool import run_on_dask
from placegap.experiments.running.pool import Ending, Unfit, held, run_pool, send_news
from placegap.experiments.running.provenance import cpu_s, made_by, num_cores
from placegap.experiments.running.sources import load_source
from placegap.experiments.running.warm_up import GRACE_S, one_line, warm_up
from placegap.experiments.studies.config import Study, load_study
from placegap.experiments.studies.log import LOG_NAME, Record, RunLog
from placegap.experiments.studies.own_code import code_of
from placegap.experiments.studies.plan import Cell, Run, plan_study
from placegap.experiments.studies.progress import COMPILING, RUNNING, WARMING, StudyProgress
from placegap.experiments.studies.runs import frame_of, place_of, study_rows
from placegap.instances.kernels.loading import loading_s
from placegap.instances.problem import Instance, Makespan
from placegap.instances.reading.checkout import has_research, research
from placegap.instances.reading.errors import InputError
from placegap.solvers import Result, SolverDisagreement, run_method
from placegap.solvers.core.clock import while_compiling
from placegap.solvers.core.registry import find_method
from placegap.solvers.core.result import with_reason
from placegap.solvers.solving.run_method import versions_of, what_is_missing

NEARLY_ALL = 0.9
"""Share of its time limit from which on a run counts as stopped by the clock."""

SPLIT = "split"
"""Status of a run whose plan is one of a finer instance."""


def hard_limit_s(run: Run) -> float:
    """Seconds after which the worker is killed."""
    return run.time_limit_s + GRACE_S


def unfit(run: Run) -> str | None:
    """Why the machine that this is called on cannot do a run: its solvers are others.

    The run's key names their versions, so the result would stand under a key that is not its own.
    """
    method = find_method(run.method)
    missing = what_is_missing(method, method.params.model_validate(run.params))
    if missing is not None:
        return missing
    here = versions_of(method)
    for name, version in run.versions.items():
        if here.get(name) != version:
            return f"has {name} {here.get(name)}, and the study needs {version}"
    if code_of(method, run.semantics.objective) != run.code:
        return f"has other code for {run.method} than the study"
    return None


def run_task(run: Run) -> dict[str, Any]:
    """Solve one run; whatever goes wrong becomes a status and a one-line message.

    It sends news of what it does: the run's key, and `WARMING`, `COMPILING` or `RUNNING`.
    """
    at = [RUNNING]
    with while_compiling(
        lambda: send_news((run.key, COMPILING), compiles=True),
        lambda: send_news((run.key, at[-1]), compiles=False),
    ):
        return _run(run, _warming(run, at))


@contextmanager
def _warming(run: Run, at: list[str]) -> Iterator[None]:
    """Tell that the run's worker warms up, which is what it is `at` meanwhile."""
    at.append(WARMING)
    send_news((run.key, WARMING))
    yield
    at.pop()
    send_news((run.key, RUNNING))


def run_elsewhere(run: Run) -> dict[str, Any] | Unfit:
    """`run_task`, on a machine that may have other solvers than the one that planned the run."""
    why = unfit(run)
    return run_task(run) if why is None else Unfit(why)


def _run(run: Run, warming: AbstractContextManager[None]) -> dict[str, Any]:
    try:
        instance = load_source(run.source)
        if instance.content_hash != run.instance_hash:
            raise InputError("has changed since the study began", run.source.model)
        if code_of(find_method(run.method), run.semantics.objective) != run.code:
            raise InputError(f"the code of {run.method} has changed since the study began")
        loaded = loading_s()
        with warming:
            warm_up(run.method, run.semantics, run.params)
        on: Callable[..., Result] = run_method
        if run.coarsen is not None:
            from placegap.solvers.solving.coarsened import solve_coarse

            on = partial(solve_coarse, transform=run.coarsen)
        began = cpu_s()
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
        return {"status": "error", "message": one_line(error), "traceback": traceback.format_exc()}
    result = with_reason(replace(result, setup_s=loading_s() - loaded), instance)
    described = describe_result(result) | {"cpu_s": round(cpu_s() - began, 6)}
    described["details"].update(_clocks(instance, result))
    return described


def _clocks(instance: Instance, result: Result) -> dict[str, int]:
    """What the plan of one pass would take with free channels, and without transfers.

    Of a plan that breaks no rule but that of memory: what it takes, and the most bytes that a
    device holds beyond its room.
    """
    verdict = result.evaluation
    if verdict is not None and {broken.rule for broken in verdict.violations} == {"memory"}:
        room = [device.memory_bytes for device in instance.cluster.devices]
        beyond = (
            used.memory_bytes - most
            for used, most in zip(verdict.uses, room, strict=True)
            if most is not None
        )
        assert verdict.value_ns is not None  # only shape and order forbid a value
        return {"overfilled_ns": verdict.value_ns, "overfills_bytes": max(beyond)}
    if result.plan is None or not isinstance(result.semantics, Makespan) or not has_research():
        return {}
    judged_on = instance if result.split is None else result.split.fine
    clocks: dict[str, int] = research("other_clocks", "").other_clocks(
        judged_on, result.plan, result.semantics
    )
    return clocks


def describe_result(result: Result) -> dict[str, Any]:
    """The figures of a result, ready for JSON.

    A plan of a finer instance (operator splitting) has no value here, for the run is about the
    original instance; its value there is among the details.
    """
    described: dict[str, Any] = {
        "status": result.status,
        "value_ns": result.value_ns,
        "bound_ns": result.bound_ns,
        "bound_origin": result.bound_origin,
        "bound_class": result.bound_class,
        "rests_on": result.rests_on,
        "faults": "; ".join(result.faults),
        "build_s": round(result.build_s, 6),
        "solve_s": round(result.solve_s, 6),
        "setup_s": round(result.setup_s, 6),
        "message": result.message,
        "details": dict(result.details),
    }
    if result.split is None:
        return described
    details = {**result.details, "split_instance_hash": result.instance_hash}
    if result.value_ns is not None:
        details["split_value_ns"] = result.value_ns
    return described | {
        "status": SPLIT if result.value_ns is not None else result.status,
        "value_ns": None,
        "bound_ns": None,
        "message": f"{result.message}, {result.value_ns} ns there",
        "details": details,
    }


def had_begun(ending: Ending[Run]) -> bool:
    """Whether a run's worker had compiled what the run needs, as far as it has told."""
    return ending.last_news not in [(ending.task.key, WARMING), (ending.task.key, COMPILING)]


def describe_ending(ending: Ending[Run]) -> Record:
    """The line of the log: what was run, and how it ended."""
    run = ending.task
    outcome = ending.answer
    if ending.fate != "done":
        outcome = {"status": ending.fate, "message": ending.message}
    return {
        "key": run.key,
        "source": asdict(run.source),
        "wall_s": round(ending.wall_s, 6),
        **outcome,
        "clock_limited": is_clock_limited(outcome, run.time_limit_s),
    }


def is_clock_limited(outcome: Mapping[str, Any], time_limit_s: float) -> bool:
    """Whether a run ended by the clock, so that a faster machine might find another result.

    It did where it used up its time, was killed, or says that a part of it met a time limit. A
    method that uses nearly all of its time counts: some keep a little to hand their plan over.
    """
    took_s = sum(outcome.get(name) or 0.0 for name in ("build_s", "solve_s"))
    return (
        outcome["status"] == "timeout"
        or took_s >= NEARLY_ALL * time_limit_s
        or "time limit" in outcome.get("message", "")
    )


if TYPE_CHECKING:
    import pandas as pd
    from distributed import Client

REFEREE = "placegap.instances.referee.evaluate"
"""Workers load it before their first run, whose hard limit it would eat into."""


def run_study(
    config: str | Path,
    out: str | Path | None = None,
    *,
    workers: int | None = None,
    progress: StudyProgress | None = None,
    modules: Sequence[str] = (),
    tell: Callable[[str], None] = lambda sentence: None,
    smoke: bool = False,
    client: Client | None = None,
) -> pd.DataFrame:
    """Run what is missing of a study, and return all its runs, as `load_runs` does.

    The log ``runs.jsonl`` is the only state: a run whose key is in it is not done again, even if it
    failed. Killing this at any moment loses at most the runs under way.

    Parameters
    ----------
    config
        The study's YAML file.
    out
        Folder of the log; ``results/<study name>`` if None.
    workers
        Processes; as many as cores, if None.
    progress
        Listens to what the study does.
    modules
        Names of modules that register methods of your own; workers import them, too.
    tell
        Gets a sentence for each file and each run that is left out.
    smoke
        Whether to run the smallest form that the study states.
    client
        Of a Dask cluster that runs the study.

    Examples
    --------
    >>> from tempfile import mkdtemp
    >>> folder = Path(mkdtemp())
    >>> table = "name: t, semantics: {objective: makespan}, methods: [single-device]"
    >>> rows = "instances: [zfnet512], clusters: [celeritas-4xV100-pcie]"
    >>> _ = (folder / "s.yaml").write_text(f"{{name: s, tables: [{{{table}, {rows}}}]}}")
    >>> run_study(folder / "s.yaml", folder)[["instance", "label", "gap"]].values.tolist()
    [['zfnet512', 'single-device', 0.0]]
    """
    for module in modules:
        import_module(module)
    study, told = load_study(config, smoke=smoke), progress or StudyProgress()
    cells = []
    for cell in plan_study(study, config, tell):
        cells.append(cell)
        told.reading(cell.instance)
    log_file = results_folder(study, out) / LOG_NAME
    with RunLog(log_file) as log:
        stamp = made_by()
        places = {c.run.key: place_of(c, study.name) for c in reversed(cells) if c.run is not None}
        todo = missing_runs(cells, log.records)
        told.planned(todo, len({cell.run.key for cell in cells if cell.run is not None}))
        asked, modules = _started(todo, told), (REFEREE, *modules)
        if client is None:
            endings = run_pool(
                asked,
                run_task,
                workers=workers or num_cores(),
                hard_limit_s=hard_limit_s,
                modules=modules,
                on_news=told.doing,
            )
        else:
            endings = run_on_dask(
                asked,
                run_elsewhere,
                client=client,
                hard_limit_s=hard_limit_s,
                modules=modules,
                on_news=told.doing,
            )
        # a signal that stops the study interrupts its waiting, and nothing else
        with held(), closing(endings):
            for ending in endings:
                run = ending.task
                if ending.fate == "timeout" and not had_begun(ending):
                    # a slow machine, and no result: what is in the log would never run again
                    tell(f"left out: {run.label}, {ending.message} while its kernels were compiled")
                else:
                    made = dict(ending.made_by) or stamp
                    log.append({**places[run.key], **describe_ending(ending), **made})
                told.ended(run)
        return frame_of(study_rows(study.name, cells, log.records))


def _started(todo: Sequence[Run], told: StudyProgress) -> Iterator[Run]:
    """The runs, as workers draw them."""
    for run in todo:
        told.started(run)
        yield run


def missing_runs(cells: Sequence[Cell], records: dict[str, Record]) -> list[Run]:
    """The runs that are not in the log, each once, in the order of the tables."""
    wanted = {cell.run.key: cell.run for cell in cells if cell.run is not None}
    return [run for key, run in wanted.items() if key not in records]


def results_folder(study: Study, out: str | Path | None) -> Path:
    """Where a study's files go."""
    return Path("results") / study.name if out is None else Path(out)
