"""local-search: from random starts, the best move of one colour class, again and again."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from placegap.instances.problem.array_types import Flags, Ints
from placegap.instances.problem.blocks import Blocks
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.instances.problem.nets import build_nets
from placegap.instances.problem.plan import Plan
from placegap.instances.problem.semantics import MaxLoad
from placegap.solvers.core.clock import Clock, LimitReached
from placegap.solvers.core.method import EFFORT, Cost, Method, Params, Task
from placegap.solvers.core.registry import register
from placegap.solvers.core.result import Outcome
from placegap.solvers.placers.greedy_and_moves import (
    Draw,
    greedy,
    random_assignment,
    random_chain,
)
from placegap.solvers.placers.movable_units import (
    State,
    arcs_of,
    best_move,
    loads,
    move,
    nets_of,
    start,
    units_of,
    why_not_one_level,
)

MOVES_BETWEEN_LOOKS = 64
"""Moves between two looks at the clock."""


class LocalSearchParams(Params):
    """Parameters of ``local-search``.

    Attributes
    ----------
    restarts : int
        How many random starts there are.
    """

    restarts: int = Field(default=10, ge=1, json_schema_extra=EFFORT)


def local_search(task: Task[MaxLoad], params: LocalSearchParams) -> Outcome:
    """Descend from random plans by the best move of one unit, and keep the best end.

    The ``-localSearch`` of Tarnawski et al. (NeurIPS 2020): classes on accelerators chosen
    uniformly at random; in each round the move of one class to another device that lowers the
    max_load most (ties: first class, then first device), until none lowers it; the best of some
    restarts. A heuristic. Deviations: starts are seeded; memory and support are honoured, at the
    start (what fits no accelerator any more starts on a host) and by every move; hosts are targets
    of moves like any device; where plans may be any, classes that feed each other in a cycle move
    one by one. Where plans must be a chain or convex, units are the blocks of
    `instances.problem.blocks`, a start cuts a random topological order at random places, and
    only moves that keep the devices a chain count. With a time limit the best plan until then is
    returned. O(u + K x units of the heaviest device) per move for u units,
    `pipelines.loads_under_moves`.

    Examples
    --------
    >>> from placegap.instances import MaxLoad, example
    >>> task = Task(example(), MaxLoad())
    >>> local_search(task, LocalSearchParams()).plan.placement
    ((1,), (0,), (1,), (1,))
    """
    clock, units = Clock(task.limits.time_limit_s), units_of(task)
    descent = _Descent(task, units)
    best: Ints | None = None
    least, moves, done, message = 0, 0, 0, ""
    try:
        for done in range(params.restarts):
            first = descent.draw(np.random.default_rng([task.limits.seed, done]))
            if first is None:
                clock.check()
                continue
            state = descent.begin(first)
            while True:
                made = descent.improve(state, MOVES_BETWEEN_LOOKS)
                moves += made
                value = int(loads(state, descent.overlap).max())
                if best is None or value < least:
                    best, least = state.device.copy(), value
                if made < MOVES_BETWEEN_LOOKS:
                    break
                clock.check()
            clock.check()
        done += 1
    except LimitReached as limit:
        message = f"stopped after {done} restarts: {limit}"
    details = {"units": units.num_blocks, "moves": moves, "restarts": done}
    if best is None:
        reason = "no start honours memory and support"
        return Outcome(message=f"{reason}; {message}" if message else reason, details=details)
    return Outcome(Plan.on(best[units.block].tolist()), message=message, details=details)


class _Descent:
    """The kernels with the arrays of one task."""

    def __init__(self, task: Task[MaxLoad], units: Blocks) -> None:
        arrays = task.instance.arrays
        self.task, self.units = task, units
        self.overlap = task.semantics.load == "overlap"
        self.chain = task.semantics.plans != "any"
        self.nets, self.arcs = nets_of(build_nets(task.instance, units.block)), arcs_of(units)
        self.memory = arrays.memory_bytes
        self.fits: Flags = units.time_ns != UNSUPPORTED

    def draw(self, generator: np.random.Generator) -> Ints | None:
        """Device of each unit at the start, or None if no start was found."""
        arrays = self.task.instance.arrays
        draw = Draw(self.fits, self.units.resident_bytes, self.memory, arrays.is_host)
        found = (
            random_chain(draw, self.arcs, generator)
            if self.chain
            else random_assignment(draw, generator)
        )
        if found is not None:
            return found
        plan = greedy(self.task).plan
        if plan is None:
            return None
        device = np.zeros(self.units.num_blocks, np.int64)
        device[self.units.block] = plan.devices
        return device

    def begin(self, device: Ints) -> State:
        """The state of a start."""
        units = self.units
        return start(device, units.time_ns, units.resident_bytes, self.nets, self.arcs)

    def improve(self, state: State, most: int) -> int:
        """At most so many best moves; how many there were."""
        units = self.units
        for made in range(most):
            _, v, b = best_move(
                state,
                units.time_ns,
                units.resident_bytes,
                self.fits,
                self.memory,
                self.arcs,
                self.overlap,
                self.chain,
            )
            if v < 0:
                return made
            move(state, units.time_ns, units.resident_bytes, self.nets, self.arcs, v, b)
        return most


register(
    Method(
        name="local-search",
        claim="heuristic",
        objectives=("max_load",),
        scope="max_load; a chain where the semantics asks for one",
        paper="Tarnawski et al. 2020",
        cites=("tarnawski2020",),
        summary="best single moves from random starts",
        starts={"max_load": Cost(1.5, 10.0)},
        run=local_search,
        params=LocalSearchParams,
        applies=why_not_one_level,
        packages=("numba",),
    )
)
