"""Simulated annealing of where runs of the order, and parts, are, on quick schedules.

A state is a device per place of the order of colocation groups, and a shift of each op's priority;
the priority itself is the longest way to the end under the placement. The state of the ops fits;
what overfills memory at its peak is charged for, the more the longer the search has not fitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from placegap.instances.problem.additive_memory import relax_memory
from placegap.instances.problem.array_types import Flags, Floats, Ints
from placegap.instances.problem.graph_index import group_by
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.kernels import copy_to, draw, kernel
from placegap.instances.problem.modules import group_order, place_of_ops
from placegap.instances.problem.semantics import Makespan, memory_rule
from placegap.solvers.local_search.nested_parts import alike, nested_parts
from placegap.solvers.local_search.peak_memory import PeakArrays, peak_excess
from placegap.solvers.local_search.quick_schedule import (
    Booked,
    ScheduleArrays,
    Work,
    bottom_levels,
    insert_all,
    schedule,
)

HOT, COLD = 4e-3, 2e-5
"""Temperatures at the beginning and at the end, in makespans of the start."""

DEARER, CHEAPER = 1.01, 0.998
"""What a move that leaves the search in, or out of, overfilled memory makes of memory's price."""

PRICE, LEAST_PRICE, MOST_PRICE = 2.0, 0.1, 100.0
"""Of one whole memory too many, in makespans of the start: at first, at least, at most."""

SHIFT_SHARE, PARTS_SHARE = 0.02, 0.8
"""Of all moves: those that make ops more or less urgent, and those that move parts."""

COPY_SHARE, EXCHANGE_SHARE, RENAME_SHARE = 0.5, 0.3, 0.65
"""Of the moves of parts, those that place a part like another one; of them, those that exchange,
and up to which share devices change names."""

MOST_PARTS = 5
"""Neighbours among the parts that go to one device together."""

LONGEST_RUN, MEAN_SHIFT = 0.25, 4.0
"""Of all groups, for the longest run that moves; and how far a border between devices goes."""


class Line(NamedTuple):
    """The order of the colocation groups, P places for n ops and K devices.

    Attributes
    ----------
    place : (n,) int64
        Of each op's group.
    able : (P, K) bool
        Where each place can be.
    size_bytes : (P,) int64
        What each place holds at least, under either rule of memory.
    room_bytes : (K,) int64
    member_ptr, member : int64
        The ops of each place, as a CSR list.
    part_ptr, part : int64
        The places of each of `nested_parts`, as a CSR list.
    same_ptr, same : int64
        The numbers of parts that look the same, as a CSR list.
    """

    place: Ints
    able: Flags
    size_bytes: Ints
    room_bytes: Ints
    member_ptr: Ints
    member: Ints
    part_ptr: Ints
    part: Ints
    same_ptr: Ints
    same: Ints


class RunState(NamedTuple):
    """Where the search is, a trial, and the best seen.

    ``value[:]`` is (now, least that fits), and ``memory[:]`` by which
    share of its memory a device is too full now, and its price. `at` and its like are (P,), and
    the others (n,); `device` is that of the trial.
    """

    at: Ints
    trial: Ints
    best_at: Ints
    shift: Ints
    trial_shift: Ints
    best_shift: Ints
    device: Ints
    level: Ints
    held: Ints
    value: Ints
    memory: Floats


def line_of(instance: Instance, semantics: Makespan) -> Line:
    """The order of an instance, and the bytes by which moves are told at once not to fit.

    Examples
    --------
    >>> from placegap.instances import example
    >>> line_of(example(), Makespan()).place.tolist()
    [0, 1, 2, 3]
    """
    arrays = instance.arrays
    order = group_order(arrays)
    place = place_of_ops(arrays, order)
    least = (
        arrays if memory_rule(semantics) == "sum" else relax_memory(instance, semantics)[0].arrays
    )
    member_ptr, member = group_by(place, len(order))
    parts = nested_parts(instance, order)
    return Line(
        place,
        arrays.group_runs[order],
        least.group_bytes[order],
        arrays.memory_bytes,
        member_ptr,
        member,
        *_listed(parts),
        *_listed(alike(instance, order, parts)),
    )


def _listed(rows: Sequence[Sequence[int]]) -> tuple[Ints, Ints]:
    """Lists of numbers as pointers, and all numbers in a row."""
    numbers = [number for row in rows for number in row]
    return np.cumsum([0, *map(len, rows)]), np.array(numbers, np.int64)


