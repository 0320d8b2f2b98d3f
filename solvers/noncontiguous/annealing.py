"""Simulated annealing of a partition of the blocks: loads kept up to date move by move.

The energy is the logarithm of the p-norm of the loads: with a high p the heaviest device alone
counts, with a lower one the others do as well. A move takes a connected group of blocks from one
device to another, or swaps two blocks; only these two devices' loads change, by what the nets of
the blocks say.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.instances.problem.kernels import copy_to, draw, kernel
from placegap.solvers.core.clock import Clock
from placegap.solvers.noncontiguous.problem import SplitProblem

COLD = 1e-5
"""Temperature at the end, relative to the energy."""

GROWTH = 5.0
"""By what p grows until the end."""

STAGE = 1024
"""Moves at one temperature."""

CHUNK = 4 * STAGE
"""Moves between looks at the clock."""


class _Data(NamedTuple):
    """The problem's arrays."""

    overlap: bool
    time_ns: Ints
    size_bytes: Ints
    memory_bytes: Ints
    net_ptr: Ints
    pin: Ints
    block_ptr: Ints
    net: Ints
    weight_ns: Ints


class _State(NamedTuple):
    """Device of each block; per device its load, what adds up to it, memory; pins of each net."""

    device: Ints
    load: Ints
    time: Ints
    paid: Ints
    held: Ints
    inside: Ints


def anneal(
    problem: SplitProblem,
    start: Ints,
    *,
    seed: int,
    moves: int,
    hot: float = 0.02,
    power: float = 20.0,
    clock: Clock | None = None,
    doublings: int = 6,
) -> Ints:
    """The best plan seen, never heavier than the start.

    Parameters
    ----------
    problem : SplitProblem
    start : (b,) int64
        Devices of the blocks, feasible: every plan seen is.
    seed, moves : int
        Random numbers, and how many moves are tried.
    hot : float
        Temperature at the beginning, relative to the energy; it falls to `COLD`.
    power : float
        p at the beginning.
    clock : Clock, optional
        When it is over, the best plan so far is returned; it cools faster where its time is short.
    doublings : int
        Groups that move have at most 2^doublings blocks.

    Notes
    -----
    O(d) per block that moves, for d nets each: about 2 million moves a second.

    Examples
    --------
    >>> from placegap.instances import example
    >>> from placegap.solvers.noncontiguous.problem import build_split_problem
    >>> problem = build_split_problem(example())
    >>> plan = anneal(problem, np.zeros(4, np.int64), seed=0, moves=1000)
    >>> int(problem.loads(plan).max())
    25
    """
    if problem.num_devices < 2 or moves == 0:
        return start.copy()
    nets, device = problem.nets, start.copy()
    data = _Data(
        problem.overlap,
        problem.time_ns,
        problem.size_bytes,
        problem.memory_bytes,
        nets.net_ptr,
        nets.pin,
        nets.block_ptr,
        nets.net,
        nets.weight_ns,
    )
    held = np.zeros(problem.num_devices, np.int64)
    np.add.at(held, device, problem.size_bytes)
    inside = np.zeros((nets.num_nets, problem.num_devices), np.int64)
    of_pin = np.repeat(np.arange(nets.num_nets), np.diff(nets.net_ptr))
    np.add.at(inside, (of_pin, device[nets.pin]), 1)
    state = _State(device, problem.loads(device), *problem.parts(device), held, inside)
    best, least = device.copy(), int(state.load.max())
    rng, mark = np.random.default_rng(seed), np.zeros(problem.num_blocks, np.int64)
    done, part = 0, float(clock is not None and clock.left_s == 0.0)
    while done < moves and part < 1.0:
        count = min(CHUNK, moves - done)
        least = _anneal(
            data, state, best, mark, least, rng, done, count, part, moves, hot, power, doublings
        )
        done += count
        part = done / moves
        if clock is not None and clock.limit_s is not None:
            part = max(part, clock.spent_s / clock.limit_s if clock.limit_s else 1.0)
    return best


@kernel(nogil=True)
def _anneal(
    data: _Data,
    state: _State,
    best: Ints,
    mark: Ints,
    least: int,
    rng: np.random.Generator,
    done: int,
    count: int,
    part: float,
    moves: int,
    hot: float,
    power: float,
    doublings: int,
) -> int:
    """So many moves more, from a part of the way on; the least load seen, its plan in `best`."""
    num_blocks = len(state.device)
    group = np.zeros(num_blocks + 1, np.int64)
    energy, p, temperature = 0.0, power, hot
    for step in range(done, done + count):
        if (step - done) % STAGE == 0:
            at = min(1.0, part + (step - done) / moves)
            p = power * GROWTH**at
            temperature = hot * (COLD / hot) ** at
            energy = _energy(state.load, p)
        v = draw(rng, num_blocks)
        a, b = int(state.device[v]), _destination(data, state, rng, v)
        if a == b:
            continue
        size = _choose(data, state, rng, v, b, group, mark, step + 1, doublings)
        if not _supported(data, state, group[:size], a, b):
            continue
        _exchange(data, state, group[:size], a, b)
        after = _energy(state.load, p)
        if (
            state.held[a] <= data.memory_bytes[a]
            and state.held[b] <= data.memory_bytes[b]
            and (after <= energy or rng.random() < np.exp((energy - after) / temperature))
        ):
            energy = after
            if state.load.max() < least:
                least = state.load.max()
                copy_to(best, state.device)
        else:
            _exchange(data, state, group[:size], a, b)
    return int(least)


