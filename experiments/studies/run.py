"""Running a study: what the log does not hold yet, in worker processes, one line per run."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placegap.experiments.running.pool import (
    POLL_S,
    Ending,
    held,
    in_thread,
    run_pool,
    send_progress,
)
from placegap.experiments.running.provenance import cpu_s, made_by
from placegap.experiments.running.sources import load_source
from placegap.experiments.running.warm_up import GRACE_S, one_line, warm_up
from placegap.experiments.show.rendering import warn
from placegap.experiments.studies.config import Study, load_study
from placegap.experiments.studies.log import LOG_NAME, Record, RunLog, canonical_json
from placegap.experiments.studies.own_code import code_of
from placegap.experiments.studies.plan import PlannedRow, row_runs, study_rows
from placegap.experiments.studies.progress import (
    COMPILING,
    READING,
    RUNNING,
    WARMING,
    StudyProgress,
)
from placegap.experiments.studies.runs import (
    FAILURES,
    Run,
    RunRow,
    frame_of,
    place_of,
    row_of,
    run_rows,
)
from placegap.instances.kernels.loading import loading_s
from placegap.instances.problem import Instance
from placegap.instances.reading.checkout import has_research, research
from placegap.instances.reading.errors import InputError
from placegap.solvers import Result, SolverDisagreement, run_method
from placegap.solvers.bounds.cheap_bounds import quick_bound
from placegap.solvers.core.clock import now_s, while_compiling
from placegap.solvers.core.progress import Progress
from placegap.solvers.core.registry import find_method
from placegap.solvers.core.result import with_reason
from placegap.solvers.core.worker_process import num_cores

if TYPE_CHECKING:
    import pandas as pd

# Workers load it before their first run, whose hard limit it would eat into.
REFEREE = "placegap.instances.referee.evaluate"

REPORTED = ("status", "bound_origin", "bound_class", "rests_on", "message")
CLOSE = 1.1  # a log has at most 240 plans of a run of 100 s
TIMES = ("build_s", "solve_s", "setup_s")


def hard_limit_s(run: Run) -> float:
    """Seconds after which the worker is killed."""
    return run.time_limit_s + GRACE_S


def run_task(run: Run) -> dict[str, Any]:
    """Solve one run; whatever goes wrong becomes a status and a one-line message."""
    # It reports what it does: the run's key, and `READING`, `WARMING`, `COMPILING` or
    # `RUNNING`. The clock of its hard limit stands while it reads or compiles.
    at = WARMING

    def report(what: str, paused: bool | None = None) -> None:
        send_progress((run.key, what), paused=paused)

    report(READING, paused=True)
    try:
        instance = load_source(run.source)
        if instance.content_hash != run.instance_hash:
            raise InputError("has changed since the study began", run.source.model)
        if code_of(find_method(run.method), run.semantics.objective) != run.code:
            raise InputError(f"the code of {run.method} has changed since the study began")
        report(WARMING, paused=False)
        with while_compiling(lambda: report(COMPILING, True), lambda: report(at, False)):
            loaded = loading_s()
            warm_up(run.method, run.semantics, run.params)
            at = RUNNING
            report(RUNNING)
            began = cpu_s()
            found = Anytime()
            result = _solve(run, instance, found)
        result = with_reason(replace(result, setup_s=loading_s() - loaded), instance)
        described = describe_result(result) | {"cpu_s": round(cpu_s() - began, 6)}
        described["anytime"] = found.text
        if has_research():
            described["details"] |= research("other_clocks", "").clocks_of(
                instance, result, run.source
            )
        row_of(described)  # what an own method adds to its details may not go into the log
        canonical_json(described)
        return described
    except SolverDisagreement as error:
        return {"status": "disagreement", "message": str(error)}
    except Exception as error:  # the study goes on; the log keeps the place
        return {"status": "error", "message": one_line(error), "traceback": traceback.format_exc()}


class Anytime:
    """A listener that notes when there was a plan of which value, without loading kernels."""

    def __init__(self) -> None:
        self._began, self._points = now_s() - loading_s(), list[tuple[float, int]]()

    def __call__(self, progress: Progress) -> None:
        """Note a better value; of those within a tenth of their time two are kept."""
        if progress.value is None or (self._points and progress.value == self._points[-1][1]):
            return
        at_s = max(0.001, now_s() - loading_s() - self._began)
        if len(self._points) > 1 and at_s < CLOSE * self._points[-2][0]:
            self._points.pop()
        self._points.append((at_s, progress.value))

    @property
    def text(self) -> str:
        """What the column ``anytime`` says."""
        return " ".join(f"{at_s:.3f}:{value}" for at_s, value in self._points)


def _solve(run: Run, instance: Instance, found: Anytime) -> Result:
    on: Callable[..., Result] = partial(run_method, progress=found)
    if run.coarsen is not None:
        from placegap.solvers.solving.coarsened import solve_coarse

        on = partial(solve_coarse, transform=run.coarsen)
    limits = {"time_limit_s": run.time_limit_s, "gap": run.gap, "seed": run.seed}
    return on(instance, run.semantics, run.method, run.params, **limits)


def describe_result(result: Result) -> dict[str, Any]:
    """The figures of a result, ready for JSON."""
    # A plan of a finer instance (operator splitting) has no value here, for the run is about the
    # original instance; its value there is among the details, with a bound of the finer instance.
    described = {name: getattr(result, name) for name in REPORTED}
    described |= {"value_ns": result.value, "bound_ns": result.bound_value}
    described |= {name: round(getattr(result, name), 6) for name in TIMES}
    described |= {"faults": "; ".join(result.faults), "details": dict(result.details)}
    if result.split is None:
        return described
    details = {**result.details, "split_instance_hash": result.instance_hash}
    message = f"{result.message}, {result.value_ns} ns there"
    split = {"value_ns": None, "bound_ns": None, "message": message, "details": details}
    if result.value_ns is not None:
        details["split_value_ns"] = result.value_ns
        details["split_bound_ns"] = quick_bound(result.split.fine, result.semantics).value
        split["status"] = "split"
    return described | split


def had_begun(ending: Ending[Run]) -> bool:
    """Whether a run's worker had compiled what the run needs, as far as it has reported."""
    return ending.last_progress not in [(ending.task.key, WARMING), (ending.task.key, COMPILING)]


