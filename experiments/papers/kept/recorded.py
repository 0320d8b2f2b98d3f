"""A study's results in the repository: one short JSON line per cell, enough to print every table.

The log of a study names files of the machine and repeats itself; what is kept here are the cells of
its tables, the figures of its graphs that a paper's table asks for, and what made them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from placegap.experiments.running.other_clocks import FREE_CHANNELS, NO_TRANSFERS
from placegap.experiments.studies.gaps import NOT_RUN, GapCell
from placegap.experiments.studies.log import canonical_json
from placegap.experiments.studies.paper_comparison import compare, live_figure
from placegap.experiments.studies.plan import Cell
from placegap.experiments.studies.published import PublishedTable
from placegap.instances.problem.semantics import StatedSemantics
from placegap.instances.reading.errors import InputError
from placegap.solvers.core.result import relative_gap

KEPT_DETAILS = ("split_value_ns", FREE_CHANNELS, NO_TRANSFERS)
MOST_WORDS = 160
"""Characters of a message that are kept."""

_SEMANTICS: TypeAdapter[Any] = TypeAdapter(StatedSemantics)


@dataclass(frozen=True)
class Recorded:
    """What a file of results holds: the study's name, what made it, its cells and figures."""

    study: str
    made_by: tuple[str, ...]
    cells: tuple[GapCell, ...]
    figures: dict[tuple[str, str, str], float]

    def figure(self, cell: GapCell, name: str) -> float:
        """A figure of a cell's graph, as it was when the study ran."""
        try:
            return self.figures[cell.cell.instance, cell.cell.cluster, name]
        except KeyError:
            raise InputError(
                f"{self.study} has no figure {name!r} of {cell.cell.instance}: record it anew"
            ) from None


def lines_of(
    study: str, cells: Sequence[GapCell], tables: Sequence[PublishedTable]
) -> Iterator[str]:
    """The lines of a file of results: a head, then cells that have run, then figures.

    Parameters
    ----------
    study : str
        Its name.
    cells : sequence of GapCell
        All cells of the study, with their runs.
    tables : sequence of PublishedTable
        The paper's tables that it is compared with; they say which figures are kept.
    """
    ran = [cell for cell in cells if cell.status != NOT_RUN]
    makers = dict.fromkeys(cell.made_by for cell in ran if cell.made_by)
    semantics = {
        cell.cell.table: cell.cell.semantics.model_dump(mode="json", exclude_defaults=True)
        for cell in ran
    }
    yield canonical_json({"study": study, "made_by": list(makers), "tables": semantics})
    yield from (canonical_json(_line_of(cell)) for cell in ran)
    yield from (canonical_json(line) for line in _figure_lines(ran, tables))


def _line_of(cell: GapCell) -> dict[str, Any]:
    place = cell.cell
    line = {
        "table": place.table,
        "instance": place.instance,
        "cluster": place.cluster,
        "hash": place.instance_hash[:12],
        "ops": place.num_ops,
        "devices": place.num_devices,
        "method": place.method,
        "label": "" if place.label == place.method else place.label,
        "seed": place.seed or None,
        "limit_s": cell.time_limit_s,
        "status": cell.status,
        "value_ns": cell.value_ns,
        "bound_ns": cell.bound_ns,
        "best_ns": cell.best_bound_ns,
        "best_by": cell.best_bound_by,
        "rests_on": cell.best_rests_on,
        "build_s": cell.build_s,
        "solve_s": None if cell.solve_s is None else round(cell.solve_s, 4),
        "message": _kept_message(cell.message),
        **{key: cell.details[key] for key in KEPT_DETAILS if key in cell.details},
    }
    return {key: value for key, value in line.items() if value is not None and value != ""}


def _kept_message(message: str) -> str:
    """As much of a message as is kept; that time ended the run comes first where it were lost."""
    ended = [told for told in message.split("; ") if "time limit" in told]
    if ended and ended[0] not in message[:MOST_WORDS]:
        message = f"{ended[0]}; {message}"
    return message[:MOST_WORDS]


def _figure_lines(
    cells: Sequence[GapCell], tables: Sequence[PublishedTable]
) -> Iterator[dict[str, Any]]:
    seen: dict[tuple[str, str, str], float] = {}

    def figure(cell: GapCell, name: str) -> float:
        found = live_figure(cell, name)
        seen[cell.cell.instance, cell.cell.cluster, name] = found
        return found

    for table in tables:
        compare(table, cells, figure)
    for (instance, cluster, name), value in seen.items():
        yield {"figure": name, "instance": instance, "cluster": cluster, "value": value}


def read_recorded(path: str | Path) -> Recorded:
    """A file of results.

    Raises
    ------
    InputError
        If a line is not what `lines_of` writes.
    """
    try:
        head, *rest = (json.loads(line) for line in Path(path).read_text().splitlines())
        semantics = {
            name: _SEMANTICS.validate_python(rules) for name, rules in head["tables"].items()
        }
        cells = tuple(_cell_of(line, semantics) for line in rest if "figure" not in line)
        figures = {
            (line["instance"], line["cluster"], line["figure"]): float(line["value"])
            for line in rest
            if "figure" in line
        }
        return Recorded(head["study"], tuple(head["made_by"]), cells, figures)
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"is no file of results; record it anew ({error})", path) from None


def _cell_of(line: dict[str, Any], semantics: dict[str, Any]) -> GapCell:
    value_ns, best_ns = line.get("value_ns"), line.get("best_ns")
    cell = Cell(
        table=line["table"],
        semantics=semantics[line["table"]],
        instance=line["instance"],
        cluster=line["cluster"],
        instance_hash=line["hash"],
        num_ops=line["ops"],
        num_devices=line["devices"],
        method=line["method"],
        label=line.get("label", line["method"]),
        params={},
        seed=line.get("seed", 0),
        run=None,
    )
    return GapCell(
        cell,
        line["status"],
        value_ns=value_ns,
        bound_ns=line.get("bound_ns"),
        best_bound_ns=best_ns,
        best_bound_by=line.get("best_by", ""),
        best_rests_on=line.get("rests_on", ""),
        gap=relative_gap(value_ns, best_ns),
        build_s=line.get("build_s"),
        solve_s=line.get("solve_s"),
        message=line.get("message", ""),
        time_limit_s=line.get("limit_s"),
        details={key: line[key] for key in KEPT_DETAILS if key in line},
    )
