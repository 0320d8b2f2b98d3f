"""A run is a row of one table: its columns, its files, and the best bound and plan of its problem.

A bound holds for the class of plans it was proven for and for the classes nested in it (chain in
convex in any). So a row's best bound is the largest among the bounds of all rows with the
same instance and the same objective, whose class contains the row's own. A chain bound never meets
a plan that need not be a chain. A recorded bound of the instance counts where it is higher.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from glob import glob
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

from placegap.experiments.running.sources import Source
from placegap.experiments.show.rendering import warn
from placegap.experiments.studies.log import LOG_NAME, Record, canonical_json, parse_log, run_key
from placegap.instances.files.document import parse_json
from placegap.instances.files.output_files import write_text
from placegap.instances.problem import PLAN_CLASSES, PlanClass, Semantics, stored_semantics
from placegap.instances.reading.errors import InputError, as_input_error
from placegap.instances.reading.input_files import csv_rows, read_content
from placegap.instances.reading.printable import printable
from placegap.solvers.core.result import PROOF, RECORDED, Bound, is_better, relative_gap

if TYPE_CHECKING:
    import pandas as pd

NOT_RUN = "not_run"
NOT_APPLICABLE = "not_applicable"
NOT_INSTALLED = "not_installed"

FAILURES = ("error", "timeout", "crashed", "disagreement")

HASH_DIGITS = 12

Whole = int | None
Real = float | None


@dataclass(frozen=True)
class Run:
    """One method on one instance, with all that decides its result."""

    source: Source
    instance_hash: str
    semantics: Semantics
    method: str
    params: Mapping[str, Any]
    seed: int
    time_limit_s: float
    gap: float
    versions: Mapping[str, str]
    coarsen: str | None = None
    code: str = ""  # of the source of methods from outside of the package (`code_of`)

    @property
    def identity(self) -> dict[str, Any]:
        """What the key is made of; names of files and instances are not part of it."""
        return {
            "instance_hash": self.instance_hash,
            "semantics": self.semantics.model_dump(mode="json"),
            "method": self.method,
            "params": dict(self.params),
            "seed": self.seed,
            "limits": {"time_limit_s": self.time_limit_s, "gap": self.gap},
            "versions": dict(self.versions),
            **({} if self.coarsen is None else {"coarsen": self.coarsen}),
            **({"code": self.code} if self.code else {}),
        }

    @property
    def label(self) -> str:
        """What runs on what, for people."""
        return f"{self.method} on {Path(self.source.model).name}"

    @cached_property
    def key(self) -> str:
        """Content hash under which the log keeps the run."""
        return run_key(self.identity)


@dataclass(frozen=True)
class RunRow:
    """One run of a method on an instance, or why there is none: the columns of every result."""

    study: Annotated[str, "name of the study"] = ""
    table: Annotated[str, "table of the study"] = ""
    instance: Annotated[str, "name of the instance, without its cluster"] = ""
    cluster: Annotated[str, "name of the cluster"] = ""
    instance_hash: Annotated[str, f"first {HASH_DIGITS} digits of the SHA-256 of its content"] = ""
    seed: Annotated[Whole, "for methods and instances that draw random numbers"] = None
    num_ops: Annotated[Whole, "ops of the instance"] = None
    num_edges: Annotated[Whole, "its edges"] = None
    num_devices: Annotated[Whole, "devices of the cluster"] = None
    ccr: Annotated[Real, "transfer times of all edges over times of all ops"] = None
    memory_share: Annotated[Real, "memory of a device as a share of all bytes, if stated"] = None
    memory_pressure: Annotated[Real, "bytes of all ops over the memory of all accelerators"] = None
    semantics: Annotated[str, "the semantics, as a short label"] = ""
    rules: Annotated[str, "the semantics as JSON: plans, and what is not the default"] = ""
    method: Annotated[str, "name of the method"] = ""
    label: Annotated[str, "the method with the parameters that the study states"] = ""
    params: Annotated[str, "all its parameters as JSON"] = ""
    time_limit_s: Annotated[Real, "time limit of the method"] = None
    gap_limit: Annotated[Real, "relative gap at which the method may stop"] = None
    status: Annotated[str, "how the run ended, or why it was not run"] = ""
    value_ns: Annotated[Whole, "value of the plan, or tokens; none without a plan"] = None
    bound_ns: Annotated[Whole, "the run's own bound"] = None
    bound_class: Annotated[str, "class of plans that it holds for"] = ""
    bound_origin: Annotated[str, "what proved it"] = ""
    rests_on: Annotated[str, "its basis: `proof`, or a solver"] = ""
    best_value_ns: Annotated[Whole, "value of the best plan of the same problem"] = None
    best_bound_ns: Annotated[Whole, "the best bound of the same problem, own or recorded"] = None
    best_bound_by: Annotated[str, "the run that proved it, or `recorded: ` and who did"] = ""
    best_rests_on: Annotated[str, "its basis"] = ""
    gap: Annotated[Real, "(value - best bound) / value: lost + open"] = None
    lost: Annotated[Real, "(value - best value) / value: a better plan is known"] = None
    open: Annotated[Real, "(best value - best bound) / value: plan or bound can improve"] = None
    build_s: Annotated[Real, "building the model"] = None
    solve_s: Annotated[Real, "solving it, or all of a method without a model"] = None
    over_limit_s: Annotated[Real, "time beyond the limit, if over 1 s and 10 % of the limit"] = None
    anytime: Annotated[str, "plans that it reported on the way, as `seconds:value`"] = ""
    target_s: Annotated[Real, "when a plan of it was within 1 % of the best plan"] = None
    setup_s: Annotated[Real, "loading modules and kernels; not in the other times"] = None
    cpu_s: Annotated[Real, "CPU time of the worker and its processes, without loading"] = None
    peak_bytes: Annotated[Whole, "peak memory of the run's process, if measured"] = None
    rows: Annotated[Whole, "rows of the model"] = None
    columns: Annotated[Whole, "columns of the model"] = None
    nodes: Annotated[Whole, "nodes of the search"] = None
    own_bound_ns: Annotated[Whole, "bound of the model alone, if another one is better"] = None
    promised_ns: Annotated[Whole, "the method's own value: free channels, wrong costs"] = None
    split_value_ns: Annotated[Whole, "value of a plan of the instance with split ops"] = None
    split_bound_ns: Annotated[Whole, "bound of that instance"] = None
    free_channels_ns: Annotated[Whole, "value of the plan with free channels"] = None
    no_transfers_ns: Annotated[Whole, "value of the plan without transfers"] = None
    fused_ns: Annotated[Whole, "value of the plan if devices fuse their ops at run time"] = None
    overfilled_ns: Annotated[Whole, "value of a plan that violates only the memory limit"] = None
    overfills_bytes: Annotated[Whole, "its largest excess over a memory limit"] = None
    faults: Annotated[str, "claims of solvers that a plan refutes"] = ""
    message: Annotated[str, "final message of the method, or the error"] = ""
    versions: Annotated[str, "placegap, Python, solvers, system"] = ""
    commit: Annotated[str, "commit of placegap"] = ""
    cpu: Annotated[str, "model of the CPU"] = ""
    cores: Annotated[Whole, "cores that the study could use"] = None
    #: Of a row that was planned here; it names files, and is no column.
    run: Run | None = field(default=None, compare=False)

    @property
    def time_s(self) -> float | None:
        """Build and solve time together."""
        return None if self.solve_s is None else self.solve_s + (self.build_s or 0.0)

    @property
    def found(self) -> list[tuple[float, int]]:
        """When the run had a plan of which value, each better than the one before."""
        # Plans on the way have the value that the method reported; one that is better than its
        # plan in the end, which the referee judged, does not count.
        if self.value_ns is None or self.time_s is None:
            return []
        told = (point.split(":") for point in self.anytime.split())
        points = [(float(at_s), int(value)) for at_s, value in told]
        found = [one for one in points if not is_better(one[1], self.value_ns, self.stated)]
        is_last = bool(found) and found[-1][1] == self.value_ns
        return found if is_last else [*found, (self.time_s, self.value_ns)]

    @property
    def is_optimal(self) -> bool:
        """Whether the value meets the best bound."""
        return self.value_ns is not None and self.value_ns == self.best_bound_ns

    @property
    def stated(self) -> Semantics:
        """What values mean."""
        return stated(self.rules)

    @property
    def problem(self) -> tuple[str, str]:
        """The instance, and all of the semantics but the class of plans."""
        return self.instance_hash, _problem(self.rules)

    @property
    def place(self) -> str:
        """Where it stands, for people."""
        return f"table {self.table!r}, {self.instance} on {self.cluster}, {self.label}"


COLUMNS: Mapping[str, str] = {
    name: hint.__metadata__[0]
    for name, hint in get_type_hints(RunRow, include_extras=True).items()
    if hasattr(hint, "__metadata__")
}
"""Every column and what it means."""

_HINTS = get_type_hints(RunRow)
# Every column's type in pandas.
TYPES = {name: {str: "str", Whole: "Int64", Real: "float64"}[_HINTS[name]] for name in COLUMNS}

BEST_BOUND = ("best_bound_ns", "best_bound_by", "best_rests_on")

ROW = ("study", "table", "instance", "cluster", "instance_hash", "seed")
PROBLEM = ROW[:-1]  # what pairs runs of different methods: the unit of statistics, without seed
# What is known of a row before its run.
PLANNED = (*tuple(COLUMNS)[: tuple(COLUMNS).index("status")], *BEST_BOUND)
# Columns that are computed when a file is read.
DERIVED = ("best_value_ns", "gap", "lost", "open", "over_limit_s", "target_s")
TARGET = 0.01  # `lost` at which the clock of `target_s` stops


@cache
def stated(rules: str) -> Semantics:
    """The semantics of a row's rules."""
    return stored_semantics(parse_json(rules, "rules"))


