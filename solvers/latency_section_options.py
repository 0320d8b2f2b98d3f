"""All worthwhile ways to run a section of a spine between the calls that hold its two bottlenecks.

A call with the bottleneck before the section holds an ideal D of it (with an op, all of the section
before it: calls are convex), a call with the bottleneck after it the complement of an ideal J, and
D is part of J. What is left, J without D, runs while no such call does: the time from the end of
the one to the start of the other is at least its longest path. So a way costs

    time(D) + tensors out of the first call + gap(J without D) + tensors into the other + time(rest)

and it takes memory of two calls. Ways are tried by memory of the first call; those that an earlier
one beats in all three are left out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from placegap.instances.index import Ints
from placegap.solvers.latency_spine import NEVER, Spine

MOST_NODES = 62
"""Larger sections do not fit the bits of an integer."""

MOST_IDEALS = 20_000
"""Sections with more ideals are not enumerated: pairs of them are compared."""


class Section(NamedTuple):
    """A section of k nodes; its bottlenecks are before and after it.

    Attributes
    ----------
    own_ns, host_ns, size_bytes : (k,) int64
    ideal : (k,) int64
        Bits of the nodes before each.
    pred : (k,) int64
        Of those, the nodes with none between.
    producer : (e,) int64
        Node of each net, -1 for the bottleneck before.
    consumers : (e,) int64
        Bits of its consumers.
    onward : (e,) int64
        1 if the bottleneck after the section is a consumer.
    farther : (e,) int64
        1 if something after that bottleneck is a consumer.
    move_ns : (e,) int64
    arriving, arriving_ns : (a, 3), (a,) int64
        Tensors from before the bottleneck before the section: bits of their consumers in the first
        call if it is sure to be without the producer, and has not paid; in calls between; in the
        second call, if no later op is a consumer.
    """

    own_ns: Ints
    host_ns: Ints
    size_bytes: Ints
    ideal: Ints
    pred: Ints
    producer: Ints
    consumers: Ints
    onward: Ints
    farther: Ints
    move_ns: Ints
    arriving: Ints
    arriving_ns: Ints


class Options(NamedTuple):
    """Ways to run a section: memory in the first call, in the second, cost; bits of D and of J."""

    first_bytes: Ints
    second_bytes: Ints
    cost_ns: Ints
    inside: Ints
    ideal: Ints


def build_section(spine: Spine, t: int) -> Section:
    """Section t of a spine, and the tensors that are made in it or by the bottleneck before it."""
    nodes, inner = spine.nodes, spine.sections[t]
    number = {v: i for i, v in enumerate(inner)}
    if t:
        number[spine.bottlenecks[t - 1]] = -1
    end = spine.bottlenecks[t] if t < len(spine.bottlenecks) else -1
    rows = []
    for net in nodes.nets:
        bits = sum(1 << number[j] for j in net.consumers if number.get(j, -1) >= 0)
        if net.producer in number:
            onward = int(end in net.consumers)
            farther = int(end >= 0 and bool(nodes.after[end, list(net.consumers)].any()))
            rows.append((number[net.producer], bits, onward, farther, net.move_ns))
    table = np.array(rows, np.int64).reshape(-1, 5)
    below = nodes.after[np.ix_(inner, inner)]
    ideal = [sum(1 << i for i in np.flatnonzero(column).tolist()) for column in below.T]
    through = [0] * len(inner)
    for v, bits in enumerate(ideal):
        for i in range(len(inner)):
            through[v] |= ideal[i] if bits >> i & 1 else 0
    pred = [bits & ~behind for bits, behind in zip(ideal, through, strict=True)]
    columns = [np.ascontiguousarray(column) for column in table.T]
    return Section(
        nodes.own_ns[inner], nodes.host_ns[inner], nodes.size_bytes[inner],
        np.array(ideal, np.int64), np.array(pred, np.int64),
        columns[0], columns[1], columns[2], columns[3], columns[4],
        arriving=np.zeros((0, 3), np.int64), arriving_ns=np.zeros(0, np.int64),
    )  # fmt: skip


def options(section: Section, room: int, first: bool, second: bool, limit_ns: int) -> Options:
    """Ways that take at most `limit_ns`; whether a call is open before, and another one after.

    Without the first, D is empty; without the second, J is all. A section that is too large has one
    way, which costs its longest path and no memory.

    Examples
    --------
    The diamond's middle, ops 2 and 3 of 20 and 10 ns with tensors of 1 and 20 in and 1 and 10 out.
    Nothing in the calls; op 3 in the first; op 2 in the second, too: 10 + 1 + 10, 1 + 10 + 20:

    >>> from placegap.instances import example
    >>> from placegap.solvers.latency_spine import build_nodes, build_spine
    >>> section = build_section(build_spine(build_nodes(example(), 1)), 1)
    >>> found = options(section, 0, True, True, NEVER)
    >>> found.cost_ns.tolist(), found.inside.tolist(), found.ideal.tolist()
    ([72, 54, 52], [0, 2, 2], [3, 3, 2])
    """
    k = len(section.own_ns)
    ideals = np.zeros(1, np.int64)
    if k:
        found, count = _ideals(section.ideal, MOST_IDEALS)
        if count > MOST_IDEALS:
            return _longest(section)
        ideals = found[:count]
    all_of_it = (1 << k) - 1
    starts = ideals if first else np.zeros(1, np.int64)
    ends = ideals if second else np.array([all_of_it], np.int64)
    found = _options(section, starts, ends, room, first, second, all_of_it, limit_ns)
    return Options(*(np.ascontiguousarray(column) for column in found.T))


def too_large(section: Section) -> bool:
    """Whether a section has more nodes than fit."""
    return len(section.own_ns) > MOST_NODES


def _longest(section: Section) -> Options:
    zero = np.zeros(1, np.int64)
    return Options(zero, zero, zero, zero, zero)


@njit(cache=True)
def _ideals(below: Ints, most: int) -> tuple[Ints, int]:
    """Bits of every ideal, and how many; nodes come in topological order.

    Every prefix of an ideal in that order is an ideal: each is made once, from the one without its
    last node.
    """
    found, last = np.zeros(most + 1, np.int64), np.full(most + 1, -1, np.int64)
    count, at = 1, 0
    while at < count:
        for v in range(last[at] + 1, len(below)):
            if below[v] & ~found[at] == 0:
                if count > most:
                    return found, count
                found[count], last[count] = found[at] | (1 << v), v
                count += 1
        at += 1
    return found, count


@njit(cache=True)
def _options(
    section: Section, starts: Ints, ends: Ints, room: int, first: bool, second: bool,
    all_of_it: int, limit_ns: int,
) -> Ints:  # fmt: skip
    """Rows of `Options`: by memory of the first call, each better than those before it."""
    cost_in, size_in = _first_calls(section, starts, first)
    cost_out, size_out = _second_calls(section, ends, second, all_of_it)
    sizes = np.unique(size_out)
    rank = np.searchsorted(sizes, size_out)
    best = np.full(len(sizes) + 1, NEVER, np.int64)  # prefix minima, as a Fenwick tree
    order, ends_order = np.argsort(size_in), np.argsort(cost_out)
    done = np.zeros((2, len(section.own_ns)), np.int64)
    rows, count = np.zeros((64, 5), np.int64), 0
    for d in order:
        if cost_in[d] >= NEVER or size_in[d] > room:
            continue
        for j in ends_order:
            if cost_in[d] + cost_out[j] > limit_ns or cost_out[j] >= NEVER:
                break
            if starts[d] & ~ends[j] != 0 or size_out[j] > room:
                continue
            cost, known, at = cost_in[d] + cost_out[j], NEVER, rank[j] + 1
            while at > 0:
                known = min(known, best[at])
                at -= at & -at
            if cost >= known:
                continue
            cost += _gap(section, ends[j] & ~starts[d], room, done)
            if cost >= known or cost > limit_ns:
                continue
            at = rank[j] + 1
            while at <= len(sizes):
                best[at] = min(best[at], cost)
                at += at & -at
            if count == len(rows):
                rows = np.concatenate((rows, np.zeros_like(rows)))
            rows[count] = size_in[d], size_out[j], cost, starts[d], ends[j]
            count += 1
    return rows[:count]


@njit(cache=True)
def _first_calls(section: Section, inside: Ints, call: bool) -> tuple[Ints, Ints]:
    """Time and tensors out of a call that ends with each ideal, and the ideal's bytes."""
    cost, size = np.zeros(len(inside), np.int64), np.zeros(len(inside), np.int64)
    for d in range(len(inside) if call else 0):
        cost[d], size[d] = _work(section, inside[d])
        for e in range(len(section.producer)):
            p = section.producer[e]
            leaves = (
                section.onward[e] + section.farther[e] > 0 or section.consumers[e] & ~inside[d] != 0
            )
            if leaves and (p < 0 or inside[d] >> p & 1 != 0) and cost[d] < NEVER:
                cost[d] += section.move_ns[e]
        cost[d] += _arriving(section, inside[d], 0) if cost[d] < NEVER else 0
    return cost, size


