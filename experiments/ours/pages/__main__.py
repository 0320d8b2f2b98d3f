"""``python -m placegap.experiments.ours.pages``: two pages and four pictures, into docs/."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from placegap.experiments.research.page_plots import (
    plot_ccr,
    plot_memory,
    plot_profile,
    plot_time,
)
from placegap.experiments.research.pages import DOCS, figures, tables
from placegap.experiments.research.record import HERE, read_results
from placegap.experiments.studies.report import write_file


def pages() -> Iterator[tuple[str, str]]:
    """Name and text of each page."""
    templates = HERE / "pages"
    yield "ours-results.md", (templates / "results.template.md").read_text().format_map(tables())
    yield "found.md", (templates / "found.template.md").read_text().format_map(figures())


def pictures() -> Iterator[tuple[str, bytes]]:
    """Name and content of each picture."""
    corpus, memory = (read_results(name)[1] for name in ("corpus", "memory"))
    yield "placers-profile.png", plot_profile(corpus)
    yield "placers-time.png", plot_time(corpus)
    yield "placers-ccr.png", plot_ccr(corpus)
    yield "placers-memory.png", plot_memory(memory)


def main(folder: Path = DOCS) -> None:
    """Write them all."""
    for name, text in pages():
        write_file(folder / name, text.encode())
    for name, picture in pictures():
        write_file(folder / name, picture)


if __name__ == "__main__":
    main()
