"""The helper that starts programs for the tests."""

from __future__ import annotations

import signal

import pytest
from doubles.processes import begin, finish

SHOW = """
import signal
print([signal.getsignal(n).__class__.__name__ + str(int(signal.getsignal(n)) if n != 2 else "")
       for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)])
"""


def test_signals_of_the_program_are_as_usual() -> None:
    out, err = finish(begin(SHOW))
    assert (out, err) == ("['builtin_function_or_method', 'Handlers0', 'Handlers0']\n", "")
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
