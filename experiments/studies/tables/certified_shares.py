"""What of a study's bounds the stand-alone checker proves: worked out once, and kept in a file.

The file ``certified.csv`` lies beside the log and has one line per instance, semantics and bound.
It is written anew after each of them, so that nothing is lost or done twice after Ctrl-C. What was
tried for fewer seconds than are asked for, and was not proven whole, is tried again. Remove the
file where another version of placegap shall certify everything anew.
"""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from placegap.experiments.running.pool import held
from placegap.experiments.running.sources import load_source
from placegap.experiments.show.rendering import warn
from placegap.experiments.studies.gaps import GapCell
from placegap.experiments.studies.report import write_file
from placegap.instances.reading.errors import InputError
from placegap.solvers.bounds.certificates import certify

FILE_NAME = "certified.csv"

Key = tuple[str, str, int]
"""The hash of an instance, the semantics' label, and the bound."""


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
    cells: Iterable[GapCell], limit_s: float, folder: Path, known: dict[Key, Share]
) -> None:
    """Certify the best bounds of cells that are not known yet; one line on stderr for each.

    Parameters
    ----------
    cells : iterable of GapCell
    limit_s : float
        Seconds for each bound.
    folder : Path
        Where the file lies.
    known : dict
        What the file holds; it grows, and has all that is done when Ctrl-C comes.
    """
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
        place, best = f"{cell.cell.table}, {cell.cell.instance}", known[key]
        proven = f"{100 * best.part:.1f} % ({best.kind or 'no certificate'})"
        warn(f"{place}: {proven}, {share.took_s:.1f} s")


def key_of(cell: GapCell) -> Key | None:
    """What is to be certified; None where there is no run, or no bound."""
    if cell.cell.run is None or not cell.best_bound_ns:
        return None
    return cell.cell.instance_hash, cell.cell.semantics.label, cell.best_bound_ns


def known_shares(folder: Path) -> dict[Key, Share]:
    """What the file of a folder holds; nothing if there is none.

    Raises
    ------
    InputError
        If it is something else.
    """
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


def _certified(cell: GapCell, limit_s: float) -> Share:
    run, bound_ns = cell.cell.run, cell.best_bound_ns
    assert run is not None
    assert bound_ns is not None
    instance, began = load_source(run.source), time.perf_counter()
    found = certify(instance, cell.cell.semantics, limit_s, bound_ns)
    return Share(
        cell.cell.table,
        cell.cell.instance,
        cell.cell.instance_hash,
        cell.cell.semantics.label,
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
    write_file(file, text.getvalue().encode())
