"""Rows of labels: one layer further in, with names for identical devices, and without worse ones.

Columns are state, start, rest, source, option, names, and work and bytes by device (`labels`).
"""

from __future__ import annotations

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.integers import NO_WAY
from placegap.instances.problem.kernels import kernel

WORK = 6
"""Columns before the work."""


@kernel
def grown_labels(
    state: Ints,
    start: Ints,
    left: Ints,
    work: Ints,
    held: Ints,
    forward: Ints,
    back: Ints,
    more: Ints,
    ready: Ints,
    bytes_more: Ints,
    least: Ints,
    order: Ints,
    step: Ints,
    room: Ints,
    unready: Ints,
    head: Ints,
    floor: Ints,
    gate: Ints,
    rest: Ints,
    price: Ints,
    shift: int,
    most: int,
    most_rows: int,
    most_tried: int,
) -> tuple[Ints, int]:
    """A row for each label one layer further in that is not above the threshold, at most so many.

    `order` has the options by what is `least` with them. Second, how many ways were looked at.
    """
    num_devices, num_rooms = len(step), len(room)
    width = WORK + num_devices + num_rooms
    rows, count, tried = np.empty((1024, width), np.int64), 0, 0
    for r in range(len(state)):
        a, b, cost = state[r] // num_devices, state[r] % num_devices, 0
        for d in range(len(price)):
            cost += price[d] * held[r, d]
        so_far = start[r] + left[r] + (cost >> shift)
        for p in order[a, b]:
            if so_far + least[a, b, p] > most or tried > most_tried:
                break
            tried += 1
            fits = True
            for d in range(num_rooms):
                fits = fits and held[r, d] + bytes_more[p, d] <= room[d]
            if not fits:
                continue
            paid = cost
            for d in range(len(price)):
                paid += price[d] * bytes_more[p, d]
            paid >>= shift
            for b2 in range(num_devices):
                if back[p, b2, b] >= NO_WAY:
                    continue
                remain = max(left[r] + back[p, b2, b], floor[b2])
                for d in range(num_devices):
                    ahead = (work[r, d] + ready[p, d]) * step[d] - unready[d]
                    if ahead > 0 and d != b2:  # not before the gate has ended
                        ahead = min(NO_WAY, ahead + gate[b2])
                    remain = max(remain, ahead)
                for a2 in range(num_devices):
                    if forward[p, a, a2] >= NO_WAY:
                        continue
                    tried += 1
                    begin = max(start[r] + forward[p, a, a2], head[a2])
                    if begin + paid + remain + rest[a2, b2] > most:
                        continue
                    if count == most_rows:
                        return rows, tried
                    if count == len(rows):
                        wider = np.empty((2 * count, width), np.int64)
                        wider[:count] = rows
                        rows = wider
                    rows[count, 0] = a2 * num_devices + b2
                    rows[count, 1], rows[count, 2] = begin, remain
                    rows[count, 3], rows[count, 4] = r, p
                    for d in range(num_devices):
                        rows[count, WORK + d] = work[r, d] + more[p, d]
                    for d in range(num_rooms):
                        rows[count, WORK + num_devices + d] = held[r, d] + bytes_more[p, d]
                    count += 1
    return rows[:count], tried


@kernel
def rename_alike(rows: Ints, kind: Ints, num_devices: int) -> None:
    """Number the devices of a kind by work, bytes, and whether they have a gate; in place."""
    num_rooms = rows.shape[1] - WORK - num_devices
    order, name = np.arange(num_devices), np.empty(num_devices, np.int64)
    kept = np.empty(rows.shape[1], np.int64)
    for row in rows:
        a, b = row[0] // num_devices, row[0] % num_devices
        for d in range(num_devices):
            order[d] = d
        for d in range(1, num_devices):  # an insertion sort within each kind
            at = d
            for c in range(d - 1, -1, -1):
                if kind[c] != kind[d]:
                    continue
                one, other = order[c], order[at]
                less = row[WORK + other] - row[WORK + one]
                if less == 0 and num_rooms:
                    less = row[WORK + num_devices + other] - row[WORK + num_devices + one]
                if less == 0:
                    less = 2 * (int(other == a) - int(one == a)) + int(other == b) - int(one == b)
                if less >= 0:
                    break
                order[c], order[at] = other, one
                at = c
        kept[:] = row
        for d in range(num_devices):
            name[order[d]] = d
            row[WORK + d] = kept[WORK + order[d]]
            if num_rooms:
                row[WORK + num_devices + d] = kept[WORK + num_devices + order[d]]
        code = 0
        for d in range(num_devices - 1, -1, -1):
            code = code * num_devices + name[d]
        row[0], row[WORK - 1] = name[a] * num_devices + name[b], code


@kernel
def first_of(key: Ints, left: Ints, held: Ints) -> Ints:
    """Rows, by key and rising start, whose rest is less than that of all before them.

    They get the least bytes of any row of their key.
    """
    kept, count, least, begin = np.empty(len(key), np.int64), 0, 0, 0
    for r in range(len(key)):
        if r == 0 or key[r] != key[r - 1]:
            begin, least = count, left[r] + 1
            for d in range(held.shape[1]):
                z = r + 1
                while z < len(key) and key[z] == key[r]:
                    held[r, d] = min(held[r, d], held[z, d])
                    z += 1
        if left[r] < least:
            least = left[r]
            kept[count] = r
            for d in range(held.shape[1]):
                held[r, d] = held[kept[begin], d]
            count += 1
    return kept[:count]
