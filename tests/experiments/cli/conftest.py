"""What tests of the command line share: no worker processes, and the diamond in a file."""

from pathlib import Path

import pytest

from placegap.experiments.running import placing
from placegap.experiments.running.pool import run_here
from placegap.instances import Document, example, save_document


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts run right here: a process takes longer to start than they do."""
    monkeypatch.setattr(placing, "run_pool", run_here)


@pytest.fixture
def model(tmp_path: Path) -> str:
    """The diamond of four ops on its own two devices of one kind, "gpu", as a file."""
    save_document(Document.of(example()), tmp_path / "model.json")
    return str(tmp_path / "model.json")