def describe_ending(ending: Ending[Run]) -> Record:
    """The line of the log: what was run, and how it ended."""
    known: Record = {"key": ending.task.key, "source": asdict(ending.task.source)}
    known["wall_s"] = round(ending.wall_s, 6)
    killed = {"status": ending.fate, "message": ending.message}
    return known | (ending.answer if ending.fate == "done" else killed)


def run_study(
    config: str | Path,
    out: str | Path | None = None,
    *,
    workers: int | None = None,
    progress: StudyProgress | None = None,
    modules: Sequence[str] = (),
    smoke: bool = False,
    shard: tuple[int, int] | None = None,
) -> pd.DataFrame:
    """Run what is missing of a study, and return all its runs, as `load_runs` does.

    The log ``runs.jsonl`` is the only state: a run whose key is in it is not done again, even if it
    failed. If the process is killed, only the runs in progress are lost.

    Parameters
    ----------
    config
        The study's YAML file.
    out
        Folder of the log; ``results/<study name>`` if None.
    workers
        Processes; as many as cores, if None.
    progress
        Progress callbacks.
    modules
        Names of modules that register your own methods; workers import them, too.
    smoke
        Whether to run the study's smoke test, its smallest form.
    shard
        (2, 3) is the second of three parts, with its own folder below `out`; the whole study
        takes over the runs in the logs of shards there.

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
    study = load_study(config, smoke=smoke)
    rows = study_rows(study, config, shard)
    folder = results_folder(study, out, shard)
    found = run_rows_of(
        study, config, rows, folder, workers=workers, progress=progress, modules=modules
    )
    return frame_of(found)


def run_rows_of(
    study: Study,
    config: str | Path,
    rows: Sequence[PlannedRow],
    folder: Path,
    *,
    workers: int | None = None,
    progress: StudyProgress | None = None,
    modules: Sequence[str] = (),
) -> list[RunRow]:
    """`run_study` of some rows of a study, with the log in a folder."""
    progress, planned, failed = progress or StudyProgress(), list[RunRow](), set[str]()
    progress.total = sum(len(row.limits_s) for row in rows)
    with RunLog(folder / LOG_NAME, row_of) as log:
        for file in sorted(folder.glob(f"shard-*/{LOG_NAME}")):
            with RunLog(file, row_of) as part:
                for key in part.records.keys() - log.records:
                    log.append(part.records[key])
        stamp = made_by()
        endings = run_pool(
            _missing(rows, lambda row: row_runs(row, study, config), planned, log, progress),
            run_task,
            workers=workers or num_cores(),
            hard_limit_s=hard_limit_s,
            modules=(REFEREE, *modules),
            on_progress=progress.doing,
        )
        # a signal that stops the study interrupts its waiting, and nothing else
        with held(), closing(endings):
            for ending in endings:
                run = ending.task
                if ending.fate == "timeout" and not had_begun(ending):
                    # a slow machine, and no result: what is in the log would never run again
                    warn(f"left out: {run.label}, {ending.message} while compiling its kernels")
                else:
                    row = next(one for one in planned if one.run and one.run.key == run.key)
                    record = {**place_of(row), **describe_ending(ending), **stamp}
                    log.append(record)
                    if record["status"] in FAILURES and run.method not in failed:
                        failed.add(run.method)
                        why = f"{run.label} failed: {record['message']}"
                        warn(f"{why}; the study goes on, Ctrl-C stops it and keeps what is done")
                progress.ended(run)
        return run_rows(planned, log.records)


def _missing(
    rows: Sequence[PlannedRow],
    read: Callable[[PlannedRow], list[RunRow]],
    planned: list[RunRow],
    log: RunLog,
    progress: StudyProgress,
) -> Iterator[Run | None]:
    """The runs that the log lacks, each once, as workers draw them; what is read is `planned`."""
    # A row is read when the runs of all rows before have begun, so that reading takes no core from
    # them; meanwhile this yields None.
    began, seen = False, set[str]()
    for row in rows:
        progress.reads(Path(row.source.model).name)
        try:
            for found in in_thread(partial(read, row)):
                if found is None:
                    yield None
        except InputError:
            while progress.running:  # what runs is finished first
                time.sleep(POLL_S)
                yield None
            raise
        assert found is not None  # the last one
        planned += found
        new = {one.run.key: one.run for one in found if one.run and one.run.key not in seen}
        todo = [run for key, run in new.items() if key not in log.records]
        seen |= new.keys()
        progress.total -= len(row.limits_s) - len(new)
        progress.done += len(new) - len(todo)
        for run in todo:
            began = True
            progress.started(run)
            yield run
    if not began:
        warn(f"all {progress.total} runs are in the log: there is nothing to run")


def results_folder(
    study: Study, out: str | Path | None, shard: tuple[int, int] | None = None
) -> Path:
    folder = Path("results") / study.name if out is None else Path(out)
    return folder if shard is None else folder / "shard-{}-of-{}".format(*shard)
