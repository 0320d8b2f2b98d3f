"""Enter what a study found, or what cheap bounds prove by now, into a best-known file.

``python -m placegap.experiments.research.record_best STUDY_FOLDER BEST_KNOWN_FILE`` reads the log
of a study and keeps, for every graph of the corpus on every cluster under every semantics, the
least value and the largest bound. A value holds for every wider class of plans as well, a bound
for every narrower one. With ``--portfolio SECONDS`` in place of the folder, the portfolio of bounds
has so long for each entry that is not proven optimal.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from placegap.experiments.running.sources import Source, load_source
from placegap.experiments.studies.log import LOG_NAME, RunLog
from placegap.experiments.studies.runs import RunRow, row_of
from placegap.instances.corpus.corpus import (
    NETWORK_FAMILY,
    ONNX_FAMILY,
    BestEntry,
    corpus_names,
    load_best_known,
    load_corpus,
)
from placegap.instances.files.cluster_file import load_cluster
from placegap.instances.files.document import write_json
from placegap.instances.problem import PLAN_CLASSES, BestKnown, Instance
from placegap.instances.reading.errors import InputError, as_input_error
from placegap.solvers.bounds.portfolio import bound


def record_best(instance: Instance, found: BestKnown, path: str | Path) -> BestEntry:
    """Enter a value and a bound into a best-known file, keeping what is better there already."""
    # The smaller value and the larger bound win, each with its origin; on a tie the old one stays,
    # unless the new bound alone says what it rests on. An entry for another content (the graph or a
    # cluster changed) is replaced. The file is made if it is missing.
    names = {"graph": instance.graph.name, "cluster": instance.cluster.name}
    fresh = _entry({**names, "content_hash": instance.content_hash, **dict(found)}, path)
    entries = {entry.key: entry for entry in load_best_known(path)} if Path(path).exists() else {}
    old = entries.get(fresh.key)
    if old is not None and old.content_hash == fresh.content_hash:
        fresh = _better(old, fresh, path)
    entries[fresh.key] = fresh
    _write(entries.values(), path)
    return fresh


def _better(old: BestEntry, new: BestEntry, path: str | Path) -> BestEntry:
    merged = dict(old)
    if new.value_ns is not None and (old.value_ns is None or new.value_ns < old.value_ns):
        merged.update(value_ns=new.value_ns, value_origin=new.value_origin)
    rank = [(entry.bound_ns or 0, bool(entry.rests_on)) for entry in (old, new)]
    if new.bound_ns is not None and (old.bound_ns is None or rank[1] > rank[0]):
        merged.update(bound_ns=new.bound_ns, bound_origin=new.bound_origin, rests_on=new.rests_on)
    return _entry(merged, path)


def _entry(fields: dict[str, object], path: str | Path) -> BestEntry:
    with as_input_error(fields, path):
        return BestEntry.model_validate(fields)


def _write(entries: Iterable[BestEntry], path: str | Path) -> None:
    order = ("graph", "cluster", "content_hash", *BestKnown.model_fields)
    content = []
    for entry in sorted(entries, key=lambda entry: entry.key):
        fields = entry.model_dump(mode="json", exclude_defaults=True)
        content.append({name: fields[name] for name in order if name in fields})
    write_json(content, path)


def main(arguments: list[str] | None = None) -> int:
    """Read a study's log and update a best-known file; exit status 2 for bad input."""
    words = sys.argv[1:] if arguments is None else arguments
    is_portfolio = len(words) == 3 and words[0] == "--portfolio" and _is_seconds(words[1])
    if len(words) != 2 and not is_portfolio:
        usage = "usage: record_best (STUDY_FOLDER | --portfolio SECONDS) BEST_KNOWN_FILE"
        print(usage, file=sys.stderr)
        return 2
    try:
        if is_portfolio:
            return _record_portfolio(float(words[1]), Path(words[2]))
        return _record_study(*map(Path, words))
    except InputError as error:
        print(error, file=sys.stderr)
        return 2


def _is_seconds(word: str) -> bool:
    return word.replace(".", "", 1).isdecimal()


def _record_portfolio(limit_s: float, target: Path) -> int:
    """Enter what the portfolio proves of each entry that is open; say which it raises."""
    for entry in load_best_known(target):
        if entry.bound_ns is not None and entry.bound_ns == entry.value_ns:
            continue
        instance = load_corpus(entry.graph).instance(load_cluster(entry.cluster))
        if instance.content_hash != entry.content_hash:
            continue  # of an older corpus
        found = bound(instance, entry.semantics, limit_s, best_ns=entry.value_ns)
        if found.value <= (entry.bound_ns or 0):
            continue
        where = f"{entry.graph} on {entry.cluster}, {entry.semantics.label}"
        print(f"{where}: {entry.bound_ns} -> {found.value} ns, {found.origin}", flush=True)
        own = entry.semantics.plan_class
        for plans in PLAN_CLASSES[: PLAN_CLASSES.index(own) + 1]:
            narrower = entry.semantics.with_plans(plans)
            if narrower.plan_class == plans:
                known = BestKnown(
                    semantics=narrower,
                    bound_ns=found.value,
                    bound_origin=found.origin,
                    rests_on=found.basis,
                )
                record_best(instance, known, target)
    return 0


def _record_study(folder: Path, target: Path) -> int:
    """Enter what the log of a study holds of the corpus."""
    if not (folder / LOG_NAME).is_file():
        raise InputError(f"has no {LOG_NAME}: it is not the folder of a study", folder)
    with RunLog(folder / LOG_NAME, row_of) as log:
        records = sorted(log.records.values(), key=lambda record: str(record["key"]))
    graphs = {*corpus_names(ONNX_FAMILY), *corpus_names(NETWORK_FAMILY)}
    known = [record for record in records if record["source"]["model"] in graphs]
    for record in known:
        instance = load_source(Source(record["source"]["model"], record["source"]["cluster"]))
        row = row_of(record)
        if not instance.content_hash.startswith(row.instance_hash):
            continue  # a run of an older corpus
        for found in what_it_proves(row):
            record_best(instance, found, target)
    print(f"{len(known)} runs of corpus graphs read, written: {target}")
    return 0


def what_it_proves(row: RunRow) -> Iterator[BestKnown]:
    """A run's value and bound, under its own semantics and under those they carry over to."""
    own_class = row.stated.plan_class
    rank = PLAN_CLASSES.index(own_class)
    bound_rank = PLAN_CLASSES.index(row.bound_class or own_class)
    classes = PLAN_CLASSES if row.stated.load_passes == (None,) else (own_class,)
    for plans in classes:
        at = PLAN_CLASSES.index(plans)
        has_value = row.value_ns is not None and at >= rank
        has_bound = row.bound_ns is not None and at <= bound_rank
        if has_value or has_bound:
            yield BestKnown(
                semantics=row.stated.with_plans(plans),
                value_ns=row.value_ns if has_value else None,
                bound_ns=row.bound_ns if has_bound else None,
                value_origin=row.method if has_value else "",
                bound_origin=(row.bound_origin or row.method) if has_bound else "",
                rests_on=row.rests_on if has_bound else "",
            )


if __name__ == "__main__":
    sys.exit(main())
