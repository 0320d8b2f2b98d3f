"""What a study is: a YAML file, validated at the door.

A study that `extends` another file, and tables that extend others or `sweep` over a parameter, are
written out first: what is validated states every table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from itertools import chain, product
from math import prod
from os.path import isfile
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from placegap.instances.files.document import AnyVersion, warn_of_plans
from placegap.instances.problem import Name
from placegap.instances.problem.semantics import OLD_PLANS, TaggedSemantics, leaves_out_plans
from placegap.instances.reading.errors import InputError, as_input_error, instead_of
from placegap.instances.reading.input_files import MAX_RUNS, refuse_other
from placegap.instances.reading.time_unit import TimeUnit
from placegap.instances.reading.yaml_file import read_yaml
from placegap.solvers.core.clock import USUAL_S

Scalar = bool | int | float | str
ParamValue = Scalar | None
Flag = Annotated[bool, Field(strict=True)]
Seed = Annotated[int, Field(strict=True, ge=0, lt=2**63)]
MemoryShare = Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)]
Seconds = Annotated[float, Field(gt=0, le=10**7, allow_inf_nan=False)]


class Entry(BaseModel):
    """Base of all parts of a study: frozen, and unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class RunLimits(Entry):
    """When a run stops: seconds, and relative gap at which the method may stop."""

    time_limit_s: Seconds = USUAL_S
    gap: Annotated[float, Field(ge=0, lt=1)] = 0.0


class InstanceEntry(Entry):
    """A model: a name of the corpus, a workload, or a path; or a generator family with parameters
    and seeds.

    An `optional` file is left out, with a warning, where it is not there. Each value of
    `device_memory` makes a row of its own, where every device holds that share of all bytes.
    `dims` are sizes of a workload other than its paper's, and `costs` those of ``--costs``; with
    `in_place` elementwise ops overwrite their inputs, with `slower_links` every transfer takes
    longer by a factor, with `slower_ops` every op that no host runs, with `half_precision` a number
    has two bytes, and `fused` ops are those of Moirai's fusion, each as fast as one kernel.
    A `pruned` training graph has only what a step runs: no initializers, saver or summaries.
    `clones` of a training graph share its variables, which are on the host of a cluster with one.
    """

    model: Name | None = None
    optional: Flag = False
    generate: Name | None = None
    params: dict[str, Scalar] = Field(default_factory=dict)
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)] = (0,)
    time_unit: TimeUnit | None = None
    device_memory: tuple[MemoryShare, ...] = ()
    dims: dict[str, int] = Field(default_factory=dict)
    costs: Name | None = None
    in_place: Flag = False
    slower_links: MemoryShare | None = None
    slower_ops: MemoryShare | None = None
    clones: Annotated[int, Field(strict=True, ge=1, le=64)] | None = None
    pruned: Flag = False
    half_precision: Flag = False
    fused: Flag = False

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, raw: Any) -> Any:
        return {"model": raw} if isinstance(raw, str) else raw

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.model is None) == (self.generate is None):
            raise ValueError("give either model or generate")
        of_model = {"time_unit", "optional", "dims"}
        foreign = {"params", "seeds"} if self.generate is None else of_model
        for name in sorted(foreign & self.model_fields_set):
            raise ValueError(f"{name} does not go with {'model' if self.model else 'generate'}")
        return self


class MethodEntry(Entry):
    """A method, with one set of parameters or a list of them."""

    name: Name
    params: Annotated[tuple[dict[str, ParamValue], ...], Field(min_length=1)] = ({},)

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, raw: Any) -> Any:
        if isinstance(raw, str):
            return {"name": raw}
        if isinstance(raw, dict) and isinstance(raw.get("params"), dict):
            return {**raw, "params": [raw["params"]]}
        return raw


