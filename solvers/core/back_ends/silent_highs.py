"""HiGHS without output."""

from __future__ import annotations

from typing import Any

import highspy


class SilentHighs(highspy.Highs):  # type: ignore[misc]
    """Silenced before callbacks are enabled, where HiGHS 1.16 prints a banner."""

    def enableCallbacks(self) -> None:  # noqa: N802
        self.silent()
        super().enableCallbacks()


def silent_highs(**options: Any) -> Any:
    """A solver with these options."""
    solver = SilentHighs()
    for option, value in options.items():
        solver.setOptionValue(option, value)
    return solver
