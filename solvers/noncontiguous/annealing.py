"""Simulated annealing of a partition of the blocks, with loads updated move by move.

The energy is the logarithm of the p-norm of the loads: with a high p only the heaviest device
counts, with a lower p the others count as well. A move takes a connected group of blocks from one
device to another, or swaps two blocks; only the loads of these two devices change, by the nets of
the blocks that move. Where plans are chains, a move also leaves each block behind its predecessors
and before its successors, in a fixed order of the devices.

Problems of many blocks are searched on several levels. Blocks of one device that share heavy nets
are paired and become one (heavy-edge matching, Karypis and Kumar 1998; nets count by weight over
pins - 1), level by level, until few are left. So a plan of a coarse level is one of all finer
levels, with the same loads. Annealing begins on the coarsest level, where a move takes many blocks,
and continues level by level.
"""

from __future__ import annotations

from collections.abc import Iterator
from graphlib import TopologicalSorter
from itertools import count
from typing import NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Floats, Ints
from placegap.instances.kernels.kernel import copy_to, draw, kernel
from placegap.instances.problem.graph_index import sum_by
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.instances.problem.nets import NetLists
from placegap.solvers.chains.problem import ArcLists
from placegap.solvers.core.clock import Clock
from placegap.solvers.local_search.cooling import heat_at
from placegap.solvers.noncontiguous.problem import SplitProblem, contract

COLD = 1e-5  # temperature at the end, relative to the energy
GROWTH = 5.0  # factor by which p grows until the end
STAGE = 1024  # moves at one temperature
CHUNK = 4 * STAGE  # moves between checks of the clock

HEAT = (0.002, 0.008, 0.0005, 0.03)  # first temperatures of runs, in turn
# First p of the norm of loads, in turn. Over ten million moves on the layers of Inception-v3
# (training, T = 0.008) 10 and 20 end at 117.5 to 117.7 ms, and 40 and 80 above 118.1.
POWER = (40.0, 20.0, 10.0)
# Most moves of a first run per block. Each cycle of temperatures has runs of `LONGER` times as
# many, up to a number per block: short runs end at 51.55 and 118.0 ms on Inception-v3 (inference,
# training), however many there are; runs of ten million moves at 51.45 and 117.5.
MOVES_PER_BLOCK, LONGER, MOST_PER_BLOCK = 10_000, 4, 40_000


class DeviceChain(NamedTuple):
    """What keeps plans chains: arcs between the blocks, and the place of each device, (K,)."""

    arcs: ArcLists
    place: Ints


def chain_of(arcs: ArcLists, device: Ints, num_devices: int) -> DeviceChain:
    """The order of a chain's devices, those without blocks last."""
    tail = np.repeat(device, np.diff(arcs.succ_ptr))
    pairs = np.unique(np.stack([tail, device[arcs.succ]], axis=1), axis=0)
    before: dict[int, list[int]] = {k: [] for k in np.unique(device).tolist()}
    for a, b in pairs[pairs[:, 0] != pairs[:, 1]].tolist():
        before[b].append(a)
    order = list(TopologicalSorter(before).static_order())
    place = np.full(num_devices, num_devices)
    place[order] = np.arange(len(order))
    place[place == num_devices] = np.arange(len(order), num_devices)
    return DeviceChain(arcs, place)


class AnnealingRun(NamedTuple):
    """Moves, first temperature and first p of an annealing run."""

    moves: int
    hot: float
    power: float


