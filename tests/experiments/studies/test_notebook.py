"""The notebook is committed with its tables and pictures, and it still runs."""

from __future__ import annotations

import base64
import io
import json
import re

import nbformat
import pytest
from nbformat import NotebookNode
from PIL import Image
from references.readme_tables import NOTEBOOK, RUNS, executed

LARGEST_BYTES = 500_000


def outputs(notebook: NotebookNode, kind: str) -> list[str]:
    return [
        output["data"][kind]
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if kind in output.get("data", {})
    ]


@pytest.fixture(scope="module")
def committed() -> NotebookNode:
    return nbformat.read(NOTEBOOK, as_version=4)


def pictures(notebook: NotebookNode) -> list[Image.Image]:
    return [
        Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB")
        for data in outputs(notebook, "image/png")
    ]


def assert_drawn(images: list[Image.Image]) -> None:
    assert len(images) == 2
    for image in images:
        assert image.width >= 700
        colours = image.getcolors(maxcolors=1 << 24)
        assert colours is not None
        # more than white paper, grey text and grid
        vivid = [count for count, (r, g, b) in colours if max(r, g, b) - min(r, g, b) > 60]
        assert sum(vivid) > 1000


def test_it_is_committed_with_every_output(committed: NotebookNode) -> None:
    assert all(cell.outputs for cell in committed.cells if cell.cell_type == "code")
    assert len(outputs(committed, "text/html")) == 3
    assert_drawn(pictures(committed))


def test_it_is_small_and_names_no_machine(committed: NotebookNode) -> None:
    text = NOTEBOOK.read_text()
    assert len(text) < LARGEST_BYTES
    without_images = re.sub(r'"image/png": "[^"]*"', "", text)
    assert re.findall(r"(?:/home|/root|/tmp|/Users|[A-Z]:\\\\)[^\s\"]*", without_images) == []
    assert str(NOTEBOOK.parents[2]) not in text
    assert set(committed.metadata) == {"kernelspec", "language_info"}
    assert "/" not in RUNS.read_text()


def test_it_runs_and_shows_what_it_was_committed_with(committed: NotebookNode) -> None:
    now = executed()
    assert outputs(now, "text/plain")[:3] == outputs(committed, "text/plain")[:3]
    assert_drawn(pictures(now))


def test_it_reads_the_runs_of_another_study(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:  # type: ignore[no-untyped-def]
    lines = RUNS.read_text().splitlines(keepends=True)
    some = [line for line in lines[1:] if ",max_load," in line and "oracle" not in line][:36]
    (tmp_path / "runs.csv").write_text("".join([lines[0], *some]))
    monkeypatch.setenv("PLACEGAP_RUNS", str(tmp_path / "runs.csv"))
    assert_drawn(pictures(executed()))


def test_its_source_draws_without_pyplot(committed: NotebookNode) -> None:
    assert "pyplot" not in json.dumps([cell.source for cell in committed.cells])
