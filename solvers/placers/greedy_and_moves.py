"""The baselines of Tarnawski et al.: greedy by memory, and the best single moves from random plans.

greedy fills one accelerator after the other, the rest goes to the hosts. local-search starts from
random plans that honour memory and support, and makes the best move of one colour class, again and
again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from pydantic import Field

from placegap.instances.kernels.array_types import Flags, Floats, Ints
from placegap.instances.problem import OBJECTIVES, MaxLoad, Plan
from placegap.instances.problem.blocks import Blocks, contract
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.instances.problem.nets import build_nets
from placegap.solvers.chains.orders import order_of_keys
from placegap.solvers.chains.problem import ArcLists, arc_lists
from placegap.solvers.core.clock import Clock, LimitReached
from placegap.solvers.core.method import EFFORT, Cost, Params, Task
from placegap.solvers.core.registry import method
from placegap.solvers.core.result import Outcome
from placegap.solvers.placers.list_problem import NOWHERE
from placegap.solvers.placers.movable_units import (
    State,
    best_move,
    fits_nowhere,
    loads,
    move,
    start,
    units_of,
    why_not_one_level,
)

TRIES = 20  # draws of one start before it is given up
MOVES_BETWEEN_LOOKS = 64  # moves between two looks at the clock


@method(
    "greedy",
    objectives=OBJECTIVES,
    cites="Tarnawski et al. 2020",
    scope="all; a chain where the semantics asks for one",
    starts={"pipeline_iteration": Cost(0.4, 2.0)},
    applies=why_not_one_level,
)
def greedy(task: Task, params: Params | None = None) -> Outcome:
    """Fills devices in topological order, by memory alone.

    The baseline of Tarnawski et al. (NeurIPS 2020; their program ``greedy.cpp``). A block is a
    colour class or, where classes feed each other in a cycle, several. The current accelerator
    takes blocks while they fit; one that no longer fits opens the next accelerator; a block that is
    larger than any accelerator goes to a host and closes the current accelerator, and after the
    last accelerator all goes to the hosts. A heuristic that looks at no time and no transfer. O(b
    K) for b blocks, and O(n K + m log m) to find them.

    Deviations: support counts: an accelerator that cannot run a block counts as too small; hosts
    have memory limits, and where plans are chains or convex a host that was left is not used again;
    accelerators that were closed are tried last.
    """
    instance, semantics = task.instance, task.semantics
    one_pass = "call" in semantics.plan_fields
    blocks = contract(instance, merge_idle=False, one_pass=one_pass)
    one_way = semantics.plan_class != "any"
    returns = not one_way and not one_pass
    device, stuck = _fill(
        blocks,
        instance.arrays.memory_bytes,
        instance.arrays.is_host,
        one_way=one_way,
        returns=returns,
    )
    if stuck != NOWHERE:
        return fits_nowhere(instance, blocks, stuck, "fits on no device that greedy still fills")
    return Outcome(Plan.on(device[blocks.block].tolist()))


def _fill(
    blocks: Blocks, memory: Ints, is_host: Flags, *, one_way: bool, returns: bool
) -> tuple[Ints, int]:
    """Device of each block, and the block that fits nowhere or -1."""
    fits = (blocks.time_ns != UNSUPPORTED) & (blocks.resident_bytes[:, None] <= memory)
    accelerators, hosts = np.flatnonzero(~is_host), np.flatnonzero(is_host).tolist()
    goes_in = fits[:, accelerators].any(axis=1).tolist()
    to_fill, closed = accelerators.tolist(), list[int]()  # to_fill[0] is being filled
    able, size, time = fits.tolist(), blocks.resident_bytes.tolist(), blocks.time_ns.tolist()
    free, work, used = memory.tolist(), [0] * len(memory), [False] * len(memory)
    device = np.full(len(size), NOWHERE)
    last = NOWHERE
    for v in range(len(size)):
        candidates = [k for k in (to_fill if goes_in[v] else []) if able[v][k]]
        at = next((k for k in candidates if size[v] <= free[k]), NOWHERE)
        if at == NOWHERE:
            stay = last if one_way else NOWHERE
            here = [k for k in hosts if able[v][k] and size[v] <= free[k]]
            at = min(here, key=lambda k: (k != stay, work[k]), default=NOWHERE)
        if at == NOWHERE and returns:
            at = next((k for k in closed if able[v][k] and size[v] <= free[k]), NOWHERE)
        if at == NOWHERE:
            return device, v
        if at in to_fill:
            while to_fill[0] != at:
                closed.append(to_fill.pop(0))
        elif at in hosts and to_fill and used[to_fill[0]]:
            closed.append(to_fill.pop(0))
        if one_way and last in hosts and at != last:
            hosts.remove(last)
        device[v] = last = at
        free[at] -= size[v]
        work[at] += time[v][at]
        used[at] = True
    return device, NOWHERE


class LocalSearchParams(Params):
    #: How many random starts there are.
    restarts: int = Field(default=10, ge=1, json_schema_extra=EFFORT)


@method(
    "local-search",
    objectives=("max_load",),
    cites="Tarnawski et al. 2020",
    scope="max_load; a chain where the semantics asks for one",
    starts={"max_load": Cost(1.5, 10.0)},
    applies=why_not_one_level,
    packages=("numba",),
    seeded=True,
)
def local_search(task: Task[MaxLoad], params: LocalSearchParams) -> Outcome:
    """Best single moves from random starts.

    The ``-localSearch`` of Tarnawski et al. (NeurIPS 2020): classes on accelerators chosen
    uniformly at random; in each round the move of one class to another device that lowers the
    max_load most (ties: first class, then first device), until none lowers it; the best of some
    restarts. A heuristic. With a time limit the best plan until then is returned. O(nets of all
    units + K x nets of those on the heaviest device) per move.

    Deviations: starts are seeded; memory and support hold throughout; hosts are targets of moves,
    too; classes that feed each other in a cycle move one by one; where plans are chains or convex,
    blocks move, and only moves that keep a chain count.
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
        self.nets, self.arcs = build_nets(task.instance, units.block).lists, arc_lists(units)
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
        """The best moves, up to a limit; how many there were."""
        units = self.units
        for made in range(most):
            _, v, b = best_move(
                state,
                units.time_ns,
                units.resident_bytes,
                self.fits,
                self.memory,
                self.nets,
                self.arcs,
                self.overlap,
                self.chain,
            )
            if v < 0:
                return made
            move(state, units.time_ns, units.resident_bytes, self.nets, self.arcs, v, b)
        return most


