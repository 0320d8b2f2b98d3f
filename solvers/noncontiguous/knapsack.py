"""Sets of blocks for one device: for every load up to a limit, the highest price of a set.

State: blocks are decided in an elimination order. A net is open between its first and its last
block, and later costs of a set depend on earlier choices only through the open nets. A state says
for each of them whether the decided blocks are all out of the set, all in, or mixed, so that the
net is paid already. A path of states and choices is a set, and the work and the nets along it add
up to its load. With few open nets there are few states. All states and moves are a `Frontier`.

A knapsack runs over them (`most_price`). Loads are counted in cells of `unit_ns`, rounded down move
by move: no set counts for more than its load, so the price in a cell is an upper bound on what a
device can hold, and what follows from it is a proof. Rounding loses little, since each state keeps
a residual below one cell (`_round_down`).

The counted load of a set may be larger than its load (`pricing`): a grid has spare cells for that.

Example by hand: blocks a, b of 3 and 4 ns, prices 2 and 3, one net {a, b} of 5 ns. Order a, b.
After a the net is all out or all in. Taking one block alone makes it mixed: loads are 0 for {}, 3 +
5 for {a}, 4 + 5 for {b} and 7 for {a, b}. So the most price is 0 below 7 ns, and 5 from 7 ns on.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from placegap.instances.kernels.array_types import Flags, Ints
from placegap.instances.kernels.kernel import kernel, sizes_of
from placegap.instances.problem.graph_index import freeze, inverse
from placegap.instances.problem.integers import LARGEST_SUM
from placegap.instances.problem.nets import NetLists, Nets
from placegap.solvers.core.clock import Clock

# Number of blocks that greedy orders start from, evenly spread, and most steps of all orders.
STARTS, MOST_STEPS = 24, 40_000


def elimination_orders(
    nets: Nets, num_blocks: int, clock: Clock | None = None
) -> list[tuple[int, ...]]:
    """Greedy orders, those with fewest states first; each a permutation of the blocks."""
    # From a start, the next block is the one that opens fewest nets beyond those that it closes;
    # ties go to the one whose nets have been open longest. The measure is the sum over the steps of
    # 2^(number of decided blocks in open nets, or of open nets if they are fewer). O(p log p) per
    # start, for p pins. Once the time is over, no further start is tried.
    pins = nets.lists
    found: dict[tuple[int, ...], float] = {}
    starts = max(1, min(STARTS, MOST_STEPS // num_blocks))
    for start in range(0, num_blocks, -(-num_blocks // starts)):
        if found and clock is not None and clock.left_s == 0.0:
            break
        order, cost = _greedy(start, pins)
        found[tuple(order.tolist())] = cost
    return sorted(found, key=lambda order: (found[order], order))


@kernel
def _greedy(start: int, pins: NetLists) -> tuple[Ints, float]:
    """The order from a start, and its measure."""
    # A block's key changes as nets open and close. It is pushed again then, and old keys are
    # skipped when they come up. Blocks of another component enter by `fresh`.
    net_ptr, pin, block_ptr, net, _ = pins
    num_blocks = len(block_ptr) - 1
    left, opened = sizes_of(net_ptr), np.zeros(len(net_ptr) - 1, np.bool_)
    growth = sizes_of(block_ptr)  # nets that a block opens, less those that it closes
    since = np.zeros(num_blocks, np.int64)  # the step after which its first net was open
    done = np.zeros(num_blocks, np.bool_)
    order = np.empty(num_blocks, np.int64)
    waiting = [(growth[start], 0, start)]
    fresh = 0
    held = np.zeros(num_blocks, np.int64)  # open nets of each block
    behind, num_open, cost = 0, 0, 0.0
    for at in range(num_blocks):
        v = -1
        while len(waiting) > 0:
            key = heapq.heappop(waiting)
            u = key[2]
            if not done[u] and key[0] == growth[u] and key[1] == since[u]:
                v = u
                break
        if v < 0:
            while done[fresh]:
                fresh += 1
            v = fresh
        done[v] = True
        order[at] = v
        for i in range(block_ptr[v], block_ptr[v + 1]):
            e = net[i]
            left[e] -= 1
            opens = not opened[e]
            opened[e] = True
            num_open += int(opens)
            behind += int(held[v] == 0)
            held[v] += 1
            if left[e] == 0:
                num_open -= 1
                for j in range(net_ptr[e], net_ptr[e + 1]):
                    held[pin[j]] -= 1
                    behind -= int(held[pin[j]] == 0)
            if not opens and left[e] != 1:
                continue
            for j in range(net_ptr[e], net_ptr[e + 1]):
                w = pin[j]
                if done[w]:
                    continue
                growth[w] -= int(opens) + int(left[e] == 1)
                if since[w] == 0:
                    since[w] = at + 1
                heapq.heappush(waiting, (growth[w], since[w], w))
        # Two choices for each decided block that still matters, or at most a few for each open net.
        cost += 2.0 ** min(behind, num_open, 60)
    return order, cost


OUT, IN, PAID = 0, 1, 2

CHECKED = 256  # steps between checks of the clock


class Frontier(NamedTuple):
    """All moves of the DP, sorted by step and by target state."""

    order: Ints  # (s,) int64: Block of each step
    step_ptr: Ints  # (s + 1,) int64: Moves of step i are ``step_ptr[i]:step_ptr[i + 1]``
    #: source, target: (a,) int64: States before and after, numbered from 0 within their step; one
    #: state at either end.
    source: Ints
    target: Ints
    taken: Ints  # (a,) int64: 1 if the step's block is in the set
    #: paid_ptr, paid: (a + 1,): Nets that become mixed by the move.
    paid_ptr: Ints
    paid: Ints
    num_states: Ints  # (s + 1,) int64: States before each step, and 1 at the end

    @property
    def step(self) -> Ints:
        """The step of each move, (a,)."""
        return np.repeat(np.arange(len(self.order)), np.diff(self.step_ptr))


class NetSteps(NamedTuple):
    """An elimination order of the blocks, and the first and the last step of each net, (e,)."""

    order: Ints
    first: Ints
    last: Ints


def find_steps(nets: Nets, order: Ints) -> NetSteps:
    where, ptr = inverse(order)[nets.pin], nets.net_ptr[:-1]
    if nets.num_nets == 0:
        return NetSteps(order, where, where)
    return NetSteps(order, np.minimum.reduceat(where, ptr), np.maximum.reduceat(where, ptr))


def build_frontier(
    nets: Nets, steps: NetSteps, known: Flags, max_moves: int, clock: Clock | None = None
) -> Frontier | None:
    """The DP's moves without nets that are not `known`; None if there are more than `max_moves`."""
    # A state is one integer of two bits for each open net, at a slot that a net keeps from its
    # first to its last block. Slots of closed nets are used again and are 0 meanwhile, so equal
    # situations are equal integers.
    first, last, counts = steps.first.tolist(), steps.last.tolist(), known.tolist()
    slot: dict[int, int] = {}  # of each open net: two bits of the state
    free: list[int] = []
    states = {0: 0}
    moves: list[tuple[int, int, int, tuple[int, ...]]] = []
    step_ptr, num_states = [0], [1]
    for at, v in enumerate(steps.order.tolist()):
        if clock is not None and at % CHECKED == 0:
            clock.check()
        own = [e for e in nets.net[nets.block_ptr[v] : nets.block_ptr[v + 1]].tolist() if counts[e]]
        for e in own:
            if first[e] == at:
                slot[e] = free.pop() if free else len(slot) + len(free)
        rules = [(e, 2 * slot[e], first[e] == at, last[e] == at) for e in own]
        reached: dict[int, int] = {}
        step = []
        for state, number in states.items():
            for taken in (0, 1):
                after, paid = _advance(state, taken, rules)
                target = reached.setdefault(after, len(reached))
                step.append((target, number, taken, paid))
        step.sort()
        moves += step
        if len(moves) > max_moves:
            return None
        for e in own:
            if last[e] == at:
                free.append(slot.pop(e))
        states = reached
        step_ptr.append(len(moves))
        num_states.append(len(states))
    table = np.array([move[:3] for move in moves], np.int64).reshape(-1, 3)
    frontier = Frontier(
        order=steps.order.copy(),
        step_ptr=np.array(step_ptr, np.int64),
        source=table[:, 1].copy(),
        target=table[:, 0].copy(),
        taken=table[:, 2].copy(),
        paid_ptr=np.cumsum([0, *(len(move[3]) for move in moves)]).astype(np.int64),
        paid=np.array([e for move in moves for e in move[3]], np.int64),
        num_states=np.array(num_states, np.int64),
    )
    for array in frontier:
        array.setflags(write=False)
    return frontier