def longer_runs(first: int, num_blocks: int) -> Iterator[AnnealingRun]:
    """Runs without end, of at most `first` moves in the first cycle of temperatures."""
    first = min(first, MOVES_PER_BLOCK * num_blocks)
    most = max(first, MOST_PER_BLOCK * num_blocks)
    for kick in count():
        moves = min(first * LONGER ** min(kick // len(HEAT), 20), most)
        yield AnnealingRun(moves, HEAT[kick % len(HEAT)], POWER[kick % len(POWER)])


class _Data(NamedTuple):
    """Arrays of the problem for the kernels."""

    overlap: bool
    time_ns: Ints
    size_bytes: Ints
    memory_bytes: Ints
    pins: NetLists
    chain: DeviceChain  # without arcs where plans are of any kind


class _State(NamedTuple):
    """Device of each block; load, time, paid nets and memory of each device; pins of each net."""

    # `best` is the best plan so far. `group` has the blocks of a move, `mark` the last move that
    # considered each block.
    device: Ints
    load: Ints
    time: Ints
    paid: Ints
    held: Ints
    inside: Ints
    best: Ints
    group: Ints
    mark: Ints


class _Cooling(NamedTuple):
    """The arguments of `anneal`."""

    moves: int
    hot: float
    power: float
    doublings: int


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
    chain: DeviceChain | None = None,
) -> Ints:
    """The best plan found, never heavier than the start; with `chain`, a chain as the start is."""
    # The start must be feasible, and all plans stay so. The temperature falls from `hot`, relative
    # to the energy, to `COLD`; `power` is p at the beginning. Groups that move have at most
    # 2^doublings blocks. At the end of its time the best plan so far is returned; with little time
    # it cools faster. O(d) per block that moves, for d nets each: about 2 million moves a second.
    if problem.num_devices < 2 or moves == 0:
        return start.copy()
    nets, device, b = problem.nets, start.copy(), problem.num_blocks
    sizes = problem.size_bytes, problem.memory_bytes
    if chain is None:
        none, ptr = np.zeros(0, np.int64), np.zeros(b + 1, np.int64)
        arcs = ArcLists(ptr, none, ptr[:-1], ptr, none, ptr[:-1])
        chain = DeviceChain(arcs, np.zeros(problem.num_devices, np.int64))
    data = _Data(problem.overlap, problem.time_ns, *sizes, nets.lists, chain)
    held = sum_by(device, problem.size_bytes, problem.num_devices)
    state = _State(
        device,
        problem.loads(device),
        *problem.parts(device),
        held,
        problem.pins_on(device),
        best=device.copy(),
        group=np.zeros(b + 1, np.int64),
        mark=np.zeros(b, np.int64),
    )
    cooling = _Cooling(moves, float(hot), float(power), doublings)
    least, rng = int(state.load.max()), np.random.default_rng(seed)
    done, part = 0, float(clock is not None and clock.left_s == 0.0)
    while done < moves and part < 1.0:
        count = min(CHUNK, moves - done)
        least = _anneal(data, state, cooling, rng, least, done, count, part)
        done += count
        part = done / moves
        if clock is not None and clock.limit_s is not None:
            part = max(part, clock.spent_s / clock.limit_s if clock.limit_s else 1.0)
    return state.best


@kernel(nogil=True)
def _anneal(
    data: _Data,
    state: _State,
    cooling: _Cooling,
    rng: np.random.Generator,
    least: int,
    done: int,
    count: int,
    part: float,
) -> int:
    """`count` more moves; returns the least load found, its plan in `best`."""
    energy, p, temperature = 0.0, cooling.power, cooling.hot
    for step in range(done, done + count):
        if (step - done) % STAGE == 0:
            done_part = min(1.0, part + (step - done) / cooling.moves)
            p = cooling.power * GROWTH**done_part
            temperature = heat_at(cooling.hot, COLD / cooling.hot, done_part)
            energy = _energy(state.load, p)
        # Most moves go to a device that shares a net with v: elsewhere all its nets would be cut.
        v = draw(rng, len(state.device))
        a, pins = int(state.device[v]), data.pins
        nets = pins.block_ptr[v + 1] - pins.block_ptr[v]
        if nets == 0 or draw(rng, 4) == 0:  # to any device, else to one that shares a net
            b = draw(rng, len(state.load))
        else:
            e = pins.net[pins.block_ptr[v] + draw(rng, nets)]
            at = pins.net_ptr[e] + draw(rng, pins.net_ptr[e + 1] - pins.net_ptr[e])
            b = int(state.device[pins.pin[at]])
        if a == b:
            continue
        group = state.group[: _choose(data, state, rng, v, b, step + 1, cooling.doublings)]
        supported = True
        for w in group:
            supported &= data.time_ns[w, a + b - state.device[w]] != UNSUPPORTED
        if not supported:
            continue
        # The move is made and, if rejected, made again the other way: loads are updated in place,
        # and an exchange is its own inverse.
        _exchange(data, state, group, a, b)
        if not _is_chain(data.chain, state.device, group):
            _exchange(data, state, group, a, b)
            continue
        after = _energy(state.load, p)
        if (
            state.held[a] <= data.memory_bytes[a]
            and state.held[b] <= data.memory_bytes[b]
            and (after <= energy or rng.random() < np.exp((energy - after) / temperature))
        ):
            energy = after
            if state.load.max() < least:
                least = state.load.max()
                # Only feasible plans get here.
                copy_to(state.best, state.device)
        else:
            _exchange(data, state, group, a, b)
    return int(least)


@kernel(nogil=True, allocates=False)
def _is_chain(chain: DeviceChain, device: Ints, group: Ints) -> bool:
    """Whether the blocks of a group are behind their predecessors and before their successors."""
    arcs, place = chain.arcs, chain.place
    for v in group:
        own = place[device[v]]
        for at in range(arcs.pred_ptr[v], arcs.pred_ptr[v + 1]):
            if place[device[arcs.pred[at]]] > own:
                return False
        for at in range(arcs.succ_ptr[v], arcs.succ_ptr[v + 1]):
            if place[device[arcs.succ[at]]] < own:
                return False
    return True


@kernel(nogil=True, allocates=False)
def _energy(load: Ints, power: float) -> float:
    """Logarithm of the p-norm of the loads."""
    # Scaled by the largest load, so that powers of large loads do not overflow.
    largest = 1.0
    for one in load:
        largest = max(largest, float(one))
    total = 0.0
    for k in range(len(load)):
        total += (load[k] / largest) ** power
    return float(np.log(largest) + np.log(total) / power)


@kernel(nogil=True, allocates=False)
def _choose(
    data: _Data,
    state: _State,
    rng: np.random.Generator,
    v: int,
    to: int,
    stamp: int,
    doublings: int,
) -> int:
    """Choose the blocks of a move: v with neighbours, a swap, or v alone; returns their number."""
    # Half of all moves take a group, breadth first over nets on v's device, one in eight a swap
    # (if the block drawn is on the other device), and the rest v alone. Sizes of groups are drawn
    # on a logarithmic scale, so that small ones are as frequent as large ones.
    group, mark, pins = state.group, state.mark, data.pins
    group[0] = v
    kind = draw(rng, 8)
    if kind == 4:
        w = draw(rng, len(mark))
        if state.device[w] == to:
            group[1] = w
            return 2
    if kind >= 4:
        return 1
    most = 1 + draw(rng, 2 << draw(rng, doublings))
    mark[v] = stamp
    count, at = 1, 0
    while at < count < most:
        w = group[at]
        at += 1
        for i in range(pins.block_ptr[w], pins.block_ptr[w + 1]):
            for j in range(pins.net_ptr[pins.net[i]], pins.net_ptr[pins.net[i] + 1]):
                u = pins.pin[j]
                if count < most and mark[u] != stamp and state.device[u] == state.device[v]:
                    group[count], mark[u] = u, stamp
                    count += 1
    return count


@kernel(nogil=True, allocates=False)
def _exchange(data: _Data, state: _State, group: Ints, a: int, b: int) -> None:
    """Move each block of the group to the other one of two devices; twice restores the state."""
    for v in group:
        source = state.device[v]
        to = a + b - source
        state.time[source] -= data.time_ns[v, source]
        state.time[to] += data.time_ns[v, to]
        state.held[source] -= data.size_bytes[v]
        state.held[to] += data.size_bytes[v]
        for at in range(data.pins.block_ptr[v], data.pins.block_ptr[v + 1]):
            e = data.pins.net[at]
            pins = data.pins.net_ptr[e + 1] - data.pins.net_ptr[e]
            # A device pays for a net with some but not all of its pins: the source begins to pay if
            # it had all of them, and ends if v was the last; likewise the target.
            if state.inside[e, source] == pins:
                state.paid[source] += data.pins.weight_ns[e, source]
            elif state.inside[e, source] == 1:
                state.paid[source] -= data.pins.weight_ns[e, source]
            if state.inside[e, to] == 0:
                state.paid[to] += data.pins.weight_ns[e, to]
            elif state.inside[e, to] == pins - 1:
                state.paid[to] -= data.pins.weight_ns[e, to]
            state.inside[e, source] -= 1
            state.inside[e, to] += 1
        state.device[v] = to
    for k in (a, b):
        time, paid = state.time[k], state.paid[k]
        state.load[k] = max(time, paid) if data.overlap else time + paid


COARSEST = 40  # number of blocks per device on the coarsest level
HEAVIEST = 0.2  # largest share of a device's mean work for a pair of blocks on a coarse level
SHRINKS = 0.95  # coarsening ends at a level that keeps more than this share of the blocks
WIDEST = 64  # most pins of the nets by which blocks are paired: wider ones say little
HOT, WARM = 0.01, 0.002  # temperatures on the coarsest level and below
DOUBLINGS = 2  # groups of at most 2^2 blocks move: larger groups are blocks of coarser levels
MOVES = 300  # annealing moves per block of a level


def search_levels(
    problem: SplitProblem,
    start: Ints,
    *,
    seed: int,
    clock: Clock,
    heat: float = 1.0,
    afresh: bool = False,
) -> Ints:
    """The best plan found, (b,), never heavier than the start, except with `afresh`."""
    # The start must be feasible, and all plans stay so. `heat` is a factor of the temperatures.
    # With `afresh`, blocks of different devices are paired as well, so that the plan's cuts may
    # change: a coarse block is then put where the start has most of its work, if all fit there. O(p
    # log p) for p pins to make the levels, and `MOVES` moves for each block.
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
        # Time by the number of blocks of the levels, but at least 30 % of what is left for each.
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
    """For each group of blocks the device that has most of its work."""
    work = np.zeros((int(home.max()) + 1, problem.num_devices))
    b = np.arange(problem.num_blocks)
    np.add.at(work, (home, device), 1.0 + problem.time_ns[b, device].astype(np.float64))
    most: Ints = work.argmax(axis=1).astype(np.int64)
    return most


def match(problem: SplitProblem, device: Ints, rng: np.random.Generator) -> Ints:
    """Number of the pair of each block, or of the block alone, (b,)."""
    # Partners are on the same device and run on the same devices.
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
    mate = _match(order, device, rules, time, heaviest, rating, nets.lists)
    first = np.minimum(mate, np.arange(problem.num_blocks))
    home: Ints = np.unique(first, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return home


@kernel
def _match(
    order: Ints,
    device: Ints,
    rules: Ints,
    time: Floats,
    heaviest: float,
    rating: Floats,
    pins: NetLists,
) -> Ints:
    num_blocks = len(order)
    mate = np.full(num_blocks, -1, np.int64)
    worth = np.zeros(num_blocks)
    near = np.empty(num_blocks, np.int64)
    # In random order each block takes the partner with the most net weight that is still free and
    # not too heavy. `worth` collects the weight by neighbour and is cleared again through `near`.
    for v in order:
        if mate[v] >= 0:
            continue
        count = 0
        for i in range(pins.block_ptr[v], pins.block_ptr[v + 1]):
            e = pins.net[i]
            if rating[e] <= 0.0:
                continue
            for j in range(pins.net_ptr[e], pins.net_ptr[e + 1]):
                u = pins.pin[j]
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