def new_state(line: Line, device: Ints) -> RunState:
    """The state of a placement that respects colocation, (n,), before it is judged."""
    at = np.empty(len(line.size_bytes), np.int64)
    at[line.place] = device
    n, k = len(device), len(line.room_bytes)
    shift, trial_shift, best_shift, level = np.zeros((4, n), np.int64)
    return RunState(
        at,
        at.copy(),
        at.copy(),
        shift,
        trial_shift,
        best_shift,
        device.copy(),
        level,
        np.zeros(k, np.int64),
        np.zeros(2, np.int64),
        np.array([0.0, PRICE]),
    )


@kernel(nogil=True, allocates=False)
def time_of(
    data: ScheduleArrays,
    line: Line,
    state: RunState,
    at: Ints,
    shift: Ints,
    work: Work,
    booked: Booked,
    limit: float,
) -> int:
    """The makespan of devices and shifts; `work` has the times, and `state.device` the devices.

    Ops are inserted where something can be booked. Where the longest way is above the limit, it is
    returned, and nothing is scheduled.
    """
    device, level = state.device, state.level
    for i in range(len(device)):
        device[i] = at[line.place[i]]
    bottom_levels(data, device, level)
    longest = 0
    for i in range(len(device)):
        longest = max(longest, level[i])
        level[i] += shift[i]
    if longest > limit:
        return int(longest)
    if len(booked.stretches) > 0:
        return insert_all(data, device, level, work, booked)
    return schedule(data, device, level, work)


@kernel(nogil=True, allocates=False)
def anneal(
    data: ScheduleArrays,
    line: Line,
    peak: PeakArrays,
    at_peak: bool,
    state: RunState,
    work: Work,
    booked: Booked,
    rng: np.random.Generator,
    done: int,
    chunk: int,
    total: int,
    hot_ns: float,
) -> None:
    """Try moves number `done` to `done + chunk` of `total`."""
    at, trial, value, memory = state.at, state.trial, state.value, state.memory
    for step in range(chunk):
        heat = hot_ns * (COLD / HOT) ** ((done + step) / total)
        price = memory[1] * hot_ns / HOT
        limit = value[0] + price * memory[0] - heat * np.log(1.0 - rng.random())
        copy_to(trial, at)
        copy_to(state.trial_shift, state.shift)
        kind = rng.random()
        if kind < SHIFT_SHARE:
            _shift(line, state, rng)
        else:
            if kind < SHIFT_SHARE + PARTS_SHARE:
                _move_parts(line, at, trial, rng)
            else:
                _move(line, at, trial, rng)
            if not _changed(line, state):
                continue
        now, excess = time_of(data, line, state, trial, state.trial_shift, work, booked, limit), 0.0
        if at_peak and now <= limit:
            excess = peak_excess(peak, state.device, work.start, work.end)
        if now + price * excess <= limit:
            copy_to(at, trial)
            copy_to(state.shift, state.trial_shift)
            value[0], memory[0] = now, excess
            if excess == 0.0 and now < value[1]:
                value[1] = now
                copy_to(state.best_at, at)
                copy_to(state.best_shift, state.shift)
        memory[1] *= DEARER if memory[0] > 0.0 else CHEAPER
        memory[1] = min(max(memory[1], LEAST_PRICE), MOST_PRICE)


@kernel(nogil=True, allocates=False)
def _changed(line: Line, state: RunState) -> bool:
    """Whether the trial is another placement that may fit; places that cannot follow stay."""
    at, trial, held = state.at, state.trial, state.held
    differs = False
    for a in range(len(held)):
        held[a] = 0
    for p in range(len(at)):
        if not line.able[p, trial[p]]:
            trial[p] = at[p]
        differs = differs or trial[p] != at[p]
        held[trial[p]] += line.size_bytes[p]
    if differs:
        for a in range(len(held)):
            if held[a] > line.room_bytes[a]:
                return False
    return differs


@kernel(nogil=True)
def _shift(line: Line, state: RunState, rng: np.random.Generator) -> None:
    """The ops of a run, or some of them, become more or less urgent, all by as much."""
    p = draw(rng, len(line.size_bytes))
    far = 1 + int(rng.exponential(MEAN_SHIFT))
    by = int(rng.standard_normal() * state.value[0] * 0.02)
    for q in range(p, min(p + far, len(line.size_bytes))):
        for i in line.member[line.member_ptr[q] : line.member_ptr[q + 1]]:
            if rng.random() < 0.7:
                state.trial_shift[i] += by


