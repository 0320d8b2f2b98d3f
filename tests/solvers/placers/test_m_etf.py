"""m-ETF: Baechi's booking of transfers, by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from draws import draw

from placegap.instances import Device, Edge, Op
from placegap.solvers.placers.earliest_start import (
    earliest_start_first,
    no_favourites,
    no_footprint,
)
from placegap.solvers.placers.list_problem import admission_of, problem_of


def booked_starts(ops: dict[str, str], edges: Sequence[Edge]) -> list[int]:
    """Planned starts of ops of 2 ns, each on the only device that runs it; 1 byte takes 1 ns."""
    devices = [Device(name=name, kind=name) for name in sorted(set(ops.values()))]
    placed = [Op(name=op, time_ns={where: 2}) for op, where in ops.items()]
    instance = draw.instance_of("booked", placed, edges, devices, draw.fast_links(devices))
    problem, admission = problem_of(instance.arrays), admission_of(instance.arrays)
    order = np.array(instance.arrays.index.topological_order)
    nothing, alone = no_footprint(instance), no_favourites(instance)
    times = earliest_start_first(problem, admission, nothing, order, True, alone)
    starts: list[int] = times.start_ns.tolist()
    return starts


def test_a_device_sends_one_tensor_after_the_other() -> None:
    # a ends at 2; its tensors of 4 leave from 2 to 6 and from 6 to 10
    edges = [Edge(producer="a", consumer=x, bytes=4) for x in "bc"]
    assert booked_starts({"a": "d0", "b": "d1", "c": "d2"}, edges) == [0, 6, 10]


def test_a_tensor_goes_once_to_each_device() -> None:
    # b and c on d1 share what arrives at 6; c waits for b only
    edges = [Edge(producer="a", consumer=x, bytes=4, tensor="out") for x in "bc"]
    assert booked_starts({"a": "d0", "b": "d1", "c": "d1"}, edges) == [0, 6, 8]


def test_sending_and_receiving_share_a_clock() -> None:
    # d1 receives for c from 2 to 6; b, which d1 ran from 0 to 2, is sent to d2 only then: 6 to 10
    edges = [Edge(producer=a, consumer=b, bytes=4) for a, b in ("ac", "bd")]
    starts = booked_starts({"a": "d0", "b": "d1", "c": "d1", "d": "d2"}, edges)
    assert starts == [0, 0, 6, 10]


def test_a_receipt_may_lag_behind_its_send() -> None:
    # Two clocks: d0 sends from 2 to 6, d1 from 2 to 6, but d2 receives from 2 to 6, then 6 to 10
    edges = [Edge(producer=x, consumer="c", bytes=4) for x in "ab"]
    assert booked_starts({"a": "d0", "b": "d1", "c": "d2"}, edges) == [0, 0, 10]
