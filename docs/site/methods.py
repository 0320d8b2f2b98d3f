"""All that is made from what methods register: their index, the page of methods, references.

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


def with_references(text: str, methods: Iterable[AnyMethod], bibliography: str) -> str:
    """The page of references: where each cited method is, and a row for each paper.

    A ValueError names what the bibliography lacks.
    """
    head, *old = re.split(r"^(?=\| `)", text, flags=re.MULTILINE)
    rows = {re.findall(r"`([^`]+)`", row)[0]: row for row in old}
    papers = entries(bibliography)
    for method in methods:
        file = home_of(method).removeprefix("placegap.").replace(".", "/") + ".py"
        for key in (cited.partition(",")[0] for cited in method.cites):
            if key not in papers:
                raise ValueError(
                    f"{method.name} cites {key!r}, which instances/data/references.bib has not"
                )
            row = rows.setdefault(key, f"| `{key}` | {paper(papers[key])} |  |\n")
            places = re.findall(r"`([^`]+)`", row.rsplit("|", 2)[1])
            if not any(f"{file}/".startswith(place) or file == place for place in places):
                said = ", ".join(filter(None, [row.rsplit("|", 2)[1].strip(), f"`{file}`"]))
                rows[key] = row.rsplit("|", 2)[0] + f"| {said} |\n"
            else:
                rows[key] = row
    return head + "".join(rows[key] for key in sorted(rows))


def entries(bibliography: str) -> dict[str, dict[str, str]]:
    """The entries of a BibTeX file: their fields, by key."""
    found = re.findall(r"^@\w+\{([^,]+),\n(.*?)^\}", bibliography, re.MULTILINE | re.DOTALL)
    field = re.compile(r"^\s*(\w+) = \{(.*)\},$", re.MULTILINE)
    return {key: dict(field.findall(fields)) for key, fields in found}


def paper(entry: dict[str, str]) -> str:
    """A paper as the page of references names it.

    Examples
    --------
    >>> paper({"author": "Me, A. and Others, B.", "title": "A {DNN} placer", "year": "2026"})
    'Me and Others: A DNN placer, 2026'
    """
    names = [name.partition(",")[0] for name in entry["author"].split(" and ")]
    if names[-1] == "others":
        authors = f"{', '.join(names[:-1])} et al."
    else:
        authors = " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
    place = entry.get("journal") or entry.get("booktitle")
    words = f"{authors}: {entry['title']}{f'. {place}' if place else ''}, {entry['year']}"
    plain = words.replace("{", "").replace("}", "")
    return f"{plain}. [doi](https://doi.org/{entry['doi']})" if "doi" in entry else plain


def made() -> dict[Path, str]:
    """Every file that is made from registrations, and what it has to be."""
    methods = registered(ROOT / "solvers", SOLVERS)
    methods += registered(ROOT / "experiments" / "research" / "learned", LEARNED)
    texts = {ROOT / "solvers" / "core" / "method_homes.py": index(methods)}
    page = ROOT / "docs" / "methods.md"
    texts[page] = with_entries(page.read_text(), methods)
    references = ROOT / "docs" / "references.md"
    bibliography = (ROOT / "instances" / "data" / "references.bib").read_text()
    texts[references] = with_references(references.read_text(), methods, bibliography)
    return texts


def main() -> None:
    """Write what has changed, and say so."""
    for path, text in made().items():
        if path.read_text() != text:
            path.write_text(text)
            sys.stdout.write(f"{path.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