def _advance(
    state: int, taken: int, rules: list[tuple[int, int, bool, bool]]
) -> tuple[int, tuple[int, ...]]:
    """The state after a choice, and the nets that become mixed."""
    paid: tuple[int, ...] = ()
    for e, shift, opens, closes in rules:
        code = state >> shift & 3
        if opens:
            code = taken
        elif code not in (PAID, taken):
            code = PAID
            paid += (e,)
        state &= ~(3 << shift)
        if not closes:
            state |= code << shift
    return state, paid


Prices = NDArray[np.int32]

TOTAL_PRICE = 2**30  # prices of all blocks sum to at most this: a set's price fits into 32 bits
UNREACHABLE = np.int32(-3 * 2**29)  # price of the impossible: negative with all prices added


@dataclass(frozen=True, eq=False)
class Grid:
    """The moves of a frontier in cells of loads."""

    frontier: Frontier
    #: unit_ns, num_cells: Cell c stands for loads from ``c * unit_ns`` to below ``(c + 1) *
    #: unit_ns``.
    unit_ns: int
    num_cells: int
    spare: int  # cells before cell 0
    shift: Ints  # (a,): Cells that each move adds; ``spare + num_cells`` where it is impossible
    rank_type: type[np.unsignedinteger[Any]]  # unsigned integer that can number moves to a state


