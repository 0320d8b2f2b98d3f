"""What all tests rely on."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from importlib.util import find_spec

import pytest


@pytest.fixture(scope="session", autouse=True)
def ctrl_c_works() -> Iterator[None]:
    """Tests interrupt themselves; ``nohup make test &`` in a script has Ctrl-C ignored."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests that need torch where it is not installed."""
    if item.get_closest_marker("torch") is not None and find_spec("torch") is None:
        pytest.skip("needs the torch extra: make test-torch")


@pytest.fixture(autouse=True)
def wide_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """A width that the terminal hands down would fold lines that tests look for."""
    monkeypatch.delenv("COLUMNS", raising=False)
