"""The annealing of one section: devices and urgencies of its ops, the bottlenecks pinned.

A state is a device and a shift for each op. Its schedule books ops by bottom level plus shift into
the first gaps (`quick_schedule.insert_all`), from the state in which all is idle and the tensors of
earlier ops are where these ran. LayerMoves know the branches of the section (`sections.Branches`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Flags, Floats, Ints
from placegap.instances.kernels.kernel import copy_to, draw, kernel, set_all
from placegap.instances.problem import Instance, Makespan
from placegap.instances.problem.graph_index import group_by
from placegap.instances.problem.integers import NEVER, UNSUPPORTED
from placegap.solvers.local_search.cooling import CoolingSteps, limit_of
from placegap.solvers.local_search.disjunctive_graph import Machines, channel_table
from placegap.solvers.local_search.quick_schedule import (
    Work,
    bottom_levels,
    insert_all,
    insert_within,
    new_work,
)
from placegap.solvers.repeated_layers.sections import FREE, LayerSection, branches_of

# Shares of moves, each up to the next: one op, a run within a branch, a branch's ops on one device,
# the pattern of an equal branch; the rest changes urgencies. Of the moves of one op a share
# `FOLLOW` sends it to where a neighbour is.
ONE, RUN, DEVICE, PATTERN = 0.25, 0.45, 0.6, 0.8
FOLLOW = 0.9
SHIFT = 0.03  # standard deviation of a change of urgency, in makespans
# Factors of memory's price after a move without, and with, room; most times its least price.
DEARER, CHEAPER, MOST_TIMES = 1.01, 0.998, 100.0
ENDLESS = 1e18  # a limit above all costs
LEAST_PRICE = 2.0  # of holding all bytes where there is no room, in serial times


class LayerMoves(NamedTuple):
    """What moves need of a section: its free ops, by branch, with their neighbours."""

    # `home` (n,) is the branch of each free op, -1 of others; `class_of` (branches,) its class.
    # ``near[near_ptr[i]:near_ptr[i + 1]]`` are the neighbours of local op i. Ops of a colocation
    # group follow their `leader`.
    ptr: Ints
    op: Ints
    same_ptr: Ints
    same: Ints
    class_of: Ints
    home: Ints
    near_ptr: Ints
    near: Ints
    able: Flags
    leader: Ints


class LayerState(NamedTuple):
    """Current, trial and best devices and shifts, (n,) each; `value` is (current, best) in ns."""

    at: Ints
    trial: Ints
    best_at: Ints
    shift: Ints
    trial_shift: Ints
    best_shift: Ints
    level: Ints
    urgency: Ints
    value: Ints
    op_bytes: Ints  # (n,)
    #: room, held: (K,): Bytes that a device may hold, and does hold in the trial.
    room: Ints
    held: Ints
    byte_ns: Floats  # (2,): ns per byte without room, now and at least
    cost: Floats  # (2,): Current makespan with the price of its loads, and bytes without room


def machines_of_section(instance: Instance, semantics: Makespan, section: LayerSection) -> Machines:
    """The arrays of a section as the kernels of schedules take them."""
    n, k = section.time_ns.shape
    succ_ptr, succ_edge = group_by(section.producer, n)
    pred_ptr, pred_edge = group_by(section.consumer, n)
    num_tensors = len(section.move_ns)
    tensor_ptr, tensor_edge = group_by(section.tensor, num_tensors)
    per_tensor, free = semantics.transfers == "per_tensor", semantics.channels == "free"
    count = num_tensors * k if per_tensor else len(section.producer)
    return Machines(
        section.time_ns,
        section.move_ns,
        instance.arrays.link_class,
        section.producer,
        section.consumer,
        section.tensor,
        succ_ptr,
        succ_edge,
        pred_ptr,
        pred_edge,
        tensor_ptr,
        tensor_edge,
        np.arange(n),
        channel_table(semantics.channels, k),
        free,
        per_tensor,
        n + (0 if free else count),
    )


def moves_of(section: LayerSection) -> LayerMoves:
    """Branches, neighbours, and where ops can run."""
    branches, n = branches_of(section), len(section.device)
    home, class_of = np.full(n, -1), np.zeros(len(branches.ptr) - 1, np.int64)
    for b in range(len(branches.ptr) - 1):
        home[branches.op[branches.ptr[b] : branches.ptr[b + 1]]] = b
    for c in range(len(branches.same_ptr) - 1):
        class_of[branches.same[branches.same_ptr[c] : branches.same_ptr[c + 1]]] = c
    ends = np.concatenate([section.producer, section.consumer])
    others = np.concatenate([section.consumer, section.producer])
    near_ptr, by_end = group_by(ends, n)
    able = section.time_ns != UNSUPPORTED
    return LayerMoves(
        branches.ptr,
        branches.op,
        branches.same_ptr,
        branches.same,
        class_of,
        home,
        near_ptr,
        others[by_end],
        able,
        section.leader,
    )


@dataclass
class LayerWalk:
    """The annealing of one section, and its best state."""

    section: LayerSection
    machines: Machines
    moves: LayerMoves
    work: Work
    state: LayerState

    def restart(self, device: Ints, shift: Ints) -> None:
        """Begin from a state; the best one is kept."""
        state = self.state
        state.at[:], state.shift[:] = device, shift
        bottom_levels(self.machines, device, state.level)
        state.urgency[:] = state.level + shift
        given = device, state.urgency, state.level, self.work
        now, extra = insert_within(self.machines, *given, ENDLESS)
        over = _overfull(state, device)
        state.value[0], state.cost[:] = now, (now + extra, over)
        if over == 0 and not 0 <= state.value[1] <= now:
            state.value[1] = now
            state.best_at[:], state.best_shift[:] = device, shift

    def best_ns(self) -> int:
        """The time of the best state; `work` has all times then."""
        state = self.state
        bottom_levels(self.machines, state.best_at, state.level)
        state.level[:] += state.best_shift
        return int(insert_all(self.machines, state.best_at, state.level, self.work))


def walk_of(
    instance: Instance, semantics: Makespan, section: LayerSection, home: int, room: Ints
) -> LayerWalk:
    """A walk that begins with everything on one device, as far as it runs there."""
    machines = machines_of_section(instance, semantics, section)
    n, k = section.time_ns.shape
    fastest = np.where(section.time_ns == UNSUPPORTED, NEVER, section.time_ns)
    able = section.time_ns[:, home] != UNSUPPORTED
    is_free = section.device == FREE
    device = np.where(is_free, np.where(able, home, fastest.argmin(axis=1)), section.device)
    device = device[section.leader]
    op_bytes = np.where(is_free, section.state_bytes, 0)
    shift, trial_shift, best_shift, level, urgency = np.zeros((5, n), np.int64)
    state = LayerState(
        device,
        device.copy(),
        device.copy(),
        shift,
        trial_shift,
        best_shift,
        level,
        urgency,
        np.array([0, -1]),
        op_bytes,
        room,
        np.zeros(k, np.int64),
        np.full(2, LEAST_PRICE / max(1, int(op_bytes.sum()))),
        np.zeros(2),
    )
    walk = LayerWalk(section, machines, moves_of(section), new_work(machines), state)
    walk.restart(device, shift)
    state.byte_ns[:] *= state.value[0]
    return walk


@kernel(nogil=True, allocates=False)
def anneal_layer(
    data: Machines,
    moves: LayerMoves,
    state: LayerState,
    work: Work,
    rng: np.random.Generator,
    steps: CoolingSteps,
) -> None:
    """Try some moves of a cooling."""
    at, shift, trial, trial_shift = state.at, state.shift, state.trial, state.trial_shift
    value, level = state.value, state.level
    for step in range(steps.done, steps.done + steps.moves):
        # the price of memory rises while there is too little room, and falls else
        if state.cost[1] > 0.0:
            state.byte_ns[0] = min(state.byte_ns[0] * DEARER, state.byte_ns[1] * MOST_TIMES)
        else:
            state.byte_ns[0] = max(state.byte_ns[0] * CHEAPER, state.byte_ns[1])
        limit = limit_of(state.cost[0] + state.cost[1] * state.byte_ns[0], steps, step, rng)
        copy_to(trial, at)
        copy_to(trial_shift, shift)
        _change(moves, state, rng)
        changed = False
        for i in range(len(at)):
            trial[i] = trial[moves.leader[i]]
            if not moves.able[i, trial[i]]:
                trial[i] = at[i]
            changed = changed or trial[i] != at[i] or trial_shift[i] != shift[i]
        if not changed:
            continue
        over = _overfull(state, trial)
        limit -= over * state.byte_ns[0]
        bottom_levels(data, trial, level)
        longest = 0
        for i in range(len(at)):
            longest = max(longest, level[i])
            state.urgency[i] = level[i] + trial_shift[i]
        if longest > limit:
            continue
        now, extra = insert_within(data, trial, state.urgency, level, work, limit)
        if now + extra <= limit:
            copy_to(at, trial)
            copy_to(shift, trial_shift)
            value[0], state.cost[0], state.cost[1] = now, now + extra, over
            if over == 0.0 and (now < value[1] or value[1] < 0):
                value[1] = now
                copy_to(state.best_at, at)
                copy_to(state.best_shift, shift)


@kernel(nogil=True, allocates=False)
def _overfull(state: LayerState, device: Ints) -> float:
    """Bytes above the room of devices; ``state.held`` has what each one holds."""
    held, over = state.held, 0.0
    set_all(held, 0)
    for i in range(len(device)):
        held[device[i]] += state.op_bytes[i]
    for d in range(len(held)):
        over += max(0, held[d] - state.room[d])
    return over


@kernel(nogil=True, allocates=False)
def _change(moves: LayerMoves, state: LayerState, rng: np.random.Generator) -> None:
    """Write one move into the trial."""
    trial, shift, ptr, op = state.trial, state.trial_shift, moves.ptr, moves.op
    k, kind = moves.able.shape[1], rng.random()
    v = op[draw(rng, len(op))]
    b = moves.home[v]
    first, last = ptr[b], ptr[b + 1]
    if kind < ONE:  # one op, often to where a neighbour is
        near = moves.near_ptr[v]
        count = moves.near_ptr[v + 1] - near
        if count > 0 and rng.random() < FOLLOW:
            trial[v] = trial[moves.near[near + draw(rng, count)]]
        else:
            trial[v] = draw(rng, k)
    elif kind < RUN:  # a run within a branch
        to, begin = draw(rng, k), first + draw(rng, last - first)
        for p in range(begin, min(last, begin + 1 + draw(rng, last - first))):
            trial[op[p]] = to
    elif kind < DEVICE:  # the ops of a branch that are on one device
        a, to = trial[v], draw(rng, k)
        for p in range(first, last):
            if trial[op[p]] == a:
                trial[op[p]] = to
    elif kind < PATTERN:  # copy or exchange the pattern of an equal branch
        c = moves.class_of[b]
        count = moves.same_ptr[c + 1] - moves.same_ptr[c]
        other = ptr[moves.same[moves.same_ptr[c] + draw(rng, count)]]
        swap = rng.random() < 0.5
        for p in range(last - first):
            x, y = op[first + p], op[other + p]
            trial[x], trial[y] = trial[y], trial[x] if swap else trial[y]
            shift[x], shift[y] = shift[y], shift[x] if swap else shift[y]
    else:  # urgency of a branch, of its end, or of one op
        by, part = int(rng.standard_normal() * state.value[0] * SHIFT), rng.random()
        if part < 0.4:
            shift[v] += by
        else:
            begin = first if part < 0.7 else first + draw(rng, last - first)
            for p in range(begin, last):
                shift[op[p]] += by
