"""The site: every page is there, no link is broken, and nothing is asked of another host."""

import doctest
import importlib
import json
import os
import re
import runpy
from pathlib import Path
from types import ModuleType

import pytest

from placegap.solvers import METHODS

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built strictly: a broken link or anchor, or a page outside of the menu, fails."""
    pytest.importorskip("latex2mathml", reason="needs the docs extra")
    os.environ["NO_MKDOCS_2_WARNING"] = "1"  # read when it is imported
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("site")
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder), strict=True))
    return folder


def test_every_page_of_the_documentation_is_on_the_site(site: Path) -> None:
    pages = {path.stem for path in site.glob("*.html")}
    assert {path.stem for path in (ROOT / "docs").glob("*.md")} <= pages
    assert {"pages", "contributing", "changelog"} <= pages


def test_every_page_has_its_navigation(site: Path) -> None:
    assert [page.name for page in site.rglob("*.html") if "md-nav" not in page.read_text()] == []


def test_no_link_is_named_after_a_file(site: Path) -> None:
    named = re.compile(r"\[[^\]]*\.md[^\]]*\]\(")
    pages = (*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "experiments" / "README.md")
    assert [page.name for page in pages if named.search(page.read_text())] == []


def test_the_page_of_methods_has_every_method(site: Path) -> None:
    text = (site / "methods.html").read_text()
    assert [name for name in METHODS if f'id="{name}"' not in text] == []


def shown(page: Path) -> str:
    """The text of a page, without its tags."""
    (article,) = re.findall(r"<article.*?</article>", page.read_text(), re.DOTALL)
    return re.sub(r"<[^>]+>", "", article)


def test_a_page_says_at_its_end_which_of_its_commands_no_wheel_has(site: Path) -> None:
    research, said = "python -m placegap.experiments.research", "n a checkout"
    texts = {page.stem: shown(page) for page in site.rglob("*.html") if page.stem != "404"}
    needs = {name: text for name, text in texts.items() if research in text}
    assert len(needs) > 5
    assert [name for name, text in needs.items() if said not in text] == []
    closed = [text for text in texts.values() if "Run what begins with" in text]
    assert [text[:60] for text in closed if "Run what" not in text.strip()[-160:]] == []
    assert "Run what begins with" not in texts["install"]


@pytest.mark.parametrize(
    ("word", "page"),
    [("huggingface", "models.html"), ("LaTeX", "studies.html"), ("docker", "install.html")],
)
def test_a_word_of_readers_finds_its_page(site: Path, word: str, page: str) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text())
    assert any(
        word in entry.get("tags", ()) for entry in index["docs"] if entry["location"] == page
    )


def test_a_command_folds_and_a_name_does_not_break(site: Path) -> None:
    text = (site / "command-line.html").read_text()
    assert '<span class="fold">placegap place <span class="whole">model.onnx</span>' in text
    assert '<span class="whole">--help</span>' in text
    assert [
        page.name
        for page in site.rglob("*.html")
        if 'id="__' in re.sub(r"<[^>]+>", "", page.read_text())
    ] == []
    # tables that are printed keep their lines
    assert '<span class="fold"> heft' not in (site / "index.html").read_text()


@pytest.mark.parametrize(
    "package",
    ["placegap.instances", "placegap.solvers", "placegap.experiments", "placegap.testing"],
)
def test_the_reference_has_every_exported_name(site: Path, package: str) -> None:
    text = (site / "reference.html").read_text()
    names = importlib.import_module(package).__all__
    assert [name for name in names if f'id="{package}.{name}"' not in text] == []
    assert 'id="placegap.solve"' in text
    # what own placers read, with the notes beside the fields
    assert "Time of each op on each device" in text
    assert "First-in-first-out Kahn order" in text


def test_the_page_of_references_lists_the_bibliography(site: Path) -> None:
    listed = re.findall(r"<td><code>(\w+)</code></td>", (site / "references.html").read_text())
    bibliography = (ROOT / "instances" / "data" / "references.bib").read_text()
    assert listed == re.findall(r"^@\w+\{([^,]+),", bibliography, re.MULTILINE)


def test_examples_of_the_sites_code_run() -> None:
    for path in (ROOT / "docs" / "site").glob("*.py"):
        found = runpy.run_path(str(path))
        module = ModuleType(path.stem)
        module.__dict__.update(found)
        assert doctest.testmod(module, raise_on_error=False).failed == 0


def test_badges_and_links_come_from_the_address_of_the_project(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from placegap.experiments.cli import publish
    from placegap.experiments.research import pages

    assert not list(pages.badges(""))
    tests, _ = pages.badges("https://example.org/placegap")
    assert tests.startswith("[![tests](https://example.org/placegap/actions/workflows/ci.yml/")
    monkeypatch.setattr(publish, "repository", lambda: "https://example.org/placegap")
    assert "  url = {https://example.org/placegap},\n}" in publish.own_entry()
    assert "badges" not in (site / "index.html").read_text()


def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    loads = re.compile(r"<(?:script|img|iframe|link(?![^>]*canonical))[^>]*(?:src|href)=\"?https?:")
    assert [page.name for page in site.rglob("*.html") if loads.search(page.read_text())] == []


def test_the_course_is_on_the_site_and_its_links_lead_to_pages(site: Path) -> None:
    chapters = sorted(path.stem for path in (ROOT / "docs" / "course").glob("*.md"))
    assert sorted(path.stem for path in (site / "course").glob("*.html")) == chapters
    assert re.search(r'href="?\.\./exact\.html', (site / "course" / "5-ideal-dp.html").read_text())


def test_every_formula_is_mathematics_that_browsers_draw_by_themselves(site: Path) -> None:
    pages = [ROOT / "docs" / "formulations.md", *(ROOT / "docs" / "course").glob("*.md")]
    for page in pages:
        drawn = (site / page.relative_to(ROOT / "docs").with_suffix(".html")).read_text()
        prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
        formulas = re.findall(r"\$\$.+?\$\$|\$.+?\$", prose, re.DOTALL)
        assert drawn.count("<math") == len(formulas) > 0
        assert "arithmatex" not in drawn
        # what the converter does not know it writes as an identifier with its backslash
        assert re.findall(r"<m[io][^>]*>\\\w+", drawn) == []
