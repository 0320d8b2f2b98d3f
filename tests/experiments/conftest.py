"""Fake methods, registered for one test at a time, also in worker processes."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from placegap.solvers import METHODS

HERE = str(Path(__file__).parent)
if HERE not in sys.path:  # workers get the parent's sys.path
    sys.path.append(HERE)


@pytest.fixture
def fakes() -> Iterator[list[str]]:
    """Modules to hand to a pool; the fakes leave the registry after the test."""
    importlib.import_module("fake_methods")
    yield ["fake_methods"]
    METHODS.pop("fake", None)
    sys.modules.pop("fake_methods", None)
