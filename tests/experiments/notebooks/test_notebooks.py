"""Each notebook asks a question, runs, and shows what it was committed with.

After a change, ``UPDATE_NOTEBOOKS=1 pytest tests/experiments/notebooks`` stores the outputs anew.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from jupyter_client.manager import KernelManager
from references.notebooks import (
    FOLDER,
    committed,
    executed,
    first_picture,
    new_kernel,
    picture_of,
    pictures,
    shown_text,
    update,
    vivid_pixels,
)

LARGEST_BYTES = 550_000
QUICKSTART = '"quickstart.csv"'
PICTURES = {"placer": 1, "gpus": 1, "gaps": 5}
"""How many pictures each notebook shows."""

NAMES = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
RESULTS = sorted(
    (*FOLDER.parent.glob("papers/*/results/*.csv"), *FOLDER.parent.glob("ours/results/*.csv"))
)


@pytest.fixture(scope="module", autouse=True)
def stored() -> None:
    """With UPDATE_NOTEBOOKS, the outputs are stored anew, each notebook in a kernel of its own."""
    if "UPDATE_NOTEBOOKS" in os.environ:
        for name in PICTURES:
            update(name)


@pytest.fixture(scope="module")
def kernel() -> Iterator[KernelManager]:
    """One kernel for all: loading placegap takes longer than what most notebooks compute."""
    manager = new_kernel()
    yield manager
    manager.shutdown_kernel(now=True)


@pytest.mark.parametrize("name", PICTURES)
def test_it_runs_and_shows_what_it_was_committed_with(name: str, kernel: KernelManager) -> None:
    before, now = committed(name), executed(name, kernel)
    assert shown_text(now) == shown_text(before)
    assert [image.size for image in pictures(now)] == [image.size for image in pictures(before)]


@pytest.mark.parametrize("name", PICTURES)
def test_its_pictures_are_stored_and_show_something(name: str) -> None:
    drawn = pictures(committed(name))
    assert len(drawn) == PICTURES[name]
    assert picture_of(name).read_bytes() == first_picture(committed(name))
    for image in drawn:
        assert image.width >= 700
        assert vivid_pixels(image) > 1000


def code_of(name: str) -> list[str]:
    return [cell.source for cell in committed(name).cells if cell.cell_type == "code"]


def test_a_placer_takes_fewer_than_forty_lines() -> None:
    lines = [line for source in code_of("placer") for line in source.splitlines() if line.strip()]
    assert len([line for line in lines if not line.startswith(("%%writefile", "%cd"))]) < 40


def test_gaps_has_at_most_twelve_cells() -> None:
    assert len(committed("gaps").cells) <= 12


def show_gaps(results: Path) -> None:
    exec("\n".join(code_of("gaps")).replace(QUICKSTART, repr(str(results))), {})


@pytest.mark.parametrize("results", RESULTS, ids=lambda path: f"{path.parts[-3]}-{path.stem}")
def test_gaps_opens_the_results_of_papers_and_ours(results: Path) -> None:
    show_gaps(results)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "gaps"])  # another study's
def test_figures_of_the_last_words_are_in_an_output(name: str) -> None:
    notebook = committed(name)
    figures = re.findall(r"\d+\.\d+", notebook.cells[-1].source)
    shown = "\n".join(shown_text(notebook))
    assert figures
    assert [figure for figure in figures if figure not in shown] == []


@pytest.mark.parametrize("name", NAMES)
def test_every_cell_ran_in_order_and_none_failed(name: str) -> None:
    cells = [cell for cell in committed(name).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert "error" not in {output.output_type for cell in cells for output in cell.outputs}


@pytest.mark.parametrize("name", NAMES)
def test_it_is_small_and_names_no_machine(name: str) -> None:
    text = (FOLDER / f"{name}.ipynb").read_text()
    assert len(text) < LARGEST_BYTES
    without_images = re.sub(r'"image/png": "[^"]*"', "", text)
    assert re.findall(r"(?:/home|/root|/tmp|/Users|[A-Z]:\\\\)[^\s\"]*", without_images) == []
    assert str(FOLDER.parents[1]) not in text
    assert set(committed(name).metadata) == {"kernelspec", "language_info"}
