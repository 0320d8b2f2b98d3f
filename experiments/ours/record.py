"""Results that are kept in the repository: small, without keys and paths, one file per study.

``python -m placegap.experiments.ours.record NAME [--smoke] [--out DIR]`` keeps what
``placegap study experiments/ours/NAME.yaml`` left in its log, and runs nothing. The first
line of a file says what made it, and whether it is the study's smallest form; each other line is a
row of the study with all its runs, or what a sweep found of one task.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from placegap.experiments.papers.figures import figure_of
from placegap.experiments.running.known_bounds import best_bound, recorded_bounds
from placegap.experiments.running.sources import load_source
from placegap.experiments.studies.config import load_study
from placegap.experiments.studies.gaps import NOT_APPLICABLE, GapCell, gap_cells
from placegap.experiments.studies.log import Record, RunLog, canonical_json
from placegap.experiments.studies.plan import plan_study
from placegap.experiments.studies.report import write_file
from placegap.experiments.studies.run import LOG_NAME, results_folder

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"

KEPT_DETAILS = ("rows", "columns", "nodes", "own_bound_ns")
"""Of a model: its size, its search, and its own bound where a cheap one is better."""


def read_results(name: str, folder: Path = RESULTS) -> tuple[Record, list[Record]]:
    """What made a study's committed results, and the results.

    Examples
    --------
    >>> head, rows = read_results("corpus")
    >>> sorted(head), len(rows) > 1
    (['made_by', 'smoke'], True)
    """
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
    write_file(path, "".join(f"{canonical_json(line)}\n" for line in lines).encode())
    return path


def rows_of(cells: Sequence[GapCell]) -> Iterator[Record]:
    """One record per table, instance and cluster: the graph, the best bound, and every run.

    The bound is the best of the study's and of those that the corpus records.
    """
    rows: dict[tuple[str, str, str], list[GapCell]] = {}
    for cell in cells:
        rows.setdefault((cell.cell.table, cell.cell.cluster, cell.cell.instance_hash), []).append(
            cell
        )
    for (table, cluster, content), row in rows.items():
        place = row[0].cell
        run = next(cell.cell.run for cell in row if cell.cell.run is not None)
        known = best_bound(recorded_bounds(load_source(run.source), run.semantics))
        bounds = [row[0].best_bound_ns, None if known is None else known.ns]
        yield {
            "table": table,
            "instance": place.instance,
            "cluster": cluster,
            "content": content[:6],
            "num_ops": place.num_ops,
            "num_devices": place.num_devices,
            "ccr": round(figure_of(run.source, "ccr"), 4),
            "memory_share": run.source.device_memory,
            "bound_ns": max((bound for bound in bounds if bound is not None), default=None),
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


def main(arguments: Sequence[str]) -> None:
    """Keep the results of a finished study."""
    name, smoke = arguments[0], "--smoke" in arguments
    out = arguments[arguments.index("--out") + 1] if "--out" in arguments else None
    path = HERE / f"{name}.yaml"
    study = load_study(path, smoke=smoke)
    with RunLog(results_folder(study, out) / LOG_NAME) as log:
        cells = gap_cells(plan_study(study, path), log.records)
    print(record_lines(name, smoke, rows_of(cells)))


if __name__ == "__main__":
    main(sys.argv[1:])
