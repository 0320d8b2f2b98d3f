"""annealing: placement and priorities by simulated annealing, from the best of some placers.

A state is a device per op and a shift of its priority; the priority itself is the longest way to
the end under the placement, as in list scheduling. Ops move in connected groups, or in blocks that
the graph suggests (maximal chains, insides of intervals), together with what they are colocated
with. Every state fits into memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from pydantic import Field

from placegap.instances.problem import Instance, Makespan, Plan
from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.graph_index import group_by
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.instances.problem.kernels import copy_to, draw, kernel
from placegap.instances.problem.sections import Interval, intervals
from placegap.solvers.core.clock import now_s
from placegap.solvers.core.method import EFFORT, Method, Params, Task
from placegap.solvers.core.progress import Incumbent, teller
from placegap.solvers.core.registry import register
from placegap.solvers.core.result import Outcome
from placegap.solvers.core.starts import best_start
from placegap.solvers.local_search.cooling import CoolingSteps, Pace, heat_of
from placegap.solvers.local_search.quick_schedule import (
    ScheduleArrays,
    Work,
    bottom_levels,
    kernel_data,
    new_work,
    plan_of,
    schedule,
)

HOT, COLD = 0.005, 1e-4
"""Temperatures at the beginning and at the end, relative to the makespan."""

MOST_OPS_OF_INTERVALS = 5_000
"""In larger graphs only chains are blocks: looking for intervals is quadratic."""

RUNS = 4
"""Runs by default: several short ones came out better than a long one."""

MOST_MOVES, MOVES_PER_OP, MOST_WORK = 20_000, 200, 40_000_000
"""Moves of a run by default; the last is the most that moves x (ops + edges) may be."""

STARTS = ("heft", "peft", "etf", "single-device", "m-topo", "order-place")


class AnnealingParams(Params):
    """Parameters of ``annealing``."""

    #: How many runs there are, each with random numbers of its own.
    restarts: int = Field(default=RUNS, ge=1, json_schema_extra=EFFORT)
    #: Moves of a run; by default `usual_moves`.
    moves: int | None = Field(default=None, ge=1, json_schema_extra=EFFORT)


def anneal(task: Task[Makespan], params: AnnealingParams) -> Outcome:
    """Anneal from the best plan known, `restarts` times; the best plan of all comes back.

    A heuristic. Without a time limit it is deterministic for a seed; with one, runs share the time
    that is left, and where `moves` is not given, more of them go on from the best plan until it is
    over. O(restarts x moves x (n + m) log m).
    """
    clock = task.limits.clock()
    start = best_start(task, STARTS)
    if start is None:
        return Outcome(message=f"no start: none of {', '.join(STARTS)} found a plan")
    search = Annealing(task.instance, task.semantics)
    on_news = teller(task.instance, task.semantics, "annealing")
    best = Incumbent(plan=start.plan, value_ns=start.value_ns, on_news=on_news)
    seed, tried = task.limits.seed, -1
    while tried < search.tried and not search.interrupted:
        tried = search.tried
        for plan in search.runs(
            [(best.plan or start.plan).devices],
            seed=seed,
            count=params.restarts,
            moves=params.moves,
            limit_s=clock.left_s,
        ):
            best.offer_plan(task, plan)
        seed += params.restarts
        if params.moves is not None or not clock.left_s:
            break
    return Outcome(
        best.plan,
        message="interrupted" if search.interrupted else "",
        details={"moves": search.tried},
    )


class Annealing:
    """Annealing of one instance from given placements.

    Parameters
    ----------
    semantics : Makespan
        Of objective makespan.
    candidates : sequence of Interval, optional
        The instance's intervals, where they are known.
    """

    def __init__(
        self, instance: Instance, semantics: Makespan, candidates: Sequence[Interval] | None = None
    ) -> None:
        self.instance, self.semantics = instance, semantics
        self.data = kernel_data(instance, semantics)
        self.moves, self.work = _moves(instance, candidates), new_work(self.data)
        n = instance.num_ops
        self.scratch = _Scratch(*(np.zeros(n, np.int64) for _ in range(5)))
        self.tried, self.interrupted = 0, False

    def runs(
        self,
        starts: Sequence[Ints],
        *,
        seed: int,
        count: int = RUNS,
        moves: int | None = None,
        limit_s: float | None = None,
    ) -> Iterator[Plan]:
        """The best plan of each of several runs, with random numbers of their own.

        Parameters
        ----------
        starts : sequence of (n,) int64
            Placements that fit into memory; the runs begin with them in turn.
        moves : int or None
            Of each run; by default `usual_moves`.
        limit_s : float or None
            Seconds of all runs together.
        """
        began = now_s()
        most = usual_moves(self.instance) if moves is None else moves
        for run in range(count):
            deadline, now = None, now_s()
            if limit_s is not None:
                left_s = began + limit_s - now
                if left_s <= 0:  # a run costs a schedule and its plan, even without moves
                    return
                deadline = now + left_s / (count - run)
            start = starts[run % len(starts)]
            yield self.run(start, seed=count * seed + run, moves=most, deadline=deadline)
            if self.interrupted:
                return

    def run(self, start: Ints, *, seed: int, moves: int, deadline: float | None = None) -> Plan:
        """The best plan seen from a placement that fits into memory.

        Parameters
        ----------
        start : (n,) int64
        seed, moves : int
            Random numbers, and how many moves are tried.
        deadline : float or None
            By `clock.now_s`; the cooling is fitted to the time that is left, and the result
            then depends on the machine.

        Notes
        -----
        O(n + m) log m per move. Ctrl-C ends it and returns the best plan.
        """
        n, k = self.instance.num_ops, self.instance.num_devices
        held = np.zeros(k, np.int64)
        np.add.at(held, start, self.moves.size_bytes)
        state = _State(
            start.copy(),
            np.zeros(n, np.int64),
            held,
            start.copy(),
            np.zeros(n, np.int64),
            np.zeros(2, np.int64),
        )
        state.value[:] = _evaluate(self.data, state, self.work, self.scratch)
        rng, pace = np.random.default_rng(seed), Pace(deadline)

        def walk(steps: CoolingSteps) -> None:
            _anneal(self.data, self.moves, state, self.work, self.scratch, rng, steps)

        try:
            if k > 1 and state.value[1] > 0:
                for _ in pace.cool(walk, moves, HOT, COLD / HOT, fits=True):
                    if state.value[1] == 0:
                        break
        except KeyboardInterrupt:
            self.interrupted = True
        self.tried += pace.moves
        state.device[:], state.shift[:] = state.best_device, state.best_shift
        _evaluate(self.data, state, self.work, self.scratch)
        return plan_of(self.instance, self.semantics, self.data, state.device, self.work)


def usual_moves(instance: Instance) -> int:
    """How many moves a run takes by default: two seconds' worth, fewer for less than 100 ops."""
    size = instance.num_ops + len(instance.graph.edges)
    return max(100, min(MOST_MOVES, MOVES_PER_OP * instance.num_ops, MOST_WORK // max(1, size)))


class _Moves(NamedTuple):
    """What may move: neighbours and colocation groups of ops, and blocks, all as CSR lists."""

    near_ptr: Ints
    near: Ints
    group: Ints
    member_ptr: Ints
    member: Ints
    block_ptr: Ints
    block: Ints
    size_bytes: Ints
    memory_bytes: Ints


def _moves(instance: Instance, candidates: Sequence[Interval] | None) -> _Moves:
    arrays, index, n = instance.arrays, instance.arrays.index, instance.num_ops
    ends = np.concatenate([index.producer, index.consumer])
    others = np.concatenate([index.consumer, index.producer])
    near_ptr, by_end = group_by(ends, n)
    member_ptr, member = group_by(arrays.group, arrays.num_groups)
    blocks = _chains(instance)
    if n <= MOST_OPS_OF_INTERVALS:
        found = intervals(instance) if candidates is None else candidates
        blocks += [list(interval.inner) for interval in found]
    block_ptr = np.concatenate([[0], np.cumsum([len(block) for block in blocks])]).astype(np.int64)
    block = np.array([i for ops in blocks for i in ops], np.int64)
    return _Moves(
        near_ptr,
        others[by_end],
        arrays.group,
        member_ptr,
        member,
        block_ptr,
        block,
        arrays.resident_bytes,
        arrays.memory_bytes,
    )


def _chains(instance: Instance) -> list[list[int]]:
    """Maximal paths, of two ops at least, whose inner ops have one producer and one consumer."""
    index = instance.arrays.index
    succ_ptr, succ_edge, pred_ptr = (
        values.tolist() for values in (index.succ_ptr, index.succ_edge, index.pred_ptr)
    )
    consumer = index.consumer.tolist()
    in_chain = [False] * instance.num_ops
    found = []
    for first in index.topological_order.tolist():
        if in_chain[first]:
            continue
        chain, i = [first], first
        while succ_ptr[i + 1] - succ_ptr[i] == 1:
            i = consumer[succ_edge[succ_ptr[i]]]
            if pred_ptr[i + 1] - pred_ptr[i] != 1:
                break
            chain.append(i)
            in_chain[i] = True
        if len(chain) > 1:
            found.append(chain)
    return found


class _State(NamedTuple):
    """Where the search is, and the best that it has seen; ``value[:]`` is (now, least)."""

    device: Ints
    shift: Ints
    held: Ints
    best_device: Ints
    best_shift: Ints
    value: Ints


class _Scratch(NamedTuple):
    """Arrays of a trial: levels and priorities, the ops that move and what they were."""

    level: Ints
    chosen: Ints
    mark: Ints
    old_device: Ints
    old_shift: Ints


@kernel(nogil=True, allocates=False)
def _evaluate(data: ScheduleArrays, state: _State, work: Work, scratch: _Scratch) -> int:
    bottom_levels(data, state.device, scratch.level)
    for i in range(len(scratch.level)):
        scratch.level[i] += state.shift[i]
    return schedule(data, state.device, scratch.level, work)


@kernel(nogil=True, allocates=False)
def _anneal(
    data: ScheduleArrays,
    moves: _Moves,
    state: _State,
    work: Work,
    scratch: _Scratch,
    rng: np.random.Generator,
    steps: CoolingSteps,
) -> None:
    """Try some moves of a cooling, whose heat is in makespans of the state at hand."""
    for step in range(steps.done, steps.done + steps.moves):
        kind = draw(rng, 10)
        if kind < 2:
            count = _shift_priorities(moves, state, scratch, rng)
        else:
            count = _move_ops(data, moves, state, scratch, rng, kind >= 7, kind >= 4)
        if count == 0:
            continue
        after = _evaluate(data, state, work, scratch)
        now = state.value[0]
        accepted = after <= now  # from a makespan of 0 nothing leads up
        if not accepted and now > 0:  # `limit_of`, but a number is drawn only where it counts
            accepted = rng.random() < np.exp((now - after) / (heat_of(steps, step) * now))
        if accepted:
            state.value[0] = after
            if after < state.value[1]:
                state.value[1] = after
                copy_to(state.best_device, state.device)
                copy_to(state.best_shift, state.shift)
        else:
            _undo(moves, state, scratch, count)


@kernel(nogil=True)
def _shift_priorities(
    moves: _Moves, state: _State, scratch: _Scratch, rng: np.random.Generator
) -> int:
    """Ops around one become more or less urgent, all by as much; how many."""
    count = _surroundings(moves, state, scratch, rng)
    by = int(rng.standard_normal() * state.value[0] * 0.05)
    for at in range(count):
        i = scratch.chosen[at]
        scratch.old_device[at], scratch.old_shift[at] = state.device[i], state.shift[i]
        state.shift[i] += by
    return count


@kernel(nogil=True, allocates=False)
def _move_ops(
    data: ScheduleArrays,
    moves: _Moves,
    state: _State,
    scratch: _Scratch,
    rng: np.random.Generator,
    block: bool,
    walk: bool,
) -> int:
    """A block, or ops around one, go to one device with what they are colocated with; how many.

    None do where one of them cannot run or the memory does not suffice.
    """
    k = len(moves.memory_bytes)
    if block and len(moves.block_ptr) > 1:
        b = draw(rng, len(moves.block_ptr) - 1)
        count = moves.block_ptr[b + 1] - moves.block_ptr[b]
        for at in range(count):
            scratch.chosen[at] = moves.block[moves.block_ptr[b] + at]
        first = scratch.chosen[draw(rng, count)]
    elif walk:
        most = 1 + draw(rng, 2 << draw(rng, 6))  # a random way forward, of up to 64 ops
        i, count = draw(rng, len(state.device)), 0
        while True:
            scratch.chosen[count] = i
            count += 1
            begin, end = data.succ_ptr[i], data.succ_ptr[i + 1]
            if begin == end or count == most:
                break
            i = data.consumer[data.succ_edge[begin + draw(rng, end - begin)]]
        first = scratch.chosen[count - 1]
    else:
        count = _surroundings(moves, state, scratch, rng)
        first = scratch.chosen[0]
    to = draw(rng, k)
    near = moves.near_ptr[first + 1] - moves.near_ptr[first]
    if near > 0 and draw(rng, 4) > 0:
        to = state.device[moves.near[moves.near_ptr[first] + draw(rng, near)]]
    moved: Any = np.int64(0)  # no literal: `_undo` is compiled once
    for at in range(count):
        g = moves.group[scratch.chosen[at]]
        for j in range(moves.member_ptr[g], moves.member_ptr[g + 1]):
            i = moves.member[j]
            if state.device[i] != to:
                scratch.old_device[moved], scratch.old_shift[moved] = state.device[i], i
                moved += 1
                state.held[state.device[i]] -= moves.size_bytes[i]
                state.held[to] += moves.size_bytes[i]
                state.device[i] = to
    allowed = state.held[to] <= moves.memory_bytes[to]
    for at in range(moved):
        i = scratch.old_shift[at]
        scratch.chosen[at], scratch.old_shift[at] = i, state.shift[i]
        allowed = allowed and data.time_ns[i, to] != UNSUPPORTED
    if not allowed:
        _undo(moves, state, scratch, moved)
        return 0
    return int(moved)


@kernel(nogil=True, allocates=False)
def _surroundings(moves: _Moves, state: _State, scratch: _Scratch, rng: np.random.Generator) -> int:
    """A random op and up to 63 around it on the same device, breadth first; how many."""
    n = len(state.device)
    most = 1 + draw(rng, 2 << draw(rng, 6))
    scratch.mark[0] += 1
    first = draw(rng, n)
    chosen, count, at = scratch.chosen, 1, 0
    chosen[0] = first
    while at < count < most:
        i = chosen[at]
        at += 1
        for j in moves.near[moves.near_ptr[i] : moves.near_ptr[i + 1]]:
            known = state.device[j] != state.device[first]
            for c in range(count):
                known = known or chosen[c] == j
            if not known and count < most:
                chosen[count] = j
                count += 1
    return count


@kernel(nogil=True, allocates=False)
def _undo(moves: _Moves, state: _State, scratch: _Scratch, count: int) -> None:
    for at in range(count):
        i, back = scratch.chosen[at], scratch.old_device[at]
        state.held[state.device[i]] -= moves.size_bytes[i]
        state.held[back] += moves.size_bytes[i]
        state.device[i], state.shift[i] = back, scratch.old_shift[at]


register(
    Method(
        name="annealing",
        claim="heuristic",
        objectives=("makespan",),
        paper="placegap",
        summary="simulated annealing of placement and priorities, on a compiled scheduler",
        run=anneal,
        params=AnnealingParams,
        packages=("numba",),
    )
)
