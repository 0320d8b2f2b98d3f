"""Stand-ins are methods for one test at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from references.own_methods import methods_restored

from placegap.experiments import research
from placegap.solvers import use_module
from placegap.solvers.core.registry import STAND_INS


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    with methods_restored(Path(research.__file__).parent / "stand_ins"):
        use_module(STAND_INS)
        yield
