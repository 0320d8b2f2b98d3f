"""Results that are kept in the repository: one CSV file of runs per study.

``python -m placegap.experiments.research.record NAME [--smoke] [--out DIR]`` keeps what
``placegap study experiments/ours/NAME.yaml`` left in its log, and runs nothing.
"""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from placegap.experiments.studies.config import Study, load_study
from placegap.experiments.studies.log import LOG_NAME, RunLog
from placegap.experiments.studies.plan import plan_study
from placegap.experiments.studies.run import results_folder
from placegap.experiments.studies.runs import NOT_RUN, RunRow, row_of, run_rows, write_rows
from placegap.instances.reading.errors import InputError

HERE = Path(__file__).resolve().parents[1] / "ours"
RESULTS = HERE / "results"


def logged_rows(
    config: str | Path, out: str | Path | None = None, *, smoke: bool = False
) -> tuple[Study, list[RunRow]]:
    """A study and all its rows as its log has them; nothing is run."""
    study = load_study(config, smoke=smoke)
    log_file = results_folder(study, out) / LOG_NAME
    if not log_file.exists():
        command = f"placegap study {os.path.relpath(config)}{' --smoke' * smoke}"
        raise InputError(f"there is no such log; run `{command}` first", log_file)
    with RunLog(log_file, row_of) as log:
        return study, run_rows(plan_study(study, config), log.records)


def record_study(name: str, *, smoke: bool = False, out: str | None = None) -> Path:
    """Keep the results of a finished study, and return their file."""
    path = HERE / f"{name}.yaml"
    study, rows = logged_rows(path, out, smoke=smoke)
    missing = sum(row.status == NOT_RUN for row in rows)
    if missing:
        command = f"placegap study {os.path.relpath(path)}{' --smoke' * smoke}"
        raise InputError(f"{missing} runs are missing; `{command}` goes on", study.name)
    write_rows([replace(row, params="") for row in rows], RESULTS / f"{name}.csv")
    return RESULTS / f"{name}.csv"


def main(arguments: Sequence[str]) -> None:
    """Read the arguments, and say which file was written."""
    parser = ArgumentParser(prog="python -m placegap.experiments.research.record")
    parser.add_argument("name", help="a study of experiments/ours, without .yaml")
    parser.add_argument("--smoke", action="store_true", help="its smallest form")
    parser.add_argument("--out", help="the folder of its log, if it is not results/NAME")
    options = parser.parse_args(arguments)
    try:
        print(record_study(options.name, smoke=options.smoke, out=options.out))
    except InputError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main(sys.argv[1:])
