"""From a study to its runs: every row of every table, and why there is no run for one."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from placegap.experiments.running.sources import (
    Source,
    cluster_of,
    find_model,
    is_known_cluster,
    is_named,
    load_source,
)
from placegap.experiments.show.rendering import warn
from placegap.experiments.studies.config import MethodEntry, ParamValue, Study, TableEntry
from placegap.experiments.studies.log import canonical_json
from placegap.experiments.studies.own_code import code_of, refuse_edited
from placegap.experiments.studies.runs import (
    HASH_DIGITS,
    NOT_APPLICABLE,
    NOT_INSTALLED,
    Run,
    RunRow,
    semantics_columns,
)
from placegap.instances.problem.mean_costs import communication_ratio, flow_of
from placegap.instances.problem.memory_pressure import memory_pressure
from placegap.instances.reading.errors import InputError, MissingExtra, as_input_error
from placegap.solvers import Limits, Task
from placegap.solvers.core.method import AnyMethod, Params
from placegap.solvers.core.registry import find_method, parse_params, why_not
from placegap.solvers.solving.known_bounds import recorded_bounds
from placegap.solvers.solving.run_method import versions_of, what_is_missing

# Keys of an instance that are those of its source.
CHANGES = (
    *("costs", "in_place", "slower_links", "slower_ops", "clones", "pruned", "half_precision"),
    "fused",
)


@dataclass(frozen=True)
class PlannedRow:
    """One instance of a table, not yet read, and the methods in the columns."""

    table: TableEntry
    source: Source
    optional: bool  # whether it may be left out where nothing installed can read it
    columns: Sequence[tuple[AnyMethod, Params, str]]

    @property
    def limits_s(self) -> list[float]:
        """The time limits of all runs; there are fewer runs where a method does not apply."""
        seeds = len(self.table.seeds)
        runs = sum(seeds if method.is_seeded else 1 for method, _, _ in self.columns)
        return [self.table.limits.time_limit_s] * runs


def study_rows(
    study: Study, path: str | Path, shard: tuple[int, int] | None = None
) -> list[PlannedRow]:
    """All rows of a study, or of a shard; paths in it are relative to the folder of `path`."""
    # No instance is read, and most of what may be wrong is found nevertheless: unknown methods,
    # parameters, families and clusters, files that are not there. A warning names each of the
    # latter that is optional.
    rows, absent = [], dict[str, None]()
    for table in study.tables:
        with _of_table(table, path):
            columns = [column for entry in table.methods for column in _columns(entry, path)]
            if table.coarsen is not None:
                from placegap.instances.transforms.table import find_transform

                find_transform(table.coarsen)
            for source, optional in _sources(table, Path(path).parent.resolve()):
                if optional and _is_absent(source):
                    absent[source.model] = None
                else:
                    _check(source)
                    rows.append(PlannedRow(table, source, optional, columns))
        for method, _, _ in columns:
            refuse_edited(method, table.semantics.objective)
    for model in absent:
        warn(f"{path}: left out: there is no such file: {os.path.relpath(model)}")
    return rows if shard is None else shard_of(rows, *shard)


@contextmanager
def _of_table(table: TableEntry, path: str | Path) -> Iterator[None]:
    """Name the table of the study in errors about the input."""
    try:
        yield
    except InputError as error:
        raise type(error)(f"table {table.name!r}: {error}", path) from None


def _check(source: Source) -> None:
    """Refuse early what can be refused before an instance is read."""
    cluster_of(source)
    if source.generated is not None:
        from placegap.instances.corpus.generate import family_of

        family_of(source.model, dict(source.generated[0]))
    elif _is_absent(source):
        find_model(source.model)


def _is_absent(source: Source) -> bool:
    is_file = source.generated is None and not is_named(source.model)
    return is_file and not os.path.exists(source.model)


def plan_study(study: Study, path: str | Path) -> Iterator[RunRow]:
    """Every run of a study, row by row (`study_rows`, `row_runs`)."""
    for row in study_rows(study, path):
        yield from row_runs(row, study, path)


def row_runs(row: PlannedRow, study: Study, path: str | Path) -> list[RunRow]:
    """The runs of a row; its instance is read for its content hash and for what applies to it."""
    try:
        with _of_table(row.table, path):
            return list(_row_runs(row, study))
    except MissingExtra as error:
        if not row.optional:
            raise
        warn(f"left out: {error}")
        return []


def shard_of(rows: Sequence[PlannedRow], number: int, count: int) -> list[PlannedRow]:
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
        texts = {name: x if isinstance(x, str) else json.dumps(x) for name, x in given.items()}
        shown = ", ".join(f"{name}={text}" for name, text in texts.items())
        params: dict[str, ParamValue] = dict(given)
        if isinstance(given.get("path"), str):  # it starts in the study's folder
            params["path"] = os.path.relpath(Path(path).parent / texts["path"])
        yield method, parse_params(method, params), f"{method.name} {shown}".strip()


def _sources(table: TableEntry, folder: Path) -> Iterator[tuple[Source, bool]]:
    """Where the instances of a table come from, and whether each may be left out."""
    layers = table.semantics.has_modes
    for entry in table.instances:
        model, drawn = entry.generate, tuple(sorted(entry.params.items()))
        if entry.model is not None:
            model = entry.model if is_named(entry.model) else os.path.abspath(folder / entry.model)
        assert model is not None  # validated
        source = Source(
            model,
            time_unit=entry.time_unit,
            dims=tuple(sorted(entry.dims.items())),
            layers=layers,
            **{name: getattr(entry, name) for name in CHANGES},
        )
        shares = entry.device_memory or (None,)
        for cluster, seed, share in product(table.clusters or (None,), entry.seeds, shares):
            if cluster is not None and not is_known_cluster(cluster):
                cluster = os.path.abspath(folder / cluster)
            generated = None if entry.generate is None else (drawn, seed)
            row = replace(source, cluster=cluster, generated=generated, device_memory=share)
            yield row, entry.optional


def _row_runs(row: PlannedRow, study: Study) -> Iterator[RunRow]:
    table, limits = row.table, row.table.limits
    with as_input_error(source=row.source.model):  # a factor of slower_links that is too small
        placed = instance = load_source(row.source)
    if table.coarsen is not None:
        from placegap.instances.transforms.table import coarsen

        placed = coarsen(instance, table.coarsen, semantics=table.semantics).merge.coarse
    recorded = recorded_bounds(instance, table.semantics) if study.recorded_bounds else ()
    known = ((bound.value, bound.origin, bound.basis) for bound in recorded)
    best_ns, best_by, best_basis = max(known, default=(None, "", ""))
    about = RunRow(
        study=study.name,
        table=table.name,
        instance=instance.name.removesuffix(f"@{instance.cluster.name}"),
        cluster=instance.cluster.name,
        instance_hash=instance.content_hash[:HASH_DIGITS],
        num_ops=instance.num_ops,
        num_edges=len(instance.graph.edges),
        num_devices=instance.num_devices,
        ccr=communication_ratio(flow_of(instance.arrays)),
        memory_share=row.source.device_memory,
        memory_pressure=memory_pressure(instance),
        time_limit_s=limits.time_limit_s,
        gap_limit=limits.gap,
        best_bound_ns=best_ns,
        best_bound_by=best_by,
        best_rests_on=best_basis,
        **semantics_columns(table.semantics),
    )
    for seed in table.seeds:
        for method, params, label in row.columns:
            task = Task(placed, table.semantics, Limits(limits.time_limit_s, limits.gap, seed))
            missing, options = what_is_missing(method, params), params.model_dump(mode="json")
            reason = why_not(method, task, params) or missing
            if seed != table.seeds[0] and not method.is_seeded:
                continue  # it ran with the first seed, and would find the same
            planned = replace(
                about, seed=seed, method=method.name, label=label, params=canonical_json(options)
            )
            if reason is not None:
                status = NOT_INSTALLED if reason == missing else NOT_APPLICABLE
                yield replace(planned, status=status, message=reason)
                continue
            run = Run(
                source=row.source,
                instance_hash=instance.content_hash,
                semantics=table.semantics,
                method=method.name,
                params=options,
                seed=seed,
                time_limit_s=limits.time_limit_s,
                gap=limits.gap,
                versions=versions_of(method),
                coarsen=table.coarsen,
                code=code_of(method, table.semantics.objective),
            )
            yield replace(planned, run=run)
