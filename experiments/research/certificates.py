"""How far plans and bounds are apart in each table of a finished study, and who vouches for it.

``python -m placegap.experiments.research.certificates STUDY.yaml [--out FOLDER]
[--certify SECONDS]`` reads the study's log, and runs nothing. A gap is (value - bound) / value;
bound / value is a geometric mean. *proof* counts the bounds that our own code computes; the others
are a solver's, not checked. With ``--certify``, each bound is certified for this many seconds, and
the last column is the mean share of it that the stand-alone checker proves. After Ctrl-C the table
has what is known, and the same command goes on where it stopped.

What was certified is kept in ``certified.csv`` beside the log, one line per instance, semantics and
bound, written anew after each of them. What was tried for fewer seconds than requested, and was
not proven whole, is tried again. Remove the file where another version of placegap shall certify
everything anew.
"""

from __future__ import annotations

import argparse
import csv
import io
import statistics
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.table import Table

from placegap.experiments.research.record import logged_rows
from placegap.experiments.running.pool import handled, held, stop_status
from placegap.experiments.running.sources import load_source
from placegap.experiments.show.figures import format_gap
from placegap.experiments.show.rendering import output, warn
from placegap.experiments.studies.report import made_by
from placegap.experiments.studies.run import results_folder
from placegap.experiments.studies.runs import RunRow
from placegap.instances.files.output_files import write_text
from placegap.instances.reading.errors import InputError
from placegap.solvers.bounds.certificates.write import certify
from placegap.solvers.core.result import PROOF

FILE_NAME = "certified.csv"

Key = tuple[str, str, int]  # the hash of an instance, the semantics' label, and the bound


class Share(NamedTuple):
    """What a certificate proves of a bound, by which kind of proof, and after how many seconds."""

    table: str
    instance: str
    instance_hash: str
    semantics: str
    bound_ns: int
    certified_ns: int
    kind: str
    limit_s: float
    took_s: float

    @property
    def key(self) -> Key:
        """What was certified."""
        return self.instance_hash, self.semantics, self.bound_ns

    @property
    def part(self) -> float:
        """Of the bound, at most 1."""
        return min(1.0, self.certified_ns / self.bound_ns)


def certified_shares(
    cells: Iterable[RunRow], limit_s: float, folder: Path, known: dict[Key, Share]
) -> None:
    """Certify the best bounds of cells that are not in `known` yet, `limit_s` seconds for each."""
    # A line on stderr reports each. `known` grows, so it has all that is done when Ctrl-C comes.
    for cell in cells:
        key = key_of(cell)
        if key is None or (key in known and _is_enough(known[key], limit_s)):
            continue
        share = _certified(cell, limit_s)
        if key not in known or share.certified_ns >= known[key].certified_ns:
            known[key] = share
        else:  # what was proven stays proven
            known[key] = known[key]._replace(limit_s=limit_s)
        with held():
            _write(folder / FILE_NAME, known)
        place, best = f"{cell.table}, {cell.instance}", known[key]
        proven = f"{100 * best.part:.1f} % ({best.kind or 'no certificate'})"
        warn(f"{place}: {proven}, {share.took_s:.1f} s")


def key_of(cell: RunRow) -> Key | None:
    """What is to be certified; None where there is no run, or no bound."""
    if cell.run is None or not cell.best_bound_ns:
        return None
    return cell.instance_hash, cell.semantics, cell.best_bound_ns


def known_shares(folder: Path) -> dict[Key, Share]:
    """What the file of a folder holds; nothing if there is none."""
    file = folder / FILE_NAME
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    try:
        shares = [_read(row) for row in csv.DictReader(io.StringIO(text))]
    except (KeyError, TypeError, ValueError):
        raise InputError("holds no shares of bounds; remove it to begin anew", file) from None
    return {share.key: share for share in shares}


