"""What all tests rely on."""

import gc
import signal
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def ctrl_c_works() -> Iterator[None]:
    """Tests interrupt themselves; ``nohup make test &`` in a script has Ctrl-C ignored."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


ROOMS = ("test_package.py", "instances", "formulations", "solvers", "experiments")
"""Files and folders of tests, in the order in which they are run; all others come last."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests of a layer after those of the layers that it imports."""
    tests = Path(__file__).parent

    def room(item: pytest.Item) -> int:
        first = item.path.relative_to(tests).parts[0]
        return ROOMS.index(first) if first in ROOMS else len(ROOMS)

    items.sort(key=room)


def pytest_collection_finish() -> None:
    """Look for garbage seldom, and never in what modules hold: that took a tenth of the time."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests that need torch where it is not installed."""
    if item.get_closest_marker("torch") is not None and find_spec("torch") is None:
        pytest.skip("needs the torch extra: make test-torch")


@pytest.fixture(autouse=True)
def wide_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """A width that the terminal hands down would fold lines that tests look for."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(autouse=True)
def no_kept_proofs(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test proves must not be known to another one, nor to the user."""
    monkeypatch.setenv("PLACEGAP_PROOFS", "")
