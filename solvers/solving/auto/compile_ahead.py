"""Kernels of both lanes, compiled before they start where a machine has none yet.

A lane that compiles beside solvers on all cores gets a third of one: GoogLeNet within 90 s ended
after 266 s, most of which was compiling. Here it is done once, by two processes: one compiles what
searches need while the other still runs placers, and then what proofs need.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from multiprocessing.connection import Connection

from placegap.instances.problem.instance import Instance
from placegap.instances.structure.bottlenecks import memory_is_slack
from placegap.solvers.core.clock import compiled_s, waiting_for_kernels
from placegap.solvers.core.interrupts import stop_asked
from placegap.solvers.core.worker_process import WorkerProcess, silence
from placegap.solvers.solving.auto.parts import warm_up
from placegap.solvers.solving.auto.rules import AutoStep

COLD_S = 1.0
"""A process that has compiled for so long runs where kernels are not compiled yet."""

POLL_S = 0.1

_done: set[tuple[str, bool]] = set()


class KernelCompiler:
    """Compiles what the methods of steps need, each once in the life of this process.

    Where kernels have been compiled before, nothing is done: loading them is left to the lanes.

    Parameters
    ----------
    instance : Instance
        Where memory is tight, kernels are compiled that only such instances need.
    """

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._other: WorkerProcess | None = None

    @cached_property
    def _is_tight(self) -> bool:
        return not memory_is_slack(self._instance)

    def close(self) -> None:
        """End the other process."""
        if self._other is not None:
            self._other.kill()

    def begin(self, steps: Iterable[AutoStep]) -> None:
        """Let another process compile for some steps, if kernels are missing and it can start."""
        if self._other is not None or compiled_s() < COLD_S:
            return
        if new := _new(steps, self._is_tight):
            try:
                self._other = WorkerProcess(_serve, (new, self._is_tight))
            except OSError:  # then this process will
                _done.difference_update((step.method, self._is_tight) for step in new)

    def finish(self, here: Iterable[AutoStep], there: Iterable[AutoStep]) -> None:
        """Compile for some steps here, and for others there, if not here, and wait for that."""
        if compiled_s() < COLD_S:
            return
        there = list(there)
        self.begin(there)
        _warm_up(_new([*here, *there], self._is_tight), self._is_tight)
        if self._other is not None:
            with waiting_for_kernels():
                while not stop_asked() and not self._other.pipe.poll(POLL_S):
                    pass  # once there is something to read, it is done or gone


def _new(steps: Iterable[AutoStep], is_tight: bool) -> list[AutoStep]:
    found = list[AutoStep]()
    for step in steps:
        if (step.method, is_tight) not in _done:
            _done.add((step.method, is_tight))
            found.append(step)
    return found


def _warm_up(steps: Sequence[AutoStep], is_tight: bool) -> None:
    for step in steps:
        if not stop_asked():
            warm_up(step, is_tight=is_tight)


def _serve(pipe: Connection, steps: Sequence[AutoStep], is_tight: bool) -> None:
    silence()
    _warm_up(steps, is_tight)
    pipe.send(None)
