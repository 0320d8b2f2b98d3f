"""Least durations of calls of which only some members are known: minimum cuts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from ortools.graph.python import max_flow

from placegap.instances.problem.array_types import Flags, Ints
from placegap.instances.problem.graph_index import GraphIndex

INSIDE, OUTSIDE = 1, 2
"""Sides of ops that are in a call, and that are not; 0 for who knows."""


class CallCuts:
    """Networks whose cuts are calls: the source's side are its members.

    An op costs its time there. A tensor costs its move if it has ends on both sides: it has two
    nodes, the first with the source if some end is, the second with the sink if some end is, and
    the arc between them is what is cut.

    Parameters
    ----------
    index : GraphIndex
    own_ns : (n,) int64
        Time of each op on an accelerator, at least.
    able : (n,) bool
        Whether an accelerator runs it.
    move_ns : (t,) int64
        Time of each tensor into or out of an accelerator, at least.
    """

    def __init__(self, index: GraphIndex, own_ns: Ints, able: Flags, move_ns: Ints) -> None:
        n, t = len(own_ns), len(move_ns)
        self.index, self.num_ops = index, n
        self.never = sum(own_ns.tolist()) + sum(move_ns.tolist()) + 1
        self.source, self.sink = n + 2 * t, n + 2 * t + 1
        first = n + np.arange(t)
        ends = np.concatenate([index.tensor_producer, index.consumer])
        of = np.concatenate([np.arange(t), index.tensor])
        always = np.full(2 * len(ends), self.never)
        self.tail = np.concatenate([np.arange(n), first, ends, n + t + of])
        self.head = np.concatenate([np.full(n, self.sink), first + t, n + of, ends])
        own = np.where(able, own_ns, self.never)
        self.capacity = np.concatenate([own, move_ns, always])

    def least_ns(self, side: NDArray[np.int8], after: Flags, before: Flags) -> int:
        """What a call takes besides the time of the ops that are known to be in it, at least.

        Parameters
        ----------
        side : (n,) int8
            `INSIDE`, `OUTSIDE` or 0 for each op.
        after, before : (n,) bool
            Whether an op comes after some op inside, before some op inside. A member after it has
            all its producers that also come after it in the call, because the call is convex, and a
            member before it all its consumers that do.

        Examples
        --------
        The diamond's op 2 is in a call and op 4 is not; op 3, in or out of it, adds nothing. Op 1
        costs 5 in the call and its output to op 3, 20, or its output to op 2, 1, outside of it. So
        1 in and 1 out:

        >>> from placegap.instances import example
        >>> arrays = example().arrays
        >>> own_ns, move_ns = arrays.time_ns[:, 0], arrays.host_ns[:, 0]
        >>> cuts = CallCuts(arrays.index, own_ns, np.ones(4, bool), move_ns)
        >>> none = np.zeros(4, bool)
        >>> cuts.least_ns(np.array([0, 1, 0, 2], np.int8), none, none)
        2
        """
        index, n = self.index, self.num_ops
        forward = after[index.producer] & after[index.consumer]
        back = before[index.producer] & before[index.consumer]
        tail = np.concatenate([self.tail, index.consumer[forward], index.producer[back]])
        head = np.concatenate([self.head, index.producer[forward], index.consumer[back]])
        more = np.full(len(tail) - len(self.tail), self.never)
        capacity = np.concatenate([self.capacity, more])
        node = np.arange(self.sink + 1)
        node[:n][side == INSIDE], node[:n][side == OUTSIDE] = self.source, self.sink
        own = np.arange(len(tail)) < n  # the time of an op that is inside is no part of the cut
        tail, head = node[tail], node[head]
        kept = (tail != self.sink) & (head != self.source) & (tail != head)
        kept &= ~(own & (tail == self.source))
        flow = max_flow.SimpleMaxFlow()
        flow.add_arcs_with_capacity(tail[kept], head[kept], capacity[kept])
        if flow.solve(self.source, self.sink) != flow.OPTIMAL:  # sums beyond 64 bits
            return 0
        return int(flow.optimal_flow())