class TableEntry(Entry):
    """One table: every method in it is judged under one semantics."""

    name: Name
    semantics: TaggedSemantics
    instances: Annotated[tuple[InstanceEntry, ...], Field(min_length=1)]
    clusters: tuple[Name, ...] = ()
    methods: Annotated[tuple[MethodEntry, ...], Field(min_length=1)]
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)] = (0,)
    limits: RunLimits = RunLimits()
    #: The transform that makes every instance coarser; plans are judged on the instance itself.
    coarsen: Name | None = None

    @property
    def num_runs(self) -> int:
        """Runs of the table, if all of its methods apply everywhere."""
        instances = sum(len(e.seeds) * max(1, len(e.device_memory)) for e in self.instances)
        methods = sum(len(entry.params) for entry in self.methods)
        return instances * max(1, len(self.clusters)) * len(self.seeds) * methods

    @model_validator(mode="after")
    def _check(self) -> Self:
        for number, entry in enumerate(self.instances):
            if entry.generate is not None and not self.clusters:
                raise ValueError(f"instances[{number}] is generated and needs clusters")
        return self


class SmokeEntry(Entry):
    """The smallest form of a study: these instances only, and no run longer than this."""

    instances: Annotated[tuple[Name, ...], Field(min_length=1)]
    time_limit_s: Seconds = 2.0


class Study(Entry):
    """A study: a name and its tables, perhaps a smaller form.

    `recorded_bounds` says whether bounds that the corpus records count, beside those that
    the study's own runs prove.
    """

    version: AnyVersion = 1
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]
    tables: Annotated[tuple[TableEntry, ...], Field(min_length=1)]
    smoke: SmokeEntry | None = None
    recorded_bounds: Flag = True

    @model_validator(mode="after")
    def _check(self) -> Self:
        MAX_RUNS.check(sum(table.num_runs for table in self.tables), "the study")
        names = [table.name for table in self.tables]
        for number, name in enumerate(names):
            if name in names[:number]:
                raise ValueError(f"tables[{number}]: {name!r} appears twice")
        models = {entry.model for table in self.tables for entry in table.instances}
        for name in self.smoke.instances if self.smoke else ():
            if name not in models:
                raise ValueError(f"smoke.instances: no table has {name!r}")
        return self


def smallest(study: Study) -> Study:
    """The study in its smallest form, under a name of its own; as it is where it states none."""
    # Tables without any of the `smoke` instances are left out.
    if study.smoke is None:
        return study
    tables = []
    for table in study.tables:
        kept = tuple(e for e in table.instances if e.model in study.smoke.instances)
        seconds = min(table.limits.time_limit_s, study.smoke.time_limit_s)
        limits = table.limits.model_copy(update={"time_limit_s": seconds})
        if kept:
            tables.append(table.model_copy(update={"instances": kept, "limits": limits}))
    return study.model_copy(update={"name": f"{study.name}-smoke", "tables": tuple(tables)})


def load_study(path: str | Path, *, smoke: bool = False) -> Study:
    """Read and validate a study, or its smallest form."""
    study = _validated(_read(Path(path)), path)
    return smallest(study) if smoke else study


def _validated(raw: dict[str, Any], path: str | Path) -> Study:
    if isinstance(raw.get("tables"), list):
        tables = [_swept(table, at, path) for at, table in enumerate(raw["tables"])]
        raw = {**raw, "tables": list(chain.from_iterable(tables))}
    with as_input_error(raw, path, Study):
        return Study.model_validate(raw)


# What a study has of the one that it extends; the rest is about that study's own results.
INHERITED = ("tables", "recorded_bounds")


def _read(path: Path, above: tuple[Path, ...] = ()) -> dict[str, Any]:
    """A study's file with all that it extends; `above` are the files that extend it."""
    raw = read_yaml(path)
    refuse_other(raw, "a study", path)
    if not isinstance(raw, dict):
        raise InputError("is not a study: expected the keys name and tables", path)
    base: dict[str, Any] = {}
    if "extends" in raw:
        name, above = str(raw.pop("extends")), (*above, path)
        file = path.parent / name
        if file.parent != path.parent or not isfile(file):
            raise InputError(f"extends: there is no file {name!r} beside it", path)
        if file in above:
            raise InputError(f"extends: {name} extends this file itself", path)
        whole = _read(file, above)
        _validated(whole, file)
        base = {key: whole[key] for key in INHERITED if key in whole}
    if isinstance(raw.get("tables"), list):
        if raw.get("version") != 2:
            _state_old_plans(raw["tables"], path)
        raw["tables"] = list(_extended(raw["tables"], base.get("tables", []), path))
    return {**base, **raw}