def build_grid(
    frontier: Frontier,
    time_ns: Ints,
    weight_ns: Ints,
    allowed: Flags,
    unit_ns: int,
    num_cells: int,
    spare: int = 0,
) -> Grid:
    """Round a device's loads to cells; O(a d) for a moves, d of them to a state."""
    # `time_ns` is the load of each block, `weight_ns` that of each net if the set cuts it. Loads of
    # ``unit_ns * num_cells`` and more are left out; `spare` cells lie below 0.
    steps = frontier.step
    block = frontier.order[steps]
    # The running sum may wrap around 64 bits; its differences are right nevertheless.
    running = np.concatenate([np.zeros(1, np.int64), np.cumsum(weight_ns[frontier.paid])])
    paid = running[frontier.paid_ptr[1:]] - running[frontier.paid_ptr[:-1]]
    shift = _round_down(frontier, frontier.taken * time_ns[block] + paid, unit_ns)
    shift = np.minimum(shift, num_cells + spare)
    shift[(frontier.taken == 1) & ~allowed[block]] = num_cells + spare
    changes = np.flatnonzero((np.diff(frontier.target) != 0) | (np.diff(steps) != 0))
    widest = int(np.diff(np.concatenate([[-1], changes, [len(steps) - 1]])).max(initial=0))
    rank_type = np.uint8 if widest <= 255 else np.uint16 if widest <= 65535 else np.uint32
    grid = Grid(frontier, unit_ns, num_cells, spare, shift, rank_type)
    freeze(grid)
    return grid


@kernel
def _round_down(frontier: Frontier, load: Ints, unit: int) -> Ints:
    """Whole cells of each move, rounded down with residuals of the states that lose little."""
    # A move of load l from s to t adds floor((l + r(s) - r(t)) / unit) cells, with a residual r
    # below one cell for each state, 0 for the first and the last one. Over a path the residuals
    # cancel, so its cells are at most its load in cells, for any choice of r.
    # r(t) is the remainder of one of the moves to t, so that this move loses nothing: the one with
    # the least loss over all moves to t. It is at most l + r(s) of each of them (`least`), so that
    # no move adds a negative number of cells.
    step_ptr, source, target = frontier.step_ptr, frontier.source, frontier.target
    shift = np.zeros(len(load), np.int64)
    residual = np.zeros(1, np.int64)
    for i in range(len(step_ptr) - 1):
        after = np.zeros(frontier.num_states[i + 1], np.int64)
        first = step_ptr[i]
        while first < step_ptr[i + 1]:
            end, least = first, LARGEST_SUM
            while end < step_ptr[i + 1] and target[end] == target[first]:
                least = min(least, load[end] + residual[source[end]])
                end += 1
            best, best_loss = 0, LARGEST_SUM
            for c in range(first - 1, end):
                trial = 0 if c < first else (load[c] + residual[source[c]]) % unit
                if trial <= least:
                    loss = 0
                    for m in range(first, end):
                        loss = min(
                            LARGEST_SUM, loss + (load[m] + residual[source[m]] - trial) % unit
                        )
                    if loss < best_loss:
                        best, best_loss = trial, loss
                # At the last state only 0 is tried.
                if i + 2 == len(step_ptr):
                    break
            after[target[first]] = best
            for m in range(first, end):
                shift[m] = (load[m] + residual[source[m]] - best) // unit
            first = end
        residual = after
    return shift


