"""From a study to its runs: every cell of every table, and why a cell stays empty."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from placegap.experiments.running.sources import (
    Source,
    cluster_of,
    find_model,
    is_known_cluster,
    is_named,
    load_source,
)
from placegap.experiments.studies.config import (
    InstanceEntry,
    MethodEntry,
    ParamValue,
    Study,
    TableEntry,
)
from placegap.experiments.studies.log import run_key
from placegap.experiments.studies.own_code import code_of, refuse_edited
from placegap.instances.problem import HybridPipeline, Semantics
from placegap.instances.problem.mean_costs import communication_ratio, flow_of
from placegap.instances.problem.memory_pressure import memory_pressure
from placegap.instances.reading.errors import InputError, MissingExtra
from placegap.solvers import Limits, Task
from placegap.solvers.core.method import AnyMethod, Params
from placegap.solvers.core.registry import find_method, parse_params, why_not
from placegap.solvers.core.result import Bound
from placegap.solvers.solving.known_bounds import recorded_bounds
from placegap.solvers.solving.run_method import versions_of, what_is_missing


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
    #: Of the source of methods from outside of the package (`code_of`).
    code: str = ""

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
class Cell:
    """One cell of a table: where it is, and its run or the reason why there is none."""

    table: str
    semantics: Semantics
    instance: str
    cluster: str
    instance_hash: str
    num_ops: int
    num_edges: int
    num_devices: int
    method: str
    label: str
    params: Mapping[str, Any]
    seed: int
    run: Run | None
    reason: str = ""
    #: Whether the reason is that something has to be installed.
    is_missing: bool = False

    #: Transfer times of all edges over times of all ops (`communication_ratio`).
    ccr: float | None = None

    #: Bytes of all ops over the memory of all accelerators; None where that has no limit.
    memory_pressure: float | None = None

    #: Bounds that the corpus records, where the study counts them.
    recorded: tuple[Bound, ...] = ()


@dataclass(frozen=True)
class Row:
    """One instance of a table, not yet read, and the methods in the columns."""

    table: TableEntry
    source: Source
    #: Whether it may be left out where nothing installed can read it.
    optional: bool
    columns: Sequence[tuple[AnyMethod, Params, str]]

    @property
    def limits_s(self) -> list[float]:
        """The time limits of all runs; there are fewer runs where a method does not apply."""
        return [self.table.limits.time_limit_s] * (len(self.table.seeds) * len(self.columns))


def study_rows(
    study: Study, path: str | Path, tell: Callable[[str], None] = lambda sentence: None
) -> list[Row]:
    """All rows of a study, table by table; paths in it are relative to the folder of `path`.

    No instance is read, and most of what may be wrong is found nevertheless: unknown methods,
    parameters, families and clusters, files that are not there. `tell` gets a sentence for each of
    the latter that is optional.
    """
    rows, absent = [], dict[str, None]()
    for table in study.tables:
        with _of_table(table, path):
            columns = [column for entry in table.methods for column in _columns(entry, path)]
            if table.coarsen is not None:
                from placegap.instances.transforms.table import find_transform

                find_transform(table.coarsen)
            for source, optional in _sources(table, Path(path).parent):
                if optional and _is_absent(source):
                    absent[source.model] = None
                else:
                    _check(source)
                    rows.append(Row(table, source, optional, columns))
        for method, _, _ in columns:
            refuse_edited(method, table.semantics.objective)
    for model in absent:
        tell(f"{path}: left out, since it is not there: {os.path.relpath(model)}")
    return rows


@contextmanager
def _of_table(table: TableEntry, path: str | Path) -> Iterator[None]:
    """Within it, what is wrong with the input is in a table of a study."""
    try:
        yield
    except InputError as error:
        raise type(error)(f"table {table.name!r}: {error}", path) from None


def _check(source: Source) -> None:
    """Refuse what reading would refuse, as far as it shows before."""
    cluster_of(source)
    if source.generated is not None:
        from placegap.instances.corpus.generate import family_of

        family_of(source.model, dict(source.generated[0]))
    elif _is_absent(source):
        find_model(source.model)


def _is_absent(source: Source) -> bool:
    is_file = source.generated is None and not is_named(source.model)
    return is_file and not os.path.exists(source.model)


def plan_study(
    study: Study, path: str | Path, tell: Callable[[str], None] = lambda sentence: None
) -> Iterator[Cell]:
    """Every cell of a study, row by row (`study_rows`, `row_cells`)."""
    for row in study_rows(study, path):
        yield from row_cells(row, study, path, tell)


def row_cells(row: Row, study: Study, path: str | Path, tell: Callable[[str], None]) -> list[Cell]:
    """The cells of a row; its instance is read for its content hash and for what applies to it.

    `tell` gets a sentence for an optional file that nothing installed can read.
    """
    try:
        with _of_table(row.table, path):
            return list(_cells(row, study.recorded_bounds))
    except MissingExtra as error:
        if not row.optional:
            raise
        tell(f"left out: {error}")
        return []


def shard_of(rows: Sequence[Row], number: int, count: int) -> list[Row]:
    """The rows of one of several shards, from 1: all of an instance, and about equally long."""
    busy_s = [0.0] * count
    shards: dict[Source, int] = {}
    for row in rows:
        at = shards.setdefault(row.source, busy_s.index(min(busy_s)))
        busy_s[at] += sum(row.limits_s)
    return [row for row in rows if shards[row.source] == number - 1]


def _columns(entry: MethodEntry, path: str | Path) -> Iterator[tuple[AnyMethod, Params, str]]:
    """A method with each set of its parameters, and what the column is called."""
    method = find_method(entry.name)
    for given in entry.params:
        params = parse_params(method, _beside(given, path))
        shown = ", ".join(f"{name}={_plain(value)}" for name, value in given.items())
        yield method, params, f"{method.name} {shown}".strip()


def _beside(given: Mapping[str, ParamValue], path: str | Path) -> dict[str, ParamValue]:
    """Parameters whose `path` starts where the command does, not in the study's folder."""
    where = given.get("path")
    if not isinstance(where, str):
        return dict(given)
    return {**given, "path": os.path.relpath(Path(path).parent / where)}


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _sources(table: TableEntry, folder: Path) -> Iterator[tuple[Source, bool]]:
    """Where the instances of a table come from, and whether each may be left out."""
    for entry in table.instances:
        for cluster in table.clusters or (None,):
            where = cluster
            if cluster is not None and not is_known_cluster(cluster):
                where = str((folder / cluster).resolve())
            for source in _expand(entry, where, folder):
                for share in entry.device_memory or (None,):
                    layers = isinstance(table.semantics, HybridPipeline)
                    yield replace(source, device_memory=share, layers=layers), entry.optional