def _state_old_plans(tables: list[Any], path: Path) -> None:
    """Let the tables of an old file state the plans that they mean by stating none."""
    found = [t for t in tables if isinstance(t, dict) and isinstance(t.get("semantics"), dict)]
    swept = [t for t in found if "semantics.plans" in str(t.get("sweep"))]
    if any(leaves_out_plans(table["semantics"]) for table in found if table not in swept):
        warn_of_plans(path)
    for table in found:
        table["semantics"].setdefault("plans", OLD_PLANS)


def _extended(tables: list[Any], base: list[Any], path: Path) -> Iterator[Any]:
    """Tables with all keys of those that they extend: one of `base`, or an earlier one."""
    known = {table["name"]: table for table in base}
    for number, table in enumerate(tables):
        if isinstance(table, dict):
            if "extends" in table:
                name = str(table.pop("extends"))
                if name not in known:
                    near = instead_of(name, known)
                    raise InputError(f"tables[{number}].extends: no table {name!r}{near}", path)
                table = {**known[name], **table}
            known[str(table.get("name"))] = table
        yield table


def _swept(table: Any, number: int, path: str | Path) -> list[Any]:
    """A table for each combination of the values over which it sweeps; else the table itself."""
    if not isinstance(table, dict) or "sweep" not in table:
        return [table]
    place = f"{path}: tables[{number}] {table.get('name')!r}"
    table, sweep = dict(table), table["sweep"]
    del table["sweep"]
    if not isinstance(sweep, dict) or not sweep or [] in sweep.values():
        raise InputError("sweep: state parameters and their values, as limits.gap: [0, 0.1]", place)
    with as_input_error(table, place, TableEntry):
        whole = TableEntry.model_validate(table).model_dump(mode="json", exclude_unset=True)
        whole["semantics"] = dict(table["semantics"])  # also old plans, which another one may have
    tables, place = [], f"{place}.sweep"
    listed = [each if isinstance(each, list) else [each] for each in sweep.values()]
    count, runs = prod(map(len, listed)), 0
    if count > MAX_RUNS.most():
        least = f"makes at least {min(count, 10**15):,} tables, of one run or more each"
        raise InputError(MAX_RUNS.sentence(least), place)
    for values in product(*listed):
        swept, shown = deepcopy(whole), ""
        for (key, given), value in zip(sweep.items(), values, strict=True):
            steps = str(key).split(".")
            is_one = steps[-1] in LISTED and not isinstance(value, list)
            try:
                _set(swept, steps, [value] if is_one else value)
            except InputError as error:
                raise InputError(f"{key}: {error}", place) from None
            if isinstance(given, list):
                text = json.dumps(value, default=str, skipkeys=True)
                shown += f", {steps[-1]}={value if isinstance(value, str) else text}"
        with as_input_error(swept, place, TableEntry):
            runs += TableEntry.model_validate(swept).num_runs
        MAX_RUNS.check(runs, "it", place)
        tables.append({**swept, "name": f"{swept['name']}{shown}"})
    return tables


LISTED = ("clusters", "device_memory", "seeds")  # keys with lists, of which a sweep states one


def _set(node: Any, steps: list[str], value: Any) -> None:
    """Set what a path of keys leads to; in a list, that of the entries with a name, or of all."""
    if isinstance(node, list):
        names = ("name", "model", "generate")
        entries = [entry for entry in node if isinstance(entry, dict)]
        picked = [e for e in entries if steps[0] in map(e.get, names)]
        for entry in picked or node:
            _set(entry, steps[1:] if picked else steps, value)
    elif not isinstance(node, dict):
        raise InputError(f"{steps[0]!r} is no key there")
    elif len(steps) > 1:
        _set(node.setdefault(steps[0], {}), steps[1:], value)
    else:
        node[steps[0]] = value