@cache
def _problem(rules: str) -> str:
    return stated(rules).with_plans("any").label


def place_of(row: RunRow) -> Record:
    """The columns of a row that are known before its run, with the best recorded bound."""
    return {name: getattr(row, name) for name in PLANNED}


def semantics_columns(semantics: Semantics) -> Record:
    """Semantics in both forms."""
    rules = canonical_json(semantics.model_dump(mode="json", exclude_defaults=True))
    return {"semantics": semantics.label, "rules": rules}


def run_rows(planned: Iterable[RunRow], records: Mapping[str, Record]) -> list[RunRow]:
    """The rows of a study, each once, with what the log has of their runs."""
    rows: dict[object, RunRow] = {}
    for row in planned:
        if row.run is not None:
            record = records.get(row.run.key, {"status": NOT_RUN})
            row = replace(row_of({**record, **place_of(row)}), run=row.run)
        rows.setdefault((attrgetter(*ROW)(row), row.label), row)
    return with_best([*rows.values()])


def row_of(record: Mapping[str, Any]) -> RunRow:
    """A row from a line of a log, or of a file of results: empty texts count as nothing."""
    found = {**record.get("details", {}), **dict.fromkeys(DERIVED), **record}
    known = {name: found[name] for name in COLUMNS if found.get(name) not in (None, "")}
    row = RunRow(**{name: _read(name, content) for name, content in known.items()})
    if row.rules and row.stated.unit == "tokens":  # earlier files state them below 0
        names = ("value_ns", "bound_ns", "best_value_ns", "best_bound_ns")
        stated_as = {name: getattr(row, name) for name in names}
        row = replace(row, **{n: abs(count) for n, count in stated_as.items() if count is not None})
    if not re.fullmatch(r"([\d.]+:\d+ ?)*", row.anytime):
        raise InputError(f"anytime must be seconds:value (got {row.anytime[:40]!r})")
    if row.bound_class not in ("", *PLAN_CLASSES):
        raise InputError(f"bound_class must be one of {', '.join(PLAN_CLASSES)}")
    return row