@njit(cache=True)
def _arriving(section: Section, inside: int, column: int) -> int:
    """Tensors from far before the section that a call with these nodes brings in."""
    total = np.int64(0)
    for a in range(len(section.arriving_ns)):
        if section.arriving[a, column] & inside:
            total += section.arriving_ns[a]
    return int(total)


@njit(cache=True)
def _second_calls(section: Section, ideal: Ints, call: bool, all_of_it: int) -> tuple[Ints, Ints]:
    """Tensors into and time of a call that begins with what is not in each ideal, and its bytes."""
    cost, size = np.zeros(len(ideal), np.int64), np.zeros(len(ideal), np.int64)
    for j in range(len(ideal) if call else 0):
        inside = all_of_it & ~ideal[j]
        cost[j], size[j] = _work(section, inside)
        for e in range(len(section.producer)):
            p = section.producer[e]
            enters = section.onward[e] != 0 or section.consumers[e] & inside != 0
            if enters and (p < 0 or inside >> p & 1 == 0) and cost[j] < NEVER:
                cost[j] += section.move_ns[e]
        cost[j] += _arriving(section, inside, 2) if cost[j] < NEVER else 0
    return cost, size


@njit(cache=True)
def _work(section: Section, inside: int) -> tuple[int, int]:
    """Time of some nodes on an accelerator, `NEVER` if it does not run one, and their bytes."""
    time, size, runs = np.int64(0), np.int64(0), True
    for v in range(len(section.own_ns)):
        if inside >> v & 1:
            size += section.size_bytes[v]
            runs &= section.own_ns[v] < NEVER
            time += section.own_ns[v] if runs else 0
    return int(time) if runs else NEVER, int(size)