@kernel(nogil=True, allocates=False)
def _energy(load: Ints, power: float) -> float:
    """Logarithm of the p-norm of the loads."""
    largest = 1.0
    for one in load:
        largest = max(largest, float(one))
    total = 0.0
    for k in range(len(load)):
        total += (load[k] / largest) ** power
    return float(np.log(largest) + np.log(total) / power)


@kernel(nogil=True, allocates=False)
def _destination(data: _Data, state: _State, rng: np.random.Generator, v: int) -> int:
    """A device that shares a net with block v, three times out of four; else any."""
    nets = data.block_ptr[v + 1] - data.block_ptr[v]
    if nets == 0 or draw(rng, 4) == 0:
        return draw(rng, len(state.load))
    e = data.net[data.block_ptr[v] + draw(rng, nets)]
    at = data.net_ptr[e] + draw(rng, data.net_ptr[e + 1] - data.net_ptr[e])
    return int(state.device[data.pin[at]])


@kernel(nogil=True, allocates=False)
def _choose(
    data: _Data,
    state: _State,
    rng: np.random.Generator,
    v: int,
    to: int,
    group: Ints,
    mark: Ints,
    stamp: int,
    doublings: int,
) -> int:
    """Blocks that move: v with others around it, v and one in exchange, or v alone; how many."""
    group[0] = v
    kind = draw(rng, 8)
    if kind < 4:
        most = 1 + draw(rng, 2 << draw(rng, doublings))
        return int(_surroundings(data, state, most, group, mark, stamp))
    if kind == 4:
        w = draw(rng, len(mark))
        if state.device[w] == to:
            group[1] = w
            return 2
    return 1


@kernel(nogil=True, allocates=False)
def _surroundings(
    data: _Data, state: _State, most: int, group: Ints, mark: Ints, stamp: int
) -> int:
    """Up to `most` blocks on the device of the group's first, breadth first over nets."""
    v = group[0]
    mark[v] = stamp
    count, at = 1, 0
    while at < count < most:
        w = group[at]
        at += 1
        for i in range(data.block_ptr[w], data.block_ptr[w + 1]):
            for j in range(data.net_ptr[data.net[i]], data.net_ptr[data.net[i] + 1]):
                u = data.pin[j]
                if count < most and mark[u] != stamp and state.device[u] == state.device[v]:
                    group[count], mark[u] = u, stamp
                    count += 1
    return count


@kernel(nogil=True, allocates=False)
def _supported(data: _Data, state: _State, group: Ints, a: int, b: int) -> bool:
    """Whether every block runs on the other one of the two devices."""
    supported = True
    for v in group:
        supported &= data.time_ns[v, a + b - state.device[v]] != UNSUPPORTED
    return supported


@kernel(nogil=True, allocates=False)
def _exchange(data: _Data, state: _State, group: Ints, a: int, b: int) -> None:
    """Every block of the group goes to the other one of two devices; twice is as before."""
    for v in group:
        source = state.device[v]
        to = a + b - source
        state.time[source] -= data.time_ns[v, source]
        state.time[to] += data.time_ns[v, to]
        state.held[source] -= data.size_bytes[v]
        state.held[to] += data.size_bytes[v]
        for at in range(data.block_ptr[v], data.block_ptr[v + 1]):
            e = data.net[at]
            pins = data.net_ptr[e + 1] - data.net_ptr[e]
            if state.inside[e, source] == pins:
                state.paid[source] += data.weight_ns[e, source]
            elif state.inside[e, source] == 1:
                state.paid[source] -= data.weight_ns[e, source]
            if state.inside[e, to] == 0:
                state.paid[to] += data.weight_ns[e, to]
            elif state.inside[e, to] == pins - 1:
                state.paid[to] -= data.weight_ns[e, to]
            state.inside[e, source] -= 1
            state.inside[e, to] += 1
        state.device[v] = to
    for k in (a, b):
        time, paid = state.time[k], state.paid[k]
        state.load[k] = max(time, paid) if data.overlap else time + paid
