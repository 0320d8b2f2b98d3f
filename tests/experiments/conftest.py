"""Fake methods, registered for one test at a time, also in worker processes."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from placegap.solvers import METHODS

TESTS = str(Path(__file__).parents[1])
if TESTS not in sys.path:  # workers get the parent's sys.path
    sys.path.append(TESTS)


@pytest.fixture
def fakes() -> Iterator[list[str]]:
    """Modules to hand to a pool; the fakes leave the registry after the test."""
    importlib.import_module("doubles.fake_methods")
    yield ["doubles.fake_methods"]
    METHODS.pop("fake", None)
    sys.modules.pop("doubles.fake_methods", None)
