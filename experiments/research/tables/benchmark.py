"""The benchmark's sets with their hashes, and its open instances: two tables of docs/benchmark.md.

A set is a study in ``experiments/benchmark``; its hash is the SHA-256 of its problems: a sorted
line for each, with the hash of the instance's content and the semantics.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from placegap.experiments.running.sources import load_source
from placegap.experiments.show.figures import format_in
from placegap.experiments.show.rendering import markdown_grid
from placegap.experiments.studies.config import load_study
from placegap.experiments.studies.plan import study_rows
from placegap.instances.corpus.corpus import known_of
from placegap.instances.problem import Instance, Semantics

SETS = ("small", "networks", "papers", "measured", "serving")
FOLDER = Path(__file__).resolve().parents[2] / "benchmark"

Problem = tuple[Instance, Semantics]


@cache
def problems(name: str) -> tuple[Problem, ...]:
    """The instances of a set, each with its semantics."""
    path = FOLDER / f"{name}.yaml"
    rows = study_rows(load_study(path), path)
    return tuple((load_source(row.source), row.table.semantics) for row in rows)


def set_hash(name: str) -> str:
    """What changes with any instance of a set, or its semantics: 12 digits."""
    lines = sorted(f"{one.content_hash} {rules.label}\n" for one, rules in problems(name))
    return hashlib.sha256("".join(lines).encode()).hexdigest()[:12]


def sets() -> Iterator[str]:
    """A line per set: its problems, for how many an optimum is proven, and its hash."""
    lines = []
    for name in SETS:
        known = [best for one in problems(name) for best in known_of(*one)]
        proven = sum(best.value_ns == best.bound_ns for best in known)
        total = len(problems(name))
        counts = map(str, (total, proven, len(known) - proven, total - len(known)))
        lines.append((f"`{name}`", *counts, f"`{set_hash(name)}`"))
    yield from markdown_grid(("set", "problems", "proven", "open", "not recorded", "hash"), lines)


def open_instances() -> Iterator[str]:
    """A line per problem whose best value and bound differ, in a table per objective."""
    found: dict[str, list[tuple[str, ...]]] = {}
    for instance, rules in (one for name in SETS for one in problems(name)):
        for best in known_of(instance, rules):
            value, bound = best.value_ns, best.bound_ns
            if value is not None and bound is not None and bound < value:
                texts = (format_in(value, 10**6), format_in(bound, 10**6))
                gap = f"{100 * (value - bound) / value:.2f}"
                found.setdefault(rules.objective, []).append((instance.name, *texts, gap))
    for objective, lines in found.items():
        yield from (f"`{objective}`:", "")
        yield from markdown_grid(("instance", "value, ms", "bound, ms", "gap, %"), lines)
        yield ""
