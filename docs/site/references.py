"""The page of references as a table of the bibliography: a hook of MkDocs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.pages import Page

BIBLIOGRAPHY = Path(__file__).resolve().parents[2] / "instances" / "data" / "references.bib"
MARK = "<!-- the bibliography -->"


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Put the papers where the page says so."""
    papers = entries(BIBLIOGRAPHY.read_text(encoding="utf-8"))
    rows = "".join(f"| `{key}` | {paper(fields)} |\n" for key, fields in papers.items())
    return markdown.replace(MARK, f"| key | paper |\n|---|---|\n{rows}")


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
