"""Running a study: what the log does not hold yet, in worker processes, one line per run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from placegap.experiments.running.dask_pool import run_on_dask
from placegap.experiments.running.pool import held, run_pool
from placegap.experiments.running.provenance import made_by
from placegap.experiments.studies.config import Study, load_study
from placegap.experiments.studies.gaps import GapCell, gap_cells
from placegap.experiments.studies.log import Record, RunLog
from placegap.experiments.studies.plan import Cell, Run, plan_study
from placegap.experiments.studies.progress import Progress
from placegap.experiments.studies.run import (
    describe_ending,
    had_begun,
    hard_limit_s,
    run_elsewhere,
    run_task,
)
from placegap.instances.reading.errors import InputError

if TYPE_CHECKING:
    from distributed import Client

LOG_NAME = "runs.jsonl"

REFEREE = "placegap.instances.referee.evaluate"
"""Workers load it before their first run, whose hard limit it would eat into."""


def run_study(
    config: str | Path,
    out: str | Path | None = None,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
    modules: Sequence[str] = (),
    tell: Callable[[str], None] = lambda sentence: None,
    smoke: bool = False,
    client: Client | None = None,
) -> tuple[Study, list[GapCell]]:
    """Run what is missing of a study, and return the study and all its cells.

    The log ``runs.jsonl`` in the folder `out` is the only state: a run whose key is in it is not
    done again, also if it failed. Killing this at any moment loses at most the runs under way.

    Parameters
    ----------
    config : str or Path
        A study's YAML file.
    out : str or Path, optional
        Folder of the log; ``results/<study name>`` by default.
    workers : int, optional
        Processes; by default as many as there are cores.
    progress : Progress, optional
        Told what is read, what is left to run, and each run's start and end.
    modules : sequence of str
        Modules that register methods of your own; workers import them too.
    tell : callable
        Told in a sentence of each file and each run that is left out.
    smoke : bool
        Whether to run the study's smallest form (`config.smallest`).
    client : Client, optional
        Of a Dask cluster that does the runs, in place of processes of this machine.

    Raises
    ------
    InputError
        A bad study, or a log that cannot be read or written.
    PoolError
        Processes cannot start, or the Dask cluster is lost.
    """
    for module in modules:
        import_module(module)
    study, told = load_study(config, smoke=smoke), progress or Progress()
    cells = []
    for cell in plan_study(study, config, tell):
        cells.append(cell)
        told.reading(cell.instance)
    log_file = results_folder(study, out) / LOG_NAME
    with RunLog(log_file) as log:
        stamp = made_by()
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
                    log.append({**describe_ending(ending), "made_by": ending.made_by or stamp})
                told.ended(run)
        return study, gap_cells(cells, log.records)


def logged_cells(
    config: str | Path, out: str | Path | None = None, *, smoke: bool = False
) -> tuple[Study, list[GapCell]]:
    """A study and all its cells as its log has them; nothing is run.

    Raises
    ------
    InputError
        A bad study, or no log of it.
    """
    study = load_study(config, smoke=smoke)
    log_file = results_folder(study, out) / LOG_NAME
    if not log_file.exists():
        asked = f"placegap study {os.path.relpath(config)}{' --smoke' * smoke}"
        raise InputError(f"there is no such log; run `{asked}` first", log_file)
    with RunLog(log_file) as log:
        return study, gap_cells(plan_study(study, config), log.records)


def _started(todo: Sequence[Run], told: Progress) -> Iterator[Run]:
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


def num_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