_READ = {"str": (str, "a text"), "Int64": (int, "a whole number"), "float64": (float, "a number")}


def _read(name: str, content: Any) -> Any:
    read, wanted = _READ[TYPES[name]]
    with suppress(ValueError, TypeError, OverflowError):
        found: Any = read(content)
        is_same = found == content and not isinstance(content, bool)
        if (is_same or isinstance(content, str)) and (read is str or abs(found) < 2**63):
            return found
    raise InputError(f"{name} must be {wanted} (got {str(content)[:40]!r})")


def with_best(rows: Sequence[RunRow]) -> list[RunRow]:
    """The rows with the best bound and the best plan of each problem, and their gaps."""
    bounds, values = defaultdict[Any, list[Bound]](list), defaultdict[Any, list[int]](list)
    rules_of = {row.problem: row.stated for row in rows}
    for row in rows:
        own = row.stated.plan_class
        if row.best_bound_ns is not None:
            known = Bound(row.best_bound_ns, row.best_bound_by, row.best_rests_on, own)
            bounds[row.problem].append(known)
        if row.bound_ns is not None:
            held: Any = row.bound_class or own
            bounds[row.problem].append(Bound(row.bound_ns, row.label, row.rests_on, held))
        if row.value_ns is not None:
            values[row.problem, own].append(row.value_ns)

    @cache  # there may be thousands of runs of one problem
    def best(problem: Any, own: PlanClass) -> tuple[Any, int | None]:
        holds = PLAN_CLASSES[PLAN_CLASSES.index(own) :]
        known_here = [bound for bound in bounds[problem] if bound.plan_class in holds]
        rules = rules_of[problem]
        bound = max(known_here, key=partial(_rank, rules), default=(None, "", "", None))
        return bound, min(values[problem, own], key=rules.cost, default=None)

    found = []
    for row in rows:
        (bound_ns, by, basis, *_), best_ns = best(row.problem, row.stated.plan_class)
        gap, lost = (relative_gap(row.value_ns, ns) for ns in (bound_ns, best_ns))
        changed: dict[str, Any] = {"gap": gap, "lost": lost, "best_value_ns": best_ns}
        changed |= {"best_bound_ns": bound_ns, "best_bound_by": by, "best_rests_on": basis}
        changed["open"] = None if gap is None or lost is None else gap - lost
        near = (s for s, ns in row.found if (relative_gap(ns, best_ns) or 0.0) <= TARGET)
        changed["target_s"] = next(near, None)
        # 263 of 3,299 kept runs, which look at the clock between pieces of work, ended after their
        # limit, half of them by less than 0.92 s, and half by less than 4 % of it
        limit_s = math.inf if row.time_limit_s is None else row.time_limit_s
        late_s = (row.time_s or 0.0) - limit_s
        changed["over_limit_s"] = late_s if late_s > max(1.0, 0.1 * limit_s) else None
        found.append(replace(row, **changed))
    return found


