"""The chain that layers are cut from: short sections, and none that a dearer tensor skips.

Groups that no option places are nowhere, with their work. So a chain with short sections proves
more, even where a long one counts more ops: its layers are smaller.

A gate is often a small tensor, as the scale of a normalization, beside a large one that leads past
it. At such a gate a chain would change devices for next to nothing. So sections that an edge skips
become one, if something between its ends is sent sooner than the edge is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from placegap.instances.problem.array_types import Flags, Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.sections import Interval, Section, choose_chain, interval

MOST_INNER, MOST_JOINED = 40, 8
"""Ops of an interval, and ops of sections that become one, its entry aside."""


def layer_chains(
    instance: Instance, candidates: Sequence[Interval]
) -> Iterator[tuple[Section, ...]]:
    """A chain of short sections, and, where some interval is longer, one of any."""
    short = [one for one in candidates if len(one[2]) <= MOST_INNER]
    yield joined_where_cheap(instance, choose_chain(instance, short))
    if len(short) < len(candidates):
        yield joined_where_cheap(instance, choose_chain(instance, candidates))


def joined_where_cheap(instance: Instance, chain: Sequence[Section]) -> tuple[Section, ...]:
    """The chain, with sections made one that an edge skips and that something passes sooner.

    O(m log m + edges that skip * sections that they skip).

    Examples
    --------
    Nothing skips a section of the diamond:

    >>> from placegap.instances import example
    >>> from placegap.instances.problem.sections import intervals
    >>> chain = choose_chain(example(), intervals(example()))
    >>> joined_where_cheap(example(), chain) == chain
    True
    """
    if instance.num_devices < 2 or len(chain) < 2:
        return tuple(chain)
    arrays, index = instance.arrays, instance.arrays.index
    apart = ~np.eye(instance.num_devices, dtype=np.bool_)
    send = arrays.transfer_ns[:, arrays.link_class][:, apart].min(axis=1)[index.tensor]
    least = np.array([send[list(part.edges)].min() for part in chain], np.int64)
    first, last = _places(instance, chain)
    begin, end = first[index.producer], last[index.consumer]
    skips = np.flatnonzero((begin >= 0) & (end > begin) & (end < begin + MOST_JOINED))
    size = np.array([len(part.ops) - 1 for part in chain], np.int64)
    one = np.zeros(len(chain), np.bool_)  # whether a section and the next one are one
    for e in skips[np.argsort((end - begin)[skips], kind="stable")].tolist():
        i, j = int(begin[e]), int(end[e])
        if least[i : j + 1].min() < send[e]:
            _join(one, size, i, j)
    return _sections(instance, chain, one)


def _places(instance: Instance, chain: Sequence[Section]) -> tuple[Ints, Ints]:
    """The section that edges out of each op begin in, and that edges into it end in; -1: none."""
    first, last = np.full((2, instance.num_ops), -1)
    for s, part in enumerate(chain):
        first[list(part.ops[:-1])] = s
        last[list(part.ops[1:])] = s
    return first, last


def _join(one: Flags, size: Ints, i: int, j: int) -> None:
    """Make the sections i to j one, with those that they are one with, if these are few ops."""
    low, high = i, j
    while low > 0 and one[low - 1]:
        low -= 1
    while high < len(one) - 1 and one[high]:
        high += 1
    if size[low : high + 1].sum() <= MOST_JOINED:
        one[i:j] = True


def _sections(instance: Instance, chain: Sequence[Section], one: Flags) -> tuple[Section, ...]:
    found, begin = list[Section](), 0
    for end, part in enumerate(chain):
        if one[end]:
            continue
        entry, leave = chain[begin].entry, part.exit
        if begin < end and entry is not None and leave is not None:
            inner = [op for each in chain[begin : end + 1] for op in each.ops[1:]][:-1]
            part = interval(instance, inner, entry, leave)
        found.append(part)
        begin = end + 1
    return tuple(found)