def _read(row: dict[str, str]) -> Share:
    return Share(
        table=row["table"],
        instance=row["instance"],
        instance_hash=row["instance_hash"],
        semantics=row["semantics"],
        bound_ns=int(row["bound_ns"]),
        certified_ns=int(row["certified_ns"]),
        kind=row["kind"],
        limit_s=float(row["limit_s"]),
        took_s=float(row["took_s"]),
    )


def _is_enough(share: Share, limit_s: float) -> bool:
    return share.part == 1.0 or share.limit_s >= limit_s


def _certified(cell: RunRow, limit_s: float) -> Share:
    bound_ns = cell.best_bound_ns
    assert cell.run is not None
    assert bound_ns is not None
    instance, began = load_source(cell.run.source), time.perf_counter()
    found = certify(instance, cell.stated, limit_s, bound_ns)
    return Share(
        cell.table,
        cell.instance,
        cell.instance_hash,
        cell.semantics,
        bound_ns,
        0 if found is None else found.bound_ns,
        "" if found is None else found.proof.kind,
        limit_s,
        round(time.perf_counter() - began, 3),
    )


def _write(file: Path, known: dict[Key, Share]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Share._fields)
    writer.writerows(known.values())
    write_text(text.getvalue(), file)


HEADS = ("table", "method", "plans", "of", "mean gap", "worst", "bound / value", "optimal", "proof")


def closing_row(cells: Sequence[RunRow]) -> tuple[str, ...]:
    """One line for the cells of a method in a table, without names."""
    gaps = [cell.gap for cell in cells if cell.gap is not None]
    ratios = [
        cell.best_bound_ns / cell.value_ns
        for cell in cells
        if cell.value_ns and cell.best_bound_ns is not None
    ]
    geometric = statistics.geometric_mean(ratios) if ratios and min(ratios) > 0 else None
    return (
        str(sum(cell.value_ns is not None for cell in cells)),
        str(len(cells)),
        format_gap(statistics.fmean(gaps)) if gaps else "none",
        format_gap(max(gaps)) if gaps else "none",
        "none" if geometric is None else f"{geometric:.3f}",
        str(sum(cell.is_optimal for cell in cells)),
        str(sum(cell.best_rests_on == PROOF for cell in cells)),
    )


def certified_column(cells: Sequence[RunRow], known: Mapping[Key, Share]) -> str:
    """The mean certified share of the cells' bounds, and of how many where some are unknown."""
    keys = [key for cell in cells if (key := key_of(cell)) is not None]
    parts = [known[key].part for key in keys if key in known]
    if not parts:
        return "none"
    of = "" if len(parts) == len(keys) else f" ({len(parts)} of {len(keys)})"
    return f"{100 * statistics.fmean(parts):.1f} %{of}"


def main(arguments: Sequence[str]) -> int:
    """Print the table, and what made the runs; the exit status says if a signal stopped it."""
    parser = argparse.ArgumentParser(
        prog="closing_table", description="How far plans and bounds are apart."
    )
    parser.add_argument("study", type=Path)
    parser.add_argument("--out", type=Path, help="folder of the log")
    parser.add_argument("--certify", type=float, default=0.0, help="seconds for each bound")
    options = parser.parse_args(arguments)
    try:
        study, cells = logged_rows(options.study, options.out)
    except InputError as error:
        warn(str(error))
        return 2
    folder, known, status = results_folder(study, options.out), dict[Key, Share](), 0
    if options.certify:
        known = known_shares(folder)
        try:
            with handled():
                certified_shares(cells, options.certify, folder, known)
        except KeyboardInterrupt:
            status = stop_status()
            warn("stopped; the same command goes on from here")
    grid = Table(*HEADS, *["certified"] * bool(options.certify))
    for name in dict.fromkeys((cell.table, cell.label) for cell in cells):
        mine = [cell for cell in cells if (cell.table, cell.label) == name]
        row = [*name, *closing_row(mine)]
        if options.certify:
            row.append(certified_column(mine, known))
        grid.add_row(*row)
    output().print(grid)
    for maker in made_by(cells):
        output().print(f"made by {maker}", markup=False, soft_wrap=True)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
