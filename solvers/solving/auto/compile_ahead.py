"""Kernels of both lanes, compiled before they start where a machine has none yet.

A lane that compiles beside solvers on all cores gets a third of one: GoogLeNet within 90 s ended
after 266 s, most of which was compiling. Here it is done once, and nothing competes with it.
"""

from __future__ import annotations

from collections.abc import Iterable

from placegap.solvers.core.clock import compiled_s
from placegap.solvers.core.interrupts import stop_asked
from placegap.solvers.solving.auto.parts import warm_up
from placegap.solvers.solving.auto.rules import AutoStep

COLD_S = 1.0
"""A process that has compiled for so long runs where kernels are not compiled yet."""

_done: set[tuple[str, bool]] = set()


def compile_ahead(steps: Iterable[AutoStep], *, is_tight: bool) -> None:
    """Compile what the methods of some steps need, each once in the life of this process.

    `is_tight` says whether memory is. Where kernels have been compiled before, nothing is done:
    loading them is left to the lanes.
    """
    if compiled_s() < COLD_S:
        return
    for step in steps:
        if (step.method, is_tight) not in _done and not stop_asked():
            _done.add((step.method, is_tight))
            warm_up(step, is_tight=is_tight)