@njit(cache=True)
def _gap(section: Section, inside: int, room: int, done: Ints) -> int:
    """What the nodes between two calls take at least: a longest path.

    ``done[0]`` is on hosts, ``done[1]`` in calls: these bring in what comes from elsewhere, and
    take out what goes elsewhere.
    """
    gap = np.int64(0)
    for v in range(len(section.own_ns)):
        if not inside >> v & 1:
            continue
        alone = called = np.int64(0)
        for p in range(v):
            if section.pred[v] >> p & 1 and inside >> p & 1:
                alone = max(alone, min(done[0, p], done[1, p]))
        called = alone
        entering, leaving = np.int64(_arriving(section, 1 << v, 1)), np.int64(0)
        for e in range(len(section.producer)):
            p, move = section.producer[e], section.move_ns[e]
            if p == v:
                if section.onward[e] + section.farther[e] > 0 or section.consumers[e] & ~inside:
                    leaving += move
            elif section.consumers[e] >> v & 1:
                if p < 0 or not inside >> p & 1:
                    entering += move
                else:
                    alone = max(alone, min(done[0, p], done[1, p] + move))
                    apart = section.size_bytes[p] + section.size_bytes[v] > room
                    again = 2 * move if apart else np.int64(0)  # out of one call, into another
                    called = max(called, min(done[0, p] + move, done[1, p] + again))
        called = max(called, entering)
        done[0, v] = NEVER if section.host_ns[v] >= NEVER else alone + section.host_ns[v]
        done[1, v] = NEVER if section.own_ns[v] >= NEVER else called + section.own_ns[v]
        gap = max(gap, min(done[0, v], done[1, v] + leaving))
    return int(gap)
