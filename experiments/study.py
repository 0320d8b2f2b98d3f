"""Running a study: what the log does not hold yet, in worker processes, one line per run."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import closing
from importlib import import_module
from pathlib import Path

from placegap.experiments.gap_table import GapCell, gap_cells
from placegap.experiments.pool import run_pool
from placegap.experiments.run_log import Record, RunLog
from placegap.experiments.run_task import describe_ending, hard_limit_s, run_task
from placegap.experiments.stop_signals import held
from placegap.experiments.study_config import Study, load_study
from placegap.experiments.study_plan import Cell, Run, plan_study

LOG_NAME = "runs.jsonl"

Progress = Callable[[int, int, str], None]
"""Told after each step: how many runs are done, how many there are, and what was last."""

REFEREE = "placegap.instances.evaluate"
"""Workers load it before their first run, whose hard limit it would eat into."""


def run_study(
    config: str | Path,
    out: str | Path | None = None,
    *,
    workers: int | None = None,
    progress: Progress = lambda done, total, last: None,
    modules: Sequence[str] = (),
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
    progress : callable
        Called with (runs done, runs in all, the last one).
    modules : sequence of str
        Modules that register methods of your own; workers import them too.

    Raises
    ------
    InputError
        A bad study, or a log that cannot be read or written.
    """
    for module in modules:
        import_module(module)
    study = load_study(config)
    cells = []
    for cell in plan_study(study, config):
        cells.append(cell)
        progress(0, 0, f"reading {cell.instance}")
    with RunLog(results_folder(study, out) / LOG_NAME) as log:
        todo = missing_runs(cells, log.records)
        total = len({cell.run.key for cell in cells if cell.run is not None})
        done = total - len(todo)
        progress(done, total, "")
        endings = run_pool(
            todo,
            run_task,
            workers=workers or num_cores(),
            hard_limit_s=hard_limit_s,
            modules=(REFEREE, *modules),
        )
        # a signal that stops the study interrupts its waiting, and nothing else
        with held(), closing(endings):
            for ending in endings:
                log.append(describe_ending(ending))
                done += 1
                run = ending.task
                progress(done, total, f"{run.method} on {Path(run.source.model).name}")
        return study, gap_cells(cells, log.records)


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