@kernel(nogil=True, allocates=False)
def _move(line: Line, at: Ints, trial: Ints, rng: np.random.Generator) -> None:
    """Write the devices after one move, whatever their memory, into the trial."""
    num, k = line.able.shape
    kind = rng.random()
    length = 1 + int(LONGEST_RUN * (num - 1) * rng.random() ** 4)
    i = draw(rng, num - length + 1)
    if kind < 0.4:
        border = _border(at, rng)
        far = 1 + int(rng.exponential(MEAN_SHIFT))
        if border < 0:
            return
        if rng.random() < 0.5:
            for p in range(border + 1, min(num, border + 1 + far)):
                trial[p] = at[border]
        else:
            for p in range(max(0, border + 1 - far), border + 1):
                trial[p] = at[border + 1]
    elif kind < 0.65:
        to = draw(rng, k)
        for p in range(i, i + length):
            trial[p] = to
    elif kind < 0.75:
        by = draw(rng, length + 1)
        for p in range(length):
            trial[i + (p + by) % length] = at[i + p]
    elif kind < 0.9:
        a, b = draw(rng, k), draw(rng, k)
        for p in range(i, i + length):
            if at[p] == a:
                trial[p] = b
            elif at[p] == b:
                trial[p] = a
    else:
        j = draw(rng, num - length + 1)
        for p in range(length):
            trial[i + p] = at[j + p]
        for p in range(length):
            trial[j + p] = at[i + p]


@kernel(nogil=True, allocates=False)
def _move_parts(line: Line, at: Ints, trial: Ints, rng: np.random.Generator) -> None:
    """A part goes to another device, or some neighbours among the parts, or two exchange theirs."""
    ptr, part, k = line.part_ptr, line.part, line.able.shape[1]
    if len(line.same) > 0 and rng.random() < COPY_SHARE:
        _copy(line, at, trial, rng)
        return
    i = draw(rng, len(ptr) - 1)
    a, kind = at[part[ptr[i]]], rng.random()
    if kind < 0.75:
        last = i + 1 if kind < 0.4 else min(len(ptr) - 1, i + 1 + draw(rng, MOST_PARTS))
        b = (a + 1 + draw(rng, k - 1)) % k
        for p in part[ptr[i] : ptr[last]]:
            trial[p] = b
        return
    j = draw(rng, len(ptr) - 1)
    b = at[part[ptr[j]]]
    for p in part[ptr[i] : ptr[i + 1]]:
        trial[p] = b
    for p in part[ptr[j] : ptr[j + 1]]:
        trial[p] = a


@kernel(nogil=True, allocates=False)
def _copy(line: Line, at: Ints, trial: Ints, rng: np.random.Generator) -> None:
    """A part is placed like another one that looks the same, which may be placed like it in turn.

    The devices of their first places may change names.
    """
    ptr, part = line.part_ptr, line.part
    c = draw(rng, len(line.same_ptr) - 1)
    first, count = line.same_ptr[c], line.same_ptr[c + 1] - line.same_ptr[c]
    i, j = line.same[first + draw(rng, count)], line.same[first + draw(rng, count)]
    a, b = at[part[ptr[i]]], at[part[ptr[j]]]
    kind = rng.random()
    for p in range(ptr[i + 1] - ptr[i]):
        d = at[part[ptr[i] + p]]
        if kind < EXCHANGE_SHARE:
            trial[part[ptr[i] + p]] = at[part[ptr[j] + p]]
        elif kind < RENAME_SHARE and d == a:
            d = b
        elif kind < RENAME_SHARE and d == b:
            d = a
        trial[part[ptr[j] + p]] = d


@kernel(nogil=True, allocates=False)
def _border(at: Ints, rng: np.random.Generator) -> int:
    """A place whose next one is on another device, at random; -1 without one."""
    count = 0
    for p in range(len(at) - 1):
        count += at[p] != at[p + 1]
    if count == 0:
        return -1
    which = draw(rng, count)
    for p in range(len(at) - 1):
        if at[p] != at[p + 1]:
            if which == 0:
                return p
            which -= 1
    return -1
