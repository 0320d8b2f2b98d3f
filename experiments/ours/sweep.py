"""A study that no gap table can express: a list of tasks, one line of a log each, resumable.

A task is a mapping of plain values; what is measured of it joins it in the log. The log is that of
studies (`experiments.studies.log`), so a sweep may be killed at any moment and goes on where it
stopped.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from placegap.experiments.research.record import record_lines
from placegap.experiments.running.provenance import made_by
from placegap.experiments.show.rendering import warn
from placegap.experiments.studies.log import Record, RunLog, run_key
from placegap.experiments.studies.run import LOG_NAME
from placegap.instances.reading.errors import InputError

Measure = Callable[[Mapping[str, Any]], Mapping[str, Any]]

USAGE = "usage: python -m placegap.experiments.ours.{name} [--smoke] [--record]"


def run_sweep(
    name: str, tasks: Iterable[Mapping[str, Any]], measure: Measure, out: Path | None = None
) -> list[Record]:
    """Measure what the log of a sweep does not hold yet, and return the records of all tasks.

    Parameters
    ----------
    name : str
        The log is ``results/NAME/runs.jsonl``, unless `out` is another folder.
    tasks : iterable of mappings
        What identifies each task, in plain values.
    measure : callable
        What is found of a task, in plain values.
    out : Path, optional

    Raises
    ------
    InputError
        If the log cannot be read or written.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     tasks, out = [{"n": 3}], Path(folder)
    ...     found = run_sweep("toy", tasks, lambda task: {"twice": 2 * task["n"]}, out)
    >>> found[0]["twice"]
    6
    """
    listed = [dict(task) for task in tasks]
    keys = [run_key({"sweep": name, "version": version("placegap"), **task}) for task in listed]
    with RunLog((out or Path("results", name)) / LOG_NAME) as log:
        for number, (key, task) in enumerate(zip(keys, listed, strict=True), start=1):
            if key not in log.records:
                log.append({"key": key, **task, **measure(task), "made_by": made_by()})
                warn(f"{number}/{len(listed)}: {', '.join(map(str, task.values()))}")
        return [log.records[key] for key in keys]


def sweep_command(
    name: str,
    tasks: Callable[[bool], Iterable[Mapping[str, Any]]],
    measure: Measure,
    arguments: Sequence[str],
) -> list[Record]:
    """Run a sweep, or with ``--smoke`` its smallest form; ``--record`` keeps it for the pages."""
    smoke = "--smoke" in arguments
    if set(arguments) - {"--smoke", "--record"}:
        raise SystemExit(USAGE.format(name=name))
    try:
        records = run_sweep(f"ours-{name}{'-smoke' * smoke}", tasks(smoke), measure)
    except InputError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None
    if "--record" in arguments:
        record_lines(name, smoke, records)
    return records
