"""Results that are kept in the repository: small, without keys and paths, one file per study.

``python -m placegap.experiments.research.record NAME [--smoke] [--out DIR]`` keeps what
``placegap study experiments/ours/NAME.yaml`` left in its log, and runs nothing. The first
line of a file says what made it, and whether it is the study's smallest form; each other line is a
row of the study with all its runs, or what a sweep found of one task.
"""

from __future__ import annotations

import json
import os
import sys
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from placegap.experiments.research.graph_figures import figure_of
from placegap.experiments.studies.config import Study, load_study
from placegap.experiments.studies.gaps import NOT_APPLICABLE, NOT_RUN, GapCell, gap_cells
from placegap.experiments.studies.log import Record, RunLog, canonical_json
from placegap.experiments.studies.plan import plan_study
from placegap.experiments.studies.run import LOG_NAME, results_folder
from placegap.instances.files.output_files import write_text
from placegap.instances.reading.errors import InputError

HERE = Path(__file__).resolve().parents[1] / "ours"
RESULTS = HERE / "results"

KEPT_DETAILS = ("rows", "columns", "nodes", "own_bound_ns")
"""Of a model: its size, its search, and its own bound where a cheap one is better."""


def logged_cells(
    config: str | Path, out: str | Path | None = None, *, smoke: bool = False
) -> tuple[Study, list[GapCell]]:
    """A study and all its cells as its log has them; nothing is run."""
    study = load_study(config, smoke=smoke)
    log_file = results_folder(study, out) / LOG_NAME
    if not log_file.exists():
        asked = f"placegap study {os.path.relpath(config)}{' --smoke' * smoke}"
        raise InputError(f"there is no such log; run `{asked}` first", log_file)
    with RunLog(log_file) as log:
        return study, gap_cells(plan_study(study, config), log.records)


def load_results(name: str, folder: Path = RESULTS) -> tuple[Record, list[Record]]:
    """What made a study's committed results, and the results."""
    head, *rows = map(json.loads, (folder / f"{name}.jsonl").read_text().splitlines())
    return head, rows


def record_lines(
    name: str, smoke: bool, records: Iterable[Mapping[str, Any]], folder: Path = RESULTS
) -> Path:
    """Keep records, without their keys, under a head that says once what made them."""
    listed = list(records)
    makers = sorted({str(record["made_by"]) for record in listed})
    lines: list[Mapping[str, Any]] = [{"made_by": makers, "smoke": smoke}]
    left_out = ("key", "made_by")
    lines += [{k: v for k, v in record.items() if k not in left_out} for record in listed]
    path = folder / f"{name}.jsonl"
    write_text("".join(f"{canonical_json(line)}\n" for line in lines), path)
    return path


def rows_of(cells: Sequence[GapCell]) -> Iterator[Record]:
    """One record per table, instance and cluster: the graph, the best bound, and every run.

    Rows without any run are left out.
    """
    rows: dict[tuple[str, str, str], list[GapCell]] = {}
    for cell in cells:
        rows.setdefault((cell.cell.table, cell.cell.cluster, cell.cell.instance_hash), []).append(
            cell
        )
    for (table, cluster, content), row in rows.items():
        place = row[0].cell
        run = next((cell.cell.run for cell in row if cell.cell.run is not None), None)
        if run is None:  # no method of the table models this instance
            continue
        yield {
            "table": table,
            "instance": place.instance,
            "cluster": cluster,
            "content": content[:6],
            "num_ops": place.num_ops,
            "num_devices": place.num_devices,
            "ccr": round(figure_of(run.source, "ccr"), 4),
            "memory_share": run.source.device_memory,
            "bound_ns": row[0].best_bound_ns,
            "runs": {cell.cell.label: _run(cell) for cell in row if cell.status != NOT_APPLICABLE},
            "made_by": next((cell.made_by for cell in row if cell.made_by), ""),
        }


def _run(cell: GapCell) -> Record:
    found = {
        "status": cell.status if cell.value_ns is None else None,
        "value_ns": cell.value_ns,
        "bound_ns": cell.bound_ns,
        "time_s": None if cell.time_s is None else round(cell.time_s, 5),
        **{name: cell.details[name] for name in KEPT_DETAILS if name in cell.details},
    }
    return {name: value for name, value in found.items() if value is not None}


def record_study(name: str, *, smoke: bool = False, out: str | None = None) -> Path:
    """Keep the results of a finished study, and return their file."""
    path = HERE / f"{name}.yaml"
    study, cells = logged_cells(path, out, smoke=smoke)
    missing = sum(cell.status == NOT_RUN for cell in cells)
    if missing:
        asked = f"placegap study {os.path.relpath(path)}{' --smoke' * smoke}"
        raise InputError(f"{missing} runs are missing; `{asked}` goes on", study.name)
    return record_lines(name, smoke, rows_of(cells))


def main(arguments: Sequence[str]) -> None:
    """Read the arguments, and say which file was written."""
    parser = ArgumentParser(prog="python -m placegap.experiments.research.record")
    parser.add_argument("name", help="a study of experiments/ours, without .yaml")
    parser.add_argument("--smoke", action="store_true", help="its smallest form")
    parser.add_argument("--out", help="the folder of its log, if it is not results/NAME")
    asked = parser.parse_args(arguments)
    try:
        print(record_study(asked.name, smoke=asked.smoke, out=asked.out))
    except InputError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main(sys.argv[1:])
