"""Enter what a study found into a best-known file.

``python -m placegap.experiments.studies.record_best STUDY_FOLDER BEST_KNOWN_FILE`` reads the log
of a study and keeps, for every graph of the corpus on every cluster under every semantics, the
least value and the largest bound. A value holds for every wider class of plans as well, a bound
for every narrower one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from placegap.experiments.running.sources import Source, load_source
from placegap.experiments.studies.log import Record, RunLog
from placegap.instances.corpus.corpus import (
    NETWORK_FAMILY,
    ONNX_FAMILY,
    corpus_names,
    record_best,
)
from placegap.instances.problem.instance import BestKnown
from placegap.instances.problem.semantics import (
    PLAN_CLASSES,
    parse_semantics,
    plan_class,
    with_plans,
)
from placegap.instances.reading.errors import InputError


def main(arguments: list[str] | None = None) -> int:
    """Read a study's log and update a best-known file; exit status 2 for bad input."""
    words = sys.argv[1:] if arguments is None else arguments
    if len(words) != 2:
        print("usage: record_best STUDY_FOLDER BEST_KNOWN_FILE", file=sys.stderr)
        return 2
    folder, target = map(Path, words)
    try:
        if not (folder / "runs.jsonl").is_file():
            raise InputError("has no runs.jsonl: it is not the folder of a study", folder)
        with RunLog(folder / "runs.jsonl") as log:
            records = sorted(log.records.values(), key=lambda record: str(record["key"]))
        graphs = {*corpus_names(ONNX_FAMILY), *corpus_names(NETWORK_FAMILY)}
        known = [record for record in records if record["source"]["model"] in graphs]
        for record in known:
            instance = load_source(Source(record["source"]["model"], record["source"]["cluster"]))
            if instance.content_hash != record["instance_hash"]:
                continue  # a run of an older corpus
            for found in what_it_proves(record):
                record_best(instance, found, target)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{len(known)} runs of corpus graphs read, written: {target}")
    return 0


def what_it_proves(record: Record) -> Iterator[BestKnown]:
    """A run's value and bound, under its own semantics and under those they carry over to."""
    own = parse_semantics(record["semantics"])
    value_ns, bound_ns = record.get("value_ns"), record.get("bound_ns")
    own_class = plan_class(own)
    rank = PLAN_CLASSES.index(own_class)
    bound_rank = PLAN_CLASSES.index(record.get("bound_class") or own_class)
    classes = PLAN_CLASSES if own.objective == "max_load" else (own_class,)
    for plans in classes:
        at = PLAN_CLASSES.index(plans)
        has_value = value_ns is not None and at >= rank
        has_bound = bound_ns is not None and at <= bound_rank
        if has_value or has_bound:
            yield BestKnown(
                semantics=with_plans(own, plans),
                value_ns=value_ns if has_value else None,
                bound_ns=bound_ns if has_bound else None,
                value_origin=record["method"] if has_value else "",
                bound_origin=(record["bound_origin"] or record["method"]) if has_bound else "",
                rests_on=record.get("rests_on", "") if has_bound else "",
            )


if __name__ == "__main__":
    sys.exit(main())