def _rank(rules: Semantics, bound: Bound) -> tuple[int, bool, bool]:
    """Sort key of bounds: the better one; if equal, that of a run, then one proved by placegap."""
    return rules.cost(bound.value), not bound.origin.startswith(RECORDED), bound.basis == PROOF


def disagreements(rows: Sequence[RunRow]) -> list[str]:
    """Every contradiction between methods, as a sentence; there must be none."""
    # A bound above a value of its class, a proof of infeasibility beside a plan, or what the
    # referee objected to in a single run.
    found = [f"{row.place}: {row.message}" for row in rows if row.status == "disagreement"]
    planned = [row for row in rows if row.value_ns is not None]
    found += [
        f"{row.place}: value {row.stated.text(row.value_ns or 0)} is"
        f" {'above' if row.stated.is_maximized else 'below'} the bound"
        f" {row.stated.text(row.best_bound_ns)} of {row.best_bound_by}"
        for row in planned
        if row.best_bound_ns is not None
        and is_better(row.value_ns or 0, row.best_bound_ns, row.stated)
    ]
    rank = PLAN_CLASSES.index
    found += [
        f"{row.place}: has a plan of {row.stated.text(row.value_ns or 0)} where"
        f" {proof.label} proved that there is none"
        for proof in rows
        if proof.status == "infeasible"
        for row in planned
        if row.problem == proof.problem
        and rank(row.stated.plan_class) <= rank(proof.stated.plan_class)
    ]
    return found