def _expand(entry: InstanceEntry, cluster: str | None, folder: Path) -> Iterator[Source]:
    if entry.generate is not None:
        params = tuple(sorted(entry.params.items()))
        for seed in entry.seeds:
            yield _changed(Source(entry.generate, cluster, None, (params, seed)), entry)
        return
    assert entry.model is not None  # validated
    model = entry.model if is_named(entry.model) else str((folder / entry.model).resolve())
    dims = tuple(sorted(entry.dims.items()))
    yield _changed(Source(model, cluster, entry.time_unit, dims=dims), entry)


def _changed(source: Source, entry: InstanceEntry) -> Source:
    names = ("costs", "in_place", "slower_links", "slower_ops", "clones", "half_precision", "fused")
    return replace(source, **{name: getattr(entry, name) for name in names})


def _cells(row: Row, with_recorded: bool) -> Iterator[Cell]:
    table = row.table
    asked = instance = load_source(row.source)
    if table.coarsen is not None:
        from placegap.instances.transforms.table import coarsen

        asked = coarsen(instance, table.coarsen, semantics=table.semantics).merge.coarse
    ccr = communication_ratio(flow_of(instance.arrays))
    recorded = tuple(recorded_bounds(instance, table.semantics)) if with_recorded else ()
    for seed in table.seeds:
        for method, params, label in row.columns:
            limits = Limits(table.limits.time_limit_s, table.limits.gap, seed)
            reason = why_not(method, Task(asked, table.semantics, limits), params)
            missing = what_is_missing(method, params)
            reason = reason or missing
            options = params.model_dump(mode="json")
            run = None
            if reason is None:
                run = Run(
                    source=row.source,
                    instance_hash=instance.content_hash,
                    semantics=table.semantics,
                    method=method.name,
                    params=options,
                    seed=seed,
                    time_limit_s=table.limits.time_limit_s,
                    gap=table.limits.gap,
                    versions=versions_of(method),
                    coarsen=table.coarsen,
                    code=code_of(method, table.semantics.objective),
                )
            yield Cell(
                table=table.name,
                semantics=table.semantics,
                instance=instance.name.removesuffix(f"@{instance.cluster.name}"),
                cluster=instance.cluster.name,
                instance_hash=instance.content_hash,
                num_ops=instance.num_ops,
                num_edges=len(instance.graph.edges),
                num_devices=instance.num_devices,
                method=method.name,
                label=label,
                params=options,
                seed=seed,
                run=run,
                reason=reason or "",
                is_missing=reason is not None and reason == missing,
                ccr=ccr,
                memory_pressure=memory_pressure(instance),
                recorded=recorded,
            )
