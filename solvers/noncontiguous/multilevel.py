"""Plans for many blocks: the problem coarser and coarser, and a search at every size.

Blocks of one device that share heavy nets are paired and become one (heavy-edge matching, Karypis
and Kumar 1998; nets count by weight over pins - 1), level by level, until few are left. So a plan
is a plan at every level, with the same loads. Annealing begins on the coarsest level, where a move
takes many blocks, and goes on level by level to the blocks themselves.
"""

from __future__ import annotations

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.graph_index import freeze, group_by
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.instances.problem.kernels import kernel
from placegap.instances.problem.nets import Nets
from placegap.solvers.core.clock import Clock
from placegap.solvers.noncontiguous.annealing import anneal
from placegap.solvers.noncontiguous.problem import SplitProblem, assemble

COARSEST = 40
"""Blocks for each device on the coarsest level."""

HEAVIEST = 0.2
"""Part of a device's mean work that a pair of blocks may have on a coarse level."""

SHRINKS = 0.95
"""A level that has more than such a part of the blocks before it is the last one."""

WIDEST = 64
"""Nets with more pins do not say which blocks belong together."""

HOT, WARM = 0.01, 0.002
"""Temperatures on the coarsest level and below."""

DOUBLINGS = 2
"""Groups of at most 2^2 blocks move: larger ones are blocks of coarser levels."""

MOVES = 300
"""Moves of annealing for each block of a level."""


def search_levels(
    problem: SplitProblem,
    start: Ints,
    *,
    seed: int,
    clock: Clock,
    heat: float = 1.0,
    afresh: bool = False,
) -> Ints:
    """The best plan seen, (b,), never heavier than the start, unless it is made afresh.

    Parameters
    ----------
    problem : SplitProblem
    start : (b,) int64
        Devices of the blocks, feasible: every plan seen is.
    seed : int
    clock : Clock
        When it is over, the best plan so far is returned.
    heat : float
        Factor of the temperatures.
    afresh : bool
        Whether blocks of different devices are paired as well, so that the plan's cuts may go: a
        coarse block is then where the start has most of its work, if all fit there.

    Notes
    -----
    O(p log p) for p pins to make the levels, and `MOVES` moves for each block.

    Examples
    --------
    >>> from placegap.instances import example
    >>> from placegap.solvers.noncontiguous.problem import build_split_problem
    >>> problem = build_split_problem(example())
    >>> plan = search_levels(problem, np.zeros(4, np.int64), seed=0, clock=Clock(None))
    >>> int(problem.loads(plan).max())
    25
    """
    rng = np.random.default_rng(seed)
    levels: list[tuple[SplitProblem, Ints]] = []  # problems, and where their blocks go
    coarse, device = problem, start
    while coarse.num_blocks > COARSEST * problem.num_devices and clock.left_s != 0.0:
        home = match(coarse, np.zeros_like(device) if afresh else device, rng)
        smaller = contract(coarse, home)
        if smaller.num_blocks > SHRINKS * coarse.num_blocks:
            break
        levels.append((coarse, home))
        coarse, device = smaller, _carry(coarse, home, device)
    hot = HOT
    if not coarse.fits(device):
        return start.copy()
    while True:
        left = sum(level.num_blocks for level, _ in levels)
        share = max(0.3, coarse.num_blocks / (coarse.num_blocks + left))
        device = anneal(
            coarse,
            device,
            seed=int(rng.integers(2**62)),
            moves=MOVES * coarse.num_blocks,
            hot=heat * hot,
            power=40.0,
            clock=clock.part(share),
            doublings=DOUBLINGS,
        )
        if not levels:
            return device
        coarse, home = levels.pop()
        device, hot = device[home], WARM


def _carry(problem: SplitProblem, home: Ints, device: Ints) -> Ints:
    """For each group of a numbering the device that has most of its work."""
    work = np.zeros((int(home.max()) + 1, problem.num_devices))
    b = np.arange(problem.num_blocks)
    np.add.at(work, (home, device), 1.0 + problem.time_ns[b, device].astype(np.float64))
    most: Ints = work.argmax(axis=1).astype(np.int64)
    return most


