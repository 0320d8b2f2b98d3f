"""The notebook of gaps shows the recorded quickstart study, and reads those of others."""

from __future__ import annotations

import os

import pytest
from nbformat import NotebookNode
from PIL import Image
from references.notebooks import committed, executed, outputs, pictures, vivid_pixels
from references.readme_tables import RUNS


def assert_drawn(images: list[Image.Image]) -> None:
    assert len(images) == 3
    for image in images:
        assert image.width >= 700
        assert vivid_pixels(image) > 1000


@pytest.fixture(scope="module")
def stored() -> NotebookNode:
    return committed("gaps")


def test_it_is_committed_with_every_output(stored: NotebookNode) -> None:
    assert all(cell.outputs for cell in stored.cells if cell.cell_type == "code")
    assert len(outputs(stored, "text/html")) == 6
    assert_drawn(pictures(stored))
    assert os.sep not in RUNS.read_text()


def test_it_runs_and_shows_what_it_was_committed_with(stored: NotebookNode) -> None:
    now = executed("gaps")
    assert outputs(now, "text/plain") == outputs(stored, "text/plain")
    assert_drawn(pictures(now))
