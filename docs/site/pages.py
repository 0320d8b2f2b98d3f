"""Pages of the site that do not lie in docs/, links between pages, and how tables look.

A hook of MkDocs. A page that lies elsewhere keeps its links there; here they lead to the same page
of the site.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from posixpath import dirname, join, normpath, relpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]

PAGES = {
    "README.md": "index.md",
    "docs/index.md": "pages.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "instances/data/references.bib": "references.bib",
}
"""File of the repository -> page of the site; what lies in docs/ keeps its name there."""

STUDIES = "experiments/README.md"
"""Links to it lead to the page of studies."""

WIDE = 8
"""Columns of a table that needs the room of the table of contents."""

BOOST = {
    "results.md": 0.2,
    "corpus.md": 0.5,
    "papers/": 0.2,
    "changelog.md": 0.1,
    "reference.md": 0.5,
}
"""What a page counts for in a search, by the start of its name: guides come before results."""

NUMBER = re.compile(r"<td>(?=[-+~]?(?:&lt;)?\d[\d,.]*(?: ?(?:%|[mun]?s|[kMGT]B|of \d+))*</td>)")
"""The beginning of a cell with a number."""

KEYWORDS = {
    "index.md": "device placement, model parallelism",
    "install.md": "docker, shell completion, bash, zsh, fish",
    "models.md": "huggingface, transformers, pytorch, safetensors",
    "gpus.md": "heterogeneous, multi-gpu, OOM, tensor parallelism",
    "memory.md": "OOM, CUDA out of memory, VRAM",
    "exports.md": "DeepSpeed, inference server, tensorrt",
    "studies.md": "LaTeX, benchmark, csv, dataframe",
    "pipelines.md": "pipeline parallelism, data parallelism, GPipe, zero bubble",
    "formulations.md": "MILP, Gurobi, CPLEX",
    "course/3-branch-and-bound.md": "big-M, indicator constraints",
    "objectives.md": "throughput, latency",
    "references.md": "BibTeX, cite, LaTeX",
}
"""Words under which readers look for a page that does not use them, as its tags in the search."""

RESEARCH = "python -m placegap.experiments.research"
IN_A_CHECKOUT = f"*Run what begins with `{RESEARCH}` in a checkout of placegap: no wheel has it.*"
"""The last line of a page with such a command that does not say so itself."""

CODE = re.compile(r"(?<=<code>)(?<!</span><code>)[^<>]+(?=</code>)")
PART = re.compile(r"[^\s&;]*[-/._+@:][^\s&;]*")
TEXT = re.compile(r"[^<>]+(?=<|$)")
LONGEST_WHOLE = 26
"""Letters of code in a text that never break: what a narrow column of a table holds."""

PRINTED = re.compile(r'(?<=<div class="highlight"><pre><span></span><code>).*?(?=</code>)', re.S)
TYPED = re.compile(r"(?:\$ |placegap |make |pip |\.venv/|python3? )")

BADGES = re.compile(r"<!-- data: badges -->.*?<!-- end of data -->\n", re.DOTALL)
LINK = re.compile(r"\]\((?![a-z]+:)([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages, and put the README in the place of docs/index.md."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    config.copyright = f"placegap {project['version']}, MIT licence"
    config.repo_url, config.repo_name = project["urls"].get("Repository"), "placegap"
    files.remove(files.src_uris["index.md"])
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=moved(source)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links of pages in docs/ to pages of the site; a wide table takes the room beside it."""
    uri = page.file.src_uri
    if max(map(num_columns, markdown.splitlines()), default=0) >= WIDE:
        page.meta.setdefault("hide", ["toc"])
    for start, boost in BOOST.items():
        if uri.startswith(start):
            page.meta.setdefault("search", {"boost": boost})
    if uri in KEYWORDS:
        page.meta.setdefault("tags", KEYWORDS[uri].split(", "))
    if RESEARCH in markdown and "n a checkout" not in markdown:
        markdown = f"{markdown.rstrip()}\n\n---\n\n{IN_A_CHECKOUT}\n"
    return markdown if uri in PAGES.values() else relinked(markdown, f"docs/{uri}")


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Numbers of tables stand on the right, and stay with their units; where code may break.

    Examples
    --------
    >>> on_page_content("<td>3.1 %</td><td>3.1 %; 2 ms</td><td>a 3</td>", *3 * [None])
    '<td class="number">3.1&nbsp;%</td><td>3.1&nbsp;%; 2&nbsp;ms</td><td>a 3</td>'
    """
    html = CODE.sub(whole_words, html)
    html = PRINTED.sub(folding, html)
    html = NUMBER.sub('<td class="number">', html)
    unit = r"(?<=\d) (?=(?:%|[mun]?s|[kMGT]B)\b(?![^<]*</code>)|%)(?=[^<]*</td>)"
    return re.sub(unit, "&nbsp;", html)


def unbroken(found: re.Match[str]) -> str:
    """A name or path that stays on its line; a long one breaks behind its signs alone.

    Examples
    --------
    >>> PART.sub(unbroken, "place --help")
    'place <span class="whole">--help</span>'
    """
    if len(found[0]) <= LONGEST_WHOLE:
        return f'<span class="whole">{found[0]}</span>'
    return re.sub(r"(?<=[\w)])([-/._+@:]+)(?=\w)", r"\1<wbr>", found[0])


def whole_words(found: re.Match[str]) -> str:
    """A text in which names and paths stay whole."""
    return PART.sub(unbroken, found[0])


def folding(found: re.Match[str]) -> str:
    """What is typed or printed folds where a screen is narrow; of tables, only what is typed."""
    if "<span" in found[0]:  # a language, in which an indent may mean something
        return found[0]
    is_table = "─" in found[0] or "|" in found[0]
    lines = found[0].split("\n")
    folds = [bool(TYPED.match(line)) or (line != "" and not is_table) for line in lines]
    return "\n".join(
        f'<span class="fold">{TEXT.sub(whole_words, line)}</span>' if can_fold else line
        for line, can_fold in zip(lines, folds, strict=True)
    )


def num_columns(line: str) -> int:
    """The columns of a table, from the line below its heads; 0 of any other line.

    Examples
    --------
    >>> num_columns("|---|---|"), num_columns("| a | b |")
    (2, 0)
    """
    return line.count("|") - 1 if re.fullmatch(r"\|[-:| ]+\|", line) else 0


def moved(source: str) -> str:
    """The text of a file, with links as the site has them, and without badges of other hosts."""
    text = BADGES.sub("", (ROOT / source).read_text())
    return relinked(text, source)


def relinked(markdown: str, source: str) -> str:
    """Links of a file of the repository, as links of the site.

    Examples
    --------
    >>> relinked("[a](../README.md#install), [b](trust.md)", "docs/memory.md")
    '[a](index.md#install), [b](trust.md)'
    >>> relinked("[a](../trust.md), [b](2-milp.md)", "docs/course/1-instance.md")
    '[a](../trust.md), [b](2-milp.md)'
    """
    here = dirname(source)
    there = dirname(source.removeprefix("docs/")) if here.startswith("docs") else ""

    def link(found: re.Match[str]) -> str:
        target = normpath(join(here, found[1]))
        page = {**PAGES, STUDIES: "studies.md"}.get(target, target.removeprefix("docs/"))
        return f"]({relpath(page, there or '.')}{found[2] or ''})"

    return LINK.sub(link, markdown)