def most_price(grid: Grid, price: Prices) -> Prices:
    """For each cell a bound from above on the price of sets whose load is up to it, (cells,)."""
    # Because loads are rounded down, sets of a slightly larger load may count as well. O(moves *
    # cells).
    gain, cells = _gains(grid.frontier, price), grid.spare + grid.num_cells
    none = np.zeros((0, 0), grid.rank_type)
    held: Prices = _run(grid.frontier, grid.shift, gain, cells, none)[grid.spare :]
    return held


class PricedSet(NamedTuple):
    """Blocks of a set, ascending, and the cell of its load on the grid."""

    blocks: Ints
    cell: int


def best_sets(grid: Grid, price: Prices, cells: list[int]) -> tuple[Prices, list[PricedSet]]:
    """`most_price`, and for each of some cells a set of that price."""
    # O(moves * cells) time; a byte per state and cell.
    frontier, num_cells = grid.frontier, grid.spare + grid.num_cells
    choice = np.empty((int(frontier.num_states[1:].sum()), num_cells), grid.rank_type)
    value = _run(frontier, grid.shift, _gains(frontier, price), num_cells, choice)[grid.spare :]
    found = []
    for cell in cells:
        taken, used = _trace(frontier, grid.shift, choice, grid.spare + cell)
        found.append(PricedSet(np.sort(frontier.order[taken]), max(0, used - grid.spare)))
    return value, found


def _gains(frontier: Frontier, price: Prices) -> Prices:
    """The price that each move adds."""
    own = price[frontier.order[frontier.step]]
    gains: Prices = np.where(frontier.taken == 1, own, np.int32(0))
    return gains


@kernel(nogil=True, boundscheck=False)
def _run(
    frontier: Frontier, shift: Ints, gain: Prices, num_cells: int, choice: NDArray[np.uint8]
) -> Prices:
    step_ptr, source, target = frontier.step_ptr, frontier.source, frontier.target
    num_states = frontier.num_states
    recording = len(choice) > 0
    # value[state, cell]: the most price of a path to the state whose load is at most the cell. All
    # cells of the first state are 0, so that values grow with the cell.
    before = np.zeros((num_states.max(), num_cells), np.int32)
    after = np.empty((num_states.max(), num_cells), np.int32)
    row = 0
    for i in range(len(step_ptr) - 1):
        after[: num_states[i + 1]] = UNREACHABLE
        rank, previous = 0, -1
        for m in range(step_ptr[i], step_ptr[i + 1]):
            s, t, by = source[m], target[m], shift[m]
            rank = rank + 1 if t == previous else 0
            previous = t
            if by >= num_cells:
                continue
            # A move shifts all cells at once. `choice` keeps which move to the state was best, for
            # `_trace`.
            new, old, step = after[t, by:], before[s, : num_cells - by], np.int32(gain[m])
            if recording:
                chosen = choice[row + t, by:]
                for c in range(len(new)):
                    value = np.int32(old[c] + step)
                    better = value > new[c]
                    new[c] = value if better else new[c]
                    chosen[c] = rank if better else chosen[c]
            else:
                for c in range(len(new)):
                    new[c] = max(new[c], np.int32(old[c] + step))
        row += num_states[i + 1]
        before, after = after, before
    held: Prices = before[0].copy()
    return held


@kernel
def _trace(
    frontier: Frontier, shift: Ints, choice: NDArray[np.uint8], cell: int
) -> tuple[Flags, int]:
    """The steps that take their block on the best path to a cell, and the cells of that path."""
    step_ptr, source, target = frontier.step_ptr, frontier.source, frontier.target
    result = np.zeros(len(step_ptr) - 1, np.bool_)
    row, state, used = len(choice), 0, 0
    for i in range(len(step_ptr) - 2, -1, -1):
        row -= frontier.num_states[i + 1]
        m = step_ptr[i]
        while target[m] != state:
            m += 1
        m += choice[row + state, cell]
        result[i] = frontier.taken[m] == 1
        cell -= shift[m]
        used += shift[m]
        state = source[m]
    return result, used
