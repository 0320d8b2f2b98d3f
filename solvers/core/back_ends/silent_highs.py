"""HiGHS without output."""

from __future__ import annotations

from typing import Any

import highspy


class SilentHighs(highspy.Highs):  # type: ignore[misc]
    """Silenced before callbacks are enabled, where HiGHS 1.16 prints a banner."""

    def enableCallbacks(self) -> None:  # noqa: N802
        self.silent()
        super().enableCallbacks()

    def run(self) -> Any:
        """Solve; again with threads made anew if another solve of the process fixed their number.

        HiGHS keeps the number of the first solve, and refuses others. That of a user's own solve is
        not ours.
        """
        status = super().run()
        if status == highspy.HighsStatus.kError:
            highspy.Highs.resetGlobalScheduler(True)
            status = super().run()
        return status


def silent_highs(**options: Any) -> Any:
    """A solver with these options."""
    solver = SilentHighs()
    for option, value in options.items():
        solver.setOptionValue(option, value)
    return solver
