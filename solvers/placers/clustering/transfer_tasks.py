"""Transfers as tasks: each takes the time of its sender and of its receiver, in idle gaps.

Celeritas, section 6.1: "adding a new operation node for data transmission on the devices which need
to send or receive data", after TensorFlow, where a tensor is sent once to each device that needs
it. A transfer holds both devices for one common interval, neither of which runs an op meanwhile.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.kernels import kernel
from placegap.solvers.placers.insertion import Gaps, first_fit, occupy
from placegap.solvers.placers.list_problem import NOWHERE, Admission, Problem
from placegap.solvers.placers.whole_clusters import Clusters


class Sent(NamedTuple):
    """When each tensor is there on each device, (t, K), -1 if it was not sent; `mark` is scratch.

    `mark` (t + 1,) holds the last call that met a tensor, and the number of calls.
    """

    there_ns: Ints
    mark: Ints


def nothing_sent(num_tensors: int, num_devices: int) -> Sent:
    """No tensor has left its device."""
    return Sent(np.full((num_tensors, num_devices), NOWHERE), np.zeros(num_tensors + 1, np.int64))


@kernel
def receive(
    problem: Problem,
    admission: Admission,
    clusters: Clusters,
    c: int,
    k: int,
    end: Ints,
    gaps: Gaps,
    sent: Sent,
    pieces: int,
    book: bool,
) -> tuple[Any, Any]:
    """When the inputs of cluster c are on device k; the pieces booked so far.

    Inputs are those of its ops that are on k or nowhere yet. They are sent one after the other, by
    the end of their producers, each in the first interval that both devices have idle. As all of
    them involve k, a trial (`book` false) finds the same times as the booking.
    """
    inputs = problem.inputs
    sent.mark[-1] += 1
    call = sent.mark[-1]
    arrival = np.int64(0)
    lacking: list[Any] = [  # (ready, edge, source)
        (np.int64(0), np.int64(0), np.int64(0)) for _ in range(0)
    ]
    for op in clusters.op[clusters.ptr[c] : clusters.ptr[c + 1]]:
        home = admission.home[admission.group[op]]
        if home not in (k, NOWHERE):
            continue
        for e in range(inputs.ptr[op], inputs.ptr[op + 1]):
            u, producer = inputs.tensor[e], inputs.op[e]
            if clusters.of[producer] == c:
                continue
            source, ready = admission.home[admission.group[producer]], end[clusters.of[producer]]
            if source == k:
                arrival = max(arrival, ready)
            elif sent.there_ns[u, k] != NOWHERE:
                arrival = max(arrival, sent.there_ns[u, k])
            elif sent.mark[u] != call:
                sent.mark[u] = call
                lacking.append((ready, np.int64(e), source))
    lacking.sort()
    free_from = np.int64(0)
    for ready, e, source in lacking:
        u = inputs.tensor[e]
        duration = inputs.transfer_ns[u, inputs.link_class[source, k]]
        there = ready
        if duration > 0:
            start, sending, receiving = _common_gap(
                gaps, source, k, max(ready, free_from), duration
            )
            there = free_from = start + duration
            if book:
                occupy(gaps, source, sending, pieces, start, duration)
                occupy(gaps, k, receiving, pieces + 1, start, duration)
                pieces += 2
        if book:
            sent.there_ns[u, k] = there
        arrival = max(arrival, there)
    return arrival, pieces


@kernel
def _common_gap(
    gaps: Gaps, one: int, other: int, ready_ns: int, duration_ns: int
) -> tuple[Any, Any, Any]:
    """First start from `ready_ns` on at which both devices are idle long enough; their gaps."""
    start = ready_ns
    while True:
        first = first_fit(gaps, one, start, duration_ns)
        start = max(start, gaps.begin_ns[first])
        second = first_fit(gaps, other, start, duration_ns)
        if gaps.begin_ns[second] <= start:
            return start, first, second
        start = gaps.begin_ns[second]