def frame_of(rows: Iterable[RunRow]) -> pd.DataFrame:
    """The rows as a DataFrame with the documented columns."""
    import pandas as pd

    cells = ([getattr(row, name) for name in COLUMNS] for row in rows)
    listed = [[printable(x) if isinstance(x, str) else x for x in line] for line in cells]
    return pd.DataFrame(listed, columns=list(COLUMNS)).astype(TYPES)


def rows_of(runs: pd.DataFrame) -> list[RunRow]:
    """The rows of a DataFrame, with None where it has no number."""
    known = runs.astype(object).where(runs.notna(), None)
    return [row_of(dict(zip(map(str, known), line, strict=True))) for line in known.to_numpy()]


def write_rows(rows: Iterable[RunRow], path: Path) -> None:
    """Write rows as CSV, without columns that are empty."""
    runs = frame_of(rows).astype(object).replace("", None).dropna(axis="columns", how="all")
    write_text(runs.to_csv(index=False, lineterminator="\n"), path)


def read_rows(path: str | Path) -> list[RunRow]:
    """The rows of one file: CSV, or the log of a study, whose last line may have been cut off."""
    rows: list[RunRow] = []
    if Path(path).suffix == ".jsonl":
        _, cut_off = parse_log(read_content(path), path, lambda line: rows.append(_run_of(line)))
        if cut_off:
            warn(f"{path}: left out: the last line was cut off while it was written")
        return rows
    table = csv_rows(path)
    _, head = next(table)
    if "rules" not in head:
        raise InputError("holds no runs of a study: the column rules is missing", path)
    for number, cells in table:
        try:
            rows.append(_run_of(dict(zip(head, cells, strict=True))))
        except InputError as error:
            raise InputError(f"row {number} is not a run ({error})", path) from None
    return rows


def _run_of(record: Mapping[str, Any]) -> RunRow:
    """A row that says by itself what its values mean."""
    row = row_of(record)
    with as_input_error(source="rules"):
        stated(row.rules)
    return row


def load_rows(*paths: str | Path) -> list[RunRow]:
    """The runs of files and folders, each once, against the best bound that any of them has."""
    files = [file for path in paths for file in _files(path)]
    rows = with_best([row for file in files for row in read_rows(file)])
    if not rows:
        raise InputError("no runs of a study", ", ".join(map(str, paths)))
    own = [name for name in COLUMNS if name not in (*BEST_BOUND, *DERIVED)]
    return list({attrgetter(*own)(row): row for row in rows}.values())


def _files(path: str | Path) -> list[Path]:
    """What a path names: a file, what a pattern matches, or what folders hold; no empty logs."""
    files = []
    for one in [Path(name) for name in sorted(glob(str(path)))] or [Path(path)]:
        found = [file for name in (LOG_NAME, "runs.csv") for file in one.rglob(name)]
        last = {file.parent: file for file in found if file.is_file() and file.stat().st_size}
        below = sorted(last.values()) or sorted(one.rglob("*.csv"))
        files += below if one.is_dir() else [one]
    if not files:
        raise InputError("has no results of studies below it", path)
    return files