def match(problem: SplitProblem, device: Ints, rng: np.random.Generator) -> Ints:
    """Number of the pair that each block is in, or of the block alone, (b,).

    Partners are on the same device, and wherever one runs the other does.
    """
    nets = problem.nets
    supported = problem.time_ns != UNSUPPORTED
    work = np.where(supported, problem.time_ns, 0).astype(np.float64)
    time = work.sum(axis=1) / np.maximum(1, supported.sum(axis=1))
    sizes = np.diff(nets.net_ptr)
    rating = nets.weight_ns.max(axis=1, initial=0) / np.maximum(1, sizes - 1)
    rating[sizes > WIDEST] = 0.0
    rules = np.unique(supported, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
    heaviest = HEAVIEST * time.sum() / problem.num_devices
    order = rng.permutation(problem.num_blocks)
    mate = _match(
        order,
        device,
        rules,
        time,
        heaviest,
        rating,
        nets.net_ptr,
        nets.pin,
        nets.block_ptr,
        nets.net,
    )
    first = np.minimum(mate, np.arange(problem.num_blocks))
    home: Ints = np.unique(first, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return home


@kernel
def _match(
    order: Ints,
    device: Ints,
    rules: Ints,
    time: np.ndarray,
    heaviest: float,
    rating: np.ndarray,
    net_ptr: Ints,
    pin: Ints,
    block_ptr: Ints,
    net: Ints,
) -> Ints:
    num_blocks = len(order)
    mate = np.full(num_blocks, -1, np.int64)
    worth = np.zeros(num_blocks)
    near = np.empty(num_blocks, np.int64)
    for v in order:
        if mate[v] >= 0:
            continue
        count = 0
        for i in range(block_ptr[v], block_ptr[v + 1]):
            e = net[i]
            if rating[e] <= 0.0:
                continue
            for j in range(net_ptr[e], net_ptr[e + 1]):
                u = pin[j]
                if u == v or mate[u] >= 0 or device[u] != device[v] or rules[u] != rules[v]:
                    continue
                if worth[u] == 0.0:
                    near[count] = u
                    count += 1
                worth[u] += rating[e]
        best = v
        for i in range(count):
            u = near[i]
            if time[u] + time[v] <= heaviest and (best == v or worth[u] > worth[best]):
                best = u
        for i in range(count):
            worth[near[i]] = 0.0
        mate[v], mate[best] = best, v
    return mate


def contract(problem: SplitProblem, home: Ints) -> SplitProblem:
    """The problem whose blocks are the groups of a numbering, (b,).

    Examples
    --------
    >>> from placegap.instances import example
    >>> from placegap.solvers.noncontiguous.problem import build_split_problem
    >>> pair = contract(build_split_problem(example()), np.array([0, 1, 0, 0]))
    >>> pair.loads(np.array([0, 1])).tolist()
    [25, 22]
    """
    b, nets = int(home.max()) + 1, problem.nets
    time_ns = np.zeros((b, problem.num_devices), np.int64)
    np.add.at(time_ns, home, np.maximum(problem.time_ns, 0))
    refused = np.zeros(time_ns.shape, np.bool_)
    np.logical_or.at(refused, home, problem.time_ns == UNSUPPORTED)
    time_ns[refused] = UNSUPPORTED
    size_bytes = np.zeros(b, np.int64)
    np.add.at(size_bytes, home, problem.size_bytes)
    owner = np.repeat(np.arange(nets.num_nets), np.diff(nets.net_ptr))
    owner, pin = np.divmod(np.unique(owner * b + home[nets.pin]), b)
    kept = np.bincount(owner, minlength=nets.num_nets) > 1
    pin, owner = pin[kept[owner]], owner[kept[owner]]
    merged = _join_equal(owner, pin, nets.weight_ns, b)
    return assemble(
        home[problem.block],
        time_ns,
        size_bytes,
        merged,
        problem.memory_bytes,
        overlap=problem.overlap,
    )


def _join_equal(owner: Ints, pin: Ints, weight_ns: Ints, num_blocks: int) -> Nets:
    """Nets of these pins, ascending by owner and pin; those with the same pins add up."""
    own, start, sizes = np.unique(owner, return_index=True, return_counts=True)
    number: dict[bytes, int] = {}
    of_net = [
        number.setdefault(pin[at : at + size].tobytes(), len(number))
        for at, size in zip(start.tolist(), sizes.tolist(), strict=True)
    ]
    weights = np.zeros((len(number), weight_ns.shape[1]), np.int64)
    np.add.at(weights, np.array(of_net, np.int64), weight_ns[own])
    first = np.unique(np.array(of_net, np.int64), return_index=True)[1]
    is_first = np.zeros(len(own), np.bool_)
    is_first[first] = True
    pin, sizes = pin[np.repeat(is_first, sizes)], sizes[is_first]
    net_ptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    block_ptr, at = group_by(pin, num_blocks)
    found = Nets(net_ptr, pin, block_ptr, np.repeat(np.arange(len(sizes)), sizes)[at], weights)
    freeze(found)
    return found
