"""How far Helix's released plans are from optimal, as docs/serving.md has it.

``python -m placegap.experiments.research.tables.serving FOLDER`` prints the table of a folder of
Helix's output folders (``ilp_model.lp.gz``, ``ilp_sol.ini``). A plan made on a pruned network is
judged in the whole one, ``kinds-42`` for ``kinds-42-pruned``: its links are a part of that.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import process_time

from placegap.experiments.show.figures import format_gap
from placegap.experiments.show.rendering import markdown_grid
from placegap.instances.importers.helix import load_helix_model, load_ranges
from placegap.instances.objectives.flow.referee import largest_flow
from placegap.instances.problem import ServingFlow
from placegap.instances.problem.flow_problem import UNITS
from placegap.solvers import run_method
from placegap.solvers.core.result import relative_gap

HEADS = (
    *("network", "machines", "released plan", "Helix's bound", "our plan", "our bound", "gap"),
    *("released plan below our bound", "CPU seconds"),
)
LIMIT_S = 10.0


def rows(folder: Path) -> Iterator[tuple[str, ...]]:
    """A row for each released plan: rates in tokens per second."""
    for path in sorted(folder.glob("*/ilp_model.lp.gz")):
        name = path.parent.name
        whole = path.parent.with_name(name.removesuffix("-pruned")) / path.name
        instance = load_helix_model(whole if whole.exists() else path).instance()
        problem = instance.flow_problem
        released = largest_flow(problem, load_ranges(path.with_name("ilp_sol.ini"), problem)).value
        if whole == path or not whole.exists():
            began = process_time()
            found = run_method(instance, ServingFlow(), "auto", time_limit_s=LIMIT_S)
            cpu_s = process_time() - began
        value, bound = found.value or 0, found.bound_value or 0
        rates = (released, problem.work_bound, value, bound)
        yield (
            name,
            str(problem.num_machines),
            *(f"{rate / UNITS:,.1f}" for rate in rates),
            format_gap(relative_gap(value, bound) or 0.0),
            format_gap(relative_gap(released, bound) or 0.0),
            f"{cpu_s:.1f}",
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; exit status 2 for bad input."""
    words = sys.argv[1:] if arguments is None else arguments
    found = list(rows(Path(words[0]))) if len(words) == 1 else []
    if not found:
        print("usage: serving FOLDER, which holds folders with an ilp_model.lp.gz", file=sys.stderr)
        return 2
    print("\n".join(markdown_grid(HEADS, found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
