"""All that is made from what methods register: their index, and the page of methods.

``python docs/site/methods.py`` regenerates it; ``make pages-check`` fails if something has changed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from itertools import chain
from pathlib import Path

from placegap.experiments.show.method_page import details, parameters, plain
from placegap.solvers.core.method import AnyMethod, Cost
from placegap.solvers.core.method_homes import HOMES
from placegap.solvers.core.registry import METHODS

ROOT = Path(__file__).resolve().parents[2]
COMMAND = "python docs/site/methods.py"
SOLVERS, LEARNED = "placegap.solvers.", "placegap.experiments.research.learned."
LINE = 100
"""The longest line of code."""

CLAIMS = ("exact", "heuristic", "bound")
"""Methods are listed in this order; of one claim, a new one comes last."""

GROUPS: dict[str, Callable[[AnyMethod], bool]] = {
    "Exact methods": lambda m: m.claim == "exact",
    "Heuristics for one pass": lambda m: m.claim == "heuristic" and m.objectives == ("makespan",),
    "Heuristics for pipelines": lambda m: m.claim == "heuristic" and "makespan" not in m.objectives,
    "Heuristics for several objectives": lambda m: (
        m.claim == "heuristic" and "makespan" in m.objectives and len(m.objectives) > 1
    ),
    "Bounds without plans": lambda m: m.claim == "bound",
}
"""The sections of docs/methods.md."""

START = "<!-- from here on made by docs/site/methods.py -->\n"
"""What stands before it in docs/methods.md is written by hand."""

SHARED = ("start", "solver", "workers")
"""Parameters that the head of the page explains."""


def registered(folder: Path, package: str) -> list[AnyMethod]:
    """The methods that the modules of a folder register, in the order of the index.

    `package` is the prefix under which its modules are imported: it ends in a dot, or is empty.
    """
    modules = [name for path in sorted(folder.rglob("*.py")) for name in _registering(path, folder)]
    for module in modules:
        import_module(package + module)
    homes = {package + module for module in modules}
    found = [METHODS[name] for name in [*METHODS] if home_of(METHODS[name]) in homes]
    known = [*HOMES]
    return sorted(
        found,
        key=lambda m: (
            CLAIMS.index(m.claim),
            known.index(m.name) if m.name in known else len(known),
        ),
    )


def _registering(path: Path, folder: Path) -> Iterator[str]:
    """The name of a file's module, if it registers a method."""
    if re.search(r"\b(method|register|fits)\(", path.read_text()):
        yield ".".join(path.relative_to(folder).with_suffix("").parts)


def home_of(method: AnyMethod) -> str:
    """The module that registers a method."""
    return method.run.__module__


def index(methods: Iterable[AnyMethod]) -> str:
    """The text of `method_homes`."""
    lines = [
        '"""Which module registers which method, and what a method costs as a start (`starts`).',
        "",
        f"Made by ``{COMMAND}``. The order is that of every list of methods, and",
        "of equal plans the first one's counts: lines may be moved, among those of a claim.",
        '"""',
        "",
        "from placegap.instances.reading.checkout import has_research",
        "from placegap.solvers.core.method import Cost, Home",
        "",
        "# Name of a method, and where it is.",
        "HOMES = {",
    ]
    learned = [method for method in methods if home_of(method).startswith(LEARNED)]
    for method in (method for method in methods if method not in learned):
        name, home = f'"{method.name}"', f'"{home_of(method).removeprefix(SOLVERS)}"'
        costs = [f'"{objective}": {_cost(cost)}' for objective, cost in method.starts.items()]
        starts = f", {{{', '.join(costs)}}}" if costs else ""
        line = f"    {name}: Home({home}{starts}),"
        inner = f"        {home}{starts}"
        if len(line) <= LINE:
            lines.append(line)
        elif len(inner) <= LINE:
            lines += [f"    {name}: Home(", inner, "    ),"]
        else:
            each = [f"            {cost}," for cost in costs]
            lines += [f"    {name}: Home(", f"        {home},", "        {", *each]
            lines += ["        },", "    ),"]
    lines += ["}", "", "if has_research():"]
    lines += [f'    HOMES["{m.name}"] = Home("{home_of(m)}")' for m in learned]
    return "\n".join([*lines, ""])


def _cost(cost: Cost) -> str:
    """A cost as code: what is no default."""
    given = [f"{cost.ms}", f"{cost.us_per_part}"]
    for name in Cost._fields[2:]:
        value = getattr(cost, name)
        if value != Cost._field_defaults[name]:
            given.append(f"{name}={value:_}" if type(value) is int else f"{name}={value}")
    return f"Cost({', '.join(given)})"


def with_entries(page: str, methods: Sequence[AnyMethod]) -> str:
    """The page of methods with its entries made anew."""
    lines = [page.partition(START)[0] + START]
    for title, holds in GROUPS.items():
        lines += [f"## {title}", "", *chain.from_iterable(map(entry, filter(holds, methods)))]
    return "\n".join(lines)


def entry(method: AnyMethod) -> list[str]:
    """One method: what it does, its paper, what differs from that, its parameters."""
    text = f"{method.summary[0].upper()}{method.summary[1:].rstrip('.')}."
    cited = "" if method.citation == "-" else f"*{method.citation}.*"
    scope = "" if method.does == "makespan" else f"For {method.does}."
    differs = re.search(r"Deviations: (.*)", " ".join(details(method).split()))
    differs_text = f"Differs: {differs[1]}" if differs else ""
    own = [one for one in parameters(method.params) if one.name not in SHARED]
    has = ", ".join(
        f"`{one.name}`" if one.default is None else f"`{one.name}={plain(one.default)}`"
        for one in own
    )
    parts = [text, cited, scope, differs_text, f"Parameters: {has}." if has else ""]
    return [f"### {method.name}", "", " ".join(filter(None, parts)), ""]


def made() -> dict[Path, str]:
    """Every file that is made from registrations, and what it has to be."""
    methods = registered(ROOT / "solvers", SOLVERS)
    methods += registered(ROOT / "experiments" / "research" / "learned", LEARNED)
    texts = {ROOT / "solvers" / "core" / "method_homes.py": index(methods)}
    page = ROOT / "docs" / "methods.md"
    texts[page] = with_entries(page.read_text(), methods)
    return texts


def main() -> None:
    """Write what has changed, and say so."""
    for path, text in made().items():
        if path.read_text() != text:
            path.write_text(text)
            sys.stdout.write(f"{path.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
