"""Figures leave nothing behind, tell many methods apart, and are optional."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

CODE = """
import sys, os
sys.path[:0] = [{tests!r}, {tests!r} + "/experiments"]
os.environ["MPLBACKEND"] = "svg"
import matplotlib
before = dict(matplotlib.rcParams)
from doubles.gap_runs import CHAIN, cells_of, plan
from placegap.experiments.studies.report import plot_gaps
from placegap.experiments.show.drawing import plot_deviations
from placegap.instances.importers.measurements import Deviations
import numpy as np
plot_gaps(cells_of({{("t", "net", "dp"): plan(9, 9)}}, {{"t": CHAIN}}))
plot_deviations({{"a": Deviations(np.array([0.1]), 0)}}, "t")
assert "matplotlib.pyplot" not in sys.modules, "pyplot"
assert dict(matplotlib.rcParams) == before, "settings"
"""


def test_drawing_chooses_no_backend_and_changes_no_setting() -> None:
    code = CODE.format(tests=str(ROOT / "tests"))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_picture_that_is_asked_for_is_an_error_without_matplotlib(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from placegap.experiments.show.drawing import new_figure
    from placegap.instances.reading.errors import InputError

    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(InputError, match=r"pip install 'placegap\[plots\]'"):
        new_figure(1, 1)