class Draw(NamedTuple):
    """What a start must honour: support (u, K), bytes of units (u,), of devices (K,); hosts."""

    fits: Flags
    size: Ints
    memory: Ints
    is_host: Flags


def random_assignment(draw: Draw, generator: np.random.Generator) -> Ints | None:
    """Each unit on an accelerator chosen uniformly among those that run it and have room."""
    # Where no accelerator takes it, a host. Units go in random order; if one is left over, large
    # units go first in the draws that follow. None if no draw takes all.
    u = len(draw.size)
    for attempt in range(TRIES):
        order = generator.permutation(u)
        if attempt:
            order = order[np.argsort(-draw.size[order], kind="stable")]
        device = _assign(order, generator.random(u), draw)
        if len(device):
            return device
    return None


def _assign(order: Ints, share: Floats, draw: Draw) -> Ints:
    """Device of each unit; empty if one is left over."""
    size, free, is_host = draw.size.tolist(), draw.memory.tolist(), draw.is_host.tolist()
    able, chance = [np.flatnonzero(row).tolist() for row in draw.fits], share.tolist()
    device = np.zeros(len(size), np.int64)
    for v in order.tolist():
        room = [k for k in able[v] if size[v] <= free[k]]
        # a host only where no accelerator takes it
        candidates = [k for k in room if not is_host[k]] or room
        if not candidates:
            return np.zeros(0, np.int64)
        k = candidates[min(len(candidates) - 1, int(chance[v] * len(candidates)))]
        device[v] = k
        free[k] -= size[v]
    return device


def random_chain(draw: Draw, arcs: ArcLists, generator: np.random.Generator) -> Ints | None:
    """A random topological order, cut at random places, on accelerators in random order."""
    # A device that a block does not fit is left before its cut; from the second draw on hosts are
    # among the devices. None if no draw takes all.
    u = len(draw.size)
    for attempt in range(TRIES):
        keys = generator.permutation(u)
        order = order_of_keys(*arcs[:3], keys)
        devices = np.flatnonzero(~draw.is_host | bool(attempt))
        if len(devices) == 0:
            continue
        devices = generator.permutation(devices)
        cuts = np.append(np.sort(generator.integers(0, u + 1, len(devices) - 1)), u)
        device = _cut(order, devices, cuts, draw)
        if len(device):
            return device
    return None


def _cut(order: Ints, devices: Ints, cuts: Ints, draw: Draw) -> Ints:
    """Device of each block; empty if one is left over."""
    device, at, end = np.zeros(len(order), np.int64), 0, cuts.tolist()
    size, turn, memory = draw.size.tolist(), devices.tolist(), draw.memory.tolist()
    free = memory[turn[0]]
    for place, v in enumerate(order.tolist()):
        while place >= end[at] or not draw.fits[v, turn[at]] or size[v] > free:
            at += 1
            if at == len(turn):
                return np.zeros(0, np.int64)
            free = memory[turn[at]]
        device[v] = turn[at]
        free -= size[v]
    return device
