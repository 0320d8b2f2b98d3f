"""What is known of the corpus, as tables: a graph per row, a cluster per column.

``python -m placegap.experiments.research.tables.optima [BEST_KNOWN_FILE]`` prints the tables
of docs/optima.md in Markdown: the best values in ms, optimal unless a gap stands behind them.
Networks, each on a cluster of its own, have another table (`networks`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from placegap.instances.corpus.corpus import (
    NETWORK_FAMILY,
    BestEntry,
    corpus_names,
    load_best_known,
)
from placegap.instances.reading.errors import InputError


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables; exit status 2 for bad input."""
    words = sys.argv[1:] if arguments is None else arguments
    if len(words) > 1:
        print("usage: optima_table [BEST_KNOWN_FILE]", file=sys.stderr)
        return 2
    try:
        entries = load_best_known(Path(words[0]) if words else None)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    apart = set(corpus_names(NETWORK_FAMILY))
    print("\n".join(tables([entry for entry in entries if entry.graph not in apart])))
    return 0


def tables(entries: Sequence[BestEntry]) -> Iterator[str]:
    """Lines of one table per semantics, in the order in which the file has them."""
    graphs = sorted({entry.graph for entry in entries})
    clusters = sorted({entry.cluster for entry in entries})
    known = {entry.key: entry for entry in entries}
    for label in sorted({entry.semantics.label for entry in entries}, key=_order):
        yield f"**{label}**"
        yield ""
        yield f"| graph | {' | '.join(clusters)} |"
        yield f"|---|{'---|' * len(clusters)}"
        for graph in graphs:
            cells = [_cell(known.get((graph, cluster, label))) for cluster in clusters]
            yield f"| {graph} | {' | '.join(cells)} |"
        yield ""


def _order(label: str) -> tuple[bool, str]:
    return not label.startswith("makespan"), label


def _cell(entry: BestEntry | None) -> str:
    if entry is None or entry.value_ns is None:
        return "-"
    value = f"{entry.value_ns / 1e6:.6f}"
    if entry.bound_ns == entry.value_ns:
        return value
    if entry.bound_ns is None:
        return f"{value} (no bound)"
    return f"{value} ({100 * (1 - entry.bound_ns / entry.value_ns):.2g} %)"


if __name__ == "__main__":
    sys.exit(main())
