"""What is known of the corpus: per objective how many best known values are proven optimal.

``python -m placegap.experiments.research.tables.optima [BEST_KNOWN_FILE]`` prints the table; the
values themselves are in the file, by default ``instances/data/corpus/best-known.json``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from statistics import median

from placegap.experiments.show.figures import format_gap
from placegap.experiments.show.rendering import markdown_grid
from placegap.instances.corpus.corpus import (
    NETWORK_FAMILY,
    BestEntry,
    corpus_names,
    load_best_known,
)
from placegap.instances.reading.errors import InputError
from placegap.solvers.core.result import relative_gap

HEAD = ("graphs", "objective", "values", "optimal", "<=1 %", "median gap", "worst gap")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; exit status 2 for bad input."""
    words = sys.argv[1:] if arguments is None else arguments
    if len(words) > 1:
        print("usage: optima [BEST_KNOWN_FILE]", file=sys.stderr)
        return 2
    try:
        entries = load_best_known(Path(words[0]) if words else None)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    print("\n".join(table(entries)))
    return 0


def table(entries: Sequence[BestEntry]) -> Iterator[str]:
    """A line per group of graphs and objective."""
    networks = set(corpus_names(NETWORK_FAMILY))

    def group(entry: BestEntry) -> tuple[str, str]:
        return "networks" if entry.graph in networks else "small graphs", entry.semantics.label

    lines = []
    for (graphs, label), mine in groupby(sorted(entries, key=group), group):
        found = (relative_gap(entry.value_ns, entry.bound_ns) for entry in mine)
        gaps = [gap for gap in found if gap is not None]
        if gaps:
            counts = (len(gaps), sum(gap == 0 for gap in gaps), sum(gap <= 0.01 for gap in gaps))
            lines.append(
                (graphs, label, *map(str, counts), format_gap(median(gaps)), format_gap(max(gaps)))
            )
    yield from markdown_grid(HEAD, lines)


if __name__ == "__main__":
    sys.exit(main())
